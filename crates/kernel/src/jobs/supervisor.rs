//! Supervises tasks: one that ends or panics is restarted.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The backoff before a restart. It doubles each time, so that a task that fails at once costs little.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Keeps a task running until the process stops. A task that panics or ends early is logged, counted in
/// `task_restarts_total`, and restarted after a pause that grows while it keeps ending.
pub async fn supervise_task<F>(what: &'static str, stopping: watch::Receiver<bool>, start: impl Fn() -> F + Send + Sync)
where
    F: Future<Output = ()> + Send + 'static,
{
    supervise_with_pause(what, stopping, &|| Box::pin(start()), PAUSE_MIN).await;
}

/// Starts a task of any type, so that the supervisor is compiled once.
type StartTask<'a> = &'a (dyn Fn() -> BoxFuture<'static, ()> + Send + Sync);

async fn supervise_with_pause(
    what: &'static str,
    stopping: watch::Receiver<bool>,
    start: StartTask<'_>,
    pause_min: Duration,
) {
    let mut pause = pause_min;
    loop {
        let began = Instant::now();
        // A dropped set aborts its task.
        let mut task = JoinSet::new();
        task.spawn(start());
        let ended = task.join_next().await;
        if *stopping.borrow() {
            return;
        }
        if began.elapsed() > PAUSE_MAX {
            pause = pause_min;
        }
        let why = match ended {
            Some(Err(error)) => error.to_string(),
            _ => "it returned".to_owned(),
        };
        metrics::counter!("task_restarts_total", "task" => what).increment(1);
        tracing::error!(task = what, why, again_in = ?pause, "task ended; restarting it");
        let mut receiver = stopping.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(_) = receiver.wait_for(|stopping| *stopping) => return,
        }
        pause = double_pause(pause);
    }
}

fn double_pause(pause: Duration) -> Duration {
    (2 * pause).min(PAUSE_MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use tokio::sync::Notify;

    use super::*;

    /// The pauses take 1, 2, 4, 8 and 16 ms.
    const PAUSES: usize = 5;

    #[tokio::test]
    #[expect(clippy::panic, reason = "a panic is what the watch is for")]
    async fn a_task_that_panics_or_ends_is_started_again() {
        let (_stop, stopping) = watch::channel(false);
        let (count, third) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let run = |run: usize, third: Arc<Notify>| async move {
            match run {
                0 => panic!("at first"),
                1 => {}
                _ => {
                    third.notify_one();
                    std::future::pending::<()>().await;
                }
            }
        };
        let start = {
            let third = third.clone();
            move || -> BoxFuture<'static, ()> { Box::pin(run(count.fetch_add(1, Ordering::Relaxed), third.clone())) }
        };
        tokio::select! {
            () = supervise_with_pause("failing", stopping, &start, Duration::from_millis(1)) => unreachable!("nobody stops it"),
            () = third.notified() => {}
        }
    }

    #[tokio::test]
    async fn a_task_that_ends_with_the_process_is_left_alone() {
        let (stop, stopping) = watch::channel(false);
        let start = {
            let stopping = stopping.clone();
            move || {
                let mut receiver = stopping.clone();
                async move { drop(receiver.wait_for(|stopping| *stopping).await) }
            }
        };
        stop.send_replace(true);
        supervise_task("stopping", stopping, start).await;
    }

    #[tokio::test]
    async fn each_pause_is_twice_as_long_as_the_one_before() {
        let (_stop, stopping) = watch::channel(false);
        let (starts, enough) = (Mutex::new(Vec::new()), Notify::new());
        let start = || -> BoxFuture<'static, ()> {
            let mut starts = starts.lock().unwrap();
            starts.push(Instant::now());
            if starts.len() > PAUSES {
                enough.notify_one();
            }
            Box::pin(async {})
        };
        tokio::select! {
            () = supervise_with_pause("ending", stopping, &start, Duration::from_millis(1)) => unreachable!("nobody stops it"),
            () = enough.notified() => {}
        }
        let starts = starts.lock().unwrap();
        for (number, pair) in starts.windows(2).take(PAUSES).enumerate() {
            let (paused, expected) = (pair[1] - pair[0], Duration::from_millis(1 << number));
            assert!(paused >= expected, "{paused:?} instead of {expected:?}");
        }
    }

    #[test]
    fn the_pause_grows_up_to_a_minute() {
        let pauses = std::iter::successors(Some(PAUSE_MIN), |pause| Some(double_pause(*pause)));
        let seconds: Vec<u64> = pauses.take(8).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
