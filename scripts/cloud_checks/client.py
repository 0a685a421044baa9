"""What the checks of scripts/clouds share: the service's API, moto, the fault proxy, and what earlier checks have left.

Where everything is comes from the environment, which scripts/clouds sets. A check that fails ends the program with a message.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import datetime, timezone

import boto3
from botocore.config import Config

FOLDER = os.environ["CLOUDS_FOLDER"]
MOTO_URL = os.environ["CLOUDS_MOTO"]
STATE_PATH = os.path.join(FOLDER, "state.json")
# Every answer of the service, to look for secrets in.
ANSWERS_PATH = os.path.join(FOLDER, "answers.log")
# Longer than anything takes that is waited for, on a machine that is busy with tests.
WAIT_SECONDS_MAX = 60
POLL_SECONDS = 0.1


def fail(message):
    sys.exit(f"clouds: {message}")


def expect(is_met, message):
    if not is_met:
        fail(message)


def expect_same(what, expected, found):
    expect(expected == found, f"{what}: expected {expected!r}, found {found!r}")


def wait_for(what, find):
    """Asks until `find` gives something. What it raised or gave last is in the message when it takes too long."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > deadline:
            fail(f"waited {WAIT_SECONDS_MAX} s for {what}")
        time.sleep(POLL_SECONDS)


def send(method, url, body=None, headers=()):
    """The status and the text of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, dict(headers), method=method)
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS_MAX) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def call(method, path, body=None, status=200):
    """An answer of the service, which must have this status."""
    headers = {"Cookie": os.environ["CLOUDS_COOKIE"]}
    found, text = send(method, os.environ["CLOUDS_URL"] + path, body, headers)
    with open(ANSWERS_PATH, "a", encoding="utf-8") as file:
        file.write(f"{method} {path} {found} {text}\n")
    expect(found == status, f"{method} {path} answered {found} instead of {status}: {text}")
    return json.loads(text) if text else None


def list_all(path):
    """All records of a list."""
    records, cursor = [], ""
    while True:
        page = call("GET", f"{path}{'&' if '?' in path else '?'}limit=200{cursor}")
        records += page["data"]
        if not page["has_more"]:
            return records
        cursor = f"&cursor={page['next_cursor']}"


def create_provider(name, keys, regions, **more):
    credentials = {"access_key_id": keys["id"], "secret_access_key": keys["secret"], **more}
    body = {"name": name, "kind": "aws", "credentials": credentials, "regions": regions}
    return call("POST", "/api/cloud/providers", body, 201)["id"]


def get_provider(provider):
    return call("GET", f"/api/cloud/providers?id={provider}")


def verify(provider):
    return call("POST", "/api/cloud/providers", {"action": "verify", "id": provider})


def sync(provider):
    """Asks for a sync, and waits for its end. Returns the provider, with the error if the sync failed."""
    began = format_now()
    before = call("POST", "/api/cloud/providers", {"action": "sync", "id": provider}, 202)

    def find_end():
        found = get_provider(provider)
        has_failed = found["last_sync_error"] not in (None, before["last_sync_error"])
        return found if has_failed or found["last_sync_at"] >= began else None

    return wait_for("the end of a sync", find_end)


def format_now():
    """The time as the service writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def list_vms(provider, query=""):
    return list_all(f"/api/cloud/vms?provider_id={provider}{query}")


def wait_for_status(provider, *statuses):
    def find_settled():
        found = get_provider(provider)
        return found if found["status"] in statuses else None

    return wait_for(f"the provider to be {' or '.join(statuses)}", find_settled)


def order(provider, region, **fields):
    """Orders machines, and returns what is told of them at once."""
    image = load_state()["images"][region]
    body = {"provider_id": provider, "region": region, "size": "t3.micro", "image": image, **fields}
    made = call("POST", "/api/cloud/vms", body, 202)
    return made["data"] if "count" in fields else [made]


def get_vm(vm):
    return call("GET", f"/api/cloud/vms?id={vm}")


def open_aws(service, region="us-east-1"):
    """moto, without the fault proxy in between. Signed by an administrator's key once there is one."""
    keys = load_state().get("administrator", {"id": "none", "secret": "none"})
    config = Config(retries={"total_max_attempts": 1})
    return boto3.client(service, region_name=region, endpoint_url=MOTO_URL, aws_access_key_id=keys["id"],
                        aws_secret_access_key=keys["secret"], config=config)


def list_instances(region):
    """The instances of a region, as moto tells them to a client that is not ours."""
    pages = open_aws("ec2", region).get_paginator("describe_instances").paginate(MaxResults=1000)
    return [instance for page in pages for reservation in page["Reservations"] for instance in reservation["Instances"]]


def add_faults(*rules):
    send("POST", os.environ["CLOUDS_PROXY"] + "/faults", list(rules))


def get_proxy_state():
    return json.loads(send("GET", os.environ["CLOUDS_PROXY"] + "/state")[1])


def list_calls():
    return json.loads(send("GET", os.environ["CLOUDS_PROXY"] + "/calls")[1])


def rule(effect, times=1, **match):
    return {"effect": effect, "times": times, "match": match}


def load_state():
    with open(STATE_PATH, encoding="utf-8") as file:
        return json.load(file)


@contextmanager
def change_state():
    state = load_state()
    yield state
    with open(STATE_PATH, "w", encoding="utf-8") as file:
        json.dump(state, file)
