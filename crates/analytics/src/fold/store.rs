//! SQL that adds facts up: takes them out of the queue and adds each to the sums of its quarter, hour, day and week, of its
//! tenant and of the platform, all in one transaction. So a fact is added once, whatever is killed.
//!
//! Any node does it, one at a time: the lock makes it so, not a lease, because a batch is short and nothing goes on between two.

use std::collections::BTreeMap;

use figures::cells::{
    CURRENCY, DEVICES, KEY, ORGANIZATION, REQUESTS, ROUTE, SPEND_BEFORE_CHANGE, SPEND_RATE, TENANT, TICKETS_CREATED,
};
use figures::{Cell, Dimension, Figures, Group, entries_from_bytes, entries_to_bytes};
use kernel::args;
use kernel::base::Result;
use kernel::jobs::ServerNode;
use kernel::store::{Db, FactRetention, FromRow, PendingRows, Purpose, Row, Tx, Value};

use crate::grain::{Grain, clamp_time};

kernel::statements! {
    NEXT_QUEUED = "SELECT id FROM facts_queue ORDER BY id LIMIT 1";
    /// In the order in which they were written.
    TAKE_FACTS = "DELETE FROM facts_queue WHERE id IN (SELECT id FROM facts_queue ORDER BY id LIMIT $1)
        RETURNING id, tenant_id, at, born_at, expires_at, body";
    KEEP = "INSERT INTO facts (tenant_id, at, id, born_at, expires_at, body) VALUES ($1, $2, $3, $4, $5, $6)";
    ROLLUP = "SELECT summary, samples FROM rollups WHERE tenant_id = $1 AND dimension = $2 AND grain = $3 AND start = $4 AND member = $5";
    SAVE_ROLLUP = "INSERT INTO rollups (tenant_id, dimension, grain, start, member, summary, samples)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant_id, dimension, grain, start, member)
        DO UPDATE SET summary = excluded.summary, samples = excluded.samples";
    MEMBERS = "SELECT member FROM rollups WHERE tenant_id = $1 AND dimension = $2 AND grain = $3 AND start = $4
        ORDER BY member LIMIT $5";
    COHORT = "SELECT body FROM cohorts WHERE tenant_id = $1 AND grain = $2 AND start = $3 AND change_grain = $4
        AND changed_at = $5";
    SAVE_COHORT = "INSERT INTO cohorts (tenant_id, grain, start, change_grain, changed_at, body) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (tenant_id, grain, change_grain, start, changed_at) DO UPDATE SET body = excluded.body";
    /// How many facts wait, up to a limit.
    COUNT_QUEUED = "SELECT COUNT(*) FROM (SELECT 1 FROM facts_queue LIMIT $1) AS waiting";
    /// Hours of what is broken down.
    CLEAN_HOURS = "DELETE FROM rollups WHERE (tenant_id, dimension, grain, start, member) IN
        (SELECT tenant_id, dimension, grain, start, member FROM rollups /* INDEXED BY rollups_of_members */
            WHERE grain = 60 AND dimension <> 0 AND dimension < 4 AND start < $1 ORDER BY start LIMIT $2)";
    CLEAN_FACTS = "DELETE FROM facts WHERE (tenant_id, at, id) IN
        (SELECT tenant_id, at, id FROM facts WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
}

/// What excludes two that add up at once.
pub const LOCK: &str = "analytics.fold";
/// Facts of one transaction: few enough that others wait for it only some milliseconds.
const BATCH_FACTS: usize = 200;
/// Transactions of one round; the next round comes soon.
const BATCHES_MAX: usize = 200;
/// Whose figures are those of all tenants.
pub const PLATFORM: &str = "";

/// What is summed of each tenant for the platform's list of them.
pub const OF_TENANTS: [Cell; 3] = [REQUESTS, TICKETS_CREATED, DEVICES];
/// Members of a dimension in a day: keys of some generations, because a tenant has at most 100 at a time.
const MEMBERS_PER_DAY_MAX: usize = 1_000;
/// Under which those beyond are counted.
pub const OTHER_MEMBER: &str = "other";

/// Grains of figures that are broken down and asked for as totals alone.
const MEMBER_GRAINS: [Grain; 3] = [Grain::Hour, Grain::Day, Grain::Week];
/// How long their hours are kept, of which there are thousands in a day: as long as facts.
pub const MEMBER_HOURS_MS: i64 = FactRetention::Long.as_millis();
/// The most queued facts that are counted.
const QUEUED_MAX: i64 = 10_000;
/// Grains by which a record was created.
pub const BIRTH_GRAINS: [Grain; 4] = Grain::ALL;

/// Grains of the changes of what was created in one of a grain. Quarters of an hour are few at the ends of a range, and their
/// facts of a day too.
pub fn change_grains(birth: Grain) -> &'static [Grain] {
    if birth == Grain::Quarter { &[Grain::Day] } else { &[Grain::Hour, Grain::Day] }
}

