//! Metrics of requests by method, route and status. The handles of each series are cached, because a look-up by labels
//! takes longer than the count itself.

use std::collections::HashMap;
use std::sync::Mutex;

use axum::http::Method;
use metrics::{Counter, Histogram};

use crate::base::lock_unpoisoned;

/// The cached series by route. Routes, methods and statuses are bounded, and so is the cache.
#[derive(Default)]
pub(super) struct RequestMetrics(Mutex<HashMap<String, Vec<RequestSeries>>>);

struct RequestSeries {
    method: &'static str,
    status: u16,
    requests: Counter,
    seconds: Histogram,
}

impl RequestMetrics {
    pub fn record_request(&self, method: &Method, route: &str, status: u16, seconds: f64) {
        let method = method_label(method);
        let mut routes = lock_unpoisoned(&self.0);
        let of_route = routes.get(route).map(Vec::as_slice).unwrap_or_default();
        if let Some(series) = of_route.iter().find(|series| series.status == status && series.method == method) {
            return series.record_seconds(seconds);
        }
        let series = RequestSeries::new(method, route, status);
        series.record_seconds(seconds);
        routes.entry(route.to_owned()).or_default().push(series);
    }
}

impl RequestSeries {
    fn new(method: &'static str, route: &str, status: u16) -> Self {
        let (route, code) = (route.to_owned(), status.to_string());
        let seconds = metrics::histogram!("tc_http_request_seconds", "method" => method, "route" => route.clone());
        let requests =
            metrics::counter!("tc_http_requests_total", "method" => method, "route" => route, "status" => code);
        RequestSeries { method, status, requests, seconds }
    }

    fn record_seconds(&self, seconds: f64) {
        self.seconds.record(seconds);
        self.requests.increment(1);
    }
}

/// Unknown methods are counted as `other`, so that clients cannot create new series.
pub(super) fn method_label(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| method == known).unwrap_or("other")
}
