//! Assembles a report from the sections and fields that the XML and JSON parsers read.

use super::device_type::is_esx_host;
use super::message::AgentMessage;
use super::refusal::ReportRefusal;
use super::report::AgentReport;
use super::scanned::{ScanCollector, ScanSection, ScannedDevice};
use super::sections::{AgentInfo, NIC_IPS_MAX};
use super::text::{LABEL_BYTES_MAX, clean_label};

/// Ten times the packages of a large workstation. A report with more is broken or hostile.
pub const SOFTWARE_MAX: usize = 10_000;
/// Enough for a storage server with several shelves.
pub const DISKS_MAX: usize = 500;
/// Enough for a container host, which mounts one for each container.
pub const VOLUMES_MAX: usize = 1_000;
/// Entries, one for each address: enough for a container host with one for each container.
pub const NICS_MAX: usize = 1_000;
/// Sockets; virtual machines may present every core as one.
pub const CPUS_MAX: usize = 1_000;

/// Devices that one message of a scan may describe. Agents send four at most.
pub const SCANNED_MAX: usize = 500;

/// Bytes of all texts of a report: ten times those of a large machine.
pub const TEXT_BYTES_MAX: usize = 8 << 20;

/// Twice the longest known name of a section or field.
const NAME_BYTES_MAX: usize = 32;

/// Characters of an unknown query name that errors repeat.
const QUERY_CHARS_MAX: usize = 100;

/// The sections that are parsed. All others are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportSection {
    AccountInfo,
    Hardware,
    Bios,
    OperatingSystem,
    /// Nested in the operating system.
    TimeZone,
    Cpus,
    Drives,
    Storages,
    Networks,
    Softwares,
    /// Of a device that the agent scanned.
    Scan(ScanSection),
}

impl ReportSection {
    /// The section with this lower-case name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "accountinfo" => Self::AccountInfo,
            "hardware" => Self::Hardware,
            "bios" => Self::Bios,
            "operatingsystem" => Self::OperatingSystem,
            "cpus" => Self::Cpus,
            "drives" => Self::Drives,
            "storages" => Self::Storages,
            "networks" => Self::Networks,
            "softwares" => Self::Softwares,
            _ => return ScanSection::from_name(name).map(Self::Scan),
        })
    }

    /// The section nested in a field of this one.
    pub fn nested_section(self, field: &str) -> Option<Self> {
        match (self, field) {
            (Self::OperatingSystem, "timezone") => Some(Self::TimeZone),
            (Self::Scan(ScanSection::Ports), "vlans") => Some(Self::Scan(ScanSection::Vlans)),
            _ => None,
        }
    }

    /// Whether a nested section may be a list.
    pub fn is_nested_list(self) -> bool {
        self == Self::Scan(ScanSection::Vlans)
    }
}

/// The name of a section or field in lower case, without an allocation: a report has twenty thousand of them. A name longer
/// than any known one becomes empty.
#[derive(Clone, Copy)]
pub struct LowercaseName {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl LowercaseName {
    pub fn new(name: &str) -> Self {
        let mut bytes = [0; NAME_BYTES_MAX];
        let Some(start) = bytes.get_mut(..name.len()) else { return Self { bytes, length: 0 } };
        start.copy_from_slice(name.as_bytes());
        start.make_ascii_lowercase();
        Self { bytes, length: name.len() }
    }

    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// The message under construction, which the parsers fill.
#[derive(Default)]
pub struct ReportCollector {
    pub query: Option<String>,
    pub device_id: Option<String>,
    pub has_content: bool,
    pub report: AgentReport,
    /// Network entries read. The report has fewer, because entries of one card are merged.
    nic_entries: usize,
    text_bytes: usize,
    account_key: Option<String>,
    account_value: Option<String>,
    /// The scanned device that is being read.
    scan: Option<Box<ScanCollector>>,
    scanned: Vec<ScannedDevice>,
    /// Whether there is a device that the agent scanned, whatever the message calls itself.
    has_scanned: bool,
    /// Whether the message may tell of the scan itself: that it begins, goes on or ends.
    pub has_progress: bool,
}

impl ReportCollector {
    /// Begins a scanned device.
    pub fn begin_device(&mut self) -> Result<(), ReportRefusal> {
        self.check_text_bytes()?;
        if self.scanned.len() >= SCANNED_MAX {
            return Err(too_many_refusal(SCANNED_MAX, "scanned devices"));
        }
        self.has_scanned = true;
        self.scan = Some(Box::default());
        Ok(())
    }

    /// Ends a scanned device. Volumes that were read within it are its own.
    pub fn end_device(&mut self) {
        if let Some(scan) = self.scan.take() {
            let mut device = scan.device;
            device.volumes = self.report.volumes.take();
            self.scanned.push(device);
        }
    }

    /// The scanned device that is being read. JSON does not say where it begins.
    pub fn scan(&mut self) -> &mut ScanCollector {
        self.scan.get_or_insert_default()
    }

