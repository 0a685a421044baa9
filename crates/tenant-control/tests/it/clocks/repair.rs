//! What a repair takes out of the future, and that it can be interrupted.

use std::collections::{BTreeMap, BTreeSet};

use kernel::args;
use kernel::auth::{Role, list_clocks, open_as_operator};
use kernel::base::{DAY_MS, Env, HOUR_MS, MINUTE_MS, Timestamp, WallClock};
use kernel::events;
use kernel::store::{BATCH_ROWS, Param, Purpose};
use serde_json::{Value, json};
use tenant_control::cli::clock;
use tenant_control::features::tickets::sla::{self, PriorityPolicy, SlaPolicy};
use tenant_control::features::tickets::{self, Priority};

use super::AHEAD_MS;
use crate::asset_inventory::{self, INVENTORY};
use crate::organizations::ORGANIZATIONS;
use crate::support::people::{KEYS, SESSION};
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::stores::TestStore;
use crate::support::workflows;
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::tickets::TICKETS;
use crate::users::USERS;
use crate::webhooks::{WEBHOOKS, endpoint, open};

/// A number that the database tells, of one tenant or none.
async fn ask(server: &Server, sql: &str, args: &[&dyn Param]) -> Option<i64> {
    server.app.store.system(Purpose::Cli).get_one(sql, args).await.expect("a number")
}

/// Goes to the wrong time, where everybody has to sign in again.
async fn go_ahead(server: &Server, tenancy: &Tenancy) -> String {
    server.advance(AHEAD_MS);
    server.user(&tenancy.tenant, Role::Admin).await
}

async fn repair(server: &Server, tenancy: &Tenancy) -> clock::ClockRepair {
    let db = open_as_operator(&server.app.store, &tenancy.tenant);
    let repaired = clock::repair_clock(&db, 28 * DAY_MS).await.expect("a repair");
    // The command is another process: on PostgreSQL this one may remember for half a second.
    server.app.credentials.invalidate_tenant(tenancy.tenant.id);
    repaired
}

/// The tenants whose clock keeps them from writing, as a node sees it.
async fn stuck(server: &Server) -> Vec<String> {
    let clocks = list_clocks(&server.app.store.system(Purpose::Cli)).await.expect("the clocks");
    clocks.into_iter().filter(kernel::auth::TenantClock::is_stuck).map(|clock| clock.tenant).collect()
}

fn one(path: &str, record: &Value) -> String {
    format!("{path}?id={}", record["id"].as_str().expect("an id"))
}

