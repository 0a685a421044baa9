"""Asks the service for VMs of a libvirt host, for scripts/libvirt. Needs nothing but Python."""

import argparse
import ctypes
import json
import os
import time
import urllib.error
import urllib.request

URL = os.environ["LIBVIRT_URL"]
# Of admins of two tenants. The second is "ID COOKIE".
COOKIE = os.environ["LIBVIRT_COOKIE"]
OTHER_TENANT, OTHER_COOKIE = os.environ["LIBVIRT_OTHER"].split(" ")
PROVIDERS, VMS = "/api/cloud/providers", "/api/cloud/vms"
WAIT_SECONDS = 60
# A VM that was made less than two minutes ago is not taken for gone.
GONE_SECONDS = 180


def call(method, path, body=None, expected=None, cookie=COOKIE):
    """The JSON of an answer, which must have the expected status."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Cookie": cookie, "Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=40) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    if expected is not None and status != expected:
        raise SystemExit(f"{method} {path} is {status} instead of {expected}: {text.decode()}")
    return json.loads(text) if text else None


def wait_for(what, look, seconds=WAIT_SECONDS):
    """Looks until there is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.2)
    raise SystemExit(f"{what}: not within {seconds} seconds")


def check(what, condition, shown):
    if not condition:
        raise SystemExit(f"{what}: {json.dumps(shown, indent=1)}")
    print(what)


def add_provider(cookie=COOKIE):
    body = {"name": "Our host", "kind": "libvirt", "credentials": {}}
    made = call("POST", PROVIDERS, body, 201, cookie)
    path = f"{PROVIDERS}?id={made['id']}"
    return wait_for("an active provider", lambda: find_with(path, "status", "active", cookie))


def find_with(path, field, value, cookie=COOKIE):
    record = call("GET", path, expected=200, cookie=cookie)
    return record if record[field] == value else None


def check_provider(provider):
    check("the provider has one region and no credentials", provider["regions"] == ["default"], provider)
    results = {it["result"] for it in provider["verification"]["checks"]}
    check("the provider is active", results == {"allowed"}, provider)
    path = f"{PROVIDERS}?id={provider['id']}"
    sizes = call("GET", f"{path}&catalog=sizes", expected=200)["data"]
    images = call("GET", f"{path}&catalog=images", expected=200)["data"]
    check("sizes and images are listed", len(sizes) == 6 and images[0]["id"] == "none", [sizes, images])
    body = {"name": "Mine", "kind": "libvirt", "uri": "qemu:///system", "credentials": {"uri": "qemu:///system", "owner": "x"}}
    refused = call("POST", PROVIDERS, body, 422)
    pointers = sorted(it["pointer"] for it in refused["errors"])
    check("no tenant names a host or an owner", pointers == ["/credentials/owner", "/credentials/uri", "/uri"], refused)


def order(provider):
    tags = {"env": "prod", "odd": "</metadata><devices/>'\"&]]>"}
    body = {"provider_id": provider, "name": "web-1", "region": "default", "size": "1cpu-1024mb", "image": "none", "tags": tags}
    odd = body | {"name": "<b/>", "size": "huge", "image": "../disk", "tags": {"a": "\ufffe"}, "user_data": "x"}
    refused = call("POST", VMS, odd, 422)
    pointers = sorted(it["pointer"] for it in refused["errors"])
    check("what a host cannot do is refused", pointers == ["/image", "/name", "/size", "/tags", "/user_data"], refused)
    made = call("POST", VMS, body, 202)
    path = f"{VMS}?id={made['id']}"
    wait_for("a running VM", lambda: find_with(path, "state", "running"))
    vm = wait_for("the end of the operation", lambda: is_settled(path))
    check("the VM runs", vm["operation"]["status"] == "succeeded" and vm["tags"] == vm["tags"] | tags, vm)
    return vm


def is_settled(path):
    vm = call("GET", path, expected=200)
    return vm if vm["operation"]["status"] == "succeeded" else None


def sync(provider, cookie=COOKIE):
    """Has the host read, and waits until it was."""
    before = call("GET", f"{PROVIDERS}?id={provider}", expected=200, cookie=cookie)["last_sync_at"]
    call("POST", PROVIDERS, {"action": "sync", "id": provider}, 202, cookie)

    def is_synced():
        record = call("GET", f"{PROVIDERS}?id={provider}", expected=200, cookie=cookie)
        return record if record["last_sync_at"] not in (None, before) else None

    record = wait_for("a sync", is_synced)
    if record["last_sync_error"] is not None:
        raise SystemExit(f"the sync has failed: {json.dumps(record)}")


