//! From a host to its addresses. The one place where a name is asked for.
//!
//! A lookup keeps a thread until the system gives up, so there are only so many at a time, and tenants share the permits so
//! that no number of them can hold all. A lookup without a permit waits for one; who asks for a name that is being asked for
//! gets that answer. Deliberately
//! left out: remembering answers, which is the system's business.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::fair_permits::{FairPermit, FairPermits};
use super::target::Host;
use crate::base::TenantId;

/// What answers for names.
#[derive(Clone, Default)]
pub enum Names {
    /// The resolver of the system.
    #[default]
    System,
    /// Called at each lookup, on a thread of its own like the system's, so that a test can change its answer and take its
    /// time. No addresses: the name does not resolve.
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

/// How many names are asked for at a time. Each keeps a thread until the system gives up, even when its request has long
/// timed out, and the threads are shared with the rest of the service.
const LOOKUPS_MAX: usize = 64;
/// A tenant, whose name servers may never answer, has at most a seventh of what is free: 8 when others are idle, and less
/// beside others whose do not.
const LOOKUPS_PART: usize = 7;
/// How many names of one tenant are asked for or wait for their turn: more than all its endpoints have.
const WAITING_OF_ONE_MAX: usize = 256;

pub(super) struct Resolver {
    names: Names,
    turn_max: Duration,
    permits: Arc<FairPermits<Option<TenantId>>>,
    tenants: Tenants,
}

type Tenants = Arc<Mutex<HashMap<Option<TenantId>, OfTenant>>>;

/// The lookups of one tenant by name. Not shared with others: who waits for a permit of one tenant would hold up the other.
type OfTenant = HashMap<String, watch::Receiver<Stage>>;

#[derive(Clone)]
enum Stage {
    Waiting,
    Asking,
    Done(Result<Vec<IpAddr>, Unresolved>),
}

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// Nobody was asked: too many other names were before this one.
    Crowded,
    No(String),
}

/// A name that is asked for.
pub(super) struct Lookup(watch::Receiver<Stage>);

impl Lookup {
    fn done(answer: Result<Vec<IpAddr>, Unresolved>) -> Self {
        Lookup(watch::channel(Stage::Done(answer)).1)
    }

    /// Waits for its turn.
    pub async fn begun(&mut self) {
        // A lookup that ended badly is told by its answer.
        drop(self.0.wait_for(|stage| !matches!(stage, Stage::Waiting)).await);
    }

    /// All addresses, unchecked, and at least one; or why there is none.
    pub async fn answer(mut self) -> Result<Vec<IpAddr>, Unresolved> {
        match self.0.wait_for(|stage| matches!(stage, Stage::Done(_))).await.as_deref() {
            Ok(Stage::Done(answer)) => answer.clone(),
            _ => Err(Unresolved::No("the lookup ended badly".to_owned())),
        }
    }
}

impl Resolver {
    pub fn new(names: Names, turn_max: Duration) -> Self {
        let permits = FairPermits::new(LOOKUPS_MAX, LOOKUPS_PART);
        Resolver { names, turn_max, permits, tenants: Arc::default() }
    }

    /// Begins to ask, or joins those who ask for the same on behalf of the same tenant.
    pub fn look_up(&self, host: &Host, for_whom: Option<TenantId>) -> Lookup {
        let name = match host {
            Host::Address(address) => return Lookup::done(Ok(vec![*address])),
            Host::Name(name) => name,
        };
        // These mean this host by rule (RFC 6761); a resolver that says otherwise is not to be believed.
        if is_localhost(name) {
            return Lookup::done(Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
        }
        let mut tenants = lock(&self.tenants);
        let of_tenant = tenants.entry(for_whom).or_default();
        if let Some(known) = of_tenant.get(name) {
            return Lookup(known.clone());
        }
        if of_tenant.len() >= WAITING_OF_ONE_MAX {
            return Lookup::done(Err(Unresolved::Crowded));
        }
        let (tell, told) = watch::channel(Stage::Waiting);
        of_tenant.insert(name.clone(), told.clone());
        let permit = acquire_permit(self.permits.clone(), for_whom, self.turn_max);
        let entry = Entry { tenants: self.tenants.clone(), for_whom, name: name.clone() };
        // A process that ends drops a task as soon as it is given, and the entry with it, which wants this lock.
        drop(tenants);
        // A task of its own: it goes on for the others when who came first gives up.
        tokio::spawn(ask(self.names.clone(), permit, entry, tell));
        Lookup(told)
    }
}

type LookupPermit = FairPermit<Option<TenantId>>;

async fn acquire_permit(
    permits: Arc<FairPermits<Option<TenantId>>>,
    for_whom: Option<TenantId>,
    wait_max: Duration,
) -> Option<LookupPermit> {
    timeout(wait_max, permits.acquire(for_whom)).await.ok()
}

async fn ask(
    names: Names,
    permit: impl Future<Output = Option<LookupPermit>>,
    entry: Entry,
    tell: watch::Sender<Stage>,
) {
    let answer = match permit.await {
        Some(permit) => {
            tell.send_replace(Stage::Asking);
            let name = entry.name.clone();
            let asked = spawn_blocking(move || {
                let found = find(&names, &name);
                drop(permit);
                found
            });
            asked.await.unwrap_or_else(|error| Err(error.to_string())).map_err(Unresolved::No)
        }
        None => Err(Unresolved::Crowded),
    };
    // Before it is told: who comes now asks anew.
    drop(entry);
    tell.send_replace(Stage::Done(answer));
}

/// Keeps the thread until there is an answer.
fn find(names: &Names, name: &str) -> Result<Vec<IpAddr>, String> {
    let addresses: Vec<IpAddr> = match names {
        Names::System => {
            let found = (name, 0).to_socket_addrs().map_err(|error| format!("{name}: {error}"))?;
            found.map(|address| address.ip()).collect()
        }
        Names::Table(table) => table(name),
    };
    if addresses.is_empty() { Err(format!("{name} has no address")) } else { Ok(addresses) }
}

/// A name among those that are asked for; no longer when this is dropped.
struct Entry {
    tenants: Tenants,
    for_whom: Option<TenantId>,
    name: String,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut tenants = lock(&self.tenants);
        if let Some(of_tenant) = tenants.get_mut(&self.for_whom) {
            of_tenant.remove(&self.name);
            if of_tenant.is_empty() {
                tenants.remove(&self.for_whom);
            }
        }
    }
}

fn lock(tenants: &Tenants) -> MutexGuard<'_, HashMap<Option<TenantId>, OfTenant>> {
    tenants.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_lookup_that_begins_while_the_process_ends_leaves_nothing_behind_and_waits_for_nobody() -> std::io::Result<()> {
        let runtime = tokio::runtime::Runtime::new()?;
        let handle = runtime.handle().clone();
        // Waits until it has ended: one that is about to may still take something on.
        drop(runtime);
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let _entered = handle.enter();
            let resolver = Resolver::new(Names::Table(Arc::new(|_| Vec::new())), Duration::from_secs(1));
            drop(resolver.look_up(&Host::Name("name.test".to_owned()), None));
            done.send(lock(&resolver.tenants).is_empty())
        });
        assert_eq!(ended.recv_timeout(Duration::from_mins(1)), Ok(true));
        Ok(())
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
