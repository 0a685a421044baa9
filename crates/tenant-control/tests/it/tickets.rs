//! `/api/psa/tickets`

mod broad;
mod change;
mod comments;
mod create;
mod customers;
mod devices;
mod events;
mod filters;
mod follow;
mod history;
mod model;
mod pages;
mod parts;
mod promises;
mod race;
mod refuse;
mod sorts;
mod status;
mod sync;

pub use model::generous;

use kernel::auth::Role;
use kernel::base::Actor;
use serde_json::{Value, json};
use tenant_control::features::organizations;

use crate::support::people::{AUDIT, SESSION};
use crate::support::{Answer, Server, Tenancy, over_http};

pub const TICKETS: &str = "/api/psa/tickets";

/// Ids that are well formed and name nothing.
const NOBODY: &str = "usr_01jd8z6v2mfkpb7h3q9xw5t4ra";
const NOWHERE: &str = "org_01jd8z6v2mfkpb7h3q9xw5t4ra";
const NOTHING: &str = "dev_01jd8z6v2mfkpb7h3q9xw5t4ra";

const STATUSES: [&str; 8] = ["new", "open", "in_progress", "pending", "on_hold", "resolved", "closed", "cancelled"];

pub fn id_of(record: &Value) -> &str {
    record["id"].as_str().expect("an id")
}

/// Where a ticket is.
pub fn one(ticket: &Value) -> String {
    format!("{TICKETS}?id={}", id_of(ticket))
}

pub async fn post(server: &Server, tenancy: &Tenancy, body: &Value) -> Answer {
    server.post(TICKETS).cookie(&tenancy.admin).json(body).await
}

/// A new ticket with these fields, and a subject if they have none.
pub async fn make(server: &Server, tenancy: &Tenancy, fields: &Value) -> Value {
    let body = with(&json!({"subject": "Printer on fire"}), fields);
    let answer = post(server, tenancy, &body).await;
    let shown: String = body.to_string().chars().take(200).collect();
    assert_eq!(answer.status, 201, "{shown}: {}", answer.json());
    answer.json()
}

pub async fn patch(server: &Server, tenancy: &Tenancy, ticket: &Value, body: &Value) -> Answer {
    server.patch(one(ticket)).cookie(&tenancy.admin).json(body).await
}

/// The ticket after a change.
pub async fn changed(server: &Server, tenancy: &Tenancy, ticket: &Value, body: &Value) -> Value {
    let answer = patch(server, tenancy, ticket, body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.json());
    let record = answer.json();
    assert_eq!(answer.header("etag"), format!("\"{}\"", record["version"]), "{body}");
    record
}

/// One ticket with its comments and its history.
pub async fn read(server: &Server, tenancy: &Tenancy, ticket: &Value) -> Value {
    server.get(one(ticket)).cookie(&tenancy.admin).await.ok(200)
}

pub async fn list(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<Value> {
    let answer = server.get(format!("{TICKETS}?{query}")).cookie(&tenancy.admin).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.json());
    answer.json()["data"].as_array().expect("data").clone()
}

