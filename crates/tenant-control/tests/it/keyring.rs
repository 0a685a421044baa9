//! Sealing keys: replaced while the service runs, and nothing that was sealed is lost.

mod changes;
mod lost;
mod nodes;
mod retired;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel::auth::{Role, open_as_operator};
use kernel::base::{
    Actor, DAY_MS, FaultPoints, InjectedFault, KeyringChange, MINUTE_MS, RandomSource, Secrets, TenantId,
};
use kernel::keyring::SealedColumnStatements;
use kernel::keyring::rewrap::{RewrapReport, rewrap_values};
use kernel::keyring::status::{KeyringStatus, read_status};
use kernel::store::{Db, Purpose};
use serde_json::{Value, json};
use tenant_control::features;
use tenant_control::features::sso::{self, NewProvider, ProviderChange, ProviderId};
use tenant_control::features::webhooks::WebhookId;
use tenant_control::features::webhooks::store::SEALED_SECRETS;
use tenant_control::features::workflows::store::get_revision;

use crate::support::people::KEYS;
use crate::support::receiver::Receiver;
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::webhooks::{self, DELIVERIES, WEBHOOKS, endpoint};
use crate::workflows::{self, WORKFLOWS};

fn columns() -> &'static [SealedColumnStatements] {
    &features::install().sealed_columns
}

/// The text of a secrets file after a change.
fn change(text: &str, change: KeyringChange) -> String {
    Secrets::change_text(text, change, &RandomSource::System).unwrap()
}

/// A secrets file through a rotation from key 1 to key 2.
struct Rotation {
    first: String,
    added: String,
    rotated: String,
    removed: String,
}

impl Rotation {
    fn of(first: &str) -> Rotation {
        let added = change(first, KeyringChange::AddKey(2));
        let rotated = change(&added, KeyringChange::SetPrimary(2));
        let removed = change(&rotated, KeyringChange::RemoveKey(1));
        Rotation { first: first.to_owned(), added, rotated, removed }
    }
}

fn system(server: &Server) -> Db {
    server.app.store.system(Purpose::Cli)
}

/// What a running server does when its secrets file has changed.
fn adopt(server: &Server, text: &str) {
    server.app.secrets.adopt_keyring(&Secrets::parse(text).unwrap());
}

async fn rewrap(server: &Server) -> RewrapReport {
    rewrap_values(&system(server), &server.app.secrets, columns()).await.unwrap()
}

async fn status(server: &Server) -> KeyringStatus {
    read_status(&system(server), &server.app.secrets.keyring(), columns()).await.unwrap()
}

/// How many values each key has sealed, by column.
async fn usage(server: &Server) -> BTreeMap<u32, BTreeMap<&'static str, i64>> {
    status(server).await.keys.into_iter().map(|key| (key.id, key.values)).collect()
}

fn id_of(record: &Value) -> &str {
    record["id"].as_str().expect("an id")
}

const SECRET: &str = "hide-this";

/// A tenant with one sealed value of each column that is rewrapped.
struct Scene {
    server: Server,
    acme: Tenancy,
    receiver: Receiver,
    hook: Value,
    workflow: Value,
    provider: ProviderId,
    rotation: Rotation,
}

/// The values of a [`Scene`] that are rewrapped.
const VALUES: u64 = 4;

impl Scene {
    async fn new(setup: Setup) -> Scene {
        let rotation = Rotation::of(&setup.secrets);
        let server = webhooks::open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let body = json!({"name": "Hook", "url": receiver.url("/hook"), "events": ["ticket.*"], "headers": {"X-Token": SECRET}});
        let hook = server.post(WEBHOOKS).cookie(&acme.admin).json(&body).await.ok(201);
        let with = json!({"method": "POST", "url": "https://api.example.org/", "headers": {"X-Token": SECRET}});
        let steps = json!([{"id": "call", "uses": "http.request", "with": with}]);
        let workflow = workflows::create(&server, &acme, &workflows::manual(steps)).await.ok(201);
        let new = NewProvider {
            name: "Acme ID".to_owned(),
            issuer: "https://id.acme.test".to_owned(),
            client_id: "client".to_owned(),
            client_secret: SECRET.to_owned(),
            scope: None,
            domains: vec!["acme.test".to_owned()],
            default_role: Some(Role::Viewer),
            role_map: Vec::new(),
            trust_email: false,
            sign_out_at_provider: false,
        };
        let operator = open_as_operator(&server.app.store, &acme.tenant);
        let provider = sso::add_provider(&operator, new, &server.app.secrets).await.expect("a provider").id;
        Scene { server, acme, receiver, hook, workflow, provider, rotation }
    }

