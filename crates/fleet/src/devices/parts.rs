//! What a device is made of, and what is installed on it: lists that are shown only when they are asked for.

pub use agent_reports::{Cpu, DeviceType as Type, Disk, Nic, Os, Platform, Software, Volume};

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    pub disks: Vec<Disk>,
    pub volumes: Vec<Volume>,
    pub nics: Vec<Nic>,
    /// In the order of names.
    pub software: Vec<Software>,
}
