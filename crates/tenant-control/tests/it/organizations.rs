//! `/api/admin/organizations`

mod change;
mod create;
mod filters;
mod follow;
mod gone;
mod refer;
mod together;

use kernel::auth::Role;
use serde_json::{Value, json};

use crate::support::people::AUDIT;
use crate::support::{Answer, Server, Tenancy, over_http};
use crate::tickets::id_of;

pub const ORGANIZATIONS: &str = "/api/admin/organizations";

const RECORD: [&str; 11] = [
    "archived",
    "created_at",
    "custom_fields",
    "domains",
    "external_id",
    "id",
    "name",
    "slug",
    "tags",
    "updated_at",
    "version",
];

/// Where an organization is.
pub fn one(organization: &Value) -> String {
    format!("{ORGANIZATIONS}?id={}", id_of(organization))
}

pub async fn post(server: &Server, tenancy: &Tenancy, body: &Value) -> Answer {
    server.post(ORGANIZATIONS).cookie(&tenancy.admin).json(body).await
}

/// A new organization.
pub async fn make(server: &Server, tenancy: &Tenancy, body: &Value) -> Value {
    let answer = post(server, tenancy, body).await;
    assert_eq!(answer.status, 201, "{body}: {}", answer.json());
    answer.json()
}

pub async fn put(server: &Server, tenancy: &Tenancy, organization: &Value, body: &Value) -> Answer {
    server.put(one(organization)).cookie(&tenancy.admin).json(body).await
}

/// The organization after a change.
async fn changed(server: &Server, tenancy: &Tenancy, organization: &Value, body: &Value) -> Value {
    let answer = put(server, tenancy, organization, body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.json());
    let record = answer.json();
    assert_eq!(answer.header("etag"), format!("\"{}\"", record["version"]), "{body}");
    record
}

async fn delete(server: &Server, tenancy: &Tenancy, organization: &Value) -> Answer {
    server.delete(one(organization)).cookie(&tenancy.admin).await
}

async fn read(server: &Server, tenancy: &Tenancy, organization: &Value) -> Value {
    server.get(one(organization)).cookie(&tenancy.admin).await.ok(200)
}

/// Every row of a list, page by page.
async fn walk(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<Value> {
    let (mut rows, mut more) = (Vec::new(), String::new());
    loop {
        let page = server.get(format!("{ORGANIZATIONS}?{query}{more}")).cookie(&tenancy.admin).await.ok(200);
        rows.extend(page["data"].as_array().expect("data").iter().cloned());
        assert_eq!(page["has_more"], page["next_cursor"].is_string(), "{query}");
        match page["next_cursor"].as_str() {
            Some(cursor) => more = format!("&cursor={cursor}"),
            None => return rows,
        }
    }
}

fn slugs(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["slug"].as_str().expect("a slug")).collect()
}

/// What the trail has of an organization, oldest first.
async fn trail(server: &Server, tenancy: &Tenancy, organization: &Value) -> Vec<Value> {
    let target = format!("{AUDIT}?target_id={}", id_of(organization));
    let page = server.get(target).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().expect("data").iter().rev().cloned().collect()
}

