//! SQL that adds facts up again, a tenant's day at a time, while the sums serve: each day is replaced in one transaction, under
//! the lock of those who add up new facts.
//!
//! Sums of which no facts are kept any more, such as those of requests of last month, are taken as they are in the shortest
//! grain. Every longer grain, and every sum of the platform, is made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use figures::cells::{CURRENCY, KEY, METERED, ORGANIZATION, ROUTE, TENANT};
use figures::{Dimension, Figures, Group, cells};
use kernel::args;
use kernel::base::{Result, TenantId};
use kernel::jobs::lanes::tenant_db;
use kernel::store::{Db, FactRetention, Purpose, Store, Tx, Value};
use serde::Serialize;

use crate::fold::store::{
    BIRTH_GRAINS, CohortKey, LOCK, MEMBER_HOURS_MS, OF_TENANTS, PLATFORM, QueuedFact, Sums, change_grains, cohort_row,
    decode_cohort, decode_sum, fold_batch, grains_of,
};
use crate::grain::{Grain, START_OF_TIME};
use crate::recount::store::recount_levels;

kernel::statements! {
    TENANTS = "SELECT id FROM tenants ORDER BY id";
    NEXT_SUM = "SELECT MIN(start) FROM rollups WHERE tenant_id = $1 AND dimension = 0 AND grain = $2 AND start >= $3";
    NEXT_FACT = "SELECT MIN(at) FROM facts WHERE tenant_id = $1 AND at >= $2";
    FACTS = "SELECT id, tenant_id, at, born_at, expires_at, body FROM facts WHERE tenant_id = $1 AND at >= $2 AND at < $3";
    SUMS = "SELECT start, member, summary, samples FROM rollups WHERE tenant_id = $1 AND dimension = $2 AND grain = $3
        AND start >= $4 AND start < $5 ORDER BY start, member";
    DELETE_SUMS = "DELETE FROM rollups WHERE tenant_id = $1 AND dimension = $2 AND grain = $3 AND start >= $4 AND start < $5";
    INSERT_SUM = "INSERT INTO rollups (tenant_id, dimension, grain, start, member, summary, samples)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    COHORTS = "SELECT start, changed_at, body FROM cohorts /* INDEXED BY cohorts_by_change */
        WHERE tenant_id = $1 AND change_grain = $2 AND grain = $3 AND changed_at >= $4 AND changed_at < $5";
    DELETE_COHORTS = "DELETE FROM cohorts /* INDEXED BY cohorts_by_change */
        WHERE tenant_id = $1 AND change_grain = $2 AND grain = $3 AND changed_at >= $4 AND changed_at < $5";
    INSERT_COHORT = "INSERT INTO cohorts (tenant_id, grain, start, change_grain, changed_at, body) VALUES ($1, $2, $3, $4, $5, $6)";
}

/// How long a rebuild waits for those who add up new facts.
const WAIT: Duration = Duration::from_millis(50);
/// Dimensions of a tenant's own sums.
const OF_A_TENANT: [Dimension; 4] = [Dimension::NONE, CURRENCY, KEY, ROUTE];
/// Dimensions of the platform's sums that are sums of the tenants'.
const OF_THE_PLATFORM: [Dimension; 3] = [Dimension::NONE, CURRENCY, ROUTE];

/// What was added up again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RebuildReport {
    pub tenants: usize,
    /// Days of all tenants together.
    pub days: usize,
    /// Tenants of which the records did not say what the facts said.
    pub corrected: usize,
}

/// Adds up all facts again, and then what the records say. After an interruption every day is either as it was or right.
pub async fn rebuild_figures(store: &Store) -> Result<RebuildReport> {
    let system = &store.system(Purpose::Cli);
    let tenants: Vec<TenantId> = system.list(TENANTS, args![]).await?;
    let mut report = RebuildReport { tenants: tenants.len(), ..RebuildReport::default() };
    let mut days: BTreeSet<i64> = BTreeSet::new();
    let mut pace = Pace { system, work: 0 };
    for tenant in &tenants {
        let mut next = START_OF_TIME;
        while let Some(day) = find_next_day(system, tenant.to_string(), next).await? {
            let facts = loop {
                match rebuild_day(system, tenant.to_string(), day).await? {
                    Some(facts) => break facts,
                    None => tokio::time::sleep(WAIT).await,
                }
            };
            pace.add_work(facts).await?;
            report.days += 1;
            days.insert(day);
            next = day + Grain::Day.length_ms();
        }
    }
    // Days that only the platform has sums of are of tenants that are gone.
    for day in days {
        while !system.write(async move |tx| rebuild_platform_day(tx, day).await).await? {
            tokio::time::sleep(WAIT).await;
        }
        pace.add_work(tenants.len()).await?;
    }
    for tenant in tenants {
        let db = tenant_db(store, tenant);
        report.corrected += loop {
            match recount_levels(&db).await? {
                Some(corrected) => break usize::from(corrected),
                None => tokio::time::sleep(WAIT).await,
            }
        };
        pace.add_work(0).await?;
    }
    fold_batch(system).await?;
    Ok(report)
}

