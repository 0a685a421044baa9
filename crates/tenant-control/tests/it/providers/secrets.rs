//! Credentials: given once, shown never, and of no use in another place than their own.

use kernel::base::{HOUR_MS, KeyringChange, MINUTE_MS, RandomSource, Secrets};
use kernel::store::Purpose;

use super::*;
use crate::support::clouds::{VMS, order_body};
use crate::support::command::Desk;
use crate::webhooks::EVENTS;

/// Everything that a tenant is shown, as text.
async fn all_shown(server: &Server, tenancy: &Tenancy) -> String {
    let events = server.events_of(tenancy, "").await;
    let mut shown = format!("{events:?}");
    for path in [PROVIDERS, VMS, AUDIT, &format!("{EVENTS}?view=feed&limit=200")] {
        let answer = server.get(path).cookie(&tenancy.admin).await;
        shown.push_str(&String::from_utf8_lossy(&answer.is(200).body));
    }
    shown
}

/// The sealed credentials of every provider, by id.
async fn sealed(server: &Server) -> Vec<(String, Vec<u8>)> {
    let read = "SELECT id, credentials FROM cloud_providers ORDER BY id LIMIT 10";
    server.app.store.system(Purpose::Cli).list(read, kernel::args![]).await.expect("the rows")
}

/// Puts sealed credentials where they may not belong.
async fn plant(server: &Server, id: &str, credentials: Vec<u8>) {
    let (sql, id) = ("UPDATE cloud_providers SET credentials = $2 WHERE id = $1", id.to_owned());
    let db = server.app.store.system(Purpose::Cli);
    let planted = db.write(async move |tx| tx.exec(sql, kernel::args![id, credentials]).await).await;
    assert_eq!(planted.expect("it is planted"), 1);
}

/// What the owner of credentials is told that do not open.
const UNOPENED: &str = "The stored credentials of this provider cannot be opened. Enter them again with PUT";

/// Asserts that nothing is sent with what is stored, and that its owner is told what to do.
async fn assert_useless(server: &Server, tenancy: &Tenancy, provider: &Value, stub: &CloudStub) {
    let asked = stub.total();
    let report = server.tell_provider(tenancy, provider, "verify").await.ok(200);
    assert_eq!(
        (&report["status"], &report["identity"], &report["checks"]),
        (&json!("error"), &json!(null), &json!([]))
    );
    assert!(report["error"]["detail"].as_str().unwrap().starts_with(UNOPENED), "{report:#}");
    let catalog = server.get(format!("{}&catalog=sizes", one_provider(provider))).cookie(&tenancy.admin).await;
    assert!(catalog.problem("conflict")["detail"].as_str().unwrap().starts_with(UNOPENED));
    server.sync(tenancy, provider).await;
    let shown = server.read_provider(tenancy, provider).await;
    assert_eq!((&shown["status"], &shown["verification"]), (&json!("error"), &report));
    assert!(shown["last_sync_error"].as_str().unwrap().contains(UNOPENED), "{shown:#}");
    assert_eq!(stub.total(), asked, "the cloud sees nothing of it");
}

