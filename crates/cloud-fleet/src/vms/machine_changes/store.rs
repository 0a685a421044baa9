//! Brings what a cloud tells of its machines into the store.

use std::collections::{BTreeMap, HashMap};

use clouds::{Machine, MachineState};
use kernel::args;
use kernel::base::{Label, Result, Timestamp, check_slug};
use kernel::store::{Db, Tick, Tx};
use people::organizations::{self, NamedOrganization, OrganizationId};

use super::super::store::{self, LiveVm, StoredVm};
use super::super::{ORGANIZATION_TAG, OperationId, OperationStatus, Vm, VmCost, VmDetails, VmId, VmSize};
use crate::cloud_text::clean_text;
use crate::providers::ProviderId;

kernel::statements! {
    /// The machine of an operation has turned up: the operation goes on with it.
    ADOPT = "UPDATE vm_operations SET status = 'waiting', attempt = attempt + 1, next_at = $3, error_code = NULL,
            error_detail = NULL, ended_at = NULL
        WHERE tenant_id = $1 AND id = $2 AND (status IN ('submitting', 'needs_attention') OR (status = 'accepted' AND attempt > 0))";
}

/// Saves the machines of a page that the cloud was asked for at this moment. Machines that are as they were are not written, and
/// neither are those that were seen since: an order of the same region may have found out more before the page came.
pub async fn apply_machines(
    tx: &mut Tx,
    provider: ProviderId,
    machines: &[Machine],
    asked_at: Timestamp,
) -> Result<()> {
    let now = tx.env().now();
    let ids: Vec<&str> = machines.iter().map(|machine| machine.external_id.as_str()).collect();
    let stored = store::list_by_external_ids(tx, provider, &ids).await?;
    let external_id = |stored: StoredVm| stored.record.details.external_id.clone().map(|id| (id, stored));
    let mut known: HashMap<String, StoredVm> = stored.into_iter().filter_map(external_id).collect();
    let organizations = organizations::find_by_slugs(tx, &organization_slugs(machines)).await?;
    for machine in machines {
        let stored = match known.remove(&machine.external_id) {
            Some(stored) => Some(stored),
            None => adopt_ordered(tx, provider, machine, now).await?,
        };
        let organization = find_organization(&organizations, machine, stored.as_ref());
        match stored {
            Some(stored) if was_seen_since(&stored, asked_at, now) => {}
            Some(stored) => update_machine(tx, stored, machine, organization, asked_at).await.map(drop)?,
            None if machine.state == MachineState::Terminated => {}
            None => insert_machine(tx, provider, machine, organization, asked_at).await?,
        }
    }
    Ok(())
}

/// Whether the machine was seen after a moment, so that what the cloud told then is older than what is stored. A time in the
/// future is from a clock that ran ahead, and says nothing.
fn was_seen_since(stored: &StoredVm, at: Timestamp, now: Timestamp) -> bool {
    stored.record.details.last_seen_at.is_some_and(|seen_at| seen_at > at && seen_at <= now)
}

fn organization_slugs(machines: &[Machine]) -> Vec<&str> {
    let mut slugs: Vec<&str> =
        machines.iter().filter_map(|machine| machine.tags.get(ORGANIZATION_TAG)).map(String::as_str).collect();
    // What cannot be a slug names nothing.
    slugs.retain(|slug| check_slug(slug).is_ok());
    slugs.sort_unstable();
    slugs.dedup();
    slugs
}

/// The organization that a machine's tag names. One that is archived keeps the machines that it has, and gets no others.
fn find_organization(
    organizations: &HashMap<String, NamedOrganization>,
    machine: &Machine,
    stored: Option<&StoredVm>,
) -> Option<OrganizationId> {
    let named = organizations.get(machine.tags.get(ORGANIZATION_TAG)?)?;
    let is_its_own = stored.is_some_and(|stored| stored.record.details.organization_id == Some(named.id));
    (is_its_own || !named.is_archived).then_some(named.id)
}

/// The machine that was ordered by the operation of the tag, and whose id in the cloud was not known so far.
async fn adopt_ordered(
    tx: &mut Tx,
    provider: ProviderId,
    machine: &Machine,
    now: Timestamp,
) -> Result<Option<StoredVm>> {
    let operation: Option<OperationId> = machine.operation_id.as_ref().and_then(|id| id.parse().ok());
    let Some(operation) = operation else { return Ok(None) };
    let Some(stored) = store::find_by_operation(tx, &operation.to_string()).await? else { return Ok(None) };
    let details = &stored.record.details;
    // A tag can be copied to another machine, into another account, or another region.
    if details.provider_id != provider
        || details.region != machine.region
        || details.external_id.is_some()
        || stored.record.deleted_at.is_some()
    {
        return Ok(None);
    }
    // An order that was never sent has no machine: somebody has copied its tag.
    let is_adopted = tx.exec(ADOPT, args![operation.to_string(), now]).await? == 1;
    let has_failed = details.operation.as_ref().is_some_and(|one| one.status == OperationStatus::Failed);
    Ok((is_adopted || has_failed).then_some(stored))
}

