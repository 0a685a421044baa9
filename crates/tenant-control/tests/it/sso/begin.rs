//! How a sign-on begins: what is asked, where it may lead, and what those learn who only guess.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kernel::http::RatePolicy;
use serde_json::json;

use super::{DOMAIN, Flow, SSO, Scene, Told, add, begin, disable, finish, provide, scene, set_cookies, target};
use crate::support::idp::Idp;
use crate::support::people::SESSION;
use crate::support::{Answer, over_http};

/// Nobody has it, somebody claims it, somebody had it.
const HIDDEN: [&str; 3] = ["unknown.test", "claimed.test", "disabled.test"];

/// How often each is asked for when times are compared.
const ROUNDS: usize = 200;
/// How many times as much as the same differs from itself others may differ from it, on a machine that does other things too.
const SPREADS: u32 = 4;

/// A provider that leads nowhere, behind each of those domains that is one's.
async fn hide(scene: &Scene) -> Idp {
    let idp = Idp::start(&scene.server.app.env.clock).await;
    add(&scene.server, &scene.acme, Told::of(&idp, HIDDEN[1])).await;
    let disabled = provide(&scene.server, &scene.acme, Told::of(&idp, HIDDEN[2])).await;
    disable(&scene.server, &scene.acme, &disabled).await;
    idp
}

