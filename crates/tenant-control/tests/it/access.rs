//! Every operation of the document against everybody who must not use it, and those who may.
//!
//! The table says how each operation is called with success. An operation without a row fails here, so that a
//! new route cannot be forgotten.

mod table;

use kernel::auth::{PlainKey, Role};
use kernel::base::DAY_MS;
use kernel::http::RatePolicy;
use serde_json::{Value, json};

use self::table::{Row, Target, cloud, order, table};
use crate::asset_inventory::{self, INVENTORY};
use crate::organizations::{self, ORGANIZATIONS};
use crate::support::call::Call;
use crate::support::people::KEYS;
use crate::support::search::Indexed;
use crate::support::{Answer, Key, Server, Setup, Tenancy, over_http};
use crate::tickets::TICKETS;
use crate::users::USERS;
use crate::webhooks::{DELIVERIES, WEBHOOKS, endpoint};
use crate::workflows::{self, WORKFLOWS};

/// Every scope of the contract but the platform's own.
const SCOPES: &[&str] = &[
    "api_keys:read",
    "api_keys:write",
    "webhooks:read",
    "webhooks:write",
    "organizations:read",
    "organizations:write",
    "users:read",
    "users:write",
    "tickets:read",
    "tickets:write",
    "workflows:read",
    "workflows:write",
    "search:read",
    "inventory:read",
    "cloud:read",
    "cloud:write",
    "backup:read",
    "backup:write",
    "analytics:read",
    "audit:read",
    "platform:read",
];

/// The contract's roles: a technician has all but keys, webhooks, the audit trail and the writing of users, clouds and
/// backup configuration; a viewer has the reads of the same but users.
fn holds(role: Role, scope: &str) -> bool {
    let (family, action) = scope.split_once(':').unwrap();
    let admins_alone = ["api_keys", "webhooks", "audit"].contains(&family)
        || ["users:write", "cloud:write", "backup:write"].contains(&scope);
    match role {
        // That is given to a user, and not by a role.
        _ if scope == PLATFORM => false,
        Role::Admin => true,
        Role::Technician => !admins_alone,
        Role::Viewer => !admins_alone && action == "read" && family != "users",
    }
}

/// One operation of the document with its row.
struct Operation {
    path: String,
    method: String,
    row: Row,
    /// Whether anybody may call it.
    public: bool,
    /// Whether an API key may call it at all, and the scope it needs.
    by_key: bool,
    scope: Option<String>,
}

fn operations(server: &Server) -> Vec<Operation> {
    let mut rows = table();
    let mut all = Vec::new();
    for (path, method, documented) in server.contract.operations() {
        let id = documented["operationId"].as_str().unwrap();
        let security = documented["security"].as_array().unwrap();
        let scopes: Vec<&Value> = security.iter().flat_map(|one| one.as_object().unwrap().values()).collect();
        assert!(scopes.iter().all(|scope| *scope == scopes[0]), "{id}: the same scopes for every kind of credential");
        let scope = scopes.first().and_then(|scope| scope[0].as_str()).map(str::to_owned);
        let (own, rest): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.operation == id);
        rows = rest;
        assert!(!own.is_empty(), "{id} ({method} {path}) has no row in access/table.rs: say how it is called");
        all.extend(own.into_iter().map(|row| Operation {
            path: path.to_owned(),
            method: method.to_uppercase(),
            row,
            public: scopes.is_empty(),
            by_key: security.iter().any(|one| one.get("api_key").is_some()),
            scope: scope.clone(),
        }));
    }
    assert!(rows.is_empty(), "access/table.rs has rows for {:?}, which is not in the document", rows[0].operation);
    all
}

const CLOUDS: &str = "/api/cloud/providers";
const VMS: &str = "/api/cloud/vms";

async fn add_cloud(server: &Server, tenancy: &Tenancy, name: &str) -> String {
    let mut body = cloud();
    body["name"] = json!(name);
    let made = server.post(CLOUDS).cookie(&tenancy.admin).json(&body).await.ok(201);
    made["id"].as_str().unwrap().to_owned()
}