class HostClient:
    """Another client of the host, with libvirt's own library, as an operator's tools are."""

    def __init__(self, uri):
        self.library = ctypes.CDLL("libvirt.so.0")
        for name in ("virConnectOpen", "virDomainLookupByUUIDString", "virDomainLookupByName"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.connection = self.library.virConnectOpen(uri.encode())
        assert self.connection, f"no connection to {uri}"

    def find_domain(self, uuid=None, name=None):
        find = self.library.virDomainLookupByUUIDString if uuid else self.library.virDomainLookupByName
        domain = find(ctypes.c_void_p(self.connection), (uuid or name).encode())
        assert domain, f"the host has no domain {uuid or name}"
        return domain

    def change(self, domain, function):
        assert getattr(self.library, function)(ctypes.c_void_p(domain)) == 0, function

    def give_domain(self, domain, owner):
        """What `virsh metadata --live --config --set` does, as docs/clouds.md has it."""
        element, live_and_config = 2, 3
        arguments = (f'<machine owner="{owner}"/>'.encode(), b"tc", b"urn:tenant-control:machine:1", live_and_config)
        assert self.library.virDomainSetMetadata(ctypes.c_void_p(domain), element, *arguments) == 0


def run_life(uri):
    provider = add_provider()
    check_provider(provider)
    vm = order(provider["id"])
    sync(provider["id"])
    listed = call("GET", VMS, expected=200)["data"]
    check("the list has this VM alone", [it["id"] for it in listed] == [vm["id"]], listed)
    other = add_provider(OTHER_COOKIE)["id"]
    sync(other, OTHER_COOKIE)
    listed = call("GET", VMS, expected=200, cookie=OTHER_COOKIE)["data"]
    check("another tenant of the same host sees no VM of it", listed == [], listed)
    if uri:
        host = HostClient(uri)
        check_given(host, provider["id"], other)
        check_changes(host, provider["id"], vm)


def check_given(host, provider, other):
    host.give_domain(host.find_domain(name="test"), OTHER_TENANT)
    sync(provider)
    sync(other, OTHER_COOKIE)
    given = call("GET", VMS, expected=200, cookie=OTHER_COOKIE)["data"]
    is_given = [(it["name"], it["managed"], it["state"]) for it in given] == [("test", False, "running")]
    check("a domain that the operator has given to a tenant is the tenant's", is_given, given)
    listed = call("GET", VMS, expected=200)["data"]
    check("and nobody else's", [it["name"] for it in listed] == ["web-1"], listed)


def check_changes(host, provider, vm):
    path, domain = f"{VMS}?id={vm['id']}", host.find_domain(uuid=vm["external_id"])
    changes = [("virDomainSuspend", "suspended"), ("virDomainResume", "running"), ("virDomainDestroy", "stopped")]
    for function, state in changes:
        host.change(domain, function)
        sync(provider)
        found = call("GET", path, expected=200)
        check(f"the VM is {state} after {function}", found["state"] == state, found)
    host.change(domain, "virDomainUndefine")

    def is_gone():
        time.sleep(2)
        sync(provider)
        return find_with(path, "state", "terminated")

    gone = wait_for("the end of the VM", is_gone, GONE_SECONDS)
    check("the VM that another client has ended is terminated", gone["external_id"] == vm["external_id"], gone)


def run_away():
    provider = call("GET", PROVIDERS, expected=200)["data"][0]["id"]
    report = call("POST", PROVIDERS, {"action": "verify", "id": provider}, 200)
    told = report["status"] == "error" and "libvirt cannot be reached or failed" in report["error"]["detail"]
    check("a host that is away is an error with the reason", told, report)
    is_shown = any(it in json.dumps(report) for it in ("test+unix", "libvirt-sock"))
    check("the reason does not show the URI of the host", not is_shown, report)


def run_back():
    provider = call("GET", PROVIDERS, expected=200)["data"][0]["id"]
    report = call("POST", PROVIDERS, {"action": "verify", "id": provider}, 200)
    check("a host that is back is used again", report["status"] == "active", report)


def run_unoffered():
    refused = call("POST", PROVIDERS, {"name": "Other", "kind": "libvirt", "credentials": {}}, 422)
    detail = refused["errors"][0]["detail"]
    is_told = refused["code"] == "provider_unsupported" and detail.endswith("this server offers aws, hetzner or digitalocean")
    check("without the operator's address the kind is not offered", is_told, refused)
    provider = call("GET", PROVIDERS, expected=200)["data"][0]["id"]
    report = call("POST", PROVIDERS, {"action": "verify", "id": provider}, 200)
    told = report["status"] == "error" and "does not offer libvirt" in report["error"]["detail"]
    check("a provider that is left over is an error with the reason", told, report)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["life", "away", "back", "unoffered"])
    parser.add_argument("--host", metavar="URI", help="of life: another client changes things there")
    arguments = parser.parse_args()
    parts = {"life": lambda: run_life(arguments.host), "away": run_away, "back": run_back, "unoffered": run_unoffered}
    parts[arguments.part]()


main()
