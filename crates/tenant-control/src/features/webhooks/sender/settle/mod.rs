//! Noting what became of attempts: of the deliveries, and of the endpoint as it was when it was asked.

pub mod store;

use kernel::base::{Error, Result, Timestamp};
use kernel::jobs::lanes::Lane;
use tokio::task::JoinHandle;

use super::super::WebhookId;
use super::super::deliveries::DeliveryId;
use super::outcome::{Fate, Outcome};
use super::pace::{Pace, Pause};
use super::store as sender_store;
pub use store::SETTLE_MAX;
use store::settle;

/// What the sender has learnt about an endpoint.
#[derive(Clone, Debug)]
pub struct Learnt {
    /// The version that it was learnt about; it means nothing for another.
    pub version: i64,
    last_success_at: Option<Timestamp>,
    last_failure_at: Option<Timestamp>,
    consecutive_failures: i64,
    failing_since: Option<Timestamp>,
    pause: Option<(Timestamp, Pause)>,
}

impl Learnt {
    pub fn new(version: i64, pace: &mut Pace, outcomes: &[Outcome], now: Timestamp) -> Self {
        let made = outcomes.iter().filter(|outcome| outcome.asked == version);
        let made = made.filter_map(|outcome| Some((outcome.fate == Fate::Succeeded, outcome.attempt.as_ref()?.at)));
        let last =
            |success: bool| made.clone().filter(|(succeeded, _)| *succeeded == success).map(|(_, at)| at).next_back();
        Learnt {
            version,
            last_success_at: last(true),
            last_failure_at: last(false),
            consecutive_failures: pace.failures(),
            failing_since: pace.failing_since(),
            pause: pace.pause(now),
        }
    }
}

/// Outcomes that may wait for the write before them; more stop new attempts.
const UNSETTLED_MAX: usize = 256;

/// Why an endpoint is switched off, and the version that gave the reason.
pub type SwitchOff = (i64, &'static str);

/// What has become of attempts and is not on disk yet: one write at a time, each with all that has come by then.
#[derive(Default)]
pub struct Unsettled {
    waiting: Vec<Outcome>,
    write: Option<JoinHandle<Result<bool>>>,
    /// What the write under way is about.
    in_write: Vec<DeliveryId>,
    /// The write under way switches the endpoint off.
    switching_off: bool,
}

impl Unsettled {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.write.is_none()
    }

    pub fn is_full(&self) -> bool {
        self.waiting.len() + self.in_write.len() >= UNSETTLED_MAX
    }

    pub fn contains(&self, id: DeliveryId) -> bool {
        self.in_write.contains(&id) || self.waiting.iter().any(|outcome| outcome.due.id == id)
    }

    /// Whether the endpoint is being switched off, or has said in this version that it wants no more.
    pub fn ends(&self, version: i64) -> bool {
        self.switching_off || self.waiting.iter().any(|outcome| outcome.is_gone(version))
    }

    pub fn push(&mut self, outcome: Outcome) {
        self.waiting.push(outcome);
    }

    /// What is to be written now: nothing while a write is under way.
    pub fn take(&mut self) -> Option<Vec<Outcome>> {
        let is_time = self.write.is_none() && !self.waiting.is_empty();
        is_time.then(|| std::mem::take(&mut self.waiting))
    }

    /// Begins to write.
    pub fn begin(
        &mut self,
        lane: Lane,
        id: WebhookId,
        outcomes: Vec<Outcome>,
        learnt: Option<Learnt>,
        switch_off: Option<SwitchOff>,
    ) {
        self.switching_off = switch_off.is_some();
        self.in_write = outcomes.iter().map(|outcome| outcome.due.id).collect();
        self.write = Some(tokio::spawn(async move {
            let held = settle(&lane, id, outcomes, learnt).await?;
            if let (true, Some((asked, reason))) = (held, switch_off) {
                sender_store::switch_off(&lane, id, asked, reason).await?;
            }
            Ok(held)
        }));
    }

    /// Waits for the write under way, for ever if there is none.
    pub async fn written(&mut self) -> Written {
        let Some(write) = &mut self.write else { return std::future::pending().await };
        let held = write.await.map_err(Error::internal).flatten();
        self.write = None;
        Written {
            held,
            about: std::mem::take(&mut self.in_write),
            switched_off: std::mem::take(&mut self.switching_off),
        }
    }
}

/// What has come of a write.
pub struct Written {
    /// False when the lane is another node's by now, and nothing was noted.
    pub held: Result<bool>,
    pub about: Vec<DeliveryId>,
    pub switched_off: bool,
}