impl Operation {
    fn call<'a>(&self, server: &'a Server, id: &str) -> Call<'a> {
        let named_in_query = self.row.target != Target::Nothing && self.method != "POST";
        let view = match self.row.target {
            Target::Comments => "&view=comments",
            Target::History | Target::DeviceHistory => "&view=history",
            _ => "",
        };
        let query = if named_in_query { format!("?id={id}{view}") } else { self.row.query.to_owned() };
        let call = server.call(self.method.parse().unwrap(), format!("{}{query}", self.path));
        match &self.row.body {
            Some(body) => {
                let new = server.app.env.random.base62_text(10);
                call.json(&serde_json::from_str(&body.to_string().replace("$id", id).replace("$new", &new)).unwrap())
            }
            None => call,
        }
    }

    /// A record for the operation to work on, which the right caller's own scope covers.
    async fn record(&self, server: &Server, tenancy: &Tenancy) -> Record {
        match self.row.target {
            Target::Nothing | Target::Key => {
                let key = server.key(tenancy, &["api_keys:write"]).await;
                let secrets = vec![key.id.clone(), key.record["prefix"].as_str().unwrap().to_owned()];
                Record { id: key.id, secrets }
            }
            Target::Ticket | Target::Comments | Target::History => {
                let subject = "A subject of another";
                let ticket =
                    server.post(TICKETS).cookie(&tenancy.admin).json(&json!({"subject": subject})).await.ok(201);
                let id = ticket["id"].as_str().unwrap().to_owned();
                Record { secrets: vec![id.clone(), subject.to_owned()], id }
            }
            Target::Workflow => {
                let name = "A workflow of another";
                let made = workflows::create(server, tenancy, &workflows::named(name)).await.ok(201);
                let id = made["id"].as_str().unwrap().to_owned();
                Record { secrets: vec![id.clone(), name.to_owned()], id }
            }
            Target::Device | Target::DeviceHistory => {
                let name = "a-device-of-another";
                let id = asset_inventory::add(server, tenancy, asset_inventory::named(name)).await;
                Record { secrets: vec![id.clone(), name.to_owned()], id }
            }
            Target::Organization => {
                let name = "An organization of another";
                let made = organizations::make(server, tenancy, &json!({"name": name})).await;
                let id = made["id"].as_str().unwrap().to_owned();
                Record { secrets: vec![id.clone(), name.to_owned()], id }
            }
            Target::CloudProvider => {
                let name = "A cloud of another";
                let id = add_cloud(server, tenancy, name).await;
                Record { secrets: vec![id.clone(), name.to_owned()], id }
            }
            Target::Vm => {
                let provider = add_cloud(server, tenancy, "A cloud of another").await;
                let made = server.post(VMS).cookie(&tenancy.admin).json(&order(&provider)).await.ok(202);
                let id = made["id"].as_str().unwrap().to_owned();
                Record { secrets: vec![id.clone(), provider], id }
            }
            Target::User => {
                let name = "A user of another";
                let email = format!("{}@acme.test", server.app.env.random.base62_text(10));
                let body = json!({"email": email, "name": name, "role": "viewer"});
                let made = server.post(USERS).cookie(&tenancy.admin).json(&body).await.ok(201);
                let id = made["id"].as_str().unwrap().to_owned();
                Record { secrets: vec![id.clone(), name.to_owned()], id }
            }
            Target::Webhook | Target::Delivery => {
                let url = "https://hooks.example.com/of-another";
                let hook = endpoint(server, tenancy, url, &["webhook.auto_disabled"]).await;
                let id = hook["id"].as_str().unwrap().to_owned();
                let secrets = vec![id.clone(), url.to_owned()];
                if self.row.target == Target::Webhook {
                    return Record { id, secrets };
                }
                let test = json!({"action": "test", "webhook_id": id});
                let delivery = server.post(DELIVERIES).cookie(&tenancy.admin).json(&test).await.ok(202);
                Record { id: delivery["id"].as_str().unwrap().to_owned(), secrets }
            }
        }
    }

    /// The same for a caller that is a key: of keys it changes only those that it has made.
    async fn record_for(&self, server: &Server, tenancy: &Tenancy, key: &Key) -> Record {
        if self.row.operation != "replace_api_key" {
            return self.record(server, tenancy).await;
        }
        let body = json!({"name": "Made", "scopes": ["api_keys:write"]});
        let made = server.post(KEYS).key(&key.plain).json(&body).await.ok(201);
        Record { id: made["id"].as_str().unwrap().to_owned(), secrets: Vec::new() }
    }

    /// What the record is now, but for what is counted.
    async fn look(&self, server: &Server, tenancy: &Tenancy, id: &str) -> Value {
        let path = match self.row.target {
            Target::Nothing | Target::Key => KEYS,
            Target::Webhook => WEBHOOKS,
            Target::Workflow => WORKFLOWS,
            Target::Delivery => DELIVERIES,
            Target::Ticket | Target::Comments | Target::History => TICKETS,
            Target::Organization => ORGANIZATIONS,
            Target::User => USERS,
            Target::Device | Target::DeviceHistory => INVENTORY,
            Target::CloudProvider => CLOUDS,
            Target::Vm => VMS,
        };
        server.get(format!("{path}?id={id}")).cookie(&tenancy.admin).await.ok(200)
    }

    fn name(&self) -> String {
        format!("{} ({} {}, on a {:?})", self.row.operation, self.method, self.path, self.row.target)
    }
}

