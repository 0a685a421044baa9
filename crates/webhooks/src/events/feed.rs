//! The event feed: a tenant's events from a reader's position on, and long polling for more.

use std::time::Duration;

use feature_kit::registry;
use kernel::base::{Code, Error, Result, Timestamp};
use kernel::http::{Access, Caller, PageBytes, PageRequest, Route};
use kernel::jobs::lanes::POLL_MS;
use kernel::store::{Db, Value};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::reader::{FeedBatch, FeedReaders, FeedWaiter};
use super::store::{self, FeedRow};
use super::{FeedSelection, PATH};

/// Sequences examined in one step: most writes are not events that the reader may see.
const WINDOW: i64 = 2_000;
/// Steps of one request; a reader that is further behind gets a cursor and asks again.
const STEPS_MAX: usize = 50;

/// A page of the feed that a reader asks for.
pub struct FeedRequest {
    pub from_now: bool,
    pub types: Option<Vec<String>>,
    pub page: PageRequest,
}

/// A page of the feed; `next_cursor` is always set.
#[derive(Serialize)]
pub struct FeedResponse {
    data: Vec<Box<RawValue>>,
    has_more: bool,
    next_cursor: String,
    #[serde(skip)]
    pub next_link: String,
}

/// Where a reader stands in the feed: after which sequence, and since when it needs events to be kept. That time is the time
/// of the next event, of any kind, if there is one; else the time at which the reader found that there is none.
#[derive(Clone, Copy)]
struct FeedPosition {
    sequence: i64,
    at: Timestamp,
}

impl FeedPosition {
    /// The position right before an event.
    fn before_event((sequence, at): (i64, Timestamp)) -> Self {
        FeedPosition { sequence: sequence - 1, at }
    }

    /// Moves past the end of a batch.
    fn advance_past(&mut self, batch: &FeedBatch) {
        if self.sequence < batch.through {
            *self = FeedPosition { sequence: batch.through, at: batch.read_at };
        }
    }
}

/// Which events a reader selects and may see, and how many of them.
struct FeedFilter {
    families: Vec<&'static str>,
    selection: FeedSelection,
    limit: usize,
}

impl FeedFilter {
    fn includes_event(&self, row: &FeedRow) -> bool {
        self.families.contains(&row.family.as_str()) && self.selection.includes_event(&row.family, &row.kind)
    }
}

/// The events of a page, and whether there are more.
type FeedSlice = (Vec<Box<RawValue>>, bool);

/// Answers as soon as there are events, and at the latest when the wait is over. If the last batch of the node's reader
/// reaches back to this position, the database is not queried.
pub async fn read_feed<R: Route>(caller: &Access<R>, db: &Db, request: FeedRequest) -> Result<FeedResponse> {
    let FeedRequest { from_now, types, page } = request;
    let selection = types.map_or(Ok(FeedSelection::All), |types| FeedSelection::from_patterns(&types))?;
    let beginning = if from_now { store::read_head(db).await? } else { 0 };
    let mut position = match page.cursor_position(caller, PATH)?.as_deref() {
        Some([Value::Int(sequence), Value::Int(at)]) => {
            FeedPosition { sequence: *sequence, at: Timestamp::from_millis(*at) }
        }
        _ => FeedPosition { sequence: beginning, at: caller.app().env.now() },
    };
    let mut cursor = page.has_cursor().then_some(position);
    let families = registry().readable_families(caller.scopes());
    let mut filter = FeedFilter { families, selection, limit: page.limit };
    let until = Instant::now() + caller.app().settings.news_wait_max;
    let readers: FeedReaders = caller.app().settings.feature_settings();
    let mut batch = readers.find_latest(caller.tenant_id());
    let (mut waiter, mut is_over) = (None, false);
    loop {
        let taken = batch.as_deref().and_then(|batch| take_from_batch(batch, &filter, &mut position));
        let (data, has_more) = match taken {
            Some(taken) => taken,
            None => read_from_store(caller, db, &filter, &mut position, cursor).await?,
        };
        if !data.is_empty() || has_more || is_over || Instant::now() >= until {
            let next = [Value::Int(position.sequence), Value::Int(position.at.as_millis())];
            let (next_cursor, next_link) = page.sign_next(caller, PATH, &next)?;
            return Ok(FeedResponse { data, has_more, next_cursor, next_link });
        }
        cursor = None;
        let Some(active) = &mut waiter else {
            // Added to the waiters before the last look, so that a write in between is noticed.
            batch = waiter.insert(readers.add_waiter(caller, db)).find_latest();
            continue;
        };
        match caller.wait_for_news(wait_for_news(caller, active, &filter, &mut position, until)).await? {
            WaitOutcome::News => {}
            WaitOutcome::TimedOut => is_over = true,
            WaitOutcome::ReaderEnded => *active = readers.add_waiter(caller, db),
        }
        batch = active.find_latest();
        // The rights as they are now, not as they were when the request arrived. Rights of a batch are valid for its events
        // alone.
        let current = batch.as_ref().filter(|batch| batch.events_behind(position.sequence).is_some());
        let rights = match current.and_then(|batch| caller.check_rights(&batch.rights)) {
            Some(rights) => rights?,
            None => caller.confirm_rights_now().await?,
        };
        filter.families = registry().readable_families(&rights.scopes);
    }
}

