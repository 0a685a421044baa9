//! Creates a server.

use kernel::base::Timestamp;
use serde_json::{Map, Value, json};

use super::machines::read_server;
use super::{HetznerAdapter, OPERATION_LABEL, to_label};
use crate::error::RequestEffect;
use crate::spec::{check_common, is_host_name, is_word, refuse_invalid};
use crate::{CloudError, CreatedMachine, MachineSpec, SpecFieldError};

const USER_DATA_BYTES_MAX: usize = 32 * 1_024;

pub async fn create_server(
    adapter: &HetznerAdapter,
    spec: &MachineSpec,
    now: Timestamp,
) -> Result<CreatedMachine, CloudError> {
    refuse_invalid(&check_spec(spec))?;
    let answer = adapter.client.post("/servers", &describe_server(spec), RequestEffect::Create, now).await?;
    // The answer may have a first password, too, which is not read. The currency is what an earlier call has found out:
    // nothing more is asked, because a failure now would hide that the server exists.
    let currency = adapter.currency.get().cloned().flatten();
    let machine = answer.get("server").and_then(|server| read_server(server, currency.as_deref()));
    let machine = machine.ok_or_else(|| adapter.client.unreadable(RequestEffect::Create))?;
    Ok(CreatedMachine::new(machine, spec))
}

pub fn check_spec(spec: &MachineSpec) -> Vec<SpecFieldError> {
    let mut errors = check_common(spec, USER_DATA_BYTES_MAX);
    if !is_host_name(&spec.name) {
        let detail = "must be a host name at Hetzner: letters, digits, - and ., such as web-1.example.com";
        errors.push(SpecFieldError::new("name", detail));
    }
    errors.extend(spec.tags.iter().filter_map(|(key, value)| check_label(key, value)));
    errors
}

fn check_label(key: &str, value: &str) -> Option<SpecFieldError> {
    const OTHERS: &[char] = &['-', '_', '.'];
    let label = to_label(key);
    let (prefix, name) = match label.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let problem = if !is_word(name, 63, OTHERS) {
        "must have 1 to 63 letters, digits, -, _ and . after its prefix, with a letter or digit at both ends"
    } else if prefix.is_some_and(|prefix| !is_host_name(prefix)) {
        "must have a domain name before the slash"
    } else if prefix == Some("hetzner.cloud") {
        "begins with hetzner.cloud/, which Hetzner keeps to itself"
    } else if label == OPERATION_LABEL {
        "is set by the service"
    } else if !value.is_empty() && !is_word(value, 63, OTHERS) {
        "must have a value of at most 63 letters, digits, -, _ and ., with a letter or digit at both ends"
    } else {
        return None;
    };
    Some(SpecFieldError::new("tags", format!("{key:?} {problem}")))
}

fn describe_server(spec: &MachineSpec) -> Value {
    let mut labels: Map<String, Value> = spec.tags.iter().map(|(key, value)| (to_label(key), json!(value))).collect();
    labels.insert(OPERATION_LABEL.to_owned(), json!(spec.operation_id));
    let mut body = json!({
        "name": spec.name,
        "location": spec.region,
        "server_type": spec.size,
        "image": spec.image,
        "labels": labels,
    });
    if !spec.ssh_keys.is_empty() {
        body["ssh_keys"] = json!(spec.ssh_keys);
    }
    if let Some(user_data) = &spec.user_data {
        body["user_data"] = json!(user_data);
    }
    body
}