/// Writes what this node has metered. Also called once before the process ends.
pub async fn write_usage(node: &ServerNode) -> Result<()> {
    node.usage.write_usage(&node.store.system(Purpose::Jobs)).await
}

/// Adds up what is in the queue.
pub async fn fold_facts(node: &ServerNode) -> Result<()> {
    let system = node.store.system(Purpose::Jobs);
    for _ in 0..BATCHES_MAX {
        // A queue without facts is read, not written.
        if system.find::<i64>(NEXT_QUEUED, args![]).await?.is_none() || fold_batch(&system).await? < BATCH_FACTS {
            break;
        }
    }
    Ok(())
}

/// Updates the gauge of facts that are not added up yet.
pub async fn measure_queue(node: &ServerNode) -> Result<()> {
    let waiting: i64 = node.store.system(Purpose::Jobs).get_one(COUNT_QUEUED, args![QUEUED_MAX]).await?;
    metrics::gauge!("figures_queue_depth").set(f64::from(u32::try_from(waiting).unwrap_or(u32::MAX)));
    Ok(())
}

/// Adds up one batch, and returns how many facts it had. None while another node does it.
pub async fn fold_batch(system: &Db) -> Result<usize> {
    system
        .write(async |tx| {
            if !tx.try_lock(LOCK).await? {
                return Ok(0);
            }
            let facts: Vec<QueuedFact> = tx.list(TAKE_FACTS, args![BATCH_FACTS as i64]).await?;
            let mut sums = Sums::default();
            let mut kept = Vec::with_capacity(facts.len());
            for fact in &facts {
                sums.add_fact(fact);
                kept.push(fact.to_row());
            }
            tx.exec_each(KEEP, &kept).await?;
            sums.save(tx).await?;
            Ok(facts.len())
        })
        .await
}

/// A stored sum. One that cannot be read begins anew: `admin analytics rebuild` makes it right, and all others go on.
pub fn decode_sum(tenant: &str, summary: &[u8], samples: &[u8]) -> Figures {
    Figures::from_bytes(summary, samples).unwrap_or_else(|error| {
        tracing::error!(%error, tenant, "a sum of figures begins anew: tenant-control admin analytics rebuild");
        Figures::default()
    })
}

/// The same of the figures of a cohort.
pub fn decode_cohort(tenant: &str, body: &[u8]) -> Vec<(Group, Figures)> {
    entries_from_bytes(body).unwrap_or_else(|error| {
        tracing::error!(%error, tenant, "a sum of figures begins anew: tenant-control admin analytics rebuild");
        Vec::new()
    })
}

/// By which grains figures of a dimension are summed.
pub fn grains_of(dimension: Dimension) -> &'static [Grain] {
    if [Dimension::NONE, CURRENCY].contains(&dimension) { &Grain::ALL } else { &MEMBER_GRAINS }
}

/// A fact out of the queue.
pub struct QueuedFact {
    pub id: i64,
    pub tenant: String,
    pub at: i64,
    pub born_at: Option<i64>,
    pub expires_at: i64,
    pub body: Vec<u8>,
}

impl FromRow for QueuedFact {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(QueuedFact {
            id: row.get(0)?,
            tenant: row.get(1)?,
            at: row.get(2)?,
            born_at: row.get(3)?,
            expires_at: row.get(4)?,
            body: row.get(5)?,
        })
    }
}

impl QueuedFact {
    fn to_row(&self) -> Vec<Value> {
        let QueuedFact { id, tenant, at, born_at, expires_at, body } = self;
        vec![
            tenant.as_str().into(),
            (*at).into(),
            (*id).into(),
            (*born_at).into(),
            (*expires_at).into(),
            body.as_slice().into(),
        ]
    }
}

/// The key of a row of `rollups`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RollupKey {
    tenant: String,
    dimension: Dimension,
    grain: Grain,
    start: i64,
    member: String,
}

/// The key of a row of `cohorts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CohortKey {
    pub tenant: String,
    pub grain: Grain,
    pub start: i64,
    pub change_grain: Grain,
    pub changed_at: i64,
}

