//! The one-time link that signs a browser in.

use kernel::auth::create_signin_link;
use tenant_control::features::users::create_user;

use super::*;

/// A link for a user of the tenant, as a path with its token.
async fn link(server: &Server, tenancy: &Tenancy) -> String {
    let new = NewUser { email: "ann@acme.test".to_owned(), name: None, role: Role::Viewer, platform_operator: false };
    let ann = match find_user(&server.app.store, &tenancy.tenant, &new.email).await.unwrap() {
        Some(user) => user,
        None => create_user(&server.app.store, &tenancy.tenant, new).await.unwrap(),
    };
    let token = create_signin_link(&server.app.store, tenancy.tenant.id, ann.id).await.unwrap();
    format!("/signin?token={}", token.reveal())
}

over_http! {
    async fn a_link_signs_in_once_and_leads_away_from_its_token(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        let answer = server.get(&link).await;
        answer.is(303);
        assert_eq!(answer.header("location"), "/overview");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        let (cookie, attributes) = answer.header("set-cookie").split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax");
        let session = server.get(SESSION).cookie(cookie).await.ok(200);
        assert_eq!(session["actor"]["email"], "ann@acme.test");
        let again = server.get(&link).await;
        again.is(410);
        assert!(!again.headers.contains_key("set-cookie"));
        server.get(SESSION).cookie(cookie).await.is(200);
    }

    async fn the_session_that_the_browser_had_is_over_whosever_it_was(server: Server) {
        let acme = server.tenant("acme").await;
        let globex = server.tenant("globex").await;
        let elsewhere = server.user(&globex.tenant, Role::Viewer).await;
        for old in [&globex.admin, &acme.admin] {
            let link = link(&server, &acme).await;
            server.head(&link).cookie(old).await.is(200);
            server.get(SESSION).cookie(old).await.is(200);
            let answer = server.get(&link).cookie(old).await;
            let new = answer.is(303).header("set-cookie").split(';').next().unwrap_or_default();
            server.get(SESSION).cookie(old).await.problem("unauthenticated");
            // A link that is used up signs nobody in, and nobody out.
            server.get(&link).cookie(new).await.is(410);
            server.get(SESSION).cookie(new).await.is(200);
        }
        server.get(SESSION).cookie(&elsewhere).await.is(200);
        let (one, other) = (server.user(&acme.tenant, Role::Admin).await, elsewhere);
        let both = format!("session=nothing; {one}; {other}");
        server.get(&link(&server, &acme).await).header("cookie", &both).await.is(303);
        for old in [&one, &other] {
            server.get(SESSION).cookie(old).await.problem("unauthenticated");
        }
    }

    async fn looking_at_a_link_does_not_use_it_up(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        for _ in 0..2 {
            assert!(!server.head(&link).await.headers.contains_key("set-cookie"));
        }
        server.get(&link).await.is(303);
    }

    async fn a_link_is_good_for_15_minutes(server: Server) {
        let acme = server.tenant("acme").await;
        let (first, second) = (link(&server, &acme).await, link(&server, &acme).await);
        server.advance(15 * MINUTE_MS - 1);
        server.get(&first).await.is(303);
        server.advance(1);
        server.get(&second).await.is(410);
    }

    async fn of_two_who_follow_a_link_at_once_one_is_signed_in(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        let mut statuses: Vec<u16> = Vec::new();
        let (a, b, c) = tokio::join!(async { server.get(&link).await }, async { server.get(&link).await }, async {
            server.get(&link).await
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
        let answer = server.get(&link).await;
        let (cookie, attributes) = answer.is(303).header("set-cookie").split_once("; ").unwrap();
        assert!(cookie.starts_with("__Host-session="), "{cookie}");
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Secure");
        server.get(SESSION).cookie(cookie).await.is(200);
    }

    async fn the_session_of_a_link_is_in_the_audit_trail_and_its_token_is_not(server: Server) {
        let acme = server.tenant("acme").await;
        let link = link(&server, &acme).await;
        server.get(&link).header("x-request-id", "sign-in").await.is(303);
        let answer = server.get("/api/admin/audit?action=session.create").cookie(&acme.admin).await;
        let entry =
            answer.ok(200)["data"].as_array().unwrap().iter().find(|entry| entry["request_id"] == "sign-in").cloned();
        let entry: Value = entry.expect("an entry");
        assert_eq!((&entry["actor"]["type"], &entry["actor"]["name"]), (&json!("user"), &json!("ann")));
        assert_eq!(entry["address"], "127.0.0.1");
        let token = link.split_once('=').unwrap().1;
        assert!(!String::from_utf8(answer.body).unwrap().contains(token));
    }
}
