//! Resolves hosts to addresses; nothing else in the service does.
//!
//! A lookup blocks a thread until the system gives up, so the number of concurrent lookups is limited, and tenants share the
//! permits fairly. A lookup without a permit waits for one; concurrent lookups of one name by one tenant share the answer.
//! Deliberately left out: caching, which the system does.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::target::TargetHost;
use crate::base::{BudgetLimits, BudgetPermit, FairBudget, TenantId, lock_unpoisoned};

/// The source of name resolution.
#[derive(Clone, Default)]
pub enum NameSource {
    /// The resolver of the system.
    #[default]
    System,
    /// For tests: called at each lookup, on a thread of its own like the system's, so it may block. An empty answer means
    /// that the name does not resolve.
    Table(NameTable),
}

/// Returns the addresses of a name.
pub type NameTable = Arc<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

impl fmt::Debug for NameSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameSource::System => "System",
            NameSource::Table(_) => "Table",
        })
    }
}

/// Concurrent lookups. Each blocks a thread until the system gives up, even after its request has timed out, and the threads
/// are shared with the rest of the service.
///
/// A tenant, whose name servers may never answer, has at most an eighth of those that the others leave.
const LOOKUPS: BudgetLimits = BudgetLimits { shared: 64, divisor: 8, ..BudgetLimits::UNLIMITED };
/// Lookups of one tenant that run or wait: more than it has endpoints.
const LOOKUPS_PER_TENANT_MAX: usize = 256;

pub(super) struct Resolver {
    names: NameSource,
    wait_max: Duration,
    permits: FairBudget<Option<TenantId>>,
    tenants: LookupsByTenant,
}

type LookupsByTenant = Arc<Mutex<HashMap<Option<TenantId>, TenantLookups>>>;

/// The lookups of one tenant by name. Tenants do not share lookups, because one would wait for the other's permit.
type TenantLookups = HashMap<String, watch::Receiver<LookupStage>>;

#[derive(Clone)]
enum LookupStage {
    Waiting,
    Running,
    Done(Result<Vec<IpAddr>, Unresolved>),
}

/// Why a lookup returned no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// The lookup was not started, because too many others were waiting.
    Crowded,
    Failed(String),
}

/// A lookup that waits, runs or is done.
pub(super) struct Lookup(watch::Receiver<LookupStage>);

impl Lookup {
    fn from_answer(answer: Result<Vec<IpAddr>, Unresolved>) -> Self {
        Lookup(watch::channel(LookupStage::Done(answer)).1)
    }

    /// Waits until the lookup has a permit.
    pub async fn wait_started(&mut self) {
        // If the lookup's task has died, `await_addresses` returns the error.
        drop(self.0.wait_for(|stage| !matches!(stage, LookupStage::Waiting)).await);
    }

    /// At least one address, not checked by the guard yet; or why there is none.
    pub async fn await_addresses(mut self) -> Result<Vec<IpAddr>, Unresolved> {
        match self.0.wait_for(|stage| matches!(stage, LookupStage::Done(_))).await.as_deref() {
            Ok(LookupStage::Done(answer)) => answer.clone(),
            _ => Err(Unresolved::Failed("the lookup ended badly".to_owned())),
        }
    }
}

impl Resolver {
    pub fn new(names: NameSource, wait_max: Duration) -> Self {
        Resolver { names, wait_max, permits: FairBudget::new(LOOKUPS), tenants: Arc::default() }
    }

    /// Starts a lookup, or joins one of the same name for the same tenant.
    pub fn look_up(&self, host: &TargetHost, tenant: Option<TenantId>) -> Lookup {
        let name = match host {
            TargetHost::Address(address) => return Lookup::from_answer(Ok(vec![*address])),
            TargetHost::Name(name) => name,
        };
        // RFC 6761 reserves these names for this host, whatever a resolver answers.
        if is_localhost(name) {
            return Lookup::from_answer(Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
        }
        let mut tenants = lock_unpoisoned(&self.tenants);
        let lookups = tenants.entry(tenant).or_default();
        if let Some(stage) = lookups.get(name) {
            return Lookup(stage.clone());
        }
        if lookups.len() >= LOOKUPS_PER_TENANT_MAX {
            return Lookup::from_answer(Err(Unresolved::Crowded));
        }
        let (stage_sender, stage) = watch::channel(LookupStage::Waiting);
        lookups.insert(name.clone(), stage.clone());
        let (permits, wait_max) = (self.permits.clone(), self.wait_max);
        let permit = async move { permits.acquire(tenant.into(), 1, wait_max).await };
        let entry = LookupEntry { tenants: self.tenants.clone(), tenant, name: name.clone() };
        // A runtime that shuts down drops a spawned task at once, and its `LookupEntry` takes this lock when dropped.
        drop(tenants);
        // A task of its own, so that it goes on for the others when the first caller gives up.
        tokio::spawn(run_lookup(self.names.clone(), permit, entry, stage_sender));
        Lookup(stage)
    }
}

type LookupPermit = BudgetPermit<Option<TenantId>>;

async fn run_lookup(
    names: NameSource,
    permit: impl Future<Output = Option<LookupPermit>>,
    entry: LookupEntry,
    stage_sender: watch::Sender<LookupStage>,
) {
    let answer = match permit.await {
        Some(permit) => {
            stage_sender.send_replace(LookupStage::Running);
            let name = entry.name.clone();
            let task = spawn_blocking(move || {
                let found = resolve_blocking(&names, &name);
                drop(permit);
                found
            });
            task.await.unwrap_or_else(|error| Err(error.to_string())).map_err(Unresolved::Failed)
        }
        None => Err(Unresolved::Crowded),
    };
    // Removed before the answer is sent, so that later callers start a new lookup.
    drop(entry);
    stage_sender.send_replace(LookupStage::Done(answer));
}

/// Blocks the thread until there is an answer.
fn resolve_blocking(names: &NameSource, name: &str) -> Result<Vec<IpAddr>, String> {
    let addresses: Vec<IpAddr> = match names {
        NameSource::System => {
            let found = (name, 0).to_socket_addrs().map_err(|error| format!("{name}: {error}"))?;
            found.map(|address| address.ip()).collect()
        }
        NameSource::Table(table) => table(name),
    };
    if addresses.is_empty() { Err(format!("{name} has no address")) } else { Ok(addresses) }
}

/// The entry of a lookup in the table, removed when dropped.
struct LookupEntry {
    tenants: LookupsByTenant,
    tenant: Option<TenantId>,
    name: String,
}

impl Drop for LookupEntry {
    fn drop(&mut self) {
        let mut tenants = lock_unpoisoned(&self.tenants);
        if let Some(lookups) = tenants.get_mut(&self.tenant) {
            lookups.remove(&self.name);
            if lookups.is_empty() {
                tenants.remove(&self.tenant);
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
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_lookup_that_begins_while_the_process_ends_leaves_nothing_behind_and_waits_for_nobody() -> std::io::Result<()> {
        let runtime = tokio::runtime::Runtime::new()?;
        let handle = runtime.handle().clone();
        // Waits until the runtime has shut down; before that it might still accept a task.
        drop(runtime);
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let _entered = handle.enter();
            let resolver = Resolver::new(NameSource::Table(Arc::new(|_| Vec::new())), Duration::from_secs(1));
            drop(resolver.look_up(&TargetHost::Name("name.test".to_owned()), None));
            done.send(lock_unpoisoned(&resolver.tenants).is_empty())
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
