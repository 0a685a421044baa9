//! How both engines would find the rows of every statement, and of every list that is composed: none may walk a table that
//! grows without end, nor all that a tenant has in it.

mod fill;
mod wrong;

use std::collections::BTreeSet;

use kernel::args;
use kernel::store::{DatabaseEngine, Param, Purpose, Store, Value};
use serde_json::json;

use crate::asset_inventory::{self, INVENTORY};
use crate::organizations::{self, ORGANIZATIONS};
use crate::support::people::{AUDIT, KEYS};
use crate::support::search::{Indexed, SEARCH};
use crate::support::stores::TestStore;
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{TICKETS, generous};
use crate::users::USERS;
use crate::webhooks::{DELIVERIES, EVENTS, WEBHOOKS, endpoint};
use crate::workflows::{self, WORKFLOWS};

use wrong::{is_arm, places, wrong_on_postgres, wrong_on_sqlite};

const VMS: &str = "/api/cloud/vms";
const POSTURES: &str = "/api/backup/customer-aggregate";

/// Tables that have a row for each event, delivery, attempt, request or deed.
const GROWING: &[&str] = &[
    "events",
    "deliveries",
    "delivery_attempts",
    "audit_entries",
    "idempotency_records",
    "tickets",
    "ticket_terms",
    "ticket_comments",
    "ticket_changes",
    "devices",
    "device_parts",
    "device_reports",
    "device_identities",
    "device_terms",
    "device_software",
    "device_counts",
    "device_changes",
    "backup_devices",
    "backup_runs",
    "cohorts",
    "facts",
    "rollups",
    "steps",
    "vm_operations",
    "vms",
    "workflow_revisions",
    "workflow_runs",
];

/// All others of a tenant: a few rows for each person, key, endpoint or customer, or rows that soon go.
const BOUNDED: &[&str] = &[
    "api_key_secrets",
    "api_key_uses",
    "api_keys",
    "backup_configs",
    "backup_pending",
    "backup_postures",
    "changes",
    "cloud_providers",
    "cloud_regions",
    "device_software_changes",
    "fact_backfills",
    "facts_queue",
    "followers",
    "ingest_keys",
    "lane_wakes",
    "lanes",
    "organizations",
    "sessions",
    "signin_links",
    "sla_targets",
    "sso_domains",
    "sso_flows",
    "sso_providers",
    "sso_used_states",
    "tenant_clocks",
    "user_identities",
    "users",
    "webhook_recoveries",
    "webhook_secrets",
    "webhook_states",
    "webhook_subscriptions",
    "webhooks",
    "workflow_triggers",
    "workflows",
];

/// Statements that look at many rows on purpose, and why that is bounded.
const ALLOWED: &[(&str, &str)] = &[
    ("WAITING", "counts what waits, from an index of that alone, off the threads that serve requests"),
    ("COUNT_QUEUED", "counts the queue of facts of all tenants, up to a limit"),
    ("NEXT_QUEUED", "the queue of facts of all tenants, first come, first served"),
    ("TAKE_FACTS", "the same, some hundreds at a time"),
    ("PLATFORM_FACTS", "walks the tenants, and seeks in the facts of each"),
    ("PLATFORM_FACTS_OF_BORN", "the same"),
    ("PLATFORM_FACTS_BY_BIRTH", "the same"),
    ("RECOUNT_DEVICES", "an operator asks that all of a tenant's records are counted again"),
    ("RECOUNT_QUEUED", "the same of what is not added up yet: the queue has no index"),
    ("RECOUNT_TICKETS", "the same of tickets"),
    ("RECOUNT_VMS", "the same of machines"),
    ("WALK_DEVICES", "reads all devices of all tenants for a new search index, some at a time along their key"),
    ("WALK_TICKETS", "the same of tickets"),
    ("WALK_VMS", "the same of machines"),
    ("COUNT_BY_STATE", "counts the machines of a tenant, off the threads that serve requests"),
    ("COUNT_BY_PROVIDER", "the same by provider"),
    ("COUNT_BY_REGION", "the same by region"),
    ("COUNT_BY_SIZE", "the same by size"),
    ("COUNT_BY_ORGANIZATION", "the same by organization"),
    ("WALK_USER_DATA", "the same of sealed values of open orders"),
    ("COUNT_USER_DATA", "a start, `doctor` and `admin keyring` count sealed values by key; of open orders"),
    ("WALK_SEALED_HEADERS", "rewraps sealed values of all tenants, some at a time along their key"),
    ("COUNT_SEALED_HEADERS", "a start, `doctor` and `admin keyring` count sealed values by key; some thousands"),
    (
        "COUNT_STORED_ANSWERS",
        "the same of answers, by `doctor` and `admin keyring` alone, in a process of their own; those of a day",
    ),
    (
        "LIST_VOUCHED_ELSEWHERE",
        "`doctor` alone reads it, in a process of its own; as many rows as people have linked accounts",
    ),
];

