//! Reports of backups over HTTP, as the wrapper posts them every night, against the same writes and nothing else, on a copy of
//! the same file.

use std::path::Path;
use std::sync::{Arc, Mutex};

use ::backups::job_reports::JobRunId;
use ::backups::posture::{JobKind, RunStatus};
use kernel::base::{Env, MINUTE_MS};
use rusqlite::Connection;

use super::bare::{BareWriter, ReportRows};
use super::data::{Plan, Run, TARGETS};
use super::load::Loaded;
use super::report::request;
use super::rows::{device_row, posture_row, run_row};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, median};
use crate::server::{Server, cpu_seconds};
use crate::tickets::client::create_all;
use crate::workload::{CALLERS, drive};

const AIM: f64 = 0.5;
/// The last reports before those that are measured came so long ago; none of them is overdue.
const SILENT_MS: i64 = 10 * MINUTE_MS;
/// The measured ones end within this time, which is over by then.
const MEASURED_MS: i64 = 8 * MINUTE_MS;
/// What is written may differ by so much in size: some times are others, and some numbers longer.
const DIFFERENCE_MAX: f64 = 0.02;

pub fn run() -> Outcome {
    let (rounds, writes) = (setting("BENCH_ROUNDS", 7)?, setting("BENCH_WRITES", 20_000)?);
    let plan = Plan {
        devices: setting("BENCH_ROWS", 20_000)?,
        reports: setting("BENCH_RUNS", 14)?,
        silent_ms: SILENT_MS,
        has_troubles: false,
    };
    println!(
        "backups-ingest: reports of restic over {CALLERS} connections, {writes} a round; bare rusqlite with group commit and the \
         same writes by {CALLERS} callers"
    );
    let (ours, theirs, runtime) = (folder()?, folder()?, runtime()?);
    let mut loaded = Loaded::make(ours.path(), plan)?;
    let copy = theirs.path().join("bare.db");
    std::fs::copy(loaded.database(), &copy)?;
    let server = Server::start(ours.path())?;
    let writer = Arc::new(BareWriter::start(&copy, loaded.tenant.clone())?);
    let mut comparison = Comparison::new("reports/s", "server", "bare");
    let (mut our_cpu, mut their_cpu) = (Vec::new(), Vec::new());
    let total = (rounds + 1) * writes;
    // The first round warms both up.
    for round in 0..=rounds {
        let made = make_reports(&mut loaded, round * writes, writes, total)?;
        if round == 0 {
            println!("  a request has {} bytes", made.requests.iter().map(String::len).sum::<usize>() / writes.max(1));
        }
        let each = f64::from(u32::try_from(writes)?) / 1e6;
        let before = cpu_seconds(std::process::id())?;
        let theirs = runtime.block_on(write_all(&writer, made.rows))?;
        let their_time = (cpu_seconds(std::process::id())? - before) / each;
        let (requests, before) = (made.requests, cpu_seconds(server.id())?);
        let sent = create_all(server.address, CALLERS, 0, writes, move |n| requests[n].clone());
        let ours = runtime.block_on(sent)?;
        if round > 0 {
            comparison.add(ours, theirs);
            our_cpu.push((cpu_seconds(server.id())? - before) / each);
            their_cpu.push(their_time);
        }
    }
    comparison.finish(AIM);
    // Other work on the machine changes this far less than the speed.
    println!("processor time per report: server {:.1} us, bare {:.1} us", median(our_cpu), median(their_cpu));
    println!("resident memory {:.0} MB", server.resident_mb()?);
    server.stop()?;
    check_writes(&loaded.database(), &copy)
}

/// What is sent, and what is to be written of it.
struct Reports {
    requests: Vec<String>,
    rows: Vec<ReportRows>,
}

