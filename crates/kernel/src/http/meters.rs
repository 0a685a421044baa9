//! Metrics of requests by method, route and status. The handles of each series are cached, because a look-up by labels
//! takes longer than the count itself.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::http::Method;
use metrics::{Counter, Histogram};

/// The cached series by route. Routes, methods and statuses are bounded, and so is the cache.
#[derive(Default)]
pub(super) struct Meters(Mutex<HashMap<String, Vec<Meter>>>);

struct Meter {
    method: &'static str,
    status: u16,
    requests: Counter,
    seconds: Histogram,
}

impl Meters {
    pub fn count(&self, method: &Method, route: &str, status: u16, seconds: f64) {
        let method = known(method);
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_route = routes.get(route).map(Vec::as_slice).unwrap_or_default();
        if let Some(meter) = of_route.iter().find(|meter| meter.status == status && meter.method == method) {
            return meter.count(seconds);
        }
        let meter = Meter::new(method, route, status);
        meter.count(seconds);
        routes.entry(route.to_owned()).or_default().push(meter);
    }
}

impl Meter {
    fn new(method: &'static str, route: &str, status: u16) -> Self {
        let (route, code) = (route.to_owned(), status.to_string());
        let seconds = metrics::histogram!("tc_http_request_seconds", "method" => method, "route" => route.clone());
        let requests =
            metrics::counter!("tc_http_requests_total", "method" => method, "route" => route, "status" => code);
        Meter { method, status, requests, seconds }
    }

    fn count(&self, seconds: f64) {
        self.seconds.record(seconds);
        self.requests.increment(1);
    }
}

/// Unknown methods are counted as `other`, so that clients cannot create new series.
fn known(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| method == known).unwrap_or("other")
}
