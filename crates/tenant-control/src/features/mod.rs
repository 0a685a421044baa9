//! The features of the product: one list, and nothing else to keep by hand.
//!
//! Most features are crates of their own; here are those that show all others: the document, the pages and the probes.

pub mod openapi;
pub mod pages;
pub mod probes;

use feature_kit::{EventFamily, Feature, Registry};
use kernel::auth::Scope;

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
    &sso::feature::FEATURE,
    &session::feature::FEATURE,
    &audit::feature::FEATURE,
    &organizations::feature::FEATURE,
    &users::feature::FEATURE,
    &RESERVED,
    &pages::FEATURE,
    &probes::FEATURE,
];

/// Families of events that have no feature yet. Subscribing to everything already takes their scopes, so that no endpoint is
/// sent more than its owner may read when they come.
const RESERVED: Feature = Feature {
    name: "reserved",
    event_families: &[
        EventFamily { name: "cloud", scope: Scope::CloudRead },
        EventFamily { name: "vm", scope: Scope::CloudRead },
        EventFamily { name: "backup", scope: Scope::BackupRead },
    ],
    ..Feature::NEW
};

/// The order in which the contract lists families of events.
const FAMILY_ORDER: &[&str] = &["ticket", "workflow", "device", "api_key", "organization", "user", "webhook", "custom"];

/// Makes these the features of the program: before a store is opened and before routes are mounted.
pub fn install() -> &'static Registry {
    feature_kit::install(FEATURES, FAMILY_ORDER)
}
