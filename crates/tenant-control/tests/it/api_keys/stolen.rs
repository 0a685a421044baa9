//! Whoever has stolen a key has it until it is revoked, and nothing of it afterwards.

use super::makers::{body, child, line};
use super::*;

over_http! {
    async fn a_key_changes_and_rotates_only_what_it_has_made(server: Server) {
        let acme = server.tenant("acme").await;
        let [first, second, third] = line(&server, &acme, 30).await;
        let sibling = server.key(&acme, &["tickets:read"]).await;
        let less = json!({"name": "Taken", "scopes": ["tickets:read"], "expires_days": 1});
        for change in [json!({"rotate": {"overlap_hours": 0}}), body(), less] {
            // It holds all that these do, and could grant it.
            for (caller, target) in [(&first, &sibling), (&second, &first), (&third, &second), (&third, &sibling)] {
                let refused = server.put(one(target)).key(&caller.plain).json(&change).await;
                assert_eq!(refused.problem("insufficient_scope")["required_scope"], "api_keys:write");
            }
        }
        for key in [&first, &second, &third, &sibling] {
            server.get(SESSION).key(&key.plain).await.is(200);
        }
        for caller in [&first, &second] {
            server.put(one(&third)).key(&caller.plain).json(&body()).await.is(200);
            server.put(one(&third)).key(&caller.plain).json(&json!({"rotate": {}})).await.is(200);
        }
        server.put(one(&sibling)).cookie(&acme.admin).json(&json!({"rotate": {}})).await.is(200);
    }

    async fn nothing_of_a_stolen_key_survives_its_revocation(server: Server) {
        let acme = server.tenant("acme").await;
        let stolen = server.key(&acme, &["*"]).await;
        let sibling = server.key(&acme, &["*"]).await;
        let rotate = json!({"rotate": {"overlap_hours": 168}});
        server.put(one(&sibling)).key(&stolen.plain).json(&rotate).await.problem("insufficient_scope");
        let made = child(&server, &stolen, body()).await;
        let text = |answer: &Value| answer["key"].as_str().unwrap().to_owned();
        let made_again = text(&server.put(one(&made)).key(&stolen.plain).json(&rotate).await.ok(200));
        let rotated = text(&server.put(one(&stolen)).key(&stolen.plain).json(&rotate).await.ok(200));
        let grandchild = server.post(KEYS).key(&made_again).json(&body()).await.ok(201);
        let secrets = [stolen.plain.clone(), rotated, made.plain.clone(), made_again, text(&grandchild)];
        for secret in &secrets {
            server.get(SESSION).key(secret).await.is(200);
        }
        server.delete(one(&stolen)).cookie(&acme.admin).await.is(204);
        for secret in &secrets {
            server.get(SESSION).key(secret).await.problem("unauthenticated");
        }
        server.get(SESSION).key(&sibling.plain).await.is(200);
    }
}
