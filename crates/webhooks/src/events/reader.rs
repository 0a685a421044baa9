//! One reader per tenant and node for all requests that wait for the tenant's events: a write is read once, however many
//! wait.
//!
//! A round reads the tenant's head, then the new events, then the rights of all waiters. Rights are read after the events,
//! so a caller that lost its rights by one of these events does not receive it. The result is one [`FeedBatch`], from which
//! each waiter takes its own events. A batch also has the last events of earlier rounds, so that a waiter that wakes late
//! needs no query; one that is further behind reads from the store itself. Only the last batch is kept, so slow or dead
//! waiters hold no memory. The reader starts with the first waiter and ends with the last.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernel::auth::{CredentialRef, RightsBatch};
use kernel::base::{Result, TenantId, Timestamp};
use kernel::http::Caller;
use kernel::jobs::lanes::POLL_MS;
use kernel::store::Db;
use serde_json::value::RawValue;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;
use tokio::time::Instant;

use super::store::{self, FeedRow};

/// An event that all waiters share.
pub type FeedEvent = Arc<(FeedRow, Box<RawValue>)>;

/// How much of a tenant's last events is kept in memory while a request waits for more: a page, or a few of the largest.
const BATCH_EVENTS_MAX: usize = 200;
const BATCH_BYTES_MAX: usize = 512 << 10;

/// The result of a round.
pub struct FeedBatch {
    /// All events above `after` and up to `through` are here.
    after: i64,
    pub through: i64,
    events: Vec<FeedEvent>,
    /// The rights of the callers that waited when the batch was read.
    pub rights: RightsBatch,
    pub read_at: Timestamp,
}

impl FeedBatch {
    /// The events after this sequence; `None` if the batch does not reach back that far.
    pub fn events_behind(&self, sequence: i64) -> Option<impl Iterator<Item = &FeedEvent>> {
        let is_seen = move |event: &&FeedEvent| event.0.sequence <= sequence;
        (self.after <= sequence).then(|| self.events.iter().skip_while(is_seen))
    }
}

/// The readers of a node, one for each tenant with waiting requests.
#[derive(Clone, Default)]
pub struct FeedReaders(Arc<Mutex<HashMap<TenantId, Arc<TenantFeed>>>>);

/// `None` until the first round is over.
type LastFeedBatch = Option<Arc<FeedBatch>>;

struct TenantFeed {
    batches: watch::Receiver<LastFeedBatch>,
    /// The waiting callers, each under its own number.
    waiting: Mutex<HashMap<u64, CredentialRef>>,
    next_number: AtomicU64,
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FeedReaders {
    /// The last batch of a tenant's reader, if one is running: a caller that finds its events there need not wait.
    pub fn find_latest(&self, tenant: TenantId) -> Option<Arc<FeedBatch>> {
        let feeds = lock_mutex(&self.0);
        let feed = feeds.get(&tenant).filter(|feed| feed.is_alive())?;
        feed.batches.borrow().clone()
    }

    /// Adds the caller to the waiters, and starts a reader if there is none. The reader uses the first caller's database
    /// handle; each waiter filters events by its own rights.
    pub fn add_waiter(&self, caller: &Caller, db: &Db) -> FeedWaiter {
        let mut feeds = lock_mutex(&self.0);
        let tenant = caller.tenant_id();
        let feed = feeds.get(&tenant).filter(|feed| feed.is_alive()).cloned().unwrap_or_else(|| {
            let (sender, batches) = watch::channel(None);
            let feed = TenantFeed { batches, waiting: Mutex::default(), next_number: AtomicU64::new(0) };
            let feed = Arc::new(feed);
            feeds.insert(tenant, feed.clone());
            // Subscribed before the first read, so that a write in between is noticed.
            let reader = FeedReader { readers: self.clone(), feed: feed.clone(), tenant, db: db.clone() };
            tokio::spawn(reader.run(sender, caller.app().subscribe_commits()));
            feed
        });
        let number = feed.next_number.fetch_add(1, Ordering::Relaxed);
        lock_mutex(&feed.waiting).insert(number, caller.credential_ref());
        FeedWaiter { batches: feed.batches.clone(), feed, number }
    }

    /// How many callers wait for a tenant's events, for tests.
    #[doc(hidden)]
    pub fn count_waiters(&self, tenant: TenantId) -> usize {
        lock_mutex(&self.0).get(&tenant).map_or(0, |feed| lock_mutex(&feed.waiting).len())
    }

    /// Removes a reader without waiters, and returns whether it had none. The next caller starts a new one.
    fn remove_if_unused(&self, tenant: TenantId, feed: &Arc<TenantFeed>) -> bool {
        let mut feeds = lock_mutex(&self.0);
        let is_unused = lock_mutex(&feed.waiting).is_empty();
        if is_unused && feeds.get(&tenant).is_some_and(|current| Arc::ptr_eq(current, feed)) {
            feeds.remove(&tenant);
        }
        is_unused
    }
}

impl TenantFeed {
    /// Whether the reader is still running.
    fn is_alive(&self) -> bool {
        self.batches.has_changed().is_ok()
    }
}

/// A waiting caller; it stops waiting when this is dropped.
pub struct FeedWaiter {
    batches: watch::Receiver<LastFeedBatch>,
    feed: Arc<TenantFeed>,
    number: u64,
}

impl FeedWaiter {
    /// The last batch.
    pub fn find_latest(&mut self) -> Option<Arc<FeedBatch>> {
        self.batches.borrow_and_update().clone()
    }

