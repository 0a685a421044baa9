//! `/api/auth/session`: who is calling, by which credential, and for how long.

mod credentials;
mod csrf;
mod signin;

use kernel::auth::{Role, create_session, create_signin_link};
use kernel::base::{Code, HOUR_MS, MINUTE_MS};
use kernel::http::{BaseUrl, RatePolicy};
use kernel::store::{DatabaseEngine, Purpose, Store};
use serde_json::{Value, json};
use tenant_control::features::users::{NewUser, UserUpdate, delete_user, find_user, update_user};

use crate::support::people::{KEYS, SESSION};
use crate::support::process::until;
use crate::support::{Server, Tenancy, over_http};

/// A new user with this e-mail address, and their cookie.
async fn user(server: &Server, tenancy: &Tenancy, email: &str, role: Role, platform_operator: bool) -> String {
    let new = NewUser { email: email.to_owned(), name: Some("Someone".to_owned()), role, platform_operator };
    server.session(&tenancy.tenant, new).await
}

/// Changes a user as the operator does at the command line.
async fn change(server: &Server, tenancy: &Tenancy, email: &str, change: UserUpdate) {
    let user = find_user(&server.app.store, &tenancy.tenant, email).await.unwrap().expect("the user");
    update_user(&server.app.store, &tenancy.tenant, user.id, change).await.unwrap();
    // The command line is another process: on PostgreSQL this one may remember for half a second.
    server.app.credentials.invalidate_tenant(tenancy.tenant.id);
}

