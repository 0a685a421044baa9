//! Signing out at the provider too, where the operator wants it; here it is over in any case.

use std::time::{Duration, Instant};

use kernel::args;
use kernel::base::{Actor, DAY_MS, HOUR_MS};
use kernel::http::BaseUrl;
use reqwest::Url;
use serde_json::{Value, json};
use tenant_control::features::sso::ProviderChange;
use tokio::sync::watch;

use super::{
    DOMAIN, Flow, SSO, Scene, Told, begin, disable, finish, provide, scene, scene_with, session_of, set_cookies, update,
};
use crate::support::idp::{CLIENT_ID, DISCOVERY, END_SESSION, Idp, Says, person};
use crate::support::people::SESSION;
use crate::support::{Answer, Server, Setup, over_http};

const SIGNOUT: &str = "/signout";
const SIGNIN: &str = "/signin";

/// Far less than a provider is waited for when somebody signs on.
const PATIENCE: Duration = Duration::from_secs(8);

/// What the form of `/overview` sends.
async fn sign_out(server: &Server, cookie: &str) -> Answer {
    let form = server.post(SIGNOUT).header("content-type", "application/x-www-form-urlencoded").body("");
    form.header("sec-fetch-site", "same-origin").cookie(cookie).await
}

/// Asserts that the session is over and the browser forgets it, and tells where it is led.
async fn led_to(server: &Server, cookie: &str) -> String {
    let answer = sign_out(server, cookie).await;
    let name = cookie.split('=').next().unwrap_or_default();
    let [cleared] = set_cookies(answer.is(303))[..] else { panic!("{:?}", set_cookies(&answer)) };
    assert!(cleared.starts_with(&format!("{name}=; ")) && cleared.contains("Max-Age=0"), "{cleared}");
    assert_eq!((answer.header("cache-control"), answer.header("referrer-policy")), ("no-store", "no-referrer"));
    server.get(SESSION).cookie(cookie).await.problem("unauthenticated");
    answer.header("location").to_owned()
}

async fn opted_in(setup: Setup) -> Scene {
    scene_with(setup, |told| told.sign_out_at_provider = true).await
}

/// Somebody signs on at another provider of the tenant, at which people sign out too, and which says this of itself.
async fn signed_on_at(scene: &Scene, domain: &str, endpoint: Value) -> (Idp, String) {
    let idp = Idp::start(&scene.server.app.env.clock).await;
    idp.person(person("subject-1", &format!("ann@{domain}")));
    idp.alter(DISCOVERY, move |document| document["end_session_endpoint"] = endpoint.clone());
    let told = Told { sign_out_at_provider: true, ..Told::of(&idp, domain) };
    provide(&scene.server, &scene.acme, told).await;
    let flow = Flow::of(&begin(&scene.server, domain).await);
    let back = idp.approve(&flow.url).await;
    let session = session_of(finish(&scene.server, &flow, &back).await.is(303)).expect("a session");
    (idp, session)
}

