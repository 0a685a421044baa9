//! Rate limits: fixed minutes, whose budget is charged, what the headers say, and one budget on many nodes.

use kernel::auth::PlainKey;
use kernel::base::{MINUTE_MS, SECOND_MS};
use kernel::http::RatePolicy;
use reqwest::Method;
use serde_json::json;

use crate::support::people::{KEYS, SESSION};
use crate::support::{Answer, Server, Setup, over_http};

const DOCUMENT: &str = "/api/openapi.json";
const GUESSER: &str = "192.0.2.1";
const NEIGHBOUR: &str = "192.0.2.2";

fn limited(mut setup: Setup, limits: &[(RatePolicy, u64)]) -> Setup {
    for (policy, per_minute) in limits {
        setup.settings.rate_table.set(*policy, *per_minute);
    }
    setup
}

#[track_caller]
fn assert_headers(answer: &Answer, policy: &str, quota: u64) {
    let at = format!("{} {} {}", answer.method, answer.path, answer.status);
    assert_eq!(answer.header("ratelimit-policy"), format!("\"{policy}\";q={quota};w=60"), "{at}");
    assert_eq!(answer.remaining().0, policy, "{at}");
}

over_http! {
    async fn every_answer_under_api_tells_its_budget(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["api_keys:read"]).await;
        assert_headers(&server.get(KEYS).cookie(&acme.admin).await, "read", 1200);
        assert_headers(&server.head(KEYS).key(&key.plain).await, "read", 1200);
        assert_headers(&server.get(SESSION).key(&key.plain).await, "read", 1200);
        assert_headers(&server.get(format!("{KEYS}?nonsense=1")).key(&key.plain).await, "read", 1200);
        assert_headers(&server.get(format!("{KEYS}?id=nonsense")).key(&key.plain).await, "read", 1200);
        assert_headers(&server.post(KEYS).key(&key.plain).json(&json!({})).await, "write", 600);
        assert_headers(&server.post(KEYS).cookie(&acme.admin).json(&json!({})).await, "write", 600);
        assert_headers(&server.delete(KEYS).cookie(&acme.admin).header("sec-fetch-site", "cross-site").await, "write", 600);
        assert_headers(&server.get(DOCUMENT).await, "public", 120);
        assert_headers(&server.get("/api/rate-limits/").await, "public", 120);
        assert_headers(&server.get(KEYS).await, "public", 120);
        assert_headers(&server.get(KEYS).key("bad").header("x-api-key", "bad").await, "public", 120);
        assert_headers(&server.get("/api/nowhere").await, "public", 120);
        assert_headers(&server.call(Method::PATCH, KEYS).await, "public", 120);
        let outside = server.get("/healthz").await;
        assert!(!outside.headers.contains_key("ratelimit"), "not under /api/");
    }

    async fn a_shed_request_tells_its_budget_and_when_to_come_back(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 0;
        let server = setup.start().await;
        let answer = server.get(DOCUMENT).await;
        answer.problem("unavailable");
        assert_headers(&answer, "public", 120);
        assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
        for probe in ["/healthz", "/readyz"] {
            server.get(probe).await.is(200);
        }
    }

    async fn a_budget_is_used_up_and_returns_with_the_minute(setup: Setup) {
        let server = limited(setup, &[(RatePolicy::Read, 3)]).start().await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await.plain;
        server.advance(37 * SECOND_MS);
        for left in [2, 1, 0] {
            let answer = server.get(KEYS).key(&key).await;
            assert_eq!(answer.is(200).header("ratelimit"), format!("\"read\";r={left};t=23"));
        }
        for _ in 0..3 {
            let refused = server.get(KEYS).key(&key).await;
            refused.problem("rate_limited");
            assert_eq!((refused.header("ratelimit"), refused.header("retry-after")), ("\"read\";r=0;t=23", "23"));
            assert_headers(&refused, "read", 3);
        }
        // Writing is another budget.
        server.post(KEYS).key(&key).json(&json!({})).await.problem("invalid_fields");
        server.advance(22 * SECOND_MS + 999);
        let refused = server.get(KEYS).key(&key).await;
        refused.problem("rate_limited");
        assert_eq!(refused.header("retry-after"), "1");
        server.advance(1);
        assert_eq!(server.get(KEYS).key(&key).await.is(200).header("ratelimit"), "\"read\";r=2;t=60");
    }

    async fn each_key_and_session_has_its_own_and_the_tenant_five_times_that(setup: Setup) {
        let server = limited(setup, &[(RatePolicy::Read, 4)]).start().await;
        let acme = server.tenant("acme").await;
        let globex = server.tenant("globex").await;
        let mut keys = Vec::new();
        for _ in 0..6 {
            keys.push(server.key(&acme, &["*"]).await.plain);
        }
        for key in &keys[..4] {
            for left in [3, 2, 1, 0] {
                assert_eq!(server.get(SESSION).key(key).await.is(200).headers["ratelimit"], format!("\"read\";r={left};t=60").as_str());
            }
            server.get(SESSION).key(key).await.problem("rate_limited");
        }
        // 16 of the tenant's 20 are used; the smaller remainder is shown.
        assert_eq!(server.get(SESSION).key(&keys[4]).await.remaining().1, 3);
        assert_eq!(server.get(SESSION).cookie(&acme.admin).await.remaining().1, 2);
        assert_eq!(server.get(SESSION).key(&keys[5]).await.remaining().1, 1);
        assert_eq!(server.get(SESSION).key(&keys[5]).await.remaining().1, 0);
        let refused = server.get(SESSION).key(&keys[5]).await;
        assert!(refused.problem("rate_limited")["detail"].as_str().unwrap().to_lowercase().contains("tenant"));
        assert_headers(&refused, "read", 4);
        assert_eq!(server.get(SESSION).cookie(&globex.admin).await.is(200).headers["ratelimit"], "\"read\";r=3;t=60");
    }

    async fn a_request_that_is_refused_by_the_limit_costs_nothing(setup: Setup) {
        let server = limited(setup, &[(RatePolicy::Read, 2)]).start().await;
        let acme = server.tenant("acme").await;
        let (a, b) = (server.key(&acme, &["*"]).await.plain, server.key(&acme, &["*"]).await.plain);
        for _ in 0..20 {
            server.get(SESSION).key(&a).await;
        }
        // Had the refusals counted, the tenant's 10 would be gone.
        assert_eq!(server.get(SESSION).key(&b).await.is(200).headers["ratelimit"], "\"read\";r=1;t=60");
    }

    async fn what_is_refused_by_scope_or_syntax_is_charged(setup: Setup) {
        let server = limited(setup, &[(RatePolicy::Read, 3)]).start().await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["search:read"]).await.plain;
        assert_eq!(server.get(KEYS).key(&key).await.is(403).remaining().1, 2);
        assert_eq!(server.get(format!("{SESSION}?nonsense=1")).key(&key).await.is(400).remaining().1, 1);
        assert_eq!(server.head(SESSION).key(&key).await.is(200).remaining().1, 0);
        server.get(SESSION).key(&key).await.problem("rate_limited");
    }

    async fn guessing_is_charged_to_the_address_and_past_it_told_nothing(setup: Setup) {
        let server = limited(setup, &[(RatePolicy::Public, 5)]).start().await;
        let acme = server.tenant("acme").await;
        server.get(KEYS).await.problem("unauthenticated");
        server.get("/api/nowhere").await.problem("not_found");
        server.call(Method::PATCH, KEYS).await.problem("method_not_allowed");
        server.get(KEYS).key("a").key("b").await.problem("ambiguous_credentials");
        assert_eq!(server.get(DOCUMENT).await.is(200).headers["ratelimit"], "\"public\";r=0;t=60");
        for answer in [
            server.get(KEYS).await,
            server.get(KEYS).key("tck_nonsense").await,
            server.get("/api/nowhere").await,
            server.call(Method::PATCH, KEYS).await,
            server.get(DOCUMENT).await,
            server.get("/api/rate-limits/").await,
            server.get("/nowhere").await,
        ] {
            answer.problem("rate_limited");
        }
        // Those who are known are not harmed by what their neighbours do.
        server.get(KEYS).cookie(&acme.admin).await.is(200);
        server.get("/healthz").await.is(200);
        server.advance(MINUTE_MS);
        server.get(KEYS).await.problem("unauthenticated");
    }

    async fn guessing_past_the_budget_buys_few_look_ups(setup: Setup) {
        let mut setup = limited(setup, &[(RatePolicy::Public, 3)]);
        setup.settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let known = server.key(&acme, &["*"]).await;
        // Of these this node has heard nothing yet.
        let elsewhere = server.second_node().await;
        let (new, later) = (elsewhere.key(&acme, &["*"]).await, elsewhere.key(&acme, &["*"]).await);
        let from = |address: &str| server.get(SESSION).header("x-forwarded-for", address);
        let guess = |address: &str| from(address).key(&PlainKey::generate(&server.app.env.random).expose_secret());
        from(GUESSER).key(&known.plain).await.is(200);
        for _ in 0..3 {
            guess(GUESSER).await.problem("unauthenticated");
        }
        guess(GUESSER).await.problem("rate_limited");
        from(GUESSER).key(&new.plain).await.is(200);
        for _ in 0..20 {
            guess(GUESSER).await.problem("rate_limited");
            from(GUESSER).cookie("session=x").await.problem("rate_limited");
            // Who is known is served whatever others at the same address do.
            from(GUESSER).key(&known.plain).await.is(200);
            from(GUESSER).cookie(&acme.admin).await.is(200);
        }
        // Who is not is looked up a moment later, and at another address at once.
        from(GUESSER).key(&later.plain).await.problem("rate_limited");
        let neighbour = guess(NEIGHBOUR).await;
        neighbour.problem("unauthenticated");
        assert_eq!(neighbour.remaining().1, 2, "its budget is its own");
        server.advance(SECOND_MS);
        from(GUESSER).key(&later.plain).await.is(200);
        for _ in 0..20 {
            guess(GUESSER).await.problem("rate_limited");
        }
        // What is stored is learnt from time to time.
        let last = elsewhere.key(&acme, &["*"]).await;
        from(GUESSER).key(&last.plain).await.problem("rate_limited");
        server.app.credentials.load_known(&server.app.store).await.unwrap();
        from(GUESSER).key(&last.plain).await.is(200);
        guess(GUESSER).await.problem("rate_limited");
        // A read of a store that is closed is 503: here is none, and there is one.
        server.app.store.close().await;
        guess(GUESSER).await.problem("rate_limited");
        from(GUESSER).cookie("session=x").await.problem("rate_limited");
        guess(NEIGHBOUR).await.problem("unavailable");
    }

    async fn the_address_is_what_a_trusted_proxy_says(setup: Setup) {
        let mut setup = limited(setup, &[(RatePolicy::Public, 2)]);
        setup.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        let server = setup.start().await;
        let from = |chain: &str| server.get(DOCUMENT).header("x-forwarded-for", chain);
        assert_eq!(from("192.0.2.1").await.remaining().1, 1);
        assert_eq!(from("192.0.2.1").await.remaining().1, 0);
        from("192.0.2.1").await.problem("rate_limited");
        // The first from the right that is no proxy; what stands left of it is the client's own claim.
        from("198.51.100.9, 192.0.2.1").await.problem("rate_limited");
        from("192.0.2.1, 10.1.2.3").await.problem("rate_limited");
        from("192.0.2.1:4711").await.problem("rate_limited");
        assert_eq!(from("192.0.2.1, 192.0.2.2").await.remaining().1, 1);
        // IPv6 counts by /64.
        assert_eq!(from("2001:db8:0:1::1").await.remaining().1, 1);
        assert_eq!(from("2001:db8:0:1:ffff::2").await.remaining().1, 0);
        assert_eq!(from("2001:db8:0:2::1").await.remaining().1, 1);
        // An unparsable one means the peer, and so does none.
        assert_eq!(from("192.0.2.77, nonsense").await.remaining().1, 1);
        assert_eq!(server.get(DOCUMENT).await.remaining().1, 0);
    }

    async fn a_stranger_cannot_choose_its_address(setup: Setup) {
        let server = limited(setup, &[(RatePolicy::Public, 2)]).start().await;
        for n in 1..=2 {
            server.get(DOCUMENT).header("x-forwarded-for", format!("192.0.2.{n}")).await.is(200);
        }
        server.get(DOCUMENT).header("x-forwarded-for", "192.0.2.3").await.problem("rate_limited");
    }

    async fn the_address_behind_a_proxy_decides_where_a_key_works(setup: Setup) {
        let mut setup = setup;
        setup.settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Office", "scopes": ["*"], "allowed_cidrs": ["192.0.2.0/24", "2001:db8::/32"]});
        let key = server.key_with(&acme, &body).await.plain;
        let from = |address: &str| server.get(SESSION).key(&key).header("x-forwarded-for", address);
        from("192.0.2.200").await.is(200);
        from("2001:db8::7").await.is(200);
        from("192.0.3.1").await.problem("address_not_allowed");
        server.get(SESSION).key(&key).await.problem("address_not_allowed");
    }

    async fn failing_to_sign_in_has_a_budget_of_its_own(setup: Setup) {
        let server = limited(setup, &[(RatePolicy::AuthFailures, 2)]).start().await;
        for _ in 0..2 {
            assert_ne!(server.get("/signin?token=guess").await.status, 429);
        }
        server.get("/signin?token=guess").await.problem("rate_limited");
        server.get(DOCUMENT).await.is(200);
    }

    async fn the_static_files_of_pages_do_not_count(setup: Setup) {
        let server = limited(setup, &[(RatePolicy::Public, 1)]).start().await;
        for _ in 0..5 {
            assert_ne!(server.get("/assets/style.css").await.status, 429);
        }
        server.get(DOCUMENT).await.is(200);
    }

    async fn a_request_that_takes_too_long_is_given_up(setup: Setup) {
        let mut setup = setup;
        setup.settings.request_timeout = std::time::Duration::from_millis(100);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let held = server.hold_writes(acme.tenant.id).await;
        let late = server.post(KEYS).cookie(&acme.admin).json(&json!({"name": "A", "scopes": ["*"]})).await;
        late.problem("unavailable");
        assert!(late.headers.contains_key("ratelimit"));
        drop(held);
    }

    async fn more_at_once_than_the_node_takes_are_shed(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 1;
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let held = server.hold_writes(acme.tenant.id).await;
        let body = json!({"name": "A", "scopes": ["*"]});
        let call = || std::future::IntoFuture::into_future(server.post(KEYS).cookie(&acme.admin).json(&body));
        let (early, late) = futures_util::future::select(call(), call()).await.factor_first();
        early.problem("unavailable");
        server.get("/healthz").await.is(200);
        drop(held);
        late.await.is(201);
        server.get(KEYS).cookie(&acme.admin).await.is(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_several_nodes_the_budget_is_one() {
    let setup = limited(Setup::postgres().await, &[(RatePolicy::Read, 10), (RatePolicy::Public, 6)]);
    let first = setup.start().await;
    let second = first.second_node().await;
    let acme = first.tenant("acme").await;
    let key = first.key(&acme, &["*"]).await.plain;
    for _ in 0..4 {
        first.get(SESSION).key(&key).await.is(200);
    }
    for _ in 0..3 {
        second.get(SESSION).key(&key).await.is(200);
        second.get(DOCUMENT).await.is(200);
    }
    exchange(&[&first, &second]).await;
    assert_eq!(first.get(SESSION).key(&key).await.remaining().1, 2);
    exchange(&[&first, &second]).await;
    assert_eq!(second.get(SESSION).key(&key).await.remaining().1, 1);
    assert_eq!(first.get(DOCUMENT).await.remaining().1, 2, "addresses are counted across nodes as well");
    exchange(&[&first, &second]).await;
    first.get(SESSION).key(&key).await.is(200);
    exchange(&[&first, &second]).await;
    for node in [&first, &second] {
        node.get(SESSION).key(&key).await.problem("rate_limited");
    }
    first.advance(MINUTE_MS);
    exchange(&[&first, &second]).await;
    assert_eq!(second.get(SESSION).key(&key).await.is(200).remaining().1, 9, "a new minute on every node");
}

/// Each node reports, then each reads: what the running service does every second.
async fn exchange(nodes: &[&Server]) {
    for node in nodes.iter().chain(nodes) {
        kernel::jobs::exchange_rate_counts(&node.app).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_revocation_is_in_force_at_once_here_and_within_a_second_elsewhere() {
    // The other node is asked as fast as it answers.
    let first = limited(Setup::postgres().await, &[(RatePolicy::Read, 1_000_000)]).start().await;
    let second = first.second_node().await;
    let acme = first.tenant("acme").await;
    let key = first.key(&acme, &["*"]).await;
    for node in [&first, &second] {
        node.get(SESSION).key(&key.plain).await.is(200);
    }
    first.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
    let revoked = std::time::Instant::now();
    first.get(SESSION).key(&key.plain).await.problem("unauthenticated");
    loop {
        let asked = revoked.elapsed();
        if second.get(SESSION).key(&key.plain).await.status != 200 {
            break;
        }
        assert!(asked < std::time::Duration::from_secs(1), "the other node still lets it in");
    }
    second.get(SESSION).key(&key.plain).await.problem("unauthenticated");
}
