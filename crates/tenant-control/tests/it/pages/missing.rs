//! What there is where there is nothing: a page for people, and a problem for programs.

use super::*;

over_http! {
    async fn a_browser_is_shown_a_page(server: Server) {
        for path in ["/nowhere", "/documentation/nowhere", "/status/x", "/apiary", "/%3Cscript%3E"] {
            let answer = server.get(path).header("accept", BROWSER).await;
            let page = html(answer.is(404));
            assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
            assert_eq!(answer.header("referrer-policy"), "no-referrer");
            assert_eq!(answer.header("cache-control"), "no-store");
            assert!(answer.header("content-security-policy").starts_with("default-src 'none'; "));
            assert_eq!(answer.header("vary"), "accept");
            assert!(page.contains(&format!("<code>{}</code>", answer.header("x-request-id"))), "{page}");
            assert!(page.contains("<h1>Page not found</h1>") && page.contains("<nav aria-label="), "{page}");
            assert!(!page.contains("<script>") && !page.contains("aria-current"), "{page}");
        }
        let head = server.head("/nowhere").header("accept", BROWSER).await;
        assert!(head.is(404).body.is_empty());
    }

    async fn programs_get_a_problem(server: Server) {
        for accept in ["*/*", "application/json", "application/json, text/html;q=0.9", "text/html, application/json"] {
            server.get("/nowhere").header("accept", accept).await.problem("not_found");
        }
        for path in ["/api/nowhere", "/internal/nowhere", "/api/"] {
            server.get(path).header("accept", BROWSER).await.problem("not_found");
        }
    }

    async fn both_are_charged_to_the_address(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Public, 2);
        let server = setup.start().await;
        server.get("/nowhere").header("accept", BROWSER).await.is(404);
        server.get("/nowhere").await.problem("not_found");
        let refused = server.get("/nowhere").header("accept", BROWSER).await;
        assert!(html(refused.is(429)).contains("<h1>Too many requests</h1>"));
        server.get("/nowhere").await.problem("rate_limited");
    }
}