over_http! {
    async fn a_token_is_never_shown_even_if_the_cloud_repeats_it(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (first, second) = (stub.token("acme", Rights::All), stub.token("acme", Rights::All));
            let body = provider_body(stub, &first);
            let mut shown = post(&server, &acme, &body).await.ok(201).to_string();
            let provider = server.get(PROVIDERS).cookie(&acme.admin).await.ok(200)["data"][0].clone();
            server.cloud_work().await;
            let repeated = |token: &str| stub.refusal(500, "service_error", &format!("Bearer {token} met an error"));
            // It is repeated in a verification, in a sync, in an order and in a catalog.
            for asked in [Asked::ListOne, Asked::List, Asked::Images, Asked::Account] {
                stub.on(asked, [repeated(&first)]);
            }
            shown += &server.tell_provider(&acme, &provider, "verify").await.ok(200).to_string();
            shown += &server.tell_provider(&acme, &provider, "verify").await.ok(200).to_string();
            server.sync(&acme, &provider).await;
            shown += &String::from_utf8_lossy(&server.get(format!("{}&catalog=images", one_provider(&provider))).cookie(&acme.admin).await.body);
            stub.on(Asked::Create, [stub.refusal(422, "invalid_input", &format!("Bearer {first} may not"))]);
            shown += &server.order(&acme, stub, &provider).await.to_string();
            server.cloud_work_for(MINUTE_MS).await;
            // A bad request repeats nothing either.
            let bad = with(&body, &json!({"regions": [], "credentials": {"token": format!("{second} x")}}));
            let refused = put(&server, &acme, &provider, &bad).await;
            assert_eq!(sorted(refused.pointers()), ["/credentials/token", "/regions"]);
            shown += &refused.json().to_string();
            shown += &put(&server, &acme, &provider, &provider_body(stub, &second)).await.ok(200).to_string();
            shown += &all_shown(&server, &acme).await;
            for token in [&first, &second] {
                assert!(!shown.contains(token.as_str()), "{token} is in {shown}");
            }
            assert!(shown.contains("[redacted]"), "what the cloud said is there without it: {shown}");
            assert!(stub.calls(Asked::ListOne).iter().any(|call| call.token == first), "the cloud has seen it");
        }
    }

    async fn credentials_of_another_tenant_do_not_open(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let stub = &clouds.hetzner;
        let (own, _) = make(&server, &acme, stub).await;
        let (foreign, _) = make(&server, &other, stub).await;
        server.cloud_work().await;
        let rows = sealed(&server).await;
        let of = |provider: &Value| rows.iter().find(|(id, _)| id == id_of(provider)).unwrap().1.clone();
        plant(&server, id_of(&own), of(&foreign)).await;
        plant(&server, id_of(&foreign), of(&own)).await;
        assert_useless(&server, &acme, &own, stub).await;
        assert_useless(&server, &other, &foreign, stub).await;
        plant(&server, id_of(&own), of(&own)).await;
        assert_eq!(server.tell_provider(&acme, &own, "verify").await.ok(200)["status"], "active");
    }

    async fn credentials_of_another_provider_or_version_do_not_open(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.digitalocean;
        let ((one, _), (two, _)) = (make(&server, &acme, stub).await, make(&server, &acme, stub).await);
        server.cloud_work().await;
        let rows = sealed(&server).await;
        let of = |provider: &Value| rows.iter().find(|(id, _)| id == id_of(provider)).unwrap().1.clone();
        plant(&server, id_of(&one), of(&two)).await;
        assert_useless(&server, &acme, &one, stub).await;
        plant(&server, id_of(&one), of(&one)).await;
        // Those that were replaced, put back by somebody who has kept an old row.
        let next = stub.token("acme", Rights::All);
        put(&server, &acme, &two, &provider_body(stub, &next)).await.is(200);
        plant(&server, id_of(&two), of(&two)).await;
        assert_useless(&server, &acme, &two, stub).await;
        assert_eq!(server.tell_provider(&acme, &one, "verify").await.ok(200)["status"], "active");
    }

    async fn credentials_that_do_not_open_are_told_and_can_be_entered_again(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        for stub in clouds.both() {
            let token = stub.token("acme", Rights::All);
            let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
            let foreign_token = stub.token("other", Rights::All);
            let disabled = with(&provider_body(stub, &foreign_token), &json!({"enabled": false}));
            let foreign = post(&server, &other, &disabled).await.ok(201);
            let rows = sealed(&server).await;
            let stolen = rows.into_iter().find(|(id, _)| id == id_of(&foreign)).unwrap().1;
            plant(&server, id_of(&provider), stolen).await;
            let ordered = server.order(&acme, stub, &provider).await;
            let asked = stub.total();
            server.cloud_work_for(8 * HOUR_MS).await;
            let shown = server.read_provider(&acme, &provider).await;
            assert_eq!(shown["status"], "error", "{shown:#}");
            assert!(shown["verification"]["error"]["detail"].as_str().unwrap().starts_with(UNOPENED), "{shown:#}");
            assert!(shown["last_sync_error"].as_str().unwrap().contains(UNOPENED), "{shown:#}");
            let operation = &server.read_vm(&acme, &ordered).await["operation"];
            assert_eq!(operation["status"], "accepted", "it waits");
            assert!(operation["error"]["detail"].as_str().unwrap().starts_with(UNOPENED), "{operation:#}");
            assert_eq!(stub.total(), asked, "the cloud sees nothing of it");
            assert_eq!(server.kinds_of(&acme, "cloud.provider.").await.last().unwrap(), "cloud.provider.failed");
            // Its other fields can be changed, and the credentials entered, also those that were there before.
            let renamed = json!({"name": "Renamed", "kind": stub.kind(), "regions": [stub.region()]});
            assert_eq!(put(&server, &acme, &provider, &renamed).await.ok(200)["name"], "Renamed");
            assert_useless(&server, &acme, &provider, stub).await;
            put(&server, &acme, &provider, &provider_body(stub, &token)).await.is(200);
            server.cloud_work_for(2 * MINUTE_MS).await;
            let shown = server.read_provider(&acme, &provider).await;
            assert_eq!((&shown["status"], &shown["last_sync_error"]), (&json!("active"), &json!(null)), "{shown:#}");
            assert_eq!(server.read_vm(&acme, &ordered).await["operation"]["status"], "succeeded", "it is made now");
            let shown = all_shown(&server, &acme).await;
            assert!(!shown.contains(&token) && !shown.contains(&foreign_token));
        }
    }

    async fn credentials_work_again_when_a_lost_key_is_back(setup: Setup) {
        let first = setup.secrets.clone();
        let change = |text: &str, change| Secrets::change_text(text, change, &RandomSource::System).unwrap();
        let rotated = change(&change(&first, KeyringChange::AddKey(2)), KeyringChange::SetPrimary(2));
        let without = change(&rotated, KeyringChange::RemoveKey(1));
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        let provider = server.connect(&acme, stub, "acme").await;
        server.app.secrets.adopt_keyring(&Secrets::parse(&without).unwrap());
        assert_useless(&server, &acme, &provider, stub).await;
        server.app.secrets.adopt_keyring(&Secrets::parse(&rotated).unwrap());
        server.cloud_work_for(HOUR_MS).await;
        let shown = server.read_provider(&acme, &provider).await;
        assert_eq!((&shown["status"], &shown["last_sync_error"]), (&json!("active"), &json!(null)), "{shown:#}");
    }
}

