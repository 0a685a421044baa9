//! Meters what happens too often to be written one by one: requests, and what features add, such as searches.
//!
//! Facts are added up in memory, by tenant, and written about once a second; what is not written yet is lost when the process
//! is killed. Memory is bounded: a tenant has so many groups, and what is beyond is counted as `other`. A database that is away
//! makes nothing grow but numbers.

use std::collections::HashMap;
use std::sync::Mutex;

use axum::http::Method;
use figures::cells::{ERRORS, KEY, LATENCY_US, REQUESTS, ROUTE, THROTTLED};
use figures::{Dimension, Fact, Figures, Group};

use super::request_metrics::method_label;
use crate::base::{Result, SECOND_MS, TenantId, Timestamp, lock_unpoisoned};
use crate::store::{Db, FactRetention, insert_facts};

/// Groups of one tenant between two writes: all routes, and more keys than a tenant has at a time.
const GROUPS_MAX: usize = 500;
/// Under which further groups are counted.
const OTHER: &str = "other";

/// What a tenant has done since the last write.
#[derive(Default)]
pub struct TenantUsage(HashMap<Group, Figures>);

/// The meter of this node.
#[derive(Default)]
pub struct UsageMeter(Mutex<MeteredUsage>);

#[derive(Default)]
struct MeteredUsage {
    /// When the first was added.
    since: Option<Timestamp>,
    tenants: HashMap<TenantId, TenantUsage>,
}

/// An answered request.
pub(super) struct MeteredRequest<'a> {
    pub tenant: TenantId,
    /// Empty for a session.
    pub key: &'a str,
    pub method: &'a Method,
    pub route: &'a str,
    pub status: u16,
    pub seconds: f64,
}

impl TenantUsage {
    /// The figures of a group, or those of `other` where a tenant has too many groups.
    pub fn group_mut(&mut self, dimension: Dimension, member: &str) -> &mut Figures {
        let mut group = Group::new(dimension, member);
        if self.0.len() >= GROUPS_MAX && !self.0.contains_key(&group) {
            OTHER.clone_into(&mut group.member);
        }
        self.0.entry(group).or_default()
    }

    fn add_all(&mut self, other: TenantUsage) {
        for (group, figures) in other.0 {
            self.group_mut(group.dimension, &group.member).add_figures(&figures);
        }
    }
}

impl UsageMeter {
    /// Adds to the usage of a tenant, now.
    pub fn add_usage(&self, tenant: TenantId, now: Timestamp, add: impl FnOnce(&mut TenantUsage)) {
        let mut metered = lock_unpoisoned(&self.0);
        metered.since.get_or_insert(now);
        add(metered.tenants.entry(tenant).or_default());
    }

    pub(super) fn record_request(&self, request: &MeteredRequest<'_>, now: Timestamp) {
        let mut one = Figures::default();
        one.add_count(REQUESTS, 1);
        one.add_count(THROTTLED, i64::from(request.status == 429));
        one.add_count(ERRORS, i64::from(request.status >= 400 && request.status != 429));
        #[expect(clippy::cast_possible_truncation, reason = "a request takes far less than a century")]
        one.add_sample(LATENCY_US, (request.seconds * 1e6) as i64);
        let route = format!("{} {}", method_label(request.method), request.route);
        self.add_usage(request.tenant, now, |usage| {
            usage.group_mut(Dimension::NONE, "").add_figures(&one);
            usage.group_mut(KEY, request.key).add_figures(&one);
            usage.group_mut(ROUTE, &route).add_figures(&one);
        });
    }

    /// Writes what was added since the last call, as facts of the second in which the first was added. What cannot be written
    /// is kept.
    pub async fn write_usage(&self, system: &Db) -> Result<()> {
        let MeteredUsage { since, tenants } = std::mem::take(&mut *lock_unpoisoned(&self.0));
        let Some(since) = since else { return Ok(()) };
        let at = since.as_millis() - since.as_millis().rem_euclid(SECOND_MS);
        let fact = |(tenant, usage): (&TenantId, &TenantUsage)| {
            let entries = usage.0.iter().map(|(group, figures)| (group.clone(), figures.clone())).collect();
            (*tenant, Fact { entries, ..Fact::new(at) })
        };
        let facts: Vec<(TenantId, Fact)> = tenants.iter().map(fact).collect();
        let written = system.write(async move |tx| insert_facts(tx, &facts, FactRetention::Short).await).await;
        if written.is_err() {
            let mut metered = lock_unpoisoned(&self.0);
            metered.since = Some(since);
            for (tenant, usage) in tenants {
                metered.tenants.entry(tenant).or_default().add_all(usage);
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_groups_between_two_writes_is_counted_together() {
        let mut usage = TenantUsage::default();
        for number in 0..2_000 {
            usage.group_mut(ROUTE, &format!("GET /{number}")).add_count(REQUESTS, 1);
            usage.group_mut(KEY, &format!("key_{number}")).add_count(REQUESTS, 1);
        }
        assert!(usage.0.len() <= GROUPS_MAX + 2, "{}", usage.0.len());
        let all: i64 = usage.0.values().map(|figures| figures.count(REQUESTS)).sum();
        assert_eq!(all, 4_000);
    }
}
