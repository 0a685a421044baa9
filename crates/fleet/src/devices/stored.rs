//! The columns of devices and of their history, and how rows are read and written.

use kernel::base::{Result, StringEnum};
use kernel::store::{FromRow, Row, Value, to_json};

use super::{
    Cpu, Device, DeviceAgent, DeviceChange, DeviceHealth, DeviceParts, DevicePatch, DeviceStatus, Os, Platform, Type,
    Warranty, WarrantyStatus,
};

kernel::columns! {
    /// All columns of a device; `last_seen_at` and `inventory_at` are in `device_reports`.
    pub struct DeviceRecordColumns in "devices" by id, number {
        id, number, hostname, display_name, r#type = "type", platform, os_name, os_version, os_build, os_kernel,
        os_arch, status, health, organization_id, manufacturer, model, serial_number, asset_tag, uuid, cpu_model,
        cpu_sockets, cpu_cores, memory_bytes, firmware, page_count, primary_ip, primary_mac, last_logged_user, last_boot_at, needs_reboot,
        patch_pending, patch_failed, patch_last_installed_at, warranty_start_date, warranty_end_date, warranty_status,
        agent_name, agent_version, agent_device_id, agent_tag, tags, custom_fields, possible_duplicate_of, first_seen_at,
        deleted_at, version, created_at, updated_at, sequence,
    }
}

kernel::columns! {
    pub struct DeviceChangeColumns in "device_changes" {
        number, version, at, actor_type, actor_id, actor_name, size_bytes, changes,
    }
}

/// The columns of a device, then those of its report row. Only `tenant_id` is in both tables.
pub const DEVICE_LIST: &str = kernel::sql![DeviceRecordColumns::LIST, ", last_seen_at, inventory_at"];
pub const CHANGE_COLUMNS: &str = DeviceChangeColumns::SELECT;

/// A device with the columns that are not public.
#[derive(Clone, Debug)]
pub struct StoredDevice {
    pub device: Device,
    pub number: i64,
    /// The sequence of the last write that changed the device.
    pub sequence: i64,
}

impl FromRow for StoredDevice {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: DeviceRecordColumns<usize> = DeviceRecordColumns::AT;
        let text = |index: usize| row.get::<String>(index);
        let device = kernel::read_record!(row, DeviceRecordColumns => Device {
            id, hostname, display_name, organization_id, manufacturer, model, serial_number, asset_tag, uuid,
            memory_bytes, firmware, page_count, primary_ip, primary_mac, last_logged_user, last_boot_at, needs_reboot, possible_duplicate_of,
            first_seen_at, deleted_at, version, created_at, updated_at;
            r#type: Type::from_stored(&text(AT.r#type)?)?,
            platform: Platform::from_stored(&text(AT.platform)?)?,
            os: Os {
                name: row.get(AT.os_name)?,
                version: row.get(AT.os_version)?,
                build: row.get(AT.os_build)?,
                kernel: row.get(AT.os_kernel)?,
                arch: row.get(AT.os_arch)?,
            },
            status: DeviceStatus::from_stored(&text(AT.status)?)?,
            health: DeviceHealth::from_stored(&text(AT.health)?)?,
            cpu: Cpu {
                model: row.get(AT.cpu_model)?,
                sockets: row.get(AT.cpu_sockets)?,
                cores: row.get(AT.cpu_cores)?,
            },
            patch: DevicePatch {
                pending: row.get(AT.patch_pending)?,
                failed: row.get(AT.patch_failed)?,
                last_installed_at: row.get(AT.patch_last_installed_at)?,
            },
            warranty: Warranty {
                start_date: row.get(AT.warranty_start_date)?,
                end_date: row.get(AT.warranty_end_date)?,
                status: WarrantyStatus::from_stored(&text(AT.warranty_status)?)?,
            },
            agent: DeviceAgent {
                name: row.get(AT.agent_name)?,
                version: row.get(AT.agent_version)?,
                device_id: row.get(AT.agent_device_id)?,
                tag: row.get(AT.agent_tag)?,
            },
            tags: row.get_json(AT.tags)?,
            custom_fields: row.get_json(AT.custom_fields)?,
            last_seen_at: row.get(AT.sequence + 1)?,
            inventory_at: row.get(AT.sequence + 2)?,
        });
        Ok(StoredDevice { device, number: row.get(AT.number)?, sequence: row.get(AT.sequence)? })
    }
}

