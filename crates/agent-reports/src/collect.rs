//! Assembles a report from the sections and fields that the XML and JSON parsers read.

use super::Message;
use super::refusal::Refusal;
use super::sections::{Agent, Report};
use super::text::{LABEL_BYTES_MAX, label};

/// Ten times the packages of a large workstation. A report with more is broken or hostile.
pub const SOFTWARE_MAX: usize = 10_000;
/// Enough for a storage server with several shelves.
pub const DISKS_MAX: usize = 500;
/// Enough for a container host, which mounts one for each container.
pub const VOLUMES_MAX: usize = 1_000;
/// Entries, one for each address: enough for a container host with one for each container.
pub const NICS_MAX: usize = 1_000;
/// Addresses of one card: enough for a web server with one for each site.
pub const NIC_IPS_MAX: usize = 100;
/// Sockets; virtual machines may present every core as one.
pub const CPUS_MAX: usize = 1_000;

/// Bytes of all texts of a report: ten times those of a large machine.
pub const TEXT_BYTES_MAX: usize = 8 << 20;

/// Twice the longest known name of a section or field.
const NAME_BYTES_MAX: usize = 32;

/// Characters of an unknown query name that errors repeat.
const QUERY_CHARS_MAX: usize = 100;

/// The sections that are parsed. All others are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
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
}

impl Section {
    /// The section with this lower-case name.
    pub fn named(name: &str) -> Option<Self> {
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
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::AccountInfo => "accountinfo",
            Self::Hardware => "hardware",
            Self::Bios => "bios",
            Self::OperatingSystem => "operatingsystem",
            Self::TimeZone => "timezone",
            Self::Cpus => "cpus",
            Self::Drives => "drives",
            Self::Storages => "storages",
            Self::Networks => "networks",
            Self::Softwares => "softwares",
        }
    }

    /// The section nested in a field of this one.
    pub fn nested(self, field: &str) -> Option<Self> {
        (self == Self::OperatingSystem && field == "timezone").then_some(Self::TimeZone)
    }
}

/// The name of a section or field in lower case, without an allocation: a report has twenty thousand of them. A name longer
/// than any known one becomes empty.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl Name {
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
pub struct Collector {
    pub query: Option<String>,
    pub device_id: Option<String>,
    pub name: Option<String>,
    pub version: Option<String>,
    pub has_content: bool,
    pub report: Report,
    /// Network entries read. The report has fewer, because entries of one card are merged.
    nic_entries: usize,
    text_bytes: usize,
    account_key: Option<String>,
    account_value: Option<String>,
}

impl Collector {
    /// Marks a section as present, even if it has no entries.
    pub fn open_section(&mut self, section: Section) {
        let report = &mut self.report;
        match section {
            Section::AccountInfo | Section::TimeZone => {}
            Section::Hardware => {
                report.hardware.get_or_insert_default();
            }
            Section::Bios => {
                report.bios.get_or_insert_default();
            }
            Section::OperatingSystem => {
                report.os.get_or_insert_default();
            }
            Section::Cpus => {
                report.cpus.get_or_insert_default();
            }
            Section::Drives => {
                report.volumes.get_or_insert_default();
            }
            Section::Storages => {
                report.disks.get_or_insert_default();
            }
            Section::Networks => {
                report.nics.get_or_insert_default();
            }
            Section::Softwares => {
                report.software.get_or_insert_default();
            }
        }
    }

    /// Begins an entry of a section.
    pub fn open(&mut self, section: Section) -> Result<(), Refusal> {
        self.open_section(section);
        if self.text_bytes > TEXT_BYTES_MAX {
            return Err(Refusal::too_many(format!("The report has more than {TEXT_BYTES_MAX} bytes of text.")));
        }
        let report = &mut self.report;
        match section {
            Section::Cpus => push(&mut report.cpus, CPUS_MAX, "processors"),
            Section::Drives => push(&mut report.volumes, VOLUMES_MAX, "volumes"),
            Section::Storages => push(&mut report.disks, DISKS_MAX, "disks"),
            Section::Softwares => push(&mut report.software, SOFTWARE_MAX, "software"),
            Section::Networks => {
                self.nic_entries += 1;
                if self.nic_entries > NICS_MAX {
                    return Err(too_many(NICS_MAX, "network cards"));
                }
                push(&mut report.nics, NICS_MAX, "network cards")
            }
            _ => Ok(()),
        }
    }

