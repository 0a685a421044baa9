//! Tenant Control: one binary that serves the API, and the command line around it.

pub mod catalogue;
pub mod cli;
pub mod config;
pub mod cookie;
pub mod features;
pub mod migrations;
pub mod retention;
pub mod router;

/// Every statement of the product and its kernel, so that a test can prepare each on both engines.
pub fn statements() -> Vec<(&'static str, &'static str)> {
    [
        kernel::statements().as_slice(),
        features::api_keys::descendants::store::STATEMENTS,
        features::api_keys::store::STATEMENTS,
        features::asset_inventory::find::store::STATEMENTS,
        features::asset_inventory::store::STATEMENTS,
        features::asset_inventory::summary::store::STATEMENTS,
        features::audit::store::STATEMENTS,
        features::devices::STATEMENTS.concat().as_slice(),
        features::ingest_keys::STATEMENTS,
        features::inventory::import::store::STATEMENTS,
        features::inventory::store::STATEMENTS,
        features::organizations::find::store::STATEMENTS,
        features::organizations::STATEMENTS,
        features::search::documents::store::STATEMENTS,
        features::search::store::STATEMENTS,
        features::sso::STATEMENTS,
        features::sso::update::store::STATEMENTS,
        features::tickets::find::store::STATEMENTS,
        features::tickets::sla::store::STATEMENTS,
        features::tickets::store::STATEMENTS,
        features::users::find::store::STATEMENTS,
        features::users::sign_on::store::STATEMENTS,
        features::users::store::STATEMENTS,
        features::webhooks::store::STATEMENTS,
        features::webhooks::deliveries::store::STATEMENTS,
        features::webhooks::deliveries::log::store::STATEMENTS,
        features::webhooks::events::store::STATEMENTS,
        features::webhooks::follow::store::STATEMENTS,
        features::webhooks::repair::store::STATEMENTS,
        features::webhooks::sender::order::store::STATEMENTS,
        features::webhooks::sender::settle::store::STATEMENTS,
        features::webhooks::sender::store::STATEMENTS,
        features::workflows::engine::fire::store::STATEMENTS,
        features::workflows::engine::follow::store::STATEMENTS,
        features::workflows::engine::store::STATEMENTS,
        features::workflows::follow::store::STATEMENTS,
        features::workflows::repair::store::STATEMENTS,
        features::workflows::retention::store::STATEMENTS,
        features::workflows::runs::control::store::STATEMENTS,
        features::workflows::runs::list::store::STATEMENTS,
        features::workflows::runs::start::store::STATEMENTS,
        features::workflows::runs::store::STATEMENTS,
        features::workflows::store::STATEMENTS,
    ]
    .concat()
}