/// Budgets that these many calls do not use up, and an index to search in.
async fn generous(mut setup: Setup) -> (Server, Indexed) {
    for policy in RatePolicy::ALL {
        setup.settings.rate_table.set(policy, 1_000_000);
    }
    let server = setup.start().await;
    let index = Indexed::of(&server).await;
    (server, index)
}

const PLATFORM: &str = "platform:read";

struct Record {
    id: String,
    /// What nobody else may see.
    secrets: Vec<String>,
}

#[track_caller]
fn refused(answer: &Answer, code: &str, operation: &Operation, who: &str) {
    assert_eq!(answer.json()["code"], code, "{} by {who}: {}", operation.name(), answer.json());
    answer.problem(code);
}

over_http! {
    async fn nobody_gets_in_without_a_credential_that_works(setup: Setup) {
        let (server, index) = generous(setup).await;
        let early = server.tenant("early").await;
        let expired = server.key_with(&early, &json!({"name": "Short", "scopes": ["*"], "expires_days": 1})).await;
        server.advance(2 * DAY_MS);
        let acme = server.tenant("acme").await;
        let revoked = server.key(&acme, &["*"]).await;
        server.delete(format!("{KEYS}?id={}", revoked.id)).cookie(&acme.admin).await.is(204);
        let good = server.key(&acme, &["*"]).await.plain;
        let unknown = PlainKey::generate(&server.app.env.random).expose_secret();
        let last = if good.ends_with('x') { 'y' } else { 'x' };
        let mistyped = format!("{}{last}", &good[..good.len() - 1]);
        let of_revoked = server.key_with(&acme, &json!({"name": "Rotated", "scopes": ["*"]})).await;
        let rotation = json!({"rotate": {"overlap_hours": 0}});
        server.put(format!("{KEYS}?id={}", of_revoked.id)).cookie(&acme.admin).json(&rotation).await.is(200);
        let bearer = |key: &str| ("authorization", format!("Bearer {key}"));
        let presented = [
            ("a malformed key", "unauthenticated", bearer("tck_nonsense")),
            ("no key at all", "unauthenticated", ("authorization", "Bearer".to_owned())),
            ("another scheme", "unauthenticated", ("authorization", "Basic dXNlcjpwYXNzd29yZA==".to_owned())),
            ("the key as a scheme", "unauthenticated", ("authorization", good.clone())),
            ("a wrong checksum", "unauthenticated", bearer(&mistyped)),
            ("a key that was never made", "unauthenticated", bearer(&unknown)),
            ("a key that was never made, in X-API-Key", "unauthenticated", ("x-api-key", unknown.clone())),
            ("a revoked key", "unauthenticated", bearer(&revoked.plain)),
            ("a key that was rotated without overlap", "unauthenticated", bearer(&of_revoked.plain)),
            ("an expired key", "key_expired", bearer(&expired.plain)),
            ("an expired key in X-API-Key", "key_expired", ("x-api-key", expired.plain.clone())),
            ("a session that was never made", "unauthenticated", ("cookie", "session=nonsense".to_owned())),
            ("an expired session", "session_expired", ("cookie", early.admin.clone())),
            ("the secure cookie on plain http", "unauthenticated", ("cookie", format!("__Host-{}", acme.admin))),
        ];
        for operation in operations(&server) {
            // An index that nobody keeps up to date stops answering.
            index.catch_up().await;
            let target = operation.record(&server, &acme).await;
            let before = operation.look(&server, &acme, &target.id).await;
            let answer = operation.call(&server, &target.id).await;
            if operation.public {
                answer.is(operation.row.status);
            } else {
                refused(&answer, "unauthenticated", &operation, "nobody");
            }
            for (who, code, (header, value)) in &presented {
                let answer = operation.call(&server, &target.id).header(header, value).await;
                if operation.public {
                    answer.is(operation.row.status);
                } else {
                    refused(&answer, code, &operation, who);
                }
            }
            // Nothing of all this had an effect.
            assert_eq!(operation.look(&server, &acme, &target.id).await, before, "{}", operation.name());
        }
    }

    async fn a_key_needs_the_one_scope_and_no_other(setup: Setup) {
        let (server, index) = generous(setup).await;
        let acme = server.tenant_of_operator("acme").await;
        for operation in operations(&server).into_iter().filter(|operation| !operation.public) {
            // An index that nobody keeps up to date stops answering.
            index.catch_up().await;
            let Some(scope) = operation.scope.as_deref() else { continue };
            let others: Vec<&str> = SCOPES.iter().copied().filter(|other| *other != scope).collect();
            assert_eq!(others.len() + 1, SCOPES.len(), "{scope} is not a scope of the contract");
            let wrong = server.key(&acme, &others).await;
            let target = operation.record(&server, &acme).await;
            let answer = operation.call(&server, &target.id).key(&wrong.plain).await;
            refused(&answer, "insufficient_scope", &operation, "a key with all other scopes");
            assert_eq!(answer.json()["required_scope"], scope);
            let family = format!("{}:*", scope.split(':').next().unwrap());
            // Only the scope itself lets one read figures of the platform.
            let rights = if scope == PLATFORM { vec![scope] } else { vec![scope, &family, "*"] };
            for right in rights {
                let scopes: Vec<&str> = [right].into_iter().chain(operation.row.more.iter().copied()).collect();
                let key = server.key(&acme, &scopes).await;
                let target = operation.record_for(&server, &acme, &key).await;
                let answer = operation.call(&server, &target.id).key(&key.plain).await;
                assert_eq!(answer.status, operation.row.status, "{} with {right}: {:?}", operation.name(), answer.body);
                let target = operation.record_for(&server, &acme, &key).await;
                operation.call(&server, &target.id).header("x-api-key", &key.plain).await.is(operation.row.status);
            }
            make_room(&server, &acme).await;
        }
    }

    async fn an_operation_without_a_scope_takes_any_key_or_none(setup: Setup) {
        let (server, index) = generous(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["search:read"]).await;
        for operation in operations(&server).into_iter().filter(|operation| !operation.public && operation.scope.is_none()) {
            // An index that nobody keeps up to date stops answering.
            index.catch_up().await;
            let answer = operation.call(&server, "").key(&key.plain).await;
            if operation.by_key {
                answer.is(operation.row.status);
            } else {
                refused(&answer, "insufficient_scope", &operation, "a key");
            }
        }
    }

    async fn another_tenant_finds_nothing(setup: Setup) {
        let (server, index) = generous(setup).await;
        let acme = server.tenant("acme").await;
        let globex = server.tenant("globex").await;
        let stranger = server.key(&globex, &["*"]).await;
        // Figures of the platform are of all tenants.
        let is_of_one = |operation: &Operation| operation.scope.as_deref() != Some(PLATFORM);
        for operation in operations(&server).into_iter().filter(|operation| !operation.public && operation.by_key && is_of_one(operation)) {
            // An index that nobody keeps up to date stops answering.
            index.catch_up().await;
            let target = operation.record(&server, &acme).await;
            let before = operation.look(&server, &acme, &target.id).await;
            for version in [None, Some("\"1\""), Some("\"9\""), Some("*")] {
                // Every tenant has a policy of its own, of whose version this tells.
                if operation.row.operation == "replace_backup_config" && version.is_some_and(|version| version != "*") {
                    continue;
                }
                let ask = |id: &str| {
                    let call = operation.call(&server, id).key(&stranger.plain);
                    version.into_iter().fold(call, |call, tag| call.header("if-match", tag))
                };
                let foreign = ask(&target.id).await;
                if operation.row.target == Target::Nothing {
                    let body = String::from_utf8_lossy(&foreign.is(operation.row.status).body).into_owned();
                    for secret in target.secrets.iter().chain([&acme.tenant.id.to_string()]) {
                        assert!(!body.contains(secret), "{} shows another tenant's {secret}", operation.name());
                    }
                } else {
                    refused(&foreign, operation.row.foreign, &operation, "another tenant");
                    let (prefix, _) = target.id.split_once('_').unwrap();
                    let unknown = ask(&format!("{prefix}_01jd8z6v2mfkpb7h3q9xw5t4ra")).await;
                    assert_eq!(foreign.body_but_request_id(), unknown.body_but_request_id(), "{}", operation.name());
                    assert_eq!(head(&foreign), head(&unknown), "{}", operation.name());
                }
            }
            let now = operation.look(&server, &acme, &target.id).await;
            assert_eq!(now, before, "{}", operation.name());
            make_room(&server, &acme).await;
        }
    }

    async fn roles_hold_what_the_contract_gives_them(setup: Setup) {
        let (server, index) = generous(setup).await;
        let acme = server.tenant("acme").await;
        for operation in operations(&server) {
            // An index that nobody keeps up to date stops answering.
            index.catch_up().await;
            for role in Role::ALL {
                let cookie = server.user(&acme.tenant, role).await;
                let target = operation.record(&server, &acme).await;
                let answer = operation.call(&server, &target.id).cookie(&cookie).await;
                match &operation.scope {
                    Some(scope) if !holds(role, scope) => {
                        refused(&answer, "insufficient_scope", &operation, role.as_str());
                        assert_eq!(answer.json()["required_scope"], **scope);
                    }
                    _ => {
                        answer.is(operation.row.status);
                    }
                }
                make_room(&server, &acme).await;
            }
        }
    }

    async fn a_change_by_cookie_from_another_site_is_refused_everywhere(setup: Setup) {
        let (server, index) = generous(setup).await;
        let acme = server.tenant_of_operator("acme").await;
        for operation in operations(&server).into_iter().filter(|operation| !operation.public) {
            // An index that nobody keeps up to date stops answering.
            index.catch_up().await;
            let target = operation.record(&server, &acme).await;
            let answer = operation.call(&server, &target.id).cookie(&acme.admin).header("sec-fetch-site", "cross-site").await;
            match operation.method.as_str() {
                "GET" => {
                        answer.is(operation.row.status);
                    }
                _ => refused(&answer, "csrf_rejected", &operation, "a page of another site"),
            }
        }
    }
}

