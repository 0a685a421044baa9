//! The handle by which requests reach the search index. Searches run on blocking threads, a bounded number at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use kernel::base::{Error, Result, run_blocking};
use kernel::store::{Db, TenantLimiter};

use super::index::{IndexQuery, SearchResults, ServingIndex};

/// How long a search waits for its permit.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// An index that is further behind the store than this is not searched.
const BEHIND_AFTER: Duration = Duration::from_secs(15);

/// The search index of this node. All clones share one index.
#[derive(Clone)]
pub struct SearchService(Arc<ServiceShared>);

struct ServiceShared {
    state: RwLock<IndexState>,
    started_at: Instant,
    /// Permits for concurrent searches: one for each processor, half of them for one tenant.
    permits: TenantLimiter,
    /// A search has failed, so the files may be damaged.
    has_failed_search: AtomicBool,
}

enum IndexState {
    /// There is no index yet.
    Building,
    /// The index has everything that was committed before that moment.
    Serving(Arc<ServingIndex>, Instant),
}

impl Default for SearchService {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from).max(2);
        SearchService(Arc::new(ServiceShared {
            state: RwLock::new(IndexState::Building),
            started_at: Instant::now(),
            permits: TenantLimiter::with_total(processors, processors / 2),
            has_failed_search: AtomicBool::new(false),
        }))
    }
}

impl SearchService {
    /// The index; an error if there is none or if it is too far behind.
    pub fn get(&self) -> Result<Arc<ServingIndex>> {
        match &*self.0.state.read().unwrap_or_else(PoisonError::into_inner) {
            IndexState::Building => Err(Error::unavailable("the search index is being built")),
            IndexState::Serving(_, fresh_at) if fresh_at.elapsed() > BEHIND_AFTER => {
                Err(Error::unavailable("the search index cannot be kept up to date"))
            }
            IndexState::Serving(serving, _) => Ok(serving.clone()),
        }
    }

    /// Searches for the tenant of this handle. `None` if the query would exceed its budget.
    pub async fn search(&self, db: &Db, query: IndexQuery) -> Result<Option<SearchResults>> {
        // Checked before waiting: a node without an index answers at once.
        self.get()?;
        let permit = self.0.permits.acquire(db.fairness_key(), WAIT_MAX).await?;
        let serving = self.get()?;
        run_blocking(move || {
            // The permit is held until the search ends, which continues when the caller disconnects.
            let _permit = permit;
            serving.search(&query)
        })
        .await
        .map_err(|error| self.record_failure(&error))
    }

    /// Asks for an inspection of the files: they can be damaged after they were written, and tantivy panics on some damage.
    fn record_failure(&self, error: &Error) -> Error {
        let cause = error.cause_chain().unwrap_or_else(|| error.to_string());
        tracing::error!(cause, "search failed; the index files will be checked");
        self.0.has_failed_search.store(true, Ordering::Relaxed);
        Error::unavailable("the search index may be damaged, and is looked at")
    }

    /// Whether a search has failed since the last call.
    pub(super) fn take_failure(&self) -> bool {
        self.0.has_failed_search.swap(false, Ordering::Relaxed)
    }

    /// Makes this index serve. It has everything that was committed before `fresh_at`.
    pub(super) fn mark_serving(&self, serving: Arc<ServingIndex>, fresh_at: Instant) {
        self.set(IndexState::Serving(serving, fresh_at));
    }

    /// Stops serving until the next index is built.
    pub(super) fn mark_building(&self) {
        self.set(IndexState::Building);
    }

    /// How far the index is behind the store; `None` while there is no index.
    pub fn lag(&self) -> Option<Duration> {
        match &*self.0.state.read().unwrap_or_else(PoisonError::into_inner) {
            IndexState::Building => None,
            IndexState::Serving(_, fresh_at) => Some(fresh_at.elapsed()),
        }
    }

    /// Reports how far the index is behind the store as a metric.
    pub(super) fn report_lag(&self) {
        let lag = self.lag().unwrap_or_else(|| self.0.started_at.elapsed());
        metrics::gauge!("search_lag_seconds").set(lag.as_secs_f64());
    }

    fn set(&self, state: IndexState) {
        *self.0.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
