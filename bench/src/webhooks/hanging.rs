//! Whether tenants whose receivers take a request and never answer hold up the deliveries of another: the delays of a quiet
//! tenant beside them, against the same tenant alone. As many lanes hang as a node works on, and more.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::causes::Causes;
use super::receipts::{Delays, Receipts, Since};
use super::sink::{self, Manner, Received};
use super::{Tenant, start};
use crate::cluster::Cluster;
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::Comparison;

const AIM: f64 = 3.0;
/// As many as a tenant may have.
const ENDPOINTS_OF_EACH: usize = 50;
/// Events of each hostile tenant, told to all its endpoints: more than one attempt of each is due when the first hangs.
const EVENTS_OF_EACH: u32 = 4;
const EVENTS_PER_SECOND: u32 = 4;
/// The quiet tenant's lane is leased and its window open by then.
const WARM: Duration = Duration::from_secs(2);

pub fn run(arguments: &[&str]) -> Outcome {
    // The database's secrets are in the folder.
    let cluster = match arguments {
        [] => None,
        ["postgres"] => Some((Cluster::start()?, folder()?)),
        _ => return Err("webhooks-hanging takes nothing or `postgres`".into()),
    };
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_SECONDS", 20)?);
    let tenants = setting("BENCH_TENANTS", 11)?;
    println!(
        "webhooks-hanging: a quiet tenant with one endpoint and {EVENTS_PER_SECOND} events/s beside {tenants} tenants with \
         {ENDPOINTS_OF_EACH} endpoints each that never answer, {seconds} s a round; from the request that causes an event to its receipt"
    );
    let (runtime, time) = (runtime()?, Duration::from_secs(seconds as u64));
    let mut tails = Comparison::new("us", "p99 beside them", "p99 alone");
    let mut halves = Comparison::new("us", "p50 beside them", "p50 alone");
    for round in 0..rounds {
        let place = cluster.as_ref().map(|(cluster, data)| (cluster, data.path()));
        let alone = runtime.block_on(measure(time, 0, place, &format!("alone-{round}")))?;
        let beside = runtime.block_on(measure(time, tenants, place, &format!("beside-{round}")))?;
        tails.add(beside.at(990), alone.at(990));
        halves.add(beside.at(500), alone.at(500));
    }
    tails.finish_at_most(AIM);
    halves.finish_at_most(AIM);
    Ok(())
}

/// One round on a store of its own, or with tenants of its own: the delays of the quiet tenant.
async fn measure(time: Duration, hostile: usize, place: Option<(&Cluster, &Path)>, name: &str) -> Outcome<Delays> {
    let receipts = Arc::new(Receipts::new());
    let noted = receipts.clone();
    let good = sink::open(move |request: Received<'_>| {
        noted.receive(request.body);
        Manner::Good
    });
    let (good, silent) = (good.await?, sink::open(|_: Received<'_>| Manner::Silent).await?);
    let own = folder()?;
    let data = place.map_or(own.path(), |(_, data)| data);
    let url = place.map(|(cluster, _)| cluster.url());
    let store: Vec<&str> = url.iter().flat_map(|url| ["--database-url", url.as_str()]).collect();
    let server = start(data, &store)?;
    let quiet = Tenant::make_in(&server, data, &store, &format!("quiet-{name}"))?;
    quiet.subscribe(&server, "api_key.*", good, "good")?;
    let mut loud = Vec::new();
    for number in 0..hostile {
        let tenant = Tenant::make_in(&server, data, &store, &format!("hostile-{name}-{number}"))?;
        for n in 0..ENDPOINTS_OF_EACH {
            tenant.subscribe(&server, "api_key.*", silent, &format!("silent-{number}-{n}"))?;
        }
        loud.push(Causes::new(server.address, &tenant, &Arc::new(Receipts::new()))?);
    }
    for causes in &loud {
        causes.drive(Duration::from_millis(500), Some(2 * EVENTS_OF_EACH)).await?;
    }
    Causes::new(server.address, &quiet, &receipts)?.drive(time, Some(EVENTS_PER_SECOND)).await?;
    receipts.wait_for_all(1).await?;
    server.stop()?;
    Ok(receipts.delays(Since::Asked, WARM))
}
