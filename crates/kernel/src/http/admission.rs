//! Admission: charges each request to the budgets of this node (`budgets.rs`).
//!
//! No request holds a shared permit while it waits for something of its own. A request is counted from its arrival to its
//! answer, but not while it waits for its client. A read or write permit is held while the answer is made, and not while
//! the request waits for a body, for news or for its tenant's own limit. Memory is counted in bytes, as bodies arrive and
//! until answers are sent. Rate limits are in `limiter.rs`, connection timeouts in `connection_timeouts.rs`.

use std::pin::pin;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Method;
use axum::response::Response;
use futures_util::future::poll_immediate;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::Instant;

use super::app::App;
use super::budgets::{Admission, AdmissionPermits, MemoryPermit, acquire_work};
use super::context::RequestContext;
use super::payer::Payer;
use super::rate_policy::RatePolicy;
use crate::base::{BudgetAccount, BudgetPermit, Code, Error, FairBudget, Result, TenantId, lock_unpoisoned};

/// How long a body or an answer waits for memory. Other requests release some all the time.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(1);

/// A payer with more requests under way than this receives its refusals late: a client that retries at once would cost
/// others as much as one that is served. No client that waits for its answers has as many.
const FLOOD_REQUESTS: usize = 64;
/// The shortest delay that `Retry-After` can name.
const FLOOD_DELAY: Duration = Duration::from_secs(1);

/// Memory for a body is reserved in steps of this size, the first one before any byte arrives.
const BODY_STEP_BYTES: usize = 16 * 1024;
/// How long a small body may take to arrive over a slow connection.
const BODY_START: Duration = Duration::from_secs(5);
/// The body's deadline moves by a second for each this many bytes, so a trickling client times out before a large upload.
const BODY_BYTES_PER_SECOND: u64 = 64 * 1024;

/// The memory that an unsent answer takes beside its bytes.
const ANSWER_OVERHEAD_BYTES: usize = 512;
/// HTTP/1.1 answers up to this size are not counted: they fit the connection's buffer, and each connection has only one.
const SMALL_ANSWER_BYTES: usize = 4 * 1024;

/// A body that has arrived completely, and the memory reserved for it.
pub(super) struct ArrivedBody {
    pub bytes: Vec<u8>,
    pub memory: MemoryPermit,
}

impl RequestContext {
    /// Counts the request until it is answered: against its address, or its tenant once that is known.
    pub(super) fn count_request(&self, app: &App) -> Result<()> {
        let counted = self.request_budget(app).try_acquire(self.budget_account(), 1);
        let crowded = || Error::unavailable("too many requests of one tenant or address, or of all, are under way");
        self.lock_permits().request = Some(counted.ok_or_else(crowded)?);
        Ok(())
    }

    /// Charges an authenticated request to its credential and tenant, and admits it.
    pub(super) async fn charge_and_admit(
        &self,
        app: &App,
        policy: RatePolicy,
        (credential, tenant): (&Arc<str>, TenantId),
        method: &Method,
    ) -> Result<()> {
        let (state, verdict) = app.limiter.charge_caller(policy, credential, tenant);
        self.set_rate_state(state);
        verdict?;
        self.admit_request(app, method).await
    }

    /// Counts the request against its tenant, once the caller is known and charged. A request without a body also waits
    /// here for its read or write permit.
    async fn admit_request(&self, app: &App, method: &Method) -> Result<()> {
        self.count_request(app)?;
        // The answer to DELETE is empty, and the request may revoke the very key whose answers are not read.
        if method != Method::DELETE && self.memory_budget(app).is_nearly_spent(&self.budget_account()) {
            return Err(unread_answers_error());
        }
        let budget = match *method {
            Method::POST | Method::PUT | Method::PATCH => return Ok(()),
            Method::DELETE => &app.admission.writes,
            _ => &app.admission.reads,
        };
        self.acquire_work(budget).await
    }

    /// Waits for a write permit.
    pub(super) async fn acquire_write(&self, app: &App) -> Result<()> {
        self.acquire_work(&app.admission.writes).await
    }

