//! One reader for all who wait for a tenant's events on this node: a write is read once, however many wait for it.
//!
//! A round asks how far the tenant's writes have come, reads what is new, and asks for the rights of all who wait, after the
//! events: whoever lost theirs by one of them is not told of it. What came of it is one [`FeedBatch`], which everybody takes their
//! own events from. It has the last events of the rounds before as well, so that a waiter that wakes late needs nothing else; one
//! that is further behind reads for itself. Only the last batch is kept, and nobody who is slow or gone holds memory. The reader
//! begins with the first who waits, and ends when nobody does.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernel::auth::{RightsOfMany, Standing};
use kernel::base::{Result, TenantId, Timestamp};
use kernel::http::Caller;
use kernel::jobs::lanes::POLL_MS;
use kernel::store::Db;
use serde_json::value::RawValue;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;
use tokio::time::Instant;

use super::store::{self, Told};

/// An event that all who wait share.
pub type FeedEvent = Arc<(Told, Box<RawValue>)>;

/// What is kept in memory of a tenant's last events, while somebody waits for more: a page, or a few of the largest.
const BATCH_EVENTS_MAX: usize = 200;
const BATCH_BYTES_MAX: usize = 512 << 10;

/// What is known after a round.
pub struct FeedBatch {
    /// All events above `after` and up to `through` are here.
    after: i64,
    pub through: i64,
    events: Vec<FeedEvent>,
    /// Of those who waited when it was read.
    pub rights: RightsOfMany,
    pub read_at: Timestamp,
}

impl FeedBatch {
    /// The events for somebody who has seen all up to this number; none if they must read for themselves.
    pub fn events_behind(&self, sequence: i64) -> Option<impl Iterator<Item = &FeedEvent>> {
        let is_seen = move |event: &&FeedEvent| event.0.sequence <= sequence;
        (self.after <= sequence).then(|| self.events.iter().skip_while(is_seen))
    }
}

/// The readers of a node, each for a tenant that somebody waits for.
#[derive(Clone, Default)]
pub struct FeedReaders(Arc<Mutex<HashMap<TenantId, Arc<TenantFeed>>>>);

/// None until the first round is over.
type LastFeedBatch = Option<Arc<FeedBatch>>;

struct TenantFeed {
    batches: watch::Receiver<LastFeedBatch>,
    /// Who waits, each by a number of their own.
    waiting: Mutex<HashMap<u64, Standing>>,
    next_number: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FeedReaders {
    /// What the reader of a tenant has read last, if there is one: for whoever may not have to wait at all.
    pub fn find_latest(&self, tenant: TenantId) -> Option<Arc<FeedBatch>> {
        let feeds = lock(&self.0);
        let feed = feeds.get(&tenant).filter(|feed| feed.is_alive())?;
        feed.batches.borrow().clone()
    }

    /// Counts the caller among those who wait, and begins to read if there is no reader yet. It reads by the handle of whoever
    /// came first, and hands out by the rights of each.
    pub fn join(&self, caller: &Caller, db: &Db) -> FeedWaiter {
        let mut feeds = lock(&self.0);
        let tenant = caller.tenant_id();
        let feed = feeds.get(&tenant).filter(|feed| feed.is_alive()).cloned().unwrap_or_else(|| {
            let (sender, batches) = watch::channel(None);
            let feed = TenantFeed { batches, waiting: Mutex::default(), next_number: AtomicU64::new(0) };
            let feed = Arc::new(feed);
            feeds.insert(tenant, feed.clone());
            // Listening before the first look: what is written in between is heard.
            let reader = FeedReader { readers: self.clone(), feed: feed.clone(), tenant, db: db.clone() };
            tokio::spawn(reader.run(sender, caller.app().news()));
            feed
        });
        let number = feed.next_number.fetch_add(1, Ordering::Relaxed);
        lock(&feed.waiting).insert(number, caller.standing());
        FeedWaiter { batches: feed.batches.clone(), feed, number }
    }

    /// How many wait for a tenant's events, for tests.
    #[doc(hidden)]
    pub fn waiting(&self, tenant: TenantId) -> usize {
        lock(&self.0).get(&tenant).map_or(0, |feed| lock(&feed.waiting).len())
    }

    /// Forgets a reader that nobody waits for. Whoever comes from now on begins another.
    fn end_if_unused(&self, tenant: TenantId, feed: &Arc<TenantFeed>) -> bool {
        let mut feeds = lock(&self.0);
        let is_unused = lock(&feed.waiting).is_empty();
        if is_unused && feeds.get(&tenant).is_some_and(|known| Arc::ptr_eq(known, feed)) {
            feeds.remove(&tenant);
        }
        is_unused
    }
}

impl TenantFeed {
    /// Whether its reader has not ended.
    fn is_alive(&self) -> bool {
        self.batches.has_changed().is_ok()
    }
}

/// Somebody who waits, until this is dropped.
pub struct FeedWaiter {
    batches: watch::Receiver<LastFeedBatch>,
    feed: Arc<TenantFeed>,
    number: u64,
}

impl FeedWaiter {
    /// What was read last.
    pub fn find_latest(&mut self) -> Option<Arc<FeedBatch>> {
        self.batches.borrow_and_update().clone()
    }

