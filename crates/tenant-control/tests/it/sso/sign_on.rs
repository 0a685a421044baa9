//! The whole way of somebody who may sign on, and what they have then.

use jsonwebtoken::Algorithm;
use kernel::auth::Role;
use kernel::base::{MINUTE_MS, SECOND_MS};
use kernel::http::BaseUrl;
use serde_json::json;

use super::{
    CALLBACK, DOMAIN, Flow, PROVIDER_NAME, SSO, Scene, assert_turned_away, begin, finish, scene, session_of,
    set_cookies, target,
};
use crate::support::idp::{DISCOVERY, JWKS, Key, USERINFO, person};
use crate::support::people::{AUDIT, SESSION};
use crate::support::{Answer, over_http};

/// Both halves of a cookie that an answer sets: the pair, and what browsers are told to do with it.
fn cookie<'a>(answer: &'a Answer, name: &str) -> (&'a str, &'a str) {
    let all = set_cookies(answer);
    let found = all.iter().find(|cookie| cookie.starts_with(name)).copied();
    found.and_then(|cookie| cookie.split_once("; ")).unwrap_or_else(|| panic!("{name} is not in {all:?}"))
}

/// The keys that sign from now on, known to a server that has looked a while ago.
fn rotate(scene: &Scene, key: Key) {
    scene.server.advance(31 * SECOND_MS);
    scene.idp.keys(vec![key]);
}

