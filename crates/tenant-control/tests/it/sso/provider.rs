//! A provider that is away, slow or out of its mind: its people wait or are told so, and nobody else notices.

use serde_json::json;
use tenant_control::features::pages;
use tokio::sync::watch;

use super::{DOMAIN, Flow, Told, assert_not_begun, assert_turned_away, begin, finish, provide, replaced, scene};
use crate::support::idp::{DISCOVERY, Idp, Says, TOKEN, USERINFO, person};
use crate::support::over_http;
use crate::support::search::Indexed;

over_http! {
    async fn where_nobody_listens_nothing_begins(setup: Setup) {
        let mut scene = scene(setup).await;
        scene.idp.stop().await;
        assert_not_begun(&begin(&scene.server, DOMAIN).await, "nobody listens");
    }

    async fn a_provider_that_is_away_is_told_and_no_fault_of_the_service(setup: Setup) {
        let mut scene = scene(setup).await;
        scene.idp.stop().await;
        assert_not_begun(&begin(&scene.server, DOMAIN).await, "nobody listens");
        let _indexed = Indexed::of(&scene.server).await;
        pages::measure_queue(&scene.server.app).await.unwrap();
        let status = scene.server.get("/status/").header("accept", "application/json").await.ok(200);
        assert_eq!(status["status"], "ok", "{status}");
        let parts = status["components"].as_array().expect("components");
        let providers = parts.iter().find(|part| part["name"] == "providers").expect("providers");
        assert_eq!(providers["status"], "degraded", "{status}");
        assert!(providers["detail"].as_str().is_some_and(|detail| detail.contains("do not count")), "{status}");
        let page = scene.server.get("/status/").await;
        assert!(String::from_utf8_lossy(&page.is(200).body).contains("The service works."));
    }

    async fn a_provider_that_goes_away_in_the_middle_lets_nobody_in(setup: Setup) {
        let mut scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        scene.idp.stop().await;
        scene.refuses("nobody listens", finish(&scene.server, &flow, &back)).await;
        assert_turned_away(&finish(&scene.server, &flow, &back).await, "the flow is used up");
    }

    async fn a_token_endpoint_that_gives_no_token_lets_nobody_in(setup: Setup) {
        let scene = scene(setup).await;
        let cases = [
            ("a refusal", Says::json(400, &json!({"error": "invalid_grant", "error_description": "<b>no</b>"}))),
            ("an unknown client", Says::json(401, &json!({"error": "invalid_client"}))),
            ("an error", Says::status(500)),
            ("nothing", Says::status(204)),
            ("no JSON", Says::text("id_token=a.b.c")),
            ("no object", Says::text("[]")),
            ("a redirect", Says::redirect(&scene.idp.url(TOKEN))),
            ("huge", Says::text(" ".repeat(1024 * 1024) + "{}")),
            ("without end", Says::Endless),
            ("a closed door", Says::HangsUp),
        ];
        for (at, (about, says)) in cases.into_iter().enumerate() {
            scene.idp.say(TOKEN, says);
            scene.refuses(about, scene.sign_on()).await;
            assert_eq!(scene.idp.asked(TOKEN), at + 1, "a code is shown once");
        }
        scene.idp.behave();
        scene.signed_on().await;
    }

    async fn userinfo_that_says_nothing_lets_nobody_in(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.tell_in_token(&[]);
        let cases = [
            ("a refusal", Says::json(401, &json!({"error": "invalid_token"}))),
            ("an error", Says::status(500)),
            ("no JSON", Says::text("sub=subject-1")),
            ("a signed answer", Says::text("a.b.c")),
            ("a redirect", Says::redirect(&scene.idp.url(USERINFO))),
            ("without end", Says::Endless),
        ];
        for (about, says) in cases {
            scene.idp.say(USERINFO, says);
            scene.refuses(about, scene.sign_on()).await;
        }
        scene.idp.behave();
        scene.signed_on().await;
    }

    async fn what_a_provider_says_of_an_error_is_not_put_into_the_page(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let mut back = replaced(&scene.approve(&flow).await, "code", None);
        back.query_pairs_mut()
            .append_pair("error", "access_denied")
            .append_pair("error_description", "<script>alert(1)</script>")
            .append_pair("error_uri", "https://evil.test/help");
        let answer = finish(&scene.server, &flow, &back).await;
        assert_turned_away(&answer, "the provider has refused");
        let page = String::from_utf8(answer.body).unwrap();
        assert!(!page.contains("alert(1)") && !page.contains("evil.test"), "{page}");
        assert_eq!(scene.trail("sso.refused").await.len(), 1);
        assert_eq!(scene.idp.asked(TOKEN), 0);
    }

    async fn a_slow_provider_holds_up_nobody_else(setup: Setup) {
        let scene = scene(setup).await;
        let slow = Idp::start(&scene.server.app.env.clock).await;
        slow.person(person("subject-1", "ann@slow.test"));
        provide(&scene.server, &scene.acme, Told::of(&slow, "slow.test")).await;
        let (gate, held) = watch::channel(false);
        slow.say(DISCOVERY, Says::Hold(held));
        let meanwhile = async {
            slow.wait_for(DISCOVERY).await;
            scene.signed_on().await;
            gate.send_replace(true);
        };
        let (answer, ()) = tokio::join!(begin(&scene.server, "slow.test"), meanwhile);
        let flow = Flow::of(&answer);

        // The same in the middle of a flow: no write of the tenant waits for the provider.
        let back = slow.approve(&flow.url).await;
        let (gate, held) = watch::channel(false);
        slow.say(TOKEN, Says::Hold(held));
        let meanwhile = async {
            slow.wait_for(TOKEN).await;
            scene.signed_on().await;
            scene.server.key(&scene.acme, &["tickets:read"]).await;
            gate.send_replace(true);
        };
        let (answer, ()) = tokio::join!(finish(&scene.server, &flow, &back), meanwhile);
        answer.is(303);
    }
}
