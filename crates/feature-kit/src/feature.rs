//! What a feature declares, and the list of features that this program has.

use std::sync::OnceLock;

use kernel::auth::Scope;
use kernel::base::{Code, Result};
use kernel::events::EventKindDescription;
use kernel::http::Api;
use kernel::jobs::Retention;
use kernel::keyring::SealedColumnStatements;
use kernel::store::Follower;
use kernel::store::references::{Referable, Referrer};

use crate::action::Action;
use crate::shared_codes::SHARED_CODES;

/// A feature, as its crate declares it in a `FEATURE` constant: `Feature { name: "tickets", …, ..Feature::NEW }`.
pub struct Feature {
    pub name: &'static str,
    /// Mounts the operations of the specification, with the schemas that their answers refer to.
    pub operations: fn(Api) -> Api,
    /// Mounts the other operations, which come after those of all features in the document.
    pub more_operations: fn(Api) -> Api,
    /// Every statement, by module.
    pub statements: &'static [&'static [Statement]],
    /// The kinds of events that it publishes.
    pub event_kinds: &'static [fn() -> Result<EventKindDescription>],
    pub event_families: &'static [EventFamily],
    /// Error codes that only this feature uses.
    pub error_codes: &'static [Code],
    /// What steps of workflows can do with it.
    pub actions: &'static [Action],
    /// Turn events that are published into work of this feature.
    pub followers: &'static [Follower],
    /// Its records that others may refer to.
    pub referable: &'static [Referable],
    /// Its records that refer to others, which therefore cannot be deleted.
    pub referrers: &'static [Referrer],
    /// Rows that the cleaner deletes after a time.
    pub retention: &'static [Retention],
    /// Its columns with sealed values.
    pub sealed_columns: &'static [SealedColumnStatements],
}

/// A statement's name and text.
pub type Statement = (&'static str, &'static str);

/// A family of events, and the scope that lets one read its events.
#[derive(Clone, Copy, Debug)]
pub struct EventFamily {
    pub name: &'static str,
    pub scope: Scope,
}

impl Feature {
    /// A feature without anything.
    pub const NEW: Feature = Feature {
        name: "",
        operations: |api| api,
        more_operations: |api| api,
        statements: &[],
        event_kinds: &[],
        event_families: &[],
        error_codes: &[],
        actions: &[],
        followers: &[],
        referable: &[],
        referrers: &[],
        retention: &[],
        sealed_columns: &[],
    };
}

/// What all features declare together.
pub struct Registry {
    pub features: &'static [&'static Feature],
    /// The families in the order of the catalogue.
    pub(crate) family_order: &'static [&'static str],
    pub event_families: Vec<EventFamily>,
    pub(crate) event_kinds: OnceLock<Vec<EventKindDescription>>,
    /// In the order of their status.
    pub error_codes: Vec<Code>,
    pub actions: Vec<&'static Action>,
    pub followers: Vec<Follower>,
    pub referable: Vec<Referable>,
    pub referrers: Vec<Referrer>,
    pub retention: Vec<Retention>,
    pub sealed_columns: Vec<SealedColumnStatements>,
}

static REGISTRY: OnceLock<Registry> = OnceLock::new();
/// Before features are installed, as in unit tests.
static EMPTY: Registry = Registry {
    features: &[],
    family_order: &[],
    event_families: Vec::new(),
    event_kinds: OnceLock::new(),
    error_codes: Vec::new(),
    actions: Vec::new(),
    followers: Vec::new(),
    referable: Vec::new(),
    referrers: Vec::new(),
    retention: Vec::new(),
    sealed_columns: Vec::new(),
};

/// Makes these the features of the program. Only the first list counts: a program has one. The catalogue shows families of
/// events in the given order, and those it does not name at the end.
pub fn install(features: &'static [&'static Feature], family_order: &'static [&'static str]) -> &'static Registry {
    REGISTRY.get_or_init(|| Registry::new(features, family_order))
}

/// The features of the program.
///
/// It is global because schemas of the document and parsers of bodies need it, which have no argument to pass it by. It is
/// constant data, the same for every server in the process.
pub fn registry() -> &'static Registry {
    REGISTRY.get().unwrap_or(&EMPTY)
}

impl Registry {
    fn new(features: &'static [&'static Feature], family_order: &'static [&'static str]) -> Self {
        let mut error_codes = [Code::KERNEL, SHARED_CODES].concat();
        error_codes.extend(collect(features, |feature| feature.error_codes));
        error_codes.sort_by_key(|code| code.status());
        Registry {
            features,
            family_order,
            event_families: collect(features, |feature| feature.event_families),
            event_kinds: OnceLock::new(),
            error_codes,
            actions: features.iter().flat_map(|feature| feature.actions).collect(),
            followers: collect(features, |feature| feature.followers),
            referable: collect(features, |feature| feature.referable),
            referrers: collect(features, |feature| feature.referrers),
            retention: collect(features, |feature| feature.retention),
            sealed_columns: collect(features, |feature| feature.sealed_columns),
        }
    }

    pub fn find_action(&self, name: &str) -> Option<&'static Action> {
        self.actions.iter().copied().find(|action| action.name == name)
    }

    /// Every statement of the features.
    pub fn statements(&self) -> Vec<Statement> {
        self.features.iter().flat_map(|feature| feature.statements.concat()).collect()
    }
}

fn collect<T: Copy + 'static>(features: &[&Feature], part: impl Fn(&Feature) -> &'static [T]) -> Vec<T> {
    features.iter().flat_map(|feature| part(feature)).copied().collect()
}