/// Beginnings of lists, which are looked at as a whole: they add their filters, an order and a limit.
const COMPOSED: &[&str] = &[
    "LIST",
    "READ",
    "WINDOW",
    "BODIES",
    "FULL",
    "LIST_SUMMARIES",
    "LIST_CHANGED_SUMMARIES",
    "NUMBERS",
    "UPDATES",
    "PRIORITIES",
    "DATES",
    "BY_EXTERNAL_ID",
    "CHANGES",
    "HOSTNAMES",
    "SEEN",
    "VERSIONS_OF",
    "DISKS",
    "VOLUMES",
    "NICS",
    "SOFTWARE",
    "PORTS",
    "SUPPLIES",
];

/// Whether a statement is the beginning of a list; what has an order has all it needs.
fn is_beginning(name: &str, sql: &str) -> bool {
    COMPOSED.contains(&name) && !sql.contains("ORDER BY")
}

/// A text that does not say along which index it goes.
fn without_index(text: &str) -> String {
    let mut parts = text.split(" /* INDEXED BY ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(" */").map_or(part, |(_, rest)| rest))
}

/// The statements that are asked as they are.
fn whole() -> Vec<(&'static str, &'static str)> {
    let statements = tenant_control::all_statements().into_iter();
    let allowed = |name: &str| ALLOWED.iter().any(|(allowed, _)| *allowed == name);
    statements.filter(|(name, sql)| !is_beginning(name, sql) && !allowed(name)).collect()
}

/// Every combination of these filters, each left out, with one value or with two.
fn combinations(filters: &[(&str, [&str; 2])]) -> Vec<String> {
    filters.iter().fold(vec![String::new()], |queries, (name, values)| {
        let with = |query: &String| {
            let one = format!("{query}&{name}={}", values[0]);
            [query.clone(), one.clone(), format!("{one},{}", values[1])]
        };
        queries.iter().flat_map(with).collect()
    })
}

/// Each filter of the inventory, with one value and with several, and sets that are large together.
const INVENTORY_FILTERS: &[&str] = &[
    "",
    "&type=server",
    "&type=server,laptop,other",
    "&platform=linux",
    "&status=offline",
    "&status=offline,online",
    "&health=healthy,unknown",
    "&organization_id=none",
    "&organization_id=org_01jd8z6v2mfkpb7h3q9xw5t4ra",
    "&organization_id=none,org_01jd8z6v2mfkpb7h3q9xw5t4ra,org_01jd8z6v2mfkpb7h3q9xw5t4rb",
    "&tag=red",
    "&tag=red,green",
    "&software=bash",
    "&software=bash@5,zsh",
    "&q=host",
    "&q=h+02fc",
    "&health=healthy,unknown&status=offline,online&software=bash",
    "&include=disks,volumes,nics,software,ports,supplies",
    "&hostname=host-1",
    "&serial_number=a,b",
    "&os=debian",
    "&needs_reboot=true",
    "&warranty=expired,active",
    "&possible_duplicate=true",
    "&last_seen_before=2026-12-31T00:00:00Z",
];

/// Every order of the inventory.
const INVENTORY_SORTS: &[&str] =
    &["hostname", "-hostname", "last_seen_at", "-last_seen_at", "updated_at", "-updated_at", "created_at"];

/// Two machines of a new provider, whose id is returned.
async fn add_machines(server: &Server, acme: &Tenancy) -> String {
    let provider =
        json!({"name": "Cloud", "kind": "hetzner", "credentials": {"token": "x".repeat(64)}, "regions": ["fsn1"]});
    let provider = server.post("/api/cloud/providers").cookie(&acme.admin).json(&provider).await.ok(201);
    for name in ["first", "second"] {
        let order = json!({"provider_id": provider["id"], "name": name, "region": "fsn1", "size": "cx22", "image": "debian-12"});
        server.post(VMS).cookie(&acme.admin).json(&order).await.is(202);
    }
    provider["id"].as_str().unwrap().to_owned()
}

/// A backup of one device that is known, so that its organization has reasons to show.
async fn report_backup(server: &Server, acme: &Tenancy) {
    let devices = server.get(format!("{INVENTORY}?limit=1")).cookie(&acme.admin).await.ok(200);
    let report = json!({"external_id": "1", "device": devices["data"][0]["id"], "job": "nightly", "kind": "backup", "tool": "other",
        "status": "failed", "target": "nas", "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:00Z"});
    let key = server.ingest_key(acme).await;
    server.post("/internal/ingest/backup").header("authorization", key.basic()).json(&report).await.is(201);
}

/// Asks every list in all ways that make its SQL another, and tells how it has asked.
async fn ask_all(server: &Server) -> Vec<String> {
    let acme = server.tenant("acme").await;
    let audit = [
        ("actor_id", ["usr_01jd8z6v2mfkpb7h3q9xw5t4ra", "usr_01jd8z6v2mfkpb7h3q9xw5t4rb"]),
        ("action", ["ticket.update", "ticket.create"]),
        ("target_id", ["tkt_01jd8z6v2mfkpb7h3q9xw5t4ra", "tkt_01jd8z6v2mfkpb7h3q9xw5t4rb"]),
    ];
    let log = [
        ("webhook_id", ["wh_01jd8z6v2mfkpb7h3q9xw5t4ra", "wh_01jd8z6v2mfkpb7h3q9xw5t4rb"]),
        ("event_id", ["evt_01jd8z6v2mfkpb7h3q9xw5t4ra", "evt_01jd8z6v2mfkpb7h3q9xw5t4rb"]),
        ("event_type", ["ticket.updated", "ticket.created"]),
        ("status", ["pending", "failed"]),
    ];
    let runs = [
        ("workflow_id", ["wf_01jd8z6v2mfkpb7h3q9xw5t4ra", "wf_01jd8z6v2mfkpb7h3q9xw5t4rb"]),
        ("status", ["pending", "failed"]),
    ];
    // Something of each, so that lists go on to read what they have found.
    for _ in 0..2 {
        endpoint(server, &acme, "https://hooks.example.com/in", &["*"]).await;
    }
    for name in ["First", "Second"] {
        let made = workflows::create(server, &acme, &workflows::named(name)).await.ok(201);
        let run = json!({"workflow_id": made["id"]});
        server.post(WORKFLOWS).cookie(&acme.admin).json(&run).await.is(202);
    }
    server.key(&acme, &["*"]).await;
    // Long, for an event whose body is read by itself.
    let ticket = json!({"subject": "Printer", "external_id": "x", "description": "x".repeat(8 << 10)});
    server.post(TICKETS).cookie(&acme.admin).json(&ticket).await.is(201);
    // More than are read at once, so that lists are walked.
    asset_inventory::bulk::load(server, &acme, 601, 10).await;
    asset_inventory::bulk::install(server, &acme).await;
    let provider = add_machines(server, &acme).await;
    report_backup(server, &acme).await;
    for name in ["First", "Second"] {
        organizations::make(server, &acme, &json!({"name": name, "external_id": name})).await;
    }
    let mut targets = Vec::new();
    for filter in INVENTORY_FILTERS {
        for more in ["", "&updated_since=2000-01-01T00:00:00Z"] {
            targets.push(format!("{INVENTORY}?limit=1{filter}{more}"));
        }
    }
    targets.extend(["limit=1", "limit=1&health=ok", "health=ok,unknown"].map(|query| format!("{POSTURES}?{query}")));
    targets.extend(INVENTORY_SORTS.iter().map(|sort| format!("{INVENTORY}?limit=1&sort={sort}")));
    for time in ["", "&since=2026-01-01T00:00:00Z&until=2026-12-31T00:00:00Z"] {
        targets.extend(combinations(&audit).iter().map(|query| format!("{AUDIT}?limit=1{query}{time}")));
        targets.extend(combinations(&runs).iter().map(|query| format!("{WORKFLOWS}?view=runs&limit=1{query}{time}")));
        targets.extend(combinations(&log).iter().map(|query| format!("{DELIVERIES}?limit=1{query}{time}")));
    }
    targets.extend(
        combinations(&[("status", ["active", "expired"])]).iter().map(|query| format!("{KEYS}?limit=1{query}")),
    );
    let statuses = ["active", "revoked", "active,revoked", "expired,revoked", "active,expired,revoked"];
    targets.extend(statuses.map(|any| format!("{KEYS}?status={any}")));
    for filter in ["", "&role=admin", "&role=admin,viewer&status=active", "&q=the", "&email=a@acme.test"] {
        for more in ["", "&updated_since=2000-01-01T00:00:00Z"] {
            targets.push(format!("{USERS}?limit=1{filter}{more}"));
        }
    }
    targets.extend([
        format!("{ORGANIZATIONS}?limit=1"),
        format!("{ORGANIZATIONS}?archived=true"),
        format!("{ORGANIZATIONS}?q=fir"),
        format!("{ORGANIZATIONS}?slug=first"),
        format!("{ORGANIZATIONS}?external_id=First"),
        format!("{ORGANIZATIONS}?limit=1&updated_since=2000-01-01T00:00:00Z"),
        "/api/cloud/providers?limit=1".to_owned(),
        format!("{VMS}?limit=1"),
        format!("{VMS}?limit=1&provider_id={provider}"),
        format!("{VMS}?limit=1&provider_id={provider},prv_01jd8z6v2mfkpb7h3q9xw5t4ra"),
        format!("{VMS}?limit=1&organization_id=org_01jd8z6v2mfkpb7h3q9xw5t4ra"),
        format!("{VMS}?limit=1&state=provisioning&region=fsn1&tag=env&q=fir"),
        format!("{VMS}?limit=1&state=provisioning,running"),
        format!("{VMS}?limit=1&updated_since=2000-01-01T00:00:00Z"),
        format!("{DELIVERIES}?status=succeeded,pending&limit=8"),
        format!("{WEBHOOKS}?limit=1"),
        format!("{WORKFLOWS}?limit=1"),
        format!("{EVENTS}?view=feed&limit=1"),
        format!("{SEARCH}?q=printer"),
        format!("{TICKETS}?external_id=x"),
        format!("{TICKETS}?limit=1"),
        format!("{TICKETS}?limit=1&sort=created_at"),
        format!("{TICKETS}?limit=1&sort=priority"),
        format!("{TICKETS}?limit=1&sort=due_at"),
        format!("{TICKETS}?limit=1&sort=-due_at&status=new"),
        format!("{TICKETS}?limit=1&sort=updated_at&organization_id=org_01jd8z6v2mfkpb7h3q9xw5t4ra"),
        format!("{TICKETS}?limit=1&sort=-updated_at&assignee_id=none"),
        format!("{TICKETS}?status=new&organization_id=none,org_01jd8z6v2mfkpb7h3q9xw5t4ra"),
        format!("{TICKETS}?status=new&sort=-updated_at"),
        format!("{TICKETS}?q=prin&priority=medium"),
        format!("{TICKETS}?updated_since=2026-01-01T00:00:00Z&limit=1"),
    ]);
    for target in &targets {
        let answer = server.get(target).cookie(&acme.admin).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.json());
        if let Some(cursor) = answer.json()["next_cursor"].as_str() {
            server.get(format!("{target}&cursor={cursor}")).cookie(&acme.admin).await.is(200);
        }
    }
    targets
}

