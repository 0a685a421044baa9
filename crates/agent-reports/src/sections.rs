//! A report in the structure of the agents: the sections and fields that are parsed.
//!
//! A section is `None` if the message does not have it: a partial report has only the sections that changed.

use kernel::base::Timestamp;

use super::parts::Software;
use super::text::{
    DECIMAL_MB_BYTES, MIB_BYTES, clean_label, parse_addresses, parse_day_ms, parse_flag, parse_local_time_ms,
    parse_number, parse_size,
};

/// Addresses of one card: enough for a web server with one for each site.
pub const NIC_IPS_MAX: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentInfo {
    pub name: String,
    pub version: Option<String>,
}

impl AgentInfo {
    /// Parses a name with its version: `FusionInventory-Agent_v2.6`.
    pub fn from_label(value: &str) -> Option<Self> {
        let value = clean_label(value)?;
        Some(match value.rsplit_once("_v") {
            Some((name, version)) if !name.is_empty() && version.starts_with(|first: char| first.is_ascii_digit()) => {
                Self { name: name.to_owned(), version: Some(version.to_owned()) }
            }
            _ => Self { name: value, version: None },
        })
    }

    /// Whether it has a name: reports of scans have the version of a module in its place, or the word "missing".
    pub fn has_name(&self) -> bool {
        self.name.chars().any(char::is_alphabetic) && !self.name.eq_ignore_ascii_case("missing")
    }

    pub fn is_ocs(&self) -> bool {
        self.name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("ocs"))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    pub hostname: Option<String>,
    pub uuid: Option<String>,
    pub memory_bytes: Option<i64>,
    pub chassis_type: Option<String>,
    pub vm_system: Option<String>,
    pub last_logged_user: Option<String>,
    pub user_id: Option<String>,
    /// The OCS agent reports the operating system only here.
    pub os_name: Option<String>,
    pub os_version: Option<String>,
    pub os_comments: Option<String>,
    pub processor: Option<String>,
    pub processor_count: Option<i64>,
    pub arch: Option<String>,
    pub default_gateway: Option<String>,
}

impl Hardware {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "name" => self.hostname = clean_label(value),
            "uuid" => self.uuid = clean_label(value),
            "memory" => self.memory_bytes = parse_size(value, MIB_BYTES),
            "chassis_type" => self.chassis_type = clean_label(value),
            "vmsystem" => self.vm_system = clean_label(value),
            "lastloggeduser" => self.last_logged_user = clean_label(value),
            "userid" => self.user_id = clean_label(value),
            "osname" => self.os_name = clean_label(value),
            "osversion" => self.os_version = clean_label(value),
            "oscomments" => self.os_comments = clean_label(value),
            "processort" => self.processor = clean_label(value),
            "processorn" => self.processor_count = parse_number(value),
            "arch" => self.arch = clean_label(value),
            // The OCS agent on Unix sends architecture and uptime here: `x86_64/00-00-00 22:44:18`.
            "description" if self.arch.is_none() => {
                self.arch = value
                    .split_once('/')
                    .filter(|(_, time)| time.contains(':'))
                    .and_then(|(arch, _)| clean_label(arch));
            }
            "defaultgateway" => self.default_gateway = clean_label(value),
            _ => {}
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bios {
    pub serial: Option<String>,
    pub system_manufacturer: Option<String>,
    pub board_manufacturer: Option<String>,
    pub bios_manufacturer: Option<String>,
    pub model: Option<String>,
    pub board_model: Option<String>,
    pub asset_tag: Option<String>,
    /// The chassis as the OCS agent reports it.
    pub chassis_type: Option<String>,
}

impl Bios {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "ssn" => self.serial = clean_label(value),
            "smanufacturer" => self.system_manufacturer = clean_label(value),
            "mmanufacturer" => self.board_manufacturer = clean_label(value),
            "bmanufacturer" => self.bios_manufacturer = clean_label(value),
            "smodel" => self.model = clean_label(value),
            "mmodel" => self.board_model = clean_label(value),
            "assettag" => self.asset_tag = clean_label(value),
            "type" => self.chassis_type = clean_label(value),
            _ => {}
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct OperatingSystem {
    pub name: Option<String>,
    pub full_name: Option<String>,
    pub version: Option<String>,
    pub build: Option<String>,
    pub kernel_name: Option<String>,
    pub kernel_version: Option<String>,
    pub arch: Option<String>,
    pub fqdn: Option<String>,
    pub boot_time: Option<String>,
    pub timezone_offset: Option<String>,
}

impl OperatingSystem {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "name" => self.name = clean_label(value),
            "full_name" => self.full_name = clean_label(value),
            "version" => self.version = clean_label(value),
            "build" => self.build = clean_label(value),
            "kernel_name" => self.kernel_name = clean_label(value),
            "kernel_version" => self.kernel_version = clean_label(value),
            "arch" => self.arch = clean_label(value),
            "fqdn" => self.fqdn = clean_label(value),
            "boot_time" => self.boot_time = clean_label(value),
            _ => {}
        }
    }

