//! The memory of the release binary that has nothing to do, and that has had a little.

use std::time::Duration;

use crate::harness::{Outcome, folder, setting};
use crate::report::limit;
use crate::server::{Server, get, make_key};

const LIMIT_MB: f64 = 60.0;
const PATHS: [&str; 5] =
    ["/api/auth/session", "/api/admin/api-keys", "/api/admin/audit?limit=100", "/api/openapi.json", "/healthz"];

pub fn run() -> Outcome {
    let (rounds, requests) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_REQUESTS", 500)?);
    println!("memory: resident memory (VmRSS) of the release binary, idle and after {requests} requests");
    let (mut idle, mut used) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let data = folder()?;
        let server = Server::start(data.path())?;
        // The first round of its own work is over by then.
        std::thread::sleep(Duration::from_secs(2));
        idle.push(server.resident_mb()?);
        let header = format!("Authorization: Bearer {}\r\n", make_key(&server, data.path())?);
        for n in 0..requests {
            let answer = get(server.address, PATHS[n % PATHS.len()], &header)?;
            if answer.status != 200 {
                return Err(format!("{} was refused: {}", PATHS[n % PATHS.len()], answer.body).into());
            }
        }
        used.push(server.resident_mb()?);
        server.stop()?;
    }
    limit("idle after start", idle, "MB", LIMIT_MB);
    limit("idle after requests", used, "MB", LIMIT_MB);
    Ok(())
}
