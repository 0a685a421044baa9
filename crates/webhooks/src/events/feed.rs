//! The feed: a tenant's events from where a reader has come to, and the wait for more.

use std::time::Duration;

use kernel::base::{Code, Error, Result, Timestamp};
use kernel::http::{Access, Caller, PageBytes};
use kernel::jobs::lanes::POLL_MS;
use kernel::store::{Db, Value};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Wanted;
use super::reader::{FeedBatch, FeedReaders, FeedWaiter};
use super::routes::{Feed, ListQuery, PATH, Reading};
use super::store::{self, Told};
use feature_kit::registry;

/// Numbers of a tenant's writes looked at in one step: most are not events that the reader may see.
const WINDOW: i64 = 2_000;
/// Steps of one request; a reader that is so far behind gets a cursor further on and asks again.
const STEPS_MAX: usize = 50;

/// Where a reader of the feed is: behind which number, and the moment since which it needs what is kept. That is the
/// moment of the next event, of whichever kind, while there is one; else when the reader was told that there is none.
#[derive(Clone, Copy)]
struct FeedPosition {
    sequence: i64,
    at: Timestamp,
}

impl FeedPosition {
    /// Right before an event.
    fn before((sequence, at): (i64, Timestamp)) -> Self {
        FeedPosition { sequence: sequence - 1, at }
    }

    /// Behind all that a batch has.
    fn pass(&mut self, batch: &FeedBatch) {
        if self.sequence < batch.through {
            *self = FeedPosition { sequence: batch.through, at: batch.read_at };
        }
    }
}

/// What a reader wants and may see.
struct FeedFilter {
    families: Vec<&'static str>,
    wanted: Wanted,
    limit: usize,
}

impl FeedFilter {
    fn includes(&self, told: &Told) -> bool {
        self.families.contains(&told.family.as_str()) && self.wanted.includes(&told.family, &told.kind)
    }
}

/// Events of a page, and whether there are more behind it.
type FeedSlice = (Vec<Box<RawValue>>, bool);

/// Answers as soon as there is something, and at the latest when the wait is over. Where the node's reader of the tenant has
/// read on from this very position, nothing is asked of the database.
pub async fn read_feed(caller: &Access<Reading>, db: &Db, query: ListQuery) -> Result<Feed> {
    let ListQuery { from_now, types, page, .. } = query;
    let wanted = types.map_or(Ok(Wanted::All), |types| Wanted::of(&types))?;
    let beginning = if from_now { store::head(db).await? } else { 0 };
    let mut position = match page.position(caller, PATH)?.as_deref() {
        Some([Value::Int(sequence), Value::Int(at)]) => {
            FeedPosition { sequence: *sequence, at: Timestamp::from_millis(*at) }
        }
        _ => FeedPosition { sequence: beginning, at: caller.app().world.now() },
    };
    let mut given = page.has_cursor().then_some(position);
    let families = registry().readable_families(caller.scopes());
    let mut filter = FeedFilter { families, wanted, limit: page.limit };
    let until = Instant::now() + caller.app().settings.news_wait_max;
    let readers: FeedReaders = caller.app().settings.of_feature();
    let mut batch = readers.find_latest(caller.tenant_id());
    let (mut waiter, mut is_over) = (None, false);
    loop {
        let taken = batch.as_deref().and_then(|batch| take_from_batch(batch, &filter, &mut position));
        let (data, has_more) = match taken {
            Some(found) => found,
            None => read_from_store(caller, db, &filter, &mut position, given).await?,
        };
        if !data.is_empty() || has_more || is_over || Instant::now() >= until {
            let next = [Value::Int(position.sequence), Value::Int(position.at.as_millis())];
            let (next_cursor, next_link) = page.next(caller, PATH, &next)?;
            return Ok(Feed { data, has_more, next_cursor, next_link });
        }
        given = None;
        let Some(joined) = &mut waiter else {
            // Joining before the last look: what is written in between is heard.
            batch = waiter.insert(readers.join(caller, db)).find_latest();
            continue;
        };
        match caller.wait(wait_for_news(caller, joined, &filter, &mut position, until)).await? {
            WaitOutcome::News => {}
            WaitOutcome::Over => is_over = true,
            WaitOutcome::Alone => *joined = readers.join(caller, db),
        }
        batch = joined.find_latest();
        // What the credential may read now, and not when it came. What was read with the events holds for them alone.
        let judged = batch.as_ref().filter(|batch| batch.events_behind(position.sequence).is_some());
        let rights = match judged.and_then(|batch| caller.judge(&batch.rights)) {
            Some(rights) => rights?,
            None => caller.still_holds().await?,
        };
        filter.families = registry().readable_families(&rights.scopes);
    }
}

