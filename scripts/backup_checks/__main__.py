"""Checks of restic and borg with the documented wrapper, for scripts/backups.

  backup_checks prepare   makes an organization for each check, the policy, and devices.ndjson to import
  backup_checks run       runs all checks beside each other
"""

import json
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from client import FOLDER, Failure, call, expect, expect_same, format_now
from customer_site import INGEST, NOWHERE, ONE_COPY, Site, expect_answers, read_answers
from tools import TOOLS

STATE_PATH = f"{FOLDER}/state.json"
POLICY = {
    "targets": [
        {"name": "nas", "type": "nas", "media": "disk", "offsite": False, "immutable": False, "immutable_days": None},
        {"name": "vault", "type": "s3", "media": "object", "offsite": True, "immutable": True, "immutable_days": 30},
    ],
    "alert_after_failures": 1,
}


def check_good(site):
    """From a customer of whom nothing is known to one without a reason, run by run."""
    tool = site.tool
    site.expect_no_success("before the first report", "unknown", ["never_reported"], {})
    expect_answers("a good run", [(201, "success")], site.run(tool.backup(site.source)))
    site.expect_row("one copy", "ok", "warning", ONE_COPY, {"success": 1})
    site.init_repository("vault")
    expect_answers("a run on another target", [(201, "success")], site.run(tool.backup(site.source), target="vault"))
    site.expect_row("two copies", "ok", "ok", [], {"success": 2})
    for kind, command in (("verify", tool.verify()), ("restore_test", tool.restore(site.source, f"{site.folder}/restored"))):
        expect_answers(kind, [(201, "success")], site.run(command, kind=kind))
    expect_answers("prune", [(201, "success")], site.run(tool.prune(), kind="prune"))
    row = site.expect_row("two copies, verified and restored", "ok", "ok", [], {"success": 2})
    rule = {"copies": 3, "media": 2, "offsite": True, "immutable": True, "zero_errors": True}
    expect_same("the rule 3-2-1-1-0", rule, row["rule_32110"])
    expect_same("coverage", 100, row["coverage_percent"])
    for kind in ("verification", "restore_test"):
        expect(row[kind]["last_success_at"], f"{kind} has no success: {row[kind]}")


def check_missing_path(site):
    command = site.tool.backup(site.source, f"{site.folder}/nothing")
    expect_answers("a missing path", [(201, "warning")], site.run(command, site.tool.missing_path_codes))
    site.expect_row("a missing path", "ok", "warning", ONE_COPY, {"warning": 1})


def check_wrong_password(site):
    tool = site.tool
    answers = site.run(tool.backup(site.source), tool.wrong_password_codes, password="wrong")
    expect_answers("a wrong password", [(201, "failed")], answers)
    site.expect_no_success("a wrong password", "critical", ["failures", "never_succeeded"], {"failed": 1})
    expect_answers("the right password", [(201, "success")], site.run(tool.backup(site.source)))
    site.expect_row("a success", "ok", "warning", ONE_COPY, {"success": 1, "failed": 1})
    answers = site.run(tool.backup(site.source), tool.wrong_password_codes, password="wrong")
    expect_answers("a wrong password again", [(201, "failed")], answers)
    site.expect_row("a failure after a success", "warning", "warning", ["failures", *ONE_COPY], {"success": 1, "failed": 2})


def check_missing_tool(site):
    """127 says that the shell has found no such program, and is no warning of borg's."""
    expect_answers("no such program", [(201, "failed")], site.run(["no-such-program"], (127,)))
    expect_answers("no such program", [(201, "failed")], site.run(["no-such-program"], (127,), kind="verify"))
    row = site.expect_no_success("no such program", "critical", ["failures", "never_succeeded"], {"failed": 1})
    expect_same("the last success", None, row["last_success_at"])
    expect_same("the last verification", None, row["verification"]["last_success_at"])


def check_killed_tool(site):
    expect_answers("a good run", [(201, "success")], site.run(site.tool.backup(site.source)))
    with site.start_half() as (wrapper, tool):
        os.kill(tool, signal.SIGKILL)
        code, printed, _ = wrapper.end()
    expect_same("the exit code of a killed tool", 137, code)
    expect_answers("a killed tool", [(201, "failed")], read_answers(printed))
    site.expect_row("a killed tool", "warning", "warning", ["failures", *ONE_COPY], {"success": 1, "failed": 1})
    expect_answers("the run after it", [(201, "success")], site.run(site.tool.backup(site.source)))
    site.expect_row("the run after it", "ok", "warning", ONE_COPY, {"success": 2, "failed": 1})


def check_stopped_wrapper(site):
    """TERM, as systemd stops a unit: the tool ends, and the run is reported."""
    with site.start_half() as (wrapper, _):
        wrapper.send_signal(signal.SIGTERM)
        # This closes the input: borg heeds a signal that came just before it reads only when something, or the end, comes.
        code, printed, _ = wrapper.end()
    expect_same("the exit code of a stopped wrapper", 143, code)
    expect_answers("a stopped wrapper", [(201, "failed")], read_answers(printed))
    site.expect_no_success("a stopped wrapper", "critical", ["failures", "never_succeeded"], {"failed": 1})


