//! How soon an event's run acts: callers cause events at a steady pace, each starts a run, and its first step asks a receiver
//! that shares this process, and so a clock, with the callers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::save;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{limit, median};
use crate::webhooks::causes::{CALLERS, Causes};
use crate::webhooks::receipts::{Receipts, Since};
use crate::webhooks::sink::{self, Manner};
use crate::webhooks::{Tenant, start};

const LIMIT_MS: f64 = 100.0;
/// The first second is the lane's and the connections'.
const WARM: Duration = Duration::from_secs(1);

pub fn run() -> Outcome {
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_SECONDS", 8)?);
    let per_second = u32::try_from(setting("BENCH_EVENTS_PER_SECOND", 100)?)?;
    println!(
        "workflows-latency: keys made and revoked over {CALLERS} connections, {per_second} a second; each starts a run whose \
         step asks a receiver; {seconds} s a round"
    );
    let (runtime, time) = (runtime()?, Duration::from_secs(seconds as u64));
    let (mut halves, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let receipts = runtime.block_on(measure(time, per_second))?;
        let (asked, answered) = (receipts.delays(Since::Asked, WARM), receipts.delays(Since::Acknowledged, WARM));
        let (half, tail) = (answered.at(500) / 1e3, answered.at(990) / 1e3);
        println!(
            "  p50 {half:.1} ms, p99 {tail:.1} ms, most {:.1} ms; from the request on {:.1} and {:.1} ms",
            answered.at(1_000) / 1e3,
            asked.at(500) / 1e3,
            asked.at(990) / 1e3
        );
        halves.push(half);
        tails.push(tail);
    }
    println!("from the answer to the receipt at {per_second} runs/s: p50 {:.1} ms", median(halves));
    limit("from the answer to the receipt, p99", tails, "ms", LIMIT_MS);
    Ok(())
}

/// One round on a store of its own.
async fn measure(time: Duration, per_second: u32) -> Outcome<Arc<Receipts>> {
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
    let body = json!({"type": "${{ event.type }}", "name": "${{ event.data.name }}"});
    let send = json!({"method": "POST", "url": format!("http://{receiver}/run"), "body": body});
    let definition = json!({"action": "create", "name": "Forward", "on": {"event": {"types": ["api_key.*"]}},
        "steps": [{"id": "send", "uses": "http.request", "with": send}]});
    save(&server, &tenant.key, &definition)?;
    Causes::new(server.address, &tenant, &receipts)?.drive(time, Some(per_second)).await?;
    receipts.wait_for_all(1).await?;
    server.stop()?;
    Ok(receipts)
}
