//! Single sign-on: people of a tenant sign in where they do for everything else, by OpenID Connect.
//!
//! The operator sets a provider up at the command line and has it shown that its domains are the tenant's. Whoever says which
//! domain they are of is sent to its provider (`flow`), comes back with a code, and is let in as the user that the
//! provider's word stands for. Who signs out is led there too, if the operator wants that (`sign_out`). What a provider says
//! of itself is read in `discovery`, what is asked of it on the way in `asking`, its word checked in `token`; `rules` are plain
//! functions. Deliberately left out: SAML, which an OpenID provider in front of it translates, and keeping a provider's tokens,
//! but for the ID token of a session whose user signs out at the provider, too.

mod asking;
mod discovery;
mod flow;
mod refusal;
pub mod routes;
mod rules;
mod sealed_flow;
mod sign_out;
mod store;
mod token;
/// What becomes of a provider that the operator changes.
pub mod update {
    pub mod store;
}

pub use discovery::Providers;
pub use flow::{Arrived, Asked, Begun, Ended, begin, complete};
pub use refusal::Told;
pub use rules::{
    DEFAULT_REDIRECT, email_domain, is_address, may_be_asked, parse_domain, parse_redirect, parse_role_rule,
    parse_scope,
};
pub use sign_out::sign_out_url;
pub use store::{
    CLEAN_FLOWS, CLEAN_USED_STATES, STATEMENTS, add, disable, find_domain, find_domain_provider, list,
    list_vouched_elsewhere, release_domain, verify_domain,
};
pub use update::store::update;

use feature_kit::Feature;
use kernel::auth::Role;
use kernel::base::{Code, Id, Identified, MINUTE_MS, Secrets, Timestamp};
use kernel::jobs::Retention;
use serde::Serialize;

pub const FEATURE: Feature = Feature {
    name: "sso",
    operations: routes::mount,
    statements: &[STATEMENTS, update::store::STATEMENTS],
    error_codes: &[SSO_NOT_AVAILABLE],
    retention: &[
        // A sign-on that was finished, until it would have expired by the clock of any node.
        Retention { sql: CLEAN_USED_STATES, before: |_, now| now.plus(-FLOW_MS) },
        // A sign-on begun by a node of an earlier release, as long as its table exists.
        Retention { sql: CLEAN_FLOWS, before: |_, now| now },
    ],
    ..Feature::NEW
};

pub type ProviderId = Id<Provider>;

impl Identified for Provider {
    const PREFIX: &'static str = "sso";
}

/// The one protocol there is.
pub const OIDC: &str = "oidc";

/// Where providers send people back to, below the base URL.
pub const CALLBACK_PATH: &str = "/internal/auth/sso/callback";

/// Where they send people back to who have signed out there.
pub const SIGNED_OUT_PATH: &str = "/signin";

/// How long somebody may take to sign in at their provider.
pub const FLOW_MS: i64 = 10 * MINUTE_MS;

/// Providers of a tenant, those that are disabled among them: all of them fit into a list that a person reads.
pub const PROVIDERS_MAX: i64 = 100;
/// Of one provider.
pub const DOMAINS_MAX: usize = 100;
/// Of one provider.
pub const ROLE_RULES_MAX: usize = 100;

pub const SSO_NOT_AVAILABLE: Code = Code::new(
    404,
    "sso_not_available",
    "No single sign-on for this domain",
    "The domain is unknown, not verified yet, or its provider is disabled; which of these is not told. Ask your administrator, \
     or use a sign-in link.",
    "There is no single sign-on for this domain. Ask your administrator, or use a sign-in link.",
);

/// Where the people of a tenant sign in, without the secret that we show it.
#[derive(Clone, Debug, Serialize)]
pub struct Provider {
    pub id: ProviderId,
    pub name: String,
    pub protocol: String,
    pub issuer: String,
    pub client_id: String,
    /// What it is asked for, where the operator says it; otherwise what the rules need.
    pub scope: Option<String>,
    /// Of whoever no rule fits; none refuses them.
    pub default_role: Option<Role>,
    pub role_map: Vec<RoleRule>,
    /// Whether an address counts that the provider does not call verified.
    pub trust_email: bool,
    /// Whether whoever signs out here is led on to the provider, to sign out there too.
    pub sign_out_at_provider: bool,
    pub enabled: bool,
    pub domains: Vec<Domain>,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Whoever has this value in this claim has this role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoleRule {
    pub claim: String,
    pub value: String,
    pub role: Role,
}

/// A domain whose people sign in at a provider.
#[derive(Clone, Debug, Serialize)]
pub struct Domain {
    pub domain: String,
    pub provider_id: ProviderId,
    /// Since when it is known to be the tenant's; until then it leads nowhere.
    pub verified_at: Option<Timestamp>,
    /// What shows that it is.
    pub txt: TxtRecord,
}

/// A record that only the owner of a domain can publish.
#[derive(Clone, Debug, Serialize)]
pub struct TxtRecord {
    pub name: String,
    pub value: String,
}

impl TxtRecord {
    pub fn of(domain: &str, proof: &str) -> Self {
        TxtRecord { name: format!("_tenant-control.{domain}"), value: format!("tenant-control-verification={proof}") }
    }
}

/// What the operator says about a new provider. It does not print: the secret is among it.
pub struct NewProvider {
    pub name: String,
    pub issuer: String,
    pub client_id: String,
    pub client_secret: String,
    pub scope: Option<String>,
    pub domains: Vec<String>,
    /// None refuses whoever no rule fits.
    pub default_role: Option<Role>,
    pub role_map: Vec<RoleRule>,
    pub trust_email: bool,
    pub sign_out_at_provider: bool,
}

/// What the operator changes about a provider; what is none stays. Never the issuer: who people are there is its word. It does
/// not print: the secret is among it.
#[derive(Default)]
pub struct ProviderChange {
    pub name: Option<String>,
    pub client_id: Option<String>,
    /// And what it is sealed with.
    pub client_secret: Option<(String, Secrets)>,
    /// What it is asked for; none inside is what the rules need.
    pub scope: Option<Option<String>>,
    /// None inside refuses whoever no rule fits.
    pub default_role: Option<Option<Role>>,
    /// All of them: they take the place of those before.
    pub role_map: Option<Vec<RoleRule>>,
    pub trust_email: Option<bool>,
    pub sign_out_at_provider: Option<bool>,
    /// Those that lead there from now on, beside those that do already.
    pub domains: Vec<String>,
    /// Lets people sign on at one that is disabled. Domains that lead elsewhere by now stay there.
    pub enable: bool,
}
