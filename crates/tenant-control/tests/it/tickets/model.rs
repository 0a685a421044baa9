//! Random sequences of creates, changes, comments and questions, against a plain list in memory that must give the same
//! answers.

mod find;
mod operations;
mod plain;
mod run;
mod vocabulary;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kernel::http::RatePolicy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime::Handle;

use self::operations::{Operation, sequence};
use self::run::{Run, organization};
use crate::support::process::say;
use crate::support::{Server, Setup, over_http};

/// With it every run is the same; another one makes other sequences.
const SEED: [u8; 32] = *b"tickets against a plain list: 01";

/// As many as take some seconds on a database: a thousand requests and more.
const SEQUENCES: u32 = 30;
/// From none, so that what is told of a failure has no more in it than it needs.
const LENGTH: std::ops::Range<usize> = 0..60;

/// How many shorter sequences are tried to tell what went wrong; each makes a tenant.
const SHRINKS_MAX: u32 = 1_000;

/// What must have happened for the run to show anything, and how often at least.
const SHOWN: &[(&str, usize)] = &[
    ("POST 201", 150),
    ("POST 409 conflict", 2),
    ("POST 422 invalid_fields", 15),
    ("PATCH 200", 100),
    ("PATCH 404 not_found", 5),
    ("PATCH 409 conflict", 1),
    ("PATCH 409 invalid_transition", 5),
    ("PATCH 412 version_mismatch", 10),
    ("PATCH 422 invalid_fields", 10),
    ("GET one 200", 20),
    ("GET list 200", 250),
    ("GET list 400 invalid_parameter", 15),
    ("rows listed", 400),
    ("changes between pages", 50),
];

over_http! {
    async fn random_sequences_come_to_what_a_plain_list_says(setup: Setup) {
        let server = Arc::new(generous(setup).await);
        let globex = server.tenant("foreign").await;
        let foreign = organization(&server, &globex, "foreign").await;
        let tally: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let (made, counted, handle) = (AtomicUsize::new(0), tally.clone(), Handle::current());
        let play = move |operations: Vec<Operation>| {
            let slug = format!("tenant-{}", made.fetch_add(1, Ordering::Relaxed));
            let playing = play(server.clone(), slug, foreign.clone(), operations, counted.clone());
            let played = handle.block_on(handle.spawn(playing));
            // What a helper has asserted is as good a reason.
            played.unwrap_or_else(|error| Err(error.to_string())).map_err(TestCaseError::fail)
        };
        tokio::task::block_in_place(|| check(play));
        let tally = tally.lock().unwrap();
        say(&format!("seed {:?}: {tally:#?}", str::from_utf8(&SEED).unwrap()));
        for (what, least) in SHOWN {
            let count = tally.get(*what).copied().unwrap_or_default();
            assert!(count >= *least, "{what} came {count} times: the vocabulary shows too little");
        }
    }
}

fn check(play: impl Fn(Vec<Operation>) -> Result<(), TestCaseError>) {
    let config =
        Config { cases: SEQUENCES, max_shrink_iters: SHRINKS_MAX, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &SEED));
    match runner.run(&sequence(LENGTH), play) {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("no sequence could be made: {reason}"),
        Err(TestError::Fail(reason, operations)) => {
            let lines = operations.iter().enumerate().map(|(at, operation)| format!("\n{at:>4}. {operation:?}"));
            let seed = str::from_utf8(&SEED).unwrap();
            panic!("seed {seed:?}: the service and the plain list part: {reason}{}", lines.collect::<String>());
        }
    }
}

async fn play(
    server: Arc<Server>,
    slug: String,
    foreign: String,
    operations: Vec<Operation>,
    tally: Arc<Mutex<BTreeMap<String, usize>>>,
) -> Result<(), String> {
    let mut run = Run::new(server, &slug, &foreign).await;
    for (at, operation) in operations.iter().enumerate() {
        run.step(operation).await.map_err(|difference| format!("at {at}: {difference}"))?;
    }
    let mut tally = tally.lock().unwrap();
    for (what, count) in run.tally {
        *tally.entry(what).or_default() += count;
    }
    Ok(())
}

/// A server that takes thousands of requests in a minute.
pub async fn generous(mut setup: Setup) -> Server {
    for policy in RatePolicy::ALL {
        setup.settings.rate_table.set(policy, 10_000_000);
    }
    setup.start().await
}
