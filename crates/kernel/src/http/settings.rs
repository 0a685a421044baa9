//! The operator's settings of HTTP, sessions and retention.

use std::time::Duration;

use axum::http::{Extensions, HeaderValue};
use ipnet::IpNet;

use super::base_url::BaseUrl;
use super::budgets::AdmissionLimits;
use super::connection_limits::ConnectionLimits;
use super::connection_timeouts::ConnectionTimeouts;
use super::rate_policy::RateTable;
use crate::base::{DAY_MS, HOUR_MS, MINUTE_MS};
use crate::outbound::OutboundSettings;

#[derive(Clone, Debug)]
pub struct HttpSettings {
    pub base_url: BaseUrl,
    /// Peers whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins that browsers may call from; empty means no CORS at all.
    pub cors_origins: Vec<HeaderValue>,
    pub rate_table: RateTable,
    pub session_idle_ms: i64,
    pub session_absolute_ms: i64,
    pub audit_retention_ms: i64,
    /// How long events, and with them their deliveries, are kept.
    pub event_retention_ms: i64,
    /// Which addresses the service may connect to.
    pub outbound: OutboundSettings,
    /// Requests and memory of one node; a request beyond them is answered 503.
    pub admission: AdmissionLimits,
    /// Longer than any legitimate request takes, shorter than the timeouts of clients and proxies.
    pub request_timeout: Duration,
    /// How long a body of any size may take to arrive.
    pub body_timeout: Duration,
    /// Concurrent requests that wait for news, of one tenant and of one of its users or keys. A few readers are enough,
    /// and each occupies a connection.
    pub waits_per_tenant_max: usize,
    pub waits_per_credential_max: usize,
    /// How long a request waits for news.
    pub news_wait_max: Duration,
    /// See [`ConnectionTimeouts`].
    pub header_timeout: Duration,
    pub keep_alive_timeout: Duration,
    pub stall_timeout: Duration,
    /// See [`ConnectionLimits`].
    pub connections_per_address_max: usize,
    /// The settings of features, by their type.
    features: Extensions,
}

impl HttpSettings {
    /// The settings of a feature, or their default if none were set.
    pub fn feature_settings<T: Clone + Default + Send + Sync + 'static>(&self) -> T {
        self.features.get::<T>().cloned().unwrap_or_default()
    }

    pub fn set_feature_settings<T: Clone + Send + Sync + 'static>(&mut self, settings: T) {
        self.features.insert(settings);
    }

    pub fn new(base_url: BaseUrl) -> Self {
        let connections = ConnectionLimits::default();
        HttpSettings {
            base_url,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            rate_table: RateTable::default(),
            session_idle_ms: 90 * MINUTE_MS,
            session_absolute_ms: 12 * HOUR_MS,
            audit_retention_ms: 400 * DAY_MS,
            event_retention_ms: 30 * DAY_MS,
            outbound: OutboundSettings::default(),
            admission: AdmissionLimits::default(),
            request_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(20),
            waits_per_tenant_max: 64,
            waits_per_credential_max: 16,
            news_wait_max: Duration::from_secs(25),
            header_timeout: connections.timeouts.head,
            keep_alive_timeout: connections.timeouts.idle,
            stall_timeout: connections.timeouts.stall,
            connections_per_address_max: connections.per_address_max,
            features: Extensions::new(),
        }
    }

    /// The limits for the listening server.
    pub fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            timeouts: ConnectionTimeouts {
                head: self.header_timeout,
                idle: self.keep_alive_timeout,
                stall: self.stall_timeout,
            },
            per_address_max: self.connections_per_address_max,
            exempt: self.trusted_proxies.clone(),
        }
    }
}
