//! Flows that are not ended by whom they were begun, or not as they were begun, or twice.

use kernel::args;
use kernel::base::{Actor, DAY_MS, MINUTE_MS};
use reqwest::{Method, Url};
use serde_json::json;
use tenant_control::features;

use super::{
    CALLBACK, DOMAIN, Flow, SSO, Scene, Told, assert_turned_away, begin, disable, finish, provide, reason, replaced,
    scene, session_of, set_cookies, target, value_of,
};
use crate::support::idp::{DISCOVERY, Idp, TOKEN, person};
use crate::support::over_http;
use crate::support::people::SESSION;

/// What is wrong with an address, and how it becomes so.
type Case<'a> = (&'a str, &'a dyn Fn(&Url) -> String);

/// Sign-ons of the tenant that were finished.
async fn used_states(scene: &Scene) -> i64 {
    let db = scene.server.app.store.tenant_for_test(scene.acme.tenant.id, Actor::for_system());
    db.get_one::<(i64,)>("SELECT COUNT(*) FROM sso_used_states WHERE tenant_id = $1", args![]).await.unwrap().0
}

over_http! {
    async fn a_flow_is_used_up_by_its_first_answer(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        let first = session_of(finish(&scene.server, &flow, &back).await.is(303)).expect("a session");
        let users = scene.users().await;
        for _ in 0..2 {
            scene.refuses("the same address again", finish(&scene.server, &flow, &back)).await;
        }
        // Nor is the browser signed on again by a fresh code for the same state.
        let fresh = scene.approve(&flow).await;
        scene.refuses("the same state again", finish(&scene.server, &flow, &fresh)).await;
        assert_eq!(reason(&scene.trail("sso.refused").await[0]), "flow_used");
        assert_eq!(scene.idp.asked(TOKEN), 1, "nothing was asked of the provider");
        assert_eq!(scene.users().await, users);
        scene.server.get(SESSION).cookie(&first).await.is(200);
    }

    async fn a_flow_that_was_refused_is_used_up_too(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.person(person("subject-1", "ann@evil.test"));
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        scene.refuses("a foreign domain", finish(&scene.server, &flow, &back)).await;
        scene.idp.person(person("subject-1", "ann@acme.test"));
        let back = scene.approve(&flow).await;
        assert_turned_away(&finish(&scene.server, &flow, &back).await, "the flow is over");
    }

    async fn of_those_who_end_a_flow_at_once_one_is_signed_in(setup: Setup) {
        let scene = scene(setup).await;
        for _ in 0..5 {
            let flow = scene.begin().await;
            let back = scene.approve(&flow).await;
            let all = (0..4).map(|_| finish(&scene.server, &flow, &back));
            let answers = futures_util::future::join_all(all).await;
            let (welcome, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 303);
            assert_eq!((welcome.len(), refused.len()), (1, 3));
            for answer in refused {
                assert_turned_away(answer, "too late");
            }
        }
    }

    async fn only_the_browser_that_began_a_flow_ends_it(setup: Setup) {
        let scene = scene(setup).await;
        let users = scene.users().await;
        let other = scene.begin().await;
        let forged = format!("NAME={}", "A".repeat(43));
        let moved = other.cookie.replace(other.cookie_name(), "NAME");
        let both = format!("{forged}; {}", other.cookie);
        // By the name that the cookie of the sign-on has.
        let cookies = ["", "NAME=", "NAME", &forged, &other.cookie, &moved, &both, &scene.acme.admin];
        for cookie in cookies {
            let flow = scene.begin().await;
            let back = scene.approve(&flow).await;
            let call = scene.server.get(target(&back));
            let cookie = cookie.replace("NAME", flow.cookie_name());
            let answer = async { if cookie.is_empty() { call.await } else { call.cookie(&cookie).await } };
            let about = format!("a browser with {cookie:?}");
            let answer = answer.await;
            assert_turned_away(&answer, &about);
            // What it has under way itself goes on.
            assert_eq!(set_cookies(&answer), [""; 0], "{about}");
        }
        // What the address has is no cookie.
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        let stolen = format!("{}={}", flow.cookie_name(), value_of(&back, "state"));
        assert_turned_away(&scene.server.get(target(&back)).cookie(&stolen).await, "the state as a cookie");
        assert_eq!(scene.users().await, users);
        assert_eq!(scene.idp.asked(TOKEN), 0, "no code was shown for a stranger");
        assert_eq!((scene.trail("sso.refused").await, used_states(&scene).await), (vec![], 0), "and nothing was written");
        // And none of it was used up by them.
        finish(&scene.server, &flow, &back).await.is(303);
    }

    async fn a_cookie_that_was_changed_is_none(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        let (name, sealed) = flow.cookie.split_once('=').unwrap();
        for at in 0..sealed.len() {
            let mut altered = sealed.as_bytes().to_vec();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            let cookie = format!("{name}={}", String::from_utf8(altered).unwrap());
            let answer = scene.server.get(target(&back)).cookie(&cookie).await;
            assert_turned_away(&answer, &format!("character {at}"));
        }
        assert_eq!((scene.idp.asked(TOKEN), used_states(&scene).await), (0, 0));
        finish(&scene.server, &flow, &back).await.is(303);
    }

    async fn a_begin_writes_nothing_and_a_finish_one_state(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        // Whoever begins does not wait for what the tenant is busy with.
        let held = scene.server.hold_writes(scene.acme.tenant.id).await;
        for _ in 0..50 {
            scene.begin().await;
        }
        drop(held);
        let db = scene.server.app.store.tenant_for_test(scene.acme.tenant.id, Actor::for_system());
        let (rows,): (i64,) = db.get_one("SELECT COUNT(*) FROM sso_flows WHERE tenant_id = $1", args![]).await.unwrap();
        assert_eq!((rows, used_states(&scene).await), (0, 0));
        finish(&scene.server, &flow, &back).await.is(303);
        assert_eq!(used_states(&scene).await, 1);
        // It is kept for longer than any node would take the sign-on, and no longer.
        scene.server.advance(11 * MINUTE_MS);
        kernel::jobs::delete_expired(&scene.server.app, &features::install().retention).await.unwrap();
        assert_eq!(used_states(&scene).await, 1);
        scene.server.advance(10 * MINUTE_MS);
        kernel::jobs::delete_expired(&scene.server.app, &features::install().retention).await.unwrap();
        assert_eq!(used_states(&scene).await, 0);
    }

    async fn what_one_node_began_another_ends_once(setup: Setup) {
        let scene = scene(setup).await;
        let other = scene.server.second_node().await;
        let flow = Flow::of(&begin(&other, DOMAIN).await);
        let back = scene.approve(&flow).await;
        finish(&scene.server, &flow, &back).await.is(303);
        for node in [&scene.server, &other] {
            scene.refuses("the second time", finish(node, &flow, &back)).await;
            assert_eq!(reason(&scene.trail("sso.refused").await[0]), "flow_used");
        }
        assert_eq!(scene.idp.asked(TOKEN), 1);
    }

    async fn long_ways_on_crowd_out_the_oldest(setup: Setup) {
        let scene = scene(setup).await;
        let long = format!("/overview?{}", "a".repeat(2_000));
        let mut jar: Vec<String> = Vec::new();
        for _ in 0..6 {
            let body = json!({"domain": DOMAIN, "redirect_to": long});
            let answer = scene.server.post(SSO).cookie(&jar.join("; ")).json(&body).await;
            let flow = Flow::of(&answer);
            assert!(flow.cookie.len() < 4_096, "a browser would not keep it: {}", flow.cookie.len());
            let over: Vec<String> = set_cookies(&answer).into_iter().filter(|set| set.contains("Max-Age=0")).map(str::to_owned).collect();
            jar.retain(|kept| !over.iter().any(|set| set.starts_with(kept.split_once('=').unwrap().0)));
            jar.push(flow.cookie);
            let bytes: usize = jar.iter().map(String::len).sum();
            assert!(bytes <= 6 * 1024 && jar.len() <= 2, "{bytes} in {}", jar.len());
        }
        assert_eq!(jar.len(), 2);
    }

    async fn each_window_of_a_browser_ends_its_own(setup: Setup) {
        let scene = scene(setup).await;
        let (first, second) = (scene.begin().await, scene.begin().await);
        let backs = [scene.approve(&first).await, scene.approve(&second).await];
        assert_ne!(first.cookie_name(), second.cookie_name());
        let cookies = format!("{}; {}", first.cookie, second.cookie);
        for (flow, back) in [&first, &second].into_iter().zip(&backs) {
            let answer = scene.server.get(target(back)).cookie(&cookies).await;
            let over: Vec<&str> = set_cookies(answer.is(303)).into_iter().filter(|set| set.contains("Max-Age=0")).collect();
            assert!(over.len() == 1 && over[0].starts_with(flow.cookie_name()), "{over:?}");
        }
    }

    async fn a_browser_that_begins_again_and_again_forgets_what_it_left(setup: Setup) {
        const KEPT: usize = 16;
        let scene = scene(setup).await;
        let mut jar: Vec<String> = Vec::new();
        for _ in 0..KEPT {
            let answer = scene.server.post(SSO).cookie(&jar.join("; ")).json(&json!({"domain": DOMAIN})).await;
            let set = set_cookies(&answer);
            assert_eq!(set.len(), 1, "{set:?}");
            jar.push(Flow::of(&answer).cookie);
        }
        // The oldest come first, and others' are none of ours.
        let sent = format!("other_sso_flow_x=1; sso_flow; {}", jar.join("; "));
        let answer = scene.server.post(SSO).cookie(&sent).json(&json!({"domain": DOMAIN})).await;
        let over: Vec<&str> = set_cookies(&answer).into_iter().filter(|set| set.contains("Max-Age=0")).collect();
        let oldest = jar[0].split('=').next().unwrap();
        assert!(over.len() == 1 && over[0].starts_with(&format!("{oldest}=;")), "{over:?}");
        // What has just begun is none of them.
        let flow = Flow::of(&answer);
        let back = scene.approve(&flow).await;
        finish(&scene.server, &flow, &back).await.is(303);
    }

    async fn one_that_a_clock_began_which_was_ahead_is_not_for_a_day(setup: Setup) {
        let scene = scene(setup).await;
        scene.server.advance(DAY_MS);
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        scene.server.advance(-DAY_MS);
        assert_turned_away(&finish(&scene.server, &flow, &back).await, "of tomorrow");
        assert_eq!(reason(&scene.trail("sso.refused").await[0]), "flow_expired");
        assert_eq!(scene.idp.asked(TOKEN), 0);
    }

    async fn one_that_another_node_began_may_be_a_little_ahead(setup: Setup) {
        let scene = scene(setup).await;
        scene.server.advance(30_000);
        let flow = scene.begin().await;
        scene.server.advance(-30_000);
        let back = scene.approve(&flow).await;
        finish(&scene.server, &flow, &back).await.is(303);
    }

    async fn an_address_without_what_it_takes_is_turned_away(setup: Setup) {
        let scene = scene(setup).await;
        let cases: &[Case] = &[
            ("nothing", &|_| CALLBACK.to_owned()),
            ("an empty query", &|_| format!("{CALLBACK}?")),
            ("no state", &|back| target(&replaced(back, "state", None))),
            ("an empty state", &|back| target(&replaced(back, "state", Some("")))),
            ("another state", &|back| target(&replaced(back, "state", Some(&"A".repeat(43))))),
            ("a state without end", &|back| target(&replaced(back, "state", Some(&"A".repeat(8_000))))),
            ("no code", &|back| target(&replaced(back, "code", None))),
            ("an empty code", &|back| target(&replaced(back, "code", Some("")))),
            ("two states", &|back| format!("{}&state=other", target(back))),
            ("two codes", &|back| format!("{}&code=other", target(back))),
            ("bytes that are no text", &|back| target(back).replace("state=", "state=%ff%fe")),
            ("what is not percent encoding", &|back| target(back).replace("state=", "state=%zz")),
        ];
        for (about, target) in cases {
            let flow = scene.begin().await;
            let back = scene.approve(&flow).await;
            let answer = scene.server.get(target(&back)).cookie(&flow.cookie).await;
            assert_turned_away(&answer, about);
        }
        assert_eq!(scene.idp.asked(TOKEN), 0);
    }

    async fn a_code_of_another_flow_opens_nothing(setup: Setup) {
        let scene = scene(setup).await;
        // A code that was used already.
        let used = scene.begin().await;
        let back_of_used = scene.approve(&used).await;
        finish(&scene.server, &used, &back_of_used).await.is(303);
        let flow = scene.begin().await;
        let back = replaced(&scene.approve(&flow).await, "code", Some(&value_of(&back_of_used, "code")));
        scene.refuses("a used code", finish(&scene.server, &flow, &back)).await;

        // The attacker's own, fresh and good, put into the victim's browser: the verifier is another.
        let attackers = scene.begin().await;
        let code = value_of(&scene.approve(&attackers).await, "code");
        let flow = scene.begin().await;
        let back = replaced(&scene.approve(&flow).await, "code", Some(&code));
        scene.refuses("a stolen code", finish(&scene.server, &flow, &back)).await;

        let flow = scene.begin().await;
        let back = replaced(&scene.approve(&flow).await, "code", Some("made-up"));
        scene.refuses("a code that was never given", finish(&scene.server, &flow, &back)).await;
    }

    async fn the_whole_answer_of_another_flow_opens_nothing(setup: Setup) {
        let scene = scene(setup).await;
        let (attackers, victims) = (scene.begin().await, scene.begin().await);
        scene.idp.person(person("attacker", "mallory@acme.test"));
        let back = scene.approve(&attackers).await;
        assert_turned_away(&finish(&scene.server, &victims, &back).await, "signing a victim on as somebody else");
        assert!(scene.users().await.iter().all(|user| user["email"] != "mallory@acme.test"));
    }

    async fn an_answer_of_another_issuer_is_refused_before_the_code_is_shown(setup: Setup) {
        let scene = scene(setup).await;
        let evil = Idp::start(&scene.server.app.env.clock).await;
        let issuers = [evil.issuer(), format!("{}/", scene.idp.issuer()), String::new(), "null".to_owned()];
        for issuer in issuers {
            let flow = scene.begin().await;
            let back = replaced(&scene.approve(&flow).await, "iss", Some(&issuer));
            scene.refuses(&format!("of {issuer:?}"), finish(&scene.server, &flow, &back)).await;
        }
        // The provider has said that it always names itself.
        let flow = scene.begin().await;
        let back = replaced(&scene.approve(&flow).await, "iss", None);
        scene.refuses("of nobody", finish(&scene.server, &flow, &back)).await;
        assert_eq!((scene.idp.asked(TOKEN), evil.asked_in_all()), (0, 0));
    }

    async fn a_provider_that_does_not_name_itself_need_not(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.alter(DISCOVERY, |document| {
            document["authorization_response_iss_parameter_supported"] = false.into();
        });
        let flow = scene.begin().await;
        let back = replaced(&scene.approve(&flow).await, "iss", None);
        finish(&scene.server, &flow, &back).await.is(303);
        // If it does, it is right.
        let flow = scene.begin().await;
        let back = replaced(&scene.approve(&flow).await, "iss", Some("https://evil.test"));
        scene.refuses("of another", finish(&scene.server, &flow, &back)).await;
    }

    async fn two_providers_are_never_mixed_up(setup: Setup) {
        let scene = scene(setup).await;
        let globex = scene.server.tenant("globex").await;
        let other = Idp::start(&scene.server.app.env.clock).await;
        other.person(person("subject-1", "ann@acme.test"));
        provide(&scene.server, &globex, Told::of(&other, "globex.test")).await;

        // A code of one at the flow of the other: whichever issuer the answer names.
        for issuer in [scene.idp.issuer(), other.issuer()] {
            let theirs = Flow::of(&begin(&scene.server, "globex.test").await);
            let code = value_of(&other.approve(&theirs.url).await, "code");
            let flow = scene.begin().await;
            let back = replaced(&scene.approve(&flow).await, "code", Some(&code));
            let back = replaced(&back, "iss", Some(&issuer));
            scene.refuses("a code of another provider", finish(&scene.server, &flow, &back)).await;
        }
        assert_eq!(other.asked(TOKEN), 0, "and none was shown to the wrong one");

        // What a provider of one tenant says of another's people counts for nothing.
        let flow = Flow::of(&begin(&scene.server, "globex.test").await);
        let back = other.approve(&flow.url).await;
        let users = scene.users().await;
        assert_turned_away(&finish(&scene.server, &flow, &back).await, "a foreign domain");
        assert_eq!(scene.users().await, users);
    }

    async fn a_flow_lives_for_ten_minutes(setup: Setup) {
        let scene = scene(setup).await;
        let (first, second) = (scene.begin().await, scene.begin().await);
        scene.server.advance(10 * MINUTE_MS - 1);
        let back = scene.approve(&first).await;
        finish(&scene.server, &first, &back).await.is(303);
        let back = scene.approve(&second).await;
        scene.server.advance(1);
        scene.refuses("too late", finish(&scene.server, &second, &back)).await;
        assert_eq!(scene.idp.asked(TOKEN), 1);
    }

    async fn a_provider_that_was_disabled_meanwhile_lets_nobody_in(setup: Setup) {
        let scene = scene(setup).await;
        let before = scene.signed_on().await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        disable(&scene.server, &scene.acme, &scene.provider).await;
        let users = scene.users().await;
        assert_turned_away(&finish(&scene.server, &flow, &back).await, "disabled");
        assert_eq!(scene.users().await, users);
        scene.server.get(SESSION).cookie(&before).await.is(200);
        begin(&scene.server, DOMAIN).await.problem("sso_not_available");
    }

    async fn looking_at_the_address_uses_nothing_up(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        for _ in 0..2 {
            let answer = scene.server.head(target(&back)).cookie(&flow.cookie).await;
            assert_eq!((session_of(&answer), answer.body.len()), (None, 0));
        }
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            scene.server.call(method, target(&back)).cookie(&flow.cookie).await.problem("method_not_allowed");
        }
        assert_eq!(scene.idp.asked(TOKEN), 0);
        finish(&scene.server, &flow, &back).await.is(303);
    }
}
