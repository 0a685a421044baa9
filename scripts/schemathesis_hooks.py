"""What schemathesis does otherwise for this service; run by itself, it tells whether every operation has succeeded."""

import json
import os
import re
import sys
import zlib


# Which records a path is about, and where their ids are given to this script.
RECORDS = {
    "/api/admin/api-keys": ("key_", "KEY_IDS"),
    "/api/admin/webhooks": ("wh_", "WEBHOOK_IDS"),
    "/api/admin/webhooks/deliveries": ("dlv_", "DELIVERY_IDS"),
    "/api/psa/tickets": ("tkt_", "TICKET_IDS"),
    "/api/psa/workflows/trigger": ("wf_", "WORKFLOW_IDS"),
    "/api/rmm/reports/asset-inventory": ("dev_", "DEVICE_IDS"),
}
# Fields of a body that name a record.
FIELDS = {
    "webhook_id": ("wh_", "WEBHOOK_IDS"),
    "delivery_id": ("dlv_", "DELIVERY_IDS"),
    "organization_id": ("org_", "ORGANIZATION_IDS"),
    "assignee_id": ("usr_", "USER_IDS"),
    "workflow_id": ("wf_", "WORKFLOW_IDS"),
}


def real(given, prefix, variable, always=False):
    """Half of the ids that are made up become ids of records that exist, or all."""
    known = os.environ.get(variable, "").split()
    if not isinstance(given, str) or not known or given.startswith(prefix):
        return given
    draw = zlib.crc32(given.encode("utf-8", "surrogatepass"))
    return known[draw // 2 % len(known)] if always or draw % 2 else given


def name_real_records(context, case, kwargs):
    """The run's own key is never named for a change."""
    query = case.query or {}
    if case.method.upper() == "PATCH" and isinstance(query.get("id"), str) and isinstance(query.get("run_id"), str):
        # Only one of them can be meant, and the body says which.
        del query["id" if isinstance(case.body, dict) and "action" in case.body else "run_id"]
    if "run_id" in query:
        query["run_id"] = real(query["run_id"], "run_", "RUN_IDS", always=True)
    given = query.get("id")
    if given is not None and case.path in RECORDS:
        # The generated id is often one and the same text: half of one text is all or nothing.
        always = case.method.upper() in ("PATCH", "PUT")
        case.query["id"] = real(given, *RECORDS[case.path], always)
    if isinstance(case.body, dict):
        for field, records in FIELDS.items():
            if field in case.body:
                case.body[field] = real(case.body[field], *records)
    if (case.method.upper(), case.path) == ("POST", "/api/cloud/vms") and isinstance(case.body, dict):
        # Of a machine both have to be there.
        if isinstance(case.body.get("provider_id"), str) and REGION.match(str(case.body.get("region"))):
            case.body["provider_id"] = real(case.body["provider_id"], "prv_", "PROVIDER_IDS", always=True)
            case.body["region"] = real(case.body["region"], os.environ["REGIONS"], "REGIONS", always=True)
    # A run that revokes or rotates its own key would see nothing but 401 from then on.
    if case.method.upper() in ("PUT", "DELETE") and given and given == os.environ.get("OWN_KEY_ID"):
        case.query["id"] = "key_" + 26 * "0"


REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
METHODS = ("get", "put", "post", "patch", "delete")
COUNT = re.compile(r'^tc_http_requests_total\{method="(\w+)",route="([^"]+)",status="(\d+)"\} (\d+)', re.MULTILINE)
# Signing out would end the session that is tested with, and a sign-on takes a provider: scripts/signon has a real one.
NOT_TESTED = {("DELETE", "/api/auth/session"), ("POST", "/api/auth/sso")}


def answers(metrics):
    """How often each operation was answered with which status."""
    counts = {}
    for method, route, status, count in COUNT.findall(metrics):
        counts.setdefault((method, route), {})[status] = int(count)
    return counts


def report(document, counts):
    """Prints the answers of every operation, and returns those that have never succeeded."""
    missing = []
    for method, path in [(m.upper(), path) for path, item in document["paths"].items() for m in METHODS if m in item]:
        found = counts.get((method, path), {})
        print(f"{method:6} {path:28}", *(f"{status}:{count}" for status, count in sorted(found.items())))
        if (method, path) not in NOT_TESTED and not any(status.startswith("2") for status in found):
            missing.append(f"{method} {path}")
    return missing


if __name__ == "__main__":
    with open(sys.argv[1]) as document, open(sys.argv[2]) as metrics:
        missing = report(json.load(document), answers(metrics.read()))
    if missing:
        sys.exit(f"never answered with success, and therefore hardly tested: {missing}")
else:
    import schemathesis

    schemathesis.hook("before_call")(name_real_records)