impl StoredDevice {
    /// All columns, for INSERT and UPDATE.
    pub fn to_values(&self) -> Result<Vec<Value>> {
        let device = &self.device;
        let row = DeviceRecordColumns {
            id: device.id.into(),
            number: self.number.into(),
            hostname: device.hostname.as_deref().into(),
            display_name: device.display_name.as_deref().into(),
            r#type: device.r#type.as_str().into(),
            platform: device.platform.as_str().into(),
            os_name: device.os.name.as_deref().into(),
            os_version: device.os.version.as_deref().into(),
            os_build: device.os.build.as_deref().into(),
            os_kernel: device.os.kernel.as_deref().into(),
            os_arch: device.os.arch.as_deref().into(),
            status: device.status.as_str().into(),
            health: device.health.as_str().into(),
            organization_id: device.organization_id.into(),
            manufacturer: device.manufacturer.as_deref().into(),
            model: device.model.as_deref().into(),
            serial_number: device.serial_number.as_deref().into(),
            asset_tag: device.asset_tag.as_deref().into(),
            uuid: device.uuid.as_deref().into(),
            cpu_model: device.cpu.model.as_deref().into(),
            cpu_sockets: device.cpu.sockets.into(),
            cpu_cores: device.cpu.cores.into(),
            memory_bytes: device.memory_bytes.into(),
            firmware: device.firmware.as_deref().into(),
            page_count: device.page_count.into(),
            primary_ip: device.primary_ip.as_deref().into(),
            primary_mac: device.primary_mac.as_deref().into(),
            last_logged_user: device.last_logged_user.as_deref().into(),
            last_boot_at: device.last_boot_at.into(),
            needs_reboot: device.needs_reboot.into(),
            patch_pending: device.patch.pending.into(),
            patch_failed: device.patch.failed.into(),
            patch_last_installed_at: device.patch.last_installed_at.into(),
            warranty_start_date: device.warranty.start_date.as_deref().into(),
            warranty_end_date: device.warranty.end_date.as_deref().into(),
            warranty_status: device.warranty.status.as_str().into(),
            agent_name: device.agent.name.as_deref().into(),
            agent_version: device.agent.version.as_deref().into(),
            agent_device_id: device.agent.device_id.as_deref().into(),
            agent_tag: device.agent.tag.as_deref().into(),
            tags: to_json(&device.tags)?.into(),
            custom_fields: to_json(&device.custom_fields)?.into(),
            possible_duplicate_of: device.possible_duplicate_of.into(),
            first_seen_at: device.first_seen_at.into(),
            deleted_at: device.deleted_at.into(),
            version: device.version.into(),
            created_at: device.created_at.into(),
            updated_at: device.updated_at.into(),
            sequence: self.sequence.into(),
        };
        Ok(row.into_vec())
    }
}

/// The columns are disks, volumes, nics, software, ports and supplies, in this order.
impl FromRow for DeviceParts {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(DeviceParts {
            disks: row.get_json(0)?,
            volumes: row.get_json(1)?,
            nics: row.get_json(2)?,
            software: row.get_json(3)?,
            ports: row.get_json(4)?,
            supplies: row.get_json(5)?,
        })
    }
}

impl FromRow for DeviceChange {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: DeviceChangeColumns<usize> = DeviceChangeColumns::AT;
        Ok(DeviceChange {
            at: row.get(AT.at)?,
            actor: row.get_actor([AT.actor_type, AT.actor_id, AT.actor_name])?,
            changes: row.get_json(AT.changes)?,
        })
    }
}

/// A number of rows as a limit of a statement.
pub fn row_limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
