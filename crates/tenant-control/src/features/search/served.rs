//! The index that serves, for those who ask: one of several at a time, off the threads that serve requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kernel::base::{Error, Result};
use kernel::store::TenantTurns;
use tokio::sync::Semaphore;

use super::index::{Asked, Found, Serving};

/// How long a search waits for those before it.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The index of this node. It is the same one for all who have a copy of this.
#[derive(Clone)]
pub struct Served(Arc<Shared>);

struct Shared {
    state: RwLock<State>,
    /// Searches at a time: of all tenants one for each processor, of one tenant half of those.
    all: Arc<Semaphore>,
    each: TenantTurns,
    /// A search has failed: something may be wrong with the files.
    is_doubted: AtomicBool,
}

#[derive(Clone)]
enum State {
    /// Not there yet.
    Building,
    Serving(Arc<Serving>),
    /// It is there, and cannot be kept up to date.
    Behind,
}

impl Default for Served {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from).max(2);
        Served(Arc::new(Shared {
            state: RwLock::new(State::Building),
            all: Arc::new(Semaphore::new(processors)),
            each: TenantTurns::new(processors / 2),
            is_doubted: AtomicBool::new(false),
        }))
    }
}

impl Served {
    /// The index, up to date but for what is being committed.
    pub fn get(&self) -> Result<Arc<Serving>> {
        match &*self.0.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Serving(serving) => Ok(serving.clone()),
            State::Building => Err(Error::unavailable("the search index is being built")),
            State::Behind => Err(Error::unavailable("the search index cannot be kept up to date")),
        }
    }

    /// Asks it. None if that would cost more than a search may.
    pub async fn search(&self, asked: Asked) -> Result<Option<Found>> {
        // Before waiting: a node that has no index says so at once.
        self.get()?;
        let of_tenant = self.0.each.take_of(asked.tenant, WAIT_MAX).await?;
        let of_all = tokio::time::timeout(WAIT_MAX, self.0.all.clone().acquire_owned()).await;
        let of_all =
            of_all.map_err(|_| Error::unavailable("too many searches are waiting"))?.map_err(Error::internal)?;
        let serving = self.get()?;
        blocking(move || {
            // Held to the end of the work, which goes on when whoever asked is gone.
            let _turns = (of_tenant, of_all);
            serving.search(&asked)
        })
        .await
        .map_err(|error| self.doubt(&error))
    }

    /// Files that were written well may not be read well, and tantivy panics at some of what it reads then.
    fn doubt(&self, error: &Error) -> Error {
        let cause = error.cause().unwrap_or_else(|| error.to_string());
        tracing::error!(cause, "a search has failed; the files of the index are looked at");
        self.0.is_doubted.store(true, Ordering::Relaxed);
        Error::unavailable("the search index may be damaged, and is looked at")
    }

    /// Whether a search has failed since this was asked.
    pub(super) fn take_doubt(&self) -> bool {
        self.0.is_doubted.swap(false, Ordering::Relaxed)
    }

    pub(super) fn serve(&self, serving: Arc<Serving>) {
        self.set(State::Serving(serving));
    }

    /// There is none, until the next is built.
    pub(super) fn build(&self) {
        self.set(State::Building);
    }

    /// What there is, is too old to be shown.
    pub(super) fn fall_behind(&self) {
        let mut state = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Serving(_)) {
            *state = State::Behind;
        }
    }

    fn set(&self, state: State) {
        *self.0.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// Off the threads that serve requests.
pub(super) async fn blocking<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(job).await.map_err(Error::internal)?
}