/// Machines that a sync has to save.
pub struct UnsavedMachines {
    pub new: Vec<Machine>,
    /// Those that are not as they are stored.
    pub changed: Vec<Machine>,
}

/// The machines of a page that are new or not as they are stored. Read outside any transaction, so that a sync that finds
/// nothing new writes nothing.
pub async fn list_unsaved(db: &Db, provider: ProviderId, machines: &[Machine]) -> Result<UnsavedMachines> {
    let ids: Vec<&str> = machines.iter().map(|machine| machine.external_id.as_str()).collect();
    let stored = store::list_known_by_external_ids(db, provider, &ids).await?;
    let known: HashMap<&str, &StoredVm> =
        stored.iter().filter_map(|stored| Some((stored.record.details.external_id.as_deref()?, stored))).collect();
    let organizations = organizations::list_by_slugs(db, &organization_slugs(machines)).await?;
    let mut unsaved = UnsavedMachines { new: Vec::new(), changed: Vec::new() };
    for machine in machines {
        let Some(stored) = known.get(machine.external_id.as_str()) else {
            // One that has ended before it was ever seen is of no use to anybody.
            if machine.state != MachineState::Terminated {
                unsaved.new.push(machine.clone());
            }
            continue;
        };
        let merged = merge_machine(stored, machine, find_organization(&organizations, machine, Some(stored)));
        if merged != stored.record.details || stored.record.deleted_at.is_some() || stored.missing_since.is_some() {
            unsaved.changed.push(machine.clone());
        }
    }
    Ok(unsaved)
}

/// Saves what the cloud tells of a machine, if it is something else than before.
pub async fn update_machine(
    tx: &mut Tx,
    stored: StoredVm,
    machine: &Machine,
    organization: Option<OrganizationId>,
    seen_at: Timestamp,
) -> Result<StoredVm> {
    let mut details = merge_machine(&stored, machine, organization);
    let old = stored.to_counted();
    let is_new = details != stored.record.details || stored.record.deleted_at.is_some();
    let was_missing = stored.missing_since.is_some();
    details.first_seen_at = details.first_seen_at.or(Some(seen_at));
    details.last_seen_at = Some(seen_at);
    let mut new = StoredVm { missing_since: None, ..stored };
    new.record.details = details;
    if is_new {
        new.record.deleted_at = None;
        if new.record.details.state != MachineState::Terminated {
            new.terminated_at = None;
        }
        return store::save_vm(tx, &old, new).await;
    }
    if was_missing {
        store::save_observed(tx, &new).await?;
    }
    Ok(new)
}

/// A stored machine as the cloud tells it now. When it was seen is left as it is.
fn merge_machine(stored: &StoredVm, machine: &Machine, organization: Option<OrganizationId>) -> VmDetails {
    let old = &stored.record.details;
    let organization_id = if stored.organization_given { old.organization_id } else { organization };
    let mut details = to_details(old.provider_id, machine, organization_id);
    (details.intended_state, details.managed) = (old.intended_state, old.managed);
    (details.operation, details.first_seen_at) = (old.operation.clone(), old.first_seen_at);
    // What is not told, because a permission for it is missing, was told before.
    fill_size(&mut details.size, &old.size);
    details.last_seen_at = old.last_seen_at;
    details
}

fn fill_size(size: &mut VmSize, old: &VmSize) {
    if size.id == old.id {
        size.vcpus = size.vcpus.or(old.vcpus);
        size.memory_bytes = size.memory_bytes.or(old.memory_bytes);
        size.disk_bytes = size.disk_bytes.or(old.disk_bytes);
    }
}

async fn insert_machine(
    tx: &mut Tx,
    provider: ProviderId,
    machine: &Machine,
    organization: Option<OrganizationId>,
    seen_at: Timestamp,
) -> Result<()> {
    let Tick { at, sequence } = tx.tick().await?;
    let mut details = to_details(provider, machine, organization);
    (details.first_seen_at, details.last_seen_at) = (Some(seen_at), Some(seen_at));
    let record = Vm {
        id: VmId::new_numbered(tx.env(), at, sequence),
        details,
        deleted_at: None,
        version: 1,
        created_at: at,
        updated_at: at,
    };
    let stored = StoredVm { record, sequence, organization_given: false, missing_since: None, terminated_at: None };
    store::insert_vm(tx, &stored).await
}