over_http! {
    async fn a_cookie_is_told_who_it_stands_for(server: Server) {
        let acme = server.tenant("acme").await;
        let cookie = user(&server, &acme, "Ann@Acme.test", Role::Technician, false).await;
        let answer = server.get(SESSION).cookie(&cookie).await;
        let mut session = answer.ok(200);
        let id = session["actor"]["id"].take();
        assert!(id.as_str().unwrap().starts_with("usr_"), "{id}");
        let wanted = json!({
            "tenant": {"id": acme.tenant.id.to_string(), "slug": "acme", "name": "ACME"},
            "actor": {"type": "user", "id": null, "name": "Someone", "email": "ann@acme.test"},
            "role": "technician",
            "platform_operator": false,
            "scopes": ["organizations:*", "users:read", "tickets:*", "workflows:*", "search:read", "inventory:read", "cloud:read", "backup:read", "analytics:read"],
            "expires_at": server.now().plus_ms(90 * MINUTE_MS).to_string(),
        });
        assert_eq!(session, wanted);
        assert_eq!(answer.header("cache-control"), "no-store");
    }

    async fn a_key_is_told_who_it_stands_for(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["audit:read", "cloud:*"]).await;
        let wanted = json!({
            "tenant": {"id": acme.tenant.id.to_string(), "slug": "acme", "name": "ACME"},
            "actor": {"type": "api_key", "id": key.id, "name": "Key", "email": null},
            "role": null,
            "platform_operator": null,
            "scopes": ["audit:read", "cloud:*"],
            "expires_at": key.record["expires_at"],
        });
        assert_eq!(server.get(SESSION).key(&key.plain).await.ok(200), wanted);
    }

    async fn each_role_holds_its_scopes_and_an_operator_the_platform_besides(server: Server) {
        let acme = server.tenant("acme").await;
        let reads = [
            "organizations:read",
            "tickets:read",
            "workflows:read",
            "search:read",
            "inventory:read",
            "cloud:read",
            "backup:read",
            "analytics:read",
        ];
        let daily = [
            "organizations:*",
            "users:read",
            "tickets:*",
            "workflows:*",
            "search:read",
            "inventory:read",
            "cloud:read",
            "backup:read",
            "analytics:read",
        ];
        for (role, scopes) in
            [(Role::Admin, vec!["*"]), (Role::Technician, daily.to_vec()), (Role::Viewer, reads.to_vec())]
        {
            for platform_operator in [false, true] {
                let email = format!("{}{platform_operator}@acme.test", role.as_str());
                let cookie = user(&server, &acme, &email, role, platform_operator).await;
                let session = server.get(SESSION).cookie(&cookie).await.ok(200);
                let mut wanted = scopes.clone();
                wanted.extend(platform_operator.then_some("platform:read"));
                assert_eq!(session["scopes"], json!(wanted), "{email}");
                assert_eq!(
                    (&session["role"], &session["platform_operator"]),
                    (&json!(role.as_str()), &json!(platform_operator))
                );
            }
        }
    }

    async fn a_change_of_role_is_in_force_in_open_sessions(server: Server) {
        let acme = server.tenant("acme").await;
        let cookie = user(&server, &acme, "ann@acme.test", Role::Viewer, false).await;
        server.get(KEYS).cookie(&cookie).await.problem("insufficient_scope");
        change(
            &server,
            &acme,
            "ann@acme.test",
            UserUpdate { role: Some(Role::Admin), platform_operator: Some(true), ..UserUpdate::default() },
        )
        .await;
        server.get(KEYS).cookie(&cookie).await.is(200);
        assert_eq!(server.get(SESSION).cookie(&cookie).await.ok(200)["scopes"], json!(["*", "platform:read"]));
        change(
            &server,
            &acme,
            "ann@acme.test",
            UserUpdate { role: Some(Role::Viewer), platform_operator: Some(false), ..UserUpdate::default() },
        )
        .await;
        server.get(KEYS).cookie(&cookie).await.problem("insufficient_scope");
    }

    async fn of_changes_of_a_user_at_the_same_time_none_is_lost(server: Server) {
        let acme = server.tenant("acme").await;
        user(&server, &acme, "ann@acme.test", Role::Admin, false).await;
        let (store, tenant) = (&server.app.store, &acme.tenant);
        let ann = find_user(store, tenant, "ann@acme.test").await.unwrap().unwrap().id;
        // Turns are of a node: with another one both changes are in the database at once.
        let other = server.second_node().await;
        for (role, platform_operator) in [(Role::Viewer, true), (Role::Technician, false), (Role::Admin, true)] {
            let held = server.hold_writes(tenant.id).await;
            let of_role = UserUpdate { role: Some(role), ..UserUpdate::default() };
            let of_operator = UserUpdate { platform_operator: Some(platform_operator), ..UserUpdate::default() };
            let let_go = async {
                // On SQLite both wait for the writer as soon as they are asked for.
                if store.engine() == DatabaseEngine::Postgres {
                    waiting(store, 2).await;
                }
                drop(held);
            };
            let (one, two, ()) = tokio::join!(
                update_user(store, tenant, ann, of_role),
                update_user(&other.app.store, tenant, ann, of_operator),
                let_go
            );
            let told = [one.unwrap(), two.unwrap()].map(|user| (user.role, user.platform_operator));
            assert!(told.contains(&(role, platform_operator)), "the later one tells of both: {told:?}");
            let now = find_user(store, tenant, "ann@acme.test").await.unwrap().unwrap();
            assert_eq!((now.role, now.platform_operator), (role, platform_operator));
        }
    }

    async fn a_session_ends_after_90_minutes_without_use(server: Server) {
        let acme = server.tenant("acme").await;
        for _ in 0..3 {
            server.advance(90 * MINUTE_MS - 1);
            let session = server.get(SESSION).cookie(&acme.admin).await.ok(200);
            assert_eq!(
                session["expires_at"],
                server.now().plus_ms(90 * MINUTE_MS).to_string(),
                "every use starts them again"
            );
        }
        server.advance(90 * MINUTE_MS);
        server.get(SESSION).cookie(&acme.admin).await.problem("session_expired");
        // Being refused is no use.
        server.get(SESSION).cookie(&acme.admin).await.problem("session_expired");
    }

    async fn a_use_that_was_written_down_still_counts(server: Server) {
        let acme = server.tenant("acme").await;
        server.advance(89 * MINUTE_MS);
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        kernel::jobs::save_last_uses(&server.app).await.unwrap();
        server.advance(89 * MINUTE_MS);
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        let restarted = server.second_node().await;
        kernel::jobs::save_last_uses(&server.app).await.unwrap();
        server.advance(89 * MINUTE_MS);
        restarted.get(SESSION).cookie(&acme.admin).await.is(200);
    }

    async fn a_session_ends_after_12_hours_however_busy(server: Server) {
        let acme = server.tenant("acme").await;
        for _ in 0..11 {
            server.advance(HOUR_MS);
            server.get(SESSION).cookie(&acme.admin).await.is(200);
        }
        let session = server.get(SESSION).cookie(&acme.admin).await.ok(200);
        assert_eq!(session["expires_at"], server.now().plus_ms(HOUR_MS).to_string(), "the nearer of the two ends");
        server.advance(HOUR_MS - 1);
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        server.advance(1);
        server.get(SESSION).cookie(&acme.admin).await.problem("session_expired");
    }

    async fn both_limits_are_settings(setup: Setup) {
        let mut setup = setup;
        setup.settings.session_idle_ms = 5 * MINUTE_MS;
        setup.settings.session_absolute_ms = 8 * MINUTE_MS;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let idle = server.user(&acme.tenant, Role::Viewer).await;
        server.advance(4 * MINUTE_MS);
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        server.advance(MINUTE_MS);
        server.get(SESSION).cookie(&idle).await.problem("session_expired");
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        server.advance(3 * MINUTE_MS);
        server.get(SESSION).cookie(&acme.admin).await.problem("session_expired");
    }

    async fn signing_out_ends_this_session_and_no_other(server: Server) {
        let acme = server.tenant("acme").await;
        let cookie = user(&server, &acme, "ann@acme.test", Role::Viewer, false).await;
        let ann = find_user(&server.app.store, &acme.tenant, "ann@acme.test").await.unwrap().unwrap();
        let (token, _) = create_session(&server.app.store, acme.tenant.id, ann.id, HOUR_MS).await.unwrap();
        let elsewhere = format!("session={}", token.expose_secret());
        server.get(SESSION).cookie(&cookie).await.is(200);
        let answer = server.delete(SESSION).cookie(&cookie).await;
        assert!(answer.is(204).body.is_empty());
        assert_eq!(answer.header("set-cookie"), "session=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0");
        for _ in 0..2 {
            server.get(SESSION).cookie(&cookie).await.problem("unauthenticated");
        }
        server.delete(SESSION).cookie(&cookie).await.problem("unauthenticated");
        server.get(SESSION).cookie(&elsewhere).await.is(200);
    }

    async fn a_key_cannot_sign_out(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        server.delete(SESSION).key(&key.plain).await.problem("insufficient_scope");
        server.get(SESSION).key(&key.plain).await.is(200);
    }

    async fn by_https_the_cookie_has_another_name(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://tc.acme.test").unwrap();
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let token = acme.admin.strip_prefix("__Host-session=").expect("the name that browsers protect").to_owned();
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        server.get(SESSION).cookie(&format!("session={token}")).await.problem("unauthenticated");
        let answer = server.delete(SESSION).cookie(&acme.admin).await;
        assert_eq!(answer.header("set-cookie"), "__Host-session=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0; Secure");
        assert!(!answer.header("strict-transport-security").is_empty());
    }
}

