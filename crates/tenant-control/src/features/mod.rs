//! The features of the product: one list, and nothing else to keep by hand.
//!
//! Most features are crates of their own; here are those that show all others: the document, the pages and the probes.

pub mod openapi;
pub mod pages;
pub mod probes;

use feature_kit::{Feature, Registry};

pub use analytics::{backfill, fold, platform as platform_analytics, rebuild, tenant as tenant_analytics};
pub use backups::{config, customer_aggregate, job_reports, posture};
pub use cloud_fleet::{providers, vms};
pub use fleet::{asset_inventory, devices, ingest_keys, inventory};
pub use people::{api_keys, audit, organizations, session, sso, users};
pub use {search, tickets, webhooks, workflows};

/// In the order of the specification: the document lists their operations so.
const FEATURES: &[&Feature] = &[
    &openapi::FEATURE,
    &api_keys::feature::FEATURE,
    &webhooks::feature::FEATURE,
    &tickets::feature::FEATURE,
    &devices::feature::FEATURE,
    &inventory::feature::FEATURE,
    &ingest_keys::feature::FEATURE,
    &workflows::feature::FEATURE,
    &search::feature::FEATURE,
    &workflows::actions::FEATURE,
    &asset_inventory::feature::FEATURE,
    &providers::feature::FEATURE,
    &vms::feature::FEATURE,
    &config::feature::FEATURE,
    &job_reports::feature::FEATURE,
    &customer_aggregate::feature::FEATURE,
    &tenant_analytics::feature::FEATURE,
    &platform_analytics::feature::FEATURE,
    &sso::feature::FEATURE,
    &session::feature::FEATURE,
    &audit::feature::FEATURE,
    &organizations::feature::FEATURE,
    &users::feature::FEATURE,
    &pages::FEATURE,
    &probes::FEATURE,
];

/// The order in which the contract lists families of events.
const FAMILY_ORDER: &[&str] =
    &["ticket", "workflow", "device", "cloud", "vm", "backup", "api_key", "organization", "user", "webhook", "custom"];

/// Makes these the features of the program: before a store is opened and before routes are mounted.
pub fn install() -> &'static Registry {
    feature_kit::install(FEATURES, FAMILY_ORDER)
}
