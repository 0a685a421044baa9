//! How soon an event is at its receiver: callers cause events as fast as they can, and then at a steady pace. Callers
//! and receiver share this process, and so a clock.

use std::sync::Arc;
use std::time::Duration;

use super::causes::{CALLERS, Causes};
use super::receipts::{Receipts, Since};
use super::sink::{self, Manner};
use super::{Tenant, start};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, limit, median};

/// Of what was caused, when nobody holds back.
const AIM: f64 = 0.9;
const LIMIT_MS: f64 = 100.0;
/// The first second is the lanes' and the connections'.
const WARM: Duration = Duration::from_secs(1);

pub fn run() -> Outcome {
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_SECONDS", 8)?);
    let per_second = u32::try_from(setting("BENCH_EVENTS_PER_SECOND", 300)?)?;
    println!(
        "webhooks-latency: keys made and revoked over {CALLERS} connections, told to one endpoint, {seconds} s a round"
    );
    let (runtime, time) = (runtime()?, Duration::from_secs(seconds as u64));
    let mut rates = Comparison::new("events/s", "received", "caused");
    let (mut halves, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (caused, received) = runtime.block_on(measure(time, None))?.rates();
        rates.add(received, caused);
        let receipts = runtime.block_on(measure(time, Some(per_second)))?;
        let (asked, committed) = (receipts.delays(Since::Asked, WARM), receipts.delays(Since::Acknowledged, WARM));
        let (half, tail) = (committed.at(500) / 1e3, committed.at(990) / 1e3);
        println!(
            "  at {per_second} events/s: p50 {half:.1} ms, p99 {tail:.1} ms; from the request on {:.1} and {:.1} ms",
            asked.at(500) / 1e3,
            asked.at(990) / 1e3
        );
        halves.push(half);
        tails.push(tail);
    }
    rates.finish(AIM);
    println!("from the answer to the receipt at {per_second} events/s: p50 {:.1} ms", median(halves));
    limit("from the answer to the receipt, p99", tails, "ms", LIMIT_MS);
    Ok(())
}

/// One round on a store of its own.
async fn measure(time: Duration, per_second: Option<u32>) -> Outcome<Arc<Receipts>> {
    let receipts = Arc::new(Receipts::new());
    let noted = receipts.clone();
    let receiver = sink::open(move |request| {
        noted.receive(request.body);
        Manner::Good
    });
    let receiver = receiver.await?;
    let data = folder()?;
    let server = start(data.path(), &[])?;
    let tenant = Tenant::make(&server, data.path(), "bench")?;
    tenant.subscribe(&server, "api_key.*", receiver, "all")?;
    Causes::new(server.address, &tenant, &receipts)?.drive(time, per_second).await?;
    receipts.wait_for_all(1).await?;
    server.stop()?;
    Ok(receipts)
}
