//! Domains as machines. Those of another owner, or of none, are not seen.

use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error, ErrorNumber};
use virt_sys as sys;

use super::REGION;
use super::errors::to_cloud_error;
use super::metadata::{MachineMetadata, NAMESPACE, machine_uuid};
use super::state::{find_reason, is_unstarted, to_state};
use crate::error::RequestEffect;
use crate::{CloudError, Machine, MachineSize, OPERATION_TAG};

const KIB_PER_MIB: u64 = 1_024;

/// All machines of an owner.
pub fn list_machines(connect: &Connect, owner: &str) -> Result<Vec<Machine>, CloudError> {
    let to_error = |error: Error| to_cloud_error(&error, RequestEffect::Read);
    let mut machines = Vec::new();
    for domain in connect.list_all_domains(0).map_err(to_error)? {
        machines.extend(read_machine(&domain, owner).map_err(to_error)?);
    }
    Ok(machines)
}

pub fn find_machine(connect: &Connect, owner: &str, uuid: &str) -> Result<Option<Machine>, CloudError> {
    let read = || match find_domain(connect, uuid)? {
        Some(domain) => read_machine(&domain, owner),
        None => Ok(None),
    };
    read().map_err(|error| to_cloud_error(&error, RequestEffect::Read))
}

/// The machine of an order. One that is defined and was not started counts as not made yet: creating it once more starts it.
pub fn find_by_operation(connect: &Connect, owner: &str, operation_id: &str) -> Result<Option<Machine>, CloudError> {
    let find = || -> Result<Option<Machine>, Error> {
        let Some(domain) = find_domain(connect, &machine_uuid(owner, operation_id))? else { return Ok(None) };
        let Some(machine) = read_machine(&domain, owner)? else { return Ok(None) };
        let (state, reason) = domain.get_state()?;
        Ok(Some(machine).filter(|_| !is_unstarted(state, reason)))
    };
    let found = find().map_err(|error| to_cloud_error(&error, RequestEffect::Read))?;
    Ok(found.filter(|machine| machine.operation_id.as_deref() == Some(operation_id)))
}

pub fn find_domain(connect: &Connect, uuid: &str) -> Result<Option<Domain>, Error> {
    unless_gone(Domain::lookup_by_uuid_string(connect, uuid))
}

/// `None` of another owner's, and of one that has just gone.
pub fn read_machine(domain: &Domain, owner: &str) -> Result<Option<Machine>, Error> {
    let kind = sys::VIR_DOMAIN_METADATA_ELEMENT;
    let text = domain.get_metadata(i32::try_from(kind).unwrap_or_default(), Some(NAMESPACE), 0);
    let Some(text) = unless_gone(text)? else { return Ok(None) };
    let is_own = |metadata: &MachineMetadata| !owner.is_empty() && metadata.owner == owner;
    let Some(metadata) = MachineMetadata::read(&text).filter(is_own) else { return Ok(None) };
    unless_gone(describe_machine(domain, metadata))
}

fn describe_machine(domain: &Domain, metadata: MachineMetadata) -> Result<Machine, Error> {
    let external_id = domain.get_uuid_string()?;
    let (state, reason) = domain.get_state()?;
    let info = domain.get_info()?;
    let (state, raw_state, state_reason) = {
        let (known, raw) = to_state(state, reason);
        (known, raw, find_reason(state, reason))
    };
    // A clone of a machine carries the metadata of the first, and is another.
    let is_ordered = |id: &String| machine_uuid(&metadata.owner, id) == external_id;
    let operation_id = metadata.operation_id.clone().filter(is_ordered);
    let mut tags = metadata.tags;
    if let Some(operation_id) = &operation_id {
        tags.insert(OPERATION_TAG.to_owned(), operation_id.clone());
    }
    let name = if operation_id.is_some() { metadata.name } else { None };
    Ok(Machine {
        name: Some(match name {
            Some(name) => name,
            None => domain.get_name()?,
        }),
        external_id,
        region: REGION.to_owned(),
        zone: None,
        size: to_size(info.nr_virt_cpu, info.max_mem),
        image: metadata.image,
        state,
        raw_state: raw_state.to_owned(),
        state_reason: state_reason.map(str::to_owned),
        // The bindings leak memory when they ask for addresses, so they are not asked.
        public_ips: Vec::new(),
        private_ips: Vec::new(),
        tags,
        cost: None,
        operation_id,
    })
}

fn to_size(vcpus: u32, memory_kib: u64) -> MachineSize {
    MachineSize {
        id: format!("{vcpus}cpu-{}mb", memory_kib / KIB_PER_MIB),
        vcpus: Some(i64::from(vcpus)),
        memory_bytes: i64::try_from(memory_kib.saturating_mul(1_024)).ok(),
        disk_bytes: None,
    }
}

/// A domain can go between two calls, and one without our metadata is not ours.
fn unless_gone<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.code(), ErrorNumber::NoDomain | ErrorNumber::NoDomainMetadata) => Ok(None),
        Err(error) => Err(error),
    }
}
