//! From a host to its addresses. The one place where a name is asked for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::target::Host;

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
const LOOKUPS_MAX: usize = 32;

pub(super) struct Resolver {
    names: Names,
    lookups: Arc<Semaphore>,
}

impl Resolver {
    pub fn new(names: Names) -> Self {
        Resolver { names, lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }

    /// All addresses of a host, unchecked, and at least one; or why there is none.
    pub async fn resolve(&self, host: &Host) -> Result<Vec<IpAddr>, String> {
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        // These mean this host by rule (RFC 6761); a resolver that says otherwise is not to be believed.
        if is_localhost(name) {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let addresses = match &self.names {
            Names::System => self.ask_system(name.clone()).await?,
            Names::Table(table) => table(name),
        };
        if addresses.is_empty() { Err(format!("{name} has no address")) } else { Ok(addresses) }
    }

    async fn ask_system(&self, name: String) -> Result<Vec<IpAddr>, String> {
        let permit = self.lookups.clone().acquire_owned().await.map_err(|error| error.to_string())?;
        let asked = spawn_blocking(move || {
            let found = (&*name, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
            drop(permit);
            found.map_err(|error| format!("{name}: {error}"))
        });
        asked.await.map_err(|error| error.to_string())?
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::is_localhost;

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
