//! Calls of Hetzner's API and their answers, written after real ones.

use serde_json::{Value, json};

use crate::test_support::{
    Answer, CANARY, ScriptedTransport, TOKEN, answer, failure, json_answer, limited_answer, lost, now, open_with_token,
    run, seconds_after_now, spec,
};
use crate::{
    AccessResult, CatalogKind, CloudAdapter, CloudErrorKind, CloudKind, MachineCost, MachineState, Verification,
};
use AccessResult::{Allowed, Denied, Skipped};

fn open(answers: impl IntoIterator<Item = Answer>) -> (Box<dyn CloudAdapter>, std::sync::Arc<ScriptedTransport>) {
    let transport = ScriptedTransport::in_order(answers);
    (open_with_token(CloudKind::Hetzner, &transport), transport)
}

fn pricing() -> Answer {
    json_answer(200, &json!({"pricing": {"currency": "EUR", "vat_rate": "19.00"}}))
}

fn server_type() -> Value {
    let price = |location: &str, net: &str| json!({"location": location, "price_monthly": {"net": net, "gross": "9"}});
    json!({
        "id": 1, "name": "cx22", "description": "CX22", "cores": 2, "memory": 4.0, "disk": 40, "deprecated": false,
        "prices": [price("fsn1", "3.2900000000"), price("ash", "4.5")],
    })
}

fn server(id: i64, status: &str, location: &str) -> Value {
    json!({
        "id": id, "name": format!("web-{id}"), "status": status, "primary_disk_size": 20,
        "location": {"name": location}, "server_type": server_type(), "image": {"id": 5, "name": "ubuntu-24.04"},
        "public_net": {"ipv4": {"ip": "203.0.113.7"}, "ipv6": {"ip": "2001:db8::/64"}},
        "private_net": [{"ip": "10.0.0.2"}, {"ip": 5}],
        "labels": {"env": "prod", "tenant-control/operation": "op_1"},
    })
}

fn servers(servers: &[Value], next_page: Option<i64>) -> Answer {
    json_answer(200, &json!({"servers": servers, "meta": {"pagination": {"page": 1, "next_page": next_page}}}))
}

fn error(status: u16, code: &str) -> Answer {
    json_answer(status, &json!({"error": {"code": code, "message": format!("{code} with {TOKEN}"), "details": {}}}))
}

#[test]
fn servers_of_all_locations_are_machines() {
    let all = [server(1, "running", "fsn1"), server(2, "off", "ash"), server(3, "migrating", "fsn1")];
    let (hetzner, transport) = open([pricing(), servers(&all, Some(2)), servers(&all, None)]);
    let page = run(hetzner.list_machines(None, None, now())).unwrap();
    assert_eq!((page.machines.len(), page.next_cursor.as_deref()), (3, Some("2")));
    let states: Vec<MachineState> = page.machines.iter().map(|machine| machine.state).collect();
    assert_eq!(states, [MachineState::Running, MachineState::Stopped, MachineState::Unknown]);
    let first = &page.machines[0];
    assert_eq!((first.external_id.as_str(), first.region.as_str(), first.zone.as_deref()), ("1", "fsn1", None));
    assert_eq!(first.size.id, "cx22");
    assert_eq!((first.size.vcpus, first.size.memory_bytes), (Some(2), Some(4_294_967_296)));
    assert_eq!(first.size.disk_bytes, Some(20_000_000_000));
    assert_eq!(first.public_ips, ["203.0.113.7", "2001:db8::/64"]);
    assert_eq!(first.private_ips, ["10.0.0.2"]);
    assert_eq!(first.cost, Some(MachineCost { amount: 3.29, currency: "EUR".to_owned(), period: "month".to_owned() }));
    assert_eq!(first.tags["tenant-control:operation"], "op_1");
    assert_eq!(first.operation_id.as_deref(), Some("op_1"));

    let page = run(hetzner.list_machines(Some("ash"), Some("2"), now())).unwrap();
    assert_eq!((page.machines.len(), page.next_cursor), (1, None));
    assert!(hetzner.lists_all_regions());
    let sent = transport.take_sent();
    assert_eq!(sent[0].url, "https://api.hetzner.cloud/v1/pricing");
    assert_eq!(sent[1].line(), "GET /servers?per_page=50&sort=id%3Aasc&page=1");
    assert_eq!(sent[2].line(), "GET /servers?per_page=50&sort=id%3Aasc&page=2");
    assert_eq!(sent[1].headers["authorization"], format!("Bearer {TOKEN}"));
}