/// What may not differ between two refusals: the headers but those that count requests or name this one.
fn head(answer: &Answer) -> Vec<(String, String)> {
    let counted = ["x-request-id", "ratelimit", "date"];
    let headers = answer.headers.iter().filter(|(name, _)| !counted.contains(&name.as_str()));
    headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}

/// There is room for a hundred active keys and fifty endpoints.
async fn make_room(server: &Server, tenancy: &Tenancy) {
    let page = server.get(format!("{KEYS}?limit=200&status=active")).cookie(&tenancy.admin).await.ok(200);
    for key in page["data"].as_array().unwrap() {
        let target = format!("{KEYS}?id={}", key["id"].as_str().unwrap());
        server.delete(target).cookie(&tenancy.admin).await;
    }
    let page = server.get(format!("{WEBHOOKS}?limit=200")).cookie(&tenancy.admin).await.ok(200);
    for hook in page["data"].as_array().unwrap() {
        let target = format!("{WEBHOOKS}?id={}", hook["id"].as_str().unwrap());
        server.delete(target).cookie(&tenancy.admin).await;
    }
    let page = server.get(format!("{CLOUDS}?limit=200")).cookie(&tenancy.admin).await.ok(200);
    for provider in page["data"].as_array().unwrap() {
        let target = format!("{CLOUDS}?force=true&id={}", provider["id"].as_str().unwrap());
        server.delete(target).cookie(&tenancy.admin).await;
    }
}
