//! SQL of the lists of machines. The columns that filters need are read along an index first, then the records of the page.

use std::collections::BTreeMap;

use clouds::MachineState;
use kernel::base::{RecordId, Result, StringEnum, Timestamp};
use kernel::http::{json_size, load_records};
use kernel::store::delta::{ChangeWalk, Delta};
use kernel::store::{
    ARMS_MAX, ArmSql, ChangeKey, Db, FromRow, IndexWalk, ListKey, Row, RowBudget, Select, Value, fill_page, from_json,
    pair_rows,
};
use people::organizations::OrganizationId;

use super::super::store::{READ, StoredVm};
use super::super::{Vm, VmId};
use super::{Filter, FilteredVm, VmListKey};
use crate::providers::ProviderId;

/// The columns that filters need, of machines that are in the list.
const BRIEFS: ArmSql =
    ArmSql::new(BriefColumns::LIST, "vms", &["created_at", "id"]).where_condition("deleted_at IS NULL");

kernel::columns! {
    struct BriefColumns { updated_at, sequence, id, created_at, provider_id, region, state, organization_id, tags, name }
}

kernel::statements! {
    BY_CREATION = kernel::arm!(BRIEFS.use_index("vms_by_creation"));
    BY_PROVIDER = kernel::arm!(BRIEFS.use_index("vms_by_provider").where_equal(&["provider_id"]));
    BY_ORGANIZATION = kernel::arm!(BRIEFS.use_index("vms_by_organization").where_equal(&["organization_id"]));
    BY_STATE = kernel::arm!(BRIEFS.use_index("vms_by_state").where_equal(&["state"]));
    BY_REGION = kernel::arm!(BRIEFS.use_index("vms_by_region_and_state").where_equal(&["region", "state"]));
    /// The list adds the index and the order of changes.
    CHANGES = kernel::sql!["SELECT ", BriefColumns::LIST, " FROM vms WHERE tenant_id = $1"];
}

const DELTA: Delta = Delta { key: "id" };

/// Machines that are read at once: one with many tags is some kilobytes.
const READ_ROWS: usize = 100;

/// A row of [`BriefColumns`].
struct VmSummaryRow {
    id: VmId,
    created_at: Timestamp,
    changed: ChangeKey<VmId>,
    provider_id: ProviderId,
    region: String,
    state: MachineState,
    organization_id: Option<OrganizationId>,
    /// As they are stored: few filters look at them.
    tags: String,
    name: String,
}

impl FromRow for VmSummaryRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: BriefColumns<usize> = BriefColumns::AT;
        Ok(kernel::read_record!(row, BriefColumns => VmSummaryRow {
            id, created_at, provider_id, region, organization_id, tags, name;
            changed: ChangeKey::from_row(row)?,
            state: MachineState::from_stored(&row.get::<String>(AT.state)?)?,
        }))
    }
}

impl VmSummaryRow {
    fn matches_filter(&self, filter: &Filter) -> bool {
        let tags: BTreeMap<String, String> = match filter.tag {
            Some(_) => from_json(&self.tags).unwrap_or_default(),
            None => BTreeMap::new(),
        };
        filter.matches_vm(&FilteredVm {
            provider_id: self.provider_id,
            region: &self.region,
            state: self.state,
            organization_id: self.organization_id,
            tags: &tags,
            name: &self.name,
        })
    }

    fn list_key(&self, filter: &Filter) -> VmListKey {
        match filter.updated_since {
            Some(_) => ListKey::Change(self.changed),
            None => ListKey::Newest((self.created_at, self.id)),
        }
    }
}

/// A page of machines, and the key after which the next page starts.
pub async fn list_vms(
    db: &Db,
    filter: &Filter,
    after: Option<VmListKey>,
    limit: usize,
) -> Result<(Vec<Vm>, Option<VmListKey>)> {
    let (rows, next) = match filter.updated_since {
        Some(since) => list_changes(db, filter, since, after, limit).await?,
        None => list_newest(db, filter, after, limit).await?,
    };
    load_records(
        &rows,
        next,
        |_| READ_ROWS,
        json_size,
        |part| async move {
            let select = Select::new(READ).where_in("v.id", part.iter().map(|row| row.id)).limit(part.len());
            let stored: Vec<StoredVm> = db.select(&select).await?;
            let pairs = pair_rows(part, |row| row.id, stored, |stored| stored.record.id);
            // A machine that has changed meanwhile may no longer match; in the order of changes it comes later.
            let still_listed = |row: &VmSummaryRow, stored: &StoredVm| match filter.updated_since {
                Some(_) => stored.change_key() == row.changed,
                None => stored.record.deleted_at.is_none() && matches_record(filter, &stored.record),
            };
            let pairs = pairs.filter(|(row, stored)| still_listed(row, stored));
            Ok(pairs.map(|(row, stored)| (row.list_key(filter), stored.record)).collect())
        },
    )
    .await
}

