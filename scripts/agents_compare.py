"""Holds devices of the asset inventory against what this machine says of itself, for scripts/agents.

  agents_compare.py machine AGENT DEVICES [--organization ID]   the one device is this machine
  agents_compare.py unchanged BEFORE AFTER                      nothing has moved but the time of the last report
  agents_compare.py one BEFORE AFTER                            another agent of this machine has made no second device

Differences are printed as a diff: - is what this machine says, + what the inventory says.
"""
import json
import os
import re
import subprocess
import sys
from datetime import datetime

MIB = 1024 * 1024
# Disks are reported in decimal megabytes, memory and volumes in MiB, each rounded down.
MEGABYTE = 1000 * 1000
# What both agents leave out.
VIRTUAL = {"tmpfs", "devtmpfs", "usbfs", "proc", "devpts", "devshm", "udev"}
# Differences shown of one kind.
SHOWN = 20


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Differences:
    def __init__(self):
        self.lines = []

    def same(self, name, expected, found):
        """`expected` may be a set of values that are all right."""
        if found not in (expected if isinstance(expected, set) else {expected}):
            right = sorted(map(str, expected)) if isinstance(expected, set) else [expected]
            self.lines += [f"- {name}: {' or '.join(map(str, right))}", f"+ {name}: {found}"]

    def rounded(self, name, expected, found, unit):
        if not isinstance(found, int) or not 0 <= expected - found < unit:
            self.lines += [f"- {name}: {expected} (rounded down by less than {unit})", f"+ {name}: {found}"]

    def sets(self, name, missing, surplus):
        for sign, values in (("-", sorted(missing)), ("+", sorted(surplus))):
            self.lines += [f"{sign} {name}: {value}" for value in values[:SHOWN]]
            if len(values) > SHOWN:
                self.lines.append(f"{sign} {name}: and {len(values) - SHOWN} more")

    def end(self, what):
        if self.lines:
            print(f"{what}:\n" + "\n".join(self.lines), file=sys.stderr)
            sys.exit(1)


def devices(path):
    return json.loads(read(path))["data"]


def the_device(path):
    found = devices(path)
    if len(found) != 1:
        sys.exit(f"one device was expected, not {len(found)}: {[(device['id'], device['hostname']) for device in found]}")
    return found[0]


def compare_system(device, agent, differences):
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', read("/etc/os-release"), re.MULTILINE))
    versions = {release.get("VERSION_ID")}
    if os.path.exists("/etc/debian_version"):
        versions.add(read("/etc/debian_version").strip())
    name = os.uname().nodename
    system = device["os"]
    differences.same("hostname", {name, name.split(".")[0]}, device["hostname"])
    differences.same("platform", "linux", device["platform"])
    differences.same("status", "online", device["status"])
    # One agent says the version in the name as well.
    names = {release["NAME"], release["PRETTY_NAME"], f"{release['NAME']} {release.get('VERSION_ID')}"}
    differences.same("os.name", names, system["name"])
    differences.same("os.version", versions, system["version"])
    # OCS does not tell the kernel.
    kernel = os.uname().release
    differences.same("os.kernel", kernel if agent == "fusioninventory" else {kernel, None}, system["kernel"])
    differences.same("os.arch", os.uname().machine, system["arch"])


def compare_processor(device, differences):
    lscpu = dict(re.findall(r"^([^:]+):\s*(.*)$", output("lscpu"), re.MULTILINE))
    # A line for each logical processor: two of them may be one core.
    places = [line.split(",") for line in output("lscpu", "-p=CORE,SOCKET").splitlines() if not line.startswith("#")]
    cpu = device["cpu"]
    differences.same("cpu.model", " ".join(lscpu["Model name"].split()), " ".join((cpu["model"] or "").split()))
    differences.same("cpu.sockets", len({socket for _, socket in places}), cpu["sockets"])
    differences.same("cpu.cores", len({tuple(place) for place in places}), cpu["cores"])
    total = int(re.search(r"^MemTotal:\s*(\d+) kB", read("/proc/meminfo"), re.MULTILINE)[1]) * 1024
    differences.rounded("memory_bytes", total, device["memory_bytes"], MIB)


def compare_disks(device, differences):
    listed = json.loads(output("lsblk", "-bdJ", "-o", "NAME,SIZE,TYPE"))["blockdevices"]
    disks = {disk["name"]: int(disk["size"]) for disk in listed if disk["type"] == "disk"}
    found = {disk["name"].removeprefix("/dev/"): disk["size_bytes"] for disk in device["disks"]}
    # Something stands behind a real one: not behind compressed memory and the like, which one agent lists too.
    real = {name for name, size in disks.items() if size and os.path.exists(f"/sys/block/{name}/device")}
    differences.sets("disks", real - found.keys(), found.keys() - disks.keys() - set(os.listdir("/sys/block")))
    for name in sorted(real & found.keys()):
        differences.rounded(f"disks {name} size_bytes", disks[name], found[name], MEGABYTE)
    return len(real)