    /// Sets a field of the entry that was opened last.
    pub fn set(&mut self, section: Section, field: &str, value: &str) {
        // Longer values are cut.
        self.text_bytes += value.len().min(LABEL_BYTES_MAX);
        let report = &mut self.report;
        match section {
            Section::AccountInfo => match field {
                "keyname" => self.account_key = label(value),
                "keyvalue" => self.account_value = label(value),
                _ => {}
            },
            Section::Hardware => report.hardware.get_or_insert_default().set(field, value),
            Section::Bios => report.bios.get_or_insert_default().set(field, value),
            Section::OperatingSystem => report.os.get_or_insert_default().set(field, value),
            Section::TimeZone if field == "offset" => {
                report.os.get_or_insert_default().timezone_offset = label(value);
            }
            Section::TimeZone => {}
            Section::Cpus => on_last(&mut report.cpus, |entry| entry.set(field, value)),
            Section::Drives => on_last(&mut report.volumes, |entry| entry.set(field, value)),
            Section::Storages => on_last(&mut report.disks, |entry| entry.set(field, value)),
            Section::Networks => on_last(&mut report.nics, |entry| entry.set(field, value)),
            Section::Softwares => on_last(&mut report.software, |entry| entry.set(field, value)),
        }
    }

    /// Ends an entry.
    pub fn close(&mut self, section: Section) -> Result<(), Refusal> {
        match section {
            Section::AccountInfo => {
                let value = self.account_value.take();
                if self.account_key.take().is_some_and(|key| key.eq_ignore_ascii_case("tag")) {
                    self.report.tag = value;
                }
            }
            Section::Networks => return self.join_nic(),
            Section::Softwares => {
                let Some(entries) = &mut self.report.software else { return Ok(()) };
                // Software without a name cannot be searched.
                entries.pop_if(|entry| entry.name.is_empty());
                if let Some(entry) = entries.last_mut() {
                    entry.name_without_arch();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Merges the last network entry into an earlier entry of the same card, if there is one.
    fn join_nic(&mut self) -> Result<(), Refusal> {
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
            return Err(too_many(NIC_IPS_MAX, "addresses of one network card"));
        }
        Ok(())
    }

    pub fn set_agent(&mut self, value: &str) {
        self.report.agent = Agent::named(value);
    }

    /// Completes the message. Only now is everything known: its parts come in any order.
    pub fn finish(self) -> Result<Message, Refusal> {
        let Some(query) = self.query else {
            return Err(Refusal::malformed("The message does not say what it is: QUERY or action is missing."));
        };
        let is_prolog = query.eq_ignore_ascii_case("prolog");
        let is_contact = query.eq_ignore_ascii_case("contact");
        let is_inventory = query.eq_ignore_ascii_case("inventory");
        if !(is_prolog || is_contact || is_inventory) {
            return Ok(Message::Other(query.chars().take(QUERY_CHARS_MAX).collect()));
        }
        let Some(device_id) = self.device_id else {
            return Err(Refusal::malformed("The message has no device id."));
        };
        if is_prolog {
            return Ok(Message::Prolog { device_id });
        }
        if is_contact {
            return Ok(Message::Contact { device_id, name: self.name, version: self.version, tag: self.report.tag });
        }
        if !self.has_content {
            return Err(Refusal::malformed("The inventory has no content."));
        }
        Ok(Message::Inventory(Box::new(Report { device_id, ..self.report })))
    }
}

fn push<T: Default>(entries: &mut Option<Vec<T>>, entries_max: usize, what: &str) -> Result<(), Refusal> {
    let entries = entries.get_or_insert_default();
    if entries.len() >= entries_max {
        return Err(too_many(entries_max, what));
    }
    entries.push(T::default());
    Ok(())
}

fn on_last<T>(entries: &mut Option<Vec<T>>, change: impl FnOnce(&mut T)) {
    if let Some(entry) = entries.as_mut().and_then(|entries| entries.last_mut()) {
        change(entry);
    }
}

fn too_many(entries_max: usize, what: &str) -> Refusal {
    Refusal::too_many(format!("The report has more than {entries_max} entries of {what}."))
}
