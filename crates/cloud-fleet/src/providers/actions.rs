//! Workflow actions on providers.

use feature_kit::{Action, ActionEffect, Lookup};
use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::{Error, Result};
use kernel::http::{App, BodyFields, FromBody, read_object};
use kernel::store::Db;
use serde_json::{Map, Value, json};

use super::ProviderId;
use super::store::get_provider;
use super::verify::store::verify_provider;

pub const ACTIONS: &[Action] = &[Action {
    name: "provider.verify",
    about: "Verifies the credentials of a cloud provider, and says what they may do.",
    needs: &[Scope::CloudWrite],
    example: || json!({"provider_id": "${{ event.data.id }}"}),
    check: |with| read_object::<VerifyInput>(with).without_value(),
    effect: ActionEffect::Lookup(Lookup {
        is_available: |app| !app.outbound.is_holding(),
        find: verify_for_step,
        preview: Some(preview_for_step),
    }),
}];

struct VerifyInput(ProviderId);

impl FromBody for VerifyInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        fields.read_required("provider_id", |field| field.read_id()).map(VerifyInput)
    }
}

fn verify_for_step<'t>(
    app: &'t App,
    db: &'t Db,
    _: &'t Rights,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (VerifyInput(id), _) = read_object::<VerifyInput>(with).into_result()?;
        serde_json::to_value(verify_provider(app, db, id).await?).map_err(Error::internal)
    })
}

/// A dry run sends nothing: it shows the last verification.
fn preview_for_step<'t>(
    _: &'t App,
    db: &'t Db,
    _: &'t Rights,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (VerifyInput(id), _) = read_object::<VerifyInput>(with).into_result()?;
        let provider = get_provider(db, id).await?;
        match provider.verification {
            Some(report) => serde_json::to_value(report).map_err(Error::internal),
            None => Ok(json!({"status": provider.status, "checks": []})),
        }
    })
}
