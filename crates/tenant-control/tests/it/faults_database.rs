//! PostgreSQL that goes away, comes back, or stays silent.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::cluster::Cluster;
use crate::support::load::{Load, Verdict, settle, verify};
use crate::support::process::{Launch, say, until};

const WRITERS: usize = 16;
const WAIT_MAX: Duration = Duration::from_mins(1);
/// A database that refuses connections is no reason to keep a client waiting.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How soon the service must be back by itself when the database is.
const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// How soon a probe must know that the database is silent.
const PROBE_MAX: Duration = Duration::from_secs(10);
/// What the contract gives a process to end in. It takes 23.5 s of them here.
const EXIT_MAX: Duration = Duration::from_secs(25);
/// What a busy machine may add to that.
const BUSY_MAX: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stops_under_load_is_survived_without_a_restart() {
    let (folder, cluster) = (TempDir::new().unwrap(), Cluster::start().await);
    let launch = Launch::on_database(&cluster.url(), folder.path());
    let server = launch.start().await;
    let api = server.api(&launch.sign_in());
    let load = Load::start(&api, "stop", WRITERS);
    for _ in 0..2 {
        load.progress(100, WAIT_MAX).await;
        let before = load.seen().statuses.get(&503).copied().unwrap_or(0);
        cluster.stop_at_once();
        let refused = async || (load.seen().statuses.get(&503).copied() > Some(before + 2 * WRITERS)).then_some(());
        until("writes are refused", WAIT_MAX, refused).await;
        // One look at the database serves every probe of a second.
        until("the probe tells it", PROBE_MAX, async || (api.status("/readyz").await == Some(503)).then_some(())).await;
        assert_eq!(api.status("/healthz").await, Some(200));
        let read = api.get("/api/admin/api-keys").await.unwrap();
        assert_eq!((read.status, read.code()), (503, "unavailable"), "{}", read.body);
        assert!(read.header("retry-after").is_some());

        cluster.start_again().unwrap();
        let started = Instant::now();
        until("it is ready again", RECOVERY_MAX, async || (api.status("/readyz").await == Some(200)).then_some(()))
            .await;
        load.progress(1, RECOVERY_MAX).await;
        say(&format!("the database was back, and the service {:?} later", started.elapsed()));
    }
    let acknowledged = load.acknowledged();
    let (mut notes, seen) = load.finish().await;
    assert_eq!((seen.wrong, seen.unanswered), (Vec::new(), 0), "{:?}", seen.statuses);
    assert!(seen.slowest < ANSWER_MAX, "{:?}", seen.slowest);
    assert_eq!(verify(&api, "stop-", &notes).await, Verdict::default(), "of {acknowledged}");
    settle(&api, &mut notes).await;
    assert_eq!(verify(&api, "stop-", &notes).await, Verdict::default(), "of {acknowledged}");
}

/// Worse than one that is gone: connections stay open and nobody answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_database_is_told_to_probes_and_does_not_keep_the_process_from_ending() {
    let (folder, cluster) = (TempDir::new().unwrap(), Cluster::start().await);
    let launch = Launch::on_database(&cluster.url(), folder.path());
    let mut server = launch.start().await;
    let api = server.api(&launch.sign_in());
    // Connections in the pool that seem fine, and a use of the session that wants to be noted before the end.
    let before = (0..2 * WRITERS).map(|n| {
        let api = api.clone();
        async move { api.create_key(&format!("before{n}")).await.unwrap().status }
    });
    assert!(before.collect::<JoinSet<_>>().join_all().await.iter().all(|status| *status == 201));
    assert_eq!(api.status("/readyz").await, Some(200));
    cluster.freeze().await;

    let under_way = tokio::spawn({
        let api = api.clone();
        async move { api.create_key("during").await }
    });
    let asked = Instant::now();
    assert_eq!(api.status("/healthz").await, Some(200));
    // One look at the database serves every probe of a second.
    until("the probe tells it", PROBE_MAX, async || (api.status("/readyz").await == Some(503)).then_some(())).await;
    assert!(asked.elapsed() < PROBE_MAX, "the probes took {:?}", asked.elapsed());

    server.terminate();
    let told = Instant::now();
    let status = server.exit(EXIT_MAX + BUSY_MAX).await;
    let said = server.stderr();
    assert_eq!(status.code(), Some(0), "{said}");
    // It was not the request that ended in time.
    assert!(said.contains("some requests were still running when the time to drain was over"), "{said}");
    assert!(said.contains("stopped without an answer from the database"), "{said}");
    say(&format!("the process ended {:?} after it was told to, beside a silent database", told.elapsed()));
    // No answer, or one that says to come back: never a success that did not happen.
    assert!(under_way.await.unwrap().map_or(true, |reply| reply.status == 503));
}
