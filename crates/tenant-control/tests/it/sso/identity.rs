//! Who somebody is: the provider's subject, and an e-mail address only the first time and only if it is theirs.

use kernel::auth::create_signin_link;
use kernel::base::MINUTE_MS;
use serde_json::{Value, json};
use tenant_control::features::sso::{ProviderChange, ProviderId};
use tenant_control::features::users::{User, find_user, unlink_user};

use super::{
    Flow, Scene, Told, USERS, add, assert_turned_away, begin, finish, provide, reason, scene, scene_with, session_of,
    update,
};
use crate::support::idp::{CLIENT_SECRET, Idp, USERINFO, person};
use crate::support::over_http;
use crate::support::people::SESSION;

/// A user whom an admin has made.
async fn make(scene: &Scene, email: &str, role: &str) -> Value {
    let body = json!({"email": email, "name": "By hand", "role": role});
    scene.server.post(USERS).cookie(&scene.acme.admin).json(&body).await.ok(201)
}

/// Somebody of whose e-mail address the provider says this.
fn says(email: &Value, verified: &Value) -> Value {
    let mut claims = json!({"sub": "subject-1", "name": "Ann Acme"});
    for (name, value) in [("email", email), ("email_verified", verified)] {
        if !value.is_null() {
            claims[name] = value.clone();
        }
    }
    claims
}

async fn find(scene: &Scene, email: &str) -> User {
    let found = find_user(&scene.server.app.store, &scene.acme.tenant, email).await;
    found.expect("an answer").expect("a user")
}

/// Forgets who a user is at every provider, or at this one, as the command line does. Tells whether there was anything to forget.
async fn unlink(scene: &Scene, email: &str, provider: Option<&str>) -> bool {
    let (store, tenant) = (&scene.server.app.store, &scene.acme.tenant);
    let provider = provider.map(|id| id.parse::<ProviderId>().expect("an id"));
    let unlinked = unlink_user(store, tenant, find(scene, email).await.id, provider).await;
    // The command is another process, of which the server knows after half a second.
    scene.server.app.credentials.invalidate_tenant(tenant.id);
    unlinked.expect("it is unlinked").is_some()
}