/// After so much work others may write.
const WORK_MAX: usize = 2_000;
/// The work of a day or a tenant, beside its facts.
const WORK_OF_ONE: usize = 100;

/// Writes of others, and facts that come meanwhile, do not wait until all is rebuilt.
struct Pace<'a> {
    system: &'a Db,
    work: usize,
}

impl Pace<'_> {
    async fn add_work(&mut self, facts: usize) -> Result<()> {
        self.work += facts + WORK_OF_ONE;
        if self.work > WORK_MAX {
            self.work = 0;
            fold_batch(self.system).await?;
            self.system.yield_write_lock().await;
        }
        Ok(())
    }
}

/// The next day with sums or facts.
async fn find_next_day(system: &Db, tenant: String, from: i64) -> Result<Option<i64>> {
    let sum: Option<i64> = system.get_one(NEXT_SUM, args![tenant, Grain::Day.minutes(), from]).await?;
    let fact: Option<i64> = system.get_one(NEXT_FACT, args![tenant, from]).await?;
    Ok(sum.into_iter().chain(fact.map(|at| Grain::Day.floor(at))).min())
}

/// How many facts the day had. None, and nothing done, while new facts are being added up: two at once would each miss what the
/// other adds.
async fn rebuild_day(system: &Db, tenant: String, day: i64) -> Result<Option<usize>> {
    let now = system.env().now().as_millis();
    // Of an earlier day some facts may have been deleted already.
    let has_facts = day + FactRetention::Long.as_millis() > now;
    let rebuild = async move |tx: &mut Tx| {
        if !tx.try_lock(LOCK).await? {
            return Ok(None);
        }
        let facts = if has_facts { rebuild_from_facts(tx, &tenant, day).await? } else { 0 };
        for dimension in OF_A_TENANT {
            add_up_grains(tx, &tenant, dimension, day).await?;
        }
        Ok(Some(facts))
    };
    system.write(rebuild).await
}

/// Replaces the shortest sums and the cohorts of a day. Metered figures stay: their facts are kept for two days only.
async fn rebuild_from_facts(tx: &mut Tx, tenant: &str, day: i64) -> Result<usize> {
    let end = day + Grain::Day.length_ms();
    let mut sums = Sums::default();
    let facts: Vec<QueuedFact> = tx.list(FACTS, args![tenant, day, end]).await?;
    for fact in &facts {
        if fact.expires_at - fact.at > FactRetention::Short.as_millis() {
            sums.add_fact(fact);
        }
    }
    for dimension in [Dimension::NONE, CURRENCY] {
        let stored = read_sums(tx, tenant, dimension, Grain::Quarter, day).await?;
        let metered =
            |(key, figures): ((i64, String), Figures)| (key, figures.with_cells(|cell| METERED.contains(&cell)));
        let mut rows: DaySums = stored.into_iter().map(metered).collect();
        for (key, figures) in sums.of_tenant(tenant, dimension, Grain::Quarter) {
            rows.entry(key).or_default().add_figures(&figures);
        }
        write_sums(tx, tenant, dimension, Grain::Quarter, day, rows).await?;
    }
    delete_cohorts(tx, tenant, day).await?;
    tx.exec_each(INSERT_COHORT, &sums.cohort_rows(tenant)).await?;
    Ok(facts.len())
}

/// Every grain of cohorts, and of their changes.
fn cohort_grains() -> impl Iterator<Item = (Grain, Grain)> {
    BIRTH_GRAINS.into_iter().flat_map(|birth| change_grains(birth).iter().map(move |change| (birth, *change)))
}

/// Those that changed on a day.
async fn delete_cohorts(tx: &mut Tx, tenant: &str, day: i64) -> Result<()> {
    let end = day + Grain::Day.length_ms();
    for (birth, change) in cohort_grains() {
        tx.exec(DELETE_COHORTS, args![tenant, change.minutes(), birth.minutes(), day, end]).await?;
    }
    Ok(())
}

/// The sums of a day by start and member.
type DaySums = BTreeMap<(i64, String), Figures>;

async fn read_sums(tx: &mut Tx, tenant: &str, dimension: Dimension, grain: Grain, day: i64) -> Result<DaySums> {
    let (start, end) = (grain.floor(day), day + Grain::Day.length_ms());
    let rows: Vec<(i64, String, Vec<u8>, Vec<u8>)> =
        tx.list(SUMS, args![tenant, i64::from(dimension.0), grain.minutes(), start, end]).await?;
    let mut sums = DaySums::new();
    for (start, member, summary, samples) in rows {
        sums.insert((start, member), decode_sum(tenant, &summary, &samples));
    }
    Ok(sums)
}

