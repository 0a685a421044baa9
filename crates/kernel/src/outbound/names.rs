//! From a host to its addresses. The one place where a name is asked for.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::target::Host;
use crate::base::TenantId;

/// What answers for names.
#[derive(Clone, Default)]
pub enum Names {
    /// The resolver of the system.
    #[default]
    System,
    /// Called at each resolution, so that a test can change its answer. No addresses: the name does not resolve.
    Table(Answers),
}

/// From a name to its addresses.
pub type Answers = Arc<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Names::System => "System",
            Names::Table(_) => "Table",
        })
    }
}

/// How many names the system is asked for at a time. Each keeps a thread until the system gives up, even when its
/// request has long timed out, and the threads are shared with the rest of the service.
const LOOKUPS_MAX: usize = 64;
/// How many of them are for one tenant, whose name servers may never answer.
const LOOKUPS_OF_ONE_MAX: usize = 8;

pub(super) struct Resolver {
    names: Names,
    lookups: Arc<Semaphore>,
    of_one: Arc<Mutex<HashMap<Option<TenantId>, usize>>>,
}

impl Resolver {
    pub fn new(names: Names) -> Self {
        Resolver { names, lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)), of_one: Arc::default() }
    }

    /// All addresses of a host, unchecked, and at least one; or why there is none.
    pub async fn resolve(&self, host: &Host, for_whom: Option<TenantId>) -> Result<Vec<IpAddr>, String> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        // These mean this host by rule (RFC 6761); a resolver that says otherwise is not to be believed.
        if is_localhost(name) {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let addresses = match &self.names {
            Names::System => self.ask_system(name.clone(), for_whom).await?,
            Names::Table(table) => table(name),
        };
        if addresses.is_empty() { Err(format!("{name} has no address")) } else { Ok(addresses) }
    }

    async fn ask_system(&self, name: String, for_whom: Option<TenantId>) -> Result<Vec<IpAddr>, String> {
        let turn = Turn::take(&self.of_one, for_whom).ok_or("too many names are being looked up for this tenant")?;
        let permit = self.lookups.clone().acquire_owned().await.map_err(|error| error.to_string())?;
        let asked = spawn_blocking(move || {
            let found = (&*name, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
            drop((turn, permit));
            found.map_err(|error| format!("{name}: {error}"))
        });
        asked.await.map_err(|error| error.to_string())?
    }
}

/// One of the lookups that a tenant may have under way, until its thread has come to its end.
struct Turn {
    taken: Arc<Mutex<HashMap<Option<TenantId>, usize>>>,
    for_whom: Option<TenantId>,
}

impl Turn {
    fn take(taken: &Arc<Mutex<HashMap<Option<TenantId>, usize>>>, for_whom: Option<TenantId>) -> Option<Turn> {
        let mut counts = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(for_whom).or_default();
        if *count >= LOOKUPS_OF_ONE_MAX {
            return None;
        }
        *count += 1;
        Some(Turn { taken: taken.clone(), for_whom })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counts = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.for_whom) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.for_whom);
            }
        }
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_of_one_tenant_are_bounded_until_they_end() {
        let taken = Arc::default();
        let mut turns: Vec<_> = (0..LOOKUPS_OF_ONE_MAX).map(|_| Turn::take(&taken, None)).collect();
        assert!(turns.iter().all(Option::is_some) && Turn::take(&taken, None).is_none());
        let other = TenantId::new(&crate::base::World::default());
        assert!(Turn::take(&taken, Some(other)).is_some());
        turns.pop();
        assert!(Turn::take(&taken, None).is_some());
        drop(turns);
        assert!(taken.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
    }

    #[test]
    fn names_of_this_host_are_known_in_every_spelling() {
        for name in ["localhost", "LocalHost", "localhost.", "a.localhost", "a.b.LOCALHOST."] {
            assert!(is_localhost(name), "{name}");
        }
        for name in ["localhost.example.org", "notlocalhost", "local", "localhost1"] {
            assert!(!is_localhost(name), "{name}");
        }
    }
}