/// The figures of a row of `cohorts`.
pub type CohortSums = BTreeMap<Group, Figures>;

/// A row of `rollups` that has been asked for: its summary, and its samples.
type PendingSum = PendingRows<(Vec<u8>, Vec<u8>)>;

/// What a batch adds to each row.
#[derive(Default)]
pub struct Sums {
    rollups: BTreeMap<RollupKey, Figures>,
    cohorts: BTreeMap<CohortKey, CohortSums>,
}

impl Sums {
    /// One that cannot be read is left out, so that it does not stop all others.
    pub fn add_fact(&mut self, fact: &QueuedFact) {
        let at = clamp_time(fact.at);
        let entries = entries_from_bytes(&fact.body).unwrap_or_else(|error| {
            tracing::error!(%error, tenant = fact.tenant, id = fact.id, "a fact cannot be read and is in no figure");
            Vec::new()
        });
        for (group, figures) in entries {
            if let (Some(born_at), true) = (fact.born_at, group.dimension.is_of_cohorts()) {
                self.add_to_cohorts(&fact.tenant, (clamp_time(born_at), at), &group, &figures);
                if group.dimension != ORGANIZATION {
                    self.add_to_cohorts(PLATFORM, (clamp_time(born_at), at), &group, &figures);
                }
                continue;
            }
            self.add_to_rollups(&fact.tenant, at, &group, &figures);
            if group.dimension != KEY {
                self.add_to_rollups(PLATFORM, at, &group, &figures);
            }
            if group == Group::ALL {
                let of_tenant = figures.with_cells(|cell| OF_TENANTS.contains(&cell));
                self.add_to_rollups(PLATFORM, at, &Group::new(TENANT, fact.tenant.as_str()), &of_tenant);
            }
        }
    }

    fn add_to_rollups(&mut self, tenant: &str, at: i64, group: &Group, figures: &Figures) {
        if figures.is_empty() {
            return;
        }
        for grain in grains_of(group.dimension) {
            let start = grain.floor(at);
            let key = RollupKey {
                tenant: tenant.to_owned(),
                dimension: group.dimension,
                grain: *grain,
                start,
                member: group.member.clone(),
            };
            let sum = self.rollups.entry(key).or_default();
            sum.add_figures(figures);
            let seconds = (at - start) / kernel::base::SECOND_MS;
            sum.add_count(SPEND_BEFORE_CHANGE, figures.count(SPEND_RATE).saturating_mul(seconds));
        }
    }

    fn add_to_cohorts(&mut self, tenant: &str, (born_at, at): (i64, i64), group: &Group, figures: &Figures) {
        for grain in BIRTH_GRAINS {
            for change_grain in change_grains(grain) {
                let key = CohortKey {
                    tenant: tenant.to_owned(),
                    grain,
                    start: grain.floor(born_at),
                    change_grain: *change_grain,
                    changed_at: change_grain.floor(at),
                };
                self.cohorts.entry(key).or_default().entry(group.clone()).or_default().add_figures(figures);
            }
        }
    }

    /// The sums of a tenant in one grain, by start and member.
    pub fn of_tenant(&self, tenant: &str, dimension: Dimension, grain: Grain) -> Vec<((i64, String), Figures)> {
        let is_of = |key: &RollupKey| key.tenant == tenant && key.dimension == dimension && key.grain == grain;
        let rows = self.rollups.iter().filter(|(key, _)| is_of(key));
        rows.map(|(key, figures)| ((key.start, key.member.clone()), figures.clone())).collect()
    }

    /// The rows of a tenant's cohorts.
    pub fn cohort_rows(&self, tenant: &str) -> Vec<Vec<Value>> {
        let rows = self.cohorts.iter().filter(|(key, _)| key.tenant == tenant);
        rows.map(|(key, groups)| cohort_row(key, groups.clone())).collect()
    }

    /// Adds the sums to the rows. All rows are asked for before the first is awaited.
    pub async fn save(mut self, tx: &mut Tx) -> Result<()> {
        self.limit_members(tx).await?;
        let mut rows: Vec<(PendingSum, RollupKey, Figures)> = Vec::with_capacity(self.rollups.len());
        for (key, figures) in self.rollups {
            rows.push((tx.defer_query(ROLLUP, key.to_values()).await?, key, figures));
        }
        let mut saved = Vec::with_capacity(rows.len());
        for (pending, key, figures) in rows {
            let stored = tx.await_rows(pending).await?.pop();
            let mut sum =
                stored.map(|(summary, samples)| decode_sum(&key.tenant, &summary, &samples)).unwrap_or_default();
            sum.add_figures(&figures);
            let mut values = key.to_values();
            values.extend([sum.summary_bytes().into(), sum.samples_bytes().into()]);
            saved.push(values);
        }
        tx.defer_exec_each(SAVE_ROLLUP, saved).await?;
        save_cohorts(tx, self.cohorts).await
    }

