//! SQL of the question which provider vouches for a domain.

use kernel::args;
use kernel::base::Result;
use kernel::store::Tx;

use super::ProviderId;

kernel::statements! {
    FIND_DOMAIN_PROVIDER = "SELECT provider_id FROM sso_domains
        WHERE tenant_id = $1 AND domain = $2 AND verified_at IS NOT NULL";
}

/// The provider of a verified domain, enabled or not: it alone vouches for the domain's addresses.
pub async fn find_domain_provider(tx: &mut Tx, domain: &str) -> Result<Option<ProviderId>> {
    tx.find(FIND_DOMAIN_PROVIDER, args![domain]).await
}
