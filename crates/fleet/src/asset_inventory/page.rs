//! A page of devices, for a list or for a file, which is a sequence of pages.
//!
//! A page ends at its limit or when its bytes are used up. Devices can be large, above all with their software, and a device
//! that does not fit is read again for the next page. So no more devices are searched than are likely to fit.

use kernel::base::Result;
use kernel::http::{PAGE_BYTES_MAX, PageBytes};
use kernel::store::Db;

use super::find::search::{DeviceSearch, FoundDevice};
use super::find::{DeviceOrder, DeviceSortKey, Filter};
use super::shown::{FieldSelection, InventoryDevice};
use super::{DevicePart, store};

/// Devices of the first step when software is included: each may have thousands of packages.
const SOFTWARE_ROWS_FIRST: usize = 8;

/// Devices whose parts are read together: so many of the largest devices fill a response.
const PARTS_ROWS_MAX: usize = 4;

/// The devices to read, and the fields of each.
pub struct DeviceQuery {
    pub filter: Filter,
    pub order: DeviceOrder,
    pub selection: FieldSelection,
}

/// A page of devices.
#[derive(Default)]
pub struct DevicePage {
    pub rows: Vec<InventoryDevice>,
    /// The sort key after which the list continues, if it may.
    pub next: Option<DeviceSortKey>,
    /// Whether a device did not fit.
    is_full: bool,
    budget: PageBytes,
    bytes: usize,
}

impl DeviceQuery {
    /// How many devices are likely to fit on the first page.
    pub fn estimate_first_rows(&self, limit: usize) -> usize {
        if self.selection.include.contains(&DevicePart::Software) { limit.min(SOFTWARE_ROWS_FIRST) } else { limit }
    }

    /// How many devices are likely to fit on the page after this one.
    pub fn estimate_next_rows(&self, page: &DevicePage, limit: usize) -> usize {
        if page.rows.is_empty() {
            self.estimate_first_rows(limit)
        } else {
            page.estimate_rows_in(PAGE_BYTES_MAX).min(limit)
        }
    }

    /// At most `limit` devices after a sort key. The first step searches `likely` devices.
    pub async fn read_page(
        &self,
        db: &Db,
        after: Option<DeviceSortKey>,
        limit: usize,
        likely: usize,
    ) -> Result<DevicePage> {
        let mut search = DeviceSearch::for_filter(db, &self.filter, self.order).await?;
        let (mut page, mut position, mut step) = (DevicePage::default(), after, likely.clamp(1, limit.max(1)));
        loop {
            let (devices, next) = search.load_devices(position, step).await?;
            self.append_devices(db, &mut page, &devices).await?;
            if page.is_full {
                return Ok(page);
            }
            page.next.clone_from(&next);
            let left = limit.saturating_sub(page.rows.len());
            if next.is_none() || left == 0 || !search.has_row_budget() {
                return Ok(page);
            }
            position = next;
            step = page.estimate_rows_in(PAGE_BYTES_MAX.saturating_sub(page.bytes)).min(left);
        }
    }

    /// Appends devices to the page until one does not fit.
    async fn append_devices(&self, db: &Db, page: &mut DevicePage, devices: &[FoundDevice]) -> Result<()> {
        for some in devices.chunks(PARTS_ROWS_MAX) {
            let numbers: Vec<i64> = some.iter().map(|found| found.stored.number).collect();
            let mut parts = store::load_parts(db, &self.selection.include, &numbers).await?;
            for FoundDevice { key, stored } in some {
                let parts = parts.remove(&stored.number).unwrap_or_default();
                let fields = self.selection.fields.clone();
                let row = InventoryDevice { device: stored.device.clone(), parts, history: None, fields };
                if !page.try_append(row) {
                    return Ok(());
                }
                page.next = Some(key.clone());
            }
        }
        Ok(())
    }
}

impl DevicePage {
    fn try_append(&mut self, row: InventoryDevice) -> bool {
        let size = estimate_size_bytes(&row);
        self.is_full = !self.budget.fits_bytes(size);
        if self.is_full {
            return false;
        }
        self.bytes += size;
        self.rows.push(row);
        true
    }

    /// How many devices of average size fit into so many bytes, and one more.
    fn estimate_rows_in(&self, bytes: usize) -> usize {
        let average = self.bytes / self.rows.len().max(1);
        bytes / average.max(1) + 1
    }
}

/// Estimates the bytes of a device: texts are measured, the rest is a constant.
fn estimate_size_bytes(row: &InventoryDevice) -> usize {
    const NAMES: usize = 1_200;
    let device = &row.device;
    let custom = match device.custom_fields.len() {
        0 => 0,
        _ => serde_json::to_string(&device.custom_fields).map_or(0, |text| text.len()),
    };
    let texts = [
        &device.hostname,
        &device.display_name,
        &device.os.name,
        &device.os.version,
        &device.os.build,
        &device.os.kernel,
        &device.os.arch,
        &device.manufacturer,
        &device.model,
        &device.serial_number,
        &device.asset_tag,
        &device.cpu.model,
        &device.firmware,
        &device.last_logged_user,
        &device.agent.name,
        &device.agent.version,
        &device.agent.device_id,
        &device.agent.tag,
    ];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    let tags: usize = device.tags.iter().map(String::len).sum();
    NAMES + texts + custom + tags + row.parts.size_bytes()
}