/// Neighbours are of other organizations, as everywhere at the same time of night.
fn make_reports(loaded: &mut Loaded, first: usize, count: usize, total: usize) -> Outcome<Reports> {
    let (env, organizations) = (Env::default(), loaded.customers.len());
    let mut made = Reports { requests: Vec::with_capacity(count), rows: Vec::with_capacity(count) };
    for n in first..first + count {
        let customer = &mut loaded.customers[n % organizations];
        let place = n / organizations % customer.machines.len();
        let after_ms = MEASURED_MS * i64::try_from(n)? / i64::try_from(total)?;
        let ended_at = loaded.end.plus_ms(after_ms - SILENT_MS + MINUTE_MS);
        let run = Run {
            kind: JobKind::Backup,
            status: RunStatus::Success,
            target: TARGETS[n % TARGETS.len()],
            started_at: ended_at.plus_ms(-7 * MINUTE_MS),
            ended_at,
            size_bytes: 40_000_000_000 + 1_000_003 * i64::try_from(n)?,
        };
        let now = env.now();
        customer.report(place, &run, now);
        let machine = &customer.machines[place];
        let external_id = format!("{}-{}-{n}", machine.hostname(), run.target);
        made.requests.push(request(&loaded.ingest_key, &external_id, &machine.id.to_string(), &run));
        made.rows.push(ReportRows {
            run: run_row(JobRunId::new_at(&env, now), &external_id, (machine.id, customer.id), &run)?,
            device: device_row(machine, customer.id)?,
            posture: posture_row(customer)?,
        });
    }
    Ok(made)
}

async fn write_all(writer: &Arc<BareWriter>, rows: Vec<ReportRows>) -> Outcome<f64> {
    let count = rows.len();
    let rows: Arc<Vec<Mutex<Option<ReportRows>>>> =
        Arc::new(rows.into_iter().map(|rows| Mutex::new(Some(rows))).collect());
    let writer = writer.clone();
    drive(0, count, move |n| {
        let taken = rows[n].lock().map(|mut rows| rows.take()).ok().flatten();
        let writer = writer.clone();
        async move { writer.write(taken.ok_or("written before")?).await }
    })
    .await
}

/// What does not depend on the moment at which a report was judged.
const OTHERWISE_JUDGED: &str = "SELECT
    (SELECT COUNT(*) FROM main.backup_devices o JOIN bare.backup_devices b USING (tenant_id, device_id)
        WHERE (o.share, o.findings, o.class, o.severity, o.last_success_at, o.failures)
            IS NOT (b.share, b.findings, b.class, b.severity, b.last_success_at, b.failures))
    + (SELECT COUNT(*) FROM main.backup_postures o JOIN bare.backup_postures b USING (tenant_id, organization_id)
        WHERE (o.health, o.in_scope, o.protected, o.size_bytes) IS NOT (b.health, b.in_scope, b.protected, b.size_bytes))";

/// Both sides must have written as much: rows of other sizes would not be the same writes.
fn check_writes(ours: &Path, theirs: &Path) -> Outcome {
    let tables = [
        ("backup_runs", "LENGTH(reasons) + LENGTH(outcome)"),
        ("backup_devices", "LENGTH(record) + LENGTH(share) + LENGTH(findings)"),
        ("backup_postures", "LENGTH(record)"),
    ];
    let (ours, theirs) = (Connection::open(ours)?, Connection::open(theirs)?);
    for (table, size) in tables {
        let asked = format!("SELECT COUNT(*), CAST(SUM({size}) AS REAL) FROM {table}");
        let measure = |file: &Connection| file.query_row(&asked, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let ((our_rows, our_size), (their_rows, their_size)): ((i64, f64), (i64, f64)) =
            (measure(&ours)?, measure(&theirs)?);
        if our_rows != their_rows || (our_size / their_size - 1.0).abs() > DIFFERENCE_MAX {
            return Err(format!(
                "the writes were not the same: {table} has {our_rows} rows of {our_size} characters, and {their_rows} of \
                 {their_size} on the bare side"
            )
            .into());
        }
    }
    ours.execute("ATTACH ?1 AS bare", [theirs.path().ok_or("a file without a path")?])?;
    let judged: i64 = ours.query_row(OTHERWISE_JUDGED, [], |row| row.get(0))?;
    if judged > 0 {
        return Err(format!("the server judged {judged} devices or organizations otherwise than the bare side").into());
    }
    let told: i64 = ours.query_row("SELECT COUNT(*) FROM events WHERE type LIKE 'backup.%'", [], |row| row.get(0))?;
    println!("{told} events published by the server, which the bare side does not write");
    Ok(())
}
