"""The fleet: a thousand machines are listed page by page, each as AWS tells it, and what changes in AWS is seen."""

import client
from client import expect, expect_same
from prepare import FLEET_REGIONS, FLEET_SIZE

MIB = 1 << 20
SHOWN = 5


def describe_expected(region, instance, types, organization):
    """A machine as it has to be listed."""
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    size = types[instance["InstanceType"]]
    return {
        "region": region,
        "zone": instance["Placement"]["AvailabilityZone"],
        "name": tags["Name"],
        "size": {"id": instance["InstanceType"], "vcpus": size["VCpuInfo"]["DefaultVCpus"],
                 "memory_bytes": size["MemoryInfo"]["SizeInMiB"] * MIB},
        "image": instance["ImageId"],
        "state": instance["State"]["Name"],
        "public_ips": [instance["PublicIpAddress"]] if "PublicIpAddress" in instance else [],
        "private_ips": [instance["PrivateIpAddress"]] if "PrivateIpAddress" in instance else [],
        "tags": tags,
        "organization_id": organization if tags["tenant-control:organization"] == "globex" else None,
        "managed": False,
        "operation": None,
    }


def list_expected(regions, organization):
    """The machines of moto by their id."""
    expected = {}
    for region in regions:
        types = client.open_aws("ec2", region).describe_instance_types()["InstanceTypes"]
        types = {found["InstanceType"]: found for found in types}
        for instance in client.list_instances(region):
            expected[instance["InstanceId"]] = describe_expected(region, instance, types, organization)
    return expected


def compare(provider, regions, organization):
    """Every machine of moto is listed as it is there, and no other. Returns how many."""
    expected = list_expected(regions, organization)
    found = {vm["external_id"]: vm for vm in client.list_vms(provider, f"&region={','.join(regions)}")}
    expect_same("machines that are missing", [], sorted(set(expected) - set(found))[:SHOWN])
    expect_same("machines that moto does not have", [], sorted(set(found) - set(expected))[:SHOWN])
    for external_id, machine in expected.items():
        vm = found[external_id]
        for field, value in machine.items():
            shown = {name: vm["size"][name] for name in value} if field == "size" else vm[field]
            expect_same(f"{field} of {external_id}", value, shown)
        expect(vm["first_seen_at"] and vm["last_seen_at"] and vm["raw_state"], f"not all is told: {vm}")
    return len(expected)


def count_pages(calls, region):
    is_page = lambda made: made["Action"] == "DescribeInstances" and made.get("MaxResults") == "200"
    return sum(1 for made in calls if is_page(made) and made["region"] == region)


def check_first_sync(provider, state):
    client.wait_for("the first sync of the fleet", lambda: client.get_provider(provider)["last_sync_at"])
    expect_same("the error of the first sync", None, client.get_provider(provider)["last_sync_error"])
    expect_same("machines in moto", FLEET_SIZE, compare(provider, FLEET_REGIONS, state["organization"]))
    keys = state["documented"]["id"]
    calls = [made for made in client.list_calls() if made["access_key"] == keys]
    pages = {region: count_pages(calls, region) for region in FLEET_REGIONS}
    # 500 machines in pages of 100.
    expect_same("pages read in the first sync", {region: 5 for region in FLEET_REGIONS}, pages)
    counts = client.call("GET", "/api/cloud/vms?view=summary")["region"]
    expect({"value": FLEET_REGIONS[0], "count": FLEET_SIZE // 2} in counts, f"the summary has other counts: {counts}")
    expect(client.list_vms(provider, f"&organization_id={state['organization']}"), "no machine has the organization of its tag")


def check_changes(provider, state):
    """What is stopped, terminated and made in AWS, and nothing else, has changed after a sync."""
    region = FLEET_REGIONS[0]
    ec2 = client.open_aws("ec2", region)
    stopped, terminated = (instance["InstanceId"] for instance in client.list_instances(region)[120:122])
    ec2.stop_instances(InstanceIds=[stopped])
    ec2.terminate_instances(InstanceIds=[terminated])
    began = client.format_now()
    expect_same("the error of the second sync", None, client.sync(provider)["last_sync_error"])
    compare(provider, [region], state["organization"])
    changed = {vm["external_id"]: vm["state"] for vm in client.list_vms(provider, f"&updated_since={began}")}
    expect_same("what has changed", {stopped: "stopped", terminated: "terminated"}, changed)
    feed = client.call("GET", "/api/admin/webhooks/events?view=feed&types=vm.state_changed&limit=200")["data"]
    of_fleet = (event["data"] for event in feed if event["data"]["provider_id"] == provider)
    told = {vm["external_id"]: vm["state"] for vm in of_fleet}
    expect_same("the events", changed, told)


def main():
    state = client.load_state()
    provider = state["providers"]["documented"]
    check_first_sync(provider, state)
    check_changes(provider, state)
    print(f"fleet: {FLEET_SIZE} machines in {len(FLEET_REGIONS)} regions are listed page by page, and changes are seen")


main()
