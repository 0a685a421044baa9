//! The parts of a device as stored and served, independent of the agents' names for them.

use kernel::base::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

kernel::string_enum! {
    #[schema(as = DeviceType)]
    pub enum DeviceType {
        Server "server", Workstation "workstation", Laptop "laptop", Mobile "mobile", Network "network",
        Printer "printer", Virtual "virtual", Other "other",
    }
}

kernel::string_enum! {
    #[schema(as = DevicePlatform)]
    pub enum Platform {
        Windows "windows", Linux "linux", Macos "macos", Android "android", Ios "ios", Other "other",
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceOs)]
pub struct Os {
    #[schema(required)]
    pub name: Option<String>,
    #[schema(required)]
    pub version: Option<String>,
    #[schema(required)]
    pub build: Option<String>,
    #[schema(required)]
    pub kernel: Option<String>,
    #[schema(required)]
    pub arch: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceCpu)]
pub struct Cpu {
    #[schema(required)]
    pub model: Option<String>,
    #[schema(required)]
    pub sockets: Option<i64>,
    /// Of all sockets together.
    #[schema(required)]
    pub cores: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceDisk)]
pub struct Disk {
    #[schema(required)]
    pub name: Option<String>,
    #[schema(required)]
    pub model: Option<String>,
    #[schema(required)]
    pub serial: Option<String>,
    #[schema(required)]
    pub size_bytes: Option<i64>,
    #[schema(required)]
    pub interface: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceVolume)]
pub struct Volume {
    #[schema(required)]
    pub mount: Option<String>,
    #[schema(required)]
    pub device: Option<String>,
    #[schema(required)]
    pub filesystem: Option<String>,
    #[schema(required)]
    pub total_bytes: Option<i64>,
    #[schema(required)]
    pub free_bytes: Option<i64>,
    #[schema(required)]
    pub encrypted: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceNic)]
pub struct Nic {
    #[schema(required)]
    pub name: Option<String>,
    #[schema(required)]
    pub mac: Option<String>,
    #[schema(required)]
    pub r#type: Option<String>,
    /// `up` or `down`.
    #[schema(required)]
    pub status: Option<String>,
    pub ips: Vec<String>,
}

/// A port that a cable or an antenna belongs to; VLANs, loopbacks, tunnels and port channels are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(as = DevicePort)]
pub struct Port {
    #[schema(required)]
    pub name: Option<String>,
    #[schema(required)]
    pub mac: Option<String>,
    /// `up` or `down`.
    #[schema(required)]
    pub status: Option<String>,
    #[schema(required)]
    pub speed_bps: Option<i64>,
    /// The untagged VLAN.
    #[schema(required)]
    pub vlan: Option<i64>,
}

/// What a printer uses up: toner, ink, drums, kits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceSupply)]
pub struct Supply {
    /// As agents name it: `tonerblack`, `cartridgecyan`, `drummagenta`, `wastetoner`.
    pub name: String,
    /// What is left; null where the printer says no more than that there is some.
    #[schema(required)]
    pub level_percent: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(as = DeviceSoftware)]
pub struct Software {
    pub name: String,
    #[schema(required)]
    pub version: Option<String>,
    #[schema(required)]
    pub publisher: Option<String>,
    #[schema(required)]
    pub arch: Option<String>,
    /// Where it comes from, such as `deb`, `rpm` or `registry`.
    #[schema(required)]
    pub source: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime, required)]
    pub installed_at: Option<Timestamp>,
}
