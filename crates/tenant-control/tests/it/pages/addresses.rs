//! A page is found whether or not its address was given with a slash at the end.

use super::*;

const NAMED: [&str; 8] =
    [RATE_LIMITS, DOCUMENTATION, ERRORS, CHANGELOG, STATUS, SIGNIN, OVERVIEW, "/documentation/guides/tickets/"];

/// The same address, as people mistype it.
fn mistyped(page: &str) -> String {
    page.strip_suffix('/').map_or_else(|| format!("{page}/"), str::to_owned)
}

over_http! {
    async fn a_slash_too_many_or_too_few_leads_to_the_page(server: Server) {
        for page in NAMED {
            for query in ["", "?a=b&c=%2F", "?token=abc"] {
                let target = mistyped(page) + query;
                for answer in [server.get(&target).await, server.head(&target).await] {
                    assert_eq!(answer.is(308).header("location"), format!("{page}{query}"));
                    assert_eq!(answer.header("referrer-policy"), "no-referrer");
                    assert_eq!(answer.header("cache-control"), "no-store");
                    assert!(answer.body.is_empty(), "{target}");
                }
            }
        }
    }

    async fn only_who_reads_is_led_on(server: Server) {
        for page in NAMED {
            server.post(mistyped(page)).await.problem("not_found");
        }
        server.delete("/status").await.problem("not_found");
    }

    async fn what_is_no_page_is_named_exactly(server: Server) {
        for path in [
            "/api/openapi.json/", "/api/admin/api-keys/", "/api/auth/session/", "/internal/ingest/inventory/", "/signout/",
            "/healthz/", "/assets/style.css/", "/state", "/nowhere/", "//status",
        ] {
            server.get(path).await.problem("not_found");
        }
        let document = server.get("/api/openapi.json").await.ok(200);
        let paths = document["paths"].as_object().unwrap();
        assert!(paths.keys().all(|path| !path.starts_with("/api/rate-limits")), "{paths:?}");
    }

    async fn being_led_on_is_charged_to_the_address(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Public, 1);
        let server = setup.start().await;
        server.get("/status").await.is(308);
        server.get("/status").await.problem("rate_limited");
        server.get("/signin/?token=abc").await.problem("rate_limited");
    }
}
