//! `/api/admin/users`: what a user looks like, and what making one takes.
//!
//! Who may do what to whom is in `rights`, what must hold however many ask at once in `races`, how somebody's sessions end in
//! `ends`, what is told of it in `told`, how they are found in `lists`, and what signing on makes of them in `sign_on`.

mod ends;
mod lists;
mod races;
mod rights;
mod sign_on;
mod told;

use kernel::auth::{Role, create_session};
use kernel::base::{HOUR_MS, UserId};
use serde_json::{Value, json};
use tenant_control::features::users::{NewUser, find_user};

use crate::support::people::SESSION;
use crate::support::{Answer, Server, Tenancy, over_http};

pub const USERS: &str = "/api/admin/users";

fn id_of(user: &Value) -> &str {
    user["id"].as_str().expect("an id")
}

fn one(user: &Value) -> String {
    format!("{USERS}?id={}", id_of(user))
}

fn input(email: &str, role: &str) -> Value {
    json!({"email": email, "name": "Ann", "role": role})
}

/// What PUT takes to leave a user as they are, with this one field set to another value.
fn but(user: &Value, field: &str, value: impl Into<Value>) -> Value {
    let mut body = json!({"email": user["email"], "name": user["name"], "role": user["role"]});
    body[field] = value.into();
    body
}

async fn make(server: &Server, tenancy: &Tenancy, email: &str, role: &str) -> Value {
    server.post(USERS).cookie(&tenancy.admin).json(&input(email, role)).await.ok(201)
}

async fn read(server: &Server, cookie: &str, user: &Value) -> Value {
    server.get(one(user)).cookie(cookie).await.ok(200)
}

async fn put(server: &Server, cookie: &str, user: &Value, body: &Value) -> Answer {
    server.put(one(user)).cookie(cookie).json(body).await
}

/// The user behind the cookie of an admin.
async fn me(server: &Server, cookie: &str) -> Value {
    let actor = server.get(SESSION).cookie(cookie).await.ok(200)["actor"].clone();
    read(server, cookie, &actor).await
}

/// The cookie of a new session.
async fn sign_in(server: &Server, tenancy: &Tenancy, user: &Value) -> String {
    let id: UserId = id_of(user).parse().expect("an id");
    let made = create_session(&server.app.store, tenancy.tenant.id, id, HOUR_MS).await;
    let (token, _) = made.expect("a session");
    format!("{}={}", server.app.settings.base_url.cookie_name(), token.expose_secret())
}

/// The cookie of somebody who is a platform operator besides.
async fn operator(server: &Server, tenancy: &Tenancy) -> String {
    let email = "operator@acme.test".to_owned();
    let new = NewUser { email, name: Some("Op".to_owned()), role: Role::Admin, platform_operator: true };
    server.session(&tenancy.tenant, new).await
}

