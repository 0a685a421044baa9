//! SQL that compares levels, such as how many tickets are open, with the records that they are of, and counts the difference now.
//!
//! There is none as long as every change writes its fact. A node of a version without facts writes none, and neither does
//! somebody who mends the database by hand.

use std::collections::BTreeSet;

use cloud_fleet::vms::facts::{CountedVm, vm_fact};
use figures::cells::{CURRENCY, DEVICES, DEVICES_IN_SCOPE, DEVICES_PROTECTED, LEVELS, SPEND_RATE, TICKETS_OPEN};
use figures::{Fact, FigureSummary, Group, entries_from_bytes};
use fleet::devices::facts::status_cell;
use kernel::args;
use kernel::base::{Error, Result, StringEnum, Timestamp};
use kernel::store::{Db, FactRetention, Tx, from_optional_json};
use tickets::TicketStatus;

use crate::fold::store::LOCK;
use crate::grain::Grain;

kernel::statements! {
    /// All weeks are all of time.
    SUMMED = "SELECT dimension, member, summary FROM rollups WHERE tenant_id = $1 AND dimension = $2 AND grain = $3";
    RECOUNT_QUEUED = "SELECT body FROM facts_queue WHERE tenant_id = $1";
    RECOUNT_TICKETS = "SELECT status, COUNT(*) FROM tickets WHERE tenant_id = $1 GROUP BY status";
    RECOUNT_DEVICES = "SELECT status, COUNT(*) FROM devices WHERE tenant_id = $1 AND deleted_at IS NULL GROUP BY status";
    RECOUNT_VMS = "SELECT state, cost FROM vms WHERE tenant_id = $1 AND deleted_at IS NULL AND terminated_at IS NULL";
    RECOUNT_POSTURES = "SELECT in_scope, protected FROM backup_postures WHERE tenant_id = $1";
}

/// Counts the difference, and tells whether there was one. None while new facts are being added up.
pub async fn recount_levels(tenant: &Db) -> Result<Option<bool>> {
    tenant
        .write(async |tx| {
            // Nobody else changes a record of the tenant until the end.
            let at = tx.tick().await?.at;
            if !tx.try_lock(LOCK).await? {
                return Ok(None);
            }
            let (counted, summed) = (count_records(tx, at).await?, read_summed(tx, at).await?);
            let difference = subtract(&counted, &summed, at);
            if !difference.is_empty() {
                tracing::warn!(tenant = ?tx.tenant_id(), ?difference, "figures differed from the records, and are corrected");
            }
            tx.record_fact(&difference, FactRetention::Long).await?;
            Ok(Some(!difference.is_empty()))
        })
        .await
}

/// How things stand by the records.
async fn count_records(tx: &mut Tx, at: Timestamp) -> Result<Fact> {
    let mut counted = Fact::new(at.as_millis());
    for (status, count) in tx.list::<(String, i64)>(RECOUNT_TICKETS, args![]).await? {
        if !TicketStatus::from_stored(&status)?.is_done() {
            counted.add_count(TICKETS_OPEN, count);
        }
    }
    for (status, count) in tx.list::<(String, i64)>(RECOUNT_DEVICES, args![]).await? {
        counted.add_count(DEVICES, count);
        counted.add_count(status_cell(StringEnum::from_stored(&status)?), count);
    }
    for (state, cost) in tx.list::<(String, Option<String>)>(RECOUNT_VMS, args![]).await? {
        let cost = from_optional_json(cost.as_deref())?;
        let vm = CountedVm::new(StringEnum::from_stored(&state)?, cost.as_ref(), true);
        for (group, figures) in vm_fact(None, &vm, at).entries {
            counted.group_mut(group).add_figures(&figures);
        }
    }
    for (in_scope, protected) in tx.list::<(i64, i64)>(RECOUNT_POSTURES, args![]).await? {
        counted.add_count(DEVICES_IN_SCOPE, in_scope);
        counted.add_count(DEVICES_PROTECTED, protected);
    }
    Ok(counted)
}

/// The same by all facts.
async fn read_summed(tx: &mut Tx, at: Timestamp) -> Result<Fact> {
    let mut summed = Fact::new(at.as_millis());
    for dimension in [Group::ALL.dimension, CURRENCY] {
        let values = args![i64::from(dimension.0), Grain::Week.minutes()];
        for (_, member, summary) in tx.list::<(i64, String, Vec<u8>)>(SUMMED, values).await? {
            let summary = FigureSummary::from_bytes(&summary).map_err(Error::internal)?;
            summed.group_mut(Group::new(dimension, member)).add_counts(&summary.counts);
        }
    }
    for body in tx.list::<Vec<u8>>(RECOUNT_QUEUED, args![]).await? {
        for (group, figures) in entries_from_bytes(&body).map_err(Error::internal)? {
            summed.group_mut(group).add_figures(&figures);
        }
    }
    Ok(summed)
}

/// The levels of one without those of the other.
fn subtract(one: &Fact, other: &Fact, at: Timestamp) -> Fact {
    let mut difference = Fact::new(at.as_millis());
    for level in LEVELS {
        difference.add_count(level, one.count(&Group::ALL, level) - other.count(&Group::ALL, level));
    }
    let groups: BTreeSet<&Group> = one.entries.iter().chain(&other.entries).map(|(group, _)| group).collect();
    for group in groups.into_iter().filter(|group| group.dimension == CURRENCY) {
        let by = one.count(group, SPEND_RATE) - other.count(group, SPEND_RATE);
        difference.group_mut(group.clone()).add_count(SPEND_RATE, by);
    }
    difference
}
