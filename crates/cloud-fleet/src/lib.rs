//! Cloud providers and their machines. `providers` and `vms` are the two resources; `worker` verifies, syncs and provisions in
//! the background; `account` opens the adapter of a provider over the guarded client, at a pace that its account allows.
//!
//! The adapters themselves are the crate `clouds`, which knows neither tenants nor the database.

pub mod account;
mod cloud_text;
mod open_accounts;
mod pace;
pub mod providers;
/// Brings back what a clock that ran ahead has put off.
pub mod repair {
    pub mod store;
}
pub mod settings;
mod transport;
pub mod vms;
pub mod worker;

/// The lane kind of clouds: a lane for each provider, which is verified, and one for each of its regions, which is synced and
/// in which machines are made.
pub const CLOUD_LANE: &str = "cloud";
