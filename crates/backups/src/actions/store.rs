//! Workflow actions on backups. They take the same bodies and give the same answers as the routes.

use feature_kit::{Action, ActionEffect};
use fleet::devices::DeviceId;
use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::{Error, RecordId, Result, Secrets};
use kernel::http::{BodyFields, FromBody, IfMatch, read_object};
use kernel::store::Tx;
use people::organizations::OrganizationId;
use serde_json::{Map, Value, json};

use crate::config::ConfigOwner;
use crate::config::input::BackupConfigInput;
use crate::config::store::replace_config;
use crate::posture::pending::store::refresh_organization;
use crate::posture::shown::store::get_posture;
use crate::posture::store::PostureUpdate;

pub const ACTIONS: &[Action] = &[
    Action {
        name: "backup.set_config",
        about: "Sets the backup policy of an organization (`organization_id`), a device (`device_id`), or the tenant, as PUT does.",
        needs: &[Scope::BackupWrite],
        example: || json!({"organization_id": "${{ input.organization_id }}", "rpo_hours": {"server": 12, "workstation": 72}}),
        check: |with| read_object::<SetConfigInput>(with).without_value(),
        effect: ActionEffect::Transaction(set_config),
    },
    Action {
        name: "backup.check",
        about: "How the backups of an organization stand now, as a row of the customer aggregate; without `organization_id`, of the \
                devices that belong to none.",
        needs: &[Scope::BackupRead],
        example: || json!({"organization_id": "${{ input.organization_id }}"}),
        check: |with| read_object::<CheckInput>(with).without_value(),
        effect: ActionEffect::Transaction(check_backups),
    },
];

/// The body of PUT with its parameters.
struct SetConfigInput {
    owner: ConfigOwner,
    config: BackupConfigInput,
}

impl FromBody for SetConfigInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        // Null is refused: a name that was misspelt in an expression would set the policy of everybody.
        let organization: Option<Option<OrganizationId>> =
            fields.read_optional("organization_id", |field| field.read_id());
        let device: Option<Option<DeviceId>> = fields.read_optional("device_id", |field| field.read_id());
        if organization.flatten().is_some() && device.flatten().is_some() {
            fields.report_field("device_id", "conflict", "cannot be given beside organization_id");
        }
        let config = BackupConfigInput::from_fields(fields);
        let owner = match (organization?, device?) {
            (Some(id), _) => ConfigOwner::Organization(id),
            (None, Some(id)) => ConfigOwner::Device(id),
            (None, None) => ConfigOwner::Tenant,
        };
        Some(SetConfigInput { owner, config: config? })
    }
}

struct CheckInput {
    organization_id: Option<OrganizationId>,
}

impl FromBody for CheckInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let organization_id =
            fields.read_optional("organization_id", |field| field.read_or_null(|field| field.read_id()))?;
        Some(CheckInput { organization_id: organization_id.flatten() })
    }
}

fn set_config<'t>(
    tx: &'t mut Tx,
    _: &'t Rights,
    _: &'t Secrets,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (input, named) = read_object::<SetConfigInput>(with).into_result()?;
        let config = replace_config(tx, input.owner, &IfMatch::default(), input.config, &named).await?;
        serde_json::to_value(config).map_err(Error::internal)
    })
}

fn check_backups<'t>(
    tx: &'t mut Tx,
    _: &'t Rights,
    _: &'t Secrets,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (input, _) = read_object::<CheckInput>(with).into_result()?;
        let id = input.organization_id.unwrap_or(OrganizationId::NONE);
        let mut update = PostureUpdate::begin(tx).await?;
        refresh_organization(tx, &mut update, id).await?;
        update.save(tx).await?;
        let posture = get_posture(tx, id).await?.ok_or_else(Error::not_found)?;
        serde_json::to_value(posture).map_err(Error::internal)
    })
}
