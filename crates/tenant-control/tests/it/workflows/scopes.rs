//! Runs act with the authority of whoever saved: nobody saves what they may not do, nor what shows what they may not read.

use kernel::auth::Role;

use super::*;
use crate::support::over_http;

#[track_caller]
fn needs(answer: &Answer, scope: &str) {
    assert_eq!(answer.problem("insufficient_scope")["required_scope"], scope);
}

fn creating() -> Value {
    manual(json!([{"id": "a", "uses": "ticket.create", "with": {"subject": "x"}}]))
}

/// A key that may write workflows, and these.
async fn writer(server: &Server, tenancy: &Tenancy, scopes: &[&str]) -> String {
    server.key(tenancy, &[&["workflows:write"], scopes].concat()).await.plain
}

over_http! {
    async fn a_saver_needs_what_the_actions_need(server: Server) {
        let acme = server.tenant("acme").await;
        let bare = writer(&server, &acme, &["tickets:read", "workflows:read"]).await;
        let enough = writer(&server, &acme, &["tickets:write"]).await;
        for uses in ["ticket.create", "ticket.update", "ticket.comment"] {
            let with = json!({"subject": "x", "ticket_id": "tkt_x", "body": "x"});
            let fields: &[&str] = match uses {
                "ticket.create" => &["subject"],
                "ticket.update" => &["ticket_id", "subject"],
                _ => &["ticket_id", "body"],
            };
            let with: Value = fields.iter().map(|field| ((*field).to_owned(), with[field].clone())).collect::<serde_json::Map<_, _>>().into();
            // Also as the last of several.
            let body = manual(json!([{"id": "a", "uses": "wait", "with": {"seconds": 1}}, {"id": "b", "uses": uses, "with": with}]));
            needs(&server.post(WORKFLOWS).key(&bare).json(&body).await, "tickets:write");
            let made = server.post(WORKFLOWS).key(&enough).json(&body).await.ok(201);
            assert_eq!(made["saved_by"]["type"], "api_key");
        }
        let free = manual(json!([
            {"id": "a", "uses": "event.emit", "with": {"name": "x"}},
            {"id": "b", "uses": "http.request", "with": {"method": "GET", "url": "https://api.example.org/"}},
            {"id": "c", "uses": "approval", "with": {"message": "Go on?"}},
        ]));
        server.post(WORKFLOWS).key(&writer(&server, &acme, &[]).await).json(&free).await.is(201);
        needs(&server.post(WORKFLOWS).key(&server.key(&acme, &["tickets:*", "workflows:read"]).await.plain).json(&free).await, "workflows:write");
    }

    async fn a_trigger_needs_to_read_its_family(server: Server) {
        let acme = server.tenant("acme").await;
        let bare = writer(&server, &acme, &["tickets:write"]).await;
        for (kind, scope) in [("ticket.created", "tickets:read"), ("ticket.*", "tickets:read"), ("api_key.revoked", "api_keys:read"),
            ("workflow.run.failed", "workflows:read"), ("custom.x", "workflows:read"), ("custom.*", "workflows:read"), ("webhook.*", "webhooks:read")]
        {
            let body = named_with("on", json!({"event": {"types": [kind]}}));
            needs(&server.post(WORKFLOWS).key(&bare).json(&body).await, scope);
            server.post(WORKFLOWS).key(&writer(&server, &acme, &[scope]).await).json(&body).await.is(201);
        }
        let all = named_with("on", json!({"event": {"types": ["*"]}}));
        assert_eq!(server.post(WORKFLOWS).key(&bare).json(&all).await.status, 403);
        create(&server, &acme, &all).await.is(201);
        let technician = server.user(&acme.tenant, Role::Technician).await;
        needs(&server.post(WORKFLOWS).cookie(&technician).json(&named_with("on", json!({"event": {"types": ["api_key.*"]}}))).await, "api_keys:read");
        server.post(WORKFLOWS).cookie(&technician).json(&named_with("on", json!({"event": {"types": ["ticket.*"]}}))).await.is(201);
    }

    async fn another_who_changes_it_becomes_the_saver(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &creating()).await.ok(201);
        let (bare, enough) = (writer(&server, &acme, &[]).await, writer(&server, &acme, &["tickets:write"]).await);
        let patch = |key: &str, patch: Value| server.patch(one(&made)).key(key).json(&patch);
        // What stays of it is theirs from then on.
        needs(&patch(&bare, json!({"name": "Mine"})).await, "tickets:write");
        assert_eq!(read(&server, &acme, &made).await, made);
        let changed = patch(&enough, json!({"name": "Mine"})).await.ok(200);
        assert_eq!((&changed["saved_by"]["type"], &changed["created_by"]), (&json!("api_key"), &made["created_by"]));
        assert_eq!((&changed["revision"], &changed["version"]), (&json!(2), &json!(2)));
        // Switching it lends nothing, and takes nothing over.
        let off = patch(&bare, json!({"enabled": false})).await.ok(200);
        assert_eq!((&off["saved_by"], &off["revision"], &off["version"]), (&changed["saved_by"], &json!(2), &json!(3)));
        let on = patch(&bare, json!({"enabled": true, "name": "Mine"})).await.ok(200);
        assert_eq!((&on["saved_by"], &on["revision"]), (&changed["saved_by"], &json!(2)), "nothing of the definition changed");
        let less = json!({"steps": [{"id": "a", "uses": "wait", "with": {"seconds": 1}}]});
        assert_eq!(patch(&bare, less).await.ok(200)["revision"], 3, "what it did before is no longer done");
        server.delete(one(&made)).key(&bare).await.is(204);
    }

    async fn without_workflows_write_nothing_changes(server: Server) {
        let acme = server.tenant("acme").await;
        let made = create(&server, &acme, &named("Work")).await.ok(201);
        let key = server.key(&acme, &["workflows:read", "tickets:*"]).await.plain;
        assert_eq!(server.get(one(&made)).key(&key).await.ok(200), made);
        needs(&server.post(WORKFLOWS).key(&key).json(&named("Work")).await, "workflows:write");
        needs(&server.patch(one(&made)).key(&key).json(&json!({"enabled": false})).await, "workflows:write");
        needs(&server.delete(one(&made)).key(&key).await, "workflows:write");
        needs(&server.get(WORKFLOWS).key(&writer(&server, &acme, &[]).await).await, "workflows:read");
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        needs(&server.patch(one(&made)).cookie(&viewer).json(&json!({"enabled": false})).await, "workflows:write");
        assert_eq!(read(&server, &acme, &made).await, made);
    }
}
