//! A million devices as a file, read over HTTP as fast as they come, against one cursor that writes the same bytes; and what
//! that takes of the server's memory.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use super::data::Makings;
use super::file::{File, Reader};
use super::load::{Loaded, Plan, Tenant};
use super::{PATH, bare, keep};
use crate::harness::{Outcome, folder, setting};
use crate::report::{Comparison, limit, median};
use crate::server::{Server, cpu_seconds};

const AIM: f64 = 0.5;
const GROWTH_MB_MAX: f64 = 50.0;

/// `[--keep FOLDER]`: what is loaded there is used again.
pub fn run(arguments: &[&str]) -> Outcome {
    let (rounds, rows) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_ROWS", 1_000_000)?);
    println!(
        "inventory-export: {rows} devices of one tenant as a file over HTTP; one cursor that writes the same bytes"
    );
    let temporary = folder()?;
    let parent = keep(arguments)?.unwrap_or_else(|| temporary.path().to_owned());
    let plan = Plan { tenants: 1, largest: i64::try_from(rows)?, average: 0 };
    let loaded = Loaded::make(&parent.join(format!("export-{rows}")), plan, &Makings::new(false))?;
    let tenant = loaded.tenants.first().ok_or("no tenant")?;
    let server = Server::start(&loaded.folder)?;
    same_bytes(&server, &loaded, tenant)?;
    let mut comparison = Comparison::new("devices/s", "server", "cursor");
    let (mut growths, mut lines, mut cpu, mut their_cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mine = cpu_seconds(std::process::id())?;
        let theirs = bare::export(&loaded.database(), &tenant.id, Reader::Count)?;
        their_cpu.push((cpu_seconds(std::process::id())? - mine) * 1e6 / count(rows)?);
        let (before, cpu_before) = (server.resident_mb()?, cpu_seconds(server.id())?);
        server.forget_peak()?;
        let ours = download(&server, tenant, "csv", Reader::Count)?;
        growths.push(server.peak_mb()? - before);
        cpu.push((cpu_seconds(server.id())? - cpu_before) * 1e6 / count(rows)?);
        println!("  {}; the cursor: {}", ours.spell(), theirs.spell());
        comparison.add(count(rows)? / ours.seconds, count(rows)? / theirs.seconds);
        server.forget_peak()?;
        let before = server.resident_mb()?;
        let other = download(&server, tenant, "ndjson", Reader::Count)?;
        println!("  ndjson: {}, memory grew by {:.1} MB", other.spell(), server.peak_mb()? - before);
        lines.push(count(rows)? / other.seconds);
    }
    comparison.finish(AIM);
    // Other work on the machine changes this far less than the speed. The cursor's is that of its reader as well.
    println!("processor time per device: server {:.1} us, cursor {:.1} us", median(cpu), median(their_cpu));
    println!("ndjson: {:.0} devices/s", median(lines));
    limit("memory grew by", growths, "MB", GROWTH_MB_MAX);
    server.stop()
}

fn count(rows: usize) -> Outcome<f64> {
    Ok(f64::from(u32::try_from(rows)?))
}

/// Before anything is measured: both write the same.
fn same_bytes(server: &Server, loaded: &Loaded, tenant: &Tenant) -> Outcome {
    let ours = download(server, tenant, "csv", Reader::Check { chunked: true })?;
    let theirs = bare::export(&loaded.database(), &tenant.id, Reader::Check { chunked: false })?;
    if (ours.rows, ours.digest) == (theirs.rows + 1, theirs.digest) {
        return Ok(());
    }
    Err(format!("the files are not the same: {} and {}", ours.spell(), theirs.spell()).into())
}

/// The file, read to its end; its chunks must be whole.
fn download(server: &Server, tenant: &Tenant, format: &str, reader: Reader) -> Outcome<File> {
    let started = Instant::now();
    let mut stream = TcpStream::connect(server.address)?;
    write!(
        stream,
        "GET {PATH}?format={format} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        tenant.key
    )?;
    let file = reader.drain(&mut stream, started)?;
    if file.rows < u64::try_from(tenant.size)? {
        return Err(format!("a file that breaks off: {}", file.spell()).into());
    }
    Ok(file)
}
