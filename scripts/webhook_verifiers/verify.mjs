// The half of scripts/verifiers that runs in Node; verify.py starts it. Reads one case per line, prints one verdict
// per line.
import { readFileSync } from "node:fs";
import { Webhook as StandardWebhook } from "standardwebhooks";
import { Webhook as SvixWebhook } from "svix";

// Whatever a package throws is its refusal: neither keeps to one kind of error.
function accepts(Webhook, { secret, headers, body }) {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch {
    return false;
  }
}

for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const given = JSON.parse(line);
  const verdicts = { node_standardwebhooks: accepts(StandardWebhook, given), node_svix: accepts(SvixWebhook, given) };
  console.log(JSON.stringify(verdicts));
}
