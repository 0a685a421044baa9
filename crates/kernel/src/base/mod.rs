//! Types that everything else uses: errors, time, randomness, identifiers, actors, secrets. No SQL, no HTTP.

mod actor;
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
mod random;
pub mod seal;
mod sealed_token;
pub mod secrets;
mod slug;
mod tally;
mod word;

pub use actor::{Actor, ActorCredential, ActorKind, ActorRef, CredentialKind, OperatorName, WorkflowChain};
pub use clock::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp, WallClock};
pub use code::Code;
pub use crypto::{HmacKey, constant_time_eq, hmac_sha256, sha256, sha256_parts};
pub use email::is_email;
pub use error::{Error, FieldError, OnDuplicate, Result};
pub use fair_budget::{BudgetAccount, BudgetLimits, BudgetPermit, FairBudget};
pub use fault::{FaultPoints, InjectedFault};
pub use id::*;
pub use label::Label;
pub use network::parse_network;
pub(crate) use random::BASE62;
pub use random::RandomSource;
pub use sealed_token::TokenSeal;
pub use secrets::{Secrets, SecretsSource};
pub use slug::check_slug;
pub use tally::TestCounter;
pub use word::{Word, is_dotted};

/// The environment of a process: the time, randomness, and the operator's name. Tests replace them, inject faults, and count
/// SQL statements.
#[derive(Clone, Debug, Default)]
pub struct Env {
    pub clock: WallClock,
    pub random: RandomSource,
    pub faults: FaultPoints,
    /// How many SQL statements were run.
    pub statements: TestCounter,
    /// The operator who runs a command. A server acts for its callers and does not use it.
    pub operator: OperatorName,
}

impl Env {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
