//! Single sign-on: users of a tenant sign in at their own identity provider, by OpenID Connect.
//!
//! The operator sets a provider up at the command line and verifies its domains. A person who names such a domain is sent to
//! the provider (`flow`), comes back with a code, and is signed in as the user of the ID token's identity. Signing out can
//! continue at the provider, if the operator wants that (`sign_out`). `discovery` fetches a provider's metadata and keys
//! into the `provider_cache`, `provider_client` sends requests to it, `token` verifies ID tokens, and `rules` are plain functions.
//! Deliberately left out: SAML, which an OpenID provider in front of it translates, and storing a provider's tokens, except
//! the ID token of a session whose user signs out at the provider, too.

mod discovery;
pub mod feature;
mod flow;
mod provider_cache;
mod provider_client;
mod refusal;
pub mod routes;
mod rules;
mod sealed_flow;
mod sign_out;
mod store;
mod token;
/// Changing a provider.
pub mod update {
    pub mod store;
}

pub use crate::identity_providers::{ProviderId, email_domain};
pub use flow::{CallbackOutcome, CallbackRequest, SignOnRedirect, SignOnRequest, begin_sign_on, complete_sign_on};
pub use provider_cache::ProviderCache;
pub use refusal::RefusalMessage;
pub use rules::{
    DEFAULT_REDIRECT, is_address_target, is_allowed_target, parse_domain, parse_redirect, parse_role_rule, parse_scope,
};
pub use sign_out::sign_out_url;
pub use store::{
    CLEAN_FLOWS, CLEAN_USED_STATES, SEALED_COLUMNS, STATEMENTS, add_provider, disable_provider, find_domain,
    list_providers, list_vouched_elsewhere, release_domain, verify_domain,
};
pub use update::store::update_provider;

use kernel::auth::Role;
use kernel::base::{Code, MINUTE_MS, Secrets, Timestamp};
use serde::Serialize;

/// The only protocol.
pub const OIDC: &str = "oidc";

/// The path of the callback, below the base URL.
pub const CALLBACK_PATH: &str = "/internal/auth/sso/callback";

/// The path that a provider redirects to after signing out.
pub const SIGNED_OUT_PATH: &str = "/signin";

/// How long a person may take to sign in at the provider.
pub const FLOW_MS: i64 = 10 * MINUTE_MS;

/// Providers of a tenant, disabled ones included: a list that a person can read.
pub const PROVIDERS_MAX: i64 = 100;
/// Of one provider.
pub const DOMAINS_MAX: usize = 100;
/// Of one provider.
pub const ROLE_RULES_MAX: usize = 100;

pub const SSO_NOT_AVAILABLE: Code = Code::new(
    404,
    "sso_not_available",
    "No single sign-on for this domain",
    "The domain is unknown, not verified yet, or its provider is disabled; the answer does not say which. Ask your \
     administrator, or use a sign-in link.",
    "There is no single sign-on for this domain. Ask your administrator, or use a sign-in link.",
);

/// An identity provider of a tenant, without the client secret.
#[derive(Clone, Debug, Serialize)]
pub struct Provider {
    pub id: ProviderId,
    pub name: String,
    pub protocol: String,
    pub issuer: String,
    pub client_id: String,
    /// The scope set by the operator; otherwise the scope follows from the role rules.
    pub scope: Option<String>,
    /// The role if no rule fits; `None` refuses the sign-on.
    pub default_role: Option<Role>,
    pub role_map: Vec<RoleRule>,
    /// Whether e-mail addresses count without `email_verified`.
    pub trust_email: bool,
    /// Whether signing out here continues at the provider.
    pub sign_out_at_provider: bool,
    pub enabled: bool,
    pub domains: Vec<Domain>,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Gives the role if the claim has the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoleRule {
    pub claim: String,
    pub value: String,
    pub role: Role,
}

/// An e-mail domain whose users sign in at a provider.
#[derive(Clone, Debug, Serialize)]
pub struct Domain {
    pub domain: String,
    pub provider_id: ProviderId,
    /// When the domain was verified as the tenant's; until then it is not used.
    pub verified_at: Option<Timestamp>,
    /// The DNS record that proves the ownership.
    pub txt: TxtRecord,
}

/// A TXT record that only the owner of a domain can publish.
#[derive(Clone, Debug, Serialize)]
pub struct TxtRecord {
    pub name: String,
    pub value: String,
}

impl TxtRecord {
    pub fn for_domain(domain: &str, proof: &str) -> Self {
        TxtRecord { name: format!("_tenant-control.{domain}"), value: format!("tenant-control-verification={proof}") }
    }
}

/// The operator's description of a new provider. Not `Debug`, because it has the secret.
pub struct NewProvider {
    pub name: String,
    pub issuer: String,
    pub client_id: String,
    pub client_secret: String,
    pub scope: Option<String>,
    pub domains: Vec<String>,
    /// The role if no rule fits; `None` refuses the sign-on.
    pub default_role: Option<Role>,
    pub role_map: Vec<RoleRule>,
    pub trust_email: bool,
    pub sign_out_at_provider: bool,
}

/// The operator's changes to a provider; `None` stays. The issuer cannot change, because identities belong to it. Not
/// `Debug`, because it has the secret.
#[derive(Default)]
pub struct ProviderChange {
    pub name: Option<String>,
    pub client_id: Option<String>,
    /// The secret, and the keys that seal it.
    pub client_secret: Option<(String, Secrets)>,
    /// The scope; an inner `None` derives it from the role rules.
    pub scope: Option<Option<String>>,
    /// The role if no rule fits; an inner `None` refuses the sign-on.
    pub default_role: Option<Option<Role>>,
    /// Replaces all rules.
    pub role_map: Option<Vec<RoleRule>>,
    pub trust_email: Option<bool>,
    pub sign_out_at_provider: Option<bool>,
    /// Domains to add.
    pub domains: Vec<String>,
    /// Enables a disabled provider. Domains that were moved to another provider stay there.
    pub enable: bool,
}