/// What a real server writes down while a token is good, refused and repeated by the cloud.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_in_no_log() {
    let stub = CloudStub::start_hetzner().await;
    let token = stub.token("acme", Rights::All);
    let desk = Desk::new();
    let process = desk.serve(&["--log-format", "json", "--cloud-endpoint", &stub.endpoint()]);
    let session = desk.json(&["admin", "session", "create", "--tenant", "default", "--email", "admin@localhost"]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = async |path: &str, body: Value| -> Value {
        let call = client.post(process.url(path)).header("cookie", session["cookie"].as_str().unwrap());
        call.json(&body).send().await.unwrap().json().await.unwrap()
    };
    let provider = send(PROVIDERS, provider_body(&stub, &token)).await;
    stub.wait_for(Asked::List, 1).await;
    let (secret, message) = ("user-data-hunter2", format!("Bearer {token} met an error"));
    for asked in [Asked::ListOne, Asked::List] {
        stub.always(asked, stub.refusal(500, "service_error", &message));
    }
    stub.always(Asked::Create, stub.refusal(500, "service_error", &format!("{message} in {secret}")));
    let sync = send(PROVIDERS, json!({"action": "sync", "id": provider["id"]})).await;
    assert_eq!(sync["id"], provider["id"], "{sync}");
    stub.wait_for(Asked::List, 2).await;
    send(PROVIDERS, json!({"action": "verify", "id": provider["id"]})).await;
    let mut order = order_body(&stub, &provider);
    order["user_data"] = json!(secret);
    assert_eq!(send(VMS, order).await["operation"]["status"], "accepted");
    stub.wait_for(Asked::Create, 1).await;
    send(PROVIDERS, json!({"name": "Bad", "kind": "hetzner", "credentials": {"token": format!("{token} x")}})).await;
    process.logs(&["failed to sync a region"]);
    let ended = process.stop();
    for shown in [&ended.stderr, &ended.stdout] {
        assert!(!shown.contains(&token) && !shown.contains(secret), "{shown}");
    }
}
