//! When and from where a key was last used.

use kernel::base::MINUTE_MS;

use super::*;

over_http! {
    async fn the_last_use_is_noted_and_moves_neither_version_nor_updated_at(setup: Setup) {
        let mut setup = setup;
        setup.settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["search:read"]).await;
        let mut wanted = server.get(one(&key)).cookie(&acme.admin).await.ok(200);
        for address in ["198.51.100.7", "2001:db8::7"] {
            server.advance(MINUTE_MS);
            // A refused scope is a use too: the credential was right.
            server.get(KEYS).key(&key.plain).header("x-forwarded-for", address).await.problem("insufficient_scope");
            wanted["last_used_at"] = json!(server.now().to_string());
            wanted["last_used_ip"] = json!(address);
            server.advance(MINUTE_MS);
            kernel::jobs::save_last_uses(&server.app).await.unwrap();
            let answer = server.get(one(&key)).cookie(&acme.admin).await;
            assert_eq!(answer.ok(200), wanted);
            assert_eq!(answer.header("etag"), "\"1\"");
        }
    }

    async fn a_use_that_was_refused_is_no_use(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Elsewhere", "scopes": ["*"], "allowed_cidrs": ["198.51.100.0/24"]});
        let key = server.key_with(&acme, &body).await;
        server.get(SESSION).key(&key.plain).await.problem("address_not_allowed");
        kernel::jobs::save_last_uses(&server.app).await.unwrap();
        assert_eq!(server.get(one(&key)).cookie(&acme.admin).await.ok(200)["last_used_at"], Value::Null);
    }

    async fn the_latest_use_of_all_nodes_counts(server: Server) {
        let acme = server.tenant("acme").await;
        let other = server.second_node().await;
        let key = server.key(&acme, &["*"]).await;
        server.get(SESSION).key(&key.plain).await.is(200);
        server.advance(MINUTE_MS);
        let last = server.now().to_string();
        other.get(SESSION).key(&key.plain).await.is(200);
        kernel::jobs::save_last_uses(&other.app).await.unwrap();
        kernel::jobs::save_last_uses(&server.app).await.unwrap();
        assert_eq!(server.get(one(&key)).cookie(&acme.admin).await.ok(200)["last_used_at"], last);
    }

    async fn a_use_is_not_forgotten_while_it_cannot_be_written_down(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await;
        server.get(SESSION).key(&key.plain).await.is(200);
        let db = server.app.store.system(kernel::store::Purpose::Cli);
        let rename = async |sql: &'static str| {
            db.write(async move |tx| tx.exec(sql, kernel::args![]).await).await.unwrap();
        };
        rename("ALTER TABLE api_key_uses RENAME TO api_key_uses_away").await;
        assert!(kernel::jobs::save_last_uses(&server.app).await.is_err());
        rename("ALTER TABLE api_key_uses_away RENAME TO api_key_uses").await;
        kernel::jobs::save_last_uses(&server.app).await.unwrap();
        let read = server.get(one(&key)).cookie(&acme.admin).await.ok(200);
        assert_eq!(read["last_used_at"], server.now().to_string());
    }
}
