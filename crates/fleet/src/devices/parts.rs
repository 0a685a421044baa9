//! The parts of a device, its hardware and installed software: lists that responses carry only on request.

pub use agent_reports::{Cpu, DeviceType as Type, Disk, Nic, Os, Platform, Software, Volume};

/// All lists of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceParts {
    pub disks: Vec<Disk>,
    pub volumes: Vec<Volume>,
    pub nics: Vec<Nic>,
    /// Sorted by name.
    pub software: Vec<Software>,
}