fn matches_record(filter: &Filter, record: &Vm) -> bool {
    let details = &record.details;
    filter.matches_vm(&FilteredVm {
        provider_id: details.provider_id,
        region: &details.region,
        state: details.state,
        organization_id: details.organization_id,
        tags: &details.tags,
        name: &details.name,
    })
}

type SummaryPage = (Vec<VmSummaryRow>, Option<VmListKey>);

async fn list_newest(db: &Db, filter: &Filter, after: Option<VmListKey>, limit: usize) -> Result<SummaryPage> {
    let below = after.and_then(ListKey::newest).unwrap_or((Timestamp::from_millis(i64::MAX), VmId::NONE));
    let least = (Timestamp::from_millis(0), VmId::NONE);
    let WalkChoice { text, values, parts } = choose_walk(filter);
    let walk = IndexWalk::new(text, values, least..below, filter.count_parts() == parts);
    let creation = |row: &VmSummaryRow| (row.created_at, row.id);
    let (rows, next) = walk.load_page(db, limit, creation, |row| row.matches_filter(filter)).await?;
    Ok((rows, next.map(ListKey::Newest)))
}

/// An index to walk along, and how many parts of the filter it answers.
struct WalkChoice {
    text: &'static str,
    values: Vec<Vec<Value>>,
    parts: usize,
}

/// Of the indexes that a filter has, the one of which the fewest machines are likely to be read.
fn choose_walk(filter: &Filter) -> WalkChoice {
    let states = |states: &[MachineState]| states.iter().map(|state| Value::from(state.as_str())).collect::<Vec<_>>();
    if let Some(ids) = &filter.organization_id {
        let values = ids.iter().map(|id| vec![Value::from(*id)]).collect();
        return WalkChoice { text: BY_ORGANIZATION, values, parts: 1 };
    }
    if let Some(regions) = &filter.region {
        let states = states(filter.state.as_deref().unwrap_or(MachineState::ALL));
        if regions.len() * states.len() <= ARMS_MAX {
            let of_region = |region: &String| {
                let region = Value::from(region.as_str());
                states.iter().map(move |state| vec![region.clone(), state.clone()]).collect::<Vec<_>>()
            };
            let values = regions.iter().flat_map(of_region).collect();
            return WalkChoice { text: BY_REGION, values, parts: 1 + usize::from(filter.state.is_some()) };
        }
    }
    if let Some(ids) = &filter.provider_id {
        let values = ids.iter().map(|id| vec![Value::from(*id)]).collect();
        return WalkChoice { text: BY_PROVIDER, values, parts: 1 };
    }
    if let Some(given) = &filter.state {
        let values = states(given).into_iter().map(|state| vec![state]).collect();
        return WalkChoice { text: BY_STATE, values, parts: 1 };
    }
    WalkChoice { text: BY_CREATION, values: vec![Vec::new()], parts: 0 }
}

/// Changed machines in the order of changes, those that have left the list too.
async fn list_changes(
    db: &Db,
    filter: &Filter,
    since: Timestamp,
    after: Option<VmListKey>,
    limit: usize,
) -> Result<SummaryPage> {
    let select = Select::new(CHANGES).use_index("vms_by_change");
    let walk = &ChangeWalk { delta: DELTA, select, since, until: db.last_tick().await?, with_values: None };
    let start = (after.and_then(ListKey::change), limit, limit + 1);
    let changed = |row: &VmSummaryRow| row.changed;
    let (rows, next) = fill_page(&mut RowBudget::default(), start, changed, |after, rows| async move {
        let step = walk.read_step(db, after, rows, changed).await?;
        Ok(step.retain_matches(|row| row.matches_filter(filter)))
    })
    .await?;
    Ok((rows, next.map(ListKey::Change)))
}