    async fn acquire_work(&self, budget: &FairBudget<Payer>) -> Result<()> {
        let permit = acquire_work(budget, self.payer()).await?;
        self.lock_permits().work = Some(permit);
        Ok(())
    }

    /// Receives a whole body, within its limits of size and time.
    pub(super) async fn receive_body(&self, app: &App, body: Body, bytes_max: usize) -> Result<ArrivedBody> {
        // Charged to the tenant, not to the key: a tenant's agents often share one, and bodies do not pile up like answers.
        let memory = self.memory_budget(app).acquire(self.payer().into(), BODY_STEP_BYTES, MEMORY_WAIT_MAX).await;
        let memory = memory.ok_or_else(no_memory_error)?;
        let mut arriving = pin!(read_body(body, bytes_max, app.settings.body_timeout, memory));
        if let Some(arrived) = poll_immediate(arriving.as_mut()).await {
            return arrived;
        }
        self.release_permits();
        let arrived = arriving.await?;
        self.count_request(app)?;
        Ok(arrived)
    }

    /// Waits for news without holding permits. The number of waiting requests is bounded for each tenant and for each user
    /// or key, so that one key's readers do not block another's. A request that has waited once may wait again.
    pub(crate) async fn wait_for_news<T>(&self, app: &App, wait: impl Future<Output = T>) -> Result<T> {
        if self.wait_permits.get().is_none() {
            let crowded = || Error::unavailable("too many requests of one credential or tenant wait for news");
            let who: Arc<str> = self.actor_id().unwrap_or_else(|| "".into());
            let own = app.actor_waits.try_acquire(who.into(), 1).ok_or_else(crowded)?;
            let of_payer = app.payer_waits.try_acquire(self.payer().into(), 1).ok_or_else(crowded)?;
            let _ = self.wait_permits.set((own, of_payer));
        }
        self.release_permits();
        let waited = wait.await;
        self.count_request(app)?;
        self.acquire_work(&app.admission.reads).await?;
        Ok(waited)
    }

    /// Reserves the answer's memory until it is sent. An answer over the budget is refused, unless it reports a change
    /// that was made.
    pub(super) async fn hold_answer(&self, app: &App, size: AnswerSize, is_read: bool) -> Result<Option<MemoryPermit>> {
        let Some(bytes) = size.counted_bytes() else { return Ok(None) };
        let (memory, account) = (self.memory_budget(app), self.budget_account());
        if !is_read {
            return Ok(Some(MemoryPermit(memory.acquire_over_limit(account, bytes))));
        }
        let permit = memory.acquire(account, bytes, MEMORY_WAIT_MAX).await;
        permit.map(|permit| Some(MemoryPermit(permit))).ok_or_else(unread_answers_error)
    }

    /// Delays a refusal if its client has very many requests under way, or very many delayed refusals. The request holds
    /// only a permit of `delays` meanwhile, and does not wait if there is none.
    pub(super) async fn delay_flood(&self, app: &App) {
        let Admission { arrivals, delays, .. } = &app.admission;
        let (address, payer) = (Payer::Address(self.address.bucket_address()), self.payer());
        let is_flood = [arrivals.held_by(&address), self.request_budget(app).held_by(&payer), delays.held_by(&address)]
            .into_iter()
            .any(|requests| requests > FLOOD_REQUESTS);
        self.release_permits();
        if let Some(_delayed) = is_flood.then(|| delays.try_acquire(address.into(), 1)).flatten() {
            // Random, up to twice as long, so that clients that were refused together do not retry together.
            let [part] = app.env.random.public_bytes();
            tokio::time::sleep(FLOOD_DELAY + FLOOD_DELAY * u32::from(part) / 256).await;
        }
    }