/// How a wait ended.
enum WaitOutcome {
    /// There may be events for this caller.
    News,
    /// The time is over, or the process is stopping.
    TimedOut,
    /// The reader has ended.
    ReaderEnded,
}

/// Waits for a batch with events for this caller, and moves the position past batches without.
async fn wait_for_news<R: Route>(
    caller: &Access<R>,
    waiter: &mut FeedWaiter,
    filter: &FeedFilter,
    position: &mut FeedPosition,
    until: Instant,
) -> WaitOutcome {
    let mut stopping = caller.app().stopping.subscribe();
    let over = async {
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    };
    tokio::pin!(over);
    loop {
        let batch = tokio::select! {
            () = &mut over => return WaitOutcome::TimedOut,
            batch = waiter.next_batch() => batch,
        };
        let Some(batch) = batch else {
            // The pause keeps a reader that fails at once from being restarted in a tight loop.
            let pause = tokio::time::sleep(Duration::from_millis(POLL_MS.unsigned_abs()));
            tokio::select! {
                () = &mut over => {}
                () = pause => {}
            }
            return WaitOutcome::ReaderEnded;
        };
        let Some(mut events) = batch.events_behind(position.sequence) else { return WaitOutcome::News };
        // If the rights have changed, they must be applied together with the events of their batch.
        let rights = caller.check_rights(&batch.rights).and_then(Result::ok);
        let is_same = rights.is_some_and(|rights| registry().readable_families(&rights.scopes) == filter.families);
        if !is_same || events.any(|event| filter.includes_event(&event.0)) {
            return WaitOutcome::News;
        }
        position.advance_past(&batch);
    }
}

/// The caller's events of a batch, and moves the position past them; `None` if the batch does not reach back to it.
fn take_from_batch(batch: &FeedBatch, filter: &FeedFilter, position: &mut FeedPosition) -> Option<FeedSlice> {
    let (mut data, mut bytes) = (Vec::new(), PageBytes::default());
    for event in batch.events_behind(position.sequence)?.filter(|event| filter.includes_event(&event.0)) {
        let (row, body) = event.as_ref();
        if data.len() == filter.limit || !bytes.fits_bytes(row.bytes) {
            *position = FeedPosition::before_event((row.sequence, row.at));
            return Some((data, true));
        }
        data.push(body.clone());
    }
    position.advance_past(batch);
    Some((data, false))
}

/// The caller's events from the database, and moves the position past them. A cursor is refused if events after it have
/// been deleted.
async fn read_from_store(
    caller: &Caller,
    db: &Db,
    filter: &FeedFilter,
    position: &mut FeedPosition,
    cursor: Option<FeedPosition>,
) -> Result<FeedSlice> {
    let read_at = caller.app().env.now();
    let (data, has_more) = read_windows(db, filter, position).await?;
    // Checked after reading: events that are kept now were kept during the read.
    if let Some(cursor) = cursor {
        check_kept(caller, db, cursor).await?;
    }
    if !has_more {
        position.at = read_at;
    }
    Ok((data, has_more))
}

/// Refuses a cursor if events after it have been deleted: going on would skip them silently.
async fn check_kept(caller: &Caller, db: &Db, cursor: FeedPosition) -> Result<()> {
    let kept_since = caller.app().env.now().plus_ms(-caller.app().settings.event_retention_ms);
    if cursor.at >= kept_since
        || store::is_kept(db, cursor.sequence).await?
        || store::read_head(db).await? == cursor.sequence
    {
        return Ok(());
    }
    let detail = "Events after this cursor are no longer kept. Start again without a cursor.";
    Err(Error::new(Code::InvalidCursor, detail))
}

/// Reads window by window until a page is full or [`STEPS_MAX`] is reached.
async fn read_windows(db: &Db, filter: &FeedFilter, position: &mut FeedPosition) -> Result<FeedSlice> {
    let FeedFilter { families, selection, limit } = filter;
    let head = store::read_head(db).await?;
    for _ in 0..STEPS_MAX {
        if position.sequence >= head {
            return Ok((Vec::new(), false));
        }
        let through = head.min(position.sequence + WINDOW);
        let mut rows = store::list_window(db, families, selection, (position.sequence, through), limit + 1).await?;
        let mut bytes = PageBytes::default();
        let fit = rows.iter().take(*limit).take_while(|row| bytes.fits_bytes(row.bytes)).count();
        // After a window that was read to its end, sequences without an event are skipped in one query.
        let next = match rows.get(fit) {
            Some(left) => Some((left.sequence, left.at)),
            None if through < head => store::find_next_event(db, through).await?,
            None => None,
        };
        rows.truncate(fit);
        let data: Vec<Box<RawValue>> =
            store::attach_bodies(db, rows).await?.into_iter().map(|(_, body)| body).collect();
        position.sequence = head;
        if let Some(next) = next {
            *position = FeedPosition::before_event(next);
        }
        if !data.is_empty() || next.is_none() {
            return Ok((data, next.is_some()));
        }
    }
    Ok((Vec::new(), true))
}
