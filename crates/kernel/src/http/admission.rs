//! Admission: what clients share of this process, and how much of it one tenant, or one address that is nobody's, may have
//! at a time.
//!
//! Nobody holds what is everyone's while waiting for what is their own. A request counts from its arrival to its answer,
//! but not while its client is awaited; a permit to read or write is held while the answer is made, and by no one who waits
//! for a body, for news or for a tenant's own turn; memory is counted by the byte, as bodies arrive and until answers are
//! taken. Rates are the limiter's, time-outs those of `patience.rs`.

use std::pin::pin;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Method;
use axum::response::Response;
use futures_util::future::poll_immediate;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::Instant;

use super::app::App;
use super::context::Context;
use super::payer::Payer;
use crate::base::{BudgetAccount, BudgetLimits, BudgetPermit, Code, Error, FairBudget, Result, TenantId};

/// How long a request waits for a permit. Shorter than clients give up.
pub(super) const PERMIT_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a body or an answer waits for memory, which others release every moment.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Writes at once. They wait for a disk or for PostgreSQL together, so many of them are worth one commit.
const WRITES: BudgetLimits = BudgetLimits { shared: 256, reserve: 256, floor: 1, divisor: 2 };
/// Reports that agents have sent, from the parser to the disk: of one tenant as many as are worth one commit.
const REPORTS: BudgetLimits = BudgetLimits { shared: 64, reserve: 64, floor: 1, divisor: 4 };
/// Parsers of reports at most: the largest report takes some 150 MiB.
const PARSERS_MAX: usize = 3;

/// A payer with more requests under way than this is told of refusals late: a client that comes again at once would cost
/// others as much as one that is served. Nobody who waits for answers before asking again has as many.
const FLOOD_REQUESTS: usize = 64;
/// As long as `Retry-After` asks for at least.
const FLOOD_DELAY: Duration = Duration::from_secs(1);

/// What a tenant may have of the memory however much others hold: one part in so many, which is a largest body.
const MEMORY_FLOOR_PARTS: usize = 22;

/// A body is counted in steps of so many bytes, the first of them before any has come.
const BODY_STEP_BYTES: usize = 16 * 1024;
/// What a small body may take, on the slowest of honest lines.
const BODY_START: Duration = Duration::from_secs(5);
/// So many bytes that have arrived give a second more: a client that dribbles does not wait as long as a large one.
const BODY_BYTES_PER_SECOND: u64 = 64 * 1024;

/// What an answer that nobody takes costs beside its bytes.
const ANSWER_OVERHEAD_BYTES: usize = 512;
/// Up to this size an answer of HTTP/1.1 is with the connection at once, of which each has one at a time.
const SMALL_ANSWER_BYTES: usize = 4 * 1024;

/// The budgets of one node.
pub(super) struct Admission {
    /// Requests of callers that are not known, yet or at all, by address. Many tenants may share one, behind a proxy.
    arrivals: FairBudget<Payer>,
    /// Requests of tenants that are not answered.
    requests: FairBudget<Payer>,
    reads: FairBudget<Payer>,
    writes: FairBudget<Payer>,
    reports: FairBudget<Payer>,
    parsers: FairBudget<Payer>,
    /// Bytes of bodies that arrive and of answers that are not taken, of tenants and of everybody else: however many
    /// addresses strangers have, they take nothing from tenants.
    memory: FairBudget<Payer>,
    memory_of_strangers: FairBudget<Payer>,
    /// Refusals that are told late, see [`Context::delay_flood`].
    delays: FairBudget<Payer>,
}

/// What a node has for its clients.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Requests that have arrived and are not answered. One tenant may have an eighth of those that others leave; an
    /// address, half of those whose tenants are not known yet.
    pub requests_max: usize,
    /// Bytes of bodies and answers, shared in the same way.
    pub memory_bytes_max: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        AdmissionLimits { requests_max: 8192, memory_bytes_max: 384 * 1024 * 1024 }
    }
}

impl Admission {
    pub fn new(limits: AdmissionLimits) -> Self {
        // A read takes a thread for as long as it lasts: the more at once, the longer each request waits for a processor.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let reads = processors.max(4) * 4;
        // One of each tenant, and half of the processors for those who do not send reports.
        let parsers = (processors / 2).clamp(1, PARSERS_MAX);
        let budget = |shared: usize, reserve: usize, floor: usize, divisor: usize| {
            FairBudget::new(BudgetLimits { shared, reserve, floor, divisor })
        };
        let AdmissionLimits { requests_max, memory_bytes_max } = limits;
        Admission {
            arrivals: budget(requests_max, requests_max, 1, 2),
            requests: budget(requests_max, requests_max, 1, 8),
            reads: budget(reads, reads, 1, 2),
            writes: FairBudget::new(WRITES),
            reports: FairBudget::new(REPORTS),
            parsers: budget(0, parsers, 1, 1),
            memory: budget(memory_bytes_max, memory_bytes_max / 2, memory_bytes_max / MEMORY_FLOOR_PARTS, 8),
            memory_of_strangers: budget(memory_bytes_max / 4, 0, 0, 8),
            delays: budget(requests_max, 0, 0, 2),
        }
    }

