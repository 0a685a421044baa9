//! What a step of a workflow can do. Any feature can declare actions, over its own functions.

use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::{Result, Secrets};
use kernel::http::{App, ParsedObject};
use kernel::store::{Db, Tx};
use serde_json::{Map, Value};

/// The input of a step after its expressions are evaluated, and its output.
pub const STEP_BYTES_MAX: usize = 256 << 10;

/// Something that a step can do.
pub struct Action {
    /// As `uses` names it.
    pub name: &'static str,
    pub about: &'static str,
    /// The scopes that the author of the workflow must hold, both when it is saved and when the step acts.
    pub needs: &'static [Scope],
    /// A `with` that is accepted, for the document.
    pub example: fn() -> Value,
    /// What is wrong with a `with`, as the feature's own route would say it.
    pub check: fn(Map<String, Value>) -> ParsedObject<()>,
    pub effect: ActionEffect,
}

#[derive(Clone, Copy)]
pub enum ActionEffect {
    /// A write inside the platform, in the transaction that saves the step's outcome.
    Transaction(TransactionFn),
    /// A query, before the transaction that saves the step's outcome, which could not wait for it.
    Lookup(Lookup),
    /// An outbound HTTP request.
    Http,
    /// A wait until a given time.
    Wait,
    /// A wait until a person decides.
    Approval,
}

/// Acts with the given rights, and returns what the feature's route would answer. The secrets seal what must be.
pub type TransactionFn =
    for<'t> fn(&'t mut Tx, &'t Rights, &'t Secrets, Map<String, Value>) -> BoxFuture<'t, Result<Value>>;

/// An action that changes nothing.
#[derive(Clone, Copy)]
pub struct Lookup {
    /// Whether this node can answer it. A step waits while it cannot, and no attempt is counted.
    pub is_available: fn(&App) -> bool,
    pub find: LookupFn,
    /// What a dry run does instead, if finding it saves something.
    pub preview: Option<LookupFn>,
}

pub type LookupFn = for<'t> fn(&'t App, &'t Db, &'t Rights, Map<String, Value>) -> BoxFuture<'t, Result<Value>>;
