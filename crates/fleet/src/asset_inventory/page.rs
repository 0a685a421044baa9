//! A page of devices, for a list or for a file, which is a sequence of pages.
//!
//! A page ends at its limit or when its bytes are used up. Devices can be large, above all with their software, and a device
//! that does not fit is read again for the next page. So no more devices are searched than are likely to fit.

use kernel::base::Result;
use kernel::http::{PAGE_BYTES_MAX, PageBytes};
use kernel::store::Db;

use super::find::search::Search;
use super::find::{Filter, Key};
use super::shown::{Choice, Shown};
use super::{Part, store};
use crate::devices::StoredDevice;

/// Devices of the first step when software is included: each may have thousands of packages.
const FEW: usize = 8;

/// Devices whose parts are read together: so many of the largest devices fill a response.
const TOGETHER: usize = 4;

/// The devices to read, and the fields of each.
pub struct Wanted {
    pub filter: Filter,
    pub choice: Choice,
}

/// A page of devices.
#[derive(Default)]
pub struct Shelf {
    pub rows: Vec<Shown>,
    /// The sort key after which the list continues, if it may.
    pub next: Option<Key>,
    /// Whether a device did not fit.
    is_full: bool,
    room: PageBytes,
    bytes: usize,
}

impl Wanted {
    /// How many devices are likely to fit on the first page.
    pub fn likely(&self, limit: usize) -> usize {
        if self.choice.include.contains(&Part::Software) { limit.min(FEW) } else { limit }
    }

    /// How many devices are likely to fit on the page after this one.
    pub fn likely_behind(&self, shelf: &Shelf, limit: usize) -> usize {
        if shelf.rows.is_empty() { self.likely(limit) } else { shelf.likely_in(PAGE_BYTES_MAX).min(limit) }
    }

    /// At most `limit` devices after a sort key. The first step searches `likely` devices.
    pub async fn page(&self, db: &Db, after: Option<Key>, limit: usize, likely: usize) -> Result<Shelf> {
        let mut search = Search::begin(db, &self.filter).await?;
        let (mut shelf, mut place, mut step) = (Shelf::default(), after, likely.clamp(1, limit.max(1)));
        loop {
            let found = search.find(place, step).await?;
            self.put(db, &mut shelf, &found.devices).await?;
            if shelf.is_full {
                return Ok(shelf);
            }
            shelf.next = found.next;
            let left = limit.saturating_sub(shelf.rows.len());
            if found.next.is_none() || left == 0 || !search.may_go_on() {
                return Ok(shelf);
            }
            place = found.next;
            step = shelf.likely_in(PAGE_BYTES_MAX.saturating_sub(shelf.bytes)).min(left);
        }
    }

    /// Appends devices to the page until one does not fit.
    async fn put(&self, db: &Db, shelf: &mut Shelf, devices: &[StoredDevice]) -> Result<()> {
        for some in devices.chunks(TOGETHER) {
            let numbers: Vec<i64> = some.iter().map(|stored| stored.number).collect();
            let mut parts = store::parts(db, &self.choice.include, &numbers).await?;
            for stored in some {
                let parts = parts.remove(&stored.number).unwrap_or_default();
                let fields = self.choice.fields.clone();
                let row = Shown { device: stored.device.clone(), parts, history: None, fields };
                if !shelf.take(row) {
                    return Ok(());
                }
                shelf.next = Some(self.key(stored));
            }
        }
        Ok(())
    }

    /// The sort key of a device in this list.
    fn key(&self, stored: &StoredDevice) -> Key {
        match self.filter.updated_since {
            Some(_) => Key::of_change(stored),
            None => Key { changed: None, number: stored.number },
        }
    }
}

impl Shelf {
    fn take(&mut self, row: Shown) -> bool {
        let size = about(&row);
        self.is_full = !self.room.fits(size);
        if self.is_full {
            return false;
        }
        self.bytes += size;
        self.rows.push(row);
        true
    }

    /// How many devices of average size fit into so many bytes, and one more.
    fn likely_in(&self, bytes: usize) -> usize {
        let average = self.bytes / self.rows.len().max(1);
        bytes / average.max(1) + 1
    }
}

/// Estimates the bytes of a device: texts are measured, the rest is a constant.
fn about(row: &Shown) -> usize {
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
        &device.last_logged_user,
        &device.agent.name,
        &device.agent.version,
        &device.agent.device_id,
    ];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    let tags: usize = device.tags.iter().map(String::len).sum();
    NAMES + texts + custom + tags + row.parts.bytes()
}
