//! A million devices as a file, read over HTTP as fast as they come, against one cursor that writes the same bytes; and what
//! that takes of the server's memory.

use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::data::Makings;
use super::load::{Loaded, Plan, Tenant};
use super::{PATH, bare, keep};
use crate::report::{Comparison, limit, median};
use crate::server::{Server, cpu_seconds};
use crate::{Outcome, folder, setting};

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

/// What was read of a file.
pub struct File {
    pub rows: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// Of everything but the first line, if it was looked at.
    pub digest: u64,
}

impl File {
    fn per_second(&self, count: u64) -> f64 {
        f64::from(u32::try_from(count / 1_000).unwrap_or(u32::MAX)) * 1e3 / self.seconds
    }

    fn spell(&self) -> String {
        format!(
            "{} lines, {:.0} MB in {:.1} s, {:.0} MB/s",
            self.rows,
            self.per_second(self.bytes) * self.seconds / 1e6,
            self.seconds,
            self.per_second(self.bytes) / 1e6
        )
    }
}

/// How a file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// As fast as possible.
    Count,
    /// All of it, to compare it; with the chunks of HTTP around it, or not. The first line of such a file is its head.
    Check { chunked: bool },
}

impl Reader {
    pub fn drain(self, stream: &mut TcpStream, started: Instant) -> Outcome<File> {
        let mut buffer = vec![0; 1 << 18];
        let (mut rows, mut bytes, mut all) = (0, 0, Vec::new());
        loop {
            let got = stream.read(&mut buffer)?;
            if got == 0 {
                break;
            }
            let some = &buffer[..got];
            bytes += got as u64;
            match self {
                Reader::Count => rows += lines(some),
                Reader::Check { .. } => all.extend_from_slice(some),
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let mut hasher = DefaultHasher::new();
        if let Reader::Check { chunked } = self {
            let text = if chunked { unchunked(&all)? } else { all };
            rows = lines(&text);
            let head = if chunked { text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1) } else { 0 };
            hasher.write(&text[head..]);
        }
        Ok(File { rows, bytes, seconds, digest: hasher.finish() })
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().map(|byte| u64::from(*byte == b'\n')).sum()
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

/// What is in the chunks of an answer.
fn unchunked(answer: &[u8]) -> Outcome<Vec<u8>> {
    let end = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|some| some == what);
    let head = end(answer, b"\r\n\r\n").ok_or("no head")? + 4;
    let (mut rest, mut all) = (&answer[head..], Vec::with_capacity(answer.len()));
    loop {
        let line = end(rest, b"\r\n").ok_or("an answer that breaks off")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line])?, 16)?;
        if size == 0 {
            return Ok(all);
        }
        all.extend_from_slice(rest.get(line + 2..line + 2 + size).ok_or("an answer that breaks off")?);
        rest = rest.get(line + 4 + size..).ok_or("an answer that breaks off")?;
    }
}
