//! What a browser is shown when it is refused at a page or a form, and what programs are told there.

use axum::response::Response;
use kernel::base::{Error, Result};
use kernel::http::Api;

use super::forms::{SIGNOUT, send};
use super::*;

const CALLBACK: &str = "/internal/auth/sso/callback";
const DOCUMENT: &str = "/api/openapi.json";
const INGEST: &str = "/internal/ingest/inventory";
const BROKEN: &str = "/broken";
/// Pages that anybody may look at, or try to.
const OPEN: [&str; 6] = ["/", RATE_LIMITS, DOCUMENTATION, STATUS, SIGNIN, OVERVIEW];

async fn broken() -> Result<Response> {
    Err(Error::internal("hunter2"))
}

fn with_broken_page(api: Api) -> Api {
    api.add_page(BROKEN, RatePolicy::Public, broken)
}

fn varies_by_accept(answer: &Answer) -> bool {
    answer.headers.get_all("vary").iter().any(|value| value == "accept")
}

/// The text of a page that is the refusal with this status and title, and leads back to there.
#[track_caller]
fn page(answer: &Answer, status: u16, title: &str, back: &str) -> String {
    let page = html(answer.is(status));
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(answer.header("referrer-policy"), "no-referrer");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert!(varies_by_accept(answer), "{:?}", answer.headers);
    let policy = answer.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; ") && policy.contains("frame-ancestors 'none'"), "{policy}");
    for part in [
        format!("<title>{title} – Tenant Control</title>"),
        format!("<h1>{title}</h1>"),
        format!("<a href=\"{back}\">Back</a>"),
        format!("<code>{}</code>", answer.header("x-request-id")),
        "<nav aria-label=".to_owned(),
    ] {
        assert!(page.contains(&part), "{part} in {page}");
    }
    assert!(!page.contains("<script"), "{page}");
    page
}

