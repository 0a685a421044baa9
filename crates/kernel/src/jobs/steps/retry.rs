//! The backoff of failed steps.

use crate::base::{HOUR_MS, RandomSource, Timestamp};

/// The longest wait that doubling leads to.
const WAIT_MAX_MS: i64 = HOUR_MS;
/// After so many doublings, any wait has reached the maximum.
const DOUBLINGS_MAX: u32 = 30;

/// A retry budget with its backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Retries after the first attempt.
    pub max: i64,
    /// The wait before the first retry; it doubles for each further one.
    pub backoff_ms: i64,
}

impl Retry {
    /// The time of the next attempt after `failed` ones; `None` after the last. A random jitter adds up to a fifth, so that
    /// steps that failed together are not retried together.
    pub fn next_attempt_at(&self, failed: i64, now: Timestamp, random: &RandomSource) -> Option<Timestamp> {
        if failed > self.max {
            return None;
        }
        let doublings = u32::try_from(failed - 1).unwrap_or(0).min(DOUBLINGS_MAX);
        let wait = self.backoff_ms.saturating_mul(1 << doublings).min(WAIT_MAX_MS.max(self.backoff_ms));
        let [byte] = random.public_bytes::<1>();
        Some(now.plus_ms(wait + wait * i64::from(byte) / (5 * 256)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(retry: Retry) -> Vec<Option<i64>> {
        let now = Timestamp::from_millis(0);
        (1..=retry.max + 1)
            .map(|failed| Some(retry.next_attempt_at(failed, now, &RandomSource::with_seed(1))?.as_millis()))
            .collect()
    }

    #[test]
    fn it_is_tried_as_often_as_it_says_and_each_wait_is_twice_the_one_before() {
        let waits = waits(Retry { max: 3, backoff_ms: 1_000 });
        assert_eq!(waits.len(), 4);
        for (index, wait) in waits.iter().take(3).enumerate() {
            let (least, wait) = (1_000 << index, wait.unwrap_or_default());
            assert!((least..=least + least / 5).contains(&wait), "{waits:?}");
        }
        assert_eq!(waits[3], None);
        assert_eq!(
            Retry { max: 0, backoff_ms: 1 }.next_attempt_at(1, Timestamp::from_millis(0), &RandomSource::with_seed(1)),
            None
        );
    }

    #[test]
    fn a_wait_is_an_hour_at_most_unless_it_was_longer_to_begin_with() {
        for (backoff_ms, most) in [(HOUR_MS / 3, HOUR_MS), (30 * HOUR_MS, 30 * HOUR_MS)] {
            let waits = waits(Retry { max: 60, backoff_ms });
            assert!(waits.iter().flatten().all(|wait| *wait <= most + most / 5), "{waits:?}");
            assert!(waits[50].is_some_and(|wait| wait >= most));
        }
    }
}
