//! One folder per resource: `mod.rs` types and rules, `routes.rs` HTTP, `store.rs` SQL.

pub mod api_keys;
pub mod asset_inventory;
pub mod audit;
pub mod devices;
pub mod ingest_keys;
pub mod inventory;
pub mod openapi;
pub mod organizations;
pub mod pages;
pub mod probes;
pub mod search;
pub mod session;
pub mod sso;
pub mod tickets;
pub mod users;
pub mod webhooks;
pub mod workflows;
