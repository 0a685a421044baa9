//! Workflow actions on machines. They take the same bodies and give the same answers as the routes.

use feature_kit::{Action, ActionEffect};
use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::{FieldError, Result, Secrets};
use kernel::http::{ParsedObject, read_object};
use kernel::store::Tx;
use serde_json::{Map, Value, json};

use super::super::input::VmInput;
use super::super::provision::store::provision;
use super::super::routes::to_json_answer;

pub const ACTIONS: &[Action] = &[Action {
    name: "vm.provision",
    about: "Orders machines. The step succeeds when the order is stored; `vm.provisioned` tells when a machine runs.",
    needs: &[Scope::CloudWrite],
    example: || {
        json!({"provider_id": "${{ input.provider_id }}", "name": "${{ input.name }}", "region": "eu-central-1",
            "size": "t3.micro", "image": "ami-0abcdef1234567890"})
    },
    check: check_order,
    effect: ActionEffect::Transaction(provision_for_step),
}];

/// Definitions and runs are shown to more people than may see what a machine is started with.
fn check_order(with: Map<String, Value>) -> ParsedObject<()> {
    let has_user_data = with.contains_key("user_data");
    let mut checked = read_object::<VmInput>(with).without_value();
    if has_user_data {
        let detail =
            "cannot be given in a workflow, which shows it; use an image that fetches what it needs".to_owned();
        checked.errors.push(FieldError { pointer: "/user_data".to_owned(), code: "not_allowed", detail });
    }
    checked
}

fn provision_for_step<'t>(
    tx: &'t mut Tx,
    _: &'t Rights,
    secrets: &'t Secrets,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (input, references) = read_object::<VmInput>(with).into_result()?;
        to_json_answer(&provision(tx, input, &references, secrets).await?)
    })
}