over_http! {
    async fn ends_that_were_counted_from_a_wrong_time_are_shortened(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Month", "scopes": ["*"], "expires_days": 30})).await;
        let kept = server.key_with(&acme, &json!({"name": "Kept", "scopes": ["*"], "expires_days": 200})).await;
        let admin = go_ahead(&server, &acme).await;
        let year = json!({"name": "Month", "scopes": ["*"], "expires_days": 365});
        server.put(one(KEYS, &key.record)).cookie(&admin).json(&year).await.is(200);
        for record in [&key.record, &kept.record] {
            server.put(one(KEYS, record)).cookie(&admin).json(&json!({"rotate": {"overlap_hours": 1}})).await.is(200);
        }
        let made = json!({"name": "Made", "scopes": ["*"]});
        server.post(KEYS).cookie(&admin).idempotency_key("once").json(&made).await.is(201);
        server.advance(-AHEAD_MS);
        assert_eq!(repair(&server, &acme).await.api_keys, 3);

        let now = server.now();
        let end = async |record: &Value| server.get(one(KEYS, record)).cookie(&acme.admin).await.ok(200)["expires_at"].clone();
        assert_eq!(end(&key.record).await, now.plus_ms(365 * DAY_MS).to_string(), "no later than that of a key made now");
        assert_eq!(end(&kept.record).await, kept.record["expires_at"], "what was not changed stays");
        let overlap = ask(&server, "SELECT MAX(valid_until) FROM api_key_secrets", args![]).await;
        assert_eq!(overlap, Some(now.plus_ms(HOUR_MS).as_millis()));
        let replayed = ask(&server, "SELECT MAX(expires_at) FROM idempotency_records", args![]).await;
        assert_eq!(replayed, Some(now.plus_ms(DAY_MS).as_millis()));
        server.get(SESSION).key(&key.plain).await.is(200);
        server.advance(HOUR_MS);
        server.app.credentials.invalidate_tenant(acme.tenant.id);
        server.get(SESSION).key(&key.plain).await.problem("unauthenticated");
    }

    async fn a_legal_overlap_is_not_cut_by_a_change_in_the_future(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key_with(&acme, &json!({"name": "Key", "scopes": ["*"], "expires_days": 200})).await;
        server.put(one(KEYS, &key.record)).cookie(&acme.admin).json(&json!({"rotate": {"overlap_hours": 168}})).await.is(200);
        let promised = ask(&server, "SELECT MAX(valid_until) FROM api_key_secrets", args![]).await;
        let admin = go_ahead(&server, &acme).await;
        let renamed = json!({"name": "Renamed", "scopes": ["*"]});
        server.put(one(KEYS, &key.record)).cookie(&admin).json(&renamed).await.is(200);
        server.advance(-AHEAD_MS);
        repair(&server, &acme).await;
        assert_eq!(ask(&server, "SELECT MAX(valid_until) FROM api_key_secrets", args![]).await, promised);
    }

    async fn what_waits_for_a_wrong_time_is_sent_now(setup: Setup) {
        let server = open(setup).await;
        let (acme, receiver) = (server.tenant("acme").await, Receiver::start().await);
        let hook = endpoint(&server, &acme, &receiver.url("/hook"), &["api_key.*"]).await;
        receiver.on("/hook", [Behaviour::RetryAfter { status: 503, seconds: 3_600 }, Behaviour::Answer(204)]);
        let admin = go_ahead(&server, &acme).await;
        let rotation = json!({"rotate_secret": {"overlap_hours": 2}});
        server.put(one(WEBHOOKS, &hook)).cookie(&admin).json(&rotation).await.is(200);
        let body = json!({"name": "Key", "scopes": ["*"]});
        server.post(KEYS).cookie(&admin).json(&body).await.is(201);
        server.sender.run_due().await.unwrap();
        server.post(KEYS).cookie(&admin).json(&body).await.is(201);
        assert_eq!(receiver.count(), 1, "it has asked for an hour");
        server.advance(-AHEAD_MS);
        server.sender.run_due().await.unwrap();
        assert_eq!(receiver.count(), 1, "that hour is 120 days away");

        let repaired = repair(&server, &acme).await;
        assert_eq!(repaired.deliveries, 2);
        let now = server.now();
        for sql in [
            "SELECT COUNT(*) FROM lanes WHERE due_at > $1 OR not_before > $1",
            "SELECT COUNT(*) FROM webhook_states WHERE paused_until > $1 OR failing_since > $1 OR last_failure_at > $1",
            "SELECT COUNT(*) FROM webhooks WHERE created_at > $1 OR updated_at > $1",
            "SELECT COUNT(*) FROM deliveries WHERE next_attempt_at > $1",
            "SELECT COUNT(*) FROM events WHERE at > $1",
        ] {
            assert_eq!(ask(&server, sql, args![now]).await, Some(0), "{sql}");
        }
        let overlap = ask(&server, "SELECT MAX(valid_until) FROM webhook_secrets", args![]).await;
        assert_eq!(overlap, Some(now.plus_ms(2 * HOUR_MS).as_millis()));
        server.sender.run_due().await.unwrap();
        assert_eq!(receiver.count(), 3);
        let record = server.get(one(WEBHOOKS, &hook)).cookie(&acme.admin).await.ok(200);
        assert_eq!((&record["backlog"]["pending"], &record["consecutive_failures"]), (&json!(0), &json!(0)), "{record}");
    }

    async fn a_wait_that_a_retry_can_have_is_left_alone(setup: Setup) {
        let server = open(setup).await;
        let (acme, receiver) = (server.tenant("acme").await, Receiver::start().await);
        receiver.on("/hook", [Behaviour::Answer(500)]);
        endpoint(&server, &acme, &receiver.url("/hook"), &["api_key.*"]).await;
        server.key(&acme, &["*"]).await;
        server.sender.run_due().await.unwrap();
        let due = ask(&server, "SELECT MAX(next_attempt_at) FROM deliveries", args![]).await;
        server.set_clock(acme.tenant.id, server.now().plus_ms(AHEAD_MS)).await;
        assert_eq!(repair(&server, &acme).await.deliveries, 0);
        assert_eq!(ask(&server, "SELECT MAX(next_attempt_at) FROM deliveries", args![]).await, due);
    }

    async fn schedules_fire_by_the_right_time_again(setup: Setup) {
        let server = workflows::open(setup).await;
        let acme = server.tenant("acme").await;
        let pause = [workflows::wait("pause", 60)];
        let daily = server.workflow(&acme, &workflows::on_schedule("30 12 * * *", "UTC", pause)).await;
        let next = daily["next_run_at"].clone();
        server.advance(AHEAD_MS);
        server.work().await;
        server.advance(-AHEAD_MS);
        assert_eq!(repair(&server, &acme).await.workflow_steps, 1, "that which waits for the wrong time");
        assert_eq!(server.read_workflow(&acme, &daily).await["next_run_at"], next);
        server.work().await;
        let runs = server.runs_of(&acme, &daily).await;
        assert_eq!((runs.len(), &runs[0]["status"]), (1, &json!("succeeded")), "{runs:#?}");
        // What was made up for in the wrong time is not made again.
        server.work_for(2 * DAY_MS).await;
        let mut runs = server.runs_of(&acme, &daily).await;
        // That of the wrong time has an id of then.
        runs.sort_by_key(|run| run["trigger"]["scheduled_for"].as_str().unwrap().to_owned());
        assert_eq!((runs.len(), &runs[0]["trigger"]["scheduled_for"]), (2, &next), "{runs:#?}");
        let day_after = workflows::time(&next).plus_ms(DAY_MS);
        assert_eq!(workflows::time(&runs[1]["trigger"]["scheduled_for"]), day_after);
        assert_eq!((&runs[1]["status"], &runs[1]["trigger"]["late"]), (&json!("succeeded"), &json!(false)));
    }

    async fn an_approval_goes_on_waiting_for_somebody(setup: Setup) {
        let server = workflows::open(setup).await;
        let acme = server.tenant("acme").await;
        let asked = server.workflow(&acme, &workflows::manual([workflows::approval("asked").timeout(28 * 24 * 60 * 60)])).await;
        server.advance(AHEAD_MS);
        let run = server.start_run(&acme, &asked, &json!({})).await;
        server.work().await;
        server.advance(-AHEAD_MS);
        assert_eq!(repair(&server, &acme).await.workflow_steps, 1);
        server.work_for(DAY_MS).await;
        assert_eq!(server.read_run(&acme, &run).await["status"], "waiting", "nobody has said a word");
        server.tell_run(&acme, &run, "approve").await.is(200);
        assert_eq!(server.read_run(&acme, &run).await["status"], "succeeded");
    }

    async fn a_cursor_from_the_future_is_refused_and_not_waited_for(server: Server) {
        let acme = server.tenant("acme").await;
        let admin = go_ahead(&server, &acme).await;
        let (since, mut cursors) = (server.now(), Vec::new());
        for at in 0..2 {
            let ticket = json!({"subject": "Printer"});
            server.post(TICKETS).cookie(&admin).json(&ticket).await.is(201);
            server.post(ORGANIZATIONS).cookie(&admin).json(&json!({"name": format!("Customer {at}")})).await.is(201);
            let user = json!({"email": format!("user{at}@acme.test"), "name": "Ann", "role": "viewer"});
            server.post(USERS).cookie(&admin).json(&user).await.is(201);
        }
        asset_inventory::add_all(&server, &acme, vec![asset_inventory::named("web01"), asset_inventory::named("web02")]).await;
        let lists = [TICKETS, ORGANIZATIONS, USERS, INVENTORY];
        for list in lists {
            let target = format!("{list}?updated_since={since}&limit=1");
            let page = server.get(&target).cookie(&admin).await.ok(200);
            cursors.push(format!("{target}&cursor={}", page["next_cursor"].as_str().expect("a second page")));
        }
        server.advance(-AHEAD_MS);
        repair(&server, &acme).await;
        for target in cursors {
            server.get(&target).cookie(&acme.admin).await.problem("invalid_cursor");
        }
    }

    async fn tickets_of_a_wrong_time_are_listed_since_the_repair(server: Server) {
        let acme = server.tenant("acme").await;
        let since = server.now();
        let create = async |cookie: &str, subject: &str| {
            server.post(TICKETS).cookie(cookie).json(&json!({"subject": subject})).await.is(201);
        };
        create(&go_ahead(&server, &acme).await, "Ahead").await;
        server.advance(-AHEAD_MS);
        repair(&server, &acme).await;
        create(&acme.admin, "After").await;
        let target = format!("{TICKETS}?created_since={since}&sort=created_at");
        let page = server.get(&target).cookie(&acme.admin).await.ok(200);
        let subjects: Vec<&Value> = page["data"].as_array().unwrap().iter().map(|ticket| &ticket["subject"]).collect();
        assert_eq!(subjects, ["Ahead", "After"]);
    }

    async fn promises_are_counted_anew(server: Server) {
        let acme = server.tenant("acme").await;
        let policy = SlaPolicy { first_response_minutes: 60, resolution_minutes: 480, hours: None, timezone: None };
        let target = PriorityPolicy { priority: Priority::High, policy };
        sla::store::set_policy(&open_as_operator(&server.app.store, &acme.tenant), target).await.unwrap();
        let ticket = json!({"subject": "Printer", "priority": "high"});
        let waiting = server.post(TICKETS).cookie(&acme.admin).json(&ticket).await.ok(201);
        server.patch(one(TICKETS, &waiting)).cookie(&acme.admin).json(&json!({"status": "pending"})).await.is(200);
        let admin = go_ahead(&server, &acme).await;
        let early = server.post(TICKETS).cookie(&admin).json(&ticket).await.ok(201);
        // The pause that ends there is 120 days long.
        server.patch(one(TICKETS, &waiting)).cookie(&admin).json(&json!({"status": "open"})).await.is(200);
        server.advance(-AHEAD_MS);
        assert_eq!(repair(&server, &acme).await.tickets, 2);
        let now = server.now();
        for ticket in [&waiting, &early] {
            let ticket = server.get(one(TICKETS, ticket)).cookie(&acme.admin).await.ok(200);
            let dues = (&ticket["first_response_due_at"], &ticket["resolution_due_at"]);
            let wanted = (json!(now.plus_ms(HOUR_MS).to_string()), json!(now.plus_ms(8 * HOUR_MS).to_string()));
            assert_eq!(dues, (&wanted.0, &wanted.1), "{ticket}");
            assert_eq!((&ticket["created_at"], &ticket["sla_state"]), (&json!(now.to_string()), &json!("ok")));
        }
    }

    async fn an_interrupted_repair_is_seen_and_goes_on(server: Server) {
        let acme = server.tenant("acme").await;
        let admin = go_ahead(&server, &acme).await;
        let ticket = json!({"subject": "Printer"});
        server.post(TICKETS).cookie(&admin).json(&ticket).await.is(201);
        let db = open_as_operator(&server.app.store, &acme.tenant);
        // More than one step of them.
        let (count, from) = (BATCH_ROWS + BATCH_ROWS / 2, server.now());
        let insert = "INSERT INTO events (tenant_id, sequence, id, type, family, record_id, at, body)
            WITH RECURSIVE numbers (n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < $2)
            SELECT CAST($1 AS TEXT), n + 1000, 'evt_' || n, 'custom.load', 'custom', 'r', CAST($3 AS BIGINT) + n, '{}' FROM numbers";
        let made = db.write(async move |tx| tx.exec(insert, args![count, from]).await).await.unwrap();
        assert_eq!(made, count.unsigned_abs());
        server.advance(-AHEAD_MS);

        // As far as a repair comes that is killed between its steps.
        let now = server.now();
        assert_eq!(tickets::store::clamp_future_timestamps(&db, now).await.unwrap(), 1);
        let step = db
            .write(async move |tx| tx.exec(events::CLAMP_FUTURE_TIMESTAMPS, args![now, 10_i64]).await)
            .await
            .unwrap();
        assert_eq!((step, stuck(&server).await), (10, vec!["acme".to_owned()]));
        server.post(TICKETS).cookie(&acme.admin).json(&ticket).await.problem("unavailable");

        server.advance(MINUTE_MS);
        let repaired = repair(&server, &acme).await;
        assert_eq!((repaired.from, repaired.to, repaired.tickets), (Some(from), server.now(), 0));
        assert!(stuck(&server).await.is_empty());
        let times = "SELECT at FROM events WHERE tenant_id = $1 ORDER BY sequence";
        let times: Vec<Timestamp> = db.list(times, args![]).await.unwrap();
        assert!(times.is_sorted(), "times rise with the sequence, for what is removed goes by one and what is read by the other");
        assert_eq!((times[times.len() - 1], times.contains(&now)), (server.now(), true));
        server.post(TICKETS).cookie(&acme.admin).json(&ticket).await.is(201);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clocks_are_compared_with_the_time_of_the_database() {
    let server = Setup::postgres().await.in_real_time().start().await;
    server.tenant("acme").await;
    let globex = server.tenant("globex").await;
    server.set_clock(globex.tenant.id, server.now().plus_ms(AHEAD_MS)).await;
    for wrong_by_ms in [AHEAD_MS, -AHEAD_MS] {
        let world = Env { clock: WallClock::Skewed(wrong_by_ms), ..Env::default() };
        assert_eq!(stuck(&server.second_node_with(world).await).await, ["globex"], "{wrong_by_ms}");
    }
}

/// Tables and their times, as `admin clock` says what becomes of each.
fn decided() -> BTreeMap<String, BTreeSet<String>> {
    let source = crate::tidy::sources(&["crates/tenant-control/src/cli"]);
    let (_, text) = source.iter().find(|(path, _)| path.ends_with("/clock.rs")).expect("the command");
    let mut decided: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("//! | `")) {
        let mut cells = row.split(" | ");
        let (tables, times) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        for table in tables.split(' ') {
            let times = times.split(' ').map(str::to_owned);
            decided.entry(table.replace('`', "")).or_default().extend(times);
        }
    }
    decided
}

#[tokio::test(flavor = "multi_thread")]
async fn of_every_time_in_the_schema_it_is_said_what_a_repair_makes_of_it() {
    let store = TestStore::sqlite().await;
    let columns = "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND c.type = 'INTEGER'";
    let columns: Vec<(String, String)> = store.system(Purpose::Cli).list(columns, args![]).await.unwrap();
    let is_time = |column: &str| {
        let ends = ["_at", "_until", "_since", "_before", "_start"];
        ["at", "since", "until"].contains(&column) || ends.iter().any(|end| column.ends_with(end))
    };
    let mut decided = decided();
    for (table, column) in columns.iter().filter(|(_, column)| is_time(column)) {
        let known = decided.get_mut(table).is_some_and(|times| times.remove(column));
        assert!(known, "say in cli/clock.rs what becomes of {table}.{column} when a clock was ahead");
    }
    // Times in a text, which the schema does not tell.
    decided.get_mut("tickets").expect("tickets").remove("sla_pauses");
    decided.retain(|_, times| !times.is_empty());
    assert!(decided.is_empty(), "not in the schema: {decided:?}");
}
