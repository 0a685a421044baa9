//! What an action is. Any feature can declare some, over its own functions; `catalogue.rs` lists them all.

use futures_util::future::BoxFuture;
use kernel::auth::{Rights, Scope};
use kernel::base::Result;
use kernel::http::{App, Read};
use kernel::store::{Db, Tx};
use serde_json::{Map, Value};

/// Something that a step can do.
pub struct Action {
    /// As `uses` names it.
    pub name: &'static str,
    pub about: &'static str,
    /// What whoever saves the workflow must hold, then and when the step acts.
    pub needs: &'static [Scope],
    /// A `with` that is accepted, for the document.
    pub example: fn() -> Value,
    /// What is wrong with a `with`, as the feature's own route would say it.
    pub check: fn(Map<String, Value>) -> Read<()>,
    pub does: Does,
}

pub enum Does {
    /// Something inside the platform, in the transaction that notes the step.
    Inside(Inside),
    /// A look at what there is, before the transaction that notes the step, which could not wait for it.
    Look(Look),
    /// A request to somewhere else.
    Http,
    /// Nothing, until a moment.
    Wait,
    /// Nothing, until somebody says so.
    Approval,
}

/// Does it, for somebody whose rights are known by now, and tells what the feature's route would answer.
pub type Inside = for<'t> fn(&'t mut Tx, &'t Rights, Map<String, Value>) -> BoxFuture<'t, Result<Value>>;

/// The same of what changes nothing.
#[derive(Clone, Copy)]
pub struct Look {
    /// Whether this node has it to look at. A step that finds it away rests, and no attempt is counted.
    pub is_there: fn(&App) -> bool,
    pub find: Find,
}

pub type Find = for<'t> fn(&'t App, &'t Db, &'t Rights, Map<String, Value>) -> BoxFuture<'t, Result<Value>>;
