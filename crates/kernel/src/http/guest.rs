//! The doors for whoever is about to sign in and is nobody yet. Single sign-on alone uses them; a test sees to it.

use super::app::App;
use crate::base::{Actor, TenantId};
use crate::store::{Db, Purpose};

impl App {
    /// The records of all tenants: whose a domain or a sign-on is, is what the read finds out.
    pub fn signing_on(&self) -> Db {
        self.store.system(Purpose::SignIn)
    }

    /// Those of the tenant that such a read has found.
    pub fn signing_on_to(&self, tenant: TenantId, actor: Actor) -> Db {
        self.store.tenant(tenant, actor)
    }
}
