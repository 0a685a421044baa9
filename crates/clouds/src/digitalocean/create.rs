//! Creates a droplet.

use kernel::base::Timestamp;
use serde_json::{Value, json};

use super::machines::read_droplet;
use super::tags::{check_tag, operation_word, to_word};
use crate::error::RequestEffect;
use crate::rest::RestClient;
use crate::spec::{check_common, is_host_name, refuse_invalid};
use crate::{CloudError, CreatedMachine, MachineSpec, SpecFieldError};

const USER_DATA_BYTES_MAX: usize = 64 * 1_024;

pub async fn create_droplet(
    client: &RestClient,
    spec: &MachineSpec,
    now: Timestamp,
) -> Result<CreatedMachine, CloudError> {
    refuse_invalid(&check_spec(spec))?;
    let answer = client.post("/droplets", &describe_droplet(spec), RequestEffect::Create, now).await?;
    let machine = answer.get("droplet").and_then(read_droplet);
    let machine = machine.ok_or_else(|| client.unreadable(RequestEffect::Create))?;
    Ok(CreatedMachine::new(machine, spec))
}

pub fn check_spec(spec: &MachineSpec) -> Vec<SpecFieldError> {
    let mut errors = check_common(spec, USER_DATA_BYTES_MAX);
    if !is_host_name(&spec.name) {
        let detail = "must be a host name at DigitalOcean: letters, digits, - and ., such as web-1.example.com";
        errors.push(SpecFieldError::new("name", detail));
    }
    errors.extend(spec.tags.iter().filter_map(|(key, value)| check_tag(key, value)));
    errors
}

fn describe_droplet(spec: &MachineSpec) -> Value {
    let mut tags = vec![operation_word(&spec.operation_id)];
    tags.extend(spec.tags.iter().map(|(key, value)| to_word(key, value)));
    let mut body = json!({
        "name": spec.name,
        "region": spec.region,
        "size": spec.size,
        "image": to_reference(&spec.image),
        "tags": tags,
    });
    if !spec.ssh_keys.is_empty() {
        body["ssh_keys"] = spec.ssh_keys.iter().map(|key| to_reference(key)).collect();
    }
    if let Some(user_data) = &spec.user_data {
        body["user_data"] = json!(user_data);
    }
    body
}

/// Ids are numbers in JSON; slugs and fingerprints are texts.
fn to_reference(text: &str) -> Value {
    let is_id = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u64>().ok().filter(|_| is_id).map_or_else(|| json!(text), |id| json!(id))
}
