//! What clouds offer, kept for a while: every page of a catalog is read from the whole of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use clouds::{CatalogItem, CatalogKind};
use kernel::base::{MINUTE_MS, TenantId, Timestamp, lock_unpoisoned};
use serde::Serialize;
use utoipa::ToSchema;

use super::ProviderId;
use crate::cloud_text::clean_text;
use crate::vms::VmCost;

/// One thing that a cloud offers. The last four are null unless it is a size.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = CloudCatalogItem, example = json!({
    "id": "t3.micro", "name": "t3.micro", "vcpus": 2, "memory_bytes": 1_073_741_824, "disk_bytes": null, "cost": null
}))]
pub struct CatalogEntry {
    pub id: String,
    pub name: String,
    #[schema(required)]
    pub vcpus: Option<i64>,
    #[schema(required)]
    pub memory_bytes: Option<i64>,
    #[schema(required)]
    pub disk_bytes: Option<i64>,
    /// What it costs by the cloud's list; null where the cloud does not tell.
    #[schema(required)]
    pub cost: Option<VmCost>,
}

/// The longest id of a size or an image that an order takes, and the longest name.
const TEXT_CHARS_MAX: usize = 200;

impl From<CatalogItem> for CatalogEntry {
    fn from(item: CatalogItem) -> Self {
        let CatalogItem { id, name, vcpus, memory_bytes, disk_bytes, cost } = item;
        let cost = cost.map(|cost| VmCost { amount: cost.amount, currency: cost.currency, period: cost.period });
        CatalogEntry { id, name: clean_text(&name, TEXT_CHARS_MAX), vcpus, memory_bytes, disk_bytes, cost }
    }
}

impl CatalogEntry {
    /// Whether an order can name it.
    pub fn has_usable_id(&self) -> bool {
        !self.id.is_empty() && self.id == clean_text(&self.id, TEXT_CHARS_MAX)
    }
}

/// How long a catalog is kept: every page of it is read from the whole.
const KEPT_MS: i64 = 5 * MINUTE_MS;
const KEPT_MAX: usize = 200;
/// No tenant takes the place of others.
const KEPT_OF_TENANT_MAX: usize = 20;

/// Which catalog: of a provider with these credentials, and of a region.
pub type CatalogKey = (TenantId, ProviderId, i64, CatalogKind, Option<String>);
/// A catalog, and since when it is kept.
type KeptCatalog = (Timestamp, Arc<Vec<CatalogEntry>>);

/// The catalogs that a node keeps.
#[derive(Default)]
pub struct CatalogCache(Mutex<HashMap<CatalogKey, KeptCatalog>>);

impl CatalogCache {
    pub fn find_kept(&self, key: &CatalogKey, now: Timestamp) -> Option<Arc<Vec<CatalogEntry>>> {
        let kept = lock_unpoisoned(&self.0);
        kept.get(key).filter(|(since, _)| is_fresh(*since, now)).map(|(_, entries)| entries.clone())
    }

    pub fn keep(&self, key: &CatalogKey, entries: Arc<Vec<CatalogEntry>>, now: Timestamp) {
        let mut kept = lock_unpoisoned(&self.0);
        kept.retain(|_, (since, _)| is_fresh(*since, now));
        kept.insert(key.clone(), (now, entries));
        if kept.keys().filter(|known| known.0 == key.0).count() > KEPT_OF_TENANT_MAX {
            forget_oldest(&mut kept, |known| known.0 == key.0 && known != key);
        }
        if kept.len() > KEPT_MAX {
            forget_oldest(&mut kept, |known| known != key);
        }
    }
}

fn forget_oldest(kept: &mut HashMap<CatalogKey, KeptCatalog>, may_go: impl Fn(&CatalogKey) -> bool) {
    let candidates = kept.iter().filter(|(known, _)| may_go(known));
    if let Some(oldest) = candidates.min_by_key(|(_, (since, _))| *since).map(|(known, _)| known.clone()) {
        kept.remove(&oldest);
    }
}

/// A clock that was set back makes nothing last longer.
fn is_fresh(since: Timestamp, now: Timestamp) -> bool {
    (0..KEPT_MS).contains(&(now.as_millis() - since.as_millis()))
}