def check_killed_wrapper(site):
    """Nobody saw the end of the run: the next start reports it, once."""
    expect_answers("a good run", [(201, "success")], site.run(site.tool.backup(site.source)))
    with site.start_half() as (wrapper, _):
        os.kill(wrapper.pid, signal.SIGKILL)
    expect_answers("a killed wrapper", [(201, "failed")], site.post())
    expect_same("reports of it after that", [], site.post())
    site.expect_row("a killed wrapper", "warning", "warning", ["failures", *ONE_COPY], {"success": 1, "failed": 1})


def check_network(site):
    """A report that could not be posted is kept, and counts once although it is posted again."""
    site.set_url(NOWHERE)
    expect_same("answers without a network", [(0, None)], site.run(site.tool.backup(site.source)))
    expect_same("reports that wait", 1, len(site.list_waiting()))
    site.expect_no_success("without a network", "unknown", ["never_reported"], {})
    site.set_url(INGEST)
    report, = site.list_waiting()
    shutil.copy(report, f"{site.folder}/copy")
    expect_answers("the network is back", [(201, "success")], site.post())
    expect_same("reports that wait", [], site.list_waiting())
    site.expect_row("the network is back", "ok", "warning", ONE_COPY, {"success": 1})
    # As after an answer that was lost.
    shutil.copy(f"{site.folder}/copy", report)
    expect_answers("the report again", [(200, "success")], site.post())
    site.expect_row("the report again", "ok", "warning", ONE_COPY, {"success": 1})


def check_refused(site):
    """A wrong key or address keeps the report; one of an unknown device waits for a week, and holds up no other."""
    site.set_url(INGEST.replace("//ing_", "//ing_0", 1))
    answers = site.run(site.tool.backup(site.source))
    expect_same("a wrong key", [401], [code for code, _ in answers])
    site.set_url(INGEST.replace("/internal/ingest/inventory", "/internal/ingest/nothing"))
    expect_same("a wrong address", [404], [code for code, _ in site.post(1)])
    site.set_url(INGEST)
    report, = site.list_waiting()
    with open(report, encoding="utf-8") as file:
        text = file.read().replace(f'"device":"{site.device.upper()}"', '"device":"nobody"')
    with open(f"{site.spool}/0-first.json", "w", encoding="utf-8") as file:
        file.write(text.replace('"external_id":"', '"external_id":"other-'))
    answers = site.post()
    expect_same("a device that nobody knows, and the report after it", [422, 201], [code for code, _ in answers])
    week_ago = time.time() - 8 * 86_400
    os.utime(f"{site.spool}/0-first.json", (week_ago, week_ago))
    expect_same("a device that nobody knows for a week", [422], [code for code, _ in site.post()])
    expect(os.path.exists(f"{site.spool}/refused/0-first.answer"), "the refused report was not moved aside")
    site.expect_row("the report after it", "ok", "warning", ONE_COPY, {"success": 1})


def check_damage(site):
    """What a check of the repository finds, and a restored file that is another."""
    tool = site.tool
    site.init_repository("vault")
    for target in ("nas", "vault"):
        expect_answers("a good run", [(201, "success")], site.run(tool.backup(site.source), target=target))
    expect_answers("a verified repository", [(201, "success")], site.run(tool.verify(), kind="verify"))
    with open(f"{site.source}/sub/random", "r+b") as file:
        file.write(b"other")
    restore = tool.restore(site.source, f"{site.folder}/restored")
    expect_answers("a file that differs", [(201, "failed")], site.run(restore, (2,), kind="restore_test"))
    site.expect_row("before the damage", "ok", "warning", ["restore_test_overdue"], {"success": 2})
    path = tool.damage_path(f"{site.folder}/nas")
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        file.write(b"damaged")
    expect_answers("a damaged repository", [(201, "failed")], site.run(tool.verify(), (1,), kind="verify"))
    row = site.expect_row("a damaged repository", "ok", "critical", ["errors_found", "restore_test_overdue"], {"success": 2})
    expect_same("zero errors", False, row["rule_32110"]["zero_errors"])


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def prepare():
    state = {"began": format_now(), "organizations": {}}
    call("PUT", "/api/backup/config", POLICY)
    with open(f"{FOLDER}/devices.ndjson", "w", encoding="utf-8") as file:
        for tool in TOOLS:
            for check in CHECKS:
                name = f"{tool.name}-{check.replace('_', '-')}"
                made = call("POST", "/api/admin/organizations", {"name": name, "slug": name}, 201)
                device = f"{tool.name}-{check}"
                state["organizations"][device] = made["id"]
                file.write(json.dumps({"hostname": device, "type": "server", "organization": name}) + "\n")
    with open(STATE_PATH, "w", encoding="utf-8") as file:
        json.dump(state, file)


def run_check(tool, check, state):
    """The message of a failure, or None."""
    try:
        CHECKS[check](Site(tool, check, state["organizations"][f"{tool.name}-{check}"], state["began"]))
    except Failure as error:
        return f"backups: {tool.name}, {check}: {error}"
    return None


def run():
    with open(STATE_PATH, encoding="utf-8") as file:
        state = json.load(file)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        tasks = [pool.submit(run_check, tool, check, state) for tool in TOOLS for check in CHECKS]
        failures = [failure for task in tasks if (failure := task.result())]
    if failures:
        sys.exit("\n".join(failures))
    for tool in TOOLS:
        print(f"{tool.name}: {', '.join(CHECKS)}: each has the status and the grade that it must have")


{"prepare": prepare, "run": run}[sys.argv[1]]()
