//! Calls of DigitalOcean's API and their answers, written after real ones.

use serde_json::{Value, json};

use crate::test_support::{
    Answer, CANARY, ScriptedTransport, TOKEN, answer, failure, json_answer, limited_answer, lost, now, open_with_token,
    run, seconds_after_now, spec,
};
use crate::{AccessResult, CatalogKind, CloudAdapter, CloudErrorKind, CloudKind, MachineCost, MachineState};
use AccessResult::{Allowed, Denied, Skipped};

fn open(answers: impl IntoIterator<Item = Answer>) -> (Box<dyn CloudAdapter>, std::sync::Arc<ScriptedTransport>) {
    let transport = ScriptedTransport::in_order(answers);
    (open_with_token(CloudKind::Digitalocean, &transport), transport)
}

fn droplet(id: i64, status: &str, region: &str) -> Value {
    json!({
        "id": id, "name": format!("web-{id}"), "status": status, "memory": 1024, "vcpus": 1, "disk": 25,
        "region": {"slug": region}, "size_slug": "s-1vcpu-1gb", "size": {"slug": "s-1vcpu-1gb", "price_monthly": 6.0},
        "image": {"id": 5, "slug": "ubuntu-24-04-x64"}, "tags": ["web", "env:prod", "tenant-control:operation:op_1"],
        "networks": {
            "v4": [{"ip_address": "10.0.0.2", "type": "private"}, {"ip_address": "203.0.113.7", "type": "public"}],
            "v6": [{"ip_address": "2001:db8::7", "type": "public"}],
        },
    })
}

fn droplets(droplets: &[Value], next: Option<&str>) -> Answer {
    let pages = next.map_or_else(|| json!({}), |next| json!({"pages": {"next": next, "last": next}}));
    json_answer(200, &json!({"droplets": droplets, "links": pages, "meta": {"total": 1}}))
}

fn error(status: u16, id: &str) -> Answer {
    json_answer(status, &json!({"id": id, "message": format!("{id} with {TOKEN}"), "request_id": "1"}))
}

#[test]
fn droplets_of_all_regions_are_machines() {
    let all = [droplet(1, "active", "fra1"), droplet(2, "archive", "nyc3"), droplet(3, "odd", "fra1")];
    // The address of the next page is not followed: only its number is used.
    let next = "https://evil.example/v2/droplets?per_page=200&page=2";
    let gpus = [droplet(4, "active", "nyc3")];
    let (cloud, transport) =
        open([droplets(&all, Some(next)), droplets(&all, None), droplets(&gpus, Some(next)), droplets(&gpus, None)]);
    let page = run(cloud.list_machines(None, None, now())).unwrap();
    assert_eq!((page.machines.len(), page.next_cursor.as_deref()), (3, Some("2")));
    let states: Vec<MachineState> = page.machines.iter().map(|machine| machine.state).collect();
    assert_eq!(states, [MachineState::Running, MachineState::Suspended, MachineState::Unknown]);
    let first = &page.machines[0];
    assert_eq!((first.external_id.as_str(), first.region.as_str()), ("1", "fra1"));
    assert_eq!((first.size.id.as_str(), first.size.vcpus), ("s-1vcpu-1gb", Some(1)));
    assert_eq!((first.size.memory_bytes, first.size.disk_bytes), (Some(1_073_741_824), Some(26_843_545_600)));
    assert_eq!(first.image.as_deref(), Some("ubuntu-24-04-x64"));
    assert_eq!(first.public_ips, ["203.0.113.7", "2001:db8::7"]);
    assert_eq!(first.private_ips, ["10.0.0.2"]);
    assert_eq!(first.cost, Some(MachineCost { amount: 6.0, currency: "USD".to_owned(), period: "month".to_owned() }));
    assert_eq!((first.tags["web"].as_str(), first.tags["env"].as_str()), ("", "prod"));
    assert_eq!(first.operation_id.as_deref(), Some("op_1"));

    let page = run(cloud.list_machines(Some("nyc3"), Some("2"), now())).unwrap();
    assert_eq!((page.machines.len(), page.next_cursor.as_deref()), (1, Some("gpus:1")));
    let page = run(cloud.list_machines(None, Some("gpus:1"), now())).unwrap();
    assert_eq!((page.machines.len(), page.next_cursor.as_deref()), (1, Some("gpus:2")));
    assert_eq!(run(cloud.list_machines(None, Some("gpus:2"), now())).unwrap().next_cursor, None);
    assert!(cloud.lists_all_regions());
    let sent = transport.take_sent();
    assert_eq!(sent[3].line(), "GET /droplets?per_page=200&page=2&type=gpus");
    assert_eq!(sent[0].url, "https://api.digitalocean.com/v2/droplets?per_page=200&page=1");
    assert_eq!(sent[1].line(), "GET /droplets?per_page=200&page=2");
    assert_eq!(sent[0].headers["authorization"], format!("Bearer {TOKEN}"));
}

