"""The service's API, for the checks of scripts/cloud_documents. A check that fails ends the program with a message."""

import json
import os
import time
import urllib.error
import urllib.request

# Longer than anything takes that is waited for, on a machine that is busy with tests.
WAIT_SECONDS_MAX = 60
POLL_SECONDS = 0.1


def expect(is_met, message):
    if not is_met:
        raise SystemExit(f"cloud_documents: {message}")


def expect_same(what, expected, found):
    expect(expected == found, f"{what}: expected {expected!r}, found {found!r}")


def wait_for(what, find):
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        time.sleep(POLL_SECONDS)
    raise SystemExit(f"cloud_documents: waited {WAIT_SECONDS_MAX} s for {what}")


def send(method, url, data, headers):
    """The status and the text of an answer."""
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS_MAX) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def call_service(method, path, body=None, status=200):
    """An answer of the service, which must have this status."""
    headers = {"Cookie": os.environ["DOCUMENTS_COOKIE"], "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    found, text = send(method, os.environ["DOCUMENTS_URL"] + path, data, headers)
    expect(found == status, f"{method} {path} answered {found} instead of {status}: {text}")
    return json.loads(text) if text else None