    /// Waits for a permit to read as this tenant.
    pub async fn acquire_read(&self, tenant: TenantId) -> Result<WorkPermit> {
        acquire_work(&self.reads, Payer::Tenant(tenant)).await
    }

    /// Waits until one more report of the tenant may be under way.
    pub async fn acquire_report(&self, tenant: TenantId) -> Result<WorkPermit> {
        acquire_work(&self.reports, Payer::Tenant(tenant)).await
    }

    /// Waits for a parser: one of all, and the one that the tenant may have.
    pub async fn acquire_parser(&self, tenant: TenantId) -> Result<WorkPermit> {
        acquire_work(&self.parsers, Payer::Tenant(tenant)).await
    }
}

async fn acquire_work(budget: &FairBudget<Payer>, payer: Payer) -> Result<WorkPermit> {
    let permit = budget.acquire(payer.into(), 1, PERMIT_WAIT_MAX).await;
    permit.map(WorkPermit).ok_or_else(|| Error::unavailable("too many requests of one tenant, or of all, are waiting"))
}

/// A permit to work, given back when it is dropped.
pub struct WorkPermit(#[expect(dead_code, reason = "it is held")] BudgetPermit<Payer>);

/// Bytes of memory, given back when the value is dropped.
pub(super) struct MemoryPermit(#[expect(dead_code, reason = "it is held")] BudgetPermit<Payer>);

/// What a request holds.
#[derive(Default)]
pub(super) struct RequestPermits {
    request: Option<BudgetPermit<Payer>>,
    work: Option<WorkPermit>,
}

/// A body that has arrived, and the memory that it takes.
pub(super) struct ArrivedBody {
    pub bytes: Vec<u8>,
    pub memory: MemoryPermit,
}

impl Context {
    /// Counts a request until it is answered: as the tenant's once that is known.
    pub(super) fn count_request(&self, app: &App) -> Result<()> {
        let counted = self.request_budget(app).try_acquire(self.account(), 1);
        let crowded = || Error::unavailable("too many requests of one tenant or address, or of all, are under way");
        self.permits().request = Some(counted.ok_or_else(crowded)?);
        Ok(())
    }

    /// The caller is known and the request charged: it is its tenant's from here on. One that has no body to wait for waits
    /// for its permit here.
    pub(crate) async fn enter(&self, app: &App, method: &Method) -> Result<()> {
        self.count_request(app)?;
        // What is deleted has no answer to speak of, and may be the very key whose answers nobody reads.
        if method != Method::DELETE && self.memory_budget(app).is_nearly_spent(&self.account()) {
            return Err(unread());
        }
        let budget = match *method {
            Method::POST | Method::PUT | Method::PATCH => return Ok(()),
            Method::DELETE => &app.admission.writes,
            _ => &app.admission.reads,
        };
        self.acquire_work(budget).await
    }

    /// Waits for a permit to write.
    pub(super) async fn enter_write(&self, app: &App) -> Result<()> {
        self.acquire_work(&app.admission.writes).await
    }

    async fn acquire_work(&self, budget: &FairBudget<Payer>) -> Result<()> {
        let permit = acquire_work(budget, self.payer()).await?;
        self.permits().work = Some(permit);
        Ok(())
    }

    /// All of a body that is neither too long nor too slow.
    pub(super) async fn receive_body(&self, app: &App, body: Body, bytes_max: usize) -> Result<ArrivedBody> {
        // Of the whole tenant: an agent's key is often its only one, and bodies are not left lying as answers are.
        let memory = self.memory_budget(app).acquire(self.payer().into(), BODY_STEP_BYTES, MEMORY_WAIT_MAX).await;
        let memory = memory.ok_or_else(no_memory)?;
        let mut arriving = pin!(read_body(body, bytes_max, app.settings.body_timeout, memory));
        if let Some(arrived) = poll_immediate(arriving.as_mut()).await {
            return arrived;
        }
        self.release_permits();
        let arrived = arriving.await?;
        self.count_request(app)?;
        Ok(arrived)
    }

    /// Waits for something to happen. Each tenant and each credential has a bounded number of requests that do: one key's
    /// readers keep no other key from anything. A request that has waited once may wait again.
    pub(crate) async fn wait_for_news<T>(&self, app: &App, wait: impl Future<Output = T>) -> Result<T> {
        if self.waiting.get().is_none() {
            let crowded = || Error::unavailable("too many requests of one credential or tenant wait for news");
            let who = self.credential().unwrap_or_else(|| "".into());
            let own = app.waits_of.take(who, app.settings.waits_per_credential_max).ok_or_else(crowded)?;
            let of_payer = app.waits.take(self.payer(), app.settings.waits_per_tenant_max).ok_or_else(crowded)?;
            let _ = self.waiting.set((own, of_payer));
        }
        self.release_permits();
        let waited = wait.await;
        self.count_request(app)?;
        self.acquire_work(&app.admission.reads).await?;
        Ok(waited)
    }

    /// Counts an answer until it is taken. One that leads beyond what its client may leave unread is not given, unless it
    /// tells of something that was done.
    pub(super) async fn hold_answer(&self, app: &App, size: AnswerSize, is_read: bool) -> Result<Option<MemoryPermit>> {
        let Some(bytes) = size.counted() else { return Ok(None) };
        let (memory, account) = (self.memory_budget(app), self.account());
        if !is_read {
            return Ok(Some(MemoryPermit(memory.acquire_beyond(account, bytes))));
        }
        let permit = memory.acquire(account, bytes, MEMORY_WAIT_MAX).await;
        permit.map(|permit| Some(MemoryPermit(permit))).ok_or_else(unread)
    }

    /// Waits a moment before a refusal is told to somebody who has very many requests under way, or very many refusals that
    /// wait so. Holds nothing meanwhile but a permit of `delays`, and does not wait where there is none.
    pub(super) async fn delay_flood(&self, app: &App) {
        let Admission { arrivals, delays, .. } = &app.admission;
        let (address, payer) = (Payer::Address(self.address.bucket()), self.payer());
        let is_flood = [arrivals.held_by(&address), self.request_budget(app).held_by(&payer), delays.held_by(&address)]
            .into_iter()
            .any(|requests| requests > FLOOD_REQUESTS);
        self.release_permits();
        if let Some(_delayed) = is_flood.then(|| delays.try_acquire(address.into(), 1)).flatten() {
            // Up to twice as long, so that those who were refused together do not come back together.
            let [part] = app.world.chance.public_bytes();
            tokio::time::sleep(FLOOD_DELAY + FLOOD_DELAY * u32::from(part) / 256).await;
        }
    }

    fn memory_budget<'a>(&self, app: &'a App) -> &'a FairBudget<Payer> {
        if self.tenant().is_some() { &app.admission.memory } else { &app.admission.memory_of_strangers }
    }

    fn request_budget<'a>(&self, app: &'a App) -> &'a FairBudget<Payer> {
        if self.tenant().is_some() { &app.admission.requests } else { &app.admission.arrivals }
    }

    /// The answer is made, and what comes next takes no thread.
    pub(super) fn release_work(&self) {
        let work = self.permits().work.take();
        drop(work);
    }

    pub(super) fn release_permits(&self) {
        let permits = std::mem::take(&mut *self.permits());
        drop(permits);
    }

    fn account(&self) -> BudgetAccount<Payer> {
        BudgetAccount { payer: self.payer(), credential: self.tenant().and_then(|_| self.credential()) }
    }

    fn payer(&self) -> Payer {
        self.tenant().map_or_else(|| Payer::Address(self.address.bucket()), Payer::Tenant)
    }

    fn permits(&self) -> MutexGuard<'_, RequestPermits> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unread() -> Error {
    Error::unavailable("answers to this credential, tenant or address are not taken by their clients")
}

