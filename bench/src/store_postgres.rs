//! The store on PostgreSQL against pgbench with the same statements: both over as many connections as the store's
//! pool has, both naming the tenant and moving its clock, both with prepared statements.

use std::path::Path;
use std::sync::Arc;

use kernel::base::Env;
use kernel::store::{Db, PostgresOptions, Store, StoreOptions};
use tenant_control::migrations::MIGRATIONS;

use crate::cluster::{Cluster, output};
use crate::harness::{Outcome, runtime, setting};
use crate::report::Comparison;
use crate::workload::{BODY, CALLERS, SUBJECT, drive, id, make_tables, make_tenants, write};

const AIM: f64 = 0.9;

/// Many, so that two writes at once are seldom of one tenant and wait for each other.
const TENANTS: usize = 2_000;

/// The tables of the benchmark behind the same wall as the product's.
const WALLS: &str = "DO $$ DECLARE t text; BEGIN
        FOREACH t IN ARRAY ARRAY['bench_records', 'bench_events', 'bench_audit'] LOOP
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
            EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
            EXECUTE format('CREATE POLICY tenant ON %I USING (tenant_id = current_setting(''tc.tenant'', true) '
                'OR current_setting(''tc.tenant'', true) = ''*'')', t);
        END LOOP;
    END $$";

pub fn run() -> Outcome {
    let (rounds, writes) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_WRITES", 20_000)?);
    let pool = PostgresOptions::new("").pool_max;
    println!(
        "store-postgres: {CALLERS} callers over the store's pool of {pool} connections, pgbench with {pool} clients; \
         {TENANTS} tenants, {writes} transactions of set_config, a tick and three inserts"
    );
    let cluster = Cluster::start()?;
    let runtime = runtime()?;
    let (store, tenants) = runtime.block_on(open(&cluster))?;
    cluster.sql(WALLS)?;
    cluster.sql("ANALYZE tenants, tenant_clocks")?;
    let script = cluster.path().join("write.sql");
    std::fs::write(&script, SCRIPT)?;
    // Connections and plans are made before anything is timed.
    runtime.block_on(measure_store(&tenants, 0, writes / 10))?;
    measure_pgbench(&cluster, &script, pool, writes / 10)?;
    let mut comparison = Comparison::new("writes/s", "store", "pgbench");
    for round in 1..=rounds {
        let theirs = measure_pgbench(&cluster, &script, pool, writes)?;
        let ours = runtime.block_on(measure_store(&tenants, round * writes, writes))?;
        comparison.add(ours, theirs);
    }
    comparison.finish(AIM);
    runtime.block_on(store.close());
    Ok(())
}

async fn open(cluster: &Cluster) -> Outcome<(Store, Arc<Vec<Db>>)> {
    let store = Store::open(StoreOptions::postgres(PostgresOptions::new(cluster.url())), Env::default()).await?;
    store.migrate(MIGRATIONS).await?;
    make_tables(&store).await?;
    let tenants = Arc::new(make_tenants(&store, TENANTS).await?);
    Ok((store, tenants))
}

async fn measure_store(tenants: &Arc<Vec<Db>>, first: usize, writes: usize) -> Outcome<f64> {
    let tenants = tenants.clone();
    let job = move |n: usize| {
        let tenants = tenants.clone();
        async move {
            // Any tenant, as in the script below.
            let at = id(n)[..9].parse::<usize>()? % TENANTS;
            Ok(write(&tenants[at], n).await?)
        }
    };
    drive(first, writes, job).await
}

fn measure_pgbench(cluster: &Cluster, script: &Path, clients: usize, writes: usize) -> Outcome<f64> {
    let each = (writes / clients).to_string();
    let clients = clients.to_string();
    let mut pgbench = cluster.pgbench()?;
    pgbench.args(["-c", &clients, "-j", "2", "-t", &each]);
    for (name, value) in [("turn", "0"), ("tenants", &TENANTS.to_string()), ("subject", SUBJECT), ("body", BODY)] {
        pgbench.arg("-D").arg(format!("{name}={value}"));
    }
    pgbench.arg("-f").arg(script).arg(Cluster::DATABASE);
    let said = output(&mut pgbench)?;
    let speed = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next()?.parse().ok());
    speed.ok_or_else(|| format!("pgbench did not say its speed: {said}").into())
}

/// The statements of `workload`. pgbench cannot make a tenant's id, so each client asks for another one now and then.
const SCRIPT: &str = r"\if :turn % 50 = 0
\set slot random(0, :tenants - 1)
SELECT set_config('tc.tenant', '*', false);
SELECT id AS tenant FROM tenants ORDER BY id LIMIT 1 OFFSET :slot \gset
\endif
\set turn :turn + 1
\set record random(1000000000000000000, 9223372036854775807)
\set entry random(1000000000000000000, 9223372036854775807)
\set number random(1, 1000000)
\set now 1767225600000 + :number
BEGIN READ WRITE;
SELECT set_config('tc.tenant', :tenant, false);
UPDATE tenant_clocks SET last_at = CASE WHEN last_at > :now THEN last_at ELSE :now END, sequence = sequence + 1 WHERE tenant_id = :tenant RETURNING last_at, sequence \gset
INSERT INTO bench_records (tenant_id, id, number, subject, state, created_at) VALUES (:tenant, :record, :number, :subject, 'open', :last_at);
INSERT INTO bench_events (tenant_id, sequence, kind, body, at) VALUES (:tenant, :sequence, 'record.created', :body, :last_at);
INSERT INTO bench_audit (tenant_id, id, at, action, target_id) VALUES (:tenant, :entry, :last_at, 'record.create', :record);
COMMIT;
";
