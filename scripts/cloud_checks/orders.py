"""Orders whose answers are lost: each makes exactly one machine.

  orders.py lose     orders machines, and ends when the answers to all are lost or held back: then the service is killed
  orders.py settle   waits for the orders of all rounds, and counts the machines
"""

import sys
from collections import Counter

import client
from client import expect, expect_same
from prepare import OPERATION_TAG, ORDER_REGION

# What happens to the requests of a round. The service works on ten at once, and those that are held stay until it is killed.
FATES = {"lose_answer": 14, "hold_answer": 6, "hold_request": 4}
MADE = FATES["lose_answer"] + FATES["hold_answer"]


def lose_answers():
    state = client.load_state()
    orders, before = state.get("orders", []), client.get_proxy_state()
    number = len(orders) // sum(FATES.values())
    names = {"lose_answer": f"made {number}", "hold_answer": f"made {number}", "hold_request": f"unsent {number}"}
    calls = {"Action": "RunInstances", "region": ORDER_REGION}
    client.add_faults(*(client.rule(fate, times, **calls, name=f"{names[fate]}-*") for fate, times in FATES.items()))
    fields = {"user_data": state["canaries"]["user_data"], "tags": {"owner": "Zoë & <co> + 1"}}
    made = []
    for name, count in ((names["lose_answer"], MADE), (names["hold_request"], FATES["hold_request"])):
        made += client.order(state["providers"]["role"], ORDER_REGION, name=name, count=count, **fields)
    expect_same("machines ordered", sum(FATES.values()), len(made))
    expect_same("what is ordered", {("provisioning", "accepted")}, {(vm["state"], vm["operation"]["status"]) for vm in made})

    def find_end():
        now = client.get_proxy_state()
        return all(now.get(fate, 0) - before.get(fate, 0) == times for fate, times in FATES.items())

    client.wait_for("the loss of the answers", find_end)
    with client.change_state() as changed:
        changed["orders"] = orders + [{"vm": vm["id"], "operation": vm["operation"]["id"]} for vm in made]


def settle():
    state = client.load_state()
    orders = {made["vm"]: made["operation"] for made in state["orders"]}
    provider = state["providers"]["role"]

    def find_end():
        vms = [vm for vm in client.list_vms(provider) if vm["id"] in orders]
        is_open = lambda vm: vm["operation"]["status"] in ("accepted", "submitting", "submitted", "waiting")
        return vms if not any(is_open(vm) for vm in vms) else None

    vms = client.wait_for("the end of all orders", find_end)
    expect_same("how the orders end", {("succeeded", None, "running")}, {describe_end(vm) for vm in vms})
    expect_same("machines listed", len(orders), len(vms))
    check_instances(orders, vms)
    check_calls(vms)
    check_events(set(orders))
    unsent = sum(1 for vm in vms if vm["name"].startswith("unsent"))
    print(f"orders: {len(vms) - unsent} answers and {unsent} requests were lost, and each order has made one machine")


def check_instances(orders, vms):
    """Exactly one instance carries the tag of each operation, and it is the one that the service shows."""
    instances = client.list_instances(ORDER_REGION)
    tags = {instance["InstanceId"]: {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])} for instance in instances}
    made, wanted = Counter(found.get(OPERATION_TAG) for found in tags.values()), set(orders.values())
    wrong = {operation: made[operation] for operation in wanted | set(made) if made[operation] != (operation in wanted)}
    expect_same("operations without exactly one machine", {}, wrong)
    for vm in vms:
        expect_same(f"the tags of {vm['id']}", vm["tags"], tags[vm["external_id"]])
        expect_same(f"the operation of {vm['id']}", orders[vm["id"]], vm["tags"][OPERATION_TAG])


def check_calls(vms):
    """AWS was asked again only for what had not reached it."""
    calls = [made for made in client.list_calls() if made["Action"] == "RunInstances" and "DryRun" not in made]
    asked = Counter(made["ClientToken"] for made in calls if made["region"] == ORDER_REGION)
    for vm in vms:
        times = 2 if vm["name"].startswith("unsent") else 1
        expect_same(f"requests for {vm['name']}", times, asked[vm["operation"]["id"]])


def describe_end(vm):
    return vm["operation"]["status"], vm["operation"]["error"] and vm["operation"]["error"]["detail"], vm["state"]


def check_events(ids):
    """Each machine is told of once."""
    feed, cursor = [], ""
    while page := client.call("GET", f"/api/admin/webhooks/events?view=feed&types=vm.provisioned&limit=200{cursor}"):
        feed += page["data"]
        if not page["has_more"]:
            break
        cursor = f"&cursor={page['next_cursor']}"
    told = Counter(event["data"]["id"] for event in feed)
    expect_same("events of machines that are not exactly one", {}, {vm: told[vm] for vm in ids if told[vm] != 1})


{"lose": lose_answers, "settle": settle}[sys.argv[1]]()
