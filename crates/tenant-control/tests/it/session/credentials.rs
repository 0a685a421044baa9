//! One credential per request.

use super::*;

over_http! {
    async fn two_credentials_are_refused_in_every_combination(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        let bearer = format!("Bearer {}", key.plain);
        let all: [(&str, &str); 3] = [("authorization", &bearer), ("x-api-key", &key.plain), ("cookie", &acme.admin)];
        let wrong: [(&str, &str); 3] = [("authorization", "Bearer x"), ("x-api-key", "x"), ("cookie", "session=x")];
        for (one, _) in all.iter().zip(0..) {
            for other in all.iter().chain(&wrong) {
                let answer = server.get(SESSION).header(one.0, one.1).header(other.0, other.1).await;
                answer.problem("ambiguous_credentials");
            }
        }
        let answer = all.iter().fold(server.get(SESSION), |call, (name, value)| call.header(name, value)).await;
        answer.problem("ambiguous_credentials");
        let twice = format!("{}; {}", acme.admin, acme.admin);
        server.get(SESSION).cookie(&twice).await.problem("ambiguous_credentials");
        // The route is looked for first.
        server.get("/api/nothing").key(&key.plain).cookie(&acme.admin).await.problem("not_found");
        server.delete("/api/admin/audit").key(&key.plain).cookie(&acme.admin).await.problem("method_not_allowed");
    }

    async fn other_cookies_are_no_credential(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        let others = "theme=dark; sessions=1; __Host-session=x; Session=y";
        server.get(SESSION).cookie(&format!("a=b; {};{others}", acme.admin)).await.is(200);
        server.get(SESSION).cookie(others).key(&key.plain).await.is(200);
        server.get(SESSION).cookie(others).await.problem("unauthenticated");
    }

    async fn bytes_of_another_applications_cookie_sign_nobody_out(server: Server) {
        let acme = server.tenant("acme").await;
        for other in [&b"name=J\xf6rg"[..], b"name=\xff\xfe", "name=Jörg".as_bytes(), b"\xf6=1"] {
            let own = acme.admin.as_bytes();
            for cookie in [[other, b"; ", own].concat(), [own, b"; ", other].concat()] {
                server.get(SESSION).header("cookie", cookie).await.is(200);
            }
            server.get(SESSION).header("cookie", other).await.problem("unauthenticated");
        }
        server.get(SESSION).header("cookie", b"session=\xf6").await.problem("unauthenticated");
    }

    async fn a_request_without_a_valid_credential_learns_nothing_more(server: Server) {
        let acme = server.tenant("acme").await;
        let token = acme.admin.strip_prefix("session=").unwrap();
        let signed_out = server.user(&acme.tenant, Role::Viewer).await;
        server.delete(SESSION).cookie(&signed_out).await.is(204);
        let nothing = server.get(SESSION).await;
        nothing.problem("unauthenticated");
        assert_eq!(nothing.header("www-authenticate"), "Bearer");
        for cookie in
            ["session=", "session=x", &signed_out, &acme.admin[..acme.admin.len() - 1], &format!("session={token}x")]
        {
            let answer = server.get(SESSION).cookie(cookie).await;
            answer.problem("unauthenticated");
            assert_eq!(answer.body_but_request_id(), nothing.body_but_request_id(), "{cookie}");
        }
    }

    async fn a_cookie_has_256_bits_and_only_its_hash_is_stored(server: Server) {
        let acme = server.tenant("acme").await;
        let token = acme.admin.strip_prefix("session=").unwrap();
        assert!(
            token.len() == 43 && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)),
            "{token}"
        );
        let db = server.app.store.system(kernel::store::Purpose::Cli);
        let sql = "SELECT token_hash FROM sessions ORDER BY token_hash LIMIT 10";
        let hashes: Vec<Vec<u8>> = db.list(sql, kernel::args![]).await.unwrap();
        assert!(!hashes.is_empty() && hashes.iter().all(|hash| hash.len() == 32 && *hash != token.as_bytes()));
    }
}
