//! Rate limits: fixed windows of a minute, with a budget per key or session, tenant and address, counted across nodes.
//!
//! Our own, because no crate both counts other nodes' use and reports quota, window, remainder and reset.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use super::account::{RateAccount, RateSubject};
use super::address::ClientAddress;
use super::rate_policy::{RatePolicy, RateTable, TENANT_FACTOR};
use super::rate_state::RateState;
use crate::base::{Env, Error, MINUTE_MS, Result, SECOND_MS, TenantId, lock_unpoisoned};
use crate::store::{Db, Value};

/// The requests of one account in the shard's window.
#[derive(Clone, Copy, Default)]
struct RateBucket {
    used: u64,
    reported: u64,
    others: u64,
}

impl RateBucket {
    fn remaining(&self, quota: u64) -> u64 {
        quota.saturating_sub(self.used + self.others)
    }
}

/// The buckets of one window, cleared when the next one begins.
#[derive(Default)]
struct RateShard {
    window: i64,
    buckets: HashMap<RateAccount, RateBucket>,
}

impl RateShard {
    /// The bucket of this account, or the shared one when the shard is full.
    fn bucket_mut(&mut self, account: &RateAccount) -> &mut RateBucket {
        let account = if self.has_room_for(account) { account } else { &OTHERS_ACCOUNT };
        self.buckets.entry(account.clone()).or_default()
    }

    fn peek_bucket(&self, account: &RateAccount) -> RateBucket {
        let account = if self.has_room_for(account) { account } else { &OTHERS_ACCOUNT };
        self.buckets.get(account).copied().unwrap_or_default()
    }

    fn has_room_for(&self, account: &RateAccount) -> bool {
        self.buckets.len() < BUCKETS_PER_SHARD_MAX || self.buckets.contains_key(account)
    }
}

/// Buckets are spread over several locks to reduce contention.
const SHARDS: usize = 16;
/// Accounts beyond this many in one window share one bucket per shard, which bounds memory under a flood of addresses.
const BUCKETS_PER_SHARD_MAX: usize = 16_384;
const OTHERS_ACCOUNT: RateAccount = RateAccount { policy: RatePolicy::Public, subject: RateSubject::Others };

/// Credential look-ups a second for an address that has used up its budget: enough for a new client that shares its
/// address with a misbehaving one, and too few to load the database.
const LOOK_UPS_MAX: u32 = 10;
/// Addresses past their budget that are counted in one second.
const LOOK_UP_ADDRESSES_MAX: usize = 16_384;

pub struct RateLimiter {
    table: RateTable,
    env: Env,
    node: String,
    hasher: RandomState,
    callers: [Mutex<RateShard>; SHARDS],
    /// Separate, so that a flood of addresses does not push authenticated callers into a shared bucket.
    addresses: [Mutex<RateShard>; SHARDS],
    look_ups: Mutex<LookUps>,
}

/// Look-ups of addresses past their budget in one second.
#[derive(Default)]
struct LookUps {
    second: i64,
    counts: HashMap<IpAddr, u32>,
}

impl RateLimiter {
    pub fn new(table: RateTable, env: Env) -> Self {
        let node = env.random.base62_text(12);
        RateLimiter {
            table,
            env,
            node,
            hasher: RandomState::new(),
            callers: Default::default(),
            addresses: Default::default(),
            look_ups: Mutex::default(),
        }
    }

    pub fn rate_table(&self) -> &RateTable {
        &self.table
    }

    /// Charges one request to an address.
    pub fn charge_address(&self, policy: RatePolicy, address: ClientAddress) -> (RateState, Result<()>) {
        let quota = self.table.per_minute(policy);
        self.charge_budgets(policy, None, &[(RateAccount::for_address(policy, address), quota)])
    }

    /// Whether a credential that is not cached may be looked up for this address: always within its budget, and
    /// `LOOK_UPS_MAX` times a second past it.
    pub fn may_look_up(&self, address: ClientAddress) -> bool {
        if self.peek_address(RatePolicy::Public, address).remaining > 0 {
            return true;
        }
        let second = self.env.now().as_millis().div_euclid(SECOND_MS);
        let mut look_ups = lock_unpoisoned(&self.look_ups);
        if look_ups.second != second || look_ups.counts.len() >= LOOK_UP_ADDRESSES_MAX {
            *look_ups = LookUps { second, counts: HashMap::new() };
        }
        let count = look_ups.counts.entry(address.bucket_address()).or_default();
        *count = count.saturating_add(1);
        *count <= LOOK_UPS_MAX
    }