    /// Waits for the next; none when the reader has ended, because the database is away or because it has failed.
    pub async fn next(&mut self) -> Option<Arc<FeedBatch>> {
        self.batches.changed().await.ok()?;
        self.find_latest()
    }
}

impl Drop for FeedWaiter {
    fn drop(&mut self) {
        lock(&self.feed.waiting).remove(&self.number);
    }
}

struct FeedReader {
    readers: FeedReaders,
    feed: Arc<TenantFeed>,
    tenant: TenantId,
    db: Db,
}

impl FeedReader {
    async fn run(self, batches: watch::Sender<LastFeedBatch>, mut news: Receiver<TenantId>) {
        let mut last: LastFeedBatch = None;
        while !self.readers.end_if_unused(self.tenant, &self.feed) {
            match self.read(last.as_deref()).await {
                Ok(None) => {}
                Ok(Some(batch)) => {
                    last = Some(Arc::new(batch));
                    batches.send_replace(last.clone());
                }
                // Whoever waits now reads for themselves, and is told what is wrong.
                Err(error) => return tracing::debug!(%error, tenant = %self.tenant, "failed to read the feed"),
            }
            await_news(&mut news, self.tenant).await;
        }
    }

    /// What is known after another round; none if nothing has come since the last.
    async fn read(&self, last: Option<&FeedBatch>) -> Result<Option<FeedBatch>> {
        let read_at = self.db.world().now();
        let through = store::head(&self.db).await?;
        if last.is_some_and(|last| last.through == through) {
            return Ok(None);
        }
        let (after, events) = match last {
            Some(last) if last.through < through => self.read_on(last, through).await?,
            _ => (through, Vec::new()),
        };
        let standings: HashSet<Standing> = lock(&self.feed.waiting).values().copied().collect();
        let rights = RightsOfMany::read(&self.db, standings).await?;
        Ok(Some(FeedBatch { after, through, events, rights, read_at }))
    }

    /// The last events up to `through`, and behind which number they are all that there are.
    async fn read_on(&self, last: &FeedBatch, through: i64) -> Result<(i64, Vec<FeedEvent>)> {
        let most = (BATCH_EVENTS_MAX, BATCH_BYTES_MAX);
        let Some(fresh) = store::list_fresh(&self.db, (last.through, through), most).await? else {
            return Ok((through, Vec::new()));
        };
        let events: Vec<FeedEvent> = last.events.iter().cloned().chain(fresh.into_iter().map(Arc::new)).collect();
        let mut bytes = 0;
        let fit = events.iter().rev().take(BATCH_EVENTS_MAX).take_while(|event| {
            bytes += event.0.bytes;
            bytes <= BATCH_BYTES_MAX
        });
        let left_out = events.len() - fit.count();
        let after = left_out.checked_sub(1).map_or(last.after, |place| events[place].0.sequence);
        Ok((after, events[left_out..].to_vec()))
    }
}

/// Waits for news of this tenant, and so long at most: another node may have written. Many at once are heard as one.
async fn await_news(news: &mut Receiver<TenantId>, tenant: TenantId) {
    let poll = Instant::now() + Duration::from_millis(POLL_MS.unsigned_abs());
    loop {
        match tokio::time::timeout_at(poll, news.recv()).await {
            Ok(Ok(told)) if told != tenant => {}
            Ok(Err(RecvError::Closed)) => return tokio::time::sleep_until(poll).await,
            _ => break,
        }
    }
    while !matches!(news.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
}