over_http! {
    async fn a_user_without_identity_is_linked_by_verified_email(setup: Setup) {
        let scene = scene(setup).await;
        let made = make(&scene, "ann@acme.test", "technician").await;
        let users = scene.users().await.len();
        let told = scene.session(&scene.signed_on().await).await;
        assert_eq!(told["actor"]["id"], made["id"]);
        assert_eq!(scene.users().await.len(), users);
        let user = scene.user("ann@acme.test").await;
        assert_eq!(user["identities"], json!([{"provider": scene.provider, "subject": "subject-1"}]));
        assert_eq!((&user["name"], &user["role"]), (&json!("By hand"), &json!("viewer")));
    }

    async fn who_has_another_identity_is_refused(setup: Setup) {
        let scene = scene(setup).await;
        let first = scene.signed_on().await;
        scene.idp.person(person("subject-2", "ann@acme.test"));
        scene.refuses("another subject with the same address", scene.sign_on()).await;
        scene.server.get(SESSION).cookie(&first).await.is(200);

        // Nor by another provider of the same tenant.
        let second = Idp::start(&scene.server.app.env.clock).await;
        second.person(person("subject-1", "ann@acme.test"));
        provide(&scene.server, &scene.acme, Told::of(&second, "other.test")).await;
        let users = scene.users().await;
        let flow = Flow::of(&begin(&scene.server, "other.test").await);
        let back = second.approve(&flow.url).await;
        assert_turned_away(&finish(&scene.server, &flow, &back).await, "another provider");
        assert_eq!(scene.users().await, users);
    }

    async fn who_is_unlinked_is_linked_anew_by_the_next_sign_on(setup: Setup) {
        let scene = scene(setup).await;
        let old = scene.signed_on().await;
        let ann = scene.user("ann@acme.test").await;
        scene.idp.person(person("subject-2", "ann@acme.test"));
        scene.refuses("an account made anew at the provider", scene.sign_on()).await;
        assert_eq!(reason(&scene.trail("sso.refused").await[0]), "other_identity");
        let id = find(&scene, "ann@acme.test").await.id;
        let link = create_signin_link(&scene.server.app.store, scene.acme.tenant.id, id).await.expect("a link");
        scene.server.get(SESSION).cookie(&old).await.is(200);

        scene.server.advance(MINUTE_MS);
        assert!(unlink(&scene, "ann@acme.test", None).await);
        scene.server.get(SESSION).cookie(&old).await.problem("unauthenticated");
        scene.server.get(format!("/signin?token={}", link.expose_secret())).await.is(410);
        let unlinked = scene.user("ann@acme.test").await;
        assert_eq!((&unlinked["identities"], &unlinked["version"]), (&json!([]), &json!(2)));
        assert_eq!(unlinked["updated_at"], scene.server.now().to_string());

        scene.server.advance(MINUTE_MS);
        let told = scene.session(&scene.signed_on().await).await;
        assert_eq!(told["actor"]["id"], ann["id"]);
        let linked = json!([{"provider": scene.provider, "subject": "subject-2"}]);
        assert_eq!(scene.user("ann@acme.test").await["identities"], linked);

        let unlinking = json!({"identities": {"from": ann["identities"], "to": []}});
        let linking = json!({"identities": {"from": [], "to": linked}});
        let entries = scene.trail("user.update").await;
        let changes: Vec<&Value> = entries.iter().map(|entry| &entry["changes"]).collect();
        assert_eq!(changes, [&linking, &unlinking], "newest first");
        assert_eq!(entries[1]["actor"], json!({"type": "operator", "id": null, "name": "operator"}));
        assert_eq!(entries[1]["target"], json!({"type": "user", "id": ann["id"]}));
        let events = scene.server.events_of(&scene.acme, "user.updated").await;
        let changes: Vec<&Value> = events.iter().map(|event| &event["data"]["changes"]).collect();
        assert_eq!(changes, [&unlinking, &linking], "oldest first");

        scene.idp.person(person("subject-1", "ann@acme.test"));
        scene.refuses("who the user was before", scene.sign_on()).await;
        assert_eq!(reason(&scene.trail("sso.refused").await[0]), "other_identity");
    }

    async fn where_there_is_nothing_to_unlink_nothing_changes(setup: Setup) {
        let scene = scene(setup).await;
        let ann = scene.signed_on().await;
        make(&scene, "bob@acme.test", "viewer").await;
        let second = Idp::start(&scene.server.app.env.clock).await;
        let other = provide(&scene.server, &scene.acme, Told::of(&second, "other.test")).await;
        let users = scene.users().await;
        scene.server.advance(MINUTE_MS);
        for (email, provider) in [("ann@acme.test", Some(other.as_str())), ("bob@acme.test", None)] {
            assert!(!unlink(&scene, email, provider).await, "{email}");
        }
        assert_eq!(scene.users().await, users);
        scene.server.get(SESSION).cookie(&ann).await.is(200);
        assert!(scene.trail("user.update").await.is_empty());
        assert_eq!(scene.server.kinds_of(&scene.acme, "user.").await, ["user.created"; 2]);

        // At the one where they are somebody, there is.
        assert!(unlink(&scene, "ann@acme.test", Some(&scene.provider)).await);
        scene.server.get(SESSION).cookie(&ann).await.problem("unauthenticated");
        assert_eq!(scene.user("ann@acme.test").await["identities"], json!([]));
    }

    async fn the_next_secret_of_a_provider_keeps_everybody_known(setup: Setup) {
        let scene = scene(setup).await;
        let ann = scene.session(&scene.signed_on().await).await;
        let set = async |secret: &str| {
            let client_secret = Some((secret.to_owned(), scene.server.app.secrets.clone()));
            let change = ProviderChange { client_secret, ..ProviderChange::default() };
            update(&scene.server, &scene.acme, &scene.provider, change).await.expect("a provider")
        };
        set("of another time").await;
        scene.refuses("a secret that the provider does not know", scene.sign_on()).await;
        set(CLIENT_SECRET).await;
        assert_eq!(scene.session(&scene.signed_on().await).await["actor"], ann["actor"]);
        set(CLIENT_SECRET).await;
        let entries = scene.trail("sso.update").await;
        assert_eq!(entries.len(), 2, "the same secret again is no change");
        for entry in entries {
            assert_eq!(entry["changes"], json!({"client_secret": {"from": null, "to": "(new)"}}));
        }
    }

    async fn letters_that_look_alike_are_nobody_elses(setup: Setup) {
        let scene = scene(setup).await;
        make(&scene, "ken@acme.test", "admin").await;
        // The sign of a kelvin is a small k to Unicode.
        scene.idp.person(person("subject-9", "\u{212a}en@acme.test"));
        scene.refuses("a letter that looks like another", scene.sign_on()).await;
        assert_eq!(scene.user("ken@acme.test").await["identities"], json!([]));
    }

    async fn an_address_is_the_same_however_it_is_spelled(setup: Setup) {
        let scene = scene(setup).await;
        let made = make(&scene, "jos\u{e9}@acme.test", "viewer").await;
        for (at, spelled) in ["JOSE\u{301}@acme.test", "Jos\u{c9}@ACME.test"].into_iter().enumerate() {
            scene.idp.person(person("subject-1", spelled));
            let told = scene.session(&scene.signed_on().await).await;
            assert_eq!((&told["actor"]["id"], &told["actor"]["email"]), (&made["id"], &made["email"]), "{at}");
        }
    }

    async fn subjects_of_two_providers_are_two_people(setup: Setup) {
        let scene = scene(setup).await;
        let ann = scene.session(&scene.signed_on().await).await;
        let second = Idp::start(&scene.server.app.env.clock).await;
        second.person(person("subject-1", "bob@other.test"));
        provide(&scene.server, &scene.acme, Told::of(&second, "other.test")).await;
        let flow = Flow::of(&begin(&scene.server, "other.test").await);
        let back = second.approve(&flow.url).await;
        let bob = session_of(finish(&scene.server, &flow, &back).await.is(303)).expect("a session");
        assert_ne!(scene.session(&bob).await["actor"]["id"], ann["actor"]["id"]);
    }

    async fn a_disabled_user_is_refused_and_stays_disabled(setup: Setup) {
        let scene = scene(setup).await;
        let cookie = scene.signed_on().await;
        let id = scene.user("ann@acme.test").await["id"].as_str().unwrap().to_owned();
        scene.server.delete(format!("{USERS}?id={id}")).cookie(&scene.acme.admin).await.is(204);
        scene.refuses("a disabled user", scene.sign_on()).await;
        scene.server.get(SESSION).cookie(&cookie).await.problem("unauthenticated");
        assert_eq!(scene.user("ann@acme.test").await["status"], "disabled");

        // One who never signed on before is not let in by the address either.
        let made = make(&scene, "bob@acme.test", "viewer").await;
        let id = made["id"].as_str().unwrap();
        scene.server.delete(format!("{USERS}?id={id}")).cookie(&scene.acme.admin).await.is(204);
        scene.idp.person(person("subject-2", "bob@acme.test"));
        scene.refuses("a disabled user without identity", scene.sign_on()).await;
    }

    async fn a_new_address_at_the_provider_is_the_same_user(setup: Setup) {
        let scene = scene(setup).await;
        let before = scene.session(&scene.signed_on().await).await;
        scene.idp.person(person("subject-1", "anna@acme.test"));
        let after = scene.session(&scene.signed_on().await).await;
        assert_eq!(after["actor"]["id"], before["actor"]["id"]);
        assert_eq!(after["actor"]["email"], "anna@acme.test");
        assert_eq!(scene.user("anna@acme.test").await["id"], before["actor"]["id"]);
        assert!(scene.users().await.iter().all(|user| user["email"] != "ann@acme.test"));
    }

    async fn an_address_that_somebody_else_has_gives_nothing_of_theirs(setup: Setup) {
        let scene = scene(setup).await;
        let ann = scene.session(&scene.signed_on().await).await;
        let bob = make(&scene, "bob@acme.test", "admin").await;
        scene.idp.person(person("subject-1", "bob@acme.test"));
        let told = scene.session(&scene.signed_on().await).await;
        assert_eq!((&told["actor"]["id"], &told["role"]), (&ann["actor"]["id"], &json!("viewer")));
        assert_eq!(told["actor"]["email"], "ann@acme.test");
        assert_eq!(scene.user("bob@acme.test").await["identities"], json!([]));
        assert_eq!(scene.user("bob@acme.test").await["version"], bob["version"]);
    }

    async fn an_address_counts_only_if_it_is_verified_and_of_the_tenant(setup: Setup) {
        let scene = scene(setup).await;
        let globex = scene.server.tenant("globex").await;
        provide(&scene.server, &globex, Told::of(&scene.idp, "globex.test")).await;
        add(&scene.server, &scene.acme, Told::of(&scene.idp, "claimed.test")).await;
        for (email, verified) in [
            (json!(null), json!(true)),
            (json!(null), json!(null)),
            (json!("ann@acme.test"), json!(null)),
            (json!("ann@acme.test"), json!(false)),
            (json!("ann@acme.test"), json!("false")),
            (json!("ann@acme.test"), json!(0)),
            (json!(""), json!(true)),
            (json!("acme.test"), json!(true)),
            (json!("@acme.test"), json!(true)),
            (json!(["ann@acme.test"]), json!(true)),
            (json!("ann@evil.test"), json!(true)),
            (json!("ann@globex.test"), json!(true)),
            (json!("ann@claimed.test"), json!(true)),
            (json!("ann@sub.acme.test"), json!(true)),
            (json!("ann@notacme.test"), json!(true)),
            (json!("ann@acme.test.evil.test"), json!(true)),
            (json!("ann@acme.test@evil.test"), json!(true)),
            (json!("ann@evil.test@acme.test"), json!(true)),
            (json!("ann\n@acme.test"), json!(true)),
            (json!("ann\u{0}@acme.test"), json!(true)),
            (json!("ann@acme.test\u{0}.evil.test"), json!(true)),
            (json!("ann@acme.te\u{455}t"), json!(true)),
        ] {
            scene.idp.person(says(&email, &verified));
            scene.refuses(&format!("{email} {verified}"), scene.sign_on()).await;
        }
    }

    async fn the_operator_may_trust_a_provider_with_addresses_but_not_with_domains(setup: Setup) {
        let scene = scene_with(setup, |told| told.trust_email = true).await;
        for verified in [json!(null), json!(false)] {
            scene.idp.person(says(&json!("ann@acme.test"), &verified));
            scene.signed_on().await;
        }
        scene.idp.person(says(&json!("ann@evil.test"), &json!(null)));
        scene.refuses("a foreign domain", scene.sign_on()).await;
    }

    async fn userinfo_of_somebody_else_is_not_believed(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.tell_in_token(&[]);
        for subject in [json!("subject-2"), json!(""), json!(null), json!(1)] {
            let told = subject.clone();
            scene.idp.alter(USERINFO, move |claims| claims["sub"] = told.clone());
            scene.refuses(&format!("userinfo of {subject}"), scene.sign_on()).await;
        }
        scene.idp.alter(USERINFO, |claims| drop(claims.as_object_mut().map(|claims| claims.remove("sub"))));
        scene.refuses("userinfo of nobody", scene.sign_on()).await;
    }
}
