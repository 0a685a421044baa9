//! Forms, which work without scripts: signing in with an e-mail address, and signing out.

use super::*;
use crate::support::call::Call;

pub const SIGNOUT: &str = "/signout";
const UNKNOWN: &str = "No sign-on is set up for this address. Ask your administrator, or use a sign-in link.";

/// What a browser sends when a form of ours is submitted.
pub fn send<'a>(server: &'a Server, path: &str, fields: &str) -> Call<'a> {
    server.post(path).header("content-type", "application/x-www-form-urlencoded").body(fields)
}

over_http! {
    async fn the_sign_in_page_asks_for_a_work_email(server: Server) {
        let page = html(server.get(SIGNIN).await.is(200));
        assert!(page.contains("<form method=\"post\" action=\"/signin\""), "{page}");
        for part in ["<label for=\"email\">", "type=\"email\"", " required", "autocomplete=\"username\"", "value=\"\""] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("aria-invalid") && !page.contains("redirect_to") && !page.contains("role=\"alert\""));
        server.head(SIGNIN).await.is(200);
    }

    async fn where_somebody_came_from_is_kept_if_it_is_ours(server: Server) {
        let page = html(&server.get("/signin?redirect_to=%2Foverview%3Fa%3Db%26c").await);
        assert!(page.contains("name=\"redirect_to\" value=\"/overview?a=b&c\""), "{page}");
        for elsewhere in ["https%3A%2F%2Fevil.test", "%2F%2Fevil.test", "%2F%5Cevil.test", "%2F%22evil", "overview", "", "%2Fsignin%3Ftoken%3Devil"] {
            let page = html(server.get(format!("/signin?redirect_to={elsewhere}")).await.is(200));
            assert!(!page.contains("redirect_to") && !page.contains("evil"), "{elsewhere}");
        }
        let again = send(&server, SIGNIN, "email=ann%40nowhere.test&redirect_to=%2Foverview").await;
        assert!(html(&again).contains("name=\"redirect_to\" value=\"/overview\""));
        let forged = send(&server, SIGNIN, "email=ann%40nowhere.test&redirect_to=%2F%2Fevil.test").await;
        assert!(!html(forged.is(404)).contains("evil"));
    }

    async fn every_address_without_a_sign_on_is_told_the_same(server: Server) {
        server.tenant("acme").await;
        let mut told = Vec::new();
        for email in ["ann@acme.test", "ann@nowhere.test"] {
            let answer = send(&server, SIGNIN, &format!("email={}", email.replace('@', "%40"))).await;
            let page = html(answer.is(404));
            assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
            assert!(!answer.headers.contains_key("set-cookie") && !answer.headers.contains_key("location"));
            assert!(page.contains(&format!("value=\"{email}\"")) && page.contains("<title>Problem: Sign in"), "{page}");
            assert!(page.contains(UNKNOWN), "{page}");
            told.push(page.replace(email, ""));
        }
        assert_eq!(told[0], told[1]);
    }

    async fn what_is_no_address_is_told_at_the_field(server: Server) {
        for fields in ["", "email=", "email=ann", "email=a%40b%40c", "email=%zz", "other=1", "email=%22%3E%3Cb%3E%40"] {
            let answer = send(&server, SIGNIN, fields).await;
            let page = html(answer.is(422));
            for part in ["aria-invalid=\"true\"", "aria-describedby=\"email-hint email-problem\"", "id=\"email-problem\" role=\"alert\""] {
                assert!(page.contains(part), "{part} in {page}");
            }
            let raw = String::from_utf8(answer.body).unwrap();
            assert!(!raw.contains("<b>"), "{raw}");
        }
    }

    async fn a_form_is_small_and_sent_as_browsers_do(server: Server) {
        // As an address takes whose every byte is written as three.
        let full = format!("email={}%40nowhere.test&redirect_to=%2F{}", "%61".repeat(60), "%61".repeat(1_999));
        send(&server, SIGNIN, &full).await.is(404);
        let long = format!("email={}", "a".repeat(8 * 1024));
        send(&server, SIGNIN, &long).await.problem("payload_too_large");
        server.post(SIGNIN).json(&json!({"email": "ann@acme.test"})).await.problem("unsupported_media_type");
        server.post(SIGNIN).body("email=ann%40acme.test").await.problem("unsupported_media_type");
        let answer = server.put(SIGNIN).await;
        answer.problem("method_not_allowed");
        assert!(answer.header("allow").contains("POST") && answer.header("allow").contains("GET"));
    }

    async fn forms_of_other_sites_are_refused(server: Server) {
        let acme = server.tenant("acme").await;
        let base = server.base_url().to_owned();
        for (name, value) in [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "https://evil.test"), ("origin", "null")] {
            send(&server, SIGNIN, "email=ann%40nowhere.test").header(name, value).await.problem("csrf_rejected");
            send(&server, SIGNOUT, "").cookie(&acme.admin).header(name, value).await.problem("csrf_rejected");
            // Browsers leave the cookie out of it, and must not be told to forget it.
            let answer = send(&server, SIGNOUT, "").header(name, value).await;
            answer.problem("csrf_rejected");
            assert!(!answer.headers.contains_key("set-cookie"));
        }
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        for (name, value) in [("sec-fetch-site", "same-origin"), ("origin", base.as_str())] {
            send(&server, SIGNIN, "email=ann%40nowhere.test").header(name, value).await.is(404);
        }
    }

    async fn trying_addresses_has_the_budget_of_failing(server: Server) {
        for _ in 0..20 {
            send(&server, SIGNIN, "email=ann%40nowhere.test").await.is(404);
        }
        send(&server, SIGNIN, "email=ann%40nowhere.test").await.problem("rate_limited");
        server.get("/").await.is(200);
    }

    async fn signing_out_needs_no_script(server: Server) {
        let acme = server.tenant("acme").await;
        let overview = html(&server.get(OVERVIEW).cookie(&acme.admin).await);
        assert!(overview.contains("<form method=\"post\" action=\"/signout\">"), "{overview}");
        // The second time nobody is signed in any more.
        for _ in 0..2 {
            let answer = send(&server, SIGNOUT, "").cookie(&acme.admin).header("sec-fetch-site", "same-origin").await;
            assert_eq!(answer.is(303).header("location"), SIGNIN);
            assert_eq!(answer.header("set-cookie"), "session=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0");
            assert_eq!(answer.header("cache-control"), "no-store");
            server.get(SESSION).cookie(&acme.admin).await.problem("unauthenticated");
        }
    }

    async fn every_session_that_a_browser_has_is_over(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let cookies = format!("{}{}; {}", "session=nothing; ".repeat(20), acme.admin, globex.admin);
        assert_eq!(send(&server, SIGNOUT, "").header("cookie", &cookies).await.is(303).header("location"), SIGNIN);
        for one in [&acme.admin, &globex.admin] {
            server.get(SESSION).cookie(one).await.problem("unauthenticated");
        }
    }

    async fn who_signs_out_is_charged_once(server: Server) {
        send(&server, SIGNOUT, "").await.is(303);
        assert_eq!(server.get("/api/openapi.json").await.is(200).remaining(), ("public".to_owned(), 118));
    }

    async fn a_key_has_no_session_to_end(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        let answer = send(&server, SIGNOUT, "").key(&key.plain).await;
        assert_eq!(answer.is(303).header("location"), SIGNIN);
        server.get(SESSION).key(&key.plain).await.is(200);
        let answer = server.get(SIGNOUT).cookie(&acme.admin).await;
        answer.problem("method_not_allowed");
        assert_eq!(answer.header("allow"), "POST");
        server.get(SESSION).cookie(&acme.admin).await.is(200);
    }

    async fn under_https_a_form_leads_nowhere_without_it(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://control.example").unwrap();
        let server = setup.start().await;
        let page = server.get(SIGNIN).await;
        let policy = page.is(200).header("content-security-policy");
        assert!(policy.contains("form-action 'self' https:;"), "{policy}");
    }
}