#[test]
fn a_server_of_the_older_api_has_a_data_center() {
    let mut server = server(1, "running", "x");
    server["location"] = Value::Null;
    server["datacenter"] = json!({"name": "fsn1-dc14", "location": {"name": "fsn1"}});
    let (hetzner, _) = open([pricing(), servers(&[server], None)]);
    let machine = run(hetzner.list_machines(None, None, now())).unwrap().machines.remove(0);
    assert_eq!((machine.region.as_str(), machine.zone.as_deref()), ("fsn1", Some("fsn1-dc14")));
}

#[test]
fn a_page_that_is_not_whole_is_no_page() {
    let odd = |key: &str, value: Value| {
        let mut server = server(1, "running", "fsn1");
        server[key] = value;
        servers(&[server], None)
    };
    for answer in [
        json_answer(200, &json!({"servers": []})),
        json_answer(200, &json!({"servers": {}, "meta": {"pagination": {"next_page": null}}})),
        json_answer(200, &json!({"servers": [], "meta": {"pagination": {"next_page": "2"}}})),
        servers(&[], Some(1)),
        servers(&[], Some(-7)),
        odd("id", json!("one")),
        odd("id", json!(1e30)),
        odd("status", Value::Null),
        odd("location", json!([])),
        answer(200, "{\"servers\": [{\"id\": 1"),
        answer(200, "[".repeat(100_000)),
        answer(200, "<html/>"),
        answer(302, ""),
    ] {
        let (hetzner, _) = open([pricing(), answer]);
        let error = failure(run(hetzner.list_machines(None, None, now())));
        assert_eq!(error.kind, CloudErrorKind::Unavailable);
    }
    for cursor in ["0", "-1", "two", "https://evil.example"] {
        let (hetzner, _) = open([]);
        assert_eq!(failure(run(hetzner.list_machines(None, Some(cursor), now()))).kind, CloudErrorKind::Invalid);
    }
}

#[test]
fn wrong_types_of_the_rest_are_none() {
    let odd = json!({
        "id": 1, "status": "running", "location": {"name": "fsn1"}, "name": 5, "server_type": {"cores": 1e99, "memory": "x"},
        "labels": [1], "public_net": "none", "private_net": {"ip": "x"}, "image": null,
    });
    let (hetzner, _) = open([error(404, "not_found"), servers(&[odd], None)]);
    let machine = run(hetzner.list_machines(None, None, now())).unwrap().machines.remove(0);
    assert_eq!((machine.name, machine.image, machine.cost), (None, None, None));
    assert_eq!((machine.size.vcpus, machine.size.memory_bytes), (None, None));
    assert!(machine.tags.is_empty() && machine.public_ips.is_empty() && machine.private_ips.is_empty());
}

#[test]
fn a_server_is_found_by_id_and_by_operation() {
    let other = json!({"id": 8, "status": "running", "location": {"name": "fsn1"}, "labels": {}});
    let (hetzner, transport) = open([
        pricing(),
        json_answer(200, &json!({"server": server(7, "starting", "fsn1")})),
        error(404, "not_found"),
        servers(&[server(7, "starting", "fsn1"), other], None),
        error(410, "deprecated_api_endpoint"),
    ]);
    let machine = run(hetzner.find_machine("fsn1", "7", now())).unwrap().unwrap();
    assert_eq!(machine.state, MachineState::Starting);
    assert_eq!(run(hetzner.find_machine("fsn1", "8", now())).unwrap(), None);
    let found = run(hetzner.find_by_operation("fsn1", "op_1", now())).unwrap();
    assert_eq!(found.len(), 1);
    let sent = transport.take_sent();
    assert_eq!(sent[1].line(), "GET /servers/7");
    assert_eq!(sent[3].line(), "GET /servers?per_page=50&label_selector=tenant-control%2Foperation%3D%3Dop_1");
    assert_eq!(failure(run(hetzner.find_machine("fsn1", "7", now()))).kind, CloudErrorKind::Invalid);
    for id in ["", "../pricing", "7?x", "٧"] {
        assert_eq!(failure(run(hetzner.find_machine("fsn1", id, now()))).kind, CloudErrorKind::Invalid);
    }
}

