//! Whether a receiver that is dead or drips holds up those of others: the delays of the good ones beside two bad ones,
//! against the same with all of them good.

use std::sync::Arc;
use std::time::Duration;

use super::causes::Causes;
use super::receipts::{Delays, Receipts, Since};
use super::sink::{self, Manner, Received};
use super::{Tenant, start};
use crate::harness::{Outcome, folder, runtime, setting};
use crate::report::Comparison;

const AIM: f64 = 1.2;
const TENANTS: [&str; 2] = ["left", "right"];
/// As many as a tenant may have.
const ENDPOINTS_OF_EACH: usize = 50;
/// The first of each tenant is the one that may be bad; its path says how.
const BAD: [&str; 2] = ["dead", "dripping"];
/// Short, so that a round sees failures and retries.
const TIMEOUT_SECONDS: &str = "2";
/// The lanes are leased and the windows open by then.
const WARM: Duration = Duration::from_secs(2);

pub fn run() -> Outcome {
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_SECONDS", 12)?);
    let per_second = u32::try_from(setting("BENCH_EVENTS_PER_SECOND", 4)?)?;
    println!(
        "webhooks-neighbours: {} endpoints of {} tenants, {per_second} events/s in each told to {ENDPOINTS_OF_EACH}, \
         {seconds} s a round; p99 from the answer to the receipt",
        TENANTS.len() * ENDPOINTS_OF_EACH,
        TENANTS.len(),
    );
    let (runtime, time) = (runtime()?, Duration::from_secs(seconds as u64));
    let mut tails = Comparison::new("us", "beside bad ones", "all good");
    for _ in 0..rounds {
        let good = runtime.block_on(measure(time, per_second, false))?;
        let beside = runtime.block_on(measure(time, per_second, true))?;
        tails.add(beside.at(990), good.at(990));
    }
    tails.finish_at_most(AIM);
    Ok(())
}

/// One round on a store of its own: the delays of those that are good in both cases.
async fn measure(time: Duration, per_second: u32, bad: bool) -> Outcome<Delays> {
    let receipts = Arc::new(Receipts::new());
    let noted = receipts.clone();
    let receive = move |request: Received<'_>| match request.path {
        "/dead" if bad => Manner::Silent,
        "/dripping" if bad => Manner::Dripping,
        "/dead" | "/dripping" => Manner::Good,
        _ => {
            noted.receive(request.body);
            Manner::Good
        }
    };
    let data = folder()?;
    let server = start(data.path(), &["--webhook-timeout", TIMEOUT_SECONDS])?;
    let mut all = Vec::new();
    for (slug, bad) in TENANTS.into_iter().zip(BAD) {
        let tenant = Tenant::make(&server, data.path(), slug)?;
        tenant.subscribe(&server, "api_key.*", sink::open(receive.clone()).await?, bad)?;
        for n in 1..ENDPOINTS_OF_EACH {
            tenant.subscribe(&server, "api_key.*", sink::open(receive.clone()).await?, &format!("good-{n}"))?;
        }
        all.push(Causes::new(server.address, &tenant, &receipts)?);
    }
    let [left, right] = all.as_slice() else { return Err("there are two tenants".into()) };
    let (left, right) = tokio::join!(left.drive(time, Some(per_second)), right.drive(time, Some(per_second)));
    left?;
    right?;
    receipts.wait_for_all(ENDPOINTS_OF_EACH - 1).await?;
    server.stop()?;
    Ok(receipts.delays(Since::Acknowledged, WARM))
}