over_http! {
    async fn roles_and_scopes_decide_who_reads_and_who_writes(server: Server) {
        let acme = server.tenant("acme").await;
        let globex = make(&server, &acme, &json!({"name": "Globex"})).await;
        let technician = server.user(&acme.tenant, Role::Technician).await;
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        let body = json!({"name": "Initech"});
        let made = server.post(ORGANIZATIONS).cookie(&technician).json(&body).await.ok(201);
        server.put(one(&made)).cookie(&technician).json(&json!({"name": "Initrode"})).await.is(200);
        server.delete(one(&made)).cookie(&technician).await.is(204);
        let reader = server.key(&acme, &["organizations:read"]).await;
        let writer = server.key(&acme, &["organizations:write"]).await;
        let other = server.key(&acme, &["tickets:*", "search:read"]).await;
        for (answer, scope) in [
            (server.post(ORGANIZATIONS).cookie(&viewer).json(&body).await, "organizations:write"),
            (server.put(one(&globex)).cookie(&viewer).json(&body).await, "organizations:write"),
            (server.delete(one(&globex)).cookie(&viewer).await, "organizations:write"),
            (server.post(ORGANIZATIONS).key(&reader.plain).json(&json!({"nonsense": 1})).await, "organizations:write"),
            (server.delete(one(&globex)).key(&reader.plain).await, "organizations:write"),
            (server.get(one(&globex)).key(&writer.plain).await, "organizations:read"),
            (server.get(ORGANIZATIONS).key(&other.plain).await, "organizations:read"),
            (server.post(ORGANIZATIONS).key(&other.plain).json(&body).await, "organizations:write"),
        ] {
            let problem = answer.problem("insufficient_scope");
            assert_eq!(problem["required_scope"], scope, "{problem}");
        }
        for cookie in [&technician, &viewer] {
            assert_eq!(server.get(one(&globex)).cookie(cookie).await.ok(200), globex);
            assert_eq!(server.get(ORGANIZATIONS).cookie(cookie).await.ok(200)["data"], json!([globex]));
        }
        server.get(ORGANIZATIONS).key(&reader.plain).await.is(200);
        server.post(ORGANIZATIONS).key(&writer.plain).json(&body).await.is(201);
    }

    async fn one_that_is_not_there_looks_the_same_for_whatever_reason(server: Server) {
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let foreign = make(&server, &other, &json!({"name": "Foreign"})).await;
        let gone = make(&server, &acme, &json!({"name": "Gone"})).await;
        delete(&server, &acme, &gone).await.is(204);
        let mut seen = Vec::new();
        for id in ["org_01jd8z6v2mfkpb7h3q9xw5t4ra", id_of(&foreign), id_of(&gone), "nonsense", "", "org_"] {
            let target = format!("{ORGANIZATIONS}?id={id}");
            for answer in [
                server.get(&target).cookie(&acme.admin).await,
                server.put(&target).cookie(&acme.admin).json(&json!({"name": "Mine"})).await,
                server.delete(&target).cookie(&acme.admin).await,
            ] {
                assert_eq!(answer.status, 404, "{id:?}: {}", answer.json());
                answer.problem("not_found");
                seen.push(answer.body_but_request_id());
            }
        }
        assert!(seen.iter().all(|body| *body == seen[0]), "{seen:#?}");
        assert_eq!(read(&server, &other, &foreign).await, foreign);
    }

    async fn the_routes_take_what_they_document_and_nothing_else(server: Server) {
        let acme = server.tenant("acme").await;
        let globex = make(&server, &acme, &json!({"name": "Globex"})).await;
        let answer = server.patch(one(&globex)).cookie(&acme.admin).json(&json!({"name": "A"})).await;
        answer.problem("method_not_allowed");
        let mut allowed: Vec<&str> = answer.header("allow").split(',').map(str::trim).collect();
        allowed.sort_unstable();
        assert_eq!(allowed, ["DELETE", "GET", "HEAD", "POST", "PUT"]);
        let body = json!({"name": "A"});
        server.put(ORGANIZATIONS).cookie(&acme.admin).json(&body).await.problem("missing_parameter");
        server.delete(ORGANIZATIONS).cookie(&acme.admin).await.problem("missing_parameter");
        server.post(one(&globex)).cookie(&acme.admin).json(&body).await.problem("unknown_parameter");
        server.get(format!("{ORGANIZATIONS}?name=Globex")).cookie(&acme.admin).await.problem("unknown_parameter");
        for more in ["slug=globex", "limit=0", "q=glob", "archived=true", "updated_since=2026-01-01T00:00:00Z"] {
            server.get(format!("{}&{more}", one(&globex))).cookie(&acme.admin).await.problem("invalid_parameter");
        }
        let head = server.head(one(&globex)).cookie(&acme.admin).await;
        assert_eq!((head.is(200).header("etag"), head.body.len()), ("\"1\"", 0));
    }
}
