//! What a device is made of, and what is installed on it: lists that are shown only when they are asked for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use kernel::base::Timestamp;

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    pub disks: Vec<Disk>,
    pub volumes: Vec<Volume>,
    pub nics: Vec<Nic>,
    /// In the order of names.
    pub software: Vec<Software>,
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
