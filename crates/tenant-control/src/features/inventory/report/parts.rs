//! The shapes in which a device's parts are kept and shown, whatever the agent called them: those of the record itself.

pub use crate::features::devices::{Cpu, Disk, Nic, Os, Platform, Software, Type as Kind, Volume};
