//! Stores an order: a machine and its operation, before anything is sent to the cloud.

use std::collections::BTreeMap;

use clouds::{MachineSpec, MachineState, SpecFieldError};
use feature_kit::registry;
use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::base::seal::{SealedColumn, SealedValue};
use kernel::base::{Code, Error, FieldError, Result, Secrets, StringEnum, TenantId};
use kernel::jobs::lanes;
use kernel::keyring::{RewrapStatements, SealedColumnStatements};
use kernel::store::references::{self, RecordReference};
use kernel::store::{Tick, Tx, to_json};
use people::organizations::find_slug;
use serde::{Deserialize, Serialize};

use super::super::input::VmInput;
use super::super::known_accounts::store::{AccountMismatch, explain_mismatch, find_mismatch_in_tx};
use super::super::store::{self, StoredVm};
use super::super::{
    OPERATION_TAG, ORGANIZATION_TAG, OperationId, OperationStatus, Vm, VmDetails, VmId, VmOperation, VmOperationState,
    VmPreview, VmSize,
};
use crate::CLOUD_LANE;
use crate::providers::store::{self as providers, StoredProvider, region_lane};

kernel::statements! {
    INSERT_OPERATION = "INSERT INTO vm_operations (tenant_id, id, vm_id, provider_id, region, status, spec, user_data, next_at,
            accepted_at, created_at, account_id, credentials_version)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11, $12)";
    COUNT_USER_DATA = "SELECT substr(user_data, 1, 5), COUNT(*) FROM vm_operations WHERE user_data IS NOT NULL GROUP BY 1";
    /// Every value is sealed for version 1.
    WALK_USER_DATA = "SELECT tenant_id, id, CAST(1 AS BIGINT), user_data FROM vm_operations
        WHERE (tenant_id, id, CAST(1 AS BIGINT)) > ($1, $2, $3) AND user_data IS NOT NULL ORDER BY tenant_id, id LIMIT $4";
    REWRAP_USER_DATA = "UPDATE vm_operations SET user_data = $5
        WHERE tenant_id = $1 AND id = $2 AND CAST($3 AS BIGINT) = 1 AND user_data = $4";
    COUNT_OPEN = "SELECT COUNT(*) FROM (SELECT 1 AS one FROM vm_operations WHERE tenant_id = $1 AND provider_id = $2
        AND next_at IS NOT NULL LIMIT $3) open_operations";
}

/// Open operations of a provider: a script that runs wild makes no more machines than this at once.
const OPEN_MAX: i64 = 200;

/// What a machine runs at its first start, which may hold secrets. It is sealed once.
const USER_DATA: SealedColumn<VmOperation> = SealedColumn::new("vm_operations.user_data");
const USER_DATA_VERSION: i64 = 1;

pub const SEALED_COLUMNS: &[SealedColumnStatements] = &[SealedColumnStatements {
    name: USER_DATA.name(),
    count: COUNT_USER_DATA,
    rewrap: Some(RewrapStatements { walk: WALK_USER_DATA, replace: REWRAP_USER_DATA }),
}];

/// What is ordered, as it is stored with its operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationSpec {
    pub name: String,
    pub region: String,
    pub size: String,
    pub image: String,
    pub tags: BTreeMap<String, String>,
    pub ssh_keys: Vec<String>,
}

impl OperationSpec {
    /// As the cloud gets it.
    pub fn into_machine_spec(self, operation: OperationId, user_data: Option<String>) -> MachineSpec {
        MachineSpec {
            operation_id: operation.to_string(),
            name: self.name,
            region: self.region,
            size: self.size,
            image: self.image,
            tags: self.tags,
            user_data,
            ssh_keys: self.ssh_keys,
        }
    }
}

/// Opens what a machine runs at its first start.
pub fn open_user_data(tenant: TenantId, id: OperationId, sealed: &SealedValue, secrets: &Secrets) -> Result<String> {
    let plain = USER_DATA.cell_for(tenant, id, USER_DATA_VERSION).open(secrets, sealed)?;
    String::from_utf8(plain).map_err(Error::internal)
}

/// The answer to an order.
pub enum Provisioned {
    One(Box<Vm>),
    Several(Vec<Vm>),
    Preview(Box<VmPreview>),
    Previews(Vec<VmPreview>),
}

/// Stores an order, or with `dry_run` only says what it would make.
pub async fn provision(
    tx: &mut Tx,
    input: VmInput,
    found_references: &[RecordReference],
    secrets: &Secrets,
) -> Result<Provisioned> {
    tx.tick().await?;
    references::check_references(tx, &registry().referable, found_references).await?;
    let provider = providers::find_in_tx(tx, input.provider_id).await?.ok_or_else(Error::not_found)?;
    check_provider(&provider, &input)?;
    check_account(tx, &provider).await?;
    let organization = match input.organization_id {
        Some(id) => Some((id, find_slug(tx, id).await?)),
        None => None,
    };
    let (several, count) = (input.count.is_some(), input.count.unwrap_or(1));
    let name = input.name.as_str().to_owned();
    let mut tags = input.tags.clone();
    if let Some((_, Some(slug))) = &organization {
        tags.insert(ORGANIZATION_TAG.to_owned(), slug.clone());
    }
    let specs = (1..=count).map(|number| OperationSpec {
        name: if count == 1 { name.clone() } else { format!("{name}-{number}") },
        region: input.region.clone(),
        size: input.size.clone(),
        image: input.image.clone(),
        tags: tags.clone(),
        ssh_keys: input.ssh_keys.clone(),
    });
    let specs: Vec<OperationSpec> = specs.collect();
    check_specs(tx, &provider, &input, &specs)?;
    if input.dry_run {
        let previews = specs.iter().map(|spec| VmPreview { id: None, details: to_details(&input, spec, None) });
        let mut previews: Vec<VmPreview> = previews.collect();
        return Ok(match previews.pop() {
            Some(only) if !several => Provisioned::Preview(Box::new(only)),
            last => {
                previews.extend(last);
                Provisioned::Previews(previews)
            }
        });
    }
    let open: i64 = tx.get_one(COUNT_OPEN, args![input.provider_id, OPEN_MAX + 1]).await?;
    if open + count > OPEN_MAX {
        let detail = format!("A provider has at most {OPEN_MAX} open operations. Wait until some have ended.");
        return Err(Error::new(Code::LimitReached, detail));
    }
    let mut made = Vec::with_capacity(specs.len());
    for spec in specs {
        made.push(insert_order(tx, &input, (&provider, spec), secrets).await?);
    }
    lanes::wake_lane(tx, CLOUD_LANE, &region_lane(input.provider_id, &input.region)).await?;
    Ok(match made.pop() {
        Some(only) if !several => Provisioned::One(Box::new(only)),
        last => {
            made.extend(last);
            Provisioned::Several(made)
        }
    })
}

