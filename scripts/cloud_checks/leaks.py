"""Looks for the secrets of the checks in everything that the service has answered, logged and stored."""

import base64
import os

import client
from client import expect

# Files of the checks themselves, of moto and of the proxy.
OURS = {"state.json", "moto.out", "moto.log", "proxy.out", "proxy.log"}


def list_forms(secret):
    """A secret as it may be written: as it is, in hexadecimal, and in Base64 at each place within three bytes."""
    plain = secret.encode()
    # In Base64, the first and the last characters depend on what stands beside.
    return [plain, plain.hex().encode(), *(base64.b64encode(b"\0" * shift + plain)[4:-4] for shift in range(3))]


def list_files():
    """The store with its journal, now and whenever the service was killed, and logs and answers of all runs."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(client.FOLDER) for name in names]
    return sorted(path for path in files if os.path.basename(path) not in OURS)


def read_more_answers(state):
    """What was not asked for by other checks."""
    for path in ("/api/cloud/providers?limit=200", "/api/admin/audit?limit=200", "/api/search?q=made"):
        client.call("GET", path)
    cursor, has_more = "", True
    while has_more:
        page = client.call("GET", f"/api/admin/webhooks/events?view=feed&limit=200{cursor}")
        cursor, has_more = f"&cursor={page['next_cursor']}", page["has_more"]
    for provider in state["providers"].values():
        client.get_provider(provider)


def main():
    state = client.load_state()
    read_more_answers(state)
    secrets = {name: keys["secret"] for name, keys in state.items() if isinstance(keys, dict) and "secret" in keys}
    secrets["user data"] = state["canaries"]["user_data"].split()[-1]
    secrets["wrong secret"] = state["canaries"]["secret"]
    found, naming = [], set()
    for path in list_files():
        with open(path, "rb") as file:
            content = file.read()
        if state["providers"]["faulty"].encode() in content:
            naming.add(os.path.basename(path).removesuffix("-wal"))
        is_inside = lambda secret: any(form in content for form in list_forms(secret))
        found += [f"{name} in {os.path.basename(path)}" for name, secret in secrets.items() if is_inside(secret)]
    expect(not found, f"secrets were found: {', '.join(found)}")
    # What was looked at is what was written: this provider is named in all of them.
    expect(naming >= {"answers.log", "server.log", "tenant-control.db"}, f"only {naming} have the id of a provider")
    # And AWS has what was not found.
    instance = client.list_instances("eu-west-1")[0]["InstanceId"]
    attribute = client.open_aws("ec2", "eu-west-1").describe_instance_attribute(InstanceId=instance, Attribute="userData")
    sent = base64.b64decode(attribute["UserData"]["Value"]).decode()
    client.expect_same("the user data that AWS has", state["canaries"]["user_data"], sent)
    print(f"leaks: none of {len(secrets)} secrets is in the answers, the logs or the store")


main()