    /// Charges one request to a credential and its tenant, or to neither if one of their budgets is used up.
    pub fn charge_caller(
        &self,
        policy: RatePolicy,
        credential: &Arc<str>,
        tenant: TenantId,
    ) -> (RateState, Result<()>) {
        let quota = self.table.per_minute(policy);
        let own = RateAccount { policy, subject: RateSubject::Credential(credential.clone()) };
        let shared = RateAccount { policy, subject: RateSubject::Tenant(tenant) };
        self.charge_budgets(policy, Some(tenant), &[(own, quota), (shared, quota.saturating_mul(TENANT_FACTOR))])
    }

    /// The remaining budget of an address, without charging it.
    pub fn peek_address(&self, policy: RatePolicy, address: ClientAddress) -> RateState {
        let quota = self.table.per_minute(policy);
        let (window, reset_seconds) = self.current_window();
        let account = RateAccount::for_address(policy, address);
        let bucket = self.lock_shard(&account, window).peek_bucket(&account);
        RateState { policy, quota, remaining: bucket.remaining(quota), reset_seconds, tenant: None }
    }

    fn charge_budgets(
        &self,
        policy: RatePolicy,
        tenant: Option<TenantId>,
        budgets: &[(RateAccount, u64)],
    ) -> (RateState, Result<()>) {
        let (window, reset_seconds) = self.current_window();
        let quota = self.table.per_minute(policy);
        let mut state = RateState { policy, quota, remaining: u64::MAX, reset_seconds, tenant };
        for (at, (account, quota)) in budgets.iter().enumerate() {
            let left = self.take_request(account, *quota, window);
            let Some(left) = left else {
                // The request is refused, so the budgets charged before this one are refunded.
                budgets[..at].iter().for_each(|(account, _)| self.return_request(account, window));
                let whose = if at > 0 { "the tenant's" } else { "the" };
                let detail = format!("{whose} budget of {quota} {} requests a minute is used up", policy.name());
                let detail = detail[..1].to_uppercase() + &detail[1..] + ".";
                let retry_after = u64::try_from(reset_seconds).unwrap_or(1);
                state.remaining = 0;
                return (state, Err(Error::rate_limited(retry_after, detail)));
            };
            state.remaining = state.remaining.min(left);
        }
        (state, Ok(()))
    }

    fn take_request(&self, account: &RateAccount, quota: u64, window: i64) -> Option<u64> {
        let mut shard = self.lock_shard(account, window);
        let bucket = shard.bucket_mut(account);
        bucket.remaining(quota).checked_sub(1).inspect(|_| bucket.used += 1)
    }

    fn return_request(&self, account: &RateAccount, window: i64) {
        let mut shard = self.lock_shard(account, window);
        let bucket = shard.bucket_mut(account);
        bucket.used = bucket.used.saturating_sub(1);
    }

    /// Locks the shard of an account, moved to this window.
    fn lock_shard(&self, account: &RateAccount, window: i64) -> MutexGuard<'_, RateShard> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
        let at = self.hasher.hash_one(account) as usize % SHARDS;
        let shards = if account.policy.is_by_address() { &self.addresses } else { &self.callers };
        lock_window(&shards[at], window)
    }

    /// The current window and the seconds until the next, rounded up so that a client that waits that long is served.
    fn current_window(&self) -> (i64, i64) {
        let now = self.env.now().as_millis();
        let window = now.div_euclid(MINUTE_MS);
        (window, ((window + 1) * MINUTE_MS - now + SECOND_MS - 1).div_euclid(SECOND_MS))
    }
}

