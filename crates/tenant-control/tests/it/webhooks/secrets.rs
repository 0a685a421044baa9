//! PUT with `rotate_secret` alone, and what deliveries are signed with: by our own arithmetic, and by the packages that
//! receivers use.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::base::seal::{SealBinding, SealedColumn, SealedValue};
use kernel::base::{DAY_MS, Env, HOUR_MS, Secrets, TenantId, hmac_sha256};
use tenant_control::features::webhooks::store::{SEALED_HEADERS, SEALED_SECRETS};
use tenant_control::features::webhooks::{Webhook, WebhookId};

use super::create::{create, input, one, read, without_secret};
use super::*;
use crate::support::receiver::Received;
use crate::support::verifiers::{Case, Verdicts, verify};

/// An endpoint of a receiver, and whoever rotates its secret. Sessions outlast every overlap.
struct Scene {
    server: Server,
    acme: Tenancy,
    receiver: Receiver,
    hook: Value,
}

impl Scene {
    async fn new(mut setup: Setup) -> Scene {
        setup.settings.session_idle_ms = 400 * DAY_MS;
        setup.settings.session_absolute_ms = 400 * DAY_MS;
        let server = open(setup).await;
        Scene::on(server).await
    }

    async fn on(server: Server) -> Scene {
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = endpoint(&server, &acme, &receiver.url("/hook"), &["ticket.*"]).await;
        Scene { server, acme, receiver, hook }
    }

    fn secret(&self) -> String {
        text(&self.hook["secret"])
    }

    async fn rotate(&self, rotation: Value) -> String {
        let body = json!({"rotate_secret": rotation});
        text(&self.server.put(one(&self.hook)).cookie(&self.acme.admin).json(&body).await.ok(200)["secret"])
    }

    async fn deliver(&self) -> Received {
        let test = json!({"action": "test", "webhook_id": self.hook["id"]});
        self.server.post(DELIVERIES).cookie(&self.acme.admin).json(&test).await.is(202);
        self.server.sender.run_due().await.unwrap();
        self.receiver.received().pop().expect("a delivery")
    }

