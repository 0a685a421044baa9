//! Ingest keys: the credentials of agents, presented by HTTP Basic. A key admits to the internal ingest routes only, for one
//! tenant and, if it is bound to one, for one of its organizations.
//!
//! Operators create keys at the command line: an agent has no account, and its URL is pasted into the settings of many
//! machines. This feature has no routes; routes that accept a key name [`credential::IngestCredential`].

pub mod credential;
pub mod feature;
mod store;

pub use store::{confirm_ingest_key, create_ingest_key, list_ingest_keys, revoke_ingest_key};

use kernel::base::{ActorRef, Code, Error, Id, Identified, RandomSource, Secrets, Timestamp};
use serde::Serialize;

use people::organizations::OrganizationId;

/// Live keys of a tenant: enough for one per customer, and few enough for a list that a person reads.
pub const LIVE_KEYS_MAX: i64 = 1_000;

pub type IngestKeyId = Id<IngestKey>;

impl Identified for IngestKey {
    const PREFIX: &'static str = "ing";
}

/// An ingest key, without its secret.
#[derive(Clone, Debug, Serialize)]
pub struct IngestKey {
    pub id: IngestKeyId,
    /// The organization whose devices the key reaches; without one it reaches all devices of the tenant.
    pub organization_id: Option<OrganizationId>,
    /// The organization's slug.
    pub organization: Option<String>,
    /// The end of the secret, to distinguish keys.
    pub last_four: String,
    pub created_by: ActorRef,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

/// A key with its secret, which is shown only once.
pub struct NewIngestKey {
    pub record: IngestKey,
    pub secret: IngestKeySecret,
}

/// The part of a tenant that a key gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestReach {
    pub key_id: IngestKeyId,
    /// The organization that the key is bound to. It overrides the agent's tag, and devices of others are out of reach.
    pub organization_id: Option<OrganizationId>,
}

/// 40 characters of `0-9A-Za-z`, 238 bits, safe in a URL, where the secret is used. It does not print.
pub struct IngestKeySecret(String);

const SECRET_LEN: usize = 40;

impl IngestKeySecret {
    pub fn generate(random: &RandomSource) -> Self {
        IngestKeySecret(random.base62_text(SECRET_LEN))
    }

    /// Checks only the form.
    pub fn parse(text: &str) -> Option<Self> {
        let is_well_formed = text.len() == SECRET_LEN && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_well_formed.then(|| IngestKeySecret(text.to_owned()))
    }

    pub fn last_four(&self) -> &str {
        &self.0[SECRET_LEN - 4..]
    }

    /// The stored hash. It includes the id, so it is useless for another key.
    pub fn hash(&self, id: IngestKeyId, secrets: &Secrets) -> [u8; 32] {
        secrets.pepper().sign(self.with_id(id).as_bytes())
    }

    /// The pair as HTTP Basic and URLs write it.
    pub fn with_id(&self, id: IngestKeyId) -> String {
        format!("{id}:{}", self.0)
    }

    /// For the one output that shows the secret.
    pub fn reveal(self) -> String {
        self.0
    }
}

fn revoked_error() -> Error {
    Error::new(Code::Unauthenticated, "The ingest key was revoked.")
}
