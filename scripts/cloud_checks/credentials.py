"""Credentials: what the service says of wrong ones, of those that may not do all, and of those with the documented policy."""

import client
from client import expect, expect_same
from prepare import ACCOUNT, FAULT_REGION, FLEET_REGIONS, NAME, ORDER_REGION


def find_check(report, action, region=None):
    found = [check for check in report["checks"] if check["action"] == action and check["region"] in (region, None)]
    expect(len(found) == 1, f"one check of {action} was expected: {report}")
    return found[0]


def check_refused(name, keys, code):
    """Credentials that AWS does not accept."""
    provider = client.create_provider(name, keys, [FAULT_REGION])
    client.wait_for_status(provider, "invalid")
    report = client.verify(provider)
    verdict = (report["status"], report["identity"], report["error"]["code"])
    expect_same(f"the verdict on {name}", ("invalid", None, "auth"), verdict)
    check = find_check(report, "sts:GetCallerIdentity")
    expect_same(f"the identity with {name}", ("denied", code), (check["result"], check["code"]))
    others = {check["result"] for check in report["checks"] if check["action"] != "sts:GetCallerIdentity"}
    expect_same(f"the checks after {name}", {"skipped"}, others)
    client.call("POST", "/api/cloud/providers", {"action": "sync", "id": provider}, 409)
    body = {"provider_id": provider, "name": "never", "region": FAULT_REGION, "size": "t3.micro", "image": "ami-0"}
    client.call("POST", "/api/cloud/vms", body, 409)
    return provider


def check_reading(keys):
    """A user who may only look."""
    provider = client.create_provider("reading", keys, [FAULT_REGION])
    client.wait_for_status(provider, "degraded")
    report = client.verify(provider)
    expect_same("the status of a reading user", "degraded", report["status"])
    check = find_check(report, "ec2:RunInstances", FAULT_REGION)
    expect_same("RunInstances of a reading user", ("denied", "UnauthorizedOperation"), (check["result"], check["code"]))
    expect("ec2:RunInstances" in check["remediation"], f"what to grant is missing: {check}")
    for action in ("ec2:DescribeInstances", "ec2:DescribeInstanceTypes", "ec2:DescribeImages"):
        expect_same(f"{action} of a reading user", "allowed", find_check(report, action, FAULT_REGION)["result"])
    # A fleet can be looked at without the right to add to it.
    found = client.wait_for("the sync of a reading user", lambda: client.get_provider(provider)["last_sync_at"])
    expect(found and len(client.list_vms(provider)) == 3, "a reading user's machines are not listed")
    [vm] = client.order(provider, FAULT_REGION, name="forbidden")

    def find_end():
        operation = client.get_vm(vm["id"])["operation"]
        return operation if operation["status"] == "failed" else None

    error = client.wait_for("the order of a reading user to fail", find_end)["error"]
    expect_same("the error of a reading user's order", "permission", error["code"])
    expect("may not do this" in error["detail"] and "Encoded" not in error["detail"], f"not in plain words: {error}")
    client.call("DELETE", f"/api/cloud/providers?id={provider}", status=204)


def check_documented(keys, actions):
    """The documented policy is enough, and nothing of it is superfluous."""
    provider = client.create_provider("documented", keys["documented"], FLEET_REGIONS)
    report = client.verify(provider)
    expect_same("the checks with the documented policy", {"allowed"}, {check["result"] for check in report["checks"]})
    expect_same("the status with the documented policy", "active", report["status"])
    expect_same("the account", ACCOUNT, report["identity"]["account_id"])
    expect("user/documented" in report["identity"]["principal"], f"another principal: {report['identity']}")
    other = client.create_provider("without", keys["documented"], [ORDER_REGION])
    for action in actions:
        lacking = keys[f"without {action}"]
        credentials = {"access_key_id": lacking["id"], "secret_access_key": lacking["secret"]}
        body = {"name": "without", "kind": "aws", "regions": [ORDER_REGION], "credentials": credentials}
        client.call("PUT", f"/api/cloud/providers?id={other}", body)
        report = client.verify(other)
        check = find_check(report, action, ORDER_REGION)
        expect_same(f"{action} where it is not granted", "denied", check["result"])
        expect(action in check["remediation"], f"what to grant is missing: {check}")
        is_whole = all(check["result"] == "allowed" for check in report["checks"] if check["required"])
        expect_same(f"the status without {action}", "active" if is_whole else "degraded", report["status"])
    client.call("DELETE", f"/api/cloud/providers?id={other}", status=204)
    return provider


def check_catalog(provider, images):
    """What can be ordered, with the documented policy."""
    for kind, expected in {"regions": FLEET_REGIONS[0], "sizes": "t3.micro", "images": images[FLEET_REGIONS[0]]}.items():
        path = f"/api/cloud/providers?id={provider}&catalog={kind}&region={FLEET_REGIONS[0]}"
        ids = [found["id"] for found in client.list_all(path)]
        expect(expected in ids, f"the catalog of {kind} lacks {expected}: {ids[:5]}")


def check_role(state):
    """A role that wants an external id. Without one, the tenant's id is sent, so that no tenant can use another's role."""
    keys, role = state[NAME], state["role"]
    provider = client.create_provider("role", keys, [ORDER_REGION], role_arn=role["arn"], external_id=role["external_id"])
    report = client.verify(provider)
    expect_same("the status with a role", "active", report["status"])
    expect("assumed-role/tenant-control/" in report["identity"]["principal"], f"another principal: {report['identity']}")
    foreign = client.create_provider("foreign", keys, [ORDER_REGION], role_arn=role["arn"])
    report = client.verify(foreign)
    expect_same("the status with a foreign external id", ("invalid", "auth"), (report["status"], report["error"]["code"]))
    expect("external id" in report["error"]["detail"], f"not in plain words: {report['error']}")
    sent = [made["ExternalId"] for made in client.list_calls() if made["Action"] == "AssumeRole"]
    expect_same("the external ids that were sent", {role["external_id"], state["tenant"]}, set(sent))
    client.call("DELETE", f"/api/cloud/providers?id={foreign}", status=204)
    return provider


def check_events(wrong, documented):
    feed = client.call("GET", "/api/admin/webhooks/events?view=feed&types=cloud.*&limit=200")["data"]
    told = {(event["type"], event["data"]["id"]) for event in feed}
    for expected in (("cloud.provider.failed", wrong), ("cloud.provider.verified", documented)):
        expect(expected in told, f"the event {expected} was not told: {sorted(told)}")


def main():
    state = client.load_state()
    canary = {"id": state["documented"]["id"], "secret": state["canaries"]["secret"]}
    wrong = check_refused("wrong secret", canary, "SignatureDoesNotMatch")
    check_refused("unknown key", state["unknown"], "InvalidClientTokenId")
    check_reading(state["reading"])
    documented = check_documented(state, state["actions"])
    check_catalog(documented, state["images"])
    role = check_role(state)
    check_events(wrong, documented)
    with client.change_state() as changed:
        changed["providers"] = {"wrong": wrong, "documented": documented, "role": role}
    count = len(state["actions"])
    print(f"credentials: wrong ones are told, the documented policy is enough, and each of its {count} actions is needed")


main()