    fn check_text_bytes(&self) -> Result<(), ReportRefusal> {
        if self.text_bytes > TEXT_BYTES_MAX {
            return Err(ReportRefusal::too_many(format!("The report has more than {TEXT_BYTES_MAX} bytes of text.")));
        }
        Ok(())
    }

    /// Marks a section as present, even if it has no entries.
    pub fn open_section(&mut self, section: ReportSection) {
        let report = &mut self.report;
        match section {
            ReportSection::AccountInfo | ReportSection::TimeZone => {}
            ReportSection::Hardware => _ = report.hardware.get_or_insert_default(),
            ReportSection::Bios => _ = report.bios.get_or_insert_default(),
            ReportSection::OperatingSystem => _ = report.os.get_or_insert_default(),
            ReportSection::Cpus => _ = report.cpus.get_or_insert_default(),
            ReportSection::Drives => _ = report.volumes.get_or_insert_default(),
            ReportSection::Storages => _ = report.disks.get_or_insert_default(),
            ReportSection::Networks => _ = report.nics.get_or_insert_default(),
            ReportSection::Softwares => _ = report.software.get_or_insert_default(),
            ReportSection::Scan(section) => {
                self.has_scanned |= section == ScanSection::Device;
                self.scan().open_section(section);
            }
        }
    }