/// Replaces the sums of a grain that begin on a day, or in its week.
async fn write_sums(
    tx: &mut Tx,
    tenant: &str,
    dimension: Dimension,
    grain: Grain,
    day: i64,
    sums: DaySums,
) -> Result<()> {
    let (start, end) = (grain.floor(day), day + Grain::Day.length_ms());
    let number = i64::from(dimension.0);
    tx.exec(DELETE_SUMS, args![tenant, number, grain.minutes(), start, end]).await?;
    let row = |((start, member), figures): ((i64, String), Figures)| -> Vec<Value> {
        let (summary, samples) = (figures.summary_bytes().into(), figures.samples_bytes().into());
        vec![tenant.into(), number.into(), grain.minutes().into(), start.into(), member.into(), summary, samples]
    };
    let rows: Vec<Vec<Value>> = sums.into_iter().filter(|(_, figures)| !figures.is_empty()).map(row).collect();
    tx.exec_each(INSERT_SUM, &rows).await.map(drop)
}

/// The shortest grain of which all sums of a day are kept.
fn shortest_grain(tx: &Tx, dimension: Dimension, day: i64) -> Grain {
    let has_hours =
        !grains_of(dimension).starts_with(&[Grain::Hour]) || day > tx.env().now().as_millis() - MEMBER_HOURS_MS;
    if has_hours { grains_of(dimension)[0] } else { Grain::Day }
}

/// Makes the longer grains of a day of the shorter ones, and its week of its days.
async fn add_up_grains(tx: &mut Tx, tenant: &str, dimension: Dimension, day: i64) -> Result<()> {
    let shortest = shortest_grain(tx, dimension, day);
    for pair in grains_of(dimension).windows(2).filter(|pair| pair[0] >= shortest) {
        let (shorter, longer) = (pair[0], pair[1]);
        let (first, days) = if longer == Grain::Week { (longer.floor(day), 7) } else { (day, 1) };
        let mut sums = DaySums::new();
        for number in 0..days {
            let part = first + number * Grain::Day.length_ms();
            for ((start, member), figures) in read_sums(tx, tenant, dimension, shorter, part).await? {
                let whole = longer.floor(start);
                add_part(sums.entry((whole, member)).or_default(), &figures, start - whole);
            }
        }
        write_sums(tx, tenant, dimension, longer, day, sums).await?;
    }
    Ok(())
}

/// Adds what happened in a part that begins so much later than the whole.
fn add_part(sum: &mut Figures, part: &Figures, later_ms: i64) {
    sum.add_figures(part);
    let rate = part.count(cells::SPEND_RATE);
    sum.add_count(cells::SPEND_BEFORE_CHANGE, rate * (later_ms / kernel::base::SECOND_MS));
}

/// The sums of the platform for a day are those of all tenants. False while new facts are being added up.
async fn rebuild_platform_day(tx: &mut Tx, day: i64) -> Result<bool> {
    if !tx.try_lock(LOCK).await? {
        return Ok(false);
    }
    // Those that were made since the rebuild began are among them.
    let tenants: Vec<TenantId> = tx.list(TENANTS, args![]).await?;
    for dimension in OF_THE_PLATFORM {
        let grain = shortest_grain(tx, dimension, day);
        let mut sums = DaySums::new();
        for tenant in &tenants {
            for (key, figures) in read_sums(tx, &tenant.to_string(), dimension, grain, day).await? {
                sums.entry(key).or_default().add_figures(&figures);
            }
        }
        write_sums(tx, PLATFORM, dimension, grain, day, sums).await?;
        add_up_grains(tx, PLATFORM, dimension, day).await?;
    }
    let (mut by_tenant, grain) = (DaySums::new(), shortest_grain(tx, TENANT, day));
    let mut cohorts: BTreeMap<CohortKey, BTreeMap<Group, Figures>> = BTreeMap::new();
    let end = day + Grain::Day.length_ms();
    for tenant in &tenants {
        let name = tenant.to_string();
        for ((start, _), figures) in read_sums(tx, &name, Dimension::NONE, grain, day).await? {
            by_tenant.insert((start, name.clone()), figures.with_cells(|cell| OF_TENANTS.contains(&cell)));
        }
        for (birth, change) in cohort_grains() {
            let values = args![name, change.minutes(), birth.minutes(), day, end];
            for (start, changed_at, body) in tx.list::<(i64, i64, Vec<u8>)>(COHORTS, values).await? {
                let key =
                    CohortKey { tenant: PLATFORM.to_owned(), grain: birth, start, change_grain: change, changed_at };
                let groups = cohorts.entry(key).or_default();
                for (group, figures) in decode_cohort(&name, &body) {
                    if group.dimension != ORGANIZATION {
                        groups.entry(group).or_default().add_figures(&figures);
                    }
                }
            }
        }
    }
    write_sums(tx, PLATFORM, TENANT, grain, day, by_tenant).await?;
    add_up_grains(tx, PLATFORM, TENANT, day).await?;
    delete_cohorts(tx, PLATFORM, day).await?;
    let rows: Vec<Vec<Value>> = cohorts.into_iter().map(|(key, groups)| cohort_row(&key, groups)).collect();
    tx.exec_each(INSERT_COHORT, &rows).await?;
    Ok(true)
}
