//! The one-time link that signs a browser in: its page says whom, and its button does it.

use kernel::auth::create_signin_link;
use tenant_control::features::pages::REDEEM_PATH;
use tenant_control::features::users::create_user;

use super::*;
use crate::support::people::AUDIT;

/// A link for a user of the tenant, as a path with its token.
async fn link(server: &Server, tenancy: &Tenancy) -> String {
    let new = NewUser { email: "ann@acme.test".to_owned(), name: None, role: Role::Viewer, platform_operator: false };
    let ann = match find_user(&server.app.store, &tenancy.tenant, &new.email).await.unwrap() {
        Some(user) => user,
        None => create_user(&server.app.store, &tenancy.tenant, new).await.unwrap(),
    };
    let token = create_signin_link(&server.app.store, tenancy.tenant.id, ann.id).await.unwrap();
    format!("/signin?token={}", token.expose_secret())
}

over_http! {
    async fn a_link_shows_whom_it_signs_in_and_its_button_does(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        let (_, token) = link.split_once('=').unwrap();
        let page = server.get(&link).await;
        assert_eq!(page.is(200).header("content-type"), "text/html; charset=utf-8");
        assert_eq!((page.header("cache-control"), page.header("referrer-policy")), ("no-store", "strict-origin"));
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("form-action 'self';"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !page.headers.contains_key("set-cookie"), "{policy}");
        let shown = String::from_utf8(page.body).unwrap();
        for part in ["Continue as ann@acme.test</button>", "<dd>ACME</dd>", "<dd>ann</dd>", "2026-01-15 10:15 UTC"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(shown.contains(&format!("<form method=\"post\" action=\"{REDEEM_PATH}\">")), "{shown}");
        assert!(shown.contains(&format!("name=\"token\" value=\"{token}\"")), "{shown}");

        let answer = server.redeem(&link).await;
        answer.is(303);
        assert_eq!(answer.header("location"), "/overview");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        let (cookie, attributes) = answer.header("set-cookie").split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax");
        let session = server.get(SESSION).cookie(cookie).await.ok(200);
        assert_eq!(session["actor"]["email"], "ann@acme.test");
        for again in [server.get(&link).await, server.redeem(&link).await] {
            again.is(410);
            assert!(!again.headers.contains_key("set-cookie"));
            let page = String::from_utf8(again.body).unwrap();
            assert!(page.contains("<h1>This link does not work</h1>") && !page.contains(token), "{page}");
        }
        server.get(SESSION).cookie(cookie).await.is(200);
    }

    async fn whoever_looks_at_a_link_uses_nothing_up(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        let entries = async || server.get(format!("{AUDIT}?limit=200")).cookie(&acme.admin).await.ok(200)["data"].clone();
        let before = entries().await;
        // As chat programs, mail scanners and browsers do before a person does.
        for (name, value) in [("user-agent", "Slackbot-LinkExpanding 1.0"), ("sec-purpose", "prefetch"), ("purpose", "preview")] {
            assert!(!server.get(&link).header(name, value).await.is(200).headers.contains_key("set-cookie"));
            let head = server.head(&link).header(name, value).await;
            assert!(!head.is(200).headers.contains_key("set-cookie") && head.body.is_empty());
        }
        assert_eq!(entries().await, before);
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        server.redeem(&link).await.is(303);
    }

    async fn only_the_button_of_our_own_page_redeems(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        let (_, token) = link.split_once('=').unwrap();
        let send = || {
            let form = server.post(REDEEM_PATH).header("content-type", "application/x-www-form-urlencoded");
            form.body(format!("token={token}")).cookie(&acme.admin)
        };
        for (name, value) in
            [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "https://evil.test"), ("origin", "null")]
        {
            for answer in [send().header(name, value).await, server.post(&link).header(name, value).await] {
                answer.problem("csrf_rejected");
                assert!(!answer.headers.contains_key("set-cookie"), "{name}: {value}");
            }
        }
        server.get(format!("{REDEEM_PATH}?token={token}")).await.problem("method_not_allowed");
        server.post(REDEEM_PATH).json(&json!({"token": token})).await.problem("unsupported_media_type");
        server.post(format!("{REDEEM_PATH}?token={token}")).header("content-type", "application/x-www-form-urlencoded")
            .body("").await.is(410);
        // The session that the browser has goes on, and the link is as good as it was.
        server.get(SESSION).cookie(&acme.admin).await.is(200);
        let base = server.base_url().to_owned();
        send().header("origin", &base).await.is(303);
    }

    async fn a_program_posts_to_the_link_itself(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Auth, 1);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        // What others at the address have begun is no matter.
        server.post("/signin").header("content-type", "application/x-www-form-urlencoded").body("email=x").await.is(422);
        server.post("/signin").header("content-type", "application/x-www-form-urlencoded").body("email=x").await.is(429);
        let link = link(&server, &acme).await;
        let answer = server.post(&link).await;
        assert_eq!(answer.is(303).header("location"), "/overview");
        let (cookie, _) = answer.header("set-cookie").split_once("; ").unwrap();
        assert_eq!(server.get(SESSION).cookie(cookie).await.ok(200)["actor"]["email"], "ann@acme.test");
        server.post(&link).await.is(410);
    }

    async fn the_form_is_shown_whatever_others_at_the_address_have_spent(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Public, 1);
        let server = setup.start().await;
        server.get("/").await.is(200);
        server.get("/").await.is(429);
        for _ in 0..3 {
            assert!(String::from_utf8(server.get("/signin").await.is(200).body.clone()).unwrap().contains("<form"));
        }
    }

    async fn the_session_that_the_browser_had_is_over_whosever_it_was(server: Server) {
        let acme = server.tenant("acme").await;
        let globex = server.tenant("globex").await;
        let elsewhere = server.user(&globex.tenant, Role::Viewer).await;
        for old in [&globex.admin, &acme.admin] {
            let link = link(&server, &acme).await;
            server.get(&link).cookie(old).await.is(200);
            server.get(SESSION).cookie(old).await.is(200);
            let answer = server.redeem(&link).cookie(old).await;
            let new = answer.is(303).header("set-cookie").split(';').next().unwrap_or_default();
            server.get(SESSION).cookie(old).await.problem("unauthenticated");
            // A link that is used up signs nobody in, and nobody out.
            server.redeem(&link).cookie(new).await.is(410);
            server.get(SESSION).cookie(new).await.is(200);
        }
        server.get(SESSION).cookie(&elsewhere).await.is(200);
        let (one, other) = (server.user(&acme.tenant, Role::Admin).await, elsewhere);
        let both = format!("session=nothing; {one}; {other}");
        server.redeem(&link(&server, &acme).await).header("cookie", &both).await.is(303);
        for old in [&one, &other] {
            server.get(SESSION).cookie(old).await.problem("unauthenticated");
        }
    }

    async fn a_link_is_good_for_15_minutes(server: Server) {
        let acme = server.tenant("acme").await;
        let (first, second) = (link(&server, &acme).await, link(&server, &acme).await);
        server.advance(15 * MINUTE_MS - 1);
        server.get(&first).await.is(200);
        server.redeem(&first).await.is(303);
        server.get(&second).await.is(200);
        server.advance(1);
        server.get(&second).await.is(410);
        server.redeem(&second).await.is(410);
    }

    async fn of_two_who_follow_a_link_at_once_one_is_signed_in(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        let mut statuses: Vec<u16> = Vec::new();
        let (a, b, c) = tokio::join!(async { server.redeem(&link).await }, async { server.redeem(&link).await }, async {
            server.redeem(&link).await
        });
        statuses.extend([a.status, b.status, c.status]);
        statuses.sort_unstable();
        assert_eq!(statuses, [303, 410, 410]);
    }

    async fn by_https_the_cookie_is_secure_and_bound_to_the_host(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://tc.acme.test").unwrap();
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        let answer = server.redeem(&link).await;
        let (cookie, attributes) = answer.is(303).header("set-cookie").split_once("; ").unwrap();
        assert!(cookie.starts_with("__Host-session="), "{cookie}");
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Secure");
        server.get(SESSION).cookie(cookie).await.is(200);
    }

    async fn the_session_of_a_link_is_in_the_audit_trail_and_its_token_is_not(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        server.redeem(&link).header("x-request-id", "sign-in").await.is(303);
        let answer = server.get("/api/admin/audit?action=session.create").cookie(&acme.admin).await;
        let entry =
            answer.ok(200)["data"].as_array().unwrap().iter().find(|entry| entry["request_id"] == "sign-in").cloned();
        let entry: Value = entry.expect("an entry");
        assert_eq!((&entry["actor"]["type"], &entry["actor"]["name"]), (&json!("user"), &json!("ann")));
        assert_eq!(entry["address"], "127.0.0.1");
        let user = find_user(&server.app.store, &acme.tenant, "ann@acme.test").await.unwrap().unwrap().id.to_string();
        assert_eq!((&entry["changes"]["user_id"]["to"], &entry["changes"]["email"]["to"]), (&json!(user), &json!("ann@acme.test")));
        let token = link.split_once('=').unwrap().1;
        assert!(!String::from_utf8(answer.body).unwrap().contains(token));
    }
}