/// Locks a shard and moves it to this window. A shard may be one window ahead of a request that read the time just before
/// the minute ended. A shard further ahead was moved by a wrong clock that has been corrected since.
fn lock_window(shard: &Mutex<RateShard>, window: i64) -> MutexGuard<'_, RateShard> {
    let mut shard = lock_unpoisoned(shard);
    if shard.window < window || shard.window > window + 1 {
        shard.window = window;
        shard.buckets.clear();
    }
    shard
}

/// Rows per statement of a report.
const REPORT_ROWS: usize = 200;
/// Rows of other nodes that are read in one round.
const OTHERS_MAX: i64 = 100_000;
/// An address is reported once it has used one part in this many of its quota, so a flood of addresses writes few rows.
const REPORTED_PART: u64 = 4;

/// Counting across nodes: once a second each node writes its own counts and reads those of the others.
impl RateLimiter {
    pub async fn exchange_usage(&self, db: &Db) -> Result<()> {
        let (window, _) = self.current_window();
        let start = window * MINUTE_MS;
        let unreported = self.unreported_usage(window);
        for rows in unreported.chunks(REPORT_ROWS) {
            let (sql, values) = self.report_statement(start, rows);
            db.write(async move |tx| {
                let args: Vec<&dyn crate::store::Param> = values.iter().map(|value| value as _).collect();
                tx.exec(&sql, &args).await
            })
            .await?;
            self.mark_reported(window, rows);
        }
        let others: Vec<(String, i64)> = db.list(OTHERS, crate::args![start, self.node, OTHERS_MAX]).await?;
        for (name, used) in others {
            let Some(account) = RateAccount::parse(&name) else { continue };
            let mut shard = self.lock_shard(&account, window);
            if shard.window == window {
                shard.bucket_mut(&account).others = u64::try_from(used).unwrap_or(0);
            }
        }
        Ok(())
    }

    fn unreported_usage(&self, window: i64) -> Vec<(RateAccount, u64)> {
        let mut unreported = Vec::new();
        for shard in self.callers.iter().chain(&self.addresses) {
            let shard = lock_window(shard, window);
            let rows = shard.buckets.iter().filter(|(account, bucket)| {
                let quota = self.table.per_minute(account.policy);
                let much = !account.policy.is_by_address() || bucket.used * REPORTED_PART >= quota;
                // The shared bucket counts different callers on every node.
                bucket.used != bucket.reported && much && account.subject != RateSubject::Others
            });
            unreported.extend(rows.map(|(account, bucket)| (account.clone(), bucket.used)));
        }
        // The same order on every node, so that two nodes never deadlock.
        unreported.sort_by_cached_key(|(account, _)| account.to_string());
        unreported
    }

    /// Marks rows after their commit: rows of a failed write are reported again in the next round.
    fn mark_reported(&self, window: i64, rows: &[(RateAccount, u64)]) {
        for (account, used) in rows {
            let mut shard = self.lock_shard(account, window);
            if shard.window == window {
                shard.bucket_mut(account).reported = *used;
            }
        }
    }

    fn report_statement(&self, start: i64, rows: &[(RateAccount, u64)]) -> (String, Vec<Value>) {
        let mut values = vec![Value::from(start), Value::from(self.node.as_str())];
        let mut tuples = Vec::with_capacity(rows.len());
        for (account, used) in rows {
            values.push(Value::from(account.to_string()));
            values.push(Value::from(*used as i64));
            tuples.push(format!("($1, ${}, $2, ${})", values.len() - 1, values.len()));
        }
        (REPORT.replace("{rows}", &tuples.join(", ")), values)
    }
}

const REPORT: &str = "INSERT INTO rate_usage (window_start, bucket, node, used) VALUES {rows}
    ON CONFLICT (window_start, bucket, node) DO UPDATE SET used = excluded.used";

