//! Tickets made over HTTP on PostgreSQL, against pgbench with the same statements for the same tenants over as many
//! connections as the server's pool has.

use std::path::Path;
use std::sync::Arc;

use kernel::store::PostgresOptions;
use kernel::{audit, events};
use tenant_control::features::tickets::store::{INSERT, INSERT_CHANGE, INSERT_TERMS, NEXT_NUMBER};
use tenant_control::features::webhooks::follow::store as follow;

use super::bare::TERMS;
use super::data::Makings;
use super::new::New;
use super::{PATH, client};
use crate::chance::Chance;
use crate::cluster::{Cluster, output};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, median};
use crate::server::{Server, cpu_seconds, make_tenant};
use crate::workload::{CALLERS, TICK};

const AIM: f64 = 0.8;

/// Each has an organization, whose id is the tenant's own with another beginning.
const ORGANIZATIONS: &str = "SET tc.tenant = '*';
    INSERT INTO organizations (tenant_id, id, slug, name, version, created_at, updated_at)
    SELECT id, 'org_' || substr(id, 5), 'customer', 'Customer', 1, 0, 0 FROM tenants WHERE slug LIKE 'bench-%'";

struct Tenant {
    key: String,
    organizations: Vec<String>,
}

pub fn run() -> Outcome {
    let (rounds, writes) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_WRITES", 10_000)?);
    let (tenants, pool) = (setting("BENCH_TENANTS", 64)?, PostgresOptions::new("").pool_max);
    println!(
        "tickets-create-postgres: POST {PATH} over {CALLERS} connections for {tenants} tenants, {writes} a round; pgbench \
         with {pool} clients, as many as the server's pool has connections"
    );
    let (cluster, data, runtime) = (Cluster::start()?, folder()?, runtime()?);
    let url = cluster.url();
    let store = ["--database-url", url.as_str()];
    let server = Server::start_with(data.path(), &store)?;
    let mut made = Vec::new();
    for n in 0..tenants {
        let (id, key) = make_tenant(&server, data.path(), &store, &format!("bench-{n}"))?;
        made.push(Tenant { key, organizations: vec![id.replacen("ten_", "org_", 1)] });
    }
    cluster.sql(ORGANIZATIONS)?;
    cluster.sql("ANALYZE tenants, tenant_clocks, organizations, users, api_keys, api_key_secrets")?;
    let script = cluster.path().join("create.sql");
    std::fs::write(&script, script_text())?;
    let (made, makings) = (Arc::new(made), Arc::new(Makings::new()));
    let over_http = |first: usize, count: usize| {
        let (made, makings) = (made.clone(), makings.clone());
        let request = move |n: usize| {
            // Any tenant, as in the script.
            let tenant = &made[Chance::new(n as u64 + 1).below(made.len())];
            client::post(&tenant.key, &New::nth(n, &makings, &tenant.organizations).body())
        };
        runtime.block_on(client::create_all(server.address, CALLERS, first, count, request))
    };
    // Connections and plans are made before anything is timed.
    over_http(0, writes / 5)?;
    measure_pgbench(&cluster, &script, pool, tenants, writes / 5)?;
    let mut comparison = Comparison::new("tickets/s", "server", "pgbench");
    let mut cpu = Vec::new();
    for round in 1..=rounds {
        let theirs = measure_pgbench(&cluster, &script, pool, tenants, writes)?;
        let before = cpu_seconds(server.id())?;
        let ours = over_http(round * writes, writes)?;
        cpu.push((cpu_seconds(server.id())? - before) / f64::from(u32::try_from(writes)?) * 1e6);
        comparison.add(ours, theirs);
    }
    comparison.finish(AIM);
    println!("processor time per ticket: server {:.1} us, without PostgreSQL", median(cpu));
    server.stop()
}

fn measure_pgbench(cluster: &Cluster, script: &Path, clients: usize, tenants: usize, writes: usize) -> Outcome<f64> {
    let each = (writes / clients).to_string();
    let mut pgbench = cluster.pgbench()?;
    pgbench.args(["-c", &clients.to_string(), "-j", "2", "-t", &each]);
    let new = New::nth(2, &Makings::new(), &["org_01jd8z6v2mfkpb7h3q9xw5t4ra".to_owned()]);
    let mut variables = vec![
        ("turn".to_owned(), "0".to_owned()),
        ("tenants".to_owned(), tenants.to_string()),
        ("key".to_owned(), "key_01jd8z6v2mfkpb7h3q9xw5t4rb".to_owned()),
        ("subject".to_owned(), new.subject.clone()),
        ("body".to_owned(), new.event()),
        ("changes".to_owned(), r#"{"status":{"from":null,"to":"new"}}"#.to_owned()),
    ];
    variables.extend(terms(&new).into_iter().enumerate().map(|(n, term)| (format!("term{n}"), term)));
    for (name, value) in variables {
        pgbench.arg("-D").arg(format!("{name}={value}"));
    }
    pgbench.arg("-f").arg(script).arg(Cluster::DATABASE);
    let said = output(&mut pgbench)?;
    let speed = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next()?.parse().ok());
    speed.ok_or_else(|| format!("pgbench did not say its speed: {said}").into())
}

