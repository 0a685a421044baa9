//! What the clock alone costs a server that nobody asks anything: with a tenant whose devices back up every night, and with one
//! whose devices have all stopped, against a tenant without devices.

use std::time::{Duration, Instant};

use kernel::base::HOUR_MS;
use rusqlite::Connection;

use super::data::Plan;
use super::load::Loaded;
use crate::harness::{Outcome, folder, setting};
use crate::report::{limit, median};
use crate::server::{Server, cpu_seconds};

/// Of one core.
const LIMIT_PERCENT: f64 = 1.0;
/// A server has settled when it has used less than this of a core for a while: the index has been built, and the clock has
/// caught up with what was due while the file was filled.
const SETTLED_PERCENT: f64 = 5.0;
const LOOK_EVERY: Duration = Duration::from_secs(5);
const CALM_LOOKS: usize = 3;
const SETTLING_MAX: Duration = Duration::from_mins(10);
/// Reports of two nights: those that a run can leave the last 24 hours with.
const REPORTS: usize = 4;
/// Servers whose last backups came so long before the last 24 hours pass their RPO all day long.
const STOPPED_MS: i64 = 2 * HOUR_MS;

pub fn run() -> Outcome {
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 2)?, setting("BENCH_SECONDS", 60)?);
    let devices = setting("BENCH_ROWS", 100_000)?;
    println!(
        "backups-clock: processor time of an idle server in {seconds} s, with {devices} devices in one tenant, and without; \
         {rounds} rounds"
    );
    let alive = Plan { devices, reports: REPORTS, silent_ms: 0, has_troubles: true };
    let plans = [
        ("without devices", Plan { devices: 0, ..alive }),
        ("every device backs up every night", alive),
        ("no device reports any more", Plan { silent_ms: STOPPED_MS, ..alive }),
    ];
    let measured_for = Duration::from_secs(u64::try_from(seconds)?);
    let mut measured: Vec<Vec<IdleFigure>> = plans.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((name, plan), figures) in plans.iter().zip(&mut measured) {
            let figure = IdleFigure::measure(*plan, measured_for)?;
            println!(
                "  {name}: {:.2} % of a core; {} devices and {} organizations judged by the clock",
                figure.percent, figure.devices, figure.organizations
            );
            figures.push(figure);
        }
    }
    let percent_of = |figures: &[IdleFigure]| median(figures.iter().map(|figure| figure.percent).collect());
    let idle = percent_of(&measured[0]);
    for ((name, _), figures) in plans.iter().zip(&measured).skip(1) {
        let own = figures.iter().zip(&measured[0]).map(|(ours, idle)| (ours.percent - idle.percent).max(0.0)).collect();
        limit(&format!("{name}, beyond the idle server:"), own, "% of a core", LIMIT_PERCENT);
        let (percent, resident_mb) = (percent_of(figures), median(figures.iter().map(|one| one.resident_mb).collect()));
        println!(
            "  {percent:.2} against {idle:.2} %: ratio {:.2}; resident memory {resident_mb:.0} MB",
            percent / idle
        );
    }
    Ok(())
}

/// An idle server.
struct IdleFigure {
    percent: f64,
    devices: usize,
    organizations: usize,
    resident_mb: f64,
}

impl IdleFigure {
    fn measure(plan: Plan, seconds: Duration) -> Outcome<Self> {
        let data = folder()?;
        let loaded = Loaded::make(data.path(), plan)?;
        let server = Server::start(data.path())?;
        settle(&server)?;
        let file = Connection::open(loaded.database())?;
        let before = (list_moments(&file, DEVICE_MOMENTS)?, list_moments(&file, POSTURE_MOMENTS)?);
        let (cpu, started) = (cpu_seconds(server.id())?, Instant::now());
        std::thread::sleep(seconds);
        let used = cpu_seconds(server.id())? - cpu;
        let percent = 100.0 * used / started.elapsed().as_secs_f64();
        let (devices, organizations) = (list_moments(&file, DEVICE_MOMENTS)?, list_moments(&file, POSTURE_MOMENTS)?);
        let figure = IdleFigure {
            percent,
            devices: count_changed(&before.0, &devices),
            organizations: count_changed(&before.1, &organizations),
            resident_mb: server.resident_mb()?,
        };
        server.stop()?;
        Ok(figure)
    }
}

/// When something changes next, by the id of the record.
type Moments = Vec<(String, Option<i64>)>;

const DEVICE_MOMENTS: &str = "SELECT device_id, next_at FROM backup_devices ORDER BY device_id";
const POSTURE_MOMENTS: &str = "SELECT organization_id, next_at FROM backup_postures ORDER BY organization_id";

fn list_moments(file: &Connection, asked: &str) -> Outcome<Moments> {
    Ok(file.prepare(asked)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?)
}

/// What has been judged has another moment.
fn count_changed(before: &Moments, after: &Moments) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

fn settle(server: &Server) -> Outcome {
    let (began, mut calm) = (Instant::now(), 0);
    while calm < CALM_LOOKS {
        if began.elapsed() > SETTLING_MAX {
            return Err("the server did not settle".into());
        }
        let before = cpu_seconds(server.id())?;
        std::thread::sleep(LOOK_EVERY);
        let used = (cpu_seconds(server.id())? - before) / LOOK_EVERY.as_secs_f64();
        calm = if 100.0 * used < SETTLED_PERCENT { calm + 1 } else { 0 };
    }
    Ok(())
}
