//! Changes by cookie must come from our own pages, or from no browser at all.

use reqwest::Method;

use super::*;
use crate::support::Answer;

/// A change by cookie with these headers. It would be accepted but for them.
async fn attempt(server: &Server, cookie: &str, method: Method, headers: &[(&str, &str)]) -> Answer {
    let call = match method {
        Method::POST => server.post(KEYS).json(&json!({"name": "Key", "scopes": ["tickets:read"]})),
        Method::GET => server.get(KEYS),
        Method::HEAD => server.head(KEYS),
        // No such record: what is not refused gets as far as looking for it.
        other => server.call(other, format!("{KEYS}?id=x")).json(&json!({"name": "Key", "scopes": ["tickets:read"]})),
    };
    headers.iter().fold(call, |call, (name, value)| call.header(name, value)).cookie(cookie).await
}

over_http! {
    async fn sec_fetch_site_decides_where_it_is_present_else_origin(server: Server) {
        let acme = server.tenant("acme").await;
        let base = server.base_url().to_owned();
        let (slash, port, upper) = (format!("{base}/"), format!("{base}0"), base.to_uppercase());
        let https = base.replace("http:", "https:");
        let site = "sec-fetch-site";
        let passes: &[&[(&str, &str)]] = &[
            &[],
            &[(site, "same-origin")],
            &[(site, "none")],
            &[("origin", &base)],
            &[("origin", &upper)],
            &[(site, "same-origin"), ("origin", "https://evil.test")],
            &[(site, "none"), ("origin", "null")],
            &[("referer", "https://evil.test/")],
        ];
        let refused: &[&[(&str, &str)]] = &[
            &[(site, "cross-site")],
            &[(site, "same-site")],
            &[(site, "")],
            &[(site, "Same-Origin, none")],
            &[(site, "cross-site"), ("origin", &base)],
            &[(site, "same-site"), ("origin", &base)],
            &[("origin", "https://evil.test")],
            &[("origin", "null")],
            &[("origin", "")],
            &[("origin", &slash)],
            &[("origin", &port)],
            &[("origin", &https)],
            &[(site, "same-origin"), (site, "cross-site")],
            &[("origin", &base), ("origin", "https://evil.test")],
        ];
        for headers in passes {
            for (method, status) in [(Method::POST, 201), (Method::PUT, 404), (Method::DELETE, 404)] {
                attempt(&server, &acme.admin, method, headers).await.is(status);
            }
        }
        for headers in refused {
            for method in [Method::POST, Method::PUT, Method::DELETE] {
                attempt(&server, &acme.admin, method.clone(), headers).await.problem("csrf_rejected");
            }
            for method in [Method::GET, Method::HEAD] {
                attempt(&server, &acme.admin, method, headers).await.is(200);
            }
        }
        server.delete(SESSION).cookie(&acme.admin).header(site, "cross-site").await.problem("csrf_rejected");
        server.get(SESSION).cookie(&acme.admin).await.is(200);
    }

    async fn keys_are_not_sent_by_browsers_and_pass(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.test")] {
            let body = json!({"name": "Key", "scopes": ["tickets:read"]});
            server.post(KEYS).key(&key.plain).header(name, value).json(&body).await.is(201);
        }
    }

    async fn the_origin_is_held_against_the_base_url_not_the_address(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://TC.acme.test:443/").unwrap();
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let address = format!("http://{}", server.address);
        attempt(&server, &acme.admin, Method::POST, &[("origin", "https://tc.acme.test")]).await.is(201);
        for origin in [address.as_str(), "http://tc.acme.test", "https://tc.acme.test.evil.test"] {
            attempt(&server, &acme.admin, Method::POST, &[("origin", origin)]).await.problem("csrf_rejected");
        }
    }
}