/// The numbers of the tickets that a query finds, in its order.
pub async fn numbers(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<i64> {
    list(server, tenancy, query).await.iter().map(|ticket| ticket["number"].as_i64().expect("a number")).collect()
}

pub async fn organization(server: &Server, tenancy: &Tenancy, slug: &str) -> String {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    organizations::create_named_organization(&db, &slug.to_uppercase(), slug)
        .await
        .expect("an organization")
        .id
        .to_string()
}

/// The id of a new user, and its cookie.
pub async fn person(server: &Server, tenancy: &Tenancy, role: Role) -> (String, String) {
    let cookie = server.user(&tenancy.tenant, role).await;
    let id = who(server, &cookie).await["id"].as_str().expect("an id").to_owned();
    (id, cookie)
}

/// The user behind a cookie, as an actor.
pub async fn who(server: &Server, cookie: &str) -> Value {
    let actor = server.get(SESSION).cookie(cookie).await.ok(200)["actor"].clone();
    json!({"type": actor["type"], "id": actor["id"], "name": actor["name"]})
}

/// Every event of tickets so far, oldest first.
pub async fn events(server: &Server, tenancy: &Tenancy) -> Vec<Value> {
    server.events_of(tenancy, "ticket.").await
}

/// The kinds of all events of tickets so far.
pub async fn kinds(server: &Server, tenancy: &Tenancy) -> Vec<String> {
    server.kinds_of(tenancy, "ticket.").await
}

/// What the trail has of a ticket, oldest first.
pub async fn trail(server: &Server, tenancy: &Tenancy, ticket: &Value) -> Vec<Value> {
    let target = format!("{AUDIT}?target_id={}", id_of(ticket));
    let page = server.get(target).cookie(&tenancy.admin).await.ok(200);
    page["data"].as_array().expect("data").iter().rev().cloned().collect()
}

/// An object with further fields, or others.
pub fn with(object: &Value, fields: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
    object
}

/// An object without some of its fields.
pub fn without(object: &Value, names: &[&str]) -> Value {
    let mut object = object.clone();
    object.as_object_mut().expect("an object").retain(|name, _| !names.contains(&name.as_str()));
    object
}

/// Objects in objects, so many deep.
pub fn nested(depth: usize) -> Value {
    (1..depth).fold(json!({}), |inner, _| json!({"in": inner}))
}

/// What two states of a ticket differ in, as `changes` tells it.
pub fn difference(before: &Value, after: &Value) -> Value {
    let untold = ["version", "updated_at", "sla_state", "comment_count", "comments", "history", "changes", "comment"];
    let names = before.as_object().expect("a ticket").keys().filter(|name| !untold.contains(&name.as_str()));
    let differ = names.filter(|name| before[*name] != after[*name]);
    differ.map(|name| (name.clone(), json!({"from": before[name], "to": after[name]}))).collect()
}

over_http! {
    async fn roles_and_scopes_decide_who_reads_and_who_writes(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        let (_, technician) = person(&server, &acme, Role::Technician).await;
        let (_, viewer) = person(&server, &acme, Role::Viewer).await;
        let body = json!({"subject": "Another"});
        server.post(TICKETS).cookie(&technician).json(&body).await.is(201);
        server.patch(one(&ticket)).cookie(&technician).json(&body).await.is(200);
        let before = read(&server, &acme, &ticket).await;
        let (reader, writer) = (server.key(&acme, &["tickets:read"]).await, server.key(&acme, &["tickets:write"]).await);
        for (answer, scope) in [
            (server.post(TICKETS).cookie(&viewer).json(&body).await, "tickets:write"),
            (server.patch(one(&ticket)).cookie(&viewer).json(&json!({"subject": "By a viewer"})).await, "tickets:write"),
            (server.post(TICKETS).key(&reader.plain).json(&body).await, "tickets:write"),
            (server.patch(one(&ticket)).key(&reader.plain).json(&json!({"subject": "By a reader"})).await, "tickets:write"),
            // The scope comes before everything that is wrong with the request.
            (server.post(TICKETS).cookie(&viewer).json(&json!({"nonsense": 1})).await, "tickets:write"),
            (server.patch(TICKETS).cookie(&viewer).json(&json!([])).await, "tickets:write"),
            (server.get(one(&ticket)).key(&writer.plain).await, "tickets:read"),
            (server.get(format!("{TICKETS}?nonsense=1")).key(&writer.plain).await, "tickets:read"),
        ] {
            let problem = answer.problem("insufficient_scope");
            assert_eq!(problem["required_scope"], scope, "{problem}");
        }
        for cookie in [&technician, &viewer] {
            assert_eq!(server.get(one(&ticket)).cookie(cookie).await.ok(200), before);
            assert_eq!(server.get(TICKETS).cookie(cookie).await.ok(200)["data"].as_array().unwrap().len(), 2);
        }
        server.get(one(&ticket)).key(&reader.plain).await.is(200);
        server.post(TICKETS).key(&writer.plain).json(&body).await.is(201);
    }

    async fn a_ticket_is_read_listed_made_and_changed_and_nothing_else(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        for method in ["PUT", "DELETE"] {
            let answer = server.call(method.parse().unwrap(), one(&ticket)).cookie(&acme.admin).await;
            answer.problem("method_not_allowed");
            let mut allowed: Vec<&str> = answer.header("allow").split(',').map(str::trim).collect();
            allowed.sort_unstable();
            assert_eq!(allowed, ["GET", "HEAD", "PATCH", "POST"], "{method}");
        }
        let head = server.head(one(&ticket)).cookie(&acme.admin).await;
        assert_eq!((head.is(200).header("etag"), head.body.len()), ("\"1\"", 0));
        server.head(TICKETS).cookie(&acme.admin).await.is(200);
        server.patch(TICKETS).cookie(&acme.admin).json(&json!({"subject": "A"})).await.problem("missing_parameter");
        server.post(one(&ticket)).cookie(&acme.admin).json(&json!({"subject": "A"})).await.problem("unknown_parameter");
        let odd = server.patch(format!("{}&status=open", one(&ticket))).cookie(&acme.admin).json(&json!({"subject": "A"}));
        odd.await.problem("unknown_parameter");
        for call in [server.post(TICKETS), server.patch(one(&ticket))] {
            call.cookie(&acme.admin).body("{\"subject\":\"A\"}").await.problem("unsupported_media_type");
        }
        for call in [server.post(TICKETS), server.patch(one(&ticket))] {
            let call = call.cookie(&acme.admin).header("content-type", "application/json");
            call.body("{\"subject\":").await.problem("malformed_json");
        }
        for more in ["status=new", "limit=0", "sort=priority", "q=fire"] {
            server.get(format!("{}&{more}", one(&ticket))).cookie(&acme.admin).await.problem("invalid_parameter");
        }
        assert_eq!(numbers(&server, &acme, "").await, [1]);
    }

    async fn a_ticket_that_is_not_there_looks_the_same_for_whatever_reason(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let (own, foreign) = (make(&server, &acme, &json!({})).await, make(&server, &globex, &json!({})).await);
        let upper = id_of(&own).to_uppercase();
        let mut seen = Vec::new();
        for id in ["tkt_01jd8z6v2mfkpb7h3q9xw5t4ra", id_of(&foreign), "nonsense", "", "1", &upper, "tkt_"] {
            let target = format!("{TICKETS}?id={id}");
            for answer in [
                server.get(&target).cookie(&acme.admin).await,
                server.patch(&target).cookie(&acme.admin).json(&json!({"subject": "Mine"})).await,
                server.patch(&target).cookie(&acme.admin).json(&json!({"comment": {"body": "Mine"}})).await,
                server.patch(&target).cookie(&acme.admin).json(&json!({})).await,
            ] {
                assert_eq!(answer.status, 404, "{id:?}: {}", answer.json());
                answer.problem("not_found");
                seen.push(answer.body_but_request_id());
            }
        }
        assert!(seen.iter().all(|body| *body == seen[0]), "{seen:#?}");
        assert_eq!(without(&read(&server, &globex, &foreign).await, &["comments", "history"]), foreign);
    }
}
