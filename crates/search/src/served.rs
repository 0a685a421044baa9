//! The index that serves, for those who ask: one of several at a time, off the threads that serve requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use kernel::base::{Error, Result};
use kernel::store::{Db, TenantTurns};
use tokio::sync::Semaphore;

use super::index::{Asked, Found, Serving};

/// How long a search waits for those before it.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// What could not be kept up to date for so long is not shown any more.
const BEHIND_AFTER: Duration = Duration::from_secs(15);

/// The index of this node. It is the same one for all who have a copy of this.
#[derive(Clone)]
pub struct Served(Arc<Shared>);

struct Shared {
    state: RwLock<State>,
    began: Instant,
    /// Searches at a time: of all tenants one for each processor, of one tenant half of those.
    all: Arc<Semaphore>,
    each: TenantTurns,
    /// A search has failed: something may be wrong with the files.
    is_doubted: AtomicBool,
}

enum State {
    /// Not there yet.
    Building,
    /// Everything that was committed before that moment is in it.
    Serving(Arc<Serving>, Instant),
}

impl Default for Served {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from).max(2);
        Served(Arc::new(Shared {
            state: RwLock::new(State::Building),
            began: Instant::now(),
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
            State::Building => Err(Error::unavailable("the search index is being built")),
            State::Serving(_, fresh_at) if fresh_at.elapsed() > BEHIND_AFTER => {
                Err(Error::unavailable("the search index cannot be kept up to date"))
            }
            State::Serving(serving, _) => Ok(serving.clone()),
        }
    }

    /// Asks it for whoever has this handle. None if that would cost more than a search may.
    pub async fn search(&self, db: &Db, asked: Asked) -> Result<Option<Found>> {
        // Before waiting: a node that has no index says so at once.
        self.get()?;
        let turns = async {
            let of_tenant = self.0.each.take_for(db, WAIT_MAX).await?;
            Ok::<_, Error>((of_tenant, self.0.all.clone().acquire_owned().await.map_err(Error::internal)?))
        };
        let turns = tokio::time::timeout(WAIT_MAX, turns).await;
        let turns = turns.map_err(|_| Error::unavailable("too many searches are waiting"))??;
        let serving = self.get()?;
        blocking(move || {
            // Held to the end of the work, which goes on when whoever asked is gone.
            let _turns = turns;
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

    /// This one serves, and has everything that was committed before that moment.
    pub(super) fn serve(&self, serving: Arc<Serving>, fresh_at: Instant) {
        self.set(State::Serving(serving, fresh_at));
    }

    /// There is none, until the next is built.
    pub(super) fn build(&self) {
        self.set(State::Building);
    }

    /// For how long what is written has not been found; none while there is no index to find it in.
    pub fn lag(&self) -> Option<Duration> {
        match &*self.0.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Building => None,
            State::Serving(_, fresh_at) => Some(fresh_at.elapsed()),
        }
    }

    /// For how long what is written has not been found, for whoever watches this from outside.
    pub(super) fn note_lag(&self) {
        let lag = match &*self.0.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Building => self.0.began.elapsed(),
            State::Serving(_, fresh_at) => fresh_at.elapsed(),
        };
        metrics::gauge!("search_lag_seconds").set(lag.as_secs_f64());
    }

    fn set(&self, state: State) {
        *self.0.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// Off the threads that serve requests.
pub(super) async fn blocking<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(job).await.map_err(Error::internal)?
}
