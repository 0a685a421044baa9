//! Ingest keys: what agents present when they report, by HTTP Basic. Such a key opens the internal routes of ingest and
//! nothing else, for one tenant and, if it is bound to one, for one of its organizations.
//!
//! Operators make them at the command line: an agent has no account that could, and its address is pasted into the settings
//! of many machines. There are no routes here; those that take such a key name [`pass::IngestPass`].

pub mod pass;
mod store;

pub use store::{STATEMENTS, confirm, create, list, revoke};

use feature_kit::Feature;
use kernel::base::{ActorRef, Chance, Code, Error, Id, Identified, RecordId, Secrets, Timestamp};
use kernel::store::refer::Referrer;
use serde::Serialize;

use people::organizations::OrganizationId;

pub const FEATURE: Feature =
    Feature { name: "ingest_keys", statements: &[STATEMENTS], referrers: &[OF_ORGANIZATION], ..Feature::NEW };

/// Live keys of a tenant: one for each of its customers, and all of them fit into a list that a person reads.
pub const LIVE_KEYS_MAX: i64 = 1_000;

/// Live keys as they refer to organizations.
pub const OF_ORGANIZATION: Referrer =
    Referrer { prefix: OrganizationId::PREFIX, what: "ingest keys", find: store::OF_ORGANIZATION };

pub type IngestKeyId = Id<IngestKey>;

impl Identified for IngestKey {
    const PREFIX: &'static str = "ing";
}

/// An ingest key, without its secret.
#[derive(Clone, Debug, Serialize)]
pub struct IngestKey {
    pub id: IngestKeyId,
    /// The one organization whose devices it reaches; none reaches all of the tenant's.
    pub organization_id: Option<OrganizationId>,
    /// The organization's slug.
    pub organization: Option<String>,
    /// The end of the secret, to tell keys apart.
    pub last_four: String,
    pub created_by: ActorRef,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

/// A key with its secret, which is shown this once.
pub struct NewIngestKey {
    pub record: IngestKey,
    pub secret: Secret,
}

/// What whoever holds a key reaches of its tenant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestReach {
    pub key_id: IngestKeyId,
    /// If it is bound to one: it wins over what an agent says, and no other organization's device is touched.
    pub organization_id: Option<OrganizationId>,
}

/// 40 characters of `0-9A-Za-z`, 238 bits: none of them means anything in a URL, where the secret stands. It does not print.
pub struct Secret(String);

const SECRET_LEN: usize = 40;

impl Secret {
    pub fn generate(chance: &Chance) -> Self {
        Secret(chance.base62(SECRET_LEN))
    }

    /// What could be one by its form.
    pub fn parse(text: &str) -> Option<Self> {
        let is_well_formed = text.len() == SECRET_LEN && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_well_formed.then(|| Secret(text.to_owned()))
    }

    pub fn last_four(&self) -> &str {
        &self.0[SECRET_LEN - 4..]
    }

    /// What the database keeps. The id is part of it: moved to another key, it is good for nothing.
    pub fn hash(&self, id: IngestKeyId, secrets: &Secrets) -> [u8; 32] {
        secrets.pepper().sign(self.with_id(id).as_bytes())
    }

    /// As HTTP Basic and URLs write the pair.
    pub fn with_id(&self, id: IngestKeyId) -> String {
        format!("{id}:{}", self.0)
    }

    /// For the one answer that shows it.
    pub fn reveal(self) -> String {
        self.0
    }
}

fn revoked() -> Error {
    Error::new(Code::Unauthenticated, "The ingest key was revoked.")
}