/// A machine that a whole sync has not found, and that the cloud did not know when it was asked at this moment, is gone.
pub async fn mark_gone(tx: &mut Tx, missed: &LiveVm, asked_at: Timestamp) -> Result<()> {
    let Some(stored) = find_missed(tx, missed, asked_at).await? else { return Ok(()) };
    let old = stored.to_counted();
    if old.state == MachineState::Terminated {
        return Ok(());
    }
    let mut new = stored;
    new.record.details.state = MachineState::Terminated;
    "gone".clone_into(&mut new.record.details.raw_state);
    (new.record.details.public_ips, new.record.details.private_ips) = (Vec::new(), Vec::new());
    new.record.details.cost = None;
    store::save_vm(tx, &old, new).await.map(drop)
}

/// A machine that a whole sync since this moment has not found, and that the cloud may know nevertheless.
pub async fn mark_missing(tx: &mut Tx, missed: &LiveVm, began: Timestamp) -> Result<()> {
    let Some(mut stored) = find_missed(tx, missed, began).await? else { return Ok(()) };
    if stored.missing_since.is_none() {
        stored.missing_since = Some(tx.env().now());
        store::save_observed(tx, &stored).await?;
    }
    Ok(())
}

/// A machine that was not found, if it still is the one that was looked for and nobody has seen it since. Somebody may have
/// adopted another machine for its order meanwhile.
async fn find_missed(tx: &mut Tx, missed: &LiveVm, asked_at: Timestamp) -> Result<Option<StoredVm>> {
    let now = tx.env().now();
    let is_missed = |stored: &StoredVm| {
        stored.record.details.external_id.as_ref() == Some(&missed.external_id)
            && !was_seen_since(stored, asked_at, now)
    };
    Ok(store::find_in_tx(tx, missed.id).await?.filter(is_missed))
}

/// What a cloud tells is kept within bounds: nobody needs longer texts. A name has those of every name.
const NAME_CHARS_MAX: usize = 200;
const TEXT_CHARS_MAX: usize = 255;
const TAG_CHARS_MAX: usize = 1_024;
const TAGS_MAX: usize = 200;
const ADDRESSES_MAX: usize = 64;
/// More than any machine costs in a month.
const COST_MAX: f64 = 1e9;

fn clean_label(text: &str) -> String {
    clean_text(text, TEXT_CHARS_MAX)
}

/// The name, or the id of a machine without one that can be seen.
fn clean_name(machine: &Machine) -> String {
    let name = machine.name.as_deref().and_then(|name| Label::parse_line(&clean_text(name, NAME_CHARS_MAX)).ok());
    name.map_or_else(|| machine.external_id.clone(), Label::into_string)
}

fn clean_addresses(addresses: &[String]) -> Vec<String> {
    addresses.iter().take(ADDRESSES_MAX).map(|address| clean_label(address)).collect()
}

fn clean_cost(machine: &Machine) -> Option<VmCost> {
    // What is gone costs nothing.
    let cost = machine.cost.as_ref().filter(|_| machine.state != MachineState::Terminated)?;
    let is_sane = cost.amount.is_finite() && (0.0..COST_MAX).contains(&cost.amount);
    is_sane.then(|| VmCost {
        amount: cost.amount,
        currency: clean_text(&cost.currency, 3),
        period: clean_text(&cost.period, 20),
    })
}

fn to_details(provider: ProviderId, machine: &Machine, organization_id: Option<OrganizationId>) -> VmDetails {
    let size = &machine.size;
    let tag = |(key, value): (&String, &String)| (clean_label(key), clean_text(value, TAG_CHARS_MAX));
    VmDetails {
        provider_id: provider,
        external_id: Some(machine.external_id.clone()),
        name: clean_name(machine),
        region: machine.region.clone(),
        zone: machine.zone.as_deref().map(clean_label),
        size: VmSize {
            id: clean_label(&size.id),
            vcpus: size.vcpus,
            memory_bytes: size.memory_bytes,
            disk_bytes: size.disk_bytes,
        },
        image: machine.image.as_deref().map(clean_label),
        state: machine.state,
        raw_state: clean_label(&machine.raw_state),
        intended_state: None,
        public_ips: clean_addresses(&machine.public_ips),
        private_ips: clean_addresses(&machine.private_ips),
        tags: machine.tags.iter().take(TAGS_MAX).map(tag).collect::<BTreeMap<_, _>>(),
        managed: false,
        cost: clean_cost(machine),
        organization_id,
        operation: None,
        first_seen_at: None,
        last_seen_at: None,
    }
}

/// Whether a machine can be stored and asked for by its id.
pub fn has_usable_id(machine: &Machine) -> bool {
    let id = &machine.external_id;
    (1..=TEXT_CHARS_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}
