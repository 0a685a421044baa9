//! How long it takes from the start of the release binary, on a store that has records and no index, until a search is answered;
//! and what that takes of the disk and of the memory.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;

use super::client::{path, start};
use super::load::{Loaded, Sizes, Tenant};
use super::measured::small;
use crate::harness::Outcome;
use crate::report::limit;
use crate::server::{Server, get};

/// For a million records.
const LIMIT_S: f64 = 60.0;
const MILLION: f64 = 1e6;
/// Longer than any start that is worth measuring.
const WAIT_MAX: Duration = Duration::from_mins(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Looks from one at the memory to the next, which takes longer.
const MEMORY_EACH: usize = 10;
/// What it does for itself after the start is over by then.
const SETTLED: Duration = Duration::from_secs(2);

/// Builds the index and gives the server that has opened it again, as after any other start.
pub fn run(loaded: &Loaded) -> Outcome<Server> {
    let tenant = loaded.largest()?;
    forget_index(&loaded.folder)?;
    let started = Instant::now();
    let server = start(&loaded.folder)?;
    let most = until_answered(&server, &tenant.key)?;
    let seconds = started.elapsed().as_secs_f64();
    std::thread::sleep(SETTLED);
    let after = Memory::of(server.id())?;
    check(&server, tenant)?;
    // Its files are looked at when nobody merges them any more.
    server.stop()?;
    let (bytes, segments) = on_disk(&loaded.folder.join("search"))?;
    let documents = small(loaded.documents);
    println!("  built in {seconds:.1} s, from the start of the process until a search is answered");
    limit("rebuilt in", vec![seconds / documents * MILLION], "s for 1,000,000 records", LIMIT_S);
    println!("records per second: {:.0}", documents / seconds);
    println!(
        "index on disk: {:.0} MB, {:.0} bytes for a record, {segments} segments",
        small(usize::try_from(bytes / 1_000)?) / 1e3,
        small(usize::try_from(bytes / 1_000)?) * 1e3 / documents
    );
    println!("memory while it is built: {}", most.spell());
    println!("memory {} s after: {}", SETTLED.as_secs(), after.spell());
    let started = Instant::now();
    let server = start(&loaded.folder)?;
    until_answered(&server, &tenant.key)?;
    let seconds = started.elapsed().as_secs_f64();
    std::thread::sleep(SETTLED);
    println!("opened again after: {seconds:.2} s; memory then: {}", Memory::of(server.id())?.spell());
    Ok(server)
}

/// Removes the index of an earlier run, which knows nothing of what was filled in, and how far it had read.
pub fn forget_index(data: &Path) -> Outcome {
    let folder = data.join("search");
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Connection::open(data.join("tenant-control.db"))?
        .execute_batch("DELETE FROM change_readers; DELETE FROM changes;")?;
    Ok(())
}

/// Until it answers; the most memory that was seen meanwhile.
pub fn until_answered(server: &Server, key: &str) -> Outcome<Memory> {
    let (waiting, header) = (Instant::now(), format!("Authorization: Bearer {key}\r\n"));
    let mut most = Memory::of(server.id())?;
    for look in 1_usize.. {
        let answer = get(server.address, &path("type:ticket"), &header)?;
        match answer.status {
            200 => break,
            503 if waiting.elapsed() < WAIT_MAX => std::thread::sleep(LOOK_EVERY),
            status => return Err(format!("the search index was not built: {status} {}", answer.body).into()),
        }
        if look.is_multiple_of(MEMORY_EACH) {
            most = most.max(Memory::of(server.id())?);
        }
    }
    Ok(most.max(Memory::of(server.id())?))
}

/// Whether everything that was filled in is found.
fn check(server: &Server, tenant: &Tenant) -> Outcome {
    let header = format!("Authorization: Bearer {}\r\n", tenant.key);
    let Sizes { tickets, devices, organizations, software, .. } = Sizes::of(tenant.size);
    for (kind, there) in
        [("ticket", tickets), ("device", devices), ("organization", organizations), ("software", software)]
    {
        let answer = get(server.address, &path(&format!("type:{kind}")), &header)?;
        let page: Value = serde_json::from_str(&answer.body)?;
        if page["counts"][kind].as_i64() != Some(there) {
            return Err(
                format!("not all of {there} are found by type:{kind}: {} {}", answer.status, page["counts"]).into()
            );
        }
    }
    Ok(())
}

/// Bytes and segments of an index.
fn on_disk(folder: &Path) -> Outcome<(u64, usize)> {
    let (mut bytes, mut segments, mut open) = (0, 0, vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else {
                bytes += entry.metadata()?.len();
                segments += usize::from(entry.path().extension().is_some_and(|extension| extension == "term"));
            }
        }
    }
    Ok((bytes, segments))
}

/// What a process takes, in megabytes of a million bytes: the pages of files that it has mapped count as resident, and can be
/// taken away at any time; what is anonymous cannot.
#[derive(Clone, Copy)]
pub struct Memory {
    resident_mb: f64,
    anonymous_mb: f64,
}

impl Memory {
    pub fn of(process: u32) -> Outcome<Self> {
        let told = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
        let megabytes = |name: &str| -> Outcome<f64> {
            let line = told.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name}"))?;
            let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
            Ok(kib * 1024.0 / 1e6)
        };
        Ok(Memory { resident_mb: megabytes("Rss:")?, anonymous_mb: megabytes("Anonymous:")? })
    }

    fn max(self, other: Memory) -> Memory {
        Memory {
            resident_mb: self.resident_mb.max(other.resident_mb),
            anonymous_mb: self.anonymous_mb.max(other.anonymous_mb),
        }
    }

    pub fn spell(self) -> String {
        format!("{:.0} MB resident, {:.0} MB of them anonymous", self.resident_mb, self.anonymous_mb)
    }
}
