//! Processors and memory of instance types, which instances themselves do not tell.
//!
//! Types are looked up once in the life of an adapter: what a type has never changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use kernel::base::{Timestamp, lock_unpoisoned};

use super::client::AwsClient;
use super::query::{AwsCall, read_answer};
use super::xml::XmlElement;
use crate::{CloudError, CloudErrorKind, Machine, MachineSize};

/// AWS accepts 200 values in a filter.
const TYPES_AT_ONCE_MAX: usize = 100;
/// Filters are applied after paging, so a page may be empty and not the last.
const PAGES_MAX: usize = 20;

/// `None` for a type that AWS does not tell about.
#[derive(Default)]
pub struct InstanceTypes(Mutex<BTreeMap<String, Option<MachineSize>>>);

impl InstanceTypes {
    /// Fills in what is known, without asking AWS.
    pub fn fill_known(&self, machine: &mut Machine) {
        let known = lock_unpoisoned(&self.0);
        if let Some(Some(size)) = known.get(&machine.size.id) {
            machine.size.vcpus = machine.size.vcpus.or(size.vcpus);
            machine.size.memory_bytes = size.memory_bytes;
        }
    }

    /// Fills in all machines. Types that were not seen yet are looked up; where that is denied, they stay unknown.
    pub async fn fill(
        &self,
        client: &AwsClient,
        region: &str,
        machines: &mut [Machine],
        now: Timestamp,
    ) -> Result<(), CloudError> {
        let unseen: Vec<String> = {
            let known = lock_unpoisoned(&self.0);
            let wanted: BTreeSet<&String> = machines.iter().map(|machine| &machine.size.id).collect();
            wanted.into_iter().filter(|id| !known.contains_key(*id)).cloned().collect()
        };
        for ids in unseen.chunks(TYPES_AT_ONCE_MAX) {
            let found = match load_types(client, region, ids, now).await {
                Ok(found) => found,
                // These pass. A size that comes and goes with them would be a change of every machine.
                Err(error) if error.kind == CloudErrorKind::Auth || error.kind.is_passing() => return Err(error),
                Err(_) => BTreeMap::new(),
            };
            let mut known = lock_unpoisoned(&self.0);
            for id in ids {
                known.insert(id.clone(), found.get(id).cloned());
            }
        }
        for machine in machines {
            self.fill_known(machine);
        }
        Ok(())
    }
}

async fn load_types(
    client: &AwsClient,
    region: &str,
    ids: &[String],
    now: Timestamp,
) -> Result<BTreeMap<String, MachineSize>, CloudError> {
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut found = BTreeMap::new();
    let mut token: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let call = AwsCall::ec2(region, "DescribeInstanceTypes")
            .param("MaxResults", "100")
            .filter("instance-type", &ids)
            .optional("NextToken", token.as_deref());
        let response = client.send(&call, now).await?;
        let root = read_answer(&response, &call, &["instanceTypeSet", "item"], |item| {
            if let Some(size) = read_size(&item) {
                found.insert(size.id.clone(), size);
            }
        })?;
        token = root.find_text(&["nextToken"]).map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Disks are those that come with the type. Most types have none, and instances get volumes instead.
pub fn read_size(item: &XmlElement<'_>) -> Option<MachineSize> {
    const MIB: i64 = 1_048_576;
    const GB: i64 = 1_000_000_000;
    let bytes = |path: &[&str], unit: i64| item.find_number(path).and_then(|amount| amount.checked_mul(unit));
    Some(MachineSize {
        id: item.find_text(&["instanceType"])?.to_owned(),
        vcpus: item.find_number(&["vCpuInfo", "defaultVCpus"]),
        memory_bytes: bytes(&["memoryInfo", "sizeInMiB"], MIB),
        disk_bytes: bytes(&["instanceStorageInfo", "totalSizeInGB"], GB),
    })
}
