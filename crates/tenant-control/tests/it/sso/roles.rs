//! Which role somebody has: what the provider says of them this time decides, and nothing else.

use kernel::auth::{Role, create_session};
use kernel::base::HOUR_MS;
use serde_json::{Value, json};
use tenant_control::features::sso::ProviderChange;

use super::{Flow, Scene, Told, USERS, begin, provide, reason, scene_with, update};
use crate::support::idp::{DISCOVERY, Idp, person};
use crate::support::people::{KEYS, SESSION};
use crate::support::{Setup, over_http};

const ROLES: &[(&str, &str, Role)] = &[
    ("groups", "ops", Role::Technician),
    ("groups", "root", Role::Admin),
    ("department", "IT", Role::Technician),
    ("realm_access.roles", "boss", Role::Admin),
];

async fn mapped(setup: Setup) -> Scene {
    scene_with(setup, |told| told.role_map = ROLES).await
}

/// Ann, of whom the provider also says this.
fn ann(claims: &Value) -> Value {
    let mut ann = person("subject-1", "ann@acme.test");
    for (name, value) in claims.as_object().expect("claims") {
        ann[name] = value.clone();
    }
    ann
}

over_http! {
    async fn the_highest_of_those_that_fit_is_taken_anew_each_time(setup: Setup) {
        let scene = mapped(setup).await;
        for (claims, role) in [
            (json!({}), "viewer"),
            (json!({"groups": ["ops"]}), "technician"),
            (json!({"groups": ["ops", "root"]}), "admin"),
            (json!({"groups": []}), "viewer"),
            (json!({"groups": ["root", "ops", "others"]}), "admin"),
            (json!({"groups": "ops"}), "technician"),
            (json!({"groups": "ops root"}), "viewer"),
            (json!({"groups": ["oops", "ops "]}), "viewer"),
            (json!({"groups": {"ops": true}}), "viewer"),
            (json!({"department": "IT"}), "technician"),
            (json!({"department": "IT", "groups": ["root"]}), "admin"),
            (json!({"realm_access": {"roles": ["boss"]}}), "admin"),
            (json!({"realm_access": "boss"}), "viewer"),
            (json!({"realm_access.roles": ["boss"]}), "admin"),
            (json!({"role": "admin", "roles": ["admin"]}), "viewer"),
        ] {
            scene.idp.person(ann(&claims));
            let told = scene.session(&scene.signed_on().await).await;
            assert_eq!(told["role"], role, "{claims}");
            assert_eq!(scene.user("ann@acme.test").await["role"], role, "{claims}");
        }
    }

    async fn what_a_rule_looks_at_is_asked_for_where_that_is_possible(setup: Setup) {
        let scene = mapped(setup).await;
        let wanted = ["openid", "email", "groups", "department.id", "realm_access", "address", "gro ups"];
        scene.idp.alter(DISCOVERY, move |document| document["scopes_supported"] = json!(wanted));
        assert_eq!(scene.begin().await.asks("scope"), "openid email profile groups realm_access");
        // A provider that lists nothing is asked for nothing else, nor is one without rules.
        for (domain, scopes, rules) in [("plain.test", json!(null), ROLES), ("bare.test", json!(["groups"]), &[])] {
            let idp = Idp::start(&scene.server.app.env.clock).await;
            idp.alter(DISCOVERY, move |document| document["scopes_supported"] = scopes.clone());
            provide(&scene.server, &scene.acme, Told { role_map: rules, ..Told::of(&idp, domain) }).await;
            assert_eq!(Flow::of(&begin(&scene.server, domain).await).asks("scope"), "openid email profile", "{domain}");
        }
    }

    async fn userinfo_tells_of_groups_too(setup: Setup) {
        let scene = mapped(setup).await;
        scene.idp.tell_in_token(&["email", "email_verified", "name"]);
        scene.idp.person(ann(&json!({"groups": ["ops"]})));
        assert_eq!(scene.session(&scene.signed_on().await).await["role"], "technician");
        // What the token has only a part of, too.
        scene.idp.person(ann(&json!({"realm_access": {"roles": ["boss"]}})));
        scene.idp.spoil(|token| token.claims["realm_access"] = json!({"other": 1}));
        assert_eq!(scene.session(&scene.signed_on().await).await["role"], "admin");
    }

    async fn older_sessions_have_the_role_of_the_last_time(setup: Setup) {
        let scene = mapped(setup).await;
        scene.idp.person(ann(&json!({"groups": ["root"]})));
        let older = scene.signed_on().await;
        scene.server.get(KEYS).cookie(&older).await.is(200);
        scene.idp.person(ann(&json!({})));
        scene.signed_on().await;
        scene.server.get(KEYS).cookie(&older).await.problem("insufficient_scope");
        assert_eq!(scene.session(&older).await["role"], "viewer");
    }

    async fn without_a_default_role_whoever_no_rule_fits_is_refused(setup: Setup) {
        let scene = scene_with(setup, |told| (told.default_role, told.role_map) = (None, ROLES)).await;
        scene.idp.person(ann(&json!({"groups": ["others"]})));
        scene.refuses("nobody yet", scene.sign_on()).await;
        assert_eq!(reason(&scene.trail("sso.refused").await[0]), "no_role");
        // A user whom an admin has made is not even linked.
        let body = json!({"email": "ann@acme.test", "name": "Ann", "role": "admin"});
        scene.server.post(USERS).cookie(&scene.acme.admin).json(&body).await.is(201);
        scene.refuses("a user without an identity", scene.sign_on()).await;

        scene.idp.person(ann(&json!({"groups": ["ops"]})));
        let session = scene.signed_on().await;
        assert_eq!(scene.session(&session).await["role"], "technician");
        let id = scene.session(&session).await["actor"]["id"].as_str().unwrap().parse().unwrap();
        let made = create_session(&scene.server.app.store, scene.acme.tenant.id, id, HOUR_MS).await.expect("a session");
        let of_operator = format!("session={}", made.0.expose_secret());
        // Who has lost every role is refused, and what the provider has begun is over; the operator's word still counts.
        scene.idp.person(ann(&json!({"groups": []})));
        scene.refuses("a user who has lost every role", scene.sign_on()).await;
        scene.server.get(SESSION).cookie(&session).await.problem("unauthenticated");
        assert_eq!(scene.session(&of_operator).await["role"], "technician");

        scene.idp.person(ann(&json!({"groups": ["root"]})));
        assert_eq!(scene.session(&scene.signed_on().await).await["role"], "admin");
        let change = ProviderChange { default_role: Some(Some(Role::Viewer)), ..ProviderChange::default() };
        let changed = update(&scene.server, &scene.acme, &scene.provider, change).await.expect("it is changed");
        assert_eq!(changed.default_role, Some(Role::Viewer));
        let told = &scene.trail("sso.update").await[0]["changes"]["default_role"];
        assert_eq!(*told, json!({"from": "none", "to": "viewer"}));
        scene.idp.person(ann(&json!({})));
        assert_eq!(scene.session(&scene.signed_on().await).await["role"], "viewer");
    }

    async fn nobody_signs_on_as_an_operator_of_the_platform(setup: Setup) {
        let scene = mapped(setup).await;
        scene.idp.person(ann(&json!({"groups": ["root"], "platform_operator": true, "role": "platform_operator"})));
        let told = scene.session(&scene.signed_on().await).await;
        assert_eq!((&told["role"], &told["platform_operator"]), (&json!("admin"), &json!(false)));
        assert_eq!(told["scopes"], json!(["*"]));
        assert_eq!(scene.user("ann@acme.test").await["platform_operator"], false);
    }
}