fn no_memory() -> Error {
    Error::unavailable("bodies of this credential, tenant or address take more memory than there is for them")
}

/// Reads a body. Memory is reserved as its bytes arrive: one that only says that it will be large takes none.
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
            let asked_at = Instant::now();
            if !memory.grow(missing, MEMORY_WAIT_MAX).await {
                return Err(no_memory());
            }
            // The client is not blamed for the time in which nothing was taken from it.
            started += asked_at.elapsed();
            reserved += missing;
        }
        bytes.extend_from_slice(data);
    }
}

/// What an answer takes of memory until its client has taken it, before it is compressed.
#[derive(Clone, Copy)]
pub(super) struct AnswerSize {
    bytes: usize,
    is_http2: bool,
}

/// Noted with an answer whose size is not known before it is made.
#[derive(Clone, Copy)]
pub(super) struct StreamBytes(pub usize);

impl AnswerSize {
    pub fn of(response: &Response, is_http2: bool) -> Self {
        let hint = response.body().size_hint();
        let known = usize::try_from(hint.upper().unwrap_or(hint.lower())).unwrap_or(usize::MAX);
        let bytes = response.extensions().get().map_or(known, |StreamBytes(bytes)| *bytes);
        AnswerSize { bytes, is_http2 }
    }

    /// A stream of HTTP/2 can refuse to take a single byte while others move, and there are hundreds of them on each
    /// connection: so every one counts.
    fn counted(self) -> Option<usize> {
        let is_counted = if self.is_http2 { self.bytes > 0 } else { self.bytes > SMALL_ANSWER_BYTES };
        is_counted.then_some(self.bytes.saturating_add(ANSWER_OVERHEAD_BYTES))
    }
}
