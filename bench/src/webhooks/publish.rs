//! What it costs a request that its change is told to many endpoints, on PostgreSQL, where what settles their deliveries and what
//! publishes are transactions beside each other: answers with 50 endpoints, against the same without any.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::causes::Causes;
use super::receipts::Receipts;
use super::sink::{self, Manner, Received};
use super::{Tenant, start};
use crate::cluster::Cluster;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::{Comparison, percentile};

/// Fifty deliveries are written with each change, and sent beside the next.
const AIM: f64 = 4.0;
/// As many as a tenant may have.
const ENDPOINTS: usize = 50;
const WARM: Duration = Duration::from_secs(2);

pub fn run() -> Outcome {
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_SECONDS", 12)?);
    let per_second = u32::try_from(setting("BENCH_EVENTS_PER_SECOND", 8)?)?;
    println!(
        "webhooks-publish: answers to {per_second} changes/s on PostgreSQL, each told to {ENDPOINTS} endpoints, {seconds} s a \
         round; against none"
    );
    let (cluster, runtime, time) = (Cluster::start()?, runtime()?, Duration::from_secs(seconds as u64));
    // The database's secrets are in it.
    let data = folder()?;
    let place = (&cluster, data.path());
    let mut halves = Comparison::new("us", "p50 with endpoints", "p50 without");
    let mut tails = Comparison::new("us", "p99 with endpoints", "p99 without");
    for round in 0..rounds {
        let without = runtime.block_on(measure(place, time, per_second, 0, &format!("without-{round}")))?;
        let with = runtime.block_on(measure(place, time, per_second, ENDPOINTS, &format!("with-{round}")))?;
        halves.add(percentile(with.clone(), 500), percentile(without.clone(), 500));
        tails.add(percentile(with, 990), percentile(without, 990));
    }
    halves.finish_at_most(AIM);
    tails.finish_at_most(AIM);
    Ok(())
}

/// One round with a tenant of its own: how long its changes took to be answered, in microseconds.
async fn measure(
    (cluster, data): (&Cluster, &Path),
    time: Duration,
    per_second: u32,
    endpoints: usize,
    slug: &str,
) -> Outcome<Vec<f64>> {
    let receipts = Arc::new(Receipts::new());
    let noted = receipts.clone();
    let receive = move |request: Received<'_>| {
        noted.receive(request.body);
        Manner::Good
    };
    let url = cluster.url();
    let store = ["--database-url", url.as_str()];
    let server = start(data, &store)?;
    let tenant = Tenant::make_in(&server, data, &store, slug)?;
    for n in 0..endpoints {
        tenant.subscribe(&server, "api_key.*", sink::open(receive.clone()).await?, &format!("good-{n}"))?;
    }
    Causes::new(server.address, &tenant, &receipts)?.drive(time, Some(per_second)).await?;
    receipts.wait_for_all(endpoints).await?;
    server.stop()?;
    Ok(receipts.answers(WARM))
}