    /// Asserts that a node opens every value.
    async fn opens_on(&self, node: &Server, when: &str) {
        let test = json!({"action": "test", "webhook_id": self.hook["id"]});
        node.post(DELIVERIES).cookie(&self.acme.admin).json(&test).await.is(202);
        node.sender.run_due().await.unwrap();
        let received = self.receiver.received().pop().unwrap_or_else(|| panic!("nothing was delivered {when}"));
        assert_eq!(received.headers.get("x-token").map(String::as_str), Some(SECRET), "{when}");
        assert!(received.headers["webhook-signature"].starts_with("v1,"), "{when}");
        let db = node.app.store.tenant_for_test(self.acme.tenant.id, Actor::for_system());
        let id = id_of(&self.workflow).parse().unwrap();
        let revision = get_revision(&db, &node.app.secrets, id, 1).await.unwrap();
        assert_eq!(revision.definition.steps[0].with["headers"]["X-Token"], SECRET, "{when}");
        // The same secret is no change, if the stored one opens.
        let secret = Some((SECRET.to_owned(), node.app.secrets.clone()));
        let same = ProviderChange { client_secret: secret, ..ProviderChange::default() };
        let operator = open_as_operator(&node.app.store, &self.acme.tenant);
        assert_eq!(sso::update_provider(&operator, self.provider, same).await.unwrap().version, 1, "{when}");
    }

    /// The records as their readers see them.
    async fn records(&self) -> [Value; 2] {
        let one = |path: &str, record: &Value| format!("{path}?id={}", id_of(record));
        let get = async |target: String| self.server.get(target).cookie(&self.acme.admin).await.ok(200);
        [get(one(WEBHOOKS, &self.hook)).await, get(one(WORKFLOWS, &self.workflow)).await]
    }
}