over_http! {
    async fn somebody_new_is_made_and_signed_in(setup: Setup) {
        let scene = scene(setup).await;
        let answer = begin(&scene.server, DOMAIN).await;
        let begun = answer.ok(200);
        assert_eq!(begun["provider"], json!({"name": PROVIDER_NAME, "protocol": "oidc"}));
        assert_eq!(begun["expires_at"], scene.server.now().plus_ms(10 * MINUTE_MS).to_string());
        assert_eq!(answer.header("cache-control"), "no-store");
        let (pair, attributes) = cookie(&answer, "sso_flow_");
        assert_eq!(attributes.split("; ").count(), 4, "{attributes}");
        for attribute in ["Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=600"] {
            assert!(attributes.split("; ").any(|known| known == attribute), "{attribute} in {attributes}");
        }
        let flow = Flow::of(&answer);
        assert_eq!(flow.asks("redirect_uri"), format!("{}{CALLBACK}", scene.server.base_url()));
        let secret = pair.split_once('=').unwrap().1;
        assert!(!flow.url.contains(secret), "the provider never sees what the browser keeps");

        let back = scene.approve(&flow).await;
        let answer = finish(&scene.server, &flow, &back).await;
        assert_eq!(answer.is(303).header("location"), "/overview");
        assert_eq!((answer.header("cache-control"), answer.header("referrer-policy")), ("no-store", "no-referrer"));
        let (session, attributes) = cookie(&answer, "session=");
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax");
        assert!(cookie(&answer, "sso_flow_").1.contains("Max-Age=0"), "the flow is over");

        let told = scene.session(session).await;
        assert_eq!((&told["actor"]["email"], &told["role"]), (&json!("ann@acme.test"), &json!("viewer")));
        assert_eq!((&told["tenant"]["slug"], &told["platform_operator"]), (&json!("acme"), &json!(false)));
        let user = scene.user("ann@acme.test").await;
        assert_eq!(user["id"], told["actor"]["id"]);
        assert_eq!((&user["name"], &user["status"]), (&json!("Ann Acme"), &json!("active")));
        assert_eq!(user["identities"], json!([{"provider": scene.provider, "subject": "subject-1"}]));
        assert_eq!(user["last_signed_in_at"], scene.server.now().to_string());
        let entries = scene.trail("sso.sign_in").await;
        assert_eq!((entries.len(), &entries[0]["address"]), (1, &json!("127.0.0.1")), "{entries:?}");
        assert_eq!((&entries[0]["actor"]["id"], &entries[0]["target"]["id"]), (&json!(scene.provider), &user["id"]));
        let entries = scene.trail("session.create").await;
        let entry = entries.iter().find(|entry| entry["changes"]["user_id"]["to"] == user["id"]).expect("an entry");
        assert_eq!(entry["actor"], json!({"type": "user", "id": user["id"], "name": "Ann Acme"}), "the person acts");
        let named = json!({"user_id": {"from": null, "to": user["id"]}, "email": {"from": null, "to": "ann@acme.test"}});
        assert_eq!(entry["changes"], named);
        assert_eq!(scene.idp.authenticated_by(), ["client_secret_basic"]);
    }

    async fn the_next_time_it_is_the_same_user(setup: Setup) {
        let scene = scene(setup).await;
        let first = scene.session(&scene.signed_on().await).await;
        let users = scene.users().await.len();
        scene.server.advance(MINUTE_MS);
        let second = scene.session(&scene.signed_on().await).await;
        assert_eq!(second["actor"], first["actor"]);
        assert_eq!(scene.users().await.len(), users);
        assert_eq!(scene.user("ann@acme.test").await["last_signed_in_at"], scene.server.now().to_string());
    }

    async fn names_are_read_as_the_domain_system_reads_them(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.person(person("subject-1", "Ann@ACME.Test"));
        let flow = Flow::of(&begin(&scene.server, "Acme.TEST").await);
        let back = scene.approve(&flow).await;
        let session = session_of(finish(&scene.server, &flow, &back).await.is(303)).expect("a session");
        assert_eq!(scene.session(&session).await["actor"]["email"], "ann@acme.test");
    }

    async fn it_leads_to_where_it_was_asked_for(setup: Setup) {
        let scene = scene(setup).await;
        for path in ["/", "/overview?tab=keys&q=%2F%5C", "/a/../b#part", "/overview?next=https://acme.test/"] {
            let answer = scene.server.post(SSO).json(&json!({"domain": DOMAIN, "redirect_to": path})).await;
            let flow = Flow::of(&answer);
            let back = scene.approve(&flow).await;
            assert_eq!(finish(&scene.server, &flow, &back).await.is(303).header("location"), path);
        }
    }

    async fn what_the_token_does_not_say_userinfo_does(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.tell_in_token(&[]);
        let told = scene.session(&scene.signed_on().await).await;
        assert_eq!(told["actor"]["email"], "ann@acme.test");
        assert_eq!(scene.user("ann@acme.test").await["name"], "Ann Acme");
        assert_eq!(scene.idp.asked(USERINFO), 1);
    }

    async fn the_client_shows_who_it_is_as_the_provider_wants_it(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.alter(DISCOVERY, |document| {
            document["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
        });
        scene.signed_on().await;
        assert_eq!(scene.idp.authenticated_by(), ["client_secret_post"]);
    }

    async fn every_common_kind_of_signature_is_understood(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        for algorithm in [Algorithm::RS256, Algorithm::RS512, Algorithm::PS256] {
            rotate(&scene, Key::rsa(&format!("{algorithm:?}")).signing_by(algorithm));
            scene.signed_on().await;
        }
        // A key need not say what it is for.
        rotate(&scene, Key::ec("plain"));
        scene.idp.alter(JWKS, |keys| {
            let key = keys["keys"][0].as_object_mut().expect("a key");
            key.remove("alg");
            key.remove("use");
        });
        scene.signed_on().await;
    }

    async fn by_https_both_cookies_are_bound_to_the_host(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://tc.acme.test").unwrap();
        let scene = scene(setup).await;
        let answer = begin(&scene.server, DOMAIN).await;
        assert!(cookie(&answer, "__Host-sso_flow_").1.split("; ").any(|attribute| attribute == "Secure"));
        let flow = Flow::of(&answer);
        let back = scene.approve(&flow).await;
        let answer = finish(&scene.server, &flow, &back).await;
        let (session, attributes) = cookie(answer.is(303), "__Host-session=");
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Secure");
        scene.server.get(SESSION).cookie(session).await.is(200);
    }

    async fn the_session_that_the_browser_had_is_over(setup: Setup) {
        let scene = scene(setup).await;
        let (old, elsewhere) = (scene.signed_on().await, scene.signed_on().await);
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        let both = format!("{}; {old}", flow.cookie);
        let answer = scene.server.get(target(&back)).cookie(&both).await;
        let new = session_of(answer.is(303)).expect("a session");
        assert_ne!(new, old);
        scene.server.get(SESSION).cookie(&old).await.problem("unauthenticated");
        scene.server.get(SESSION).cookie(&elsewhere).await.is(200);
        scene.server.get(SESSION).cookie(&new).await.is(200);
    }

    async fn so_is_one_of_another_tenant_and_no_other_of_theirs(setup: Setup) {
        let scene = scene(setup).await;
        let globex = scene.server.tenant("globex").await;
        let elsewhere = scene.server.user(&globex.tenant, Role::Admin).await;
        let attempt = async || {
            let flow = scene.begin().await;
            let back = scene.approve(&flow).await;
            let both = format!("{}; {}", flow.cookie, globex.admin);
            scene.server.get(target(&back)).cookie(&both).await
        };
        scene.idp.person(person("subject-1", "ann@evil.test"));
        assert_turned_away(&attempt().await, "a foreign domain");
        scene.server.get(SESSION).cookie(&globex.admin).await.is(200);
        scene.idp.person(person("subject-1", "ann@acme.test"));
        let new = session_of(attempt().await.is(303)).expect("a session");
        scene.server.get(SESSION).cookie(&globex.admin).await.problem("unauthenticated");
        for cookie in [&new, &elsewhere] {
            scene.server.get(SESSION).cookie(cookie).await.is(200);
        }
        let page = scene.server.get(format!("{AUDIT}?action=session.delete")).cookie(&elsewhere).await.ok(200);
        let entries = page["data"].as_array().expect("entries");
        assert_eq!((entries.len(), &entries[0]["actor"]["type"]), (1, &json!("user")), "{page}");
        assert_eq!(entries[0]["credential"]["id"], entries[0]["target"]["id"], "it was ended by itself");
    }

    async fn what_is_begun_on_one_node_ends_on_another(setup: Setup) {
        let scene = scene(setup).await;
        let other = scene.server.second_node().await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        let session = session_of(finish(&other, &flow, &back).await.is(303)).expect("a session");
        for node in [&scene.server, &other] {
            node.get(SESSION).cookie(&session).await.is(200);
            assert_turned_away(&finish(node, &flow, &back).await, "it is used up on every node");
        }
    }
}