/// All of an answer that could tell something: not its id, nor when it came and how many were before it.
fn told(answer: &Answer) -> (u16, BTreeMap<String, String>, String) {
    let headers = answer.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let headers = headers.filter(|(name, _)| !["x-request-id", "date", "ratelimit"].contains(&name.as_str()));
    (answer.status, headers.collect(), answer.body_but_request_id())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

over_http! {
    async fn the_provider_is_asked_for_a_code_bound_to_this_flow(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        assert!(flow.url.starts_with(&scene.idp.url("/authorize?")), "{}", flow.url);
        for (name, value) in
            [("response_type", "code"), ("code_challenge_method", "S256"), ("scope", "openid email profile")]
        {
            assert_eq!(flow.asks(name), value);
        }
        let other = scene.begin().await;
        for name in ["state", "nonce", "code_challenge"] {
            assert_eq!(flow.asks(name).len(), 43, "256 bits");
            assert_ne!(flow.asks(name), other.asks(name), "{name} is new each time");
        }
        assert_ne!(flow.cookie, other.cookie);
    }

    async fn nobody_is_led_to_another_place(setup: Setup) {
        let scene = scene(setup).await;
        let long = format!("/{}", "a".repeat(2_048));
        for path in [
            "//evil.test", "///evil.test", "////evil.test", "//evil.test/%2e%2e", "/\\evil.test", "\\\\evil.test", "\\/evil.test",
            "/\\/evil.test", "\\evil.test", "/a\\b", "/\t/evil.test", "/\n/evil.test", "/\r/evil.test", "\t//evil.test",
            "\n/overview", " /overview", " //evil.test", "\u{0}//evil.test", "/\u{0}/evil.test", "\u{1}/overview", "/\u{7f}",
            "/overview\r\nset-cookie: session=x", "/overview\nlocation: //evil.test", "https://evil.test", "https:/evil.test",
            "https:evil.test", "http:///evil.test", "HTTPS://evil.test", "javascript:alert(1)", "java\nscript:alert(1)",
            "data:text/html,x", "vbscript:x", "file:///etc/passwd", "evil.test", "evil.test/overview", "@evil.test", ":80/", "",
            "overview", "./overview", "../overview", "?next", "#part", "/%2fevil.test", "/%2Fevil.test", "/%5cevil.test",
            "/%5Cevil.test", "/%5c/evil.test", "/\u{2028}/evil.test", "\u{ff0f}\u{ff0f}evil.test", "/\u{ff0f}evil.test",
            "\u{feff}//evil.test", "\u{a0}//evil.test", "/\u{ff3c}evil.test", &long,
        ] {
            let answer = scene.server.post(SSO).json(&json!({"domain": DOMAIN, "redirect_to": path})).await;
            assert_eq!(answer.status, 422, "{path:?}: {}", String::from_utf8_lossy(&answer.body));
            assert_eq!(answer.pointers(), ["/redirect_to"], "{path:?}");
            assert_eq!(set_cookies(&answer), [""; 0], "{path:?}");
        }
        for value in [json!(7), json!(["/overview"]), json!({"path": "/overview"}), json!(true)] {
            let answer = scene.server.post(SSO).json(&json!({"domain": DOMAIN, "redirect_to": value})).await;
            assert_eq!(answer.pointers(), ["/redirect_to"], "{value}");
        }
        // The base URL itself is no path either.
        let own = format!("{}/overview", scene.server.base_url());
        let answer = scene.server.post(SSO).json(&json!({"domain": DOMAIN, "redirect_to": own})).await;
        assert_eq!(answer.pointers(), ["/redirect_to"]);
    }

    async fn nobody_is_led_to_where_somebody_else_is_signed_in(setup: Setup) {
        let scene = scene(setup).await;
        for path in [
            "/signin", "/signin/", "/signin?token=abc", "/signin#top", "/signin/link", "/signin/link?token=abc", "/signout",
            "/signout/", "/SignIn", "/SIGNOUT", "/%73ignin", "/sign%69n?token=abc", "/%2573ignin", "/%252573ignin", "/./signin",
            "/../signin", "/a/../signin", "/a/%2e%2e/signin", "/a/.%2E/signin", "/%2e/signin", "/a//../../signin", "/overview/..%2fsignin",
            "/a%2f..%2fsignin", "/signin;a=b", "/signin%3ftoken=abc", "/signin%23", "/signin%00", "/signin%20", "/a%5c..%5csignin",
            "/.//signin", "/signin/./", "/signin/x/..",
        ] {
            let answer = scene.server.post(SSO).json(&json!({"domain": DOMAIN, "redirect_to": path})).await;
            assert_eq!((answer.status, answer.pointers()), (422, vec!["/redirect_to".to_owned()]), "{path}");
            // The form passes over it, and leads to where nobody has said.
            let form = scene.server.post("/signin").header("content-type", "application/x-www-form-urlencoded");
            let encoded = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23").replace(';', "%3B").replace('=', "%3D");
            let page = form.body(format!("email=ann%40{DOMAIN}&redirect_to={encoded}")).header("sec-fetch-site", "same-origin").await;
            let url = page.is(303).header("location").to_owned();
            let flow = Flow { cookie: set_cookies(&page)[0].split(';').next().unwrap().to_owned(), url };
            let back = scene.approve(&flow).await;
            assert_eq!(finish(&scene.server, &flow, &back).await.is(303).header("location"), "/overview", "{path}");
        }
        for path in ["/signing", "/assign", "/search?q=signin", "/overview#/signin", "/documentation/guides/single-sign-on/"] {
            Flow::of(&scene.server.post(SSO).json(&json!({"domain": DOMAIN, "redirect_to": path})).await);
        }
    }

    async fn a_body_is_read_as_strictly_as_any(setup: Setup) {
        let scene = scene(setup).await;
        for (body, pointers) in [
            (json!({}), vec!["/domain"]),
            (json!({"domain": null}), vec!["/domain"]),
            (json!({"domain": 7}), vec!["/domain"]),
            (json!({"domain": ""}), vec!["/domain"]),
            (json!({"domain": "ann@acme.test"}), vec!["/domain"]),
            (json!({"domain": "https://acme.test"}), vec!["/domain"]),
            (json!({"domain": "acme.test/"}), vec!["/domain"]),
            (json!({"domain": "acme.test'--"}), vec!["/domain"]),
            (json!({"domain": format!("{}.test", "a".repeat(300))}), vec!["/domain"]),
            (json!({"domain": DOMAIN, "email": "ann@acme.test"}), vec!["/email"]),
            (json!({"domain": DOMAIN, "issuer": "https://evil.test"}), vec!["/issuer"]),
            (json!({"domain": "", "redirect_to": "//evil.test"}), vec!["/domain", "/redirect_to"]),
        ] {
            assert_eq!(scene.server.post(SSO).json(&body).await.pointers(), pointers, "{body}");
        }
        scene.server.post(SSO).body("{}").await.problem("unsupported_media_type");
        let cut = scene.server.post(SSO).header("content-type", "application/json").body("{\"domain\": ").await;
        cut.problem("malformed_json");
        scene.server.post(format!("{SSO}?domain={DOMAIN}")).json(&json!({"domain": DOMAIN})).await.problem("unknown_parameter");
        assert_eq!(scene.server.get(SSO).await.problem("method_not_allowed")["status"], 405);
    }

    async fn what_there_is_no_sign_on_for_looks_alike(setup: Setup) {
        let scene = scene(setup).await;
        let hidden = hide(&scene).await;
        let unknown = begin(&scene.server, HIDDEN[0]).await;
        unknown.problem("sso_not_available");
        assert_eq!(set_cookies(&unknown), [""; 0]);
        for domain in HIDDEN {
            let answer = begin(&scene.server, domain).await;
            assert_eq!(told(&answer), told(&unknown), "{domain}");
            // Where it would lead is looked at in the same way.
            let body = json!({"domain": domain, "redirect_to": "//evil.test"});
            assert_eq!(scene.server.post(SSO).json(&body).await.pointers(), ["/redirect_to"]);
        }
        assert_eq!(hidden.asked_in_all(), 0, "nobody asks a provider for them");
    }

    /// To the statement, so that one more read for one of them is found out.
    async fn and_asks_the_database_alike(setup: Setup) {
        let scene = scene(setup).await;
        let _hidden = hide(&scene).await;
        let mut asked: BTreeMap<&str, u64> = BTreeMap::new();
        for domain in HIDDEN {
            let before = scene.server.statements();
            begin(&scene.server, domain).await;
            asked.insert(domain, scene.server.statements() - before);
        }
        assert!(asked.values().all(|count| *count > 0 && *count == asked[HIDDEN[0]]), "{asked:?}");
    }

    /// Each in turn, and compared by their medians. The first is asked for twice: as much as it differs from itself, and half of
    /// its time, is no news; another kind of work is, such as asking a provider.
    async fn and_takes_alike_long(setup: Setup) {
        let scene = scene(setup).await;
        let hidden = hide(&scene).await;
        let domains = [HIDDEN[0], HIDDEN[0], HIDDEN[1], HIDDEN[2]];
        let mut times = vec![Vec::new(); domains.len()];
        for round in 0..ROUNDS {
            for turn in 0..domains.len() {
                // Forth and back, so that nobody is always the first, or behind the same one.
                let at = if round % 2 == 0 { turn } else { domains.len() - 1 - turn };
                let started = Instant::now();
                begin(&scene.server, domains[at]).await.is(404);
                times[at].push(started.elapsed());
            }
        }
        let medians: Vec<Duration> = times.into_iter().map(median).collect();
        let allowed = medians[0].abs_diff(medians[1]) * SPREADS + medians[0] / 2;
        assert!(medians.iter().all(|time| time.abs_diff(medians[0]) <= allowed), "{medians:?}, where {allowed:?} are allowed");
        assert_eq!(hidden.asked_in_all(), 0);
    }

    async fn it_takes_no_idempotency_key(setup: Setup) {
        let scene = scene(setup).await;
        for domain in [DOMAIN, HIDDEN[0]] {
            let call = scene.server.post(SSO).idempotency_key("again");
            let answer = call.json(&json!({"domain": domain})).await;
            answer.problem("invalid_header");
            assert_eq!(set_cookies(&answer), [""; 0]);
        }
        assert_eq!(scene.idp.asked_in_all(), 0);
    }

    async fn another_site_cannot_begin_it(setup: Setup) {
        let scene = scene(setup).await;
        let base = scene.server.base_url().to_owned();
        for cookie in [None, Some(&scene.acme.admin)] {
            let attempt = async |name: &str, value: &str| {
                let call = scene.server.post(SSO).header(name, value).json(&json!({"domain": DOMAIN}));
                if let Some(cookie) = cookie { call.cookie(cookie).await } else { call.await }
            };
            for (name, value) in [
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
                ("origin", "https://evil.test"),
                ("origin", "null"),
            ] {
                let answer = attempt(name, value).await;
                answer.problem("csrf_rejected");
                assert_eq!(set_cookies(&answer), [""; 0]);
            }
            for (name, value) in [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none"), ("origin", base.as_str())] {
                Flow::of(&attempt(name, value).await);
            }
        }
    }

    async fn whoever_types_their_address_does_not_type_it_twice(setup: Setup) {
        let scene = scene(setup).await;
        let form = scene.server.post("/signin").header("content-type", "application/x-www-form-urlencoded");
        let page = form.body("email=+Ann%2Bit%40Acme.test").header("sec-fetch-site", "same-origin").await;
        let url = page.is(303).header("location").to_owned();
        let flow = Flow { cookie: set_cookies(&page)[0].split(';').next().unwrap().to_owned(), url };
        assert_eq!(flow.asks("login_hint"), "Ann+it@Acme.test");
        let back = scene.approve(&flow).await;
        finish(&scene.server, &flow, &back).await.is(303);
        assert_eq!(scene.begin().await.asks("login_hint"), "", "nobody has said who they are");
    }

    async fn a_session_that_is_over_is_no_hindrance(setup: Setup) {
        let scene = scene(setup).await;
        let old = scene.signed_on().await;
        scene.server.delete(SESSION).cookie(&old).await.is(204);
        for cookie in [old.as_str(), "session=nonsense", "session="] {
            let call = scene.server.post(SSO).cookie(cookie);
            let flow = Flow::of(&call.json(&json!({"domain": DOMAIN})).await);
            let back = scene.approve(&flow).await;
            let both = format!("{cookie}; {}", flow.cookie);
            scene.server.get(target(&back)).cookie(&both).await.is(303);
        }
    }

    async fn guessing_has_the_budget_of_failing(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::AuthFailures, 3);
        let server = setup.start().await;
        for left in [2, 1, 0] {
            let answer = begin(&server, HIDDEN[0]).await;
            answer.problem("sso_not_available");
            assert_eq!(answer.remaining(), ("auth_failures".to_owned(), left));
        }
        begin(&server, HIDDEN[0]).await.problem("rate_limited");
    }
}
