//! The fields of a device that `fields` may name, and their columns in a CSV file.

use kernel::base::StringEnum;
use kernel::http::{CsvLine, RowEncoding};

use super::DevicePart;
use super::shown::{FieldSelection, InventoryDevice};
use crate::devices::Device;

/// A column of a file: the field it belongs to, its name, and how its value is written.
type InventoryColumn = (&'static str, &'static str, fn(&Device, &mut CsvLine<'_>));

/// In the order of the record.
const COLUMNS: &[InventoryColumn] = &[
    ("id", "id", |device, line| line.push_plain(Some(device.id))),
    ("hostname", "hostname", |device, line| line.push_optional(device.hostname.as_deref())),
    ("display_name", "display_name", |device, line| line.push_optional(device.display_name.as_deref())),
    ("type", "type", |device, line| line.push_plain(Some(device.r#type.as_str()))),
    ("platform", "platform", |device, line| line.push_plain(Some(device.platform.as_str()))),
    ("os", "os.name", |device, line| line.push_optional(device.os.name.as_deref())),
    ("os", "os.version", |device, line| line.push_optional(device.os.version.as_deref())),
    ("os", "os.build", |device, line| line.push_optional(device.os.build.as_deref())),
    ("os", "os.kernel", |device, line| line.push_optional(device.os.kernel.as_deref())),
    ("os", "os.arch", |device, line| line.push_optional(device.os.arch.as_deref())),
    ("status", "status", |device, line| line.push_plain(Some(device.status.as_str()))),
    ("health", "health", |device, line| line.push_plain(Some(device.health.as_str()))),
    ("organization_id", "organization_id", |device, line| line.push_plain(device.organization_id)),
    ("manufacturer", "manufacturer", |device, line| line.push_optional(device.manufacturer.as_deref())),
    ("model", "model", |device, line| line.push_optional(device.model.as_deref())),
    ("serial_number", "serial_number", |device, line| line.push_optional(device.serial_number.as_deref())),
    ("asset_tag", "asset_tag", |device, line| line.push_optional(device.asset_tag.as_deref())),
    ("uuid", "uuid", |device, line| line.push_optional(device.uuid.as_deref())),
    ("cpu", "cpu.model", |device, line| line.push_optional(device.cpu.model.as_deref())),
    ("cpu", "cpu.sockets", |device, line| line.push_plain(device.cpu.sockets)),
    ("cpu", "cpu.cores", |device, line| line.push_plain(device.cpu.cores)),
    ("memory_bytes", "memory_bytes", |device, line| line.push_plain(device.memory_bytes)),
    ("firmware", "firmware", |device, line| line.push_optional(device.firmware.as_deref())),
    ("page_count", "page_count", |device, line| line.push_plain(device.page_count)),
    ("primary_ip", "primary_ip", |device, line| line.push_optional(device.primary_ip.as_deref())),
    ("primary_mac", "primary_mac", |device, line| line.push_optional(device.primary_mac.as_deref())),
    ("last_logged_user", "last_logged_user", |device, line| line.push_optional(device.last_logged_user.as_deref())),
    ("last_boot_at", "last_boot_at", |device, line| line.push_plain(device.last_boot_at)),
    ("needs_reboot", "needs_reboot", |device, line| line.push_plain(device.needs_reboot)),
    ("patch", "patch.pending", |device, line| line.push_plain(device.patch.pending)),
    ("patch", "patch.failed", |device, line| line.push_plain(device.patch.failed)),
    ("patch", "patch.last_installed_at", |device, line| line.push_plain(device.patch.last_installed_at)),
    ("warranty", "warranty.start_date", |device, line| line.push_optional(device.warranty.start_date.as_deref())),
    ("warranty", "warranty.end_date", |device, line| line.push_optional(device.warranty.end_date.as_deref())),
    ("warranty", "warranty.status", |device, line| line.push_plain(Some(device.warranty.status.as_str()))),
    ("agent", "agent.name", |device, line| line.push_optional(device.agent.name.as_deref())),
    ("agent", "agent.version", |device, line| line.push_optional(device.agent.version.as_deref())),
    ("agent", "agent.device_id", |device, line| line.push_optional(device.agent.device_id.as_deref())),
    ("agent", "agent.tag", |device, line| line.push_optional(device.agent.tag.as_deref())),
    ("tags", "tags", |device, line| line.push_text(&device.tags.join(","))),
    ("custom_fields", "custom_fields", |device, line| {
        line.push_json(&serde_json::to_string(&device.custom_fields).unwrap_or_default());
    }),
    ("possible_duplicate_of", "possible_duplicate_of", |device, line| line.push_plain(device.possible_duplicate_of)),
    ("first_seen_at", "first_seen_at", |device, line| line.push_plain(device.first_seen_at)),
    ("last_seen_at", "last_seen_at", |device, line| line.push_plain(device.last_seen_at)),
    ("inventory_at", "inventory_at", |device, line| line.push_plain(device.inventory_at)),
    ("deleted_at", "deleted_at", |device, line| line.push_plain(device.deleted_at)),
    ("version", "version", |device, line| line.push_plain(Some(device.version))),
    ("created_at", "created_at", |device, line| line.push_plain(Some(device.created_at))),
    ("updated_at", "updated_at", |device, line| line.push_plain(Some(device.updated_at))),
];

/// The field with this name.
pub fn find_field(name: &str) -> Option<&'static str> {
    COLUMNS.iter().map(|(field, ..)| *field).find(|field| *field == name)
}

/// One line per device; lists are JSON in one field.
pub fn csv_encoding(choice: &FieldSelection) -> RowEncoding<InventoryDevice> {
    let is_chosen = |field: &str| choice.fields.as_ref().is_none_or(|fields| fields.contains(&field));
    let chosen: Vec<InventoryColumn> = COLUMNS.iter().filter(|(field, ..)| is_chosen(field)).copied().collect();
    let lists: Vec<&'static str> = choice.include.iter().map(|part: &DevicePart| part.as_str()).collect();
    let columns = chosen.iter().map(|(_, name, _)| *name).chain(lists.iter().copied()).map(Into::into).collect();
    let write = move |shown: &InventoryDevice, line: &mut CsvLine<'_>| {
        for (_, _, write) in &chosen {
            write(&shown.device, line);
        }
        for list in &lists {
            line.push_json(shown.parts.find_part(list).unwrap_or("[]"));
        }
    };
    RowEncoding::Csv { columns, write: Box::new(write) }
}
