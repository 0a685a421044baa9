//! Every kind of event there is. What can be subscribed to, the catalogue route and the document's `webhooks` section
//! all come from this list. And what else features declare for each other: who follows events, which records others may
//! refer to, and what requests are refused with.

use std::sync::OnceLock;

use kernel::auth::{Scope, Scopes, USERS};
use kernel::base::{Code, Result};
use kernel::events::{Described, family};
use kernel::store::Followers;
use kernel::store::refer::{Referable, Referrer};

use crate::features::devices::DEVICES;
use crate::features::organizations::ORGANIZATIONS;
use crate::features::webhooks::EVERYTHING;
use crate::features::workflows::action::store::Action;
use crate::features::workflows::actions::{CUSTOM_EVENT, is_custom};
use crate::features::{
    api_keys, devices, ingest_keys, inventory, organizations, search, sso, tickets, users, webhooks, workflows,
};

/// Who follows what is published.
pub const FOLLOWERS: Followers = &[webhooks::follow::store::SUBSCRIBERS, workflows::follow::store::TRIGGERS];

/// The kinds, by family and in the order of the contract.
pub fn kinds() -> Result<&'static [Described]> {
    static KINDS: OnceLock<Vec<Described>> = OnceLock::new();
    if let Some(kinds) = KINDS.get() {
        return Ok(kinds);
    }
    let kinds = vec![
        tickets::TICKET_CREATED.describe()?,
        tickets::TICKET_UPDATED.describe()?,
        tickets::TICKET_COMMENTED.describe()?,
        workflows::WORKFLOW_RUN_STARTED.describe()?,
        workflows::WORKFLOW_RUN_SUCCEEDED.describe()?,
        workflows::WORKFLOW_RUN_FAILED.describe()?,
        workflows::WORKFLOW_RUN_CANCELLED.describe()?,
        workflows::WORKFLOW_APPROVAL_REQUESTED.describe()?,
        devices::DEVICE_CREATED.describe()?,
        devices::DEVICE_UPDATED.describe()?,
        devices::DEVICE_OFFLINE.describe()?,
        devices::DEVICE_DELETED.describe()?,
        api_keys::API_KEY_CREATED.describe()?,
        api_keys::API_KEY_ROTATED.describe()?,
        api_keys::API_KEY_REVOKED.describe()?,
        api_keys::API_KEY_EXPIRING.describe()?,
        organizations::ORGANIZATION_CREATED.describe()?,
        organizations::ORGANIZATION_UPDATED.describe()?,
        organizations::ORGANIZATION_DELETED.describe()?,
        users::USER_CREATED.describe()?,
        users::USER_UPDATED.describe()?,
        users::USER_DISABLED.describe()?,
        webhooks::WEBHOOK_AUTO_DISABLED.describe()?,
        webhooks::WEBHOOK_TEST.describe()?,
        CUSTOM_EVENT.describe()?,
    ];
    Ok(KINDS.get_or_init(|| kinds))
}

/// Which records others may refer to.
pub const REFERABLE: &[Referable] = &[ORGANIZATIONS, USERS, DEVICES];

/// What keeps records from being deleted that it refers to.
pub const REFERRERS: &[Referrer] =
    &[tickets::OF_ORGANIZATION, devices::OF_ORGANIZATION, ingest_keys::OF_ORGANIZATION, workflows::OF_ORGANIZATION];

/// Every code that a request can be refused with, in the order of their status: those of the kernel, then of the features.
pub fn codes() -> Vec<Code> {
    let mut codes = [Code::KERNEL, tickets::CODES, inventory::routes::CODES, search::CODES, sso::CODES].concat();
    codes.sort_by_key(|code| code.status());
    codes
}

/// What steps of workflows can do, by feature. What is not here is not in the document either.
pub const ACTIONS: &[&[Action]] = &[
    tickets::actions::store::ACTIONS,
    devices::actions::store::ACTIONS,
    search::action::ACTIONS,
    workflows::actions::store::ACTIONS,
];

pub fn actions() -> impl Iterator<Item = &'static Action> {
    ACTIONS.iter().copied().flatten()
}

pub fn find_action(name: &str) -> Option<&'static Action> {
    actions().find(|action| action.name == name)
}

/// Whether an endpoint can subscribe to this: a kind, one that a tenant names itself, `<family>.*` of a family that has kinds,
/// or `*`.
pub fn can_subscribe(pattern: &str) -> Result<bool> {
    let kinds = kinds()?;
    Ok(match pattern.strip_suffix(".*") {
        Some(family) => kinds.iter().any(|kind| kind.family() == family),
        None => pattern == EVERYTHING || is_custom(pattern) || kinds.iter().any(|kind| kind.name == pattern),
    })
}

/// The kinds that any of these patterns matches; those that tenants name themselves are `custom.*`, or as they are named.
pub fn matching(patterns: &[String]) -> Result<Vec<String>> {
    let matches = |name: &str| webhooks::patterns(name).iter().any(|pattern| patterns.contains(pattern));
    let known = kinds()?.iter().map(|kind| kind.name).filter(|name| matches(name)).map(str::to_owned);
    Ok(known.chain(patterns.iter().filter(|pattern| is_custom(pattern)).cloned()).collect())
}

/// Every word that [`can_subscribe`] accepts, but those that tenants name themselves.
pub fn vocabulary() -> Result<Vec<String>> {
    let mut words = vec![EVERYTHING.to_owned()];
    for kind in kinds()? {
        let all_of_family = format!("{}.*", kind.family());
        if !words.contains(&all_of_family) {
            words.push(all_of_family.clone());
        }
        if kind.name != all_of_family {
            words.push(kind.name.to_owned());
        }
    }
    Ok(words)
}

/// The families of events and the scope that lets one read what they tell of.
const FAMILIES: &[(&str, Scope)] = &[
    ("ticket", Scope::TicketsRead),
    ("workflow", Scope::WorkflowsRead),
    ("custom", Scope::WorkflowsRead),
    ("device", Scope::InventoryRead),
    ("cloud", Scope::CloudRead),
    ("vm", Scope::CloudRead),
    ("backup", Scope::BackupRead),
    ("api_key", Scope::ApiKeysRead),
    ("webhook", Scope::WebhooksRead),
    ("organization", Scope::OrganizationsRead),
    ("user", Scope::UsersRead),
];

/// The scopes that subscribing to these patterns takes.
pub fn scopes_needed<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Scopes> {
    let mut words = Vec::new();
    for pattern in patterns {
        let of_family = |(name, _): &&(&str, Scope)| pattern == EVERYTHING || *name == family(pattern);
        words.extend(FAMILIES.iter().filter(of_family).map(|(_, scope)| scope.name()));
    }
    Scopes::parse(words).map_err(kernel::base::Error::internal)
}

/// The families whose events a holder of these scopes may read.
pub fn readable_families(scopes: &Scopes) -> Vec<&'static str> {
    FAMILIES.iter().filter(|(_, scope)| scopes.holds(*scope)).map(|(name, _)| *name).collect()
}
