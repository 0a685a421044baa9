//! Who there is and what they may: API keys, organizations, users, sessions, single sign-on, and the audit trail.

pub mod api_keys;
pub mod audit;
pub mod cookie;
mod domain_name;
pub mod identity_providers;
pub mod organizations;
pub mod session;
pub mod sso;
pub mod users;
