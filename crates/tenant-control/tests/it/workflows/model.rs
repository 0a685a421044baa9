//! Random graphs with retries, skips, failures, waits and cancels, against a plain executor that must come to the same.

mod drive;
mod graph;
mod reference;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime::Handle;

use self::graph::{Graph, batch};
use crate::support::process::say;
use crate::support::receiver::Receiver;
use crate::support::workflows::open;
use crate::support::{Server, Setup};

/// With it every run is the same; another one makes other graphs.
const SEED: [u8; 32] = *b"workflows against a plain one: 1";

/// How many shorter batches are tried to tell what went wrong; each makes a tenant.
const SHRINKS_MAX: u32 = 400;

/// What must have happened for the test to show anything, and how often at least, in every hundred graphs.
const SHOWN: &[(&str, usize)] = &[
    ("run succeeded", 15),
    ("run failed", 15),
    ("run skipped", 1),
    ("run cancelled", 3),
    ("step succeeded", 100),
    ("step failed", 40),
    ("step skipped", 40),
    ("step cancelled", 3),
    ("more than one attempt", 20),
    ("retried by hand", 5),
    ("retried by hand and done", 1),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_graphs_come_to_what_a_plain_executor_says_sqlite() {
    check(Setup::sqlite().await, 28).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_graphs_come_to_what_a_plain_executor_says_postgres() {
    check(Setup::postgres().await, 3).await;
}

async fn check(setup: Setup, batches: u32) {
    let server = Arc::new(open(setup).await);
    let receiver = Arc::new(Receiver::start().await);
    let tally: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let (made, counted, handle) = (AtomicUsize::new(0), tally.clone(), Handle::current());
    let play = move |graphs: Vec<Graph>| {
        let slug = format!("tenant-{}", made.fetch_add(1, Ordering::Relaxed));
        let playing = play(server.clone(), receiver.clone(), slug, graphs, counted.clone());
        let played = handle.block_on(handle.spawn(playing));
        // What a helper has asserted is as good a reason.
        played.unwrap_or_else(|error| Err(error.to_string())).map_err(TestCaseError::fail)
    };
    tokio::task::block_in_place(|| run_all(batches, play));
    let tally = tally.lock().unwrap();
    let graphs = tally.get("graphs").copied().unwrap_or_default();
    say(&format!("seed {:?}: {tally:#?}", str::from_utf8(&SEED).unwrap()));
    for (what, least) in SHOWN {
        let count = tally.get(*what).copied().unwrap_or_default();
        assert!(count >= *least * graphs / 100, "{what} came {count} times in {graphs} graphs: they show too little");
    }
}

fn run_all(batches: u32, play: impl Fn(Vec<Graph>) -> Result<(), TestCaseError>) {
    let config =
        Config { cases: batches, max_shrink_iters: SHRINKS_MAX, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &SEED));
    match runner.run(&batch(), play) {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("no graph could be made: {reason}"),
        Err(TestError::Fail(reason, graphs)) => {
            let shown: Vec<String> = graphs.iter().map(|graph| format!("\n{graph:#?}")).collect();
            let shown = shown.concat();
            panic!(
                "seed {:?}: the service and the plain executor part: {reason}{shown}",
                str::from_utf8(&SEED).unwrap()
            );
        }
    }
}

/// All graphs of a batch at once, in a tenant of their own.
async fn play(
    server: Arc<Server>,
    receiver: Arc<Receiver>,
    slug: String,
    graphs: Vec<Graph>,
    tally: Arc<Mutex<BTreeMap<String, usize>>>,
) -> Result<(), String> {
    let mut drive = drive::Drive::begin(&server, &receiver, &slug, graphs).await;
    drive.play_out().await;
    let counted = drive.compare().await?;
    let mut tally = tally.lock().unwrap();
    for (what, count) in counted {
        *tally.entry(what).or_default() += count;
    }
    Ok(())
}