#[test]
fn a_creation_carries_its_operation_as_label_and_no_password_is_kept() {
    let created =
        json!({"server": server(9, "initializing", "fsn1"), "action": {}, "root_password": "canary-password"});
    let (hetzner, transport) = open([json_answer(201, &created)]);
    let spec = spec("fsn1", "cx22", "ubuntu-24.04");
    let created = run(hetzner.create_machine(&spec, now())).unwrap();
    assert!(!format!("{created:?}").contains(CANARY));
    assert_eq!(created.machine.state, MachineState::Provisioning);
    assert_eq!(created.machine.operation_id, Some(spec.operation_id.clone()));
    let sent = transport.take_sent();
    assert_eq!(sent[0].line(), "POST /servers");
    assert_eq!(sent[0].headers["content-type"], "application/json");
    let expected = json!({
        "name": "web-1", "location": "fsn1", "server_type": "cx22", "image": "ubuntu-24.04", "ssh_keys": ["ops"],
        "user_data": "#cloud-config\npassword: canary",
        "labels": {"env": "prod", "tenant-control/operation": spec.operation_id},
    });
    assert_eq!(sent[0].json(), expected);
    assert!(hetzner.creates_once());
}

#[test]
fn failures_of_a_creation_have_their_kinds() {
    use CloudErrorKind as Kind;
    for (answer, kind) in [
        (error(409, "uniqueness_error"), Kind::Conflict),
        (error(403, "resource_limit_exceeded"), Kind::Quota),
        (error(422, "resource_unavailable"), Kind::Capacity),
        (error(412, "placement_error"), Kind::Capacity),
        (error(403, "token_readonly"), Kind::Permission),
        (error(401, "unauthorized"), Kind::Auth),
        (error(422, "invalid_input"), Kind::Invalid),
        (error(409, "conflict"), Kind::Unavailable),
        (error(500, "service_error"), Kind::Ambiguous),
        (error(504, "something_new"), Kind::Ambiguous),
        (error(400, "something_new"), Kind::Invalid),
        (answer(401, "<html>Sign in to the hotel</html>"), Kind::Ambiguous),
        (answer(201, "{\"server\": {\"id\": 9"), Kind::Ambiguous),
        (json_answer(201, &json!({"action": {}})), Kind::Ambiguous),
        (lost(true), Kind::Ambiguous),
        (lost(false), Kind::Unavailable),
    ] {
        let (hetzner, _) = open([answer]);
        let error = failure(run(hetzner.create_machine(&spec("fsn1", "cx22", "ubuntu-24.04"), now())));
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[test]
fn a_rate_limit_says_how_long_to_wait() {
    let body = json!({"error": {"code": "rate_limit_exceeded", "message": "limit of 3600 requests per hour reached"}});
    for (header, value, wait_ms) in [
        ("ratelimit-reset", seconds_after_now(42), Some(42_000)),
        ("ratelimit-reset", seconds_after_now(3_600), Some(300_000)),
        ("ratelimit-reset", "0".to_owned(), Some(1_000)),
        ("ratelimit-reset", "soon".to_owned(), None),
        ("ratelimit-reset", i64::MAX.to_string(), Some(300_000)),
        ("retry-after", "7".to_owned(), Some(7_000)),
    ] {
        let (hetzner, _) = open([limited_answer(&body, header, &value)]);
        let error = failure(run(hetzner.find_machine("fsn1", "7", now())));
        assert_eq!((error.kind, error.retry_after_ms), (CloudErrorKind::RateLimited, wait_ms), "{value}");
    }
}

#[test]
fn labels_follow_hetzners_rules() {
    for (key, value, is_good) in [
        ("env", "prod", true),
        ("just-a-key", "", true),
        ("example.com/my_key.1", "a.b-c", true),
        ("hetzner.cloud/x", "a", false),
        ("a:b", "c", false),
        ("-a", "c", false),
        ("a", "c-", false),
        ("a", "two words", false),
        ("a/b/c", "d", false),
        ("tenant-control/operation", "op_1", false),
    ] {
        let mut spec = spec("fsn1", "cx22", "ubuntu-24.04");
        spec.tags.insert(key.to_owned(), value.to_owned());
        assert_eq!(crate::CloudKind::Hetzner.check_spec(&spec).is_empty(), is_good, "{key}={value}");
    }
    let mut spec = spec("fsn1", "cx22", "ubuntu-24.04");
    spec.name = "Web server 1".to_owned();
    assert_eq!(crate::CloudKind::Hetzner.check_spec(&spec)[0].field, "name");
}

#[test]
fn catalogs_have_what_can_be_ordered() {
    let list =
        |key: &str, items: Value| json_answer(200, &json!({key: items, "meta": {"pagination": {"next_page": null}}}));
    let mut retired = server_type();
    retired["name"] = json!("cx11");
    retired["locations"] = json!([{"name": "fsn1", "deprecation": {"announced": "2025-01-01T00:00:00Z"}}]);
    let mut sold_out = server_type();
    sold_out["name"] = json!("cx33");
    sold_out["locations"] = json!([{"name": "fsn1", "available": false}, {"name": "ash", "available": true}]);
    let (hetzner, transport) = open([
        list("locations", json!([{"name": "fsn1", "city": "Falkenstein", "country": "DE"}])),
        pricing(),
        list("server_types", json!([server_type(), retired, sold_out])),
        list("server_types", json!([server_type(), sold_out])),
        list("server_types", json!([sold_out])),
        list(
            "images",
            json!([{"id": 3, "name": "ubuntu-24.04", "description": "Ubuntu 24.04"}, {"id": 4, "name": "ubuntu-24.04"},
                              {"id": 5, "name": null}, {"id": 6, "name": "old", "deprecated": "2025-01-01T00:00:00Z"}]),
        ),
    ]);
    let items = |kind, region| run(hetzner.list_catalog(kind, region, now())).unwrap();
    assert_eq!(items(CatalogKind::Regions, None)[0].name, "Falkenstein, DE");
    let sizes = items(CatalogKind::Sizes, Some("fsn1"));
    assert_eq!((sizes.len(), sizes[0].id.as_str(), sizes[0].disk_bytes), (1, "cx22", Some(40_000_000_000)));
    assert_eq!(sizes[0].cost.as_ref().unwrap().amount.to_string(), "3.29");
    assert!(items(CatalogKind::Sizes, Some("sin1")).is_empty());
    assert_eq!(items(CatalogKind::Sizes, Some("ash")).len(), 1);
    let images: Vec<String> = items(CatalogKind::Images, None).into_iter().map(|image| image.id).collect();
    assert_eq!(images, ["ubuntu-24.04", "5"]);
    let sent = transport.take_sent();
    assert_eq!(sent[5].line(), "GET /images?per_page=50&type=system&status=available&sort=created%3Adesc&page=1");
}

fn verify(created: Answer) -> (Verification, Vec<String>) {
    let locations = json!({"locations": [{"name": "fsn1"}], "meta": {"pagination": {"next_page": null}}});
    let (hetzner, transport) = open([servers(&[], None), created, json_answer(200, &locations)]);
    let verification = run(hetzner.verify(&["fsn1".to_owned(), "mars1".to_owned()], now()));
    assert!(!format!("{verification:?}").contains(CANARY));
    (verification, transport.take_sent().iter().map(|request| format!("{} {}", request.line(), request.body)).collect())
}

#[test]
fn a_token_is_verified_without_creating_anything() {
    let (verification, sent) = verify(error(422, "invalid_input"));
    assert_eq!(sent, ["GET /servers?per_page=1 ", "POST /servers {}", "GET /locations?per_page=50&page=1 "]);
    let results: Vec<AccessResult> = verification.checks.iter().map(|check| check.result).collect();
    assert_eq!(results, [Allowed, Allowed, Allowed, Allowed, Denied]);
    assert_eq!(verification.checks[2].method, "refused_request");
    assert!(verification.checks[4].remediation.as_ref().unwrap().contains("it has fsn1"));
    let identity = verification.identity.unwrap();
    assert_eq!((identity.account_id.len(), identity.principal.as_str()), (22, "API token …cdef"));
    let (again, _) = verify(error(422, "invalid_input"));
    assert_eq!(again.identity.unwrap().account_id, identity.account_id);

    let (verification, _) = verify(error(403, "token_readonly"));
    let check = &verification.checks[2];
    assert_eq!((check.result, check.code.as_deref()), (AccessResult::Denied, Some("token_readonly")));
    assert!(check.remediation.as_ref().unwrap().contains("Read & Write"));
}

#[test]
fn a_refused_token_skips_the_rest() {
    let (hetzner, _) = open([error(401, "unauthorized")]);
    let verification = run(hetzner.verify(&["fsn1".to_owned()], now()));
    assert_eq!(verification.failure.unwrap().kind, CloudErrorKind::Auth);
    let results: Vec<AccessResult> = verification.checks.iter().map(|check| check.result).collect();
    assert_eq!(results, [Denied, Skipped, Skipped, Skipped]);
}
