"""Asks the packages of others whether they accept a delivery; started by scripts/verifiers.

The first argument is verify.mjs beside its node_modules. Nothing here knows how a signature is made.
"""

import json
import subprocess
import sys

import standardwebhooks
import svix.webhooks


def accepts(webhook, case):
    # Whatever a package raises is its refusal: neither keeps to one kind of error.
    try:
        webhook(case["secret"]).verify(case["body"], case["headers"])
    except Exception:
        return False
    return True


lines = [line for line in sys.stdin.buffer.read().split(b"\n") if line]
node = subprocess.run(["node", sys.argv[1]], input=b"\n".join(lines), stdout=subprocess.PIPE, check=True)
for line, others in zip(lines, node.stdout.splitlines(), strict=True):
    case = json.loads(line)
    verdicts = {
        "python_standardwebhooks": accepts(standardwebhooks.Webhook, case),
        "python_svix": accepts(svix.webhooks.Webhook, case),
    }
    print(json.dumps(verdicts | json.loads(others)))
