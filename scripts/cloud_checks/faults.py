"""Clouds that fail: the service says in plain words what is wrong, takes no machine for gone, and recovers by itself or when
it is asked to."""

import client
from client import expect, expect_same, rule
from prepare import FAULT_REGION, FAULTY_ORDER_REGION, FLEET_REGIONS

PAGES = {"Action": "DescribeInstances", "MaxResults": "200"}
FAULTS_OF_SYNCS = {
    "fail": "AWS cannot be reached or failed: An internal error",
    "bad_gateway": "AWS cannot be reached or failed: the answer with the status 502 is cut off or is none of AWS",
    "lose_request": "AWS cannot be reached or failed",
    "stall": "AWS cannot be reached or failed",
    "truncate": "AWS cannot be reached or failed: the answer with the status 200 is cut off",
}
ERRORS_OF_ORDERS = {
    "throttle": ("rate_limited", "AWS accepts no more requests for now: Request limit exceeded."),
    "quota": ("quota", "A limit of the account at AWS is reached: You have requested more vCPU capacity"),
    "image": ("invalid", "AWS refuses the request: The image id '[ami-00000000000000000]' does not exist"),
    "size": ("invalid", "AWS refuses the request: "),
}
REFUSED_ORDERS = {"quota", "image", "size"}
MADE_ALTHOUGH_LOST = ["lose_answer", "stall", "truncate"]
ERROR_IN_DOUBT = ("ambiguous", "AWS gave no clear answer, and the machine may have been created: ")
# One that is not enabled in the account refuses every key; one that does not exist cannot be reached. Both come first in the
# provider's list, where the identity is asked for.
MISSING_REGIONS = {"ma-north-1": "refuse_key", "mo-south-1": "lose_request"}
# For a verification, and the attempts to sync and to verify that follow within half a minute.
MISSING_CALLS_MAX = 12


def list_states(provider):
    """The states of machines that AWS has made."""
    return {vm["external_id"]: vm["state"] for vm in client.list_vms(provider) if vm["external_id"]}


def check_syncs(provider, key):
    """Syncs that fail in each way, and the next that does not."""
    pages = PAGES | {"region": FAULT_REGION, "access_key": key}
    expect_same("machines before the faults", {"running"}, set(list_states(provider).values()))
    for effect, words in FAULTS_OF_SYNCS.items():
        states = list_states(provider)
        client.add_faults(rule(effect, **pages))
        error = client.sync(provider)["last_sync_error"]
        expect(error and error.startswith(f"{FAULT_REGION}: {words}"), f"the error after {effect} is {error!r}")
        expect_same(f"machines after {effect}", states, list_states(provider))
        recovered = client.sync(provider)
        expect_same(f"the error of the sync after {effect}", None, recovered["last_sync_error"])
        expect_same(f"machines after the sync after {effect}", states, list_states(provider))
    before = client.get_proxy_state()["throttle"]
    client.add_faults(rule("throttle", 2, **pages))
    expect_same("the error of a sync that is throttled twice", None, client.sync(provider)["last_sync_error"])
    expect_same("throttled answers", 2, client.get_proxy_state()["throttle"] - before)


def check_lost_page(provider):
    """A page in the middle of a list is cut off: what would have come after it is not gone."""
    states = list_states(provider)
    client.add_faults(rule("truncate", **PAGES, NextToken="*", region=FLEET_REGIONS[0]))
    error = client.sync(provider)["last_sync_error"]
    expect(error and "cut off" in error, f"the error after a page that is cut off is {error!r}")
    expect_same("machines after a page that is cut off", states, list_states(provider))


def begin_orders(keys):
    """An order for each way to fail. They are worked on while other checks go on."""
    provider = client.create_provider("faulty orders", keys, [FAULTY_ORDER_REGION])
    # A sync that goes on would find machines before they are looked for.
    client.wait_for("the first sync", lambda: client.get_provider(provider)["last_sync_at"])
    effects = ["throttle", "fail", "bad_gateway", "lose_request", "lose_answer", "stall", "truncate", "quota"]
    client.add_faults(*(rule(effect, Action="RunInstances", name=effect) for effect in effects))
    fields = {effect: {} for effect in effects} | {"image": {"image": "ami-00000000000000000"}, "size": {"size": "t0.enormous"}}
    orders = {name: client.order(provider, FAULTY_ORDER_REGION, name=name, **more)[0] for name, more in fields.items()}
    # What AWS has made is not in its lists yet when it is looked for, so it is asked for again with the same token.
    for effect in MADE_ALTHOUGH_LOST:
        looks = {"Action": "DescribeInstances", "Filter.1.Value.1": orders[effect]["operation"]["id"]}
        client.add_faults(rule("hide", **looks))
    orders = {effect: vm["id"] for effect, vm in orders.items()}
    check_first_errors(provider, {vm: effect for effect, vm in orders.items()})
    return orders


