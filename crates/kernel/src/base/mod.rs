//! Types that everything else uses: errors, time, randomness, identifiers, actors, secrets. No SQL, no HTTP.

mod actor;
mod chance;
mod clock;
mod code;
mod crypto;
mod email;
mod error;
mod fair_budget;
mod fault;
mod hidden;
mod id;
mod label;
mod network;
pub mod seal;
mod sealed_token;
pub mod secrets;
mod slug;
mod tally;
mod word;

pub use actor::{Actor, ActorKind, ActorRef, Chain, Credential, CredentialKind, OperatorName};
pub(crate) use chance::BASE62;
pub use chance::Chance;
pub use clock::{Clock, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
pub use code::Code;
pub use crypto::{HmacKey, equal, hmac_sha256, sha256, sha256_parts};
pub use email::is_email;
pub use error::{Error, FieldError, OnDuplicate, Result};
pub use fair_budget::{BudgetAccount, BudgetLimits, BudgetPermit, FairBudget};
pub use fault::{Fault, Faults};
pub use id::*;
pub use label::Label;
pub use network::parse_network;
pub use sealed_token::TokenSeal;
pub use secrets::{Secrets, SecretsSource};
pub use slug::check_slug;
pub use tally::Tally;
pub use word::{Word, is_dotted};

/// The environment of a process: the time, randomness, and the operator's name. Tests replace them, inject faults, and count
/// SQL statements.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub clock: Clock,
    pub chance: Chance,
    pub faults: Faults,
    /// How many SQL statements were run.
    pub statements: Tally,
    /// The operator who runs a command. A server acts for its callers and does not use it.
    pub operator: OperatorName,
}

impl World {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