over_http! {
    async fn a_user_is_made_with_every_documented_field(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"email": " Ann@Acme.TEST ", "name": " Ann ", "role": "technician"});
        let answer = server.post(USERS).cookie(&acme.admin).json(&body).await;
        let made = answer.ok(201);
        let now = server.now().to_string();
        let wanted = json!({
            "id": made["id"], "email": "ann@acme.test", "name": "Ann", "role": "technician", "status": "active",
            "platform_operator": false, "last_signed_in_at": null, "identities": [], "version": 1,
            "created_at": now, "updated_at": now,
        });
        assert_eq!(made, wanted);
        assert!(id_of(&made).starts_with("usr_"), "{made}");
        assert_eq!((answer.header("location"), answer.header("etag")), (one(&made).as_str(), "\"1\""));
        assert_eq!(read(&server, &acme.admin, &made).await, made);
    }

    async fn a_user_is_replaced_and_the_status_stays_unless_it_is_given(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, "ann@acme.test", "viewer").await;
        server.advance(1_000);
        let body = json!({"email": "Anna@acme.test", "name": "Anna", "role": "admin"});
        let answer = put(&server, &acme.admin, &made, &body).await;
        let changed = answer.ok(200);
        assert_eq!(
            (&changed["email"], &changed["name"], &changed["role"], &changed["status"]),
            (&json!("anna@acme.test"), &json!("Anna"), &json!("admin"), &json!("active"))
        );
        assert_eq!((&changed["version"], answer.header("etag")), (&json!(2), "\"2\""));
        assert_eq!(changed["updated_at"], server.now().to_string());
        assert_eq!(changed["created_at"], made["created_at"]);
        server.advance(1_000);
        assert_eq!(put(&server, &acme.admin, &made, &body).await.ok(200), changed, "nothing changed");
        server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        let renamed = put(&server, &acme.admin, &made, &but(&changed, "name", "Ann")).await.ok(200);
        assert_eq!((&renamed["name"], &renamed["status"]), (&json!("Ann"), &json!("disabled")));
        let enabled = put(&server, &acme.admin, &made, &but(&renamed, "status", "active")).await.ok(200);
        assert_eq!((&enabled["status"], &enabled["version"]), (&json!("active"), &json!(5)));
    }

    async fn every_bad_field_is_named(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, "ann@acme.test", "viewer").await;
        let bad = json!({"email": "x", "name": " ", "role": "boss", "status": "gone", "platform_operator": true});
        let all = ["/email", "/name", "/role", "/status", "/platform_operator"];
        let read_only = json!({"email": "b@acme.test", "name": "B", "role": "viewer", "identities": [], "version": 1});
        for answer in [
            server.post(USERS).cookie(&acme.admin).json(&bad).await,
            put(&server, &acme.admin, &made, &bad).await,
        ] {
            assert_eq!(answer.pointers(), all);
        }
        let missing = server.post(USERS).cookie(&acme.admin).json(&json!({})).await;
        assert_eq!(missing.pointers(), ["/email", "/name", "/role"]);
        let refused = server.post(USERS).cookie(&acme.admin).json(&read_only).await;
        let mut pointers = refused.pointers();
        pointers.sort_unstable();
        assert_eq!(pointers, ["/identities", "/version"]);
        for (field, value) in [
            ("email", json!(null)),
            ("email", json!(format!("{}@acme.test", "a".repeat(245)))),
            ("email", json!("a b@acme.test")),
            ("email", json!("a@b..c")),
            ("email", json!("a@b.")),
            ("email", json!("a@-b.c")),
            ("email", json!("a@b c")),
            ("email", json!("a\u{202e}b@acme.test")),
            ("email", json!("a\u{200b}@acme.test")),
            ("name", json!("x".repeat(201))),
            ("name", json!("\u{200b}\u{3164}")),
            ("name", json!("Ad\u{200b}min")),
            ("name", json!("Ann\u{202e}nnA")),
            ("role", json!("Admin")),
            ("status", json!(null)),
        ] {
            let answer = server.post(USERS).cookie(&acme.admin).json(&but(&made, field, value)).await;
            assert_eq!(answer.pointers(), [format!("/{field}")]);
        }
    }

    async fn an_address_belongs_to_one_user_also_when_they_are_disabled(server: Server) {
        let acme = server.tenant("acme").await;
        let ann = make(&server, &acme, "ann@acme.test", "viewer").await;
        let bob = make(&server, &acme, "bob@acme.test", "viewer").await;
        for disabled in [false, true] {
            if disabled {
                server.delete(one(&ann)).cookie(&acme.admin).await.is(204);
            }
            let again = server.post(USERS).cookie(&acme.admin).json(&input("ANN@acme.test", "viewer")).await;
            again.problem("conflict");
            put(&server, &acme.admin, &bob, &but(&bob, "email", "Ann@acme.test")).await.problem("conflict");
        }
        assert_eq!(read(&server, &acme.admin, &bob).await, bob);
        // A sign that Unicode calls a large k is none: it makes no second owner of an address, and finds nobody.
        let ken = make(&server, &acme, "ken@acme.test", "viewer").await;
        for look_alike in ["\u{212a}en@acme.test", "\u{212a}EN@ACME.test"] {
            let again = server.post(USERS).cookie(&acme.admin).json(&input(look_alike, "viewer")).await;
            assert_eq!(again.pointers(), ["/email"]);
            let found = find_user(&server.app.store, &acme.tenant, look_alike).await;
            assert_eq!(found.expect("an answer"), None);
        }
        let found = find_user(&server.app.store, &acme.tenant, "KEN@acme.test").await.expect("an answer");
        assert_eq!(found.map(|user| user.id.to_string()).as_deref(), Some(id_of(&ken)));
        // In another tenant it is free, and one's own can be written in another case.
        let globex = server.tenant("globex").await;
        make(&server, &globex, "ann@acme.test", "viewer").await;
        assert_eq!(put(&server, &acme.admin, &bob, &but(&bob, "email", "BOB@acme.test")).await.ok(200), bob);
    }

    async fn a_user_can_be_made_disabled_and_a_repeated_request_makes_no_second(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"email": "ann@acme.test", "name": "Ann", "role": "viewer", "status": "disabled"});
        let call = || server.post(USERS).cookie(&acme.admin).idempotency_key("once").json(&body);
        let made = call().await.ok(201);
        assert_eq!(made["status"], "disabled");
        let again = call().await;
        assert_eq!((again.ok(201), again.header("idempotency-replayed")), (made, "true"));
    }
}
