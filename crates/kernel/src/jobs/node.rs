//! The running service with its database.

use std::ops::Deref;

use crate::base::{Result, Secrets};
use crate::http::{App, Settings, Shared};
use crate::store::Store;

/// One running node, made by the process that opened the database, for the work that the service does on its own. A request
/// reaches only the [`App`], which gives no access to the data of all tenants.
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

    /// The part that requests can reach.
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
