"""A customer of its own for each check: an organization with one server, two repositories, and a spool of the wrapper."""

import glob
import json
import os
import signal
import subprocess
from contextlib import contextmanager, suppress

from client import FOLDER, WAIT_SECONDS_MAX, Failure, expect, expect_same, format_now, get_row, wait_for

WRAPPER = os.environ["BACKUPS_WRAPPER"]
INGEST = os.environ["BACKUPS_INGEST"]
# Nobody listens there.
NOWHERE = "http://ing_none:none@127.0.0.1:1/internal/ingest/backup"
PASSWORD = "correct horse"
# More than a pipe holds: once it is written, the tool has read most of it and is in the middle of its work.
HALF_BYTES = 4 << 20
# The best first.
GRADES = ["ok", "unknown", "warning", "critical"]
NO_JOBS = {"success": 0, "warning": 0, "failed": 0, "missed": 0}
# One copy on a disk beside the original, where three copies on two media are asked for.
ONE_COPY = ["no_immutable", "no_offsite", "too_few_copies", "too_few_media"]


class Session(subprocess.Popen):
    """A process with a session of its own, so that nothing that it has started outlives a check."""

    def end(self):
        """Closes its input and waits. Returns the exit code and what it has printed."""
        try:
            printed, said = self.communicate(timeout=WAIT_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            self.end_all()
            raise Failure(f"{self.args} does not end") from error
        return self.returncode, printed.decode(), said.decode(errors="replace")

    def end_all(self):
        """Ends it and what it has started, as a power cut does."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.communicate()


class Site:
    def __init__(self, tool, check, organization, began):
        """`began`: nothing can have happened before."""
        self.tool, self.organization, self.began, self.device = tool, organization, began, f"{tool.name}-{check}"
        self.folder = f"{FOLDER}/{self.device}"
        self.source, self.spool, self.url_file = (f"{self.folder}/{name}" for name in ("source", "spool", "url"))
        os.makedirs(f"{self.source}/sub")
        write(f"{self.source}/Übersicht \"1\".txt", "ä\n".encode())
        write(f"{self.source}/sub/random", os.urandom(300_000))
        self.set_url(INGEST)
        self.init_repository("nas")

    def set_url(self, url):
        write(self.url_file, url.encode() + b"\n")

    def init_repository(self, target):
        code, _, said = self.start(self.tool.init(), target).end()
        expect(code == 0, f"the repository could not be made: {said}")

    def start(self, command, target="nas", password=PASSWORD):
        environment = {**os.environ, "LC_ALL": "C.UTF-8", **self.tool.environment(self.folder, target, password)}
        return Session(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       start_new_session=True)

    def wrap(self, command, kind="backup", target="nas"):
        options = {"kind": kind, "job": "nightly", "target": target, "tool": self.tool.name, "device": self.device.upper()}
        options |= {"spool": self.spool, "url-file": self.url_file}
        return [WRAPPER, "--verbose", *(word for name, value in options.items() for word in (f"--{name}", value)), "--", *command]

    def run(self, command, codes=(0,), kind="backup", target="nas", password=PASSWORD):
        """Runs a tool with the wrapper. Returns the service's answers."""
        code, printed, said = self.start(self.wrap(command, kind, target), target, password).end()
        expect(code in codes, f"{command} ended with {code} instead of {codes}: {said}")
        return read_answers(printed)

    def post(self, expected_code=0):
        command = [WRAPPER, "--verbose", "--post", "--spool", self.spool, "--url-file", self.url_file]
        code, printed, said = self.start(command).end()
        expect(code == expected_code, f"--post ended with {code}: {said}")
        return read_answers(printed)

    @contextmanager
    def start_half(self):
        """A backup that has read some of its input and waits for more, and the id of the tool's process."""
        wrapper = self.start(self.wrap(self.tool.backup_stdin()))
        try:
            wrapper.stdin.write(os.urandom(HALF_BYTES))
            wrapper.stdin.flush()
            yield wrapper, wait_for(f"the process of {self.tool.name}", lambda: find_child(wrapper.pid, self.tool.name))
        finally:
            wrapper.end_all()

    def list_waiting(self):
        return sorted(glob.glob(f"{self.spool}/*.json"))

    def expect_row(self, what, protection, recoverability, reasons, jobs):
        """Waits until the row has these grades, these reasons, by their codes, and no others, and these runs of the last day."""
        expected = {
            "protection_health": protection, "recoverability_health": recoverability,
            "health": max(protection, recoverability, key=GRADES.index),
            "reasons": sorted(reasons), "jobs_24h": {**NO_JOBS, **jobs},
        }
        return self.wait_for_row(what, expected, lambda row: {**{name: row[name] for name in expected}, "reasons": list_codes(row)})

    def expect_no_success(self, what, protection, reasons, jobs):
        """The same while nothing has succeeded: then no grade is ok, and what the targets lack may be told or not."""
        expected = {"protection_health": protection, "reasons": sorted(reasons), "jobs_24h": {**NO_JOBS, **jobs}, "ok": []}

        def describe(row):
            found = {name: row[name] for name in ("protection_health", "jobs_24h")}
            ok = [name for name in ("recoverability_health", "health") if row[name] == "ok"]
            return {**found, "ok": ok, "reasons": [code for code in list_codes(row) if code not in ONE_COPY]}

        return self.wait_for_row(what, expected, describe)

    def wait_for_row(self, what, expected, describe):
        """Every reason must have begun since the checks did."""
        row = {}

        def find():
            row.update(get_row(self.organization))
            return describe(row) == expected

        try:
            wait_for(what, find)
        except Failure as error:
            raise Failure(f"{what}: expected {expected}, found {describe(row)} in {row}") from error
        for reason in row["reasons"]:
            expect(reason["since"] is None or self.began <= reason["since"] <= format_now(), f"{what}: when did it begin? {reason}")
        return row


def list_codes(row):
    return sorted(reason["code"] for reason in row["reasons"])


def read_answers(printed):
    """What --verbose prints: a status and an answer for each report."""
    answers = []
    for line in printed.splitlines():
        code, _, text = line.partition(" ")
        answers.append((int(code), json.loads(text)) if text.startswith("{") else (int(code), None))
    return answers


def expect_answers(what, expected, answers):
    """`expected`: pairs of an HTTP status and the status of the run, which is a success if and only if it has no reasons."""
    found = [(code, answer["status"]) for code, answer in answers]
    expect_same(what, expected, found)
    for _, answer in answers:
        expect(answer["id"].startswith("bjr_"), f"{what}: {answer}")
        expect((answer["status"] == "success") == (answer["reasons"] == []), f"{what}: {answer}")


def find_child(parent, name):
    """The id of a process' child that runs this program."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                pid, _, rest = file.read().partition(" (")
        except OSError:
            continue
        program, _, fields = rest.rpartition(") ")
        if program == name and int(fields.split()[1]) == parent:
            return int(pid)
    return None


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o600)
