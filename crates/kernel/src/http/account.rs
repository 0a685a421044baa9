//! Rate-limit accounts: who pays for a request, in a text form that all nodes share.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::address::ClientAddress;
use super::limiter::Policy;
use crate::base::TenantId;

/// The policy and the subject whose requests a bucket counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Account {
    pub policy: Policy,
    pub whose: Whose,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    Credential(Arc<str>),
    Tenant(TenantId),
    Address(IpAddr),
    /// Shared by all subjects that got no bucket of their own, because the shard was full.
    Others,
}

impl Account {
    pub fn of_address(policy: Policy, address: ClientAddress) -> Self {
        Account { policy, whose: Whose::Address(address.bucket()) }
    }

    /// Parses the text that another node has reported.
    pub fn parse(text: &str) -> Option<Self> {
        let (policy, whose) = text.split_once(':')?;
        let policy = Policy::parse(policy)?;
        let whose = if policy.is_by_address() {
            Whose::Address(whose.parse().ok()?)
        } else {
            whose.parse().map_or_else(|_| Whose::Credential(whose.into()), Whose::Tenant)
        };
        Some(Account { policy, whose })
    }
}

/// The text form that nodes exchange.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = self.policy.name();
        match &self.whose {
            Whose::Credential(id) => write!(f, "{policy}:{id}"),
            Whose::Tenant(id) => write!(f, "{policy}:{id}"),
            Whose::Address(address) => write!(f, "{policy}:{address}"),
            Whose::Others => f.write_str("others"),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::base::World;

    /// Nodes of different releases count together, so the text form and its parser cannot change.
    #[test]
    fn an_account_is_read_as_it_is_spelt() {
        let tenant = TenantId::new(&World::default());
        let (key, address) = ("key_01jd8z6v2mfkpb7h3q9xw5t4ra", ClientAddress("2001:db8::7".parse().unwrap()));
        for (account, text) in [
            (Account { policy: Policy::Read, whose: Whose::Credential(key.into()) }, format!("read:{key}")),
            (Account { policy: Policy::Write, whose: Whose::Tenant(tenant) }, format!("write:{tenant}")),
            (Account::of_address(Policy::Public, address), "public:2001:db8::".to_owned()),
        ] {
            assert_eq!(account.to_string(), text);
            assert_eq!(Account::parse(&text), Some(account));
        }
        assert_eq!(Account::parse("later:key_x"), None, "a policy of a later release");
    }
}