    /// Agents send the machine's local time, and its offset from UTC separately.
    pub fn boot_time_ms(&self) -> Option<i64> {
        parse_local_time_ms(self.boot_time.as_deref()?, self.timezone_offset.as_deref())
    }
}

/// One socket.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CpuEntry {
    pub name: Option<String>,
    pub cores: Option<i64>,
    pub arch: Option<String>,
}

impl CpuEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "name" => self.name = clean_label(value),
            "type" if self.name.is_none() => self.name = clean_label(value),
            "core" | "cores" => self.cores = parse_number(value),
            // The OCS agent's name for it; its field `arch` is the family of the instruction set.
            "cpuarch" => self.arch = clean_label(value),
            _ => {}
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct DriveEntry {
    /// On Windows the type of drive, elsewhere the mount point.
    pub kind: Option<String>,
    /// On Windows the volume's label, elsewhere the device.
    pub volume: Option<String>,
    pub letter: Option<String>,
    pub filesystem: Option<String>,
    pub total_bytes: Option<i64>,
    pub free_bytes: Option<i64>,
    pub encryption: Option<String>,
    pub encryption_status: Option<String>,
}

impl DriveEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "type" => self.kind = clean_label(value),
            "volumn" => self.volume = clean_label(value),
            "letter" => self.letter = clean_label(value),
            "filesystem" => self.filesystem = clean_label(value),
            "total" => self.total_bytes = parse_size(value, MIB_BYTES),
            "free" => self.free_bytes = parse_size(value, MIB_BYTES),
            "encrypt_name" => self.encryption = clean_label(value),
            "encrypt_status" => self.encryption_status = clean_label(value),
            _ => {}
        }
    }

    /// `None` where the agent could not find out: BitLocker needs an administrator to tell. "Partially" is not encrypted.
    pub fn is_encrypted(&self) -> Option<bool> {
        match self.encryption_status.as_deref() {
            Some(status) if status.eq_ignore_ascii_case("partially") => Some(false),
            Some(status) => parse_flag(status),
            None => self.encryption.as_ref().map(|_| true),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct DiskEntry {
    pub name: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub kind: Option<String>,
    pub description: Option<String>,
    pub interface: Option<String>,
    pub size_bytes: Option<i64>,
}

impl DiskEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "name" => self.name = clean_label(value),
            "model" => self.model = clean_label(value),
            // Some agents send both, and one of them may be empty.
            "serial" | "serialnumber" => self.serial = clean_label(value).or(self.serial.take()),
            "type" => self.kind = clean_label(value),
            "description" => self.description = clean_label(value),
            "interface" => self.interface = clean_label(value),
            "disksize" => self.size_bytes = parse_size(value, DECIMAL_MB_BYTES),
            _ => {}
        }
    }
}

/// A network card. Agents send one entry for each address; entries of one card are merged.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NicEntry {
    pub name: Option<String>,
    pub mac: Option<String>,
    pub kind: Option<String>,
    pub is_up: Option<bool>,
    pub is_virtual: Option<bool>,
    pub ips: Vec<String>,
    pub gateway: Option<String>,
}

impl NicEntry {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "description" => self.name = clean_label(value),
            "mac" | "macaddr" => self.mac = clean_label(value).map(|mac| mac.to_ascii_lowercase()),
            "type" => self.kind = clean_label(value),
            "status" => self.is_up = clean_label(value).map(|status| status.eq_ignore_ascii_case("up")),
            "virtualdev" => self.is_virtual = parse_flag(value),
            // The OCS agent sends both address families in one field.
            // One address more than allowed is enough to refuse the report.
            "ipaddress" | "ipaddress6" => {
                let room = (NIC_IPS_MAX + 1).saturating_sub(self.ips.len());
                self.ips.extend(parse_addresses(value).take(room));
            }
            "ipgateway" => self.gateway = clean_label(value),
            _ => {}
        }
    }
}

impl Software {
    pub fn set_field(&mut self, field: &str, value: &str) {
        match field {
            "name" => self.name = clean_label(value).unwrap_or_default(),
            "version" => self.version = clean_label(value),
            "publisher" => self.publisher = clean_label(value),
            "arch" | "architecture" => self.arch = clean_label(value),
            "from" => self.source = clean_label(value),
            "installdate" => self.installed_at = parse_day_ms(value).map(Timestamp::from_millis),
            _ => {}
        }
    }

    /// `libc6:amd64` is `libc6`: the OCS agent repeats the architecture in the names of some Debian packages.
    pub fn strip_arch_from_name(&mut self) {
        let Some(arch) = &self.arch else { return };
        if let Some(length) =
            self.name.strip_suffix(arch.as_str()).and_then(|name| name.strip_suffix(':')).map(str::len)
            && length > 0
        {
            self.name.truncate(length);
        }
    }
}
