//! Servers as machines.

use std::collections::BTreeMap;

use kernel::base::Timestamp;
use serde_json::Value;

use super::{HetznerAdapter, OPERATION_LABEL, from_label};
use crate::error::RequestEffect;
use crate::json::{GB, GIB, find_amount, find_bytes, find_count, find_text, find_value, list_values};
use crate::rest::read_page_cursor;
use crate::spec::check_operation_id;
use crate::{
    CloudError, CloudErrorKind, CloudKind, Machine, MachineCost, MachinePage, MachineSize, MachineState, OPERATION_TAG,
};

/// The most that Hetzner gives at once.
const PAGE_SIZE: &str = "50";

pub async fn list_page(
    adapter: &HetznerAdapter,
    region: Option<&str>,
    cursor: Option<&str>,
    now: Timestamp,
) -> Result<MachinePage, CloudError> {
    let page = read_page_cursor(cursor)?;
    let number = page.to_string();
    // In the order of ids a server that is deleted meanwhile can hide another from a walk, but not one that is created.
    let query = [("per_page", PAGE_SIZE), ("sort", "id:asc"), ("page", number.as_str())];
    let (mut machines, next_page) = load_page(adapter, &query, page, now).await?;
    if let Some(region) = region {
        machines.retain(|machine| machine.region == region);
    }
    Ok(MachinePage { machines, next_cursor: next_page.map(|page| page.to_string()) })
}

pub async fn find_server(
    adapter: &HetznerAdapter,
    external_id: &str,
    now: Timestamp,
) -> Result<Option<Machine>, CloudError> {
    if !CloudKind::Hetzner.is_machine_id(external_id) {
        return Err(CloudError::invalid("The id of a server at Hetzner is a number."));
    }
    let currency = load_currency(adapter, now).await?;
    let answer = match adapter.client.get(&format!("/servers/{external_id}"), &[], now).await {
        Ok(answer) => answer,
        Err(error) if error.kind == CloudErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let server = answer.get("server").and_then(|server| read_server(server, currency.as_deref()));
    server.map(Some).ok_or_else(|| adapter.client.unreadable(RequestEffect::Read))
}

pub async fn find_by_operation(
    adapter: &HetznerAdapter,
    operation_id: &str,
    now: Timestamp,
) -> Result<Vec<Machine>, CloudError> {
    check_operation_id(operation_id)?;
    let selector = format!("{OPERATION_LABEL}=={operation_id}");
    let query = [("per_page", PAGE_SIZE), ("label_selector", selector.as_str())];
    let (machines, _) = load_page(adapter, &query, 1, now).await?;
    Ok(machines.into_iter().filter(|machine| machine.operation_id.as_deref() == Some(operation_id)).collect())
}

async fn load_page(
    adapter: &HetznerAdapter,
    query: &[(&str, &str)],
    page: i64,
    now: Timestamp,
) -> Result<(Vec<Machine>, Option<i64>), CloudError> {
    let currency = load_currency(adapter, now).await?;
    let answer = adapter.client.get("/servers", query, now).await?;
    let next_page = adapter.client.find_next_page(&answer, "servers", page)?;
    let machines: Option<Vec<Machine>> =
        list_values(&answer, &["servers"]).map(|server| read_server(server, currency.as_deref())).collect();
    let machines = machines.ok_or_else(|| adapter.client.unreadable(RequestEffect::Read))?;
    Ok((machines, next_page))
}

/// The currency of all prices, which are told without one. Machines have no cost where the API does not tell it; a failure
/// that passes is returned, because costs that come and go with it would be a change of every machine.
pub async fn load_currency(adapter: &HetznerAdapter, now: Timestamp) -> Result<Option<String>, CloudError> {
    use CloudErrorKind::{Invalid, NotFound, Permission};
    if let Some(currency) = adapter.currency.get() {
        return Ok(currency.clone());
    }
    let currency = match adapter.client.get("/pricing", &[], now).await {
        Ok(answer) => find_text(&answer, &["pricing", "currency"]).map(str::to_owned),
        Err(error) if matches!(error.kind, Permission | NotFound | Invalid) => None,
        Err(error) => return Err(error),
    };
    Ok(adapter.currency.get_or_init(|| currency).clone())
}

/// `None` without an id, a status or a location, which every server has.
pub fn read_server(server: &Value, currency: Option<&str>) -> Option<Machine> {
    let raw_state = find_text(server, &["status"])?.to_owned();
    // Servers had a data center, which had the location, until Hetzner removed data centers in July 2026.
    let region = find_text(server, &["location", "name"])
        .or_else(|| find_text(server, &["datacenter", "location", "name"]))?
        .to_owned();
    let tags = read_labels(server);
    let image = find_text(server, &["image", "name"])
        .map(str::to_owned)
        .or_else(|| find_count(server, &["image", "id"]).map(|id| id.to_string()));
    Some(Machine {
        external_id: find_count(server, &["id"])?.to_string(),
        name: find_text(server, &["name"]).map(str::to_owned),
        zone: find_text(server, &["datacenter", "name"]).map(str::to_owned),
        size: read_size(server),
        image,
        state: to_state(&raw_state),
        raw_state,
        state_reason: None,
        public_ips: [["public_net", "ipv4", "ip"], ["public_net", "ipv6", "ip"]]
            .iter()
            .filter_map(|path| find_text(server, path).map(str::to_owned))
            .collect(),
        private_ips: list_values(server, &["private_net"])
            .filter_map(|network| find_text(network, &["ip"]).map(str::to_owned))
            .collect(),
        operation_id: tags.get(OPERATION_TAG).cloned(),
        tags,
        cost: find_value(server, &["server_type"]).and_then(|kind| read_cost(kind, &region, currency?)),
        region,
    })
}

/// A server that was resized may have kept a smaller disk than its type has.
fn read_size(server: &Value) -> MachineSize {
    let kind = find_value(server, &["server_type"]).unwrap_or(&Value::Null);
    MachineSize {
        id: find_text(kind, &["name"]).unwrap_or_default().to_owned(),
        vcpus: find_count(kind, &["cores"]),
        memory_bytes: find_bytes(kind, &["memory"], GIB),
        disk_bytes: find_bytes(server, &["primary_disk_size"], GB).or_else(|| find_bytes(kind, &["disk"], GB)),
    }
}

/// The price of the server type alone, without VAT: addresses and backups are billed on top.
pub fn read_cost(server_type: &Value, region: &str, currency: &str) -> Option<MachineCost> {
    let price = list_values(server_type, &["prices"]).find(|price| find_text(price, &["location"]) == Some(region))?;
    find_amount(price, &["price_monthly", "net"]).map(|amount| MachineCost::new_monthly(amount, currency))
}

/// A server that migrates may be off, as while its type is changed, or run: its state is not known until it has migrated.
fn to_state(raw_state: &str) -> MachineState {
    match raw_state {
        "initializing" | "rebuilding" => MachineState::Provisioning,
        "starting" => MachineState::Starting,
        "running" => MachineState::Running,
        "stopping" => MachineState::Stopping,
        "off" => MachineState::Stopped,
        "deleting" => MachineState::Terminating,
        _ => MachineState::Unknown,
    }
}

fn read_labels(server: &Value) -> BTreeMap<String, String> {
    let labels = find_value(server, &["labels"]).and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels.filter_map(|(key, value)| Some((from_label(key), value.as_str()?.to_owned()))).collect()
}
