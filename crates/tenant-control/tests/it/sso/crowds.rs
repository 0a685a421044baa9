//! Many who come at once, or again and again: a provider that fails is not asked for each of them, and no trail fills up.

use kernel::base::{HOUR_MS, MINUTE_MS, SECOND_MS};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{DOMAIN, Scene, assert_not_begun, assert_turned_away, begin, disable, finish, reason, scene};
use crate::support::idp::{DISCOVERY, Says, person};
use crate::support::over_http;

/// Of one kind, each minute, in the trail.
const NOTED: usize = 60;

/// What `/status/` says of providers.
async fn health(scene: &Scene) -> Value {
    let status = scene.server.get("/status/").header("accept", "application/json").await.ok(200);
    let parts = status["components"].as_array().expect("components");
    parts.iter().find(|part| part["name"] == "providers").expect("providers")["status"].clone()
}

over_http! {
    async fn a_provider_that_has_failed_is_left_alone_for_a_while(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.say(DISCOVERY, Says::status(500));
        for _ in 0..3 {
            let answer = begin(&scene.server, DOMAIN).await;
            assert_not_begun(&answer, "an error");
            let told = answer.problem("unavailable")["detail"].to_string();
            assert!(told.contains("provider") && answer.header("retry-after") == "60", "{told}");
        }
        let form = scene.server.post("/signin").header("content-type", "application/x-www-form-urlencoded");
        let page = form.body(format!("email=ann%40{DOMAIN}")).header("sec-fetch-site", "same-origin").await;
        assert_eq!(page.is(503).header("retry-after"), "60");
        assert!(String::from_utf8_lossy(&page.body).contains("Your provider or this service cannot be used right now."));
        assert_eq!(scene.idp.asked(DISCOVERY), 1);
        scene.idp.behave();
        scene.server.advance(5 * SECOND_MS - 1);
        assert_not_begun(&begin(&scene.server, DOMAIN).await, "a moment later");
        assert_eq!(scene.idp.asked(DISCOVERY), 1);
        scene.server.advance(1);
        scene.signed_on().await;
        assert_eq!(scene.idp.asked(DISCOVERY), 2);
    }

    async fn those_who_wait_are_refused_together(setup: Setup) {
        let scene = scene(setup).await;
        let (gate, held) = watch::channel(false);
        scene.idp.alter(DISCOVERY, |document| document["issuer"] = json!("https://evil.test"));
        scene.idp.say(DISCOVERY, Says::Hold(held));
        let meanwhile = async {
            scene.idp.wait_for(DISCOVERY).await;
            gate.send_replace(true);
        };
        let all = (0..20).map(|_| begin(&scene.server, DOMAIN));
        let (answers, ()) = tokio::join!(futures_util::future::join_all(all), meanwhile);
        for answer in answers {
            assert_not_begun(&answer, "a document of another");
        }
        assert_eq!(scene.idp.asked(DISCOVERY), 1, "and the provider is asked for all of them once");
    }

    async fn a_provider_that_nobody_asks_any_more_is_forgotten(setup: Setup) {
        let mut scene = scene(setup).await;
        assert_eq!(health(&scene).await, "ok", "nobody was asked");
        scene.idp.stop().await;
        assert_not_begun(&begin(&scene.server, DOMAIN).await, "nobody listens");
        assert_eq!(health(&scene).await, "degraded");
        disable(&scene.server, &scene.acme, &scene.provider).await;
        begin(&scene.server, DOMAIN).await.problem("sso_not_available");
        scene.server.advance(HOUR_MS - 1);
        assert_eq!(health(&scene).await, "degraded");
        scene.server.advance(1);
        assert_eq!(health(&scene).await, "ok");
    }

    async fn the_trail_has_so_many_refusals_a_minute_and_then_their_number(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        finish(&scene.server, &flow, &back).await.is(303);
        for _ in 0..NOTED + 7 {
            assert_turned_away(&finish(&scene.server, &flow, &back).await, "again");
        }
        assert_eq!(scene.trail("sso.refused").await.len(), NOTED);
        // What is refused for another reason is not crowded out.
        scene.idp.person(person("subject-9", "mallory@evil.test"));
        scene.refuses("a foreign domain", scene.sign_on()).await;

        scene.server.advance(MINUTE_MS);
        scene.refuses("again, a minute later", finish(&scene.server, &flow, &back)).await;
        let entries = scene.trail("sso.refused").await;
        assert_eq!(reason(&entries[0]), "flow_used");
        assert_eq!(entries[0]["changes"]["left_out"], json!({"from": null, "to": 7}));
        scene.server.advance(SECOND_MS);
        scene.refuses("and again", finish(&scene.server, &flow, &back)).await;
        assert_eq!(scene.trail("sso.refused").await[0]["changes"].get("left_out"), None);
    }
}
