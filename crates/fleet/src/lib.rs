//! Machines: devices, the keys and reports of their agents, and the asset inventory.

pub mod asset_inventory;
pub mod devices;
pub mod ingest_keys;
pub mod inventory;
