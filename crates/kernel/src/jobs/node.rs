//! The running service with its database.

use std::ops::Deref;

use crate::base::{Result, Secrets};
use crate::http::{App, HttpSettings, SharedApp};
use crate::store::Store;

/// One running node, made by the process that opened the database, for the work that the service does on its own. A request
/// reaches only the [`App`], which gives no access to the data of all tenants.
#[derive(Clone)]
pub struct ServerNode {
    pub store: Store,
    app: SharedApp,
}

impl ServerNode {
    pub fn new(store: Store, secrets: Secrets, settings: HttpSettings) -> Result<Self> {
        let app = App::new(store.clone(), secrets, settings)?;
        Ok(ServerNode { store, app })
    }

    /// The part that requests can reach.
    pub fn app(&self) -> &SharedApp {
        &self.app
    }
}

impl Deref for ServerNode {
    type Target = SharedApp;

    fn deref(&self) -> &SharedApp {
        &self.app
    }
}
