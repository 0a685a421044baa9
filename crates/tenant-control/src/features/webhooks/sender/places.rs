//! Places for attempts under way beyond the first of each lane: so many in all, and so many of one tenant. A lane's first
//! attempt needs none, so endpoints that hang, however many and whosoever's, make others slower at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kernel::base::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Attempts of this node under way, beside one for each lane: each is a connection and up to 256 KiB of payload.
const PLACES: usize = 512;
/// Of one tenant. More than all its endpoints take while each of them hangs.
const PLACES_OF_TENANT: usize = 128;

pub struct AttemptPlaces {
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

impl Default for AttemptPlaces {
    fn default() -> Self {
        AttemptPlaces { all: Arc::new(Semaphore::new(PLACES)), tenants: Mutex::default() }
    }
}

/// One attempt's place; free again when it is dropped. The default is that of a lane's first attempt, which takes none.
#[derive(Default)]
pub struct AttemptPlace {
    _of_tenant: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl AttemptPlaces {
    /// The places of one tenant, shared by its lanes.
    pub fn of(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = tenants.get(&tenant).and_then(Weak::upgrade) {
            return places;
        }
        tenants.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(PLACES_OF_TENANT));
        tenants.insert(tenant, Arc::downgrade(&places));
        places
    }

    /// A place, if there is one.
    pub fn take(&self, of_tenant: &Arc<Semaphore>) -> Option<AttemptPlace> {
        let of_tenant = of_tenant.clone().try_acquire_owned().ok()?;
        let of_all = self.all.clone().try_acquire_owned().ok()?;
        Some(AttemptPlace { _of_tenant: Some(of_tenant), _of_all: Some(of_all) })
    }
}
