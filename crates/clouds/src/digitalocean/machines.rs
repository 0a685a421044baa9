//! Droplets as machines.

use kernel::base::Timestamp;
use serde_json::Value;

use super::CURRENCY;
use super::tags::{operation_word, read_tags};
use crate::error::RequestEffect;
use crate::json::{GIB, MIB, find_amount, find_bytes, find_count, find_text, list_values};
use crate::rest::{RestClient, read_page_cursor};
use crate::spec::check_operation_id;
use crate::{
    CloudError, CloudErrorKind, CloudKind, Machine, MachineCost, MachinePage, MachineSize, MachineState, OPERATION_TAG,
};

/// The most that DigitalOcean gives at once.
const PAGE_SIZE: &str = "200";

/// Droplets with GPUs are a list of their own, which is read after that of all others.
const GPU_CURSOR: &str = "gpus:";

pub async fn list_page(
    client: &RestClient,
    region: Option<&str>,
    cursor: Option<&str>,
    now: Timestamp,
) -> Result<MachinePage, CloudError> {
    let gpu_cursor = cursor.and_then(|cursor| cursor.strip_prefix(GPU_CURSOR));
    let page = read_page_cursor(gpu_cursor.or(cursor))?;
    let number = page.to_string();
    let mut query = vec![("per_page", PAGE_SIZE), ("page", number.as_str())];
    if gpu_cursor.is_some() {
        query.push(("type", "gpus"));
    }
    let (mut machines, next_page) = load_page(client, &query, page, now).await?;
    if let Some(region) = region {
        machines.retain(|machine| machine.region == region);
    }
    let next_cursor = match (next_page, gpu_cursor) {
        (Some(page), None) => Some(page.to_string()),
        (None, None) => Some(format!("{GPU_CURSOR}1")),
        (Some(page), Some(_)) => Some(format!("{GPU_CURSOR}{page}")),
        (None, Some(_)) => None,
    };
    Ok(MachinePage { machines, next_cursor })
}

pub async fn find_droplet(
    client: &RestClient,
    external_id: &str,
    now: Timestamp,
) -> Result<Option<Machine>, CloudError> {
    if !CloudKind::Digitalocean.is_machine_id(external_id) {
        return Err(CloudError::invalid("The id of a droplet is a number."));
    }
    let answer = match client.get(&format!("/droplets/{external_id}"), &[], now).await {
        Ok(answer) => answer,
        Err(error) if error.kind == CloudErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let droplet = answer.get("droplet").and_then(read_droplet);
    droplet.map(Some).ok_or_else(|| client.unreadable(RequestEffect::Read))
}

pub async fn find_by_operation(
    client: &RestClient,
    operation_id: &str,
    now: Timestamp,
) -> Result<Vec<Machine>, CloudError> {
    check_operation_id(operation_id)?;
    let tag = operation_word(operation_id);
    let query = [("per_page", PAGE_SIZE), ("tag_name", tag.as_str())];
    let (machines, _) = load_page(client, &query, 1, now).await?;
    Ok(machines.into_iter().filter(|machine| machine.operation_id.as_deref() == Some(operation_id)).collect())
}

async fn load_page(
    client: &RestClient,
    query: &[(&str, &str)],
    page: i64,
    now: Timestamp,
) -> Result<(Vec<Machine>, Option<i64>), CloudError> {
    let answer = client.get("/droplets", query, now).await?;
    let next_page = client.find_next_page(&answer, "droplets", page)?;
    let machines: Option<Vec<Machine>> = list_values(&answer, &["droplets"]).map(read_droplet).collect();
    let machines = machines.ok_or_else(|| client.unreadable(RequestEffect::Read))?;
    Ok((machines, next_page))
}

/// `None` without an id, a status or a region, which every droplet has.
pub fn read_droplet(droplet: &Value) -> Option<Machine> {
    let raw_state = find_text(droplet, &["status"])?.to_owned();
    let tags = read_tags(list_values(droplet, &["tags"]).filter_map(Value::as_str));
    let addresses = |kind: &str| {
        let all = ["v4", "v6"].into_iter().flat_map(|version| list_values(droplet, &["networks", version]));
        let of_kind = all.filter(|network| find_text(network, &["type"]) == Some(kind));
        of_kind.filter_map(|network| find_text(network, &["ip_address"]).map(str::to_owned)).collect()
    };
    let image = find_text(droplet, &["image", "slug"])
        .map(str::to_owned)
        .or_else(|| find_count(droplet, &["image", "id"]).map(|id| id.to_string()));
    let price = find_amount(droplet, &["size", "price_monthly"]);
    Some(Machine {
        external_id: find_count(droplet, &["id"])?.to_string(),
        name: find_text(droplet, &["name"]).map(str::to_owned),
        region: find_text(droplet, &["region", "slug"])?.to_owned(),
        zone: None,
        size: read_size(droplet),
        image,
        state: to_state(&raw_state),
        raw_state,
        state_reason: None,
        public_ips: addresses("public"),
        private_ips: addresses("private"),
        operation_id: tags.get(OPERATION_TAG).cloned(),
        tags,
        cost: price.map(|amount| MachineCost::new_monthly(amount, CURRENCY)),
    })
}

fn read_size(droplet: &Value) -> MachineSize {
    let id = find_text(droplet, &["size_slug"]).or_else(|| find_text(droplet, &["size", "slug"]));
    MachineSize {
        id: id.unwrap_or_default().to_owned(),
        vcpus: find_count(droplet, &["vcpus"]),
        memory_bytes: find_bytes(droplet, &["memory"], MIB),
        disk_bytes: find_bytes(droplet, &["disk"], GIB),
    }
}

fn to_state(raw_state: &str) -> MachineState {
    match raw_state {
        "new" => MachineState::Provisioning,
        "active" => MachineState::Running,
        "off" => MachineState::Stopped,
        "archive" => MachineState::Suspended,
        _ => MachineState::Unknown,
    }
}
