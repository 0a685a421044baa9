//! The state of one request, from its arrival to its line in the access log.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use axum::extract::Request;
use axum::http::request::Parts;

use super::address::ClientAddress;
use super::app::SharedApp;
use super::budgets::AdmissionPermits;
use super::connection_timeouts::ActiveRequest;
use super::error_format::ErrorFormat;
use super::payer::Payer;
use super::rate_policy::RatePolicy;
use super::rate_state::RateState;
use super::trace::{TraceParent, request_id};
use crate::base::{
    Actor, ActorCredential, ActorRef, ApiKeyId, BudgetPermit, Error, Result, TenantId, WorkflowChain, lock_unpoisoned,
};

/// The data that the connection adds to a request.
#[derive(Clone)]
pub(super) struct Arrival {
    pub peer: SocketAddr,
    pub active_request: Arc<ActiveRequest>,
}

/// The state of one request, from its arrival to its line in the access log.
pub struct RequestContext {
    pub request_id: Arc<str>,
    pub trace: Option<TraceParent>,
    pub address: ClientAddress,
    rate_state: Mutex<Option<RateState>>,
    actor_id: OnceLock<Arc<str>>,
    /// Whose usage the request is: the tenant, and the API key, if it is not a session's.
    metered: OnceLock<(TenantId, Option<ApiKeyId>)>,
    error_format: OnceLock<ErrorFormat>,
    pub(super) permits: Mutex<AdmissionPermits>,
    pub(super) wait_permits: OnceLock<(BudgetPermit<Arc<str>>, BudgetPermit<Payer>)>,
}

impl RequestContext {
    pub(super) fn new(app: &SharedApp, request: &Request, arrival: Option<&Arrival>) -> Self {
        let peer = arrival.map_or(SocketAddr::from(([127, 0, 0, 1], 0)), |arrival| arrival.peer);
        RequestContext {
            request_id: request_id(request.headers(), &app.env),
            trace: TraceParent::from_headers(request.headers()),
            address: ClientAddress::from_request(peer, request.headers(), &app.settings.trusted_proxies),
            rate_state: Mutex::new(None),
            actor_id: OnceLock::new(),
            metered: OnceLock::new(),
            error_format: OnceLock::new(),
            permits: Mutex::default(),
            wait_permits: OnceLock::new(),
        }
    }

    /// The context that the outermost layer has added to the request.
    pub(crate) fn from_parts(parts: &Parts) -> Result<Arc<Self>> {
        parts.extensions.get::<Arc<Self>>().cloned().ok_or_else(|| Error::internal("a request has no context"))
    }

    pub(crate) fn set_rate_state(&self, state: RateState) {
        *lock_unpoisoned(&self.rate_state) = Some(state);
    }

    /// The budget that was charged last; none before the first charge.
    pub(super) fn rate_state(&self) -> Option<RateState> {
        *lock_unpoisoned(&self.rate_state)
    }

    /// The id of the user, key or custom credential, for the log and the budgets.
    pub(crate) fn set_actor_id(&self, who: Arc<str>) {
        let _ = self.actor_id.set(who);
    }

    /// Whose usage the request is, by tenant and API key.
    pub(super) fn set_metered(&self, tenant: TenantId, key: Option<ApiKeyId>) {
        let _ = self.metered.set((tenant, key));
    }

    pub(super) fn metered(&self) -> Option<(TenantId, Option<ApiKeyId>)> {
        self.metered.get().copied()
    }

    /// How refusals are written from here on.
    pub(super) fn set_error_format(&self, error_format: ErrorFormat) {
        let _ = self.error_format.set(error_format);
    }

    pub(super) fn error_format(&self) -> Option<&ErrorFormat> {
        self.error_format.get()
    }

    /// Charges the request to its address.
    pub fn charge_address(&self, app: &SharedApp, policy: RatePolicy) -> Result<()> {
        let (state, verdict) = app.limiter.charge_address(policy, self.address);
        self.set_rate_state(state);
        verdict
    }

    /// The answer to a failed attempt to authenticate, which is charged to the address. Past the budget it is 429 in any
    /// case.
    pub(super) fn charge_failure(&self, app: &SharedApp, error: Error) -> Error {
        if error.code().status() >= 500 {
            return error;
        }
        self.charge_address(app, RatePolicy::Public).err().unwrap_or(error)
    }

    /// The actor of changes that the request makes.
    pub(super) fn to_actor(&self, who: ActorRef, credential: Option<ActorCredential>) -> Actor {
        let (address, request_id) = (Some(self.address.0), Some(self.request_id.clone()));
        Actor { who, credential, address, request_id, chain: WorkflowChain::default() }
    }

    pub(super) fn tenant(&self) -> Option<TenantId> {
        self.rate_state().and_then(|state| state.tenant)
    }

    /// The id of the user, key or custom credential, once it is known.
    pub(super) fn actor_id(&self) -> Option<Arc<str>> {
        self.actor_id.get().cloned()
    }
}