    /// Waits for the next batch; `None` when the reader has ended, because the database is unreachable or a read failed.
    pub async fn next_batch(&mut self) -> Option<Arc<FeedBatch>> {
        self.batches.changed().await.ok()?;
        self.find_latest()
    }
}

impl Drop for FeedWaiter {
    fn drop(&mut self) {
        lock_mutex(&self.feed.waiting).remove(&self.number);
    }
}

struct FeedReader {
    readers: FeedReaders,
    feed: Arc<TenantFeed>,
    tenant: TenantId,
    db: Db,
}

impl FeedReader {
    async fn run(self, batches: watch::Sender<LastFeedBatch>, mut commits: Receiver<TenantId>) {
        let mut last: LastFeedBatch = None;
        while !self.readers.remove_if_unused(self.tenant, &self.feed) {
            match self.read_batch(last.as_deref()).await {
                Ok(None) => {}
                Ok(Some(batch)) => {
                    last = Some(Arc::new(batch));
                    batches.send_replace(last.clone());
                }
                // The waiters now read from the store themselves, and report the error.
                Err(error) => return tracing::debug!(%error, tenant = %self.tenant, "failed to read the feed"),
            }
            await_commit(&mut commits, self.tenant).await;
        }
    }

    /// Reads another round; `None` if nothing was written since the last.
    async fn read_batch(&self, last: Option<&FeedBatch>) -> Result<Option<FeedBatch>> {
        let read_at = self.db.env().now();
        let through = store::read_head(&self.db).await?;
        if last.is_some_and(|last| last.through == through) {
            return Ok(None);
        }
        let (after, events) = match last {
            Some(last) if last.through < through => self.extend_batch(last, through).await?,
            _ => (through, Vec::new()),
        };
        let credentials: HashSet<CredentialRef> = lock_mutex(&self.feed.waiting).values().copied().collect();
        let rights = RightsBatch::load_rights(&self.db, credentials).await?;
        Ok(Some(FeedBatch { after, through, events, rights, read_at }))
    }

    /// The last events up to `through`, and the sequence after which they are complete.
    async fn extend_batch(&self, last: &FeedBatch, through: i64) -> Result<(i64, Vec<FeedEvent>)> {
        let limits = (BATCH_EVENTS_MAX, BATCH_BYTES_MAX);
        let Some(fresh) = store::list_fresh(&self.db, (last.through, through), limits).await? else {
            return Ok((through, Vec::new()));
        };
        let events: Vec<FeedEvent> = last.events.iter().cloned().chain(fresh.into_iter().map(Arc::new)).collect();
        let mut bytes = 0;
        let fit = events.iter().rev().take(BATCH_EVENTS_MAX).take_while(|event| {
            bytes += event.0.bytes;
            bytes <= BATCH_BYTES_MAX
        });
        let left_out = events.len() - fit.count();
        let after = left_out.checked_sub(1).map_or(last.after, |index| events[index].0.sequence);
        Ok((after, events[left_out..].to_vec()))
    }
}

/// Waits for a write of this tenant, at most for the poll interval, because another node may have written. Queued
/// notifications are drained, so that many writes cause one round.
async fn await_commit(commits: &mut Receiver<TenantId>, tenant: TenantId) {
    let poll = Instant::now() + Duration::from_millis(POLL_MS.unsigned_abs());
    loop {
        match tokio::time::timeout_at(poll, commits.recv()).await {
            Ok(Ok(committed)) if committed != tenant => {}
            Ok(Err(RecvError::Closed)) => return tokio::time::sleep_until(poll).await,
            _ => break,
        }
    }
    while !matches!(commits.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
}
