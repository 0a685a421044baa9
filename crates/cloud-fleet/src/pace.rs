//! Paces requests by account and host, because a cloud limits them so and other programs of the customer need their part.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use clouds::CloudKind;
use kernel::base::{MINUTE_MS, Timestamp, lock_unpoisoned};
use tokio::time::Instant;

/// How long a request waits for its token: those behind it would be signed too early, or asked for in vain.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A wait of up to this is left to the job that the cloud has told it. A longer one holds for all requests of the account.
pub const JOB_WAIT_MAX_MS: i64 = MINUTE_MS;
/// Accounts that are remembered; those that were used longest ago are forgotten first.
const BUCKETS_MAX: usize = 10_000;

/// What a bucket holds at most, and how fast it is filled. About half of what each cloud allows an account: EC2 100 and 20 a
/// second by region, Hetzner 3,600 and DigitalOcean 5,000 an hour.
#[derive(Clone, Copy, Debug)]
pub struct PaceLimits {
    pub burst: f64,
    pub per_second: f64,
}

impl PaceLimits {
    pub fn for_kind(kind: CloudKind) -> Self {
        match kind {
            // The adapter of libvirt sends no requests, and bounds its calls itself.
            CloudKind::Aws | CloudKind::Libvirt => PaceLimits { burst: 50.0, per_second: 10.0 },
            CloudKind::Hetzner => PaceLimits { burst: 100.0, per_second: 0.5 },
            CloudKind::Digitalocean => PaceLimits { burst: 100.0, per_second: 0.7 },
        }
    }
}

/// A token bucket for each account and host, and until when a cloud wants no requests of an account.
#[derive(Default)]
pub struct AccountPaces {
    buckets: Mutex<HashMap<String, TokenBucket>>,
    blocked: Mutex<HashMap<String, Timestamp>>,
}

struct TokenBucket {
    tokens: f64,
    filled_at: Instant,
}

impl AccountPaces {
    /// The cloud wants no requests of this account until then.
    pub fn block_account(&self, key: &str, until: Timestamp, now: Timestamp) {
        let mut blocked = lock_unpoisoned(&self.blocked);
        blocked.retain(|_, until| *until > now);
        if blocked.len() < BUCKETS_MAX {
            blocked.insert(key.to_owned(), until);
        }
    }

    /// Until when the cloud wants no requests of this account, if it is not over.
    pub fn find_block(&self, key: &str, now: Timestamp) -> Option<Timestamp> {
        lock_unpoisoned(&self.blocked).get(key).copied().filter(|until| *until > now)
    }

    /// Waits until a request may be sent. False if that would take too long: then nothing is taken.
    pub async fn acquire(&self, key: &str, limits: PaceLimits) -> bool {
        let Some(wait) = self.take_token(key, limits, Instant::now()) else { return false };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        true
    }

    /// Takes a token, which may be one of the near future: returns how long to wait for it.
    fn take_token(&self, key: &str, limits: PaceLimits, now: Instant) -> Option<Duration> {
        let mut buckets = lock_unpoisoned(&self.buckets);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(key) {
            let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.filled_at).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| buckets.remove(&oldest));
        }
        let full = || TokenBucket { tokens: limits.burst, filled_at: now };
        let bucket = buckets.entry(key.to_owned()).or_insert_with(full);
        let filled = (now - bucket.filled_at).as_secs_f64() * limits.per_second;
        bucket.tokens = (bucket.tokens + filled).min(limits.burst);
        bucket.filled_at = now;
        let wait = Duration::from_secs_f64(((1.0 - bucket.tokens) / limits.per_second).max(0.0));
        if wait > WAIT_MAX {
            return None;
        }
        bucket.tokens -= 1.0;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PaceLimits = PaceLimits { burst: 2.0, per_second: 4.0 };

    #[test]
    fn a_burst_is_free_and_what_follows_waits_its_turn() {
        let (paces, now) = (AccountPaces::default(), Instant::now());
        let take = |key: &str, now| paces.take_token(key, LIMITS, now).map(|wait| wait.as_millis());
        let waits: Vec<Option<u128>> = (0..4).map(|_| take("a", now)).collect();
        assert_eq!(waits, [Some(0), Some(0), Some(250), Some(500)]);
        assert_eq!(take("b", now), Some(0), "another account has its own");
        let more = (0..100).map_while(|_| take("a", now)).count();
        assert_eq!((more, take("a", now)), (38, None), "nobody waits for longer than ten seconds");
        assert_eq!(take("a", now + Duration::from_mins(1)), Some(0));
    }

    #[test]
    fn accounts_that_were_not_used_for_long_are_forgotten() {
        let (paces, now) = (AccountPaces::default(), Instant::now());
        for account in 0..BUCKETS_MAX + 10 {
            paces.take_token(&account.to_string(), LIMITS, now + Duration::from_millis(account as u64));
        }
        assert_eq!(lock_unpoisoned(&paces.buckets).len(), BUCKETS_MAX);
        assert!(!lock_unpoisoned(&paces.buckets).contains_key("0"));
    }

    #[test]
    fn an_account_that_is_to_wait_has_no_requests_until_then() {
        let (paces, at) = (AccountPaces::default(), Timestamp::from_millis);
        paces.block_account("a", at(100), at(0));
        assert_eq!((paces.find_block("a", at(99)), paces.find_block("b", at(99))), (Some(at(100)), None));
        assert_eq!(paces.find_block("a", at(100)), None);
        paces.block_account("b", at(200), at(100));
        assert_eq!(lock_unpoisoned(&paces.blocked).len(), 1, "what is over is forgotten");
    }
}
