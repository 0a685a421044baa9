"""The checks of scripts/cloud_documents: the service is led through everything that it does with a cloud of each kind, and then
the calls that the clouds have seen are compared with calls.py. Everything is named as the documents' examples name it."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

from calls import CALLS, MEANT_TO_BE_REFUSED, list_operations
from clouds import HAND_TOKEN, OWNER_TOKEN, TOKEN, Digitalocean, Hetzner
from documents import find_example, list_calls_in_source, load_document, sample
from service import call_service, expect, expect_same, send, wait_for

CLOUDS = {cloud.KIND: cloud for cloud in (Hetzner, Digitalocean)}
DOCUMENTS = {kind: load_document(kind) for kind in CLOUDS}
PROVIDERS, VMS = "/api/cloud/providers", "/api/cloud/vms"
CALLS_PATH = os.path.join(os.environ["DOCUMENTS_FOLDER"], "calls.log")


def run_life(kind):
    """Everything that the service does with a cloud."""
    example = find_machine_example(kind)
    region = example["location"]["name"] if kind == "hetzner" else example["region"]["slug"]
    refused = create_provider(kind, "Refused", "unknown-" + TOKEN, region)
    wait_for_field(f"{PROVIDERS}?id={refused}", "status", "invalid")
    provider = create_provider(kind, "Acme", TOKEN, region)
    path = f"{PROVIDERS}?id={provider}"
    verified = wait_for("a verification", lambda: find_verified(path))
    checks = verified["verification"]["checks"]
    expect(all(check["result"] == "allowed" for check in checks), f"{kind} does not verify what the document describes: {checks}")
    wait_for("the first sync", lambda: call_service("GET", path)["last_sync_at"])
    check_fleet(kind, provider, example)
    order = take_order(kind, path, provider, region)
    for name in ("new.example.com", "lost-1.example.com"):
        vm = call_service("POST", VMS, order | {"name": name}, 202)
        await_order(f"{VMS}?id={vm['id']}")
    check_deleted(kind, provider)


def find_machine_example(kind):
    cloud = CLOUDS[kind]
    return find_example(DOCUMENTS[kind]["paths"][cloud.LIST]["get"], "200")[cloud.MANY][0]


def create_provider(kind, name, token, region):
    body = {"name": name, "kind": kind, "regions": [region], "credentials": {"token": token}}
    return call_service("POST", PROVIDERS, body, 201)["id"]


def wait_for_field(path, field, value):
    def find_changed():
        record = call_service("GET", path)
        return record if record[field] == value else None

    return wait_for(f"{field} {value} at {path}", find_changed)


def find_verified(path):
    provider = call_service("GET", path)
    return provider if provider["status"] not in ("unverified", "verifying") else None


def list_machines(provider):
    machines, cursor = [], ""
    while True:
        page = call_service("GET", f"{VMS}?provider_id={provider}&limit=200{cursor}")
        machines += page["data"]
        if not page["has_more"]:
            return machines
        cursor = f"&cursor={page['next_cursor']}"


def check_fleet(kind, provider, example):
    """All machines are listed, and each as the example describes it."""
    machines = list_machines(provider)
    expect_same(f"{kind}: machines", CLOUDS[kind].MACHINES, len(machines))
    first = next(machine for machine in machines if machine["external_id"] == "1001")
    shown = {key: first[key] for key in ("name", "state", "image", "public_ips", "tags")}
    expected = {"name": "web-0.example.com", "state": "running"}
    if kind == "hetzner":
        net = example["public_net"]
        expected |= {"image": example["image"]["name"], "public_ips": [net["ipv4"]["ip"], net["ipv6"]["ip"]]}
        expected |= {"tags": example["labels"]}
        size = (example["server_type"]["name"], example["server_type"]["cores"], example["server_type"]["memory"] * 2**30)
    else:
        public = [it["ip_address"] for version in ("v4", "v6") for it in example["networks"][version] if it["type"] == "public"]
        expected |= {"image": example["image"]["slug"], "public_ips": public, "tags": {"web": "", "env": "prod"}}
        size = (example["size_slug"], example["vcpus"], example["memory"] * 2**20)
    expect_same(f"{kind}: a machine", expected, shown)
    expect_same(f"{kind}: its size", size, tuple(first["size"][key] for key in ("id", "vcpus", "memory_bytes")))
    expect(first["cost"] and first["size"]["disk_bytes"], f"{kind}: no cost or disk: {first}")


def take_order(kind, path, provider, region):
    """An order of what the catalogs offer, with every field that an order can have."""
    catalogs = {name: call_service("GET", f"{path}&catalog={name}&region={region}")["data"] for name in ("sizes", "images")}
    regions = call_service("GET", f"{path}&catalog=regions")["data"]
    expect(region in [item["id"] for item in regions], f"{kind}: {region} is none of {regions}")
    for name, items in catalogs.items():
        expect(items, f"{kind}: the catalog of {name} is empty")
    expect(all(item["vcpus"] and item["memory_bytes"] for item in catalogs["sizes"]), f"{kind}: {catalogs['sizes']}")
    operation = DOCUMENTS[kind]["paths"][CLOUDS[kind].LIST]["post"]
    wanted = sample(operation["requestBody"]["content"]["application/json"]["schema"])
    return {"provider_id": provider, "region": region, "size": catalogs["sizes"][0]["id"],
            "image": catalogs["images"][0]["id"], "tags": {"env": "prod"}, "user_data": wanted["user_data"],
            "ssh_keys": [str(key) for key in wanted["ssh_keys"]]}


def await_order(path):
    def find_ended():
        vm = call_service("GET", path)
        return vm if vm["operation"]["status"] in ("succeeded", "failed", "needs_attention") else None

    ended = wait_for("the end of an order", find_ended)
    expect_same(f"the order of {ended['name']}", ("succeeded", "running"), (ended["operation"]["status"], ended["state"]))


def check_deleted(kind, provider):
    """A machine that somebody deletes is looked for by its id, and gone when the cloud does not know it."""
    vm = next(machine for machine in list_machines(provider) if machine["external_id"] == "1002")
    status, text = ask_by_hand(kind, "DELETE", "/servers/1002" if kind == "hetzner" else "/droplets/1002",
                               Authorization=f"Bearer {OWNER_TOKEN}")
    expect(status in (200, 204), f"{kind}: a deletion answered {status}: {text}")
    call_service("POST", PROVIDERS, {"action": "sync", "id": provider}, 202)
    wait_for_field(f"{VMS}?id={vm['id']}", "state", "terminated")


def ask_by_hand(kind, method, path, body=None, **headers):
    base_url = os.environ[f"DOCUMENTS_{kind.upper()}"]
    defaults = {"Authorization": f"Bearer {HAND_TOKEN}"} | ({} if body is None else {"Content-Type": "application/json"})
    data = None if body is None else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return send(method, base_url + path, data, {name: value for name, value in (defaults | given).items() if value})


def check_judges():
    """What is wrong is refused for its reason: a judge that lets everything pass would prove nothing. All later calls are
    the service's, but for the owner's deletions."""
    server = {"name": "a", "server_type": "cx23", "image": "debian-13"}
    droplet = {"name": "a", "size": "s-1vcpu-1gb", "image": "debian-13-x64"}
    for kind, method, path, body, headers, reason in [
        ("hetzner", "GET", "/servers?per_page=all", None, {}, "per_page"),
        ("hetzner", "GET", "/servers?sort=age", None, {}, "'age' is not one of"),
        ("hetzner", "GET", "/servers?pages=1", None, {}, "parameter pages: is not declared"),
        ("hetzner", "GET", "/servers/0", None, {}, "less than the minimum"),
        ("hetzner", "GET", "/servers", None, {"Authorization": None}, "Security"),
        ("hetzner", "GET", "/servers", None, {"Authorization": "Basic YTpi"}, "Security"),
        ("hetzner", "GET", "/machines", None, {}, "Path not found"),
        ("hetzner", "PATCH", "/servers", None, {}, "Operation patch not found"),
        ("hetzner", "POST", "/servers", server, {"Content_Type": "text/plain"}, "mimetype not found"),
        ("hetzner", "POST", "/servers", server | {"labels": {"a": 1}}, {}, "1 is not of type 'string'"),
        ("hetzner", "POST", "/servers", server | {"region": "fsn1"}, {}, "body: region is not declared"),
        ("hetzner", "POST", "/servers", {"name": "a"}, {}, "'image' is a required property"),
        ("digitalocean", "GET", "/droplets?per_page=201", None, {}, "greater than the maximum"),
        ("digitalocean", "GET", "/droplets?page=1&page=2", None, {}, "page: is given 2 times"),
        ("digitalocean", "POST", "/droplets", droplet | {"tags": "web"}, {}, "not valid under any"),
        ("digitalocean", "POST", "/droplets", droplet | {"labels": {}}, {}, "body: labels is not declared"),
        ("digitalocean", "POST", "/droplets", droplet | {"name": "a b"}, {}, "not valid under any"),
        ("digitalocean", "POST", "/droplets", droplet | {"volumes": []}, {}, "scope block_storage:read"),
    ]:
        status, text = ask_by_hand(kind, method, path, body, **headers)
        expect(status == 400 and reason in text, f"{kind}: {method} {path} was not refused for {reason!r}: {status} {text}")
    os.remove(CALLS_PATH)


def check_objections():
    """Every call of the service is as the document says, and so is every answer. Returns the calls of the service."""
    with open(CALLS_PATH, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    for record in records:
        expect_same(f"{record['kind']}: what is wrong with the answer to {record['call']}", [], record["answer_objections"])
    made = [record for record in records if record["token"] != OWNER_TOKEN]
    for record in made:
        allowed = MEANT_TO_BE_REFUSED.get(record["call"], [])
        expect_same(f"{record['kind']}: what is wrong with {record['call']}", allowed, record["objections"])
    return made


def check_completeness(made):
    """Every call that the service can make was made."""
    for kind, calls in CALLS.items():
        expect_same(f"{kind}: calls", sorted(calls), sorted({record["call"] for record in made if record["kind"] == kind}))
        listed = {(method, re.sub(r"\{\w+\}", "{}", path.removeprefix("/v2"))) for method, path in list_operations(kind)}
        expect_same(f"{kind}: calls in the adapter's source", sorted(listed), sorted(list_calls_in_source(kind)))


def main():
    check_judges()
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(run_life, CLOUDS))
    finally:
        # What a document forbids is a better reason than what became of it.
        made = check_objections()
    check_completeness(made)
    kinds = sum(map(len, CALLS.values()))
    print(f"{len(made)} requests of {kinds} kinds are as Hetzner's and DigitalOcean's documents say")


main()
