"""What the checks of scripts/backups share: the service's API and a way to wait. Needs nothing but Python.

Where everything is comes from the environment, which scripts/backups sets. A check that fails raises Failure.
"""

import json
import os
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone

URL = os.environ["BACKUPS_URL"]
FOLDER = os.environ["BACKUPS_FOLDER"]
# Longer than anything takes that is waited for, on a machine that is busy with tests.
WAIT_SECONDS_MAX = 30
POLL_SECONDS = 0.05
AGGREGATE = "/api/backup/customer-aggregate"


class Failure(Exception):
    """Something is not as it must be."""


def expect(is_met, message):
    if not is_met:
        raise Failure(message)


def expect_same(what, expected, found):
    expect(expected == found, f"{what}: expected {expected!r}, found {found!r}")


def wait_for(what, find):
    """Asks until `find` gives something."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not (found := find()):
        expect(time.monotonic() < deadline, f"waited {WAIT_SECONDS_MAX} s for {what}")
        time.sleep(POLL_SECONDS)
    return found


def call(method, path, body=None, status=200):
    """An answer of the service, which must have this status."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Cookie": os.environ["BACKUPS_COOKIE"], "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS_MAX) as response:
            found, text = response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        found, text = error.code, error.read().decode()
    expect(found == status, f"{method} {path} answered {found} instead of {status}: {text}")
    return json.loads(text)


def get_row(organization):
    """The row of the aggregate of one organization."""
    rows = call("GET", f"{AGGREGATE}?organization_id={organization}")["data"]
    expect_same("rows of one organization", [organization], [row["organization_id"] for row in rows])
    return rows[0]


def format_now():
    """The time as the service writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