    /// A day has so many members of a dimension at most; the others are counted together. Otherwise a flood of short-lived keys
    /// would fill the disk.
    async fn limit_members(&mut self, tx: &mut Tx) -> Result<()> {
        let mut days: Vec<(String, Dimension, i64)> = Vec::new();
        for key in self.rollups.keys() {
            let day = (key.tenant.clone(), key.dimension, Grain::Day.floor(key.start));
            if [KEY, ROUTE].contains(&key.dimension) && key.grain == Grain::Day && days.last() != Some(&day) {
                days.push(day);
            }
        }
        for (tenant, dimension, day) in days {
            let (number, limit) = (i64::from(dimension.0), MEMBERS_PER_DAY_MAX as i64);
            let stored: Vec<String> = tx.list(MEMBERS, args![tenant, number, Grain::Day.minutes(), day, limit]).await?;
            let mut free = MEMBERS_PER_DAY_MAX.saturating_sub(stored.len());
            let in_day = |key: &RollupKey| {
                key.tenant == tenant
                    && key.dimension == dimension
                    && key.grain != Grain::Week
                    && Grain::Day.floor(key.start) == day
            };
            let mut allowed: Vec<String> = stored;
            for key in self.rollups.keys().filter(|key| in_day(key) && key.grain == Grain::Day) {
                if free > 0 && !allowed.contains(&key.member) {
                    allowed.push(key.member.clone());
                    free -= 1;
                }
            }
            let over: Vec<RollupKey> =
                self.rollups.keys().filter(|key| in_day(key) && !allowed.contains(&key.member)).cloned().collect();
            let week = Grain::Week.floor(day);
            for key in over {
                self.rename_member(&key);
                if key.grain == Grain::Day {
                    self.rename_member(&RollupKey { grain: Grain::Week, start: week, ..key });
                }
            }
        }
        Ok(())
    }

    fn rename_member(&mut self, key: &RollupKey) {
        if let Some(figures) = self.rollups.remove(key) {
            let other = RollupKey { member: OTHER_MEMBER.to_owned(), ..key.clone() };
            self.rollups.entry(other).or_default().add_figures(&figures);
        }
    }
}

async fn save_cohorts(tx: &mut Tx, cohorts: BTreeMap<CohortKey, CohortSums>) -> Result<()> {
    let mut rows: Vec<(PendingRows<Vec<u8>>, CohortKey, CohortSums)> = Vec::with_capacity(cohorts.len());
    for (key, groups) in cohorts {
        rows.push((tx.defer_query(COHORT, key.to_values()).await?, key, groups));
    }
    let mut saved = Vec::with_capacity(rows.len());
    for (pending, key, mut groups) in rows {
        if let Some(body) = tx.await_rows(pending).await?.pop() {
            for (group, figures) in decode_cohort(&key.tenant, &body) {
                groups.entry(group).or_default().add_figures(&figures);
            }
        }
        saved.push(cohort_row(&key, groups));
    }
    tx.defer_exec_each(SAVE_COHORT, saved).await
}

/// The row of a cohort, without groups of which nothing is left.
pub fn cohort_row(key: &CohortKey, groups: CohortSums) -> Vec<Value> {
    let entries: Vec<(Group, Figures)> = groups.into_iter().filter(|(_, figures)| !figures.is_empty()).collect();
    let mut values = key.to_values();
    values.push(entries_to_bytes(&entries).into());
    values
}

impl RollupKey {
    fn to_values(&self) -> Vec<Value> {
        let RollupKey { tenant, dimension, grain, start, member } = self;
        vec![
            tenant.as_str().into(),
            i64::from(dimension.0).into(),
            grain.minutes().into(),
            (*start).into(),
            member.as_str().into(),
        ]
    }
}

impl CohortKey {
    fn to_values(&self) -> Vec<Value> {
        let CohortKey { tenant, grain, start, change_grain, changed_at } = self;
        vec![
            tenant.as_str().into(),
            grain.minutes().into(),
            (*start).into(),
            change_grain.minutes().into(),
            (*changed_at).into(),
        ]
    }
}
