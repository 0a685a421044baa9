//! How fast an endpoint is sent to: a concurrency window that grows with success, a circuit breaker with one probe at a
//! time, and the endpoint's own rate limit. Plain state; the caller gives the time.

use kernel::base::{MINUTE_MS, Timestamp};

use super::endpoint::{EndpointState, PauseReason};

/// The largest number of attempts under way to one endpoint.
pub const WINDOW_MAX: usize = 16;
/// The window of a healthy endpoint at the start.
const WINDOW_START: usize = 2;
/// After this many consecutive failures the breaker opens: the endpoint is probed with one attempt at a time.
pub const BREAKER_AFTER: i64 = 20;
/// The longest wait between two probes. The first wait is the schedule's first, and each further one is doubled.
const PROBE_WAIT_MAX_MS: i64 = MINUTE_MS;

pub struct Pace {
    window: usize,
    failures: i64,
    failing_since: Option<Timestamp>,
    paused_until: Option<Timestamp>,
    held_until: Option<Timestamp>,
    probe_wait_ms: i64,
    bucket: Option<EndpointTokenBucket>,
}

impl Pace {
    /// Continues from the endpoint's saved state.
    pub fn new(rate_per_second: Option<i64>, state: &EndpointState, probe_wait_ms: i64, now: Timestamp) -> Self {
        let (failures, failing_since) = (state.consecutive_failures, state.failing_since);
        let window = if failures == 0 { WINDOW_START } else { 1 };
        let paused =
            |expected: PauseReason| state.paused.filter(|(_, reason)| *reason == expected).map(|(until, _)| until);
        let mut bucket = rate_per_second.map(|rate| EndpointTokenBucket { rate, tokens: 1_000, at: now });
        if let (Some(bucket), Some(until)) = (&mut bucket, paused(PauseReason::RateLimit)) {
            // The next token is available at the saved time, not one interval from now.
            bucket.tokens -= bucket.rate * (until.as_millis() - now.as_millis()).clamp(0, MINUTE_MS);
        }
        let (paused_until, held_until) = (paused(PauseReason::Failing), paused(PauseReason::RetryAfter));
        Pace { window, failures, failing_since, paused_until, held_until, probe_wait_ms, bucket }
    }

    /// Changes the rate limit. The same limit keeps its tokens.
    pub fn set_rate_limit(&mut self, rate_per_second: Option<i64>, now: Timestamp) {
        if self.bucket.as_ref().map(|bucket| bucket.rate) != rate_per_second {
            self.bucket = rate_per_second.map(|rate| EndpointTokenBucket { rate, tokens: 1_000, at: now });
        }
    }

    pub fn consecutive_failures(&self) -> i64 {
        self.failures
    }

    pub fn failing_since(&self) -> Option<Timestamp> {
        self.failing_since
    }

    /// How many attempts may be started now, beside those under way.
    pub fn free_slots(&mut self, in_flight: usize, now: Timestamp) -> usize {
        if self.held_until.is_some_and(|until| until > now) {
            return 0;
        }
        let slots = if self.failures >= BREAKER_AFTER {
            usize::from(in_flight == 0 && self.paused_until.is_none_or(|until| until <= now))
        } else {
            self.window.saturating_sub(in_flight)
        };
        self.bucket.as_mut().map_or(slots, |bucket| slots.min(bucket.refill_tokens(now)))
    }

    pub fn record_start(&mut self) {
        if let Some(bucket) = &mut self.bucket {
            bucket.tokens -= 1_000;
        }
    }

    pub fn record_success(&mut self) {
        // After the breaker was open, the window starts at 1 again.
        self.window = if self.failures >= BREAKER_AFTER { 1 } else { (self.window + 1).min(WINDOW_MAX) };
        self.failures = 0;
        self.failing_since = None;
        self.paused_until = None;
    }

    pub fn record_failure(&mut self, now: Timestamp) {
        self.window = (self.window / 2).max(1);
        self.failures += 1;
        self.failing_since.get_or_insert(now);
        if self.failures >= BREAKER_AFTER {
            let doublings = u32::try_from(self.failures - BREAKER_AFTER).unwrap_or(u32::MAX).min(16);
            let wait = self.probe_wait_ms.saturating_mul(1 << doublings).min(PROBE_WAIT_MAX_MS);
            self.paused_until = Some(now.plus_ms(wait));
        }
    }

    /// Holds all attempts until the endpoint's `Retry-After`. A success meanwhile was already under way and does not end the
    /// hold.
    pub fn hold_until(&mut self, until: Option<Timestamp>) {
        self.held_until = self.held_until.max(until);
    }

    /// Until when no attempt can start, and why.
    pub fn find_pause(&mut self, now: Timestamp) -> Option<(Timestamp, PauseReason)> {
        let failing = self.paused_until.filter(|_| self.failures >= BREAKER_AFTER);
        let empty =
            self.bucket.as_mut().and_then(|bucket| (bucket.refill_tokens(now) == 0).then(|| bucket.next_token_at(now)));
        let pauses = [
            (self.held_until, PauseReason::RetryAfter),
            (failing, PauseReason::Failing),
            (empty, PauseReason::RateLimit),
        ];
        let pauses =
            pauses.into_iter().filter_map(|(until, reason)| Some((until.filter(|until| *until > now)?, reason)));
        pauses.max_by_key(|(until, _)| *until)
    }
}

