//! From the claims of a provider to a user of the tenant.

use kernel::args;
use kernel::auth::{Role, end_provider_sessions};
use kernel::base::{Error, Label, Result, UserId};
use kernel::store::Tx;

use super::super::store::{
    UserDraft, find_user_by_email_in_tx, get_user_in_tx, has_other_admin, insert_identity, insert_user, save_user,
};
use super::super::{ProviderIdentity, User, UserStatus, fold_email, loses_admin, name_from_email};
use crate::identity_providers::{ProviderId, email_domain, find_domain_provider};

kernel::statements! {
    FIND_BY_IDENTITY = "SELECT user_id FROM user_identities WHERE tenant_id = $1 AND provider_id = $2 AND subject = $3";
    UPDATE_LAST_SIGNED_IN = "UPDATE users SET last_signed_in_at = $3 WHERE tenant_id = $1 AND id = $2";
}

/// A person whom a provider has signed in. The claims have been checked: the address is verified or trusted, and its domain
/// is one of the tenant's.
#[derive(Clone, Debug)]
pub struct SignOn {
    pub provider: ProviderId,
    pub subject: String,
    pub email: String,
    pub name: Option<String>,
    /// The role by the provider's current rules; `None` if no rule fits and there is no default.
    pub role: Option<Role>,
}

/// The outcome of a sign-on.
#[derive(Debug)]
pub enum SignOnOutcome {
    SignedIn {
        user: Box<User>,
        /// An address from the provider that the user did not get, because another user has it, or because another provider
        /// vouches for the domain of the user's address.
        ignored_email: Option<String>,
    },
    /// The user is disabled. Nothing was written.
    Disabled,
    /// The user with this address has another identity, at this provider or at another. Nothing was written.
    OtherIdentity,
    /// The provider's rules give no role. Sessions that this provider started were ended; nothing else was written.
    NoRole,
}

/// Finds, links or creates the user, and updates them by the provider's claims. The actor is that of the transaction. The
/// caller starts the session.
pub async fn sign_on(tx: &mut Tx, request: SignOn) -> Result<SignOnOutcome> {
    tx.tick().await?;
    let email = fold_email(&request.email).map_err(|detail| Error::invalid("/email", "invalid_email", detail))?;
    let identity = ProviderIdentity { provider: request.provider, subject: request.subject };
    let found: Option<UserId> = tx.find(FIND_BY_IDENTITY, args![identity.provider, identity.subject]).await?;
    let is_linked = found.is_some();
    let old = match found {
        Some(id) => Some(get_user_in_tx(tx, id).await?),
        None => find_user_by_email_in_tx(tx, &email).await?,
    };
    if old.as_ref().is_some_and(|old| old.status == UserStatus::Disabled) {
        return Ok(SignOnOutcome::Disabled);
    }
    // A provider of a tenant must not decide who is a platform operator, which it could by issuing that address.
    if !is_linked && old.as_ref().is_some_and(|old| !old.identities.is_empty() || old.platform_operator) {
        return Ok(SignOnOutcome::OtherIdentity);
    }
    let Some(role) = request.role else {
        if let Some(id) = found {
            end_provider_sessions(tx, id, &identity.provider.to_string()).await?;
        }
        return Ok(SignOnOutcome::NoRole);
    };
    let Some(old) = old else {
        let name = request.name.and_then(|name| Label::parse(&name).ok()).map(Label::into_string);
        let name = name.unwrap_or_else(|| name_from_email(&email));
        let (status, identity) = (UserStatus::Active, Some(identity));
        let created =
            insert_user(tx, UserDraft { email, name, role, status, platform_operator: false, identity }).await?;
        return Ok(SignOnOutcome::SignedIn { user: Box::new(created), ignored_email: None });
    };
    let mut new = User { last_signed_in_at: Some(tx.env().now()), ..old.clone() };
    let mut ignored_email = None;
    if may_rename(tx, &old, &email, identity.provider).await? {
        new.email = email;
    } else if email != old.email {
        ignored_email = Some(email);
    }
    if !is_linked {
        insert_identity(tx, old.id, &identity).await?;
        new.identities.push(identity);
    }
    // A provider cannot demote the tenant's last active admin: nobody would be left to correct its rules. It does not change
    // who is a platform operator either.
    let demoted = User { role, ..old.clone() };
    if !loses_admin(&old, &demoted) || has_other_admin(tx, old.id).await? {
        new.role = role;
    }
    tx.defer_exec(UPDATE_LAST_SIGNED_IN, vec![new.id.into(), new.last_signed_in_at.into()]).await?;
    let user = Box::new(save_user(tx, &old, new).await?);
    Ok(SignOnOutcome::SignedIn { user, ignored_email })
}

/// Whether a provider may change a user's address: the new one must be free, and no other provider may vouch for the
/// domain of the old one.
async fn may_rename(tx: &mut Tx, user: &User, email: &str, provider: ProviderId) -> Result<bool> {
    if email == user.email || find_user_by_email_in_tx(tx, email).await?.is_some() {
        return Ok(false);
    }
    let Some(domain) = email_domain(&user.email) else { return Ok(true) };
    Ok(find_domain_provider(tx, &domain).await?.is_none_or(|owner| owner == provider))
}
