//! The service with its database, as the process that runs it has it.

use std::ops::Deref;

use crate::base::{Result, Secrets};
use crate::http::{App, Settings, Shared};
use crate::store::Store;

/// One running node. Whoever opened the database makes it, and with it does what the service does on its own. A request
/// reaches the [`App`] alone: the data of all tenants is not to be had from there.
#[derive(Clone)]
pub struct Node {
    pub store: Store,
    app: Shared,
}

impl Node {
    pub fn new(store: Store, secrets: Secrets, settings: Settings) -> Result<Self> {
        let app = App::new(store.clone(), secrets, settings)?;
        Ok(Node { store, app })
    }

    /// What requests can reach.
    pub fn app(&self) -> &Shared {
        &self.app
    }
}

impl Deref for Node {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.app
    }
}