#[test]
fn a_page_that_is_not_whole_is_no_page() {
    let odd = |key: &str, value: Value| {
        let mut droplet = droplet(1, "active", "fra1");
        droplet[key] = value;
        droplets(&[droplet], None)
    };
    for answer in [
        json_answer(200, &json!({"droplets": []})),
        json_answer(200, &json!({"links": {}})),
        droplets(&[], Some("https://api.digitalocean.com/v2/droplets")),
        droplets(&[], Some("https://api.digitalocean.com/v2/droplets?page=x")),
        droplets(&[], Some("https://api.digitalocean.com/v2/droplets?page=1")),
        odd("id", json!(-1)),
        odd("status", json!(5)),
        odd("region", Value::Null),
        answer(200, "{\"droplets\": ["),
        answer(200, "null"),
    ] {
        let (cloud, _) = open([answer]);
        assert_eq!(failure(run(cloud.list_machines(None, None, now()))).kind, CloudErrorKind::Unavailable);
    }
}

#[test]
fn a_droplet_is_found_by_id_and_by_operation() {
    let (cloud, transport) = open([
        json_answer(200, &json!({"droplet": droplet(7, "new", "fra1")})),
        error(404, "not_found"),
        droplets(&[droplet(7, "new", "fra1")], None),
        droplets(&[droplet(7, "new", "fra1")], None),
    ]);
    let machine = run(cloud.find_machine("fra1", "7", now())).unwrap().unwrap();
    assert_eq!(machine.state, MachineState::Provisioning);
    assert_eq!(run(cloud.find_machine("fra1", "8", now())).unwrap(), None);
    assert_eq!(run(cloud.find_by_operation("fra1", "op_1", now())).unwrap().len(), 1);
    assert_eq!(run(cloud.find_by_operation("fra1", "op_2", now())).unwrap().len(), 0);
    let sent = transport.take_sent();
    assert_eq!(sent[2].line(), "GET /droplets?per_page=200&tag_name=tenant-control%3Aoperation%3Aop_1");
    assert_eq!(failure(run(cloud.find_machine("fra1", "7/actions", now()))).kind, CloudErrorKind::Invalid);
}

#[test]
fn a_creation_carries_its_operation_as_tag() {
    let mut created = droplet(9, "new", "fra1");
    created["tags"] = json!([]);
    let (cloud, transport) = open([json_answer(202, &json!({"droplet": created, "links": {"actions": []}}))]);
    let mut spec = spec("fra1", "s-1vcpu-1gb", "129211873");
    spec.ssh_keys = vec!["289794".to_owned(), "3b:16:e4:bf".to_owned()];
    let machine = run(cloud.create_machine(&spec, now())).unwrap().machine;
    assert_eq!(machine.operation_id, Some(spec.operation_id.clone()));
    assert_eq!(machine.tags["env"], "prod");
    let sent = transport.take_sent();
    assert_eq!(sent[0].line(), "POST /droplets");
    let expected = json!({
        "name": "web-1", "region": "fra1", "size": "s-1vcpu-1gb", "image": 129_211_873,
        "ssh_keys": [289_794, "3b:16:e4:bf"], "user_data": "#cloud-config\npassword: canary",
        "tags": [format!("tenant-control:operation:{}", spec.operation_id), "env:prod"],
    });
    assert_eq!(sent[0].json(), expected);
    assert!(!cloud.creates_once());
}

/// How the document describes what the paths of tags refuse.
fn tag_error() -> Answer {
    let message = format!("Error validating resource tag with {TOKEN}");
    json_answer(400, &json!({"error": message, "messages": null, "root_causes": ["rpc error"]}))
}

fn refusal(message: &str) -> Answer {
    json_answer(422, &json!({"id": "unprocessable_entity", "message": message}))
}