over_http! {
    async fn values_sealed_before_stay_readable_through_a_whole_rotation(setup: Setup) {
        let scene = Scene::new(setup).await;
        let server = &scene.server;
        adopt(server, &scene.rotation.added);
        scene.opens_on(server, "with a second key").await;
        assert_eq!(rewrap(server).await, RewrapReport::default(), "the first one still seals");
        adopt(server, &scene.rotation.rotated);
        scene.opens_on(server, "before rewrapping").await;
        assert_eq!((status(server).await.left_to_rewrap, status(server).await.primary_id), (4, 2));
        server.advance(MINUTE_MS);
        let before = scene.records().await;
        let entries = "SELECT COUNT(*) FROM audit_entries";
        let count = async || system(server).get_one::<i64>(entries, kernel::args![]).await.unwrap();
        let entries_before = count().await;
        assert_eq!(rewrap(server).await, RewrapReport { rewrapped: VALUES, outrun: 0, failed: 0 });
        assert_eq!(rewrap(server).await, RewrapReport::default(), "all of them are done");
        assert_eq!((scene.records().await, count().await), (before, entries_before), "nothing has changed for anybody");
        scene.opens_on(server, "after rewrapping").await;
        server.advance(MINUTE_MS);
        assert_eq!(status(server).await.find_removal_obstacle(1), None);
        adopt(server, &scene.rotation.removed);
        scene.opens_on(server, "with the new key alone").await;
    }

    async fn what_a_key_has_sealed_is_counted_and_keeps_it(setup: Setup) {
        let scene = Scene::new(setup).await;
        let server = &scene.server;
        let body = json!({"name": "Key", "scopes": ["*"]});
        server.post(KEYS).cookie(&scene.acme.admin).idempotency_key("once").json(&body).await.is(201);
        let durable = [("sso_providers.client_secret", 1), ("webhook_secrets", 1), ("webhooks", 1), ("workflow_revisions.headers", 1)];
        let with_answer = BTreeMap::from_iter([&durable[..], &[("idempotency_records", 1)]].concat());
        assert_eq!(usage(server).await, BTreeMap::from([(1, with_answer)]));
        adopt(server, &scene.rotation.rotated);
        let counts = async || { let status = status(server).await; (status.left_to_rewrap, status.left_to_expire) };
        assert_eq!(counts().await, (4, 1));
        let obstacle = status(server).await.find_removal_obstacle(1).expect("it is used");
        assert!(obstacle.contains("webhook_secrets 1") && obstacle.contains("would be lost"), "{obstacle}");
        rewrap(server).await;
        assert_eq!(counts().await, (0, 1));
        assert_eq!(usage(server).await[&2], BTreeMap::from_iter(durable));
        let obstacle = status(server).await.find_removal_obstacle(1).expect("an answer is kept for a day");
        assert!(obstacle.contains("idempotency_records 1") && obstacle.contains("expire by themselves"), "{obstacle}");
        let again = server.post(KEYS).cookie(&scene.acme.admin).idempotency_key("once").json(&body).await;
        assert_eq!(again.ok(201)["name"], "Key", "it is replayed");
        assert!(status(server).await.find_removal_obstacle(2).expect("it seals").contains("is the primary"));
        server.advance(DAY_MS + 1);
        kernel::jobs::delete_expired(&server.app, &features::install().retention).await.unwrap();
        assert_eq!((counts().await, status(server).await.find_removal_obstacle(1)), ((0, 0), None));
    }

    async fn what_is_deleted_is_erased_and_needs_no_key(setup: Setup) {
        let scene = Scene::new(setup).await;
        let server = &scene.server;
        server.delete(format!("{WEBHOOKS}?id={}", id_of(&scene.hook))).cookie(&scene.acme.admin).await.is(204);
        adopt(server, &scene.rotation.rotated);
        assert_eq!(status(server).await.left_to_rewrap, 2);
        assert_eq!(rewrap(server).await, RewrapReport { rewrapped: 2, outrun: 0, failed: 0 });
    }

    async fn an_interrupted_pass_is_resumed(setup: Setup) {
        let passed = Arc::new(AtomicUsize::new(0));
        let faults = FaultPoints::new(move |point| {
            // The third value is the last that this process gets to, once.
            let stops = point == "rewrap.value.before" && passed.fetch_add(1, Ordering::Relaxed) == 2;
            if stops { InjectedFault::Error } else { InjectedFault::None }
        });
        let scene = Scene::new(setup.with_faults(faults)).await;
        adopt(&scene.server, &scene.rotation.rotated);
        let interrupted = rewrap_values(&system(&scene.server), &scene.server.app.secrets, columns()).await;
        assert!(interrupted.is_err());
        assert_eq!(status(&scene.server).await.left_to_rewrap, 2);
        scene.opens_on(&scene.server, "half-way").await;
        let other = scene.server.node_with_secrets(&scene.rotation.rotated).await;
        assert_eq!(rewrap(&other).await, RewrapReport { rewrapped: 2, outrun: 0, failed: 0 }, "another node goes on");
        scene.opens_on(&other, "in the end").await;
    }

    async fn a_concurrent_change_wins(setup: Setup) {
        let scene = Scene::new(setup).await;
        let cloud = json!({"name": "Cloud", "kind": "hetzner", "regions": ["fsn1"], "credentials": {"token": SECRET.repeat(4)}});
        let cloud = scene.server.post("/api/cloud/providers").cookie(&scene.acme.admin).json(&cloud).await.ok(201);
        let order = json!({"provider_id": cloud["id"], "name": "web", "region": "fsn1", "size": "cx22", "image": "debian-12",
            "user_data": SECRET});
        scene.server.post("/api/cloud/vms").cookie(&scene.acme.admin).json(&order).await.is(202);
        let db = system(&scene.server);
        for column in columns() {
            let statements = column.rewrap.expect("all of the features are rewrapped");
            let walk = async || {
                let mut rows: Vec<(String, String, i64, Vec<u8>)> =
                    db.list(statements.walk, kernel::args!["", "", 0_i64, 10_i64]).await.unwrap();
                rows.pop().expect("a value")
            };
            let replace = async |old: Vec<u8>| {
                let (tenant, record, version, _) = walk().await;
                let new = b"another value".to_vec();
                let write = db.write(async move |tx| {
                    tx.exec(statements.replace, kernel::args![tenant, record, version, old, new]).await
                });
                write.await.unwrap()
            };
            let (.., stored) = walk().await;
            assert_eq!(replace(b"what was read before".to_vec()).await, 0, "{}", column.name);
            assert_eq!(walk().await.3, stored, "{}: the change of another stays", column.name);
            assert_eq!(replace(stored).await, 1, "{}", column.name);
            assert_eq!(walk().await.3, b"another value", "{}", column.name);
        }
    }

    async fn a_rotation_under_load_loses_nothing(setup: Setup) {
        const HOOKS: usize = 25;
        let rotation = Rotation::of(&setup.secrets);
        let server = webhooks::open(setup).await;
        let tenants = [server.tenant("acme").await, server.tenant("globex").await];
        let create = async |tenancy: &Tenancy| {
            for _ in 0..HOOKS {
                endpoint(&server, tenancy, "https://hooks.example.com/in", &["ticket.*"]).await;
            }
        };
        let rotate = async || {
            for text in [&rotation.added, &rotation.rotated] {
                adopt(&server, text);
                for _ in 0..10 {
                    assert_eq!(rewrap(&server).await.failed, 0);
                }
            }
        };
        tokio::join!(create(&tenants[0]), create(&tenants[1]), rotate());
        adopt(&server, &rotation.rotated);
        rewrap(&server).await;
        assert_eq!(usage(&server).await[&1], BTreeMap::new());
        let sql = "SELECT tenant_id, webhook_id, number, secret FROM webhook_secrets ORDER BY tenant_id, webhook_id LIMIT 1000";
        let stored: Vec<(TenantId, WebhookId, i64, Vec<u8>)> = system(&server).list(sql, kernel::args![]).await.unwrap();
        assert_eq!(stored.len(), 2 * HOOKS);
        let alone = Secrets::parse(&rotation.removed).unwrap();
        for (tenant, webhook, number, sealed) in stored {
            let opened = SEALED_SECRETS.cell_for(tenant, webhook, number).open(&alone, &sealed.into()).unwrap();
            assert!(opened.starts_with(b"whsec_"));
        }
    }
}
