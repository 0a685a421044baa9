//! The foundation of every feature of Tenant Control: the store, HTTP with the rules of all routes, callers and the audit
//! trail.
//!
//! The kernel knows no feature. Dependencies inside point down only:
//! `jobs startup → keyring → http → auth → audit events outbound → store → base`.

pub mod audit;
pub mod auth;
pub mod base;
pub mod events;
pub mod http;
pub mod jobs;
pub mod keyring;
pub mod outbound;
pub mod startup;
pub mod store;

/// Every statement of the kernel, so that a test can prepare each on both engines.
pub fn statements() -> Vec<(&'static str, &'static str)> {
    [
        audit::STATEMENTS,
        auth::AUTHORITY_STATEMENTS,
        auth::CLOCK_STATEMENTS,
        auth::CREDENTIAL_STATEMENTS,
        auth::TENANT_STATEMENTS,
        auth::SESSION_STATEMENTS,
        auth::SIGNIN_LINK_STATEMENTS,
        auth::RIGHTS_STATEMENTS,
        events::STATEMENTS,
        events::follow::STATEMENTS,
        http::IDEMPOTENCY_STATEMENTS,
        http::LIMITER_STATEMENTS,
        jobs::STATEMENTS,
        jobs::lanes::STATEMENTS,
        jobs::steps::STATEMENTS,
        keyring::STATEMENTS,
        keyring::checks::STATEMENTS,
        keyring::nodes::STATEMENTS,
        startup::STATEMENTS,
        store::changes::STATEMENTS,
        store::FACT_STATEMENTS,
        store::STATEMENTS,
    ]
    .concat()
}
