//! What was caused and what was received, on one clock: causes are numbered, and their events carry the number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::harness::Outcome;
use crate::report::percentile;

/// How long after the last cause the last receipt is waited for.
const LATE_MAX: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The name of an API key that is made as a cause, before its number.
pub const NAME: &str = "cause-";

pub struct Receipts {
    start: Instant,
    next: AtomicUsize,
    acknowledged: Mutex<Vec<Cause>>,
    received: Mutex<Vec<(usize, Duration)>>,
}

struct Cause {
    number: usize,
    asked: Duration,
    acknowledged: Duration,
}

/// From when on a delay counts.
#[derive(Clone, Copy)]
pub enum Since {
    /// The request that caused the event was sent; its own work is in the delay.
    Asked,
    /// Its answer was there, which is soon after the commit.
    Acknowledged,
}

/// Events of one key: its creation and its revocation.
#[derive(Clone, Copy)]
pub enum Deed {
    Created,
    Revoked,
}

fn number(key: usize, deed: Deed) -> usize {
    2 * key + usize::from(matches!(deed, Deed::Revoked))
}

impl Receipts {
    pub fn new() -> Self {
        Receipts {
            start: Instant::now(),
            next: AtomicUsize::new(0),
            acknowledged: Mutex::default(),
            received: Mutex::default(),
        }
    }

    /// A number for a key that is to be made.
    pub fn next_key(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn acknowledge(&self, key: usize, deed: Deed, asked: Instant) {
        let (asked, acknowledged) = (asked - self.start, self.start.elapsed());
        let cause = Cause { number: number(key, deed), asked, acknowledged };
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push(cause);
    }

    /// Notes a delivery. What is no cause's event is left out.
    pub fn receive(&self, body: &str) {
        let at = self.start.elapsed();
        let Some((_, name)) = body.split_once(NAME) else { return };
        let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
        let Ok(key) = name[..digits].parse() else { return };
        let deed = if body.contains("\"api_key.revoked\"") { Deed::Revoked } else { Deed::Created };
        self.received.lock().unwrap_or_else(PoisonError::into_inner).push((number(key, deed), at));
    }

    fn count(&self) -> usize {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until there are that many receipts of each cause.
    pub async fn wait_for_all(&self, of_each: usize) -> Outcome {
        let waiting = Instant::now();
        let wanted = of_each * self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len();
        while self.count() < wanted {
            if waiting.elapsed() > LATE_MAX {
                return Err(format!("only {} of {wanted} deliveries came", self.count()).into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Acknowledged causes and receipts per second, from the first request to the last of each.
    pub fn rates(&self) -> (f64, f64) {
        let first = self.first();
        let rate = |count: usize, last: Option<Duration>| {
            let time = last.unwrap_or_default().saturating_sub(first);
            f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / time.as_secs_f64()
        };
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        (
            rate(acknowledged.len(), acknowledged.iter().map(|cause| cause.acknowledged).max()),
            rate(received.len(), received.iter().map(|(_, at)| *at).max()),
        )
    }

    fn first(&self) -> Duration {
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        acknowledged.iter().map(|cause| cause.asked).min().unwrap_or_default()
    }

    /// How long each cause was waited for, in microseconds; those of the first while are left out.
    pub fn answers(&self, warm: Duration) -> Vec<f64> {
        let warm = self.first() + warm;
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let late = acknowledged.iter().filter(|cause| cause.asked >= warm);
        late.map(|cause| cause.acknowledged.saturating_sub(cause.asked).as_secs_f64() * 1e6).collect()
    }

    /// From each cause to each of its receipts; the causes of the first while are left out.
    pub fn delays(&self, since: Since, warm: Duration) -> Delays {
        let warm = self.first() + warm;
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by_number = vec![None; acknowledged.iter().map(|cause| cause.number + 1).max().unwrap_or(0)];
        for cause in acknowledged.iter().filter(|cause| cause.asked >= warm) {
            by_number[cause.number] = Some(match since {
                Since::Asked => cause.asked,
                Since::Acknowledged => cause.acknowledged,
            });
        }
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = |(number, at): &(usize, Duration)| {
            let caused = by_number.get(*number).copied().flatten()?;
            // A receipt can overtake the answer to the one who caused it.
            Some(at.saturating_sub(caused).as_secs_f64() * 1e6)
        };
        Delays(received.iter().filter_map(delay).collect())
    }
}

/// In microseconds.
pub struct Delays(pub Vec<f64>);

impl Delays {
    /// What so many thousandths of them do not exceed.
    pub fn at(&self, thousandths: usize) -> f64 {
        percentile(self.0.clone(), thousandths)
    }
}