    /// Asserts that the next delivery is signed by exactly these.
    async fn is_signed_by(&self, secrets: &[&str], when: &str) {
        let got = self.deliver().await;
        let mut signatures: Vec<&str> = got.headers["webhook-signature"].split(' ').collect();
        let mut wanted: Vec<String> = secrets.iter().map(|secret| sign(secret, &got)).collect();
        signatures.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(signatures, wanted, "{when}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// The signature as Standard Webhooks says, written down by someone who only has that text.
fn sign(secret: &str, got: &Received) -> String {
    let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let head = format!("{}.{}.", got.headers["webhook-id"], got.headers["webhook-timestamp"]);
    format!("v1,{}", BASE64.encode(hmac_sha256(&key, &[head.as_bytes(), &got.body].concat())))
}

over_http! {
    async fn a_rotation_shows_the_next_secret_once_and_changes_nothing_else(server: Server) {
        let acme = server.tenant("acme").await;
        let hook = create(&server, &acme, &input()).await.ok(201);
        server.advance(HOUR_MS);
        let answer =
            server.put(one(&hook)).cookie(&acme.admin).json(&json!({"rotate_secret": {"overlap_hours": 24}})).await;
        let rotated = answer.ok(200);
        assert_eq!((answer.header("etag"), answer.header("cache-control")), ("\"2\"", "no-store"));
        let secret = text(&rotated["secret"]);
        assert_eq!(BASE64.decode(secret.strip_prefix("whsec_").unwrap()).unwrap().len(), 32);
        assert_ne!(rotated["secret"], hook["secret"]);
        let mut wanted = without_secret(hook.clone());
        wanted["version"] = json!(2);
        wanted["updated_at"] = json!(server.now().to_string());
        assert_eq!(without_secret(rotated), wanted);
        assert_eq!(read(&server, &acme, &hook).await, wanted);
        for path in [WEBHOOKS, "/api/admin/audit", &format!("{EVENTS}?view=feed&limit=1")] {
            if path.starts_with(EVENTS) {
                // The feed waits for an event.
                server.key(&acme, &["tickets:read"]).await;
            }
            let shown = String::from_utf8(server.get(path).cookie(&acme.admin).await.is(200).body.clone()).unwrap();
            assert!(!shown.contains("whsec_") && !shown.contains(&secret[6..]), "{path}");
        }
    }

    async fn rotate_secret_is_alone_in_the_body_and_has_bounds(server: Server) {
        let acme = server.tenant("acme").await;
        let hook = create(&server, &acme, &input()).await.ok(201);
        let put = |body: &Value| server.put(one(&hook)).cookie(&acme.admin).json(body);
        for rotation in [
            json!({"overlap_hours": -1}),
            json!({"overlap_hours": 169}),
            json!({"overlap_hours": "1"}),
            json!({"overlap_hours": 0.5}),
            json!({"overlap_hours": null}),
        ] {
            assert_eq!(
                put(&json!({"rotate_secret": rotation})).await.pointers(),
                ["/rotate_secret/overlap_hours"],
                "{rotation}"
            );
        }
        assert_eq!(put(&json!({"rotate_secret": {"hours": 1}})).await.pointers(), ["/rotate_secret/hours"]);
        for rotation in [Value::Null, json!(true), json!(24), json!([]), json!("now")] {
            assert_eq!(put(&json!({"rotate_secret": rotation})).await.pointers(), ["/rotate_secret"], "{rotation}");
        }
        let mut whole = input();
        whole["rotate_secret"] = json!({});
        for body in [
            whole,
            json!({"rotate_secret": {}, "name": "x"}),
            json!({"rotate_secret": {}, "enabled": true}),
            json!({"rotate_secret": {}, "x": 1}),
        ] {
            let pointers = put(&body).await.pointers();
            assert!(pointers.contains(&"/rotate_secret".to_owned()), "{body}: {pointers:?}");
        }
        let mut made = input();
        made["rotate_secret"] = json!({});
        assert_eq!(create(&server, &acme, &made).await.pointers(), ["/rotate_secret"], "POST does not rotate");
        assert_eq!(read(&server, &acme, &hook).await, without_secret(hook.clone()), "nothing was rotated");
        for hours in [0, 168] {
            put(&json!({"rotate_secret": {"overlap_hours": hours}})).await.is(200);
        }
    }

    async fn a_delivery_is_signed_over_its_id_its_time_and_its_body(setup: Setup) {
        let scene = Scene::new(setup).await;
        let got = scene.deliver().await;
        assert_eq!(got.headers["webhook-signature"], sign(&scene.secret(), &got));
        assert_eq!(got.webhook_id(), text(&got.json()["id"]));
        assert_eq!(got.headers["webhook-timestamp"], (scene.server.now().as_millis() / 1_000).to_string());
        let another = scene.deliver().await;
        assert_ne!(another.headers["webhook-signature"], got.headers["webhook-signature"]);
    }

    async fn both_sign_until_the_overlap_ends(setup: Setup) {
        let scene = Scene::new(setup).await;
        let mut old = scene.secret();
        scene.is_signed_by(&[&old], "before").await;
        for (rotation, hours) in
            [(json!({"overlap_hours": 1}), 1), (json!({}), 24), (json!({"overlap_hours": 168}), 168)]
        {
            let new = scene.rotate(rotation).await;
            scene.is_signed_by(&[&old, &new], "at once").await;
            scene.server.advance(hours * HOUR_MS - 1);
            scene.is_signed_by(&[&old, &new], &format!("within {hours} h")).await;
            scene.server.advance(1);
            scene.is_signed_by(&[&new], &format!("after {hours} h")).await;
            old = new;
        }
    }

    async fn without_an_overlap_the_old_secret_ends_at_once(setup: Setup) {
        let scene = Scene::new(setup).await;
        let new = scene.rotate(json!({"overlap_hours": 0})).await;
        scene.is_signed_by(&[&new], "at once").await;
        assert_ne!(new, scene.secret());
    }

    async fn a_second_rotation_ends_the_first_overlap(setup: Setup) {
        let scene = Scene::new(setup).await;
        let second = scene.rotate(json!({"overlap_hours": 168})).await;
        let third = scene.rotate(json!({"overlap_hours": 2})).await;
        scene.is_signed_by(&[&second, &third], "the first has ended").await;
        scene.server.advance(2 * HOUR_MS);
        scene.is_signed_by(&[&third], "so has the second").await;
        let fourth = scene.rotate(json!({"overlap_hours": 168})).await;
        let fifth = scene.rotate(json!({"overlap_hours": 0})).await;
        scene.is_signed_by(&[&fifth], "none is left").await;
        assert_ne!(fourth, fifth);
    }

    async fn what_waits_is_signed_with_what_is_in_force_when_it_is_sent(setup: Setup) {
        let scene = Scene::new(setup).await;
        let test = json!({"action": "test", "webhook_id": scene.hook["id"]});
        scene.server.post(DELIVERIES).cookie(&scene.acme.admin).json(&test).await.is(202);
        let new = scene.rotate(json!({"overlap_hours": 0})).await;
        scene.server.advance(HOUR_MS);
        scene.server.sender.run_due().await.unwrap();
        let got = scene.receiver.received().pop().expect("a delivery");
        assert_eq!(got.headers["webhook-signature"], sign(&new, &got));
        assert_eq!(got.headers["webhook-timestamp"], (scene.server.now().as_millis() / 1_000).to_string());
    }
}

/// The case with one header made another.
fn with_header(case: &Case, name: &str, change: impl FnOnce(&str) -> String) -> Case {
    let mut changed = case.clone();
    let value = change(&case.headers[name]);
    assert_ne!(value, case.headers[name]);
    changed.headers.insert(name.to_owned(), value);
    changed
}

/// The text with the character at this place made another.
fn altered(text: &str, at: usize) -> String {
    let other = if &text[at..=at] == "A" { "B" } else { "A" };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

/// Everything that differs from a good case in one place.
fn forgeries(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    for at in [0, 10, case.body.len() / 2, case.body.len() - 1] {
        all.push(Case { body: altered(&case.body, at), ..case.clone() });
    }
    all.push(Case { body: format!("{} ", case.body), ..case.clone() });
    all.push(with_header(case, "webhook-id", |id| altered(id, id.len() - 1)));
    for seconds in [-1, 1] {
        let moved = |text: &str| (text.parse::<i64>().unwrap() + seconds).to_string();
        all.push(with_header(case, "webhook-timestamp", moved));
    }
    // Some place in every signature that there is.
    let start = "v1,".len();
    let alter_each = |all: &str| all.split(' ').map(|one| altered(one, start + 5)).collect::<Vec<_>>().join(" ");
    all.push(with_header(case, "webhook-signature", alter_each));
    all.push(with_header(case, "webhook-signature", |all| all.replace("v1,", "v2,")));
    all.push(Case { secret: format!("whsec_{}", BASE64.encode([7; 32])), ..case.clone() });
    all
}

/// The packages know no clock but the real one, so the server's is put there. What they say does not depend on the
/// engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_packages_that_receivers_use_accept_what_is_sent_and_nothing_else() {
    let server = open(Setup::sqlite().await).await;
    server.advance(Env::default().now().as_millis() - server.now().as_millis());
    let scene = Scene::on(server).await;
    let one_secret = Case::of(&scene.secret(), &scene.deliver().await);
    let new = scene.rotate(json!({})).await;
    let both = scene.deliver().await;
    let (by_old, by_new) = (Case::of(&scene.secret(), &both), Case::of(&new, &both));
    let newest = scene.rotate(json!({"overlap_hours": 0})).await;
    let last = scene.deliver().await;

    let good = [one_secret.clone(), by_old, by_new.clone(), Case::of(&newest, &last)];
    let mut bad = [forgeries(&one_secret), forgeries(&by_new)].concat();
    // A secret that no longer signs, and the parts of two deliveries put together.
    bad.extend([Case::of(&scene.secret(), &last), Case::of(&new, &last)]);
    bad.push(Case { body: by_new.body.clone(), ..one_secret.clone() });
    let verdicts = verify(&[&good[..], &bad].concat());
    for (case, verdict) in good.iter().zip(&verdicts) {
        assert_eq!(*verdict, Verdicts::ACCEPTED, "{case:?}");
    }
    for (case, verdict) in bad.iter().zip(&verdicts[good.len()..]) {
        assert_eq!(*verdict, Verdicts::REFUSED, "{case:?}");
    }
}

/// The places are part of what is stored: they can never be others.
#[test]
fn what_an_earlier_release_has_sealed_opens() {
    let world = Env::default();
    let secrets = Secrets::parse(&Secrets::generate_text(&world.random).unwrap()).unwrap();
    let (tenant, webhook) = (TenantId::new(&world), WebhookId::new(&world));
    let columns: [(&str, &SealedColumn<Webhook>); 2] =
        [("webhook_secrets", &SEALED_SECRETS), ("webhooks", &SEALED_HEADERS)];
    for (table, column) in columns {
        let (tenant_text, record) = (tenant.to_string(), webhook.to_string());
        let binding = SealBinding { tenant: &tenant_text, table, record: &record, version: 2 };
        let stored = SealedValue::from(secrets.seal_value(&world.random, binding, b"value").unwrap());
        assert_eq!(column.cell_for(tenant, webhook, 2).open(&secrets, &stored).unwrap(), b"value");
    }
}