over_http! {
    async fn who_signs_out_is_led_on_to_their_provider(setup: Setup) {
        let scene = opted_in(setup).await;
        let session = scene.signed_on().await;
        let id_token = scene.idp.last_id_token();
        let url = Url::parse(&led_to(&scene.server, &session).await).expect("an address");
        assert!(url.as_str().starts_with(&scene.idp.url(END_SESSION)), "{url}");
        let said: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let back = format!("{}{SIGNIN}", scene.server.base_url());
        let wanted =
            [("id_token_hint", id_token.as_str()), ("client_id", CLIENT_ID), ("post_logout_redirect_uri", back.as_str())];
        assert_eq!(said, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(scene.idp.asked(END_SESSION), 0, "it is the browser's to ask");
        // The API tells no browser where to go.
        scene.server.delete(SESSION).cookie(&scene.signed_on().await).await.is(204);
    }

    async fn the_token_is_kept_sealed_only_where_it_is_of_use(setup: Setup) {
        let scene = scene_with(setup, |told| told.sign_out_at_provider = false).await;
        let stored = async || {
            let db = scene.server.app.store.tenant_for_test(scene.acme.tenant.id, Actor::for_system());
            let read = "SELECT id_token FROM sessions WHERE tenant_id = $1 AND provider_id IS NOT NULL ORDER BY id DESC LIMIT 1";
            db.get_one::<(Option<Vec<u8>>,)>(read, args![]).await.unwrap().0
        };
        let before = scene.signed_on().await;
        assert_eq!(stored().await, None, "nobody signs out there");
        let change = ProviderChange { sign_out_at_provider: Some(true), ..ProviderChange::default() };
        update(&scene.server, &scene.acme, &scene.provider, change).await.expect("it is changed");
        let without = led_to(&scene.server, &before).await;
        assert!(without.starts_with(&scene.idp.url(END_SESSION)) && !without.contains("id_token_hint"), "{without}");

        let kept = scene.signed_on().await;
        let (sealed, token) = (stored().await.expect("a sealed token"), scene.idp.last_id_token());
        assert!(!sealed.windows(16).any(|part| token.as_bytes().windows(16).any(|plain| plain == part)));
        // On whichever node.
        let other = scene.server.second_node().await;
        assert!(led_to(&other, &kept).await.contains(&format!("id_token_hint={token}&")), "it is gone with the session");

        // One that is too long for an address is left out, and signs nobody out of their session here.
        scene.idp.spoil(|draft| draft.claims["padding"] = json!("x".repeat(3_000)));
        let long = scene.signed_on().await;
        assert_eq!(stored().await, None);
        assert!(!led_to(&scene.server, &long).await.contains("id_token_hint"));
    }

    async fn by_https_the_way_back_is_too(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://tc.acme.test").unwrap();
        let scene = opted_in(setup).await;
        let url = led_to(&scene.server, &scene.signed_on().await).await;
        assert!(url.ends_with("&post_logout_redirect_uri=https%3A%2F%2Ftc.acme.test%2Fsignin"), "{url}");
        let policy = scene.server.get("/overview").cookie(&scene.acme.admin).await;
        let policy = policy.is(200).header("content-security-policy");
        assert!(policy.contains("form-action 'self' https:;"), "{policy}");
    }

    async fn who_was_away_for_long_is_led_there_too(setup: Setup) {
        let scene = opted_in(setup).await;
        let session = scene.signed_on().await;
        scene.server.advance(2 * HOUR_MS);
        scene.server.get(SESSION).cookie(&session).await.problem("session_expired");
        assert!(led_to(&scene.server, &session).await.starts_with(&scene.idp.url(END_SESSION)));
        // Once: nothing is left of it.
        assert_eq!(sign_out(&scene.server, &session).await.is(303).header("location"), SIGNIN);
    }

    async fn only_who_was_signed_in_there_is_led_there(setup: Setup) {
        let scene = opted_in(setup).await;
        scene.signed_on().await;
        assert_eq!(led_to(&scene.server, &scene.acme.admin).await, SIGNIN, "made by the operator");
        let answer = sign_out(&scene.server, &scene.acme.admin).await;
        assert_eq!(answer.is(303).header("location"), SIGNIN, "nobody any more");
    }

    async fn where_the_operator_does_not_want_it_nobody_is(setup: Setup) {
        let scene = scene(setup).await;
        assert_eq!(led_to(&scene.server, &scene.signed_on().await).await, SIGNIN);
        let (first, second) = (scene.signed_on().await, scene.signed_on().await);
        let set = async |wanted: bool| {
            let change = ProviderChange { sign_out_at_provider: Some(wanted), ..ProviderChange::default() };
            update(&scene.server, &scene.acme, &scene.provider, change).await.expect("it is changed");
        };
        set(true).await;
        assert!(led_to(&scene.server, &first).await.starts_with(&scene.idp.url(END_SESSION)), "in force at once");
        let third = scene.signed_on().await;
        set(false).await;
        assert_eq!(led_to(&scene.server, &second).await, SIGNIN);
        set(true).await;
        disable(&scene.server, &scene.acme, &scene.provider).await;
        assert_eq!(led_to(&scene.server, &third).await, SIGNIN, "disabled");
    }

    async fn the_endpoint_is_used_if_it_is_one(setup: Setup) {
        let scene = scene(setup).await;
        let cases = [json!(null), json!(7), json!("javascript:alert(1)"), json!("http://evil.test/out"), json!("/out")];
        for (at, endpoint) in cases.into_iter().enumerate() {
            let about = endpoint.to_string();
            let (_idp, session) = signed_on_at(&scene, &format!("case-{at}.test"), endpoint).await;
            assert_eq!(led_to(&scene.server, &session).await, SIGNIN, "{about}");
        }
        let (_idp, session) = signed_on_at(&scene, "query.test", json!("https://id.acme.test/out?realm=a%20b")).await;
        let url = led_to(&scene.server, &session).await;
        assert!(url.starts_with("https://id.acme.test/out?realm=a%20b&id_token_hint="), "{url}");
    }

    async fn a_provider_that_cannot_be_asked_keeps_nobody_signed_in(setup: Setup) {
        let mut setup = setup;
        (setup.settings.session_idle_ms, setup.settings.session_absolute_ms) = (4 * DAY_MS, 4 * DAY_MS);
        let mut scene = opted_in(setup).await;
        let (silent, late, away) = (scene.signed_on().await, scene.signed_on().await, scene.signed_on().await);
        // What it has said of itself is too old to be used by then.
        scene.server.advance(DAY_MS + HOUR_MS);
        let (gate, held) = watch::channel(false);
        scene.idp.say(DISCOVERY, Says::Hold(held));
        let started = Instant::now();
        assert_eq!(led_to(&scene.server, &silent).await, SIGNIN);
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        // What was asked for goes on without whoever asked, and is there for the next.
        let asked = scene.idp.asked(DISCOVERY);
        gate.send_replace(true);
        assert!(led_to(&scene.server, &late).await.starts_with(&scene.idp.url(END_SESSION)));
        assert_eq!(scene.idp.asked(DISCOVERY), asked);
        scene.server.advance(DAY_MS + HOUR_MS);
        scene.idp.stop().await;
        assert_eq!(led_to(&scene.server, &away).await, SIGNIN);
    }

    async fn the_form_of_another_site_signs_nobody_out_there_either(setup: Setup) {
        let scene = opted_in(setup).await;
        let session = scene.signed_on().await;
        let form = scene.server.post(SIGNOUT).header("content-type", "application/x-www-form-urlencoded").body("");
        let answer = form.header("sec-fetch-site", "cross-site").cookie(&session).await;
        answer.problem("csrf_rejected");
        assert_eq!(answer.header("location"), "");
        scene.server.get(SESSION).cookie(&session).await.is(200);
        // And whoever signs out can sign on again.
        led_to(&scene.server, &session).await;
        let answer = scene.server.post(SSO).json(&json!({"domain": DOMAIN})).await;
        answer.is(200);
    }
}
