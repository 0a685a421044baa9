//! Many who come at once, or again and again: a provider that fails is not asked for each of them, and no trail fills up.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use kernel::args;
use kernel::base::{Actor, HOUR_MS, MINUTE_MS, SECOND_MS};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use super::{
    DOMAIN, Flow, Scene, assert_not_begun, assert_turned_away, begin, disable, finish, reason, scene, set_cookies,
    target,
};
use crate::support::idp::{DISCOVERY, JWKS, Key, Says, TOKEN, USERINFO, person};
use crate::support::over_http;
use crate::support::process::until;

/// Of one kind, each minute, in the trail.
const NOTED: usize = 60;

/// From one provider at a time.
const COMING_BACK: usize = 32;

/// Who wait for one provider's document at a time.
const BEGINNING: usize = 32;

const PATIENCE: Duration = Duration::from_secs(30);

/// Sign-ons that the provider has sent back already.
async fn ways_back(scene: &Scene, count: usize) -> Vec<(Flow, Url)> {
    let mut ways = Vec::new();
    for _ in 0..count {
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        ways.push((flow, back));
    }
    ways
}

/// Whether somebody has come back with the only sign-on of this provider.
async fn is_used(scene: &Scene) -> bool {
    let db = scene.server.app.store.tenant_for_test(scene.acme.tenant.id, Actor::for_system());
    let used = "SELECT COUNT(*) FROM sso_used_states WHERE tenant_id = $1";
    db.get_one::<(i64,)>(used, args![]).await.unwrap().0 == 1
}

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
        let (answers, ()) = tokio::join!(join_all(all), meanwhile);
        for answer in answers {
            assert_not_begun(&answer, "a document of another");
        }
        assert_eq!(scene.idp.asked(DISCOVERY), 1, "and the provider is asked for all of them once");
    }

    async fn beyond_so_many_of_an_address_who_come_back_at_once_nobody_is_used_up(setup: Setup) {
        let mut setup = setup;
        setup.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let scene = scene(setup).await;
        let mut flows = ways_back(&scene, COMING_BACK + 2).await;
        let (elsewhere, elsewhere_back) = flows.pop().expect("flows");
        let ((flow, back), others) = flows.split_last().expect("flows");
        let (gate, held) = watch::channel(false);
        scene.idp.say(TOKEN, Says::Hold(held));
        let meanwhile = async {
            scene.idp.wait_for_many(TOKEN, COMING_BACK).await;
            let answer = finish(&scene.server, flow, back).await;
            // Those of another address are not kept out.
            let come = scene.server.get(target(&elsewhere_back)).cookie(&elsewhere.cookie);
            let open = async {
                scene.idp.wait_for_many(TOKEN, COMING_BACK + 1).await;
                gate.send_replace(true);
            };
            let (other, ()) = tokio::join!(come.header("x-forwarded-for", "192.0.2.7"), open);
            other.is(303);
            answer
        };
        let all = others.iter().map(|(flow, back)| finish(&scene.server, flow, back));
        let (answers, crowded) = tokio::join!(join_all(all), meanwhile);
        for answer in answers {
            answer.is(303);
        }
        assert_eq!((crowded.is(503).header("retry-after"), set_cookies(&crowded)), ("60", vec![]));
        finish(&scene.server, flow, back).await.is(303);
    }

    async fn as_many_come_back_to_a_node_that_knows_nothing_of_the_provider(setup: Setup) {
        let scene = scene(setup).await;
        let flows = ways_back(&scene, COMING_BACK).await;
        let node = scene.server.second_node().await;
        let known = scene.idp.asked(DISCOVERY);
        let (gate, held) = watch::channel(false);
        scene.idp.say(DISCOVERY, Says::Hold(held));
        let meanwhile = async {
            scene.idp.wait_for_many(DISCOVERY, known + 1).await;
            gate.send_replace(true);
        };
        let all = flows.iter().map(|(flow, back)| finish(&node, flow, back));
        let (answers, ()) = tokio::join!(join_all(all), meanwhile);
        for answer in answers {
            answer.is(303);
        }
        assert_eq!(scene.idp.asked(DISCOVERY), known + 1);
    }

    async fn whoever_comes_back_does_not_wait_behind_those_who_begin(setup: Setup) {
        let scene = scene(setup).await;
        let (flow, back) = ways_back(&scene, 1).await.remove(0);
        let node = scene.server.second_node().await;
        let known = scene.idp.asked(DISCOVERY);
        let (gate, held) = watch::channel(false);
        scene.idp.say(DISCOVERY, Says::Hold(held));
        // Whoever finds no place among those who begin has waited for one, and all others have theirs by then.
        let (refused, told) = oneshot::channel();
        let refused = Mutex::new(Some(refused));
        let begins = (0..=BEGINNING).map(async |_| {
            let answer = begin(&node, DOMAIN).await;
            if answer.status == 503 {
                let _ = refused.lock().unwrap().take().expect("one is too many").send(());
            }
        });
        let meanwhile = async {
            told.await.expect("one is refused");
            let release = async {
                until("it is used up", PATIENCE, async || is_used(&scene).await.then_some(())).await;
                // As long as somebody without a place would have waited.
                begin(&node, DOMAIN).await.is(503);
                gate.send_replace(true);
            };
            tokio::join!(finish(&node, &flow, &back), release).0
        };
        let (_, answer) = tokio::join!(join_all(begins), meanwhile);
        answer.is(303);
        assert_eq!(scene.idp.asked(DISCOVERY), known + 1);
    }

    async fn whatever_a_provider_does_not_answer_is_seen(setup: Setup) {
        let scene = scene(setup).await;
        for path in [TOKEN, JWKS, USERINFO] {
            scene.signed_on().await;
            assert_eq!(health(&scene).await, "ok");
            // A key that is not known yet makes the keys be read again. What else is known stays young: nothing is asked beside it.
            scene.server.advance(31 * SECOND_MS);
            scene.idp.keys(vec![Key::ec(path)]);
            scene.idp.tell_in_token(&[]);
            scene.idp.say(path, Says::status(500));
            scene.refuses(path, scene.sign_on()).await;
            assert_eq!(health(&scene).await, "degraded", "{path}");
            scene.idp.behave();
            // Keys that could not be read are not read again for everybody who comes.
            scene.server.advance(31 * SECOND_MS);
        }
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
