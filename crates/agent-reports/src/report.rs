//! A report of an agent as it was read.

use super::parts::Software;
use super::scanned::ScannedDevice;
use super::sections::{AgentInfo, Bios, CpuEntry, DiskEntry, DriveEntry, Hardware, NicEntry, OperatingSystem};

#[derive(Debug, Default, PartialEq)]
pub struct AgentReport {
    /// The id that the agent gave the machine it runs on. `None` if the agent describes another device: the id of the
    /// message is then the agent's own.
    pub device_id: Option<String>,
    pub tag: Option<String>,
    /// The type of machine: `Computer`, `NetworkEquipment`, …
    pub item_type: Option<String>,
    pub partial: bool,
    /// The OCS agent names itself only in its User-Agent header; `AgentInfo::from_label` parses that too.
    pub agent: Option<AgentInfo>,
    pub hardware: Option<Hardware>,
    pub bios: Option<Bios>,
    pub os: Option<OperatingSystem>,
    pub cpus: Option<Vec<CpuEntry>>,
    pub volumes: Option<Vec<DriveEntry>>,
    pub disks: Option<Vec<DiskEntry>>,
    pub nics: Option<Vec<NicEntry>>,
    pub software: Option<Vec<Software>>,
    /// The device that the agent scanned.
    pub scanned: Option<Box<ScannedDevice>>,
}
