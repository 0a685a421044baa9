//! Workflow actions on devices.

use feature_kit::{Action, ActionEffect};
use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::{Error, Label, Result, Secrets};
use kernel::http::{BodyField, BodyFields, FromBody, read_object};
use kernel::store::Tx;
use serde_json::{Map, Value, json};

use super::super::{DeviceId, edit_device};

/// The same limit as for tickets.
pub const TAGS_MAX: usize = 50;

pub const ACTIONS: &[Action] = &[Action {
    name: "device.tag",
    about: "Adds tags to a device, and takes others away.",
    // No route changes a device, so reading devices and saving workflows is enough to tag them.
    needs: &[Scope::InventoryRead],
    example: || json!({"device_id": "${{ event.data.id }}", "add": ["needs-attention"], "remove": ["new"]}),
    check: |with| read_object::<TagDeviceInput>(with).without_value(),
    effect: ActionEffect::Transaction(tag_device),
}];

struct TagDeviceInput {
    device_id: DeviceId,
    add: Vec<String>,
    remove: Vec<String>,
}

impl FromBody for TagDeviceInput {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let device_id = fields.read_required("device_id", |field| field.read_id());
        let add = fields.read_optional("add", read_tags);
        let remove = fields.read_optional("remove", read_tags);
        let (add, remove) = (add?.unwrap_or_default(), remove?.unwrap_or_default());
        if add.is_empty() && remove.is_empty() {
            fields.report_field("add", "required", "needs a tag to add, or one to remove in remove");
            return None;
        }
        Some(TagDeviceInput { device_id: device_id?, add, remove })
    }
}

fn read_tags(field: &mut BodyField<'_>) -> Option<Vec<String>> {
    field.read_list(TAGS_MAX, |field| field.read_parsed("invalid_text", parse_tag))
}

/// A label without commas: filters take tags as a comma list.
pub fn parse_tag(text: &str) -> Result<String, String> {
    let label = Label::parse(text)?.into_string();
    if label.contains(',') {
        return Err("must not contain a comma, which separates one tag from the next in filters".to_owned());
    }
    Ok(label)
}

/// Removes tags from a device, then adds others.
pub fn change_tags(tags: &mut Vec<String>, add: &[String], remove: &[String]) -> Result<()> {
    tags.retain(|tag| !remove.contains(tag));
    for tag in add {
        if !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
    if tags.len() > TAGS_MAX && !add.is_empty() {
        return Err(Error::invalid("/add", "too_many", format!("a device has at most {TAGS_MAX} tags")));
    }
    Ok(())
}

fn tag_device<'t>(
    tx: &'t mut Tx,
    _: &'t Rights,
    _: &'t Secrets,
    with: Map<String, Value>,
) -> BoxFuture<'t, Result<Value>> {
    Box::pin(async move {
        let (TagDeviceInput { device_id, add, remove }, _) = read_object::<TagDeviceInput>(with).into_result()?;
        let device = edit_device(tx, device_id, |full| change_tags(&mut full.device.tags, &add, &remove)).await?;
        serde_json::to_value(device).map_err(Error::internal)
    })
}
