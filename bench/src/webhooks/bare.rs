//! What `webhooks-rate` is measured against: the service's own HTTP client in a loop, without a store, a schedule or a
//! signature. The bytes on the wire are as many.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, Method};
use kernel::outbound::{OutboundRequest, Target};
use tokio::task::JoinSet;

use super::client;
use crate::harness::Outcome;

/// The places that the sender gives one tenant.
pub const PLACES: usize = 128;

/// The sender's own.
const TIMEOUT: Duration = Duration::from_secs(15);
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Posts the body that many times, to the receivers in turn.
pub async fn send(receivers: &[SocketAddr], body: &str, count: usize) -> Outcome {
    let client = client()?;
    let targets =
        receivers.iter().enumerate().map(|(n, receiver)| Target::parse(&format!("http://{receiver}/endpoint-{n}")));
    let targets: Arc<Vec<Target>> = Arc::new(targets.collect::<Result<_, _>>().map_err(|bad| bad.to_string())?);
    let (headers, body, next) = (headers(), body.to_owned(), Arc::new(AtomicUsize::new(0)));
    let mut places: JoinSet<Outcome> = JoinSet::new();
    for _ in 0..PLACES {
        let (client, targets, headers) = (client.clone(), targets.clone(), headers.clone());
        let (body, next) = (body.clone(), next.clone());
        places.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok(());
                }
                let request = OutboundRequest {
                    method: Method::POST,
                    target: targets[n % targets.len()].clone(),
                    headers: headers.clone(),
                    body: body.clone().into(),
                    timeout: TIMEOUT,
                    body_max: ANSWER_BYTES_MAX,
                    tenant: None,
                };
                let answer = client.send_request(request).await.map_err(|failure| failure.detail)?;
                if answer.status != 204 {
                    return Err(format!("the sink answered {}", answer.status).into());
                }
            }
        });
    }
    for ended in places.join_all().await {
        ended?;
    }
    Ok(())
}

/// As long as those of a delivery.
fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("tenant-control/0.1.0"));
    headers.insert("webhook-id", HeaderValue::from_static("evt_01jd8z6v2mfkpb7h3q9xw5t4rc"));
    headers.insert("webhook-timestamp", HeaderValue::from_static("1768471200"));
    let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    headers.insert("webhook-signature", HeaderValue::from_static(signature));
    headers
}
