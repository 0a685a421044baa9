//! `/api/backup/config`

use feature_kit::registry;
use fleet::devices::DeviceId;
use kernel::auth::Scope;
use kernel::base::{Code, Error, RecordId, Result};
use kernel::http::{
    Access, Api, FromParams, Idempotency, IfMatch, Json, Params, QueryParam, QueryString, RatePolicy, Rules, Versioned,
};
use kernel::operations;
use kernel::rules;
use people::organizations::OrganizationId;

use super::input::BackupConfigInput;
use super::{BackupConfig, ConfigOwner, store};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(get_config, replace_config))
        .add_refusals("get_backup_config", &[Code::NotFound])
        .add_refusals("replace_backup_config", &[Code::NotFound, Code::VersionMismatch])
        .add_schema::<super::UpdatedBackupConfig>()
}

const PATH: &str = "/api/backup/config";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::BackupRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::BackupWrite]);
}

impl FromParams for ConfigOwner {
    fn from_params(params: &mut Params) -> Result<Self> {
        let organization = QueryParam::new("organization_id", "The policy of this organization.");
        let device =
            QueryParam::new("device_id", "The policy of this device. Without either, the policy of the tenant.");
        let organization: Option<OrganizationId> = params.take_parsed(organization, |text| Ok(parse_id(text)))?;
        let device: Option<DeviceId> = params.take_parsed(device, |text| Ok(parse_id(text)))?;
        match (organization, device) {
            (None, None) => Ok(ConfigOwner::Tenant),
            (Some(id), None) => Ok(ConfigOwner::Organization(id)),
            (None, Some(id)) => Ok(ConfigOwner::Device(id)),
            (Some(_), Some(_)) => {
                let detail = "Give organization_id or device_id, not both: a policy is of one of them.";
                Err(Error::new(Code::InvalidParameter, detail))
            }
        }
    }
}

/// A malformed id is one that no record has.
fn parse_id<I: RecordId>(text: &str) -> I {
    text.parse().unwrap_or(I::NONE)
}

/// Read a backup policy
///
/// Of the tenant; with `organization_id` of an organization; with `device_id` of a device. `effective` is what is in force,
/// `sources` says which level each field comes from, and `set` what this level sets itself.
#[utoipa::path(
    get, path = PATH, tag = "Recovery", operation_id = "get_backup_config", params(QueryString<ConfigOwner>)
)]
pub async fn get_config(caller: Access<Reading>, query: QueryString<ConfigOwner>) -> Result<Versioned<BackupConfig>> {
    let db = caller.db();
    let owner = query.parse()?;
    store::read_config(&db, owner).await.map(Versioned)
}

/// Replace what a level of the backup policy sets
///
/// What is omitted is inherited from the level above; objects and lists are inherited whole. Fields that contradict each other
/// or what is inherited are 422: a schedule that cannot meet the RPO, a retention shorter than the RPO, `immutable_days` of a
/// target that is not immutable. So is a change that levels below would contradict with what they set themselves.
#[utoipa::path(
    put, path = PATH, tag = "Recovery", operation_id = "replace_backup_config", params(QueryString<ConfigOwner>),
    request_body = super::input::BackupConfigBody
)]
pub async fn replace_config(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<ConfigOwner>,
    body: Json<BackupConfigInput>,
) -> Result<Versioned<BackupConfig>> {
    let db = caller.db();
    let owner = query.parse()?;
    let body = body.read_referring(&db, &registry().referable).await?;
    idempotency.check_key()?;
    let (grant, input, named) = (caller.grant(), body.value, body.references);
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::replace_config(tx, owner, &if_match, input, &named).await
    })
    .await
    .map(Versioned)
}
