//! The one thread that writes to SQLite, with group commit.
//!
//! Writes that were queued while the last group was written to disk, and those that arrive while a group runs, form the next
//! group: one COMMIT makes all of them durable, and only then do their callers get an answer. So all share the cost of one
//! fsync. A failed write is undone alone (see `sqlite_group.rs`); if the group itself fails, all of its writes fail, because
//! each may have read what the others wrote.
//!
//! Tenants are served round-robin, and a group is short: a tenant with one write waits for about one group, however many
//! writes others have queued.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::base::{Error, Result, TenantId};

use super::commit_notifier::CommitNotifier;
use super::handle::{FairnessKey, HandleContext};
use super::maintenance::{MaintenancePace, MaintenancePermit};
use super::sqlite_queue::FairQueue;
use super::tx::Tx;
use super::write_fn::{BoxedWrite, WriteOutput};
use super::{StoreOptions, dialect};

/// Writes of one group commit. More would delay the first write without making the fsync noticeably cheaper per write.
const GROUP_MAX: usize = 256;

/// On a slow disk a group lasts as long as the last commit, so that at most half of the time is spent waiting for the disk.
/// The limit ignores commits that took longer because of something else.
const LAST_COMMIT_MAX: Duration = Duration::from_millis(50);

pub(super) struct SqliteWriter {
    queue: Arc<FairQueue<QueuedWrite>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    failing: Arc<AtomicBool>,
    pace: Arc<MaintenancePace>,
    /// Closed when the thread has ended.
    ended: watch::Receiver<()>,
}

