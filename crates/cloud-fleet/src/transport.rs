//! Sends the requests of adapters through the guarded client.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use clouds::{CloudKind, CloudRequest, CloudResponse, Transport, TransportFailure, TransportFuture};
use kernel::base::{Env, TenantId};
use kernel::outbound::{Failure, Outbound, OutboundRequest, Target};
use std::sync::Arc;

use crate::pace::{AccountPaces, JOB_WAIT_MAX_MS, PaceLimits};

/// For one request to a cloud. Where a person waits, it is less than their request may take.
const TIMEOUT: Duration = Duration::from_secs(25);
const TIMEOUT_OF_CALLER: Duration = Duration::from_secs(8);
/// How much of what an account allows is for requests that a person waits for.
const CALLER_PART: f64 = 0.3;
/// A page of machines of AWS, each with as many tags as it can have, is about 4 MB; a list of images may be as long.
const BODY_BYTES_MAX: usize = 8 << 20;

pub struct GuardedTransport {
    pub env: Env,
    pub kind: CloudKind,
    pub outbound: Outbound,
    pub tenant: TenantId,
    pub paces: Arc<AccountPaces>,
    pub limits: PaceLimits,
    /// The account at the cloud.
    pub account: String,
    /// Whether a person waits for the answer.
    pub for_caller: bool,
}

impl Transport for GuardedTransport {
    fn send(&self, request: CloudRequest) -> TransportFuture<'_> {
        Box::pin(async move {
            let outgoing = self.to_outbound(request)?;
            // People who ask for catalogs and verifications have a part of their own: they do not hold up orders and syncs.
            let part = if self.for_caller { CALLER_PART } else { 1.0 - CALLER_PART };
            let limits = PaceLimits { burst: self.limits.burst * part, per_second: self.limits.per_second * part };
            let account = format!("{}\n{}\n{}", self.tenant, self.account, outgoing.target.host());
            if let Some(until) = self.paces.find_block(&account, self.env.now()) {
                let detail = format!("it wants no more requests of this account until {until}");
                return Err(TransportFailure { may_have_arrived: false, detail });
            }
            if !self.paces.acquire(&format!("{account}\n{part}"), limits).await {
                let detail = "too many requests of this account wait already".to_owned();
                return Err(TransportFailure { may_have_arrived: false, detail });
            }
            let response = self.outbound.send_request(outgoing).await.map_err(to_transport_failure)?;
            if response.body.len() >= BODY_BYTES_MAX {
                return Err(TransportFailure { may_have_arrived: true, detail: "the answer is too large".to_owned() });
            }
            let header = |(name, value): (&HeaderName, &HeaderValue)| {
                Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
            };
            let headers = response.headers.iter().filter_map(header).collect();
            let answer = CloudResponse { status: response.status, headers, body: response.body };
            self.obey_rate_answer(&account, &answer);
            Ok(answer)
        })
    }
}

impl GuardedTransport {
    /// A cloud that asks for a long wait asks all that use the account.
    fn obey_rate_answer(&self, account: &str, answer: &CloudResponse) {
        let now = self.env.now();
        if let Some(wait_ms) = self.kind.find_retry_after_ms(answer, now).filter(|wait_ms| *wait_ms > JOB_WAIT_MAX_MS) {
            self.paces.block_account(account, now.plus_ms(wait_ms), now);
        }
    }

    fn to_outbound(&self, request: CloudRequest) -> Result<OutboundRequest, TransportFailure> {
        let unsendable = |what: &str| TransportFailure {
            may_have_arrived: false,
            detail: format!("the request's {what} is malformed"),
        };
        let target = Target::parse(&request.url).map_err(|_| unsendable("address"))?;
        let mut headers = HeaderMap::with_capacity(request.headers.len());
        for (name, value) in &request.headers {
            let name = HeaderName::try_from(name.as_str()).map_err(|_| unsendable("header"))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| unsendable("header"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(OutboundRequest {
            method: Method::from_bytes(request.method.as_bytes()).map_err(|_| unsendable("method"))?,
            target,
            headers,
            body: request.body.into(),
            timeout: if self.for_caller { TIMEOUT_OF_CALLER } else { TIMEOUT },
            body_max: BODY_BYTES_MAX,
            tenant: Some(self.tenant),
        })
    }
}

/// A request without a connection was not sent; any other may have been, whatever broke it.
fn to_transport_failure(failure: Failure) -> TransportFailure {
    TransportFailure { may_have_arrived: failure.was_connected, detail: failure.detail }
}