/// The lists of the document: what has a cursor.
async fn lists(server: &Server) -> Vec<String> {
    let document = server.get("/api/openapi.json").await.ok(200);
    let is_list = |path: &serde_json::Value| {
        let parameters = path["get"]["parameters"].as_array();
        parameters.is_some_and(|parameters| parameters.iter().any(|parameter| parameter["name"] == "cursor"))
    };
    let paths = document["paths"].as_object().unwrap().iter();
    paths.filter(|(_, path)| is_list(path)).map(|(path, _)| path.clone()).collect()
}

over_http! {
    async fn no_list_that_is_composed_walks_a_table_that_grows(setup: Setup) {
        let server = generous(setup).await;
        let store = &server.app.store;
        if store.engine() == DatabaseEngine::Postgres {
            fill::leave_unanalyzed(store, &[GROWING, BOUNDED]).await;
        }
        let _index = Indexed::of(&server).await;
        store.executed_lists();
        let targets = ask_all(&server).await;
        for list in lists(&server).await {
            let is_asked = targets.iter().any(|target| target.starts_with(&format!("{list}?")));
            assert!(is_asked, "nobody has asked for {list}: add it to ask_all, with each of its filters");
        }
        let asked: BTreeSet<String> = store.executed_lists();
        let plain: Vec<String> = asked.iter().map(|text| without_index(text)).collect();
        for (name, sql) in tenant_control::all_statements() {
            let is_asked = |sql: &str| plain.iter().any(|text| text.contains(sql));
            let looked_at = !(is_beginning(name, sql) || is_arm(name, sql)) || is_asked(&without_index(sql));
            assert!(looked_at, "nobody has asked for a list that starts with {name}: add it to ask_all\n{sql}");
        }
        let mut wrong = Vec::new();
        match store.engine() {
            DatabaseEngine::Sqlite => {
                for sql in &asked {
                    wrong.extend(wrong_on_sqlite(store, "a list", sql).await);
                }
            }
            DatabaseEngine::Postgres => {
                fill(store).await;
                for _ in 0..2 {
                    for sql in &asked {
                        wrong.extend(wrong_on_postgres(store, "a list", sql, false).await);
                    }
                    analyze(store).await;
                }
            }
        }
        assert!(wrong.is_empty(), "these walk all rows, or all of a tenant:\n{}", wrong.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_walks_a_table_that_grows_on_sqlite() {
    let store = TestStore::sqlite().await;
    let mut wrong = Vec::new();
    for (name, sql) in whole() {
        wrong.extend(wrong_on_sqlite(&store, name, sql).await);
    }
    assert!(wrong.is_empty(), "these walk all rows, or all of a tenant:\n{}", wrong.join("\n"));
}

/// What nearly every write runs, beside the inserts of the audit trail and of events.
const OFTEN: &[&str] = &[
    "LAST_TICK",
    "SET_CLOCK",
    "SUBSCRIBED",
    "EXTEND_LEASE",
    "SAVE_OUTCOME",
    "INSERT_ATTEMPT",
    "INSERT_TERMS",
    "INSERT_CHANGE",
];

/// SQLite makes a table, and throws it away, for what RETURNING returns and for an IN of three or more: each costs as much as
/// the rest of a small statement.
#[tokio::test(flavor = "multi_thread")]
async fn what_nearly_every_write_runs_makes_no_table_on_sqlite() {
    let store = TestStore::sqlite().await;
    let named = tenant_control::all_statements().into_iter().filter(|(name, _)| OFTEN.contains(name));
    let inserts = [("INSERT", kernel::audit::INSERT), ("INSERT", kernel::events::INSERT)];
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for (name, sql) in named.chain(inserts) {
        let nothing = Value::Null;
        let args: Vec<&dyn Param> = (0..places(sql)).map(|_| &nothing as &dyn Param).collect();
        let steps: Vec<(i64, String)> =
            store.system(Purpose::Cli).list(&format!("EXPLAIN {sql}"), &args).await.unwrap();
        wrong.extend(steps.iter().any(|(_, step)| step == "OpenEphemeral").then_some(name));
        looked_at += 1;
    }
    assert!(looked_at >= OFTEN.len() + inserts.len(), "{looked_at}");
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_walks_a_table_that_grows_on_postgres() {
    let store = TestStore::postgres().await;
    fill(&store).await;
    let mut wrong = Vec::new();
    // A list must be found along its index also before PostgreSQL has looked at what is in the tables.
    for (name, sql) in whole().into_iter().filter(|(name, sql)| is_arm(name, sql)) {
        wrong.extend(wrong_on_postgres(&store, name, sql, true).await);
    }
    analyze(&store).await;
    for (name, sql) in whole() {
        wrong.extend(wrong_on_postgres(&store, name, sql, is_arm(name, sql)).await);
    }
    assert!(wrong.is_empty(), "these walk all rows, or all of a tenant:\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_of_a_tenant_is_known_to_grow_or_to_be_bounded() {
    let store = TestStore::postgres().await;
    let db = store.system(Purpose::Cli);
    let sql = "SELECT table_name::text FROM information_schema.columns
        WHERE table_schema = 'public' AND column_name = 'tenant_id' ORDER BY table_name";
    let found: Vec<String> = db.list(sql, args![]).await.unwrap();
    let mut known = [GROWING, BOUNDED].concat();
    known.sort_unstable();
    assert_eq!(found, known, "a new table belongs into GROWING, and into fill.rs, or into BOUNDED");
    fill(&store).await;
    for table in GROWING {
        let rows: i64 = db.get_one(&format!("SELECT COUNT(*) FROM {table}"), args![]).await.unwrap();
        assert!(
            rows > 1_000,
            "{table} has {rows} rows: what PostgreSQL plans for so few tells nothing; add it to fill.rs"
        );
    }
}

async fn fill(store: &Store) {
    fill::leave_unanalyzed(store, &[GROWING, BOUNDED]).await;
    let db = store.system(Purpose::Cli);
    // Each by itself: a write may take only so long.
    for sql in fill::ROWS {
        db.write(async |tx| tx.exec(sql, args![]).await).await.expect("a table is filled");
    }
}

async fn analyze(store: &Store) {
    let db = store.system(Purpose::Cli);
    let analyze = db.write(async |tx| {
        for table in GROWING {
            tx.exec(&format!("ANALYZE {table}"), args![]).await?;
        }
        Ok(())
    });
    analyze.await.expect("the tables are analyzed");
}
