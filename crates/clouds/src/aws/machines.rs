//! Instances as machines.

use std::collections::BTreeMap;

use kernel::base::Timestamp;

use super::query::{AwsCall, read_answer};
use super::xml::XmlElement;
use super::{AwsAdapter, CLOUD};
use crate::error::RequestEffect;
use crate::message::clean_message;
use crate::spec::check_operation_id;
use crate::{CloudError, CloudErrorKind, Machine, MachinePage, MachineSize, MachineState, OPERATION_TAG};

/// AWS gives up to 1,000 at once, which with many tags, disks and interfaces are 20 MB. While one page is saved, the next is on its
/// way from other regions.
const PAGE_SIZE: &str = "200";
/// Filters are applied after paging, so a page may be empty and not the last.
const FILTERED_PAGES_MAX: usize = 50;

pub async fn list_page(
    adapter: &AwsAdapter,
    region: Option<&str>,
    cursor: Option<&str>,
    now: Timestamp,
) -> Result<MachinePage, CloudError> {
    let Some(region) = region else { return Err(CloudError::invalid("AWS lists the machines of one region.")) };
    let call = AwsCall::ec2(region, "DescribeInstances").param("MaxResults", PAGE_SIZE).optional("NextToken", cursor);
    let mut page = read_page(adapter, &call, now).await?;
    if page.next_cursor.is_some() && page.next_cursor.as_deref() == cursor {
        return Err(CloudError::unreadable(CLOUD, 200, RequestEffect::Read));
    }
    adapter.instance_types.fill(&adapter.client, region, &mut page.machines, now).await?;
    Ok(page)
}

pub async fn find_instance(
    adapter: &AwsAdapter,
    region: &str,
    external_id: &str,
    now: Timestamp,
) -> Result<Option<Machine>, CloudError> {
    let call = AwsCall::ec2(region, "DescribeInstances").param("InstanceId.1", external_id);
    let mut machines = match read_page(adapter, &call, now).await {
        Ok(page) => page.machines,
        Err(error) if error.kind == CloudErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    machines.retain(|machine| machine.external_id == external_id);
    adapter.instance_types.fill(&adapter.client, region, &mut machines, now).await?;
    Ok(machines.pop())
}

pub async fn find_by_operation(
    adapter: &AwsAdapter,
    region: &str,
    operation_id: &str,
    now: Timestamp,
) -> Result<Vec<Machine>, CloudError> {
    check_operation_id(operation_id)?;
    let mut machines = Vec::new();
    let mut token: Option<String> = None;
    for _ in 0..FILTERED_PAGES_MAX {
        let call = AwsCall::ec2(region, "DescribeInstances")
            .filter(&format!("tag:{OPERATION_TAG}"), &[operation_id])
            .optional("NextToken", token.as_deref());
        let page = read_page(adapter, &call, now).await?;
        machines.extend(page.machines);
        token = page.next_cursor;
        if token.is_none() {
            machines.retain(|machine| machine.operation_id.as_deref() == Some(operation_id));
            adapter.instance_types.fill(&adapter.client, region, &mut machines, now).await?;
            return Ok(machines);
        }
    }
    // A search that did not reach its end must not look like one that found nothing.
    Err(CloudError::unreadable(CLOUD, 200, RequestEffect::Read))
}

/// Instances come in reservations, the groups in which they were launched.
async fn read_page(adapter: &AwsAdapter, call: &AwsCall<'_>, now: Timestamp) -> Result<MachinePage, CloudError> {
    let response = adapter.client.send(call, now).await?;
    let mut machines = Vec::new();
    let mut is_whole = true;
    let root =
        read_answer(&response, call, &["reservationSet", "item", "instancesSet", "item"], |item| match read_instance(
            &item,
            call.region,
        ) {
            Some(machine) => machines.push(machine),
            None => is_whole = false,
        })?;
    if !is_whole || root.find(&["reservationSet"]).is_none() {
        return Err(CloudError::unreadable(CLOUD, response.status, call.effect));
    }
    Ok(MachinePage { machines, next_cursor: root.find_text(&["nextToken"]).map(str::to_owned) })
}

/// `None` without an id or a state, which every instance has.
pub fn read_instance(item: &XmlElement<'_>, region: &str) -> Option<Machine> {
    let raw_state = item.find_text(&["instanceState", "name"])?.to_owned();
    let cores = item.find_number(&["cpuOptions", "coreCount"]);
    let threads = item.find_number(&["cpuOptions", "threadsPerCore"]);
    let vcpus = cores.zip(threads).and_then(|(cores, threads)| cores.checked_mul(threads));
    let size_id = item.find_text(&["instanceType"]).unwrap_or_default().to_owned();
    let tags = read_tags(item);
    let (public_ips, private_ips) = read_addresses(item);
    Some(Machine {
        external_id: item.find_text(&["instanceId"])?.to_owned(),
        name: tags.get("Name").filter(|name| !name.is_empty()).cloned(),
        region: region.to_owned(),
        zone: item.find_text(&["placement", "availabilityZone"]).map(str::to_owned),
        size: MachineSize { id: size_id, vcpus: vcpus.filter(|vcpus| *vcpus > 0), ..MachineSize::default() },
        image: item.find_text(&["imageId"]).map(str::to_owned),
        state: to_state(&raw_state),
        raw_state,
        state_reason: item.find_text(&["stateReason", "message"]).map(|message| clean_message(message, &[])),
        public_ips,
        private_ips,
        operation_id: tags.get(OPERATION_TAG).cloned(),
        tags,
        cost: None,
    })
}

fn to_state(raw_state: &str) -> MachineState {
    match raw_state {
        "pending" => MachineState::Provisioning,
        "running" => MachineState::Running,
        "stopping" => MachineState::Stopping,
        "stopped" => MachineState::Stopped,
        "shutting-down" => MachineState::Terminating,
        "terminated" => MachineState::Terminated,
        _ => MachineState::Unknown,
    }
}

fn read_tags(item: &XmlElement<'_>) -> BTreeMap<String, String> {
    let tags = item.list_items(&["tagSet"]);
    tags.filter_map(|tag| {
        let key = tag.find_text(&["key"])?.to_owned();
        Some((key, tag.find_text(&["value"]).unwrap_or_default().to_owned()))
    })
    .collect()
}

/// Public and private addresses of all interfaces, the first of the instance before the others. Those of IPv6 can be
/// reached from outside, unless the network forbids it.
fn read_addresses(item: &XmlElement<'_>) -> (Vec<String>, Vec<String>) {
    let (mut public_ips, mut private_ips) = (Vec::new(), Vec::new());
    let add = |ips: &mut Vec<String>, ip: Option<&str>| {
        if let Some(ip) = ip.filter(|ip| !ips.iter().any(|known| known == ip)) {
            ips.push(ip.to_owned());
        }
    };
    add(&mut public_ips, item.find_text(&["ipAddress"]));
    add(&mut private_ips, item.find_text(&["privateIpAddress"]));
    for interface in item.list_items(&["networkInterfaceSet"]) {
        for address in interface.list_items(&["privateIpAddressesSet"]) {
            add(&mut private_ips, address.find_text(&["privateIpAddress"]));
            add(&mut public_ips, address.find_text(&["association", "publicIp"]));
        }
        for address in interface.list_items(&["ipv6AddressesSet"]) {
            add(&mut public_ips, address.find_text(&["ipv6Address"]));
        }
    }
    (public_ips, private_ips)
}