fn check_provider(provider: &StoredProvider, input: &VmInput) -> Result<()> {
    if !provider.record.regions.contains(&input.region) {
        let detail = format!("is not a region of this provider, which has {}", provider.record.regions.join(", "));
        return Err(Error::invalid("/region", "unknown_region", detail));
    }
    provider.check_usable()
}

/// No machine is made in another account than that of the machines known here. Where nobody knows the account yet, the order
/// waits: see `worker/operation.rs`.
async fn check_account(tx: &mut Tx, provider: &StoredProvider) -> Result<()> {
    let Some(account) = &provider.account_id else { return Ok(()) };
    match find_mismatch_in_tx(tx, provider.record.id, account).await? {
        Some(AccountMismatch::Named(other)) => Err(Error::conflict(explain_mismatch(account, &other))),
        Some(AccountMismatch::Unproven) | None => Ok(()),
    }
}

/// What the cloud would refuse without being asked.
fn check_specs(tx: &Tx, provider: &StoredProvider, input: &VmInput, specs: &[OperationSpec]) -> Result<()> {
    let Some(spec) = specs.last() else { return Ok(()) };
    let spec = spec.clone().into_machine_spec(OperationId::new(tx.env()), input.user_data.clone());
    let refused = provider.record.kind.check_spec(&spec);
    let to_field = |error: SpecFieldError| FieldError {
        pointer: format!("/{}", error.field),
        code: "refused_by_cloud",
        detail: error.detail,
    };
    if refused.is_empty() { Ok(()) } else { Err(Error::invalid_fields(refused.into_iter().map(to_field).collect())) }
}

async fn insert_order(
    tx: &mut Tx,
    input: &VmInput,
    (provider, spec): (&StoredProvider, OperationSpec),
    secrets: &Secrets,
) -> Result<Vm> {
    let Tick { at, sequence } = tx.tick().await?;
    let tenant = tx.tenant_id().ok_or_else(|| Error::internal("a machine belongs to a tenant"))?;
    let (id, operation) = (VmId::new_numbered(tx.env(), at, sequence), OperationId::new(tx.env()));
    let sealed = match &input.user_data {
        Some(text) => {
            let cell = USER_DATA.cell_for(tenant, operation, USER_DATA_VERSION);
            Some(cell.seal(secrets, &tx.env().random, text.as_bytes())?)
        }
        None => None,
    };
    let record = Vm {
        id,
        details: to_details(input, &spec, Some(operation)),
        deleted_at: None,
        version: 1,
        created_at: at,
        updated_at: at,
    };
    let organization_given = input.organization_id.is_some();
    let stored = StoredVm { record, sequence, organization_given, missing_since: None, terminated_at: None };
    store::insert_vm(tx, &stored).await?;
    let due = tx.env().now();
    let (spec, status) = (to_json(&spec)?, OperationStatus::Accepted.as_str());
    let values = vec![
        operation.into(),
        id.into(),
        input.provider_id.into(),
        input.region.as_str().into(),
        status.into(),
        spec.into(),
        sealed.into(),
        due.into(),
        at.into(),
        // What may be a secret goes to no other account than it was given for. If nobody knows that yet, to none but that of
        // these credentials.
        provider.account_id.as_deref().filter(|_| input.user_data.is_some()).into(),
        (input.user_data.is_some() && provider.account_id.is_none()).then_some(provider.credentials_version).into(),
    ];
    tx.defer_exec(INSERT_OPERATION, values).await?;
    audit::record_entry(tx, NewAuditEntry::new("vm.provision", store::KIND, id)).await?;
    Ok(stored.record)
}

fn to_details(input: &VmInput, spec: &OperationSpec, operation: Option<OperationId>) -> VmDetails {
    let mut tags = spec.tags.clone();
    tags.insert("Name".to_owned(), spec.name.clone());
    if let Some(operation) = operation {
        tags.insert(OPERATION_TAG.to_owned(), operation.to_string());
    }
    VmDetails {
        provider_id: input.provider_id,
        external_id: None,
        name: spec.name.clone(),
        region: spec.region.clone(),
        zone: None,
        size: VmSize { id: spec.size.clone(), ..VmSize::default() },
        image: Some(spec.image.clone()),
        state: MachineState::Provisioning,
        raw_state: String::new(),
        intended_state: Some(MachineState::Running),
        public_ips: Vec::new(),
        private_ips: Vec::new(),
        tags,
        managed: true,
        cost: None,
        organization_id: input.organization_id,
        operation: operation.map(|id| VmOperationState { id, status: OperationStatus::Accepted, error: None }),
        first_seen_at: None,
        last_seen_at: None,
    }
}
