//! What signing on costs an address: an office begins together, and nobody is kept out by what others there got wrong.

use kernel::base::MINUTE_MS;
use kernel::http::RatePolicy;
use serde_json::json;

use super::{CALLBACK, DOMAIN, Flow, SSO, Scene, Told, assert_turned_away, begin, finish, provide, session_of, target};
use crate::support::idp::{Idp, TOKEN, person};
use crate::support::{Setup, over_http};

/// In a minute, by one address.
const BEGINS: usize = 120;
const FAILURES: usize = 20;

/// A tenant with a provider, and the limits that the service has by itself.
async fn office(mut setup: Setup) -> Scene {
    setup.settings.outbound.allow = vec!["127.0.0.0/8".parse().unwrap()];
    // Only the trail is read again and again here.
    setup.settings.rate_table.set(RatePolicy::Public, 100_000);
    let server = setup.start().await;
    let acme = server.tenant("acme").await;
    let idp = Idp::start(&server.app.env.clock).await;
    let provider = provide(&server, &acme, Told::of(&idp, DOMAIN)).await;
    Scene { server, acme, idp, provider }
}

/// Spends all that the address may get wrong in a minute.
async fn fail(scene: &Scene) {
    for at in 0..FAILURES {
        let answer = scene.server.get(format!("{CALLBACK}?state=guess-{at}&code=guess")).await;
        assert_turned_away(&answer, "a callback that was made up");
    }
    scene.server.get(format!("{CALLBACK}?state=guess&code=guess")).await.problem("rate_limited");
    assert_eq!(scene.idp.asked(TOKEN), 0, "nothing is asked for what was made up");
}

over_http! {
    async fn an_office_signs_on_together(setup: Setup) {
        let scene = office(setup).await;
        for at in 0..BEGINS {
            scene.idp.person(person(&format!("subject-{at}"), &format!("person-{at}@{DOMAIN}")));
            let answer = begin(&scene.server, DOMAIN).await;
            assert_eq!(answer.remaining(), ("auth".to_owned(), u64::try_from(BEGINS - at - 1).unwrap()));
            let flow = Flow::of(&answer);
            let back = scene.approve(&flow).await;
            finish(&scene.server, &flow, &back).await.is(303);
        }
        begin(&scene.server, DOMAIN).await.problem("rate_limited");
        scene.server.advance(MINUTE_MS);
        scene.signed_on().await;
    }

    async fn what_fits_is_neither_charged_nor_refused(setup: Setup) {
        let scene = office(setup).await;
        let mut flows = Vec::new();
        for _ in 0..BEGINS {
            let flow = scene.begin().await;
            let back = scene.approve(&flow).await;
            flows.push((flow, back));
        }
        begin(&scene.server, DOMAIN).await.problem("rate_limited");
        fail(&scene).await;
        // Both budgets are spent, and whoever has begun comes in.
        for (flow, back) in flows.iter().take(FAILURES * 2) {
            session_of(finish(&scene.server, flow, back).await.is(303)).expect("a session");
        }
    }

    async fn failures_keep_nobody_from_beginning(setup: Setup) {
        let scene = office(setup).await;
        fail(&scene).await;
        begin(&scene.server, "unknown.test").await.problem("rate_limited");
        let form = |email: &str| {
            let form = scene.server.post("/signin").header("content-type", "application/x-www-form-urlencoded");
            form.body(format!("email={email}")).header("sec-fetch-site", "same-origin")
        };
        form("ann%40unknown.test").await.problem("rate_limited");
        scene.signed_on().await;
        form("ann%40acme.test").await.is(303);
        // A typing error is told as one: nothing was looked up.
        form("ann").await.is(422);
        scene.server.post(SSO).json(&json!({"domain": DOMAIN, "redirect_to": "//evil.test"})).await.problem("invalid_fields");
        // Whoever is refused by their provider is told that, and not when to come again.
        scene.idp.person(person("subject-9", "mallory@evil.test"));
        assert_turned_away(&scene.sign_on().await, "a foreign domain");
        scene.server.advance(MINUTE_MS);
        begin(&scene.server, "unknown.test").await.problem("sso_not_available");
    }

    async fn every_failure_is_charged(setup: Setup) {
        let scene = office(setup).await;
        let left = async || {
            let answer = begin(&scene.server, "unknown.test").await;
            answer.problem("sso_not_available");
            answer.remaining().1
        };
        assert_eq!(left().await, 19);
        scene.signed_on().await;
        assert_eq!(left().await, 18, "what succeeds is not");
        scene.idp.person(person("subject-9", "mallory@evil.test"));
        scene.refuses("a foreign domain", scene.sign_on()).await;
        assert_eq!(left().await, 16);
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        scene.server.head(target(&back)).await.is(200);
        assert_turned_away(&scene.server.get(target(&back)).await, "without its cookie");
        assert_eq!(left().await, 14);
        scene.server.get("/signin?token=guess").await.is(410);
        scene.server.redeem("/signin?token=guess").await.is(410);
        assert_eq!(left().await, 11);
    }
}
