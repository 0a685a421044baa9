//! The HTTP client of the service: whom it may call, and what comes of a call. No database; loopback only.

mod corpus_hosts;
mod corpus_urls;
mod ends;
mod exchange;
mod peer;
mod refused;
mod tls;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method};
use kernel::outbound::{Failure, NameSource, Outbound, OutboundRequest, OutboundResponse, OutboundSettings, Target};

/// Long enough for anything that should happen; a test that waits for a timeout gives a shorter one.
const PATIENCE: Duration = Duration::from_secs(20);

fn target(text: &str) -> Target {
    Target::parse(text).unwrap_or_else(|bad| panic!("{text}: {bad}"))
}

fn get(text: &str) -> OutboundRequest {
    OutboundRequest {
        method: Method::GET,
        target: target(text),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        timeout: PATIENCE,
        body_max: 1_024,
        tenant: None,
    }
}

/// Settings under which loopback may be called, and `hooks.example.org` is there.
fn loopback() -> OutboundSettings {
    let names = |name: &str| match name.trim_end_matches('.') {
        "hooks.example.org" => vec![IpAddr::from([127, 0, 0, 1])],
        "two.example.org" => vec![IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 1])],
        _ => vec![],
    };
    let allow = vec!["127.0.0.0/8".parse().unwrap()];
    OutboundSettings {
        allow,
        extra_roots: None,
        names: NameSource::Table(Arc::new(names)),
        ..OutboundSettings::default()
    }
}

async fn call(request: OutboundRequest) -> Result<OutboundResponse, Failure> {
    Outbound::new(loopback()).unwrap().send_request(request).await
}
