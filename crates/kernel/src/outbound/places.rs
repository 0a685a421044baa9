//! Places for requests that lanes have under way, beyond the first of each: so many in all, and so many of one tenant,
//! whatever the lanes are for. A lane's first request needs none, so receivers that hang, however many and whosoever's,
//! make others slower at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::TenantId;

/// Requests of this node under way, beside one for each lane: each is a connection and up to 256 KiB of payload.
const PLACES: usize = 512;
/// Of one tenant. More than all its webhook endpoints take while each of them hangs.
const PLACES_OF_TENANT: usize = 128;

pub struct RequestPlaces {
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

impl Default for RequestPlaces {
    fn default() -> Self {
        RequestPlaces { all: Arc::new(Semaphore::new(PLACES)), tenants: Mutex::default() }
    }
}

/// One request's place; free again when it is dropped. The default is that of a lane's first request, which takes none.
#[derive(Default)]
pub struct RequestPlace {
    _of_tenant: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl RequestPlaces {
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

    /// A place for a lane that has so many requests under way, if there is one for it.
    ///
    /// A lane that has more than are left to the others gets none: so however many lanes there are and whoever came first,
    /// all have about as many. What they send is then noted together, for the deliveries of one event stand side by side.
    pub fn take(&self, of_tenant: &Arc<Semaphore>, under_way: usize) -> Option<RequestPlace> {
        if under_way == 0 {
            return Some(RequestPlace::default());
        }
        if under_way > of_tenant.available_permits() {
            return None;
        }
        let of_tenant = of_tenant.clone().try_acquire_owned().ok()?;
        let of_all = self.all.clone().try_acquire_owned().ok()?;
        Some(RequestPlace { _of_tenant: Some(of_tenant), _of_all: Some(of_all) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as one lane ever has under way.
    const WINDOW_MAX: usize = 16;

    fn fill(lane: &mut Vec<RequestPlace>, places: &RequestPlaces, of_tenant: &Arc<Semaphore>) {
        while lane.len() < WINDOW_MAX {
            let Some(place) = places.take(of_tenant, lane.len()) else { break };
            lane.push(place);
        }
    }

    #[test]
    fn lanes_come_to_have_as_many_whoever_came_first() {
        let (places, of_tenant) = (RequestPlaces::default(), Arc::new(Semaphore::new(PLACES_OF_TENANT)));
        let mut lanes: Vec<Vec<RequestPlace>> = (0..16).map(|_| Vec::new()).collect();
        let counts = |lanes: &[Vec<RequestPlace>]| lanes.iter().map(Vec::len).collect::<Vec<_>>();
        fill(&mut lanes[0], &places, &of_tenant);
        assert_eq!(lanes[0].len(), WINDOW_MAX, "one alone has all it wants");
        for _ in 0..100 {
            for lane in &mut lanes {
                lane.pop();
                fill(lane, &places, &of_tenant);
            }
        }
        assert!(counts(&lanes).iter().all(|count| (7..=9).contains(count)), "{:?}", counts(&lanes));
        lanes.truncate(2);
        for lane in &mut lanes {
            fill(lane, &places, &of_tenant);
        }
        assert_eq!(counts(&lanes), [WINDOW_MAX; 2], "what others leave is there to be taken");
    }
}
