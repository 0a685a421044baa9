//! Ingest keys over HTTP: whom they let in, for what, and nowhere else. The route here is the test's own.

use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::auth::{Tenant, open_as_operator};
use kernel::base::{Actor, Code, Result};
use kernel::http::{Api, CredentialHolder, RatePolicy, Raw, RawAnswer, Rules};
use kernel::rules;
use serde_json::json;
use tenant_control::features::ingest_keys::credential::IngestCredential;
use tenant_control::features::ingest_keys::{self, LIVE_KEYS_MAX};
use tenant_control::features::organizations::{self, Organization};

use crate::support::call::Call;
use crate::support::people::{AUDIT, KEYS, SESSION};
use crate::support::{Server, Setup, over_http};
use crate::tickets::TICKETS;

const REPORT: &str = "/internal/test/ingest";
const CHALLENGE: &str = "Basic realm=\"ingest\", charset=\"UTF-8\"";

rules! {
    Reporting = Rules::new(RatePolicy::Ingest, &[]).media_types(&["text/plain"]);
}

/// Answers with the organization that the key is bound to.
async fn report(agent: CredentialHolder<IngestCredential, Reporting>, body: Raw) -> Result<RawAnswer> {
    body.read_body().await?;
    let reach = *agent.reach();
    agent
        .db()
        .write(async move |tx| {
            tx.tick().await?;
            ingest_keys::confirm_ingest_key(tx, reach.key_id).await?;
            audit::record_entry(tx, NewAuditEntry::new("test.report", "report", reach.key_id)).await
        })
        .await?;
    let organization = reach.organization_id.map(|id| id.to_string()).unwrap_or_default();
    Ok(RawAnswer { media_type: "text/plain", bytes: organization.into_bytes() })
}

/// Guessing is charged to the address, of which a test has one.
async fn start(mut setup: Setup) -> Server {
    setup.settings.rate_table.set(RatePolicy::Public, 1_000);
    setup.mount = |api: Api| api.add_internal_route(Method::POST, REPORT, report);
    setup.start().await
}

/// A key's id and its secret.
struct Pair {
    id: String,
    secret: String,
}

async fn make(server: &Server, tenant: &Tenant, organization: Option<&Organization>) -> Pair {
    let db = open_as_operator(&server.app.store, tenant);
    let made = ingest_keys::create_ingest_key(&db, organization, &server.app.secrets).await.expect("a key");
    Pair { id: made.record.id.to_string(), secret: made.secret.reveal() }
}

async fn revoke(server: &Server, tenant: &Tenant, id: &str) -> Result<ingest_keys::IngestKey> {
    ingest_keys::revoke_ingest_key(&open_as_operator(&server.app.store, tenant), id.parse().unwrap()).await
}

fn basic(id: &str, secret: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{id}:{secret}")))
}

fn sent<'a>(server: &'a Server, id: &str, secret: &str) -> Call<'a> {
    plain(server).header("authorization", basic(id, secret))
}

fn plain(server: &Server) -> Call<'_> {
    server.post(REPORT).header("content-type", "text/plain").body("report")
}