def check_first_errors(provider, effects):
    """Each order says what has happened to it, also while it goes on."""
    errors = {}

    def find_all():
        for vm in client.list_vms(provider, "&state=provisioning,failed"):
            if vm["id"] in effects and vm["operation"]["error"]:
                errors.setdefault(effects[vm["id"]], vm["operation"]["error"])
        return len(errors) == len(effects)

    client.wait_for("an error of each order", find_all)
    for effect, error in errors.items():
        code, words = ERRORS_OF_ORDERS.get(effect, ERROR_IN_DOUBT)
        expect_same(f"the error of the order {effect}", code, error["code"])
        expect(error["detail"].startswith(words), f"the error of the order {effect} is {error}")


def end_orders(orders):
    """Orders that AWS refuses have failed, and all others have made one machine."""
    for effect, vm in orders.items():
        def find_end():
            found = client.get_vm(vm)
            return found if found["operation"]["status"] in ("succeeded", "failed", "needs_attention") else None

        found = client.wait_for(f"the end of the order {effect}", find_end)
        expected = ("failed", "failed", False) if effect in REFUSED_ORDERS else ("succeeded", "running", True)
        operation = found["operation"]
        ended = (operation["status"], found["state"], operation["error"] is None)
        expect_same(f"the end of the order {effect}", expected, ended)
    tokens = client.get_proxy_state()
    repeated = (len(MADE_ALTHOUGH_LOST), 0)
    expect_same("requests with a used token", repeated, (tokens["repeated"], tokens["mismatched"]))
    tags = [tag for instance in client.list_instances(FAULTY_ORDER_REGION) for tag in instance["Tags"]]
    names = sorted(tag["Value"] for tag in tags if tag["Key"] == "Name")
    expect_same("machines made in spite of faults", sorted(set(orders) - REFUSED_ORDERS), names)


def check_revoked_key(provider, state):
    """A key that AWS does not accept any more stops the syncs, and a new one starts them."""
    states, iam = list_states(provider), client.open_aws("iam")
    iam.delete_access_key(UserName="faulty", AccessKeyId=state["faulty"]["id"])
    client.call("POST", "/api/cloud/providers", {"action": "sync", "id": provider}, 202)
    found = client.wait_for_status(provider, "invalid")
    error = found["last_sync_error"]
    expect(error and "does not accept the credentials" in error, f"the error is {error!r}")
    expect_same("machines of a revoked key", states, list_states(provider))
    key = iam.create_access_key(UserName="faulty")["AccessKey"]
    credentials = {"access_key_id": key["AccessKeyId"], "secret_access_key": key["SecretAccessKey"]}
    body = {"name": "faulty", "kind": "aws", "regions": [FAULT_REGION], "credentials": credentials}
    client.call("PUT", f"/api/cloud/providers?id={provider}", body)
    client.wait_for_status(provider, "active")
    client.wait_for("the sync with a new key", lambda: client.get_provider(provider)["last_sync_error"] is None)
    expect_same("machines after a new key", states, list_states(provider))
    with client.change_state() as changed:
        changed["revoked"] = state["faulty"]
        changed["faulty"] = {"id": key["AccessKeyId"], "secret": key["SecretAccessKey"]}


def begin_missing_regions(keys):
    """Providers with a region that the account does not have: the other one is synced."""
    client.add_faults(*(rule(effect, None, region=region) for region, effect in MISSING_REGIONS.items()))
    providers = {region: client.create_provider(region, keys, [FAULT_REGION, region]) for region in MISSING_REGIONS}
    for region, provider in providers.items():
        found = client.wait_for_status(provider, "degraded", "active", "invalid", "error")
        expect_same(f"the status with {region}", "degraded", found["status"])
        checks = found["verification"]["checks"]
        [check] = [check for check in checks if (check["region"], check["action"]) == (region, "ec2:DescribeInstances")]
        words = f"The region {region} does not exist or is not enabled"
        expect_same(f"the check of {region}", ("denied", True), (check["result"], words in check["remediation"]))
        others = {check["result"] for check in checks if check["region"] in (FAULT_REGION, None)}
        expect_same(f"the checks beside {region}", {"allowed"}, others)
        client.wait_for("the sync of the other region", lambda: list_states(provider))
        error = client.wait_for(f"the error of {region}", lambda: client.get_provider(provider)["last_sync_error"])
        expect(error.startswith(f"{region}: "), f"the error of {region} is {error!r}")
    return providers


def end_missing_regions(providers):
    """AWS was not asked again and again, and nothing is gone."""
    calls = client.list_calls()
    for region, provider in providers.items():
        asked = sum(1 for made in calls if made["region"] == region)
        expect(asked <= MISSING_CALLS_MAX, f"AWS was asked {asked} times about {region}, which the account does not have")
        expect_same(f"machines beside {region}", {"running"}, set(list_states(provider).values()))


def main():
    state = client.load_state()
    orders = begin_orders(state["faulty"])
    missing = begin_missing_regions(state["documented"])
    provider = client.create_provider("faulty", state["faulty"], [FAULT_REGION])
    client.wait_for("the first sync", lambda: client.get_provider(provider)["last_sync_at"])
    check_syncs(provider, state["faulty"]["id"])
    check_lost_page(state["providers"]["documented"])
    end_orders(orders)
    check_revoked_key(provider, state)
    end_missing_regions(missing)
    with client.change_state() as changed:
        changed["providers"]["faulty"] = provider
    print("faults: each is told in plain words, no machine is taken for gone, and the next attempt succeeds")


main()
