//! The one thread that writes to SQLite, with group commit.
//!
//! Whatever has queued up while the last group was written to disk becomes the next group: each job runs in its own
//! savepoint, one COMMIT makes all of them durable, and only then is anyone answered. So the price of waiting for the
//! disk is shared by all who wait. A job that fails is undone alone; if the group itself fails, every job of it does,
//! because each may have seen what the others wrote.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::base::{Error, Result, TenantId};

use super::context::Context;
use super::dialect;
use super::news::News;
use super::tx::{Job, Tx};

/// Jobs under one commit. More would make the first wait for long without making the disk's share smaller.
const GROUP_MAX: usize = 256;

pub(super) struct Writer {
    queue: mpsc::Sender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
    failing: Arc<AtomicBool>,
}

enum Message {
    Job(Box<dyn Queued>),
    Close,
}

impl Writer {
    pub fn start(tx: Tx, queue_max: usize, news: News) -> Result<Self> {
        let (sender, receiver) = mpsc::channel(queue_max);
        let failing = Arc::new(AtomicBool::new(false));
        let thread = Thread { tx, failing: failing.clone(), news };
        let handle = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.run(receiver))
            .map_err(Error::unavailable)?;
        Ok(Writer { queue: sender, thread: Mutex::new(Some(handle)), failing })
    }

    pub async fn write<R: Send + 'static>(
        &self,
        context: Arc<Context>,
        job: impl for<'t> Job<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
    ) -> Result<R> {
        let (reply, answer) = oneshot::channel();
        let pending = Pending { job: Some(job), context: Some(context), outcome: None, news: None, reply };
        self.queue.try_send(Message::Job(Box::new(pending))).map_err(|error| match error {
            TrySendError::Full(_) => Error::unavailable("the queue of the writer is full"),
            TrySendError::Closed(_) => Error::unavailable("the writer has stopped"),
        })?;
        answer.await.map_err(|_| Error::unavailable("the writer stopped before it answered"))?
    }

    /// Whether the last group that had something to write could not be written.
    pub fn failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// A write to the disk has just worked.
    pub fn recovered(&self) {
        self.failing.store(false, Ordering::Relaxed);
    }

    /// Takes no more jobs, finishes those that are queued, and waits for the thread to end.
    pub async fn close(&self) {
        // A failed send means that the thread is closing already or gone.
        let _ = self.queue.send(Message::Close).await;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// A job waiting for its turn and then for its group.
trait Queued: Send {
    /// Runs the job in its savepoint. An error means that the group's transaction is lost.
    fn run(&mut self, tx: &mut Tx) -> Result<(), String>;

    /// Tells the caller and whoever waits for news, now that the fate of the group is known.
    fn answer(self: Box<Self>, group: &Result<(), String>, news: &News);
}

struct Pending<J, R> {
    job: Option<J>,
    context: Option<Arc<Context>>,
    outcome: Option<Result<R>>,
    news: Option<TenantId>,
    reply: oneshot::Sender<Result<R>>,
}

impl<J, R> Queued for Pending<J, R>
where
    J: for<'t> Job<&'t mut Tx, Result<R>, Fut: Send> + Send,
    R: Send,
{
    fn run(&mut self, tx: &mut Tx) -> Result<(), String> {
        if let (Some(job), Some(context)) = (self.job.take(), self.context.take()) {
            let outcome = tx.run_in_savepoint(context, job)?;
            self.news = tx.news().filter(|_| outcome.is_ok());
            self.outcome = Some(outcome);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, group: &Result<(), String>, news: &News) {
        if group.is_ok() {
            news.tell(self.news);
        }
        let answer = match (group, self.outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Ok(()), None) => Err(Error::internal("the write was not run")),
            (Err(reason), _) => Err(Error::unavailable(reason.clone())),
        };
        // Whoever asked may have gone; the write stands all the same.
        let _ = self.reply.send(answer);
    }
}

/// A count that is bounded far below where a float would lose digits.
fn small(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

struct Thread {
    tx: Tx,
    failing: Arc<AtomicBool>,
    news: News,
}

impl Thread {
    fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(GROUP_MAX);
        let mut group = Vec::with_capacity(GROUP_MAX);
        while queue.blocking_recv_many(&mut messages, GROUP_MAX) > 0 {
            for message in messages.drain(..) {
                match message {
                    Message::Job(job) => group.push(job),
                    Message::Close => queue.close(),
                }
            }
            metrics::gauge!("store_queue_depth").set(small(queue.len()));
            if !group.is_empty() {
                self.write(&mut group);
            }
        }
        // A clean end leaves everything in the database file itself. If it cannot, the log keeps it just as well.
        if let Err(error) = self.tx.checkpoint() {
            tracing::warn!(%error, "the log could not be moved into the database at the end");
        }
    }

    fn write(&mut self, group: &mut Vec<Box<dyn Queued>>) {
        metrics::histogram!("store_group_size").record(small(group.len()));
        let changes = self.tx.changes();
        let fate = self.commit(group);
        match &fate {
            Ok(()) if self.tx.changes() != changes => self.failing.store(false, Ordering::Relaxed),
            Ok(()) => {}
            Err(_) => {
                self.failing.store(true, Ordering::Relaxed);
                metrics::counter!("store_groups_failed").increment(1);
            }
        }
        for job in group.drain(..) {
            job.answer(&fate, &self.news);
        }
    }

    fn commit(&mut self, group: &mut [Box<dyn Queued>]) -> Result<(), String> {
        // Only if the last group could not even be rolled back.
        self.tx.abandon();
        self.tx.control(dialect::SQLITE_BEGIN).map_err(|error| format!("the transaction did not begin: {error}"))?;
        let ran = group.iter_mut().try_for_each(|job| job.run(&mut self.tx));
        let started = Instant::now();
        let ended = ran.and_then(|()| {
            self.tx.control(dialect::SQLITE_COMMIT).map_err(|error| format!("the commit failed: {error}"))
        });
        metrics::histogram!("store_commit_seconds").record(started.elapsed().as_secs_f64());
        if ended.is_err() {
            self.tx.abandon();
        }
        ended
    }
}