/// As many as the requests have on average: eleven or so.
const GIVEN: usize = 11;

fn terms(new: &New) -> Vec<String> {
    let mut terms: Vec<String> = new.terms().into_iter().collect();
    terms.extend((0..GIVEN).map(|n| format!("+w:more{n}")));
    terms.truncate(GIVEN);
    terms
}

fn slots() -> String {
    let slot = |n: usize| if n < GIVEN { format!(":term{n}") } else { "NULL".to_owned() };
    (0..TERMS).map(slot).collect::<Vec<_>>().join(" ")
}

/// The product's statements with these in the place of their values, the tenant first. What is looked up is in it, too,
/// and what needs no answer goes together, as the product sends it.
fn script_text() -> String {
    let (now, none) = (":last_at", "NULL");
    let ticket = format!(
        ":tenant :record :number :subject 'incident' 'new' 1 :organization {none} {none} {none} {none} {none} '[\"printer\"]' \
         '[]' {none} 'api' {} {now} {now} '{{}}' {none} :sequence {none} {none}",
        [none; 7].join(" ") + " '[]' NULL NULL NULL 0 1"
    );
    let names = "'ticket.created' 'ticket.*' '*'";
    [
        PICK.to_owned(),
        "BEGIN READ WRITE;\nSELECT set_config('tc.tenant', :tenant, false);\n".to_owned(),
        returning(TICK, ":tenant :now"),
        bound(KEY, ":tenant :key :key :now"),
        bound("SELECT id FROM organizations WHERE tenant_id = $1 AND id = $2", ":tenant :organization"),
        returning(&NEXT_NUMBER.replace("RETURNING ticket_number", "RETURNING ticket_number AS number"), ":tenant"),
        "\\set record 1000000000000000000 + :number * 1000000 + random(0, 999999)\n".to_owned(),
        bound(
            "SELECT first_response_minutes, resolution_minutes, hours, timezone FROM sla_targets
            WHERE tenant_id = $1 AND priority = $2",
            ":tenant 1",
        ),
        "\\startpipeline\n".to_owned(),
        bound(INSERT, &ticket),
        bound(INSERT_TERMS, &format!(":tenant :number {}", slots())),
        bound(INSERT_CHANGE, &format!(":tenant :number 1 {now} 'api_key' :key 'bench' 36 :changes")),
        bound(
            audit::INSERT,
            &format!(
                ":tenant :entry {now} 'api_key' :key 'bench' 'ticket.create' 'ticket' :record '127.0.0.1' 'api_key' :key \
                 :key {none}"
            ),
        ),
        bound(events::INSERT, &format!(":tenant :sequence :record 'ticket.created' 'ticket' :record {now} :body 0 0")),
        bound(follow::WAKE, &format!(":tenant :now {names}")),
        bound(follow::DELIVER, &format!(":tenant :record :sequence 'ticket.created' :record :now {now} {names}")),
        "\\endpipeline\nCOMMIT;\n".to_owned(),
    ]
    .concat()
}

/// Whether the caller still may, which every write asks.
const KEY: &str = "SELECT k.scopes, k.allowed_cidrs, k.expires_at FROM api_key_secrets s
    JOIN api_keys k ON k.tenant_id = s.tenant_id AND k.id = s.key_id WHERE s.public_id = $3 AND s.tenant_id = $1
    AND s.key_id = $2 AND (s.valid_until IS NULL OR s.valid_until > $4) AND k.revoked_at IS NULL";

/// pgbench cannot make a tenant's id, so each client asks for another one now and then.
const PICK: &str = r"\if :turn % 50 = 0
\set slot random(0, :tenants - 1)
SELECT set_config('tc.tenant', '*', false);
SELECT tenant_id AS tenant, id AS organization FROM organizations ORDER BY tenant_id LIMIT 1 OFFSET :slot \gset
\endif
\set turn :turn + 1
\set entry random(1000000000000000000, 9223372036854775807)
\set now 1767225600000 + :turn
";

/// A statement on a line of its own, with its values in their places.
fn bound(sql: &str, values: &str) -> String {
    placed(sql, values) + ";\n"
}

fn returning(sql: &str, values: &str) -> String {
    placed(sql, values) + " \\gset\n"
}

fn placed(sql: &str, values: &str) -> String {
    let mut text = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    // The last first: $1 is the beginning of $10.
    for (n, value) in values.split(' ').enumerate().collect::<Vec<_>>().into_iter().rev() {
        text = text.replace(&format!("${}", n + 1), value);
    }
    text
}