over_http! {
    async fn who_asks_too_often_is_told_when_to_come_back(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Public, 1);
        let server = setup.start().await;
        server.get("/").await.is(200);
        // The sign-in form is shown to whoever has to sign in.
        for path in OPEN.into_iter().filter(|path| *path != SIGNIN) {
            let answer = server.get(path).header("accept", BROWSER).await;
            let shown = page(&answer, 429, "Too many requests", path);
            assert_eq!(answer.header("retry-after"), "60");
            assert!(shown.contains("public requests a minute") && shown.contains("Try again in 60 seconds."), "{shown}");
            let told = server.get(path).await;
            told.problem("rate_limited");
            assert!(varies_by_accept(&told), "{:?}", told.headers);
        }
        let guide = server.get("/documentation/guides/tickets/").header("accept", BROWSER).await;
        page(&guide, 429, "Too many requests", "/documentation/guides/");
        server.advance(59_000);
        let answer = server.head("/").header("accept", BROWSER).await;
        assert_eq!(answer.is(429).header("retry-after"), "1");
        assert!(answer.body.is_empty());
    }

    async fn a_sign_on_that_comes_back_too_often_is_told_so(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::AuthFailures, 1);
        let server = setup.start().await;
        let target = format!("{CALLBACK}?code=a&state=b");
        server.get(&target).header("accept", BROWSER).await.is(400);
        page(&server.get(&target).header("accept", BROWSER).await, 429, "Too many requests", SIGNIN);
        server.get(&target).await.problem("rate_limited");
        let form = send(&server, SIGNIN, "email=ann%40nowhere.test").header("accept", BROWSER).await;
        page(&form, 429, "Too many requests", SIGNIN);
    }

    async fn a_form_of_another_site_is_refused_with_a_page(server: Server) {
        for (form, back) in [(SIGNIN, SIGNIN), (SIGNOUT, OVERVIEW)] {
            let sent = || send(&server, form, "email=ann%40nowhere.test").header("sec-fetch-site", "cross-site");
            let shown = page(&sent().header("accept", BROWSER).await, 403, "Refused as a cross-site request", back);
            assert!(shown.contains("Open the page again, and go on from there."), "{shown}");
            sent().await.problem("csrf_rejected");
        }
    }

    async fn a_form_that_cannot_be_read_is_refused_with_a_page(server: Server) {
        let long = send(&server, SIGNIN, &format!("email={}", "a".repeat(8 * 1024))).header("accept", BROWSER).await;
        page(&long, 413, "The body is too large", SIGNIN);
        let json = server.post(SIGNIN).json(&json!({"email": "ann@acme.test"})).header("accept", BROWSER).await;
        page(&json, 415, "The body's type is not supported", SIGNIN);
    }

    async fn a_method_that_a_page_has_not_is_refused_with_a_page(server: Server) {
        for (call, allowed, back) in [
            (server.put(SIGNIN), "POST", SIGNIN),
            (server.get(SIGNOUT), "POST", OVERVIEW),
            (server.post(STATUS), "GET", STATUS),
            (server.post(RATE_LIMITS), "GET", RATE_LIMITS),
            (server.delete(OVERVIEW), "GET", OVERVIEW),
        ] {
            let answer = call.header("accept", BROWSER).await;
            page(&answer, 405, "Method not allowed", back);
            assert!(answer.header("allow").contains(allowed), "{:?}", answer.headers);
        }
        server.post(STATUS).await.problem("method_not_allowed");
    }

    async fn two_credentials_on_a_page_are_refused_with_a_page(server: Server) {
        let acme = server.tenant("acme").await;
        let call = || server.get(OVERVIEW).cookie(&acme.admin).key("abc");
        page(&call().header("accept", BROWSER).await, 400, "More than one credential", OVERVIEW);
        call().await.problem("ambiguous_credentials");
    }

    async fn a_session_that_asks_too_often_is_told_so_on_the_page(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Read, 1);
        let server = setup.start().await;
        let admin = server.tenant("acme").await.admin;
        server.get(OVERVIEW).cookie(&admin).await.is(200);
        page(&server.get(OVERVIEW).cookie(&admin).header("accept", BROWSER).await, 429, "Too many requests", OVERVIEW);
    }

    async fn a_fault_of_ours_tells_nothing_of_the_inside(setup: Setup) {
        let mut setup = setup;
        setup.mount = with_broken_page;
        let server = setup.start().await;
        let shown = page(&server.get(BROKEN).header("accept", BROWSER).await, 500, "Something went wrong on our side", BROKEN);
        assert!(shown.contains("with the request id") && !shown.contains("hunter2"), "{shown}");
        let told = server.get(BROKEN).await;
        assert_eq!((told.is(500).header("content-type"), &told.json()["code"]), ("application/problem+json", &json!("internal")));
    }

    async fn a_service_with_too_much_to_do_says_so_on_its_pages(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 0;
        let server = setup.start().await;
        for path in OPEN {
            let answer = server.get(path).header("accept", BROWSER).await;
            let shown = page(&answer, 503, "Temporarily unavailable", path);
            let seconds = answer.header("retry-after");
            assert!(shown.contains(&format!("Try again in {seconds} second")), "{shown}");
            server.get(path).await.problem("unavailable");
        }
        // Where there is nothing, there is nothing to go back to, and nobody is sent to an address that a stranger made up.
        let nowhere = html(server.get("//evil.test/x").header("accept", BROWSER).await.is(503));
        assert!(nowhere.contains("<h1>Temporarily unavailable</h1>") && !nowhere.contains("evil"), "{nowhere}");
        server.get(DOCUMENT).header("accept", BROWSER).await.problem("unavailable");
    }

    async fn programs_are_never_shown_a_page(server: Server) {
        let acme = server.tenant("acme").await;
        server.get(KEYS).header("accept", BROWSER).await.problem("unauthenticated");
        server.patch(KEYS).header("accept", BROWSER).await.problem("method_not_allowed");
        server.get(format!("{KEYS}?x=1")).cookie(&acme.admin).header("accept", BROWSER).await.problem("unknown_parameter");
        let elsewhere = server.post(KEYS).cookie(&acme.admin).header("sec-fetch-site", "cross-site");
        elsewhere.header("accept", BROWSER).await.problem("csrf_rejected");
        server.post("/api/auth/sso").json(&json!({})).header("accept", BROWSER).await.problem("invalid_fields");
        for answer in [
            server.post(INGEST).header("accept", BROWSER).await,
            server.delete(INGEST).header("accept", BROWSER).await,
            server.post("/healthz").header("accept", BROWSER).await,
        ] {
            assert!((400..500).contains(&answer.status), "{}", answer.status);
            assert!(!answer.header("content-type").starts_with("text/html"), "{:?}", answer.headers);
            assert!(!varies_by_accept(&answer), "{:?}", answer.headers);
        }
    }

    async fn on_a_page_who_does_not_ask_for_html_is_told_the_problem(server: Server) {
        for accept in ["*/*", "application/json", "application/problem+json", "text/html, application/json", "image/png"] {
            server.put(SIGNIN).header("accept", accept).await.problem("method_not_allowed");
        }
    }
}
