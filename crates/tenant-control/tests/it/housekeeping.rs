//! What is too old to matter is removed, and nothing else.

use kernel::auth::{Role, create_signin_link};
use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};
use kernel::store::Purpose;
use serde_json::json;
use tenant_control::features;
use tenant_control::features::users::find_user;

use crate::support::clouds::{one_provider, open};
use crate::support::people::{AUDIT, KEYS, SESSION};
use crate::support::{Server, Tenancy, over_http};

async fn clean(server: &Server) {
    kernel::jobs::delete_expired(&server.app, &features::install().retention).await.expect("cleaning");
}

async fn count(server: &Server, sql: &'static str) -> i64 {
    server.app.store.system(Purpose::Cli).get_one(sql, kernel::args![]).await.expect("a count")
}

const SESSIONS: &str = "SELECT COUNT(*) FROM sessions";
const LINKS: &str = "SELECT COUNT(*) FROM signin_links";
const SECRETS: &str = "SELECT COUNT(*) FROM api_key_secrets";
const ANSWERS: &str = "SELECT COUNT(*) FROM idempotency_records";
const ENTRIES: &str = "SELECT COUNT(*) FROM audit_entries";

/// The same tenant with an admin who has just signed in.
async fn signed_in(server: &Server, tenancy: &Tenancy) -> Tenancy {
    Tenancy { tenant: tenancy.tenant.clone(), admin: server.user(&tenancy.tenant, Role::Admin).await }
}

over_http! {
    async fn audit_entries_are_kept_for_400_days(server: Server) {
        let acme = server.tenant("acme").await;
        server.key(&acme, &["*"]).await;
        let all = count(&server, ENTRIES).await;
        server.advance(400 * DAY_MS);
        clean(&server).await;
        assert_eq!(count(&server, ENTRIES).await, all, "to the millisecond");
        server.advance(1);
        clean(&server).await;
        assert_eq!(count(&server, ENTRIES).await, 0);
        let acme = signed_in(&server, &acme).await;
        let left = server.get(AUDIT).cookie(&acme.admin).await.ok(200);
        assert_eq!(left["data"].as_array().unwrap().len(), 2, "the new user and session");
    }

    async fn deleted_providers_are_removed_after_the_last_of_their_machines(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, stub) = (server.tenant("acme").await, &clouds.hetzner);
        stub.add("acme", "made-elsewhere");
        let deleted = server.connect(&acme, stub, "acme").await;
        server.order(&acme, stub, &deleted).await;
        server.cloud_work_for(MINUTE_MS).await;
        let rows = async || {
            let tables = ["SELECT COUNT(*) FROM cloud_providers", "SELECT COUNT(*) FROM vms", "SELECT COUNT(*) FROM vm_operations"];
            [count(&server, tables[0]).await, count(&server, tables[1]).await, count(&server, tables[2]).await]
        };
        server.delete(format!("{}&force=true", one_provider(&deleted))).cookie(&acme.admin).await.is(204);
        let kept = server.connect(&acme, stub, "acme").await;
        server.advance(90 * DAY_MS);
        clean(&server).await;
        assert_eq!(rows().await, [2, 4, 1], "readers of changes may still ask");
        server.advance(1);
        clean(&server).await;
        assert_eq!(rows().await, [1, 2, 0]);
        assert_eq!(server.list_vms(&acme, &format!("provider_id={}", kept["id"].as_str().unwrap())).await.len(), 2);
    }

    async fn how_long_they_are_kept_is_a_setting(setup: Setup) {
        let mut setup = setup;
        setup.settings.audit_retention_ms = DAY_MS;
        let server = setup.start().await;
        server.tenant("acme").await;
        server.advance(DAY_MS + 1);
        clean(&server).await;
        assert_eq!(count(&server, ENTRIES).await, 0);
    }

    async fn more_than_one_step_is_taken_where_needed(server: Server) {
        let acme = server.tenant("acme").await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, kernel::base::Actor::for_system());
        db.write(async |tx| {
            for _ in 0..1_200 {
                kernel::audit::record_entry(tx, kernel::audit::NewAuditEntry::new("test.deed", "test", "x")).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
        assert!(count(&server, ENTRIES).await > 1_200);
        server.advance(401 * DAY_MS);
        clean(&server).await;
        assert_eq!(count(&server, ENTRIES).await, 0);
    }

    async fn an_ended_session_is_forgotten_a_day_later(server: Server) {
        let acme = server.tenant("acme").await;
        server.advance(12 * HOUR_MS);
        clean(&server).await;
        server.get(SESSION).cookie(&acme.admin).await.problem("session_expired");
        assert_eq!(count(&server, SESSIONS).await, 1);
        server.advance(2 * DAY_MS);
        let other = server.user(&acme.tenant, Role::Viewer).await;
        clean(&server).await;
        assert_eq!(count(&server, SESSIONS).await, 1, "only the one that ended");
        server.app.credentials.invalidate_tenant(acme.tenant.id);
        server.get(SESSION).cookie(&acme.admin).await.problem("unauthenticated");
        server.get(SESSION).cookie(&other).await.is(200);
    }

    async fn a_session_in_use_is_not_cleaned(setup: Setup) {
        let mut setup = setup;
        setup.settings.session_absolute_ms = 30 * DAY_MS;
        setup.settings.session_idle_ms = HOUR_MS;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let idle = server.user(&acme.tenant, Role::Viewer).await;
        for _ in 0..60 {
            server.advance(50 * MINUTE_MS);
            server.get(SESSION).cookie(&acme.admin).await.is(200);
            kernel::jobs::save_last_uses(&server.app).await.unwrap();
        }
        clean(&server).await;
        assert_eq!(count(&server, SESSIONS).await, 1);
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        server.app.credentials.invalidate_tenant(acme.tenant.id);
        server.get(SESSION).cookie(&idle).await.problem("unauthenticated");
    }

    async fn links_answers_and_overlaps_go_when_their_time_is_over(server: Server) {
        let acme = server.tenant("acme").await;
        let email =
            server.get(SESSION).cookie(&acme.admin).await.ok(200)["actor"]["email"].as_str().unwrap().to_owned();
        let user = find_user(&server.app.store, &acme.tenant, &email).await.unwrap().unwrap();
        create_signin_link(&server.app.store, acme.tenant.id, user.id).await.unwrap();
        let body = json!({"name": "Key", "scopes": ["*"]});
        let made = server.post(KEYS).cookie(&acme.admin).idempotency_key("once").json(&body).await.ok(201);
        let one = format!("{KEYS}?id={}", made["id"].as_str().unwrap());
        server.put(one).cookie(&acme.admin).json(&json!({"rotate": {"overlap_hours": 48}})).await.is(200);
        for (hours, links, answers, secrets) in
            [(0, 1, 1, 2), (1, 0, 1, 2), (24, 0, 0, 2), (24, 0, 0, 1), (24 * 365, 0, 0, 1)]
        {
            server.advance(hours * HOUR_MS);
            clean(&server).await;
            let found = (count(&server, LINKS).await, count(&server, ANSWERS).await, count(&server, SECRETS).await);
            assert_eq!(found, (links, answers, secrets), "after {hours} hours more");
        }
    }
}