    /// Begins an entry of a section.
    pub fn open_entry(&mut self, section: ReportSection) -> Result<(), ReportRefusal> {
        self.open_section(section);
        self.check_text_bytes()?;
        let report = &mut self.report;
        match section {
            ReportSection::Cpus => push_entry(&mut report.cpus, CPUS_MAX, "processors"),
            ReportSection::Drives => push_entry(&mut report.volumes, VOLUMES_MAX, "volumes"),
            ReportSection::Storages => push_entry(&mut report.disks, DISKS_MAX, "disks"),
            ReportSection::Softwares => push_entry(&mut report.software, SOFTWARE_MAX, "software"),
            ReportSection::Networks => {
                self.nic_entries += 1;
                if self.nic_entries > NICS_MAX {
                    return Err(too_many_refusal(NICS_MAX, "network cards"));
                }
                push_entry(&mut report.nics, NICS_MAX, "network cards")
            }
            ReportSection::Scan(section) => {
                self.scan().open_entry(section);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sets a field of the entry that was opened last.
    pub fn set_field(&mut self, section: ReportSection, field: &str, value: &str) {
        // Longer values are cut.
        self.text_bytes += value.len().min(LABEL_BYTES_MAX);
        let report = &mut self.report;
        match section {
            ReportSection::AccountInfo => match field {
                "keyname" => self.account_key = clean_label(value),
                "keyvalue" => self.account_value = clean_label(value),
                _ => {}
            },
            ReportSection::Hardware => report.hardware.get_or_insert_default().set_field(field, value),
            ReportSection::Bios => report.bios.get_or_insert_default().set_field(field, value),
            ReportSection::OperatingSystem => report.os.get_or_insert_default().set_field(field, value),
            ReportSection::TimeZone if field == "offset" => {
                report.os.get_or_insert_default().timezone_offset = clean_label(value);
            }
            ReportSection::TimeZone => {}
            ReportSection::Cpus => update_last_entry(&mut report.cpus, |entry| entry.set_field(field, value)),
            ReportSection::Drives => update_last_entry(&mut report.volumes, |entry| entry.set_field(field, value)),
            ReportSection::Storages => update_last_entry(&mut report.disks, |entry| entry.set_field(field, value)),
            ReportSection::Networks => update_last_entry(&mut report.nics, |entry| entry.set_field(field, value)),
            ReportSection::Softwares => update_last_entry(&mut report.software, |entry| entry.set_field(field, value)),
            ReportSection::Scan(section) => self.scan().set_field(section, field, value),
        }
    }

    /// Ends an entry.
    pub fn close_entry(&mut self, section: ReportSection) -> Result<(), ReportRefusal> {
        match section {
            ReportSection::AccountInfo => {
                let value = self.account_value.take();
                if self.account_key.take().is_some_and(|key| key.eq_ignore_ascii_case("tag")) {
                    self.report.tag = value;
                }
            }
            ReportSection::Networks => return self.merge_nic(),
            ReportSection::Scan(section) => self.scan().close_entry(section),
            ReportSection::Softwares => {
                let Some(entries) = &mut self.report.software else { return Ok(()) };
                // Software without a name cannot be searched.
                entries.pop_if(|entry| entry.name.is_empty());
                if let Some(entry) = entries.last_mut() {
                    entry.strip_arch_from_name();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Merges the last network entry into an earlier entry of the same card, if there is one.
    fn merge_nic(&mut self) -> Result<(), ReportRefusal> {
        let Some(nics) = &mut self.report.nics else { return Ok(()) };
        let Some(last) = nics.pop() else { return Ok(()) };
        let is_known = last.name.is_some() || last.mac.is_some();
        let earlier = nics.iter_mut().find(|nic| is_known && nic.name == last.name && nic.mac == last.mac);
        let address_count = if let Some(nic) = earlier {
            for ip in last.ips {
                if !nic.ips.contains(&ip) {
                    nic.ips.push(ip);
                }
            }
            nic.gateway = nic.gateway.take().or(last.gateway);
            nic.kind = nic.kind.take().or(last.kind);
            nic.is_up = nic.is_up.or(last.is_up);
            nic.ips.len()
        } else {
            let count = last.ips.len();
            nics.push(last);
            count
        };
        if address_count > NIC_IPS_MAX {
            return Err(too_many_refusal(NIC_IPS_MAX, "addresses of one network card"));
        }
        Ok(())
    }

    pub fn set_agent(&mut self, value: &str) {
        self.report.agent = AgentInfo::from_label(value);
    }

    /// Completes the message. Only now is everything known: its parts come in any order.
    pub fn into_message(mut self) -> Result<AgentMessage, ReportRefusal> {
        let Some(query) = self.query.take() else {
            return Err(ReportRefusal::malformed("The message does not say what it is: QUERY or action is missing."));
        };
        let is_query = |name: &str| query.eq_ignore_ascii_case(name);
        let is_contact = is_query("prolog") || is_query("contact");
        let is_discovery = is_query("netdiscovery");
        let is_scan = is_discovery || ["netinventory", "snmpquery", "snmp"].into_iter().any(is_query);
        if is_scan || (is_query("inventory") && self.has_scanned) {
            return self.into_scan(&query, is_discovery);
        }
        if !is_contact && !is_query("inventory") {
            return Ok(other_message(&query));
        }
        let Some(device_id) = self.device_id else {
            return Err(ReportRefusal::malformed("The message has no device id."));
        };
        if is_contact {
            return Ok(AgentMessage::Contact { device_id });
        }
        if !self.has_content {
            return Err(ReportRefusal::malformed("The inventory has no content."));
        }
        let device_id = Some(device_id).filter(|_| !is_esx_host(&self.report));
        Ok(AgentMessage::Inventory(Box::new(AgentReport { device_id, ..self.report })))
    }

    /// Completes the message of a scan. Messages that only tell that a scan begins, goes on or ends have no devices.
    fn into_scan(mut self, query: &str, is_discovery: bool) -> Result<AgentMessage, ReportRefusal> {
        if !self.has_content {
            return Err(ReportRefusal::malformed("The inventory has no content."));
        }
        // The OCS agent calls something else `SNMP`, which is not read.
        if !self.has_scanned && !self.has_progress {
            return Ok(other_message(query));
        }
        // In XML each device has ended; what stands beside them is of none.
        if self.scanned.is_empty() {
            self.end_device();
        }
        let ReportCollector { report, mut scanned, .. } = self;
        scanned.retain(|device| !device.has_failed && *device != ScannedDevice::default());
        // An address that answers is all that a discovery may find. An inventory that does not say of what it is, is wrong;
        // the others in the message are not.
        let has_devices = !scanned.is_empty();
        scanned.retain(ScannedDevice::is_recognizable);
        if has_devices && scanned.is_empty() && !is_discovery {
            let detail = "A scanned device has no serial number, name or hardware address to be recognized by.";
            return Err(ReportRefusal::malformed(detail));
        }
        // Agents send disks beside the device, and one device at a time then.
        let mut disks = report.disks.filter(|_| scanned.len() == 1);
        let agent = report.agent.filter(AgentInfo::has_name);
        let reports = scanned.into_iter().map(|mut scanned| AgentReport {
            tag: report.tag.clone(),
            item_type: report.item_type.clone(),
            partial: report.partial || is_discovery,
            agent: agent.clone(),
            volumes: scanned.volumes.take(),
            disks: disks.take(),
            scanned: Some(Box::new(scanned)),
            ..AgentReport::default()
        });
        Ok(AgentMessage::Scan(reports.collect()))
    }
}

fn other_message(query: &str) -> AgentMessage {
    AgentMessage::Other(query.chars().take(QUERY_CHARS_MAX).collect())
}

fn push_entry<T: Default>(entries: &mut Option<Vec<T>>, entries_max: usize, what: &str) -> Result<(), ReportRefusal> {
    let entries = entries.get_or_insert_default();
    if entries.len() >= entries_max {
        return Err(too_many_refusal(entries_max, what));
    }
    entries.push(T::default());
    Ok(())
}

fn update_last_entry<T>(entries: &mut Option<Vec<T>>, change: impl FnOnce(&mut T)) {
    if let Some(entry) = entries.as_mut().and_then(|entries| entries.last_mut()) {
        change(entry);
    }
}

fn too_many_refusal(entries_max: usize, what: &str) -> ReportRefusal {
    ReportRefusal::too_many(format!("The report has more than {entries_max} entries of {what}."))
}