/// Waits until so many statements of this database wait for a lock.
async fn waiting(store: &Store, count: i64) {
    let sql = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let db = store.system(Purpose::Cli);
    let look = async || (db.get_one::<i64>(sql, kernel::args![]).await.unwrap() == count).then_some(());
    until("statements wait for a lock", std::time::Duration::from_secs(30), look).await;
}

/// A row that refers to a user locks the user, and whoever disables the user holds the tenant's clock: so the clock is first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn signing_in_and_disabling_the_user_never_wait_for_each_other() {
    let server = Server::postgres().await;
    let acme = server.tenant("acme").await;
    for (link, email) in [(false, "ann@acme.test"), (true, "bob@acme.test")] {
        user(&server, &acme, email, Role::Viewer, false).await;
        let ann = find_user(&server.app.store, &acme.tenant, email).await.unwrap().unwrap();
        // Turns are of a node: with another one all three are in the database at once.
        let other = server.second_node().await;
        let held = server.hold_writes(acme.tenant.id).await;
        let (store, tenant, id) = (server.app.store.clone(), acme.tenant.clone(), ann.id);
        let disabling = tokio::spawn(async move { delete_user(&store, &tenant, &ann).await });
        waiting(&server.app.store, 1).await;
        let (store, tenant) = (other.app.store.clone(), acme.tenant.id);
        let signing_in = tokio::spawn(async move {
            if link {
                return create_signin_link(&store, tenant, id).await.map(drop);
            }
            create_session(&store, tenant, id, HOUR_MS).await.map(drop)
        });
        waiting(&server.app.store, 2).await;
        drop(held);
        disabling.await.unwrap().unwrap();
        // Whoever was first: nobody has waited for the other in a circle, and the user is signed in by nothing.
        if let Err(refused) = signing_in.await.unwrap() {
            assert_eq!(refused.code(), Code::NotFound, "{refused}");
        }
        for table in ["sessions", "signin_links"] {
            let left = format!("SELECT COUNT(*) FROM {table} WHERE user_id = $1");
            let left: i64 = server.app.store.system(Purpose::Cli).get_one(&left, kernel::args![id]).await.unwrap();
            assert_eq!(left, 0, "{table}");
        }
    }
}