#[test]
fn failures_of_a_creation_have_their_kinds() {
    use CloudErrorKind as Kind;
    for (answer, kind) in [
        (refusal("creating this droplet will exceed your droplet limit"), Kind::Quota),
        (error(422, "unprocessable_entity"), Kind::Invalid),
        (refusal("Size is not available in this region."), Kind::Capacity),
        (refusal("Region is not available"), Kind::Capacity),
        (
            refusal("The size you selected is temporarily unavailable because of High CPU server capacity"),
            Kind::Capacity,
        ),
        (refusal("The image is not available in the selected region"), Kind::Invalid),
        (refusal("You specified an invalid size for Droplet creation."), Kind::Invalid),
        (tag_error(), Kind::Invalid),
        (error(401, "Unauthorized"), Kind::Auth),
        (error(403, "forbidden"), Kind::Permission),
        (error(500, "server_error"), Kind::Ambiguous),
        (error(503, "service_unavailable"), Kind::Ambiguous),
        (json_answer(403, &json!({"message": "no id"})), Kind::Ambiguous),
        (json_answer(403, &json!({"error": "no root causes"})), Kind::Ambiguous),
        (answer(202, "{}"), Kind::Ambiguous),
        (answer(202, "{\"droplet\": {\"id\": 9"), Kind::Ambiguous),
        (lost(true), Kind::Ambiguous),
        (lost(false), Kind::Unavailable),
    ] {
        let (cloud, _) = open([answer]);
        let error = failure(run(cloud.create_machine(&spec("fra1", "s-1vcpu-1gb", "ubuntu-24-04-x64"), now())));
        assert_eq!(error.kind, kind, "{error}");
    }
    let mut spec = spec("fra1", "s-1vcpu-1gb", "ubuntu-24-04-x64");
    spec.tags.insert("two words".to_owned(), String::new());
    let (cloud, _) = open([]);
    assert_eq!(failure(run(cloud.create_machine(&spec, now()))).kind, CloudErrorKind::Invalid);
}

#[test]
fn a_rate_limit_says_how_long_to_wait() {
    let body = json!({"id": "too_many_requests", "message": "API Rate limit exceeded."});
    let (cloud, _) = open([
        limited_answer(&body, "ratelimit-reset", &seconds_after_now(600)),
        Ok(crate::CloudResponse { status: 429, headers: Vec::new(), body: b"slow down".to_vec() }),
    ]);
    let error = failure(run(cloud.list_machines(None, None, now())));
    assert_eq!((error.kind, error.retry_after_ms), (CloudErrorKind::RateLimited, Some(600_000)));
    let error = failure(run(cloud.list_machines(None, None, now())));
    assert_eq!((error.kind, error.retry_after_ms), (CloudErrorKind::RateLimited, None));
}

#[test]
fn catalogs_are_of_a_region_and_available() {
    let list = |key: &str, items: Value| json_answer(200, &json!({key: items, "links": {}, "meta": {"total": 1}}));
    let size = |slug: &str, is_available: bool| {
        json!({"slug": slug, "description": "Basic", "memory": 512, "vcpus": 1, "disk": 10, "price_monthly": 4,
               "regions": ["fra1"], "available": is_available})
    };
    let image = |slug: &str, date: &str| json!({"id": 1, "slug": slug, "distribution": "Ubuntu", "name": "24.04 x64", "created_at": date, "regions": ["fra1"]});
    let (cloud, transport) = open([
        list(
            "regions",
            json!([{"slug": "fra1", "name": "Frankfurt 1", "available": true}, {"slug": "old", "available": false}]),
        ),
        list("sizes", json!([size("s-1", true), size("s-2", false)])),
        list("sizes", json!([size("s-1", true)])),
        list("images", json!([image("a", "2025-01-01T00:00:00Z"), image("b", "2026-01-01T00:00:00Z")])),
    ]);
    let items = |kind, region| run(cloud.list_catalog(kind, region, now())).unwrap();
    let regions = items(CatalogKind::Regions, None);
    assert_eq!((regions.len(), regions[0].name.as_str()), (1, "Frankfurt 1"));
    let sizes = items(CatalogKind::Sizes, Some("fra1"));
    assert_eq!((sizes.len(), sizes[0].name.as_str(), sizes[0].memory_bytes), (1, "Basic (s-1)", Some(536_870_912)));
    assert!(items(CatalogKind::Sizes, Some("nyc3")).is_empty());
    let images: Vec<String> = items(CatalogKind::Images, Some("fra1")).into_iter().map(|image| image.id).collect();
    assert_eq!(images, ["b", "a"]);
    assert_eq!(transport.take_sent()[3].line(), "GET /images?per_page=200&type=distribution&page=1");
}