    fn memory_budget<'a>(&self, app: &'a App) -> &'a FairBudget<Payer> {
        if self.tenant().is_some() { &app.admission.memory } else { &app.admission.anonymous_memory }
    }

    fn request_budget<'a>(&self, app: &'a App) -> &'a FairBudget<Payer> {
        if self.tenant().is_some() { &app.admission.requests } else { &app.admission.arrivals }
    }

    /// Releases the work permit when the answer is made: sending it occupies no thread.
    pub(super) fn release_work(&self) {
        let work = self.lock_permits().work.take();
        drop(work);
    }

    pub(super) fn release_permits(&self) {
        let permits = std::mem::take(&mut *self.lock_permits());
        drop(permits);
    }

    fn budget_account(&self) -> BudgetAccount<Payer> {
        BudgetAccount { payer: self.payer(), credential: self.tenant().and_then(|_| self.actor_id()) }
    }

    fn payer(&self) -> Payer {
        self.tenant().map_or_else(|| Payer::Address(self.address.bucket_address()), Payer::Tenant)
    }

    fn lock_permits(&self) -> MutexGuard<'_, AdmissionPermits> {
        lock_unpoisoned(&self.permits)
    }
}

fn unread_answers_error() -> Error {
    Error::unavailable("answers to this credential, tenant or address are not taken by their clients")
}

fn no_memory_error() -> Error {
    Error::unavailable("bodies of this credential, tenant or address take more memory than there is for them")
}

/// Reads a body. Memory is reserved as bytes arrive, not by the announced length.
async fn read_body(
    body: Body,
    bytes_max: usize,
    timeout: Duration,
    mut memory: BudgetPermit<Payer>,
) -> Result<ArrivedBody> {
    let mut started = Instant::now();
    let mut body = Limited::new(body, bytes_max);
    let (mut bytes, mut reserved) = (Vec::new(), BODY_STEP_BYTES);
    loop {
        let allowed = BODY_START + Duration::from_secs(bytes.len() as u64 / BODY_BYTES_PER_SECOND);
        let frame = match tokio::time::timeout_at(started + allowed.min(timeout), body.frame()).await {
            Err(_) => return Err(Error::new(Code::RequestTimeout, "The body did not arrive in time.")),
            Ok(None) => return Ok(ArrivedBody { bytes, memory: MemoryPermit(memory) }),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => {
                return Err(Error::new(Code::PayloadTooLarge, format!("A body is at most {bytes_max} bytes.")));
            }
            Ok(Some(Err(error))) => {
                return Err(Error::new(Code::MalformedJson, format!("The body could not be read: {error}")));
            }
        };
        let data = frame.data_ref().map_or(&[][..], |data| data);
        let missing = (bytes.len() + data.len()).saturating_sub(reserved).next_multiple_of(BODY_STEP_BYTES);
        if missing > 0 {
            let wait_began = Instant::now();
            if !memory.grow(missing, MEMORY_WAIT_MAX).await {
                return Err(no_memory_error());
            }
            // The wait for memory does not count against the client's deadline.
            started += wait_began.elapsed();
            reserved += missing;
        }
        bytes.extend_from_slice(data);
    }
}

/// The memory that an answer takes until it is sent, measured before compression.
#[derive(Clone, Copy)]
pub(super) struct AnswerSize {
    bytes: usize,
    is_http2: bool,
}

/// A response extension: the size to reserve for an answer whose length is not known in advance.
#[derive(Clone, Copy)]
pub(super) struct StreamBytes(pub usize);

impl AnswerSize {
    pub fn from_response(response: &Response, is_http2: bool) -> Self {
        let hint = response.body().size_hint();
        let hinted = usize::try_from(hint.upper().unwrap_or(hint.lower())).unwrap_or(usize::MAX);
        let bytes = response.extensions().get().map_or(hinted, |StreamBytes(bytes)| *bytes);
        AnswerSize { bytes, is_http2 }
    }

    /// Every HTTP/2 answer is counted: a stream can stall while others on its connection move, and a connection has
    /// hundreds of them.
    fn counted_bytes(self) -> Option<usize> {
        let is_counted = if self.is_http2 { self.bytes > 0 } else { self.bytes > SMALL_ANSWER_BYTES };
        is_counted.then_some(self.bytes.saturating_add(ANSWER_OVERHEAD_BYTES))
    }
}