def compare_volumes(device, differences):
    rows = [line.split(None, 6) for line in output("df", "-P", "-T", "-B1").splitlines()[1:]]
    volumes = {row[6]: row for row in rows if row[1] not in VIRTUAL}
    # An overlay is a folder of another volume; only one agent lists it.
    real = {mount: row for mount, row in volumes.items() if row[0].startswith("/")}
    found = {volume["mount"]: volume for volume in device["volumes"]}
    differences.sets("volumes", real.keys() - found.keys(), found.keys() - volumes.keys())
    for mount in sorted(real.keys() & found.keys()):
        source, filesystem, total, _, free, _, _ = real[mount]
        differences.same(f"volumes {mount} device", source, found[mount]["device"])
        differences.same(f"volumes {mount} filesystem", filesystem, found[mount]["filesystem"])
        differences.rounded(f"volumes {mount} total_bytes", int(total), found[mount]["total_bytes"], MIB)
        # It moves while we look.
        moved = abs((found[mount]["free_bytes"] or 0) - int(free))
        if moved > MIB + int(total) // 10:
            differences.same(f"volumes {mount} free_bytes", int(free), found[mount]["free_bytes"])
    return len(real)


def compare_networks(device, agent, differences):
    # By address of the hardware: a nic of a container has a longer name in the eyes of some.
    expected, found = {}, {}
    for interface in json.loads(output("ip", "-j", "addr")):
        if interface.get("link_type") == "ether":
            expected.setdefault(interface["address"], []).extend(interface["addr_info"])
    for nic in device["nics"]:
        if nic["mac"] and nic["mac"] != "00:00:00:00:00:00":
            found.setdefault(nic["mac"].lower(), set()).update(nic["ips"])
    differences.sets("nics mac", expected.keys() - found.keys(), found.keys() - expected.keys())
    for mac in sorted(expected.keys() & found.keys()):
        everything = {address["local"] for address in expected[mac]}
        # Of a nic OCS tells its IPv4 addresses, without secondary ones, and one of IPv6.
        needed = [address for address in expected[mac] if address["scope"] == "global"]
        if agent == "ocsinventory":
            needed = [address for address in needed if address["family"] == "inet" and not address.get("secondary")]
        needed = {address["local"] for address in needed}
        differences.sets(f"nics {mac} ips", needed - found[mac], found[mac] - everything)
    own = {address["local"] for addresses in expected.values() for address in addresses}
    if own:
        differences.same("primary_ip", own, device["primary_ip"])
        differences.same("primary_mac", set(expected), (device["primary_mac"] or "").lower())
    return len(expected)


def compare_software(device, differences):
    listed = output("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\t${db:Status-Status}\n")
    rows = [line.split("\t") for line in listed.splitlines()]
    expected = {" ".join(row[:3]) for row in rows if row[3] == "installed"}
    packages = [item for item in device["software"] if item["source"] == "deb"]
    found = {f"{item['name']} {item['version']} {item['arch']}" for item in packages}
    differences.sets("software", expected - found, found - expected)
    return len(expected)


def machine(agent, path, organization):
    """Ends with the differences, or gives a line about the device."""
    device, differences = the_device(path), Differences()
    compare_system(device, agent, differences)
    compare_processor(device, differences)
    disks = compare_disks(device, differences)
    volumes = compare_volumes(device, differences)
    nics = compare_networks(device, agent, differences)
    packages = compare_software(device, differences)
    if organization:
        differences.same("organization_id", organization, device["organization_id"])
    differences.end(f"{agent}: the inventory differs from this machine")
    system, cpu = device["os"], device["cpu"]
    return (
        f"{agent}: this machine as it is: {device['hostname']}, {system['name']}, version {system['version']}, "
        f"{cpu['cores']} cores, {device['memory_bytes'] // MIB} MiB, disks {disks}, volumes {volumes}, nics {nics}, packages {packages}"
    )


def differing(before, after, path=""):
    """The paths of the values that differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differing(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (left, right) in enumerate(zip(before, after)):
            yield from differing(left, right, f"{path}[{index}]")
    elif before != after:
        yield path, before, after


def unchanged(before_path, after_path):
    before, after = the_device(before_path), the_device(after_path)
    moved = {path: (left, right) for path, left, right in differing(before, after)}
    times = [datetime.fromisoformat(device["last_seen_at"].replace("Z", "+00:00")) for device in (before, after)]
    if times[1] <= times[0]:
        sys.exit(f"last_seen_at did not move with the second report: {before['last_seen_at']}, {after['last_seen_at']}")
    # The space that is free is the machine's, which does other things meanwhile.
    free = {path for path in moved if re.fullmatch(r"volumes\[\d+\]\.free_bytes", path)}
    allowed = {"last_seen_at", "inventory_at"} | free | ({"updated_at", "version"} if free else set())
    wrong = [f"- {path}: {left}\n+ {path}: {right}" for path, (left, right) in moved.items() if path not in allowed]
    if wrong:
        sys.exit("the same report again has changed more than last_seen_at:\n" + "\n".join(wrong[:SHOWN]))
    print("the same again: only last_seen_at has moved" + (", and the free space" if free else ""))


def one(before_path, after_path):
    first, after = the_device(before_path), devices(after_path)
    macs = {nic["mac"] for nic in first["nics"]} - {None, "00:00:00:00:00:00"}
    if not macs and not first["uuid"] and len(after) == 2:
        print("both agents: two devices, because this machine has no uuid and no nic to be known again by")
        return
    device = the_device(after_path)
    if device["id"] != first["id"]:
        sys.exit(f"the device {first['id']} became another one, {device['id']}")
    if device["possible_duplicate_of"]:
        sys.exit(f"the device is taken for a possible duplicate of {device['possible_duplicate_of']}")
    machine("ocsinventory", after_path, first["organization_id"])
    print("both agents: one device, as the one that came last sees this machine")


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "machine":
        print(machine(arguments[0], arguments[1], arguments[3] if len(arguments) > 2 else None))
    elif command == "unchanged":
        unchanged(*arguments)
    else:
        one(*arguments)


main()
