//! At most 100 active keys per tenant.

use kernel::auth::Role;
use kernel::base::DAY_MS;

use super::*;

const ACTIVE_MAX: usize = 100;

/// Fills a tenant up to the limit; the first key lives a day, the others longer.
async fn fill(server: &Server, tenancy: &Tenancy) -> Vec<Key> {
    let mut keys = Vec::new();
    for n in 0..ACTIVE_MAX {
        let days = if n == 0 { 1 } else { 90 };
        keys.push(server.key_with(tenancy, &json!({"name": "Key", "scopes": ["*"], "expires_days": days})).await);
    }
    keys
}

over_http! {
    async fn the_101st_active_key_is_refused_and_any_end_makes_room(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "One more", "scopes": ["*"]});
        let keys = fill(&server, &acme).await;
        server.post(KEYS).cookie(&acme.admin).json(&body).await.problem("limit_reached");
        // Changing, rotating and another tenant do not need room.
        server.put(one(&keys[5])).cookie(&acme.admin).json(&body).await.is(200);
        server.put(one(&keys[5])).cookie(&acme.admin).json(&json!({"rotate": {}})).await.is(200);
        let other = server.tenant("other").await;
        server.key(&other, &["*"]).await;

        server.delete(one(&keys[1])).cookie(&acme.admin).await.is(204);
        server.post(KEYS).cookie(&acme.admin).json(&body).await.is(201);
        server.post(KEYS).cookie(&acme.admin).json(&body).await.problem("limit_reached");

        server.advance(DAY_MS);
        let admin = server.user(&acme.tenant, Role::Admin).await;
        server.post(KEYS).cookie(&admin).json(&body).await.is(201);
        let revive = json!({"name": "Again", "scopes": ["*"], "expires_days": 1});
        server.put(one(&keys[0])).cookie(&admin).json(&revive).await.problem("limit_reached");
        let rename = json!({"name": "Again", "scopes": ["*"]});
        assert_eq!(server.put(one(&keys[0])).cookie(&admin).json(&rename).await.ok(200)["status"], "expired");
        server.delete(one(&keys[2])).cookie(&admin).await.is(204);
        assert_eq!(server.put(one(&keys[0])).cookie(&admin).json(&revive).await.ok(200)["status"], "active");
    }

    async fn requests_at_once_do_not_share_the_last_place(server: Server) {
        let acme = server.tenant("acme").await;
        let keys = fill(&server, &acme).await;
        server.delete(one(&keys[1])).cookie(&acme.admin).await.is(204);
        let body = json!({"name": "Race", "scopes": ["*"]});
        let mut racing = tokio::task::JoinSet::new();
        let server = std::sync::Arc::new(server);
        for _ in 0..8 {
            let (server, admin, body) = (server.clone(), acme.admin.clone(), body.clone());
            racing.spawn(async move { server.post(KEYS).cookie(&admin).json(&body).await.status });
        }
        let mut statuses = racing.join_all().await;
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
    }
}