/// A token bucket that counts thousandths of a token. It starts with one token, so that a lane that moves to another node
/// never exceeds the rate.
struct EndpointTokenBucket {
    rate: i64,
    tokens: i64,
    at: Timestamp,
}

impl EndpointTokenBucket {
    fn refill_tokens(&mut self, now: Timestamp) -> usize {
        let elapsed_ms = (now.as_millis() - self.at.as_millis()).clamp(0, MINUTE_MS);
        // One token per second is a thousandth per millisecond. A tenth of a second's worth may be saved up.
        let saved_max = (self.rate * 100).max(1_000);
        self.tokens = (self.tokens + elapsed_ms * self.rate).min(saved_max);
        self.at = now;
        usize::try_from(self.tokens / 1_000).unwrap_or(0)
    }

    fn next_token_at(&self, now: Timestamp) -> Timestamp {
        let missing = 1_000 - self.tokens;
        now.plus_ms((missing + self.rate - 1) / self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn pace(rate: Option<i64>) -> Pace {
        Pace::new(rate, &state(None), 5_000, NOW)
    }

    fn state(paused: Option<(Timestamp, PauseReason)>) -> EndpointState {
        EndpointState { consecutive_failures: 0, failing_since: None, paused, drained: 1, records_missing: false }
    }

    #[test]
    fn the_window_opens_with_success_and_closes_with_failure() {
        let mut pace = pace(None);
        assert_eq!(pace.free_slots(0, NOW), WINDOW_START);
        (0..100).for_each(|_| pace.record_success());
        assert_eq!(
            (pace.free_slots(0, NOW), pace.free_slots(10, NOW), pace.free_slots(99, NOW)),
            (WINDOW_MAX, WINDOW_MAX - 10, 0)
        );
        (0..10).for_each(|_| pace.record_failure(NOW));
        assert_eq!(pace.free_slots(0, NOW), 1);
    }

    #[test]
    fn a_failing_endpoint_is_probed_one_attempt_at_a_time_and_starts_slowly_again() {
        let mut pace = pace(None);
        (0..BREAKER_AFTER).for_each(|_| pace.record_failure(NOW));
        assert_eq!(pace.find_pause(NOW), Some((NOW.plus_ms(5_000), PauseReason::Failing)));
        assert_eq!(
            (pace.free_slots(0, NOW), pace.free_slots(0, NOW.plus_ms(5_000)), pace.free_slots(1, NOW.plus_ms(5_000))),
            (0, 1, 0)
        );
        pace.record_failure(NOW.plus_ms(5_000));
        assert_eq!(pace.find_pause(NOW.plus_ms(5_000)), Some((NOW.plus_ms(15_000), PauseReason::Failing)));
        (0..50).for_each(|_| pace.record_failure(NOW));
        assert_eq!(pace.find_pause(NOW), Some((NOW.plus_ms(PROBE_WAIT_MAX_MS), PauseReason::Failing)));
        pace.record_success();
        assert_eq!((pace.consecutive_failures(), pace.find_pause(NOW), pace.free_slots(0, NOW)), (0, None, 1));
        pace.record_success();
        assert_eq!(pace.free_slots(0, NOW), 2);
    }

    #[test]
    fn an_endpoint_that_asked_for_time_gets_it_also_from_another_node() {
        let mut pace = pace(Some(5));
        pace.hold_until(Some(NOW.plus_ms(60_000)));
        pace.hold_until(Some(NOW.plus_ms(1_000)));
        pace.hold_until(None);
        pace.record_success();
        let saved = pace.find_pause(NOW);
        assert_eq!(saved, Some((NOW.plus_ms(60_000), PauseReason::RetryAfter)));
        for mut pace in [pace, Pace::new(None, &state(saved), 5_000, NOW)] {
            assert_eq!(
                (pace.free_slots(0, NOW.plus_ms(59_999)), pace.free_slots(0, NOW.plus_ms(60_000)) > 0),
                (0, true)
            );
            assert_eq!(pace.find_pause(NOW.plus_ms(60_000)), None);
        }
        let mut failing = Pace::new(None, &state(saved), 5_000, NOW);
        (0..50).for_each(|_| failing.record_failure(NOW.plus_ms(30_000)));
        assert_eq!(
            failing.find_pause(NOW.plus_ms(30_000)),
            Some((NOW.plus_ms(90_000), PauseReason::Failing)),
            "the later counts"
        );
    }

    #[test]
    fn a_rate_is_kept_over_any_second() {
        let mut pace = pace(Some(5));
        let mut sent = Vec::new();
        for ms in 0..10_000 {
            for _ in 0..pace.free_slots(0, NOW.plus_ms(ms)) {
                pace.record_start();
                pace.record_success();
                sent.push(ms);
            }
        }
        assert!((49..=51).contains(&sent.len()), "{}", sent.len());
        for window in sent.windows(7) {
            assert!(window[6] - window[0] > 1_000, "{window:?}");
        }
    }
}
