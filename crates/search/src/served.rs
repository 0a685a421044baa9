//! The handle by which requests reach the search index. Searches run on blocking threads, a bounded number at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use kernel::base::{Error, Result};
use kernel::store::{Db, TenantTurns};
use tokio::sync::Semaphore;

use super::index::{Asked, Found, Serving};

/// How long a search waits for its permits.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// An index that is further behind the store than this is not searched.
const BEHIND_AFTER: Duration = Duration::from_secs(15);

/// The search index of this node. All clones share one index.
#[derive(Clone)]
pub struct Served(Arc<Shared>);

struct Shared {
    state: RwLock<State>,
    began: Instant,
    /// Permits for concurrent searches: one for each processor, half of them for one tenant.
    all: Arc<Semaphore>,
    each: TenantTurns,
    /// A search has failed, so the files may be damaged.
    is_doubted: AtomicBool,
}

enum State {
    /// There is no index yet.
    Building,
    /// The index has everything that was committed before that moment.
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
    /// The index; an error if there is none or if it is too far behind.
    pub fn get(&self) -> Result<Arc<Serving>> {
        match &*self.0.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Building => Err(Error::unavailable("the search index is being built")),
            State::Serving(_, fresh_at) if fresh_at.elapsed() > BEHIND_AFTER => {
                Err(Error::unavailable("the search index cannot be kept up to date"))
            }
            State::Serving(serving, _) => Ok(serving.clone()),
        }
    }

    /// Searches for the tenant of this handle. `None` if the query would exceed its budget.
    pub async fn search(&self, db: &Db, asked: Asked) -> Result<Option<Found>> {
        // Checked before waiting: a node without an index answers at once.
        self.get()?;
        let turns = async {
            let of_tenant = self.0.each.take_for(db, WAIT_MAX).await?;
            Ok::<_, Error>((of_tenant, self.0.all.clone().acquire_owned().await.map_err(Error::internal)?))
        };
        let turns = tokio::time::timeout(WAIT_MAX, turns).await;
        let turns = turns.map_err(|_| Error::unavailable("too many searches are waiting"))??;
        let serving = self.get()?;
        blocking(move || {
            // The permits are held until the search ends, which continues when the caller disconnects.
            let _turns = turns;
            serving.search(&asked)
        })
        .await
        .map_err(|error| self.doubt(&error))
    }

    /// Asks for an inspection of the files: they can be damaged after they were written, and tantivy panics on some damage.
    fn doubt(&self, error: &Error) -> Error {
        let cause = error.cause().unwrap_or_else(|| error.to_string());
        tracing::error!(cause, "search failed; the index files will be checked");
        self.0.is_doubted.store(true, Ordering::Relaxed);
        Error::unavailable("the search index may be damaged, and is looked at")
    }

    /// Whether a search has failed since the last call.
    pub(super) fn take_doubt(&self) -> bool {
        self.0.is_doubted.swap(false, Ordering::Relaxed)
    }

    /// Makes this index serve. It has everything that was committed before `fresh_at`.
    pub(super) fn serve(&self, serving: Arc<Serving>, fresh_at: Instant) {
        self.set(State::Serving(serving, fresh_at));
    }

    /// Stops serving until the next index is built.
    pub(super) fn build(&self) {
        self.set(State::Building);
    }

    /// How far the index is behind the store; `None` while there is no index.
    pub fn lag(&self) -> Option<Duration> {
        match &*self.0.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Building => None,
            State::Serving(_, fresh_at) => Some(fresh_at.elapsed()),
        }
    }

    /// Reports how far the index is behind the store as a metric.
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

/// Runs a job on a blocking thread, off the threads that serve requests.
pub(super) async fn blocking<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(job).await.map_err(Error::internal)?
}