over_http! {
    async fn a_key_reports_for_its_tenant_and_its_organization(setup: Setup) {
        let server = start(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let customer = organizations::create_named_organization(&open_as_operator(&server.app.store, &acme.tenant), "Customer", "customer").await;
        let customer = customer.expect("an organization");
        let (all, bound) = (make(&server, &acme.tenant, None).await, make(&server, &acme.tenant, Some(&customer)).await);
        assert_eq!(sent(&server, &all.id, &all.secret).await.is(200).body, b"");
        assert_eq!(sent(&server, &bound.id, &bound.secret).await.is(200).body, customer.id.to_string().as_bytes());

        let trail = format!("{AUDIT}?action=test.report&actor_id={}", all.id);
        let entries = server.get(&trail).cookie(&acme.admin).await.ok(200);
        let [entry] = entries["data"].as_array().unwrap().as_slice() else { panic!("{entries}") };
        let name = format!("Ingest key {}", all.id);
        assert_eq!(entry["actor"], json!({"type": "system", "id": all.id, "name": name}));
        assert_eq!(entry["address"], "127.0.0.1");
        let others = server.get(format!("{AUDIT}?action=test.report")).cookie(&globex.admin).await.ok(200);
        assert_eq!(others["data"], json!([]));
    }

    async fn what_is_no_ingest_key_is_refused(setup: Setup) {
        let server = start(setup).await;
        let acme = server.tenant("acme").await;
        let (one, other) = (make(&server, &acme.tenant, None).await, make(&server, &acme.tenant, None).await);
        let key = server.key(&acme, &["*"]).await.plain;
        let last = if one.secret.ends_with('x') { "y" } else { "x" };
        let guess = format!("{}{last}", &one.secret[..39]);
        let refused = [
            plain(&server),
            plain(&server).header("authorization", "Basic"),
            plain(&server).header("authorization", format!("Basic {}:{}", one.id, one.secret)),
            sent(&server, &one.id, &guess),
            sent(&server, &one.id, &other.secret),
            sent(&server, "ing_01jd8z6v2mfkpb7h3q9xw5t4ra", &one.secret),
            plain(&server).key(&key),
            plain(&server).key(&one.secret),
            plain(&server).header("x-api-key", &key),
            plain(&server).cookie(&acme.admin),
        ];
        for call in refused {
            let answer = call.await;
            answer.problem("unauthenticated");
            assert_eq!(answer.header("www-authenticate"), CHALLENGE);
        }
        sent(&server, &one.id, &one.secret).header("x-api-key", &key).await.problem("ambiguous_credentials");
        sent(&server, &one.id, &one.secret).cookie(&acme.admin).await.problem("ambiguous_credentials");
        let twice = sent(&server, &one.id, &one.secret).header("authorization", basic(&other.id, &other.secret));
        twice.await.problem("ambiguous_credentials");
        sent(&server, &one.id, &one.secret).await.is(200);
    }

    async fn a_key_opens_nothing_but_ingest(setup: Setup) {
        let server = start(setup).await;
        let acme = server.tenant("acme").await;
        let Pair { id, secret } = make(&server, &acme.tenant, None).await;
        for path in [KEYS, SESSION, TICKETS, AUDIT] {
            let header = basic(&id, &secret);
            for call in [server.get(path).header("authorization", header), server.get(path).key(&secret)] {
                let answer = call.await;
                answer.problem("unauthenticated");
                assert_eq!(answer.header("www-authenticate"), "Bearer");
            }
            server.get(path).header("x-api-key", &secret).await.problem("unauthenticated");
        }
        sent(&server, &id, &secret).await.is(200);
    }

    async fn a_revoked_key_is_refused_at_once_on_every_node(setup: Setup) {
        let server = start(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let kept = make(&server, &acme.tenant, None).await;
        server.advance(1);
        let gone = make(&server, &acme.tenant, None).await;
        let other = server.second_node().await;
        for node in [&server, &other] {
            sent(node, &gone.id, &gone.secret).await.is(200);
        }
        let missing = revoke(&server, &globex.tenant, &gone.id).await.expect_err("another tenant's");
        assert_eq!(missing.code(), Code::NotFound);
        sent(&server, &gone.id, &gone.secret).await.is(200);

        let revoked = revoke(&server, &acme.tenant, &gone.id).await.expect("revoked");
        for node in [&server, &other] {
            assert_eq!(sent(node, &gone.id, &gone.secret).await.status, 401);
            sent(node, &kept.id, &kept.secret).await.is(200);
        }
        // One whose body was on its way when it was revoked.
        let key_id = revoked.id;
        let db = open_as_operator(&server.app.store, &acme.tenant);
        let write = db.write(async move |tx| {
            tx.tick().await?;
            ingest_keys::confirm_ingest_key(tx, key_id).await
        });
        assert_eq!(write.await.expect_err("revoked").code(), Code::Unauthenticated);

        server.advance(60_000);
        let again = revoke(&server, &acme.tenant, &gone.id).await.expect("still revoked");
        assert_eq!(again.revoked_at, revoked.revoked_at);
        for (action, count) in [("ingest_key.create", 2), ("ingest_key.revoke", 1)] {
            let trail = server.get(format!("{AUDIT}?action={action}")).cookie(&acme.admin).await.ok(200);
            assert_eq!(trail["data"].as_array().map(Vec::len), Some(count), "{trail}");
            assert_eq!(trail["data"][0]["actor"]["type"], "operator");
        }
        let all = ingest_keys::list_ingest_keys(&open_as_operator(&server.app.store, &acme.tenant)).await.unwrap();
        let shown: Vec<_> = all.iter().map(|key| (key.id.to_string(), key.revoked_at.is_some())).collect();
        assert_eq!(shown, [(kept.id, false), (gone.id, true)]);
        assert!(ingest_keys::list_ingest_keys(&open_as_operator(&server.app.store, &globex.tenant)).await.unwrap().is_empty());
    }

    async fn a_tenant_has_a_thousand_live_keys_at_most(setup: Setup) {
        let server = start(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let first = make(&server, &acme.tenant, None).await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let more = format!(
            "INSERT INTO ingest_keys (tenant_id, id, secret_hash, last_four, created_by_type, created_by_name, created_at)
            WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < {LIVE_KEYS_MAX})
            SELECT $1, 'ing_' || n, $2, '1234', 'operator', 'operator', 1 FROM numbers"
        );
        let made = db.write(async move |tx| tx.exec(&more, args![[0_u8; 32].as_slice()]).await).await;
        assert_eq!(made.unwrap(), 999);
        let create = async |tenant| ingest_keys::create_ingest_key(&open_as_operator(&server.app.store, tenant), None, &server.app.secrets).await;
        let full = create(&acme.tenant).await.err().expect("no room");
        assert_eq!(full.code(), Code::LimitReached);
        assert!(full.detail().contains("at most 1000 ingest keys"), "{}", full.detail());
        create(&globex.tenant).await.map(drop).expect("another tenant has room");
        revoke(&server, &acme.tenant, &first.id).await.expect("revoked");
        create(&acme.tenant).await.map(drop).expect("one place is free");
        assert!(create(&acme.tenant).await.is_err());
    }
}
