//! The backoff of failed deliveries. Plain functions of the settings, the response and the time.

use kernel::base::{HOUR_MS, MINUTE_MS, RandomSource, SECOND_MS, Timestamp};
use kernel::outbound::cap_retry_after;

/// The retry schedule of the contract.
pub const SCHEDULE_MS: [i64; 9] = [
    5 * SECOND_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    5 * HOUR_MS,
    10 * HOUR_MS,
    14 * HOUR_MS,
    20 * HOUR_MS,
    24 * HOUR_MS,
];

/// The statuses whose `Retry-After` pauses the whole endpoint: too many requests, and service unavailable.
pub const HOLDING_STATUSES: [i64; 2] = [429, 503];

/// The jitter: waits vary by up to this many thousandths in both directions, so that deliveries that failed together are not
/// retried together.
const SPREAD: i64 = 200;

/// The longest wait of the contract's schedule: its last wait with the largest jitter.
pub const WAIT_MAX_MS: i64 = SCHEDULE_MS[SCHEDULE_MS.len() - 1] / 1_000 * (1_000 + SPREAD);

/// The time of the next attempt after `tries` failed ones; `None` when the delivery is given up.
pub fn next_attempt(
    schedule_ms: &[i64],
    tries: usize,
    now: Timestamp,
    retry_after: Option<Timestamp>,
    random: &RandomSource,
) -> Option<Timestamp> {
    let wait = *schedule_ms.get(tries.checked_sub(1)?)?;
    let drawn = i64::from(u16::from_be_bytes(random.secret_bytes()));
    let factor = 1_000 - SPREAD + drawn * 2 * SPREAD / i64::from(u16::MAX);
    let planned = now.plus_ms(wait.saturating_mul(factor) / 1_000);
    Some(retry_after.map_or(planned, |at| planned.max(cap_retry_after(at, now))))
}

#[cfg(test)]
mod tests {
    use kernel::base::DAY_MS;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_768_471_200_000);

    fn wait(tries: usize, retry_after_ms: Option<i64>) -> Option<i64> {
        let next = next_attempt(
            &SCHEDULE_MS,
            tries,
            NOW,
            retry_after_ms.map(|ms| NOW.plus_ms(ms)),
            &RandomSource::with_seed(tries as u64),
        )?;
        Some(next.as_millis() - NOW.as_millis())
    }

    #[test]
    fn each_wait_is_within_a_fifth_of_the_schedule_and_then_it_is_given_up() {
        for (tries, planned) in SCHEDULE_MS.iter().enumerate() {
            let drawn = wait(tries + 1, None).unwrap_or_default();
            assert!((planned * 8 / 10..=planned * 12 / 10).contains(&drawn), "{tries}: {drawn}");
        }
        assert_eq!(wait(SCHEDULE_MS.len() + 1, None), None);
    }

    #[test]
    fn the_later_of_what_is_asked_and_planned_counts_up_to_a_day() {
        assert_eq!(wait(1, Some(MINUTE_MS)), Some(MINUTE_MS));
        assert_eq!(wait(1, Some(30 * DAY_MS)), Some(DAY_MS));
        assert!(wait(2, Some(1)).is_some_and(|drawn| drawn >= 4 * MINUTE_MS));
    }
}
