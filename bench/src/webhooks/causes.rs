//! Causes of events over HTTP: API keys are made and revoked, by callers who each have one key at a time, so that the
//! tenant stays far from the number it may have.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method};
use kernel::outbound::{Outbound, OutboundRequest, OutboundResponse, Target};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::receipts::{Deed, NAME, Receipts};
use super::{Tenant, client};
use crate::harness::Outcome;

/// As many connections as the client keeps to one host.
pub const CALLERS: usize = 16;

const PATH: &str = "/api/admin/api-keys";
const TIMEOUT: Duration = Duration::from_secs(30);

/// One tenant's callers.
#[derive(Clone)]
pub struct Causes {
    client: Outbound,
    server: SocketAddr,
    headers: HeaderMap,
    receipts: Arc<Receipts>,
    /// Keys that callers had when their time was over.
    left: Arc<Mutex<Vec<String>>>,
}

impl Causes {
    pub fn new(server: SocketAddr, tenant: &Tenant, receipts: &Arc<Receipts>) -> Outcome<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {}", tenant.key))?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Causes { client: client()?, server, headers, receipts: receipts.clone(), left: Arc::default() })
    }

    /// Causes events for so long, as fast as the callers can or so many a second; how many were acknowledged a second.
    pub async fn drive(&self, time: Duration, per_second: Option<u32>) -> Outcome<f64> {
        let (start, next) = (Instant::now(), Arc::new(AtomicU32::new(0)));
        let mut callers: JoinSet<Outcome<u32>> = JoinSet::new();
        for _ in 0..CALLERS {
            let (causes, next) = (self.clone(), next.clone());
            callers.spawn(async move { causes.call(start, start + time, &next, per_second).await });
        }
        let mut count = 0;
        for ended in callers.join_all().await {
            count += ended?;
        }
        Ok(f64::from(count) / start.elapsed().as_secs_f64())
    }

    /// One caller: makes a key, revokes it, and so on until the end.
    async fn call(&self, start: Instant, end: Instant, next: &AtomicU32, per_second: Option<u32>) -> Outcome<u32> {
        let mut count = 0;
        let mut open: Option<(usize, String)> = None;
        loop {
            if let Some(rate) = per_second {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep_until((start + Duration::from_secs(1) * turn / rate).min(end)).await;
            }
            // All revoking at once what is left would be a burst of its own, and no part of what is measured.
            if Instant::now() >= end {
                let left = open.into_iter().map(|(_, id)| id);
                self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
                return Ok(count);
            }
            open = match open {
                Some((key, id)) => {
                    self.revoke(key, &id).await?;
                    None
                }
                None => Some(self.create().await?),
            };
            count += 1;
        }
    }

    /// Revokes what the callers have left, so that the tenant can be used again.
    pub async fn clean_up(&self) -> Outcome {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        for id in left {
            self.ask(Method::DELETE, &format!("{PATH}?id={id}"), String::new(), 204).await?;
        }
        Ok(())
    }

    async fn create(&self) -> Outcome<(usize, String)> {
        let (key, asked) = (self.receipts.next_key(), std::time::Instant::now());
        let body = format!(r#"{{"name":"{NAME}{key}","scopes":["tickets:read"]}}"#);
        let answer = self.ask(Method::POST, PATH, body, 201).await?;
        self.receipts.acknowledge(key, Deed::Created, asked);
        let record: Value = serde_json::from_slice(&answer.body)?;
        Ok((key, record["id"].as_str().ok_or("a key without an id")?.to_owned()))
    }

    async fn revoke(&self, key: usize, id: &str) -> Outcome {
        let asked = std::time::Instant::now();
        self.ask(Method::DELETE, &format!("{PATH}?id={id}"), String::new(), 204).await?;
        self.receipts.acknowledge(key, Deed::Revoked, asked);
        Ok(())
    }

    async fn ask(&self, method: Method, path: &str, body: String, wanted: u16) -> Outcome<OutboundResponse> {
        let target = Target::parse(&format!("http://{}{path}", self.server)).map_err(|bad| bad.to_string())?;
        let headers = self.headers.clone();
        let request = OutboundRequest {
            method,
            target,
            headers,
            body: body.into(),
            timeout: TIMEOUT,
            body_max: 1 << 20,
            tenant: None,
        };
        let answer = self.client.send_request(request).await.map_err(|failure| failure.detail)?;
        if answer.status == wanted {
            return Ok(answer);
        }
        Err(format!("{path} was answered {}: {}", answer.status, String::from_utf8_lossy(&answer.body)).into())
    }
}