crate::statements! {
    /// Callers come first, so that the limit cuts off addresses.
    OTHERS = "SELECT bucket, CAST(SUM(used) AS BIGINT) FROM rate_usage
        WHERE window_start = $1 AND node <> $2 GROUP BY bucket
        ORDER BY CASE WHEN bucket LIKE 'public:%' OR bucket LIKE 'auth:%' OR bucket LIKE 'auth_failures:%' THEN 1 ELSE 0 END, bucket LIMIT $3";
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::base::{Timestamp, WallClock};

    fn new_limiter(read: u64) -> RateLimiter {
        let mut table = RateTable::default();
        table.set(RatePolicy::Read, read);
        RateLimiter::new(table, Env { clock: WallClock::new_manual(Timestamp::from_millis(30_000)), ..Env::default() })
    }

    #[test]
    fn a_budget_ends_and_returns_with_the_next_minute() {
        let limiter = new_limiter(2);
        let tenant = TenantId::new(&Env::default());
        let charge = || limiter.charge_caller(RatePolicy::Read, &"key".into(), tenant);
        assert_eq!(charge().0.remaining, 1);
        assert!(charge().1.is_ok());
        let (state, refused) = charge();
        assert_eq!((state.remaining, refused.unwrap_err().retry_after_seconds()), (0, Some(30)));
        limiter.env.clock.advance(30_000);
        assert!(charge().1.is_ok());
    }

    #[test]
    fn a_budget_returns_when_a_clock_that_jumped_ahead_comes_back() {
        let limiter = new_limiter(1);
        let tenant = TenantId::new(&Env::default());
        let charge = || limiter.charge_caller(RatePolicy::Read, &"key".into(), tenant).1;
        let jump_ms = 120 * 24 * 60 * MINUTE_MS;
        limiter.env.clock.advance(jump_ms);
        assert!(charge().is_ok() && charge().is_err());
        limiter.env.clock.advance(-jump_ms);
        assert!(charge().is_ok() && charge().is_err());
        limiter.env.clock.advance(MINUTE_MS);
        assert!(charge().is_ok());
        // A request that read the time one window earlier does not reset the bucket.
        limiter.env.clock.advance(-MINUTE_MS);
        assert!(charge().is_err());
    }

    #[test]
    fn an_address_past_its_budget_buys_few_look_ups() {
        let limiter = new_limiter(2);
        let address = |n| ClientAddress(std::net::Ipv4Addr::from_bits(n).into());
        for _ in 0..1_000 {
            assert!(limiter.may_look_up(address(1)), "nothing is used up");
        }
        while limiter.charge_address(RatePolicy::Public, address(1)).1.is_ok() {}
        let admitted = (0..1_000).filter(|_| limiter.may_look_up(address(1))).count();
        assert_eq!(u32::try_from(admitted), Ok(LOOK_UPS_MAX));
        assert!(limiter.may_look_up(address(2)));
        limiter.env.clock.advance(SECOND_MS);
        assert!(limiter.may_look_up(address(1)));
    }

    #[test]
    fn a_tenant_has_five_times_the_budget_and_a_refusal_costs_nothing() {
        let limiter = new_limiter(2);
        let tenant = TenantId::new(&Env::default());
        for key in 0..5 {
            for _ in 0..2 {
                assert!(limiter.charge_caller(RatePolicy::Read, &format!("key{key}").into(), tenant).1.is_ok());
            }
        }
        assert!(limiter.charge_caller(RatePolicy::Read, &"key5".into(), tenant).1.is_err());
        let other = TenantId::new(&Env::default());
        assert_eq!(limiter.charge_caller(RatePolicy::Read, &"key5".into(), other).0.remaining, 1);
    }

    #[test]
    fn memory_stays_bounded_under_a_flood_of_addresses() {
        let limiter = new_limiter(2);
        for n in 0..(SHARDS * BUCKETS_PER_SHARD_MAX * 2) {
            let address = ClientAddress(std::net::Ipv4Addr::from_bits(u32::try_from(n).unwrap()).into());
            let _ = limiter.charge_address(RatePolicy::Public, address);
        }
        let buckets: usize = limiter.addresses.iter().map(|shard| shard.lock().unwrap().buckets.len()).sum();
        assert!(buckets <= SHARDS * (BUCKETS_PER_SHARD_MAX + 1));
        // Callers are not affected: each still has its own bucket.
        for key in 0..100 {
            let tenant = TenantId::new(&Env::default());
            assert_eq!(limiter.charge_caller(RatePolicy::Read, &format!("key{key}").into(), tenant).0.remaining, 1);
        }
        assert_eq!(
            limiter.unreported_usage(0).len(),
            200,
            "and of the addresses, which asked once each, no row is written"
        );
    }
}