impl SqliteWriter {
    pub fn start_thread(tx: Tx, options: &StoreOptions, notifier: CommitNotifier) -> Result<Self> {
        let queue = Arc::new(FairQueue::new(options.queue_max));
        let failing = Arc::new(AtomicBool::new(false));
        let pace = Arc::new(MaintenancePace::default());
        let (running, ended) = watch::channel(());
        let thread = WriterThread {
            _running: running,
            tx,
            queue: queue.clone(),
            failing: failing.clone(),
            pace: pace.clone(),
            notifier,
            group_time: options.group_time,
            last_commit: Duration::ZERO,
            next: None,
        };
        let handle = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.run())
            .map_err(Error::unavailable)?;
        Ok(SqliteWriter { queue, thread: Mutex::new(Some(handle)), failing, pace, ended })
    }

    pub async fn run_write(
        &self,
        handle: Arc<HandleContext>,
        write: BoxedWrite,
        permit: Option<MaintenancePermit>,
    ) -> Result<WriteOutput> {
        let (reply, answer) = oneshot::channel();
        let tenant = handle.tenant_id();
        let mut key = handle.fairness_key();
        if permit.is_some() {
            let pause = self.pace.remaining_pause(Instant::now());
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            // Not behind the writes of its own tenant: all other maintenance waits for its permit.
            key = tenant.map_or(key, FairnessKey::Job);
        }
        self.queue.push(
            key,
            QueuedWrite { work: Some((handle, write)), permit, tenant, outcome: None, notify: None, reply },
        )?;
        answer.await.map_err(|_| Error::unavailable("the writer stopped before it answered"))?
    }

    /// Whether the last group with something to write failed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Called after a successful write to disk.
    pub fn mark_recovered(&self) {
        self.failing.store(false, Ordering::Relaxed);
    }

    /// Waits until the thread has ended: after [`SqliteWriter::close`], or by a bug.
    pub async fn wait_until_ended(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// Refuses further writes, finishes the queued ones, and waits for the thread to end.
    pub async fn close(&self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// A store that is dropped without being closed ends its thread, too.
impl Drop for SqliteWriter {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// A write in the queue, and then in its group until the commit.
struct QueuedWrite {
    work: Option<(Arc<HandleContext>, BoxedWrite)>,
    /// A maintenance write is not part of a group commit. Its permit is released after the commit.
    permit: Option<MaintenancePermit>,
    tenant: Option<TenantId>,
    outcome: Option<Result<WriteOutput>>,
    notify: Option<TenantId>,
    reply: oneshot::Sender<Result<WriteOutput>>,
}

impl QueuedWrite {
    /// Runs the write. An error means that the group's transaction is lost.
    fn run(&mut self, tx: &mut Tx) -> Result<(), String> {
        if let Some((handle, write)) = self.work.take() {
            let outcome = tx.run_in_group(handle, write)?;
            self.notify = tx.tenant_to_notify().filter(|_| outcome.is_ok());
            self.outcome = Some(outcome);
        }
        Ok(())
    }

    /// Sends the outcome to the caller, and notifies waiting readers if the group was committed.
    fn send_reply(self, group: &Result<(), String>, notifier: &CommitNotifier) {
        if group.is_ok() {
            notifier.notify_commit(self.notify);
        }
        let answer = match (group, self.outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Ok(()), None) => Err(Error::internal("the write was not run")),
            (Err(reason), _) => Err(Error::unavailable(reason.clone())),
        };
        // The caller may be gone; the write is committed anyway.
        let _ = self.reply.send(answer);
    }
}

/// A count as a float; all counts here are far below the limit of exact integers.
fn to_metric_value(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

struct WriterThread {
    _running: watch::Sender<()>,
    tx: Tx,
    queue: Arc<FairQueue<QueuedWrite>>,
    failing: Arc<AtomicBool>,
    pace: Arc<MaintenancePace>,
    notifier: CommitNotifier,
    group_time: Duration,
    last_commit: Duration,
    /// The first write of the next group: a maintenance write that was taken from the queue but cannot share a group.
    next: Option<QueuedWrite>,
}

impl WriterThread {
    fn run(mut self) {
        let mut group = Vec::with_capacity(GROUP_MAX);
        while let Some(first) = self.next.take().or_else(|| self.queue.wait_for_next()) {
            group.push(first);
            self.write_group(&mut group);
        }
        // A clean shutdown moves the log into the database file. If that fails, the log keeps the data just as well.
        if let Err(error) = self.tx.checkpoint_log() {
            tracing::warn!(%error, "failed to checkpoint the write-ahead log at shutdown");
        }
    }

    fn write_group(&mut self, group: &mut Vec<QueuedWrite>) {
        let started_at = Instant::now();
        let outcome = self.commit_group(group);
        for write in &*group {
            match write.permit {
                None => self.pace.record_write(write.tenant, started_at),
                Some(_) => self.pace.record_maintenance(write.tenant, started_at, Instant::now()),
            }
        }
        // A group without kept changes wrote nothing to disk, so it proves nothing about the disk.
        let has_changed = self.tx.end_group();
        metrics::histogram!("store_group_size").record(to_metric_value(group.len()));
        metrics::gauge!("store_queue_depth").set(to_metric_value(self.queue.len()));
        match &outcome {
            Ok(()) if has_changed => self.failing.store(false, Ordering::Relaxed),
            Ok(()) => {}
            Err(_) => {
                self.failing.store(true, Ordering::Relaxed);
                metrics::counter!("store_groups_failed").increment(1);
            }
        }
        for write in group.drain(..) {
            write.send_reply(&outcome, &self.notifier);
        }
    }

    fn commit_group(&mut self, group: &mut Vec<QueuedWrite>) -> Result<(), String> {
        // A transaction is open here only if the last rollback failed.
        self.tx.rollback_if_open();
        if let Err(reason) = self.tx.begin_group() {
            // The queued writes fail, too: each would wait as long for the lock as this group did.
            group.extend(std::iter::from_fn(|| self.queue.take_next()).take(GROUP_MAX - group.len()));
            self.tx.rollback_if_open();
            return Err(reason);
        }
        let ran = self.run_group(group);
        let started = Instant::now();
        let ended = ran.and_then(|()| {
            // A write that was undone may have ended the transaction.
            if self.tx.is_idle() {
                return Ok(());
            }
            self.tx.exec_control(dialect::SQLITE_COMMIT).map_err(|error| format!("the commit failed: {error}"))
        });
        self.last_commit = started.elapsed();
        metrics::histogram!("store_commit_seconds").record(self.last_commit.as_secs_f64());
        if ended.is_err() {
            self.tx.rollback_if_open();
        }
        ended
    }

    /// Runs the first write and then the next in the queue, until the queue is empty or the group is large or long enough. A
    /// maintenance write is a group of its own.
    fn run_group(&mut self, group: &mut Vec<QueuedWrite>) -> Result<(), String> {
        let (started, time) = (Instant::now(), self.group_time.max(self.last_commit.min(LAST_COMMIT_MAX)));
        let mut next = group.pop();
        while let Some(mut write) = next.take() {
            let (ran, is_alone) = (write.run(&mut self.tx), write.permit.is_some());
            group.push(write);
            ran?;
            let is_over = group.len() >= GROUP_MAX || started.elapsed() >= time || self.tx.is_idle();
            if !is_alone && !is_over {
                (next, self.next) = match self.queue.take_next() {
                    Some(one) if one.permit.is_some() => (None, Some(one)),
                    one => (one, None),
                };
            }
        }
        Ok(())
    }
}

/// However the thread ends, no caller waits for it any longer.
impl Drop for WriterThread {
    fn drop(&mut self) {
        self.queue.close_and_clear();
    }
}