/// How a wait has ended.
enum WaitOutcome {
    /// There is something to look at.
    News,
    /// Nothing has come in time, or the process is about to end.
    Over,
    /// There is no reader any more.
    Alone,
}

/// Waits for something that concerns this caller, and passes over what does not.
async fn wait_for_news(
    caller: &Access<Reading>,
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
            () = &mut over => return WaitOutcome::Over,
            batch = waiter.next() => batch,
        };
        let Some(batch) = batch else {
            // A reader that fails at once must not be begun again and again.
            let pause = tokio::time::sleep(Duration::from_millis(POLL_MS.unsigned_abs()));
            tokio::select! {
                () = &mut over => {}
                () = pause => {}
            }
            return WaitOutcome::Alone;
        };
        let Some(mut events) = batch.events_behind(position.sequence) else { return WaitOutcome::News };
        // Rights that are others than when it came are looked at with the events they hold for.
        let rights = caller.judge(&batch.rights).and_then(Result::ok);
        let is_same = rights.is_some_and(|rights| registry().readable_families(&rights.scopes) == filter.families);
        if !is_same || events.any(|event| filter.includes(&event.0)) {
            return WaitOutcome::News;
        }
        position.pass(&batch);
    }
}

/// The caller's events of a batch that goes on from its position, which is moved; none if it does not.
fn take_from_batch(batch: &FeedBatch, filter: &FeedFilter, position: &mut FeedPosition) -> Option<FeedSlice> {
    let (mut data, mut bytes) = (Vec::new(), PageBytes::default());
    for event in batch.events_behind(position.sequence)?.filter(|event| filter.includes(&event.0)) {
        let (told, body) = event.as_ref();
        if data.len() == filter.limit || !bytes.fits(told.bytes) {
            *position = FeedPosition::before((told.sequence, told.at));
            return Some((data, true));
        }
        data.push(body.clone());
    }
    position.pass(batch);
    Some((data, false))
}

/// The caller's events as the database has them; the position is moved. A cursor that was `given` is refused if events behind it
/// are gone.
async fn read_from_store(
    caller: &Caller,
    db: &Db,
    filter: &FeedFilter,
    position: &mut FeedPosition,
    given: Option<FeedPosition>,
) -> Result<FeedSlice> {
    let read_at = caller.app().world.now();
    let (data, has_more) = read_windows(db, filter, position).await?;
    // After the reading: what is there now was there then.
    if let Some(given) = given {
        check_kept(caller, db, given).await?;
    }
    if !has_more {
        position.at = read_at;
    }
    Ok((data, has_more))
}

/// Refuses a cursor behind which events were removed: going on from it would leave them out without a word.
async fn check_kept(caller: &Caller, db: &Db, given: FeedPosition) -> Result<()> {
    let kept_since = caller.app().world.now().plus(-caller.app().settings.event_retention_ms);
    if given.at >= kept_since || store::is_kept(db, given.sequence).await? || store::head(db).await? == given.sequence {
        return Ok(());
    }
    let detail = "Events after this cursor are no longer kept. Start again without a cursor.";
    Err(Error::new(Code::InvalidCursor, detail))
}

/// Window by window, as far as a page or so many steps reach.
async fn read_windows(db: &Db, filter: &FeedFilter, position: &mut FeedPosition) -> Result<FeedSlice> {
    let FeedFilter { families, wanted, limit } = filter;
    let head = store::head(db).await?;
    for _ in 0..STEPS_MAX {
        if position.sequence >= head {
            return Ok((Vec::new(), false));
        }
        let through = head.min(position.sequence + WINDOW);
        let mut found = store::window(db, families, wanted, (position.sequence, through), limit + 1).await?;
        let mut bytes = PageBytes::default();
        let fit = found.iter().take(*limit).take_while(|told| bytes.fits(told.bytes)).count();
        // Behind a window that is read to its end, numbers without an event are passed over in one leap.
        let next = match found.get(fit) {
            Some(left) => Some((left.sequence, left.at)),
            None if through < head => store::find_next(db, through).await?,
            None => None,
        };
        found.truncate(fit);
        let data: Vec<Box<RawValue>> = store::bodies(db, found).await?.into_iter().map(|(_, body)| body).collect();
        position.sequence = head;
        if let Some(next) = next {
            *position = FeedPosition::before(next);
        }
        if !data.is_empty() || next.is_none() {
            return Ok((data, next.is_some()));
        }
    }
    Ok((Vec::new(), true))
}