fn account(team: Option<&str>) -> Answer {
    let mut account = json!({"account": {"uuid": "user-1", "email": "ops@example.com", "status": "active"}});
    if let Some(team) = team {
        account["account"]["team"] = json!({"uuid": team, "name": "Ops"});
    }
    json_answer(200, &account)
}

fn regions() -> Answer {
    let regions = json!([{"slug": "fra1", "available": true}, {"slug": "nyc2", "available": false}]);
    json_answer(200, &json!({"regions": regions, "links": {}}))
}

#[test]
fn a_region_that_is_closed_to_new_droplets_can_be_read() {
    let unauthorized = || error(403, "forbidden");
    for (regions_answer, expected) in [
        (regions(), [(Allowed, false), (Allowed, false), (Denied, true)]),
        (unauthorized(), [(Denied, false), (Denied, false), (Denied, false)]),
        (lost(true), [(AccessResult::Error, false), (AccessResult::Error, false), (AccessResult::Error, false)]),
    ] {
        let refused = || error(422, "unprocessable_entity");
        let found = || droplets(&[], None);
        let (cloud, _) = open([account(None), found(), refused(), refused(), found(), regions_answer]);
        let names = ["fra1", "nyc2", "mars1"].map(str::to_owned);
        let checks = run(cloud.verify(&names, now())).checks;
        let results: Vec<(AccessResult, bool)> =
            checks[5..].iter().map(|check| (check.result, check.required)).collect();
        assert_eq!(results, expected);
    }
}

#[test]
fn a_token_is_verified_without_creating_anything() {
    let (cloud, transport) = open([
        account(Some("team-1")),
        droplets(&[], None),
        error(422, "unprocessable_entity"),
        tag_error(),
        droplets(&[], None),
        regions(),
    ]);
    let verification = run(cloud.verify(&["fra1".to_owned()], now()));
    assert!(!format!("{verification:?}").contains(CANARY));
    let identity = verification.identity.unwrap();
    assert_eq!((identity.account_id.as_str(), identity.principal.as_str()), ("team-1", "ops@example.com"));
    assert!(verification.checks.iter().all(|check| check.result == Allowed));
    let sent: Vec<String> =
        transport.take_sent().iter().map(|request| format!("{} {}", request.line(), request.body)).collect();
    let expected = [
        "GET /account ",
        "GET /droplets?per_page=1 ",
        "POST /droplets {}",
        "POST /tags {}",
        "GET /droplets?per_page=1&tag_name=tenant-control%3Aoperation%3Anone ",
        "GET /regions?per_page=200&page=1 ",
    ];
    assert_eq!(sent, expected);

    let denied = || error(403, "forbidden");
    let (cloud, _) = open([denied(), droplets(&[], None), denied(), denied(), denied(), regions()]);
    let verification = run(cloud.verify(&["fra1".to_owned()], now()));
    let results: Vec<AccessResult> = verification.checks.iter().map(|check| check.result).collect();
    assert_eq!(results, [Denied, Allowed, Denied, Denied, Denied, Allowed]);
    for (check, scope) in verification.checks[2..5].iter().zip(["droplet:create", "tag:create", "tag:read"]) {
        assert!(check.required && check.remediation.as_ref().unwrap().contains(scope), "{check:?}");
    }
    assert_eq!(verification.identity.unwrap().principal, "API token …cdef");
}

#[test]
fn a_refused_token_skips_the_rest() {
    let (cloud, _) = open([error(401, "unauthorized")]);
    let verification = run(cloud.verify(&["fra1".to_owned()], now()));
    assert_eq!(verification.failure.unwrap().kind, CloudErrorKind::Auth);
    assert!(verification.identity.is_none());
    let results: Vec<AccessResult> = verification.checks.iter().map(|check| check.result).collect();
    assert_eq!(results, [Denied, Skipped, Skipped, Skipped, Skipped, Skipped]);
}
