//! Rate-limit accounts: who pays for a request, in a text form that all nodes share.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::address::ClientAddress;
use super::rate_policy::RatePolicy;
use crate::base::TenantId;

/// The policy and the subject whose requests a bucket counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RateAccount {
    pub policy: RatePolicy,
    pub subject: RateSubject,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RateSubject {
    Credential(Arc<str>),
    Tenant(TenantId),
    Address(IpAddr),
    /// Shared by all subjects that got no bucket of their own, because the shard was full.
    Others,
}

impl RateAccount {
    pub fn for_address(policy: RatePolicy, address: ClientAddress) -> Self {
        RateAccount { policy, subject: RateSubject::Address(address.bucket_address()) }
    }

    /// Parses the text that another node has reported.
    pub fn parse(text: &str) -> Option<Self> {
        let (policy, subject) = text.split_once(':')?;
        let policy = RatePolicy::parse(policy)?;
        let subject = if policy.is_by_address() {
            RateSubject::Address(subject.parse().ok()?)
        } else {
            subject.parse().map_or_else(|_| RateSubject::Credential(subject.into()), RateSubject::Tenant)
        };
        Some(RateAccount { policy, subject })
    }
}

/// The text form that nodes exchange.
impl fmt::Display for RateAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = self.policy.name();
        match &self.subject {
            RateSubject::Credential(id) => write!(f, "{policy}:{id}"),
            RateSubject::Tenant(id) => write!(f, "{policy}:{id}"),
            RateSubject::Address(address) => write!(f, "{policy}:{address}"),
            RateSubject::Others => f.write_str("others"),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::base::Env;

    /// Nodes of different releases count together, so the text form and its parser cannot change.
    #[test]
    fn an_account_is_read_as_it_is_spelt() {
        let tenant = TenantId::new(&Env::default());
        let (key, address) = ("key_01jd8z6v2mfkpb7h3q9xw5t4ra", ClientAddress("2001:db8::7".parse().unwrap()));
        for (account, text) in [
            (
                RateAccount { policy: RatePolicy::Read, subject: RateSubject::Credential(key.into()) },
                format!("read:{key}"),
            ),
            (
                RateAccount { policy: RatePolicy::Write, subject: RateSubject::Tenant(tenant) },
                format!("write:{tenant}"),
            ),
            (RateAccount::for_address(RatePolicy::Public, address), "public:2001:db8::".to_owned()),
        ] {
            assert_eq!(account.to_string(), text);
            assert_eq!(RateAccount::parse(&text), Some(account));
        }
        assert_eq!(RateAccount::parse("later:key_x"), None, "a policy of a later release");
    }
}
