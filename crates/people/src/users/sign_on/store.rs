//! From what a provider says of somebody to the user they are here.

use kernel::args;
use kernel::auth::{Role, end_provider_sessions};
use kernel::base::{Error, Label, Result, UserId};
use kernel::store::Tx;

use super::super::store::{Draft, has_other_admin, insert, insert_identity, read, read_by_email, save};
use super::super::{Identity, Status, User, fold_email, loses_admin, name_of};
use crate::sso::{ProviderId, email_domain, find_domain_provider};

kernel::statements! {
    FIND_BY_IDENTITY = "SELECT user_id FROM user_identities WHERE tenant_id = $1 AND provider_id = $2 AND subject = $3";
    NOTE_SIGN_ON = "UPDATE users SET last_signed_in_at = $3 WHERE tenant_id = $1 AND id = $2";
}

/// Whom a provider has signed in. What it says has been checked: the address is theirs, and of one of the tenant's domains.
#[derive(Clone, Debug)]
pub struct SignOn {
    pub provider: ProviderId,
    pub subject: String,
    pub email: String,
    pub name: Option<String>,
    /// As the provider's rules have it now; none if they give none.
    pub role: Option<Role>,
}

/// What became of it.
#[derive(Debug)]
pub enum SignedOn {
    Welcome {
        user: Box<User>,
        /// The address that the provider says and the user does not get: somebody else has it, or the one they have is of a domain
        /// for which another provider vouches.
        ignored_email: Option<String>,
    },
    /// The user is disabled. Nothing was written.
    Disabled,
    /// The address is that of a user who is somebody else at this provider, or signs on at another. Nothing was written.
    OtherIdentity,
    /// The provider's rules give them no role. Sessions that it had begun for them have ended; nothing else was written.
    NoRole,
}

/// Finds the user, links or makes them, and brings them up to date with what the provider says. The one who acts is whoever the
/// transaction says. A session of them is the caller's to start.
pub async fn sign_on(tx: &mut Tx, who: SignOn) -> Result<SignedOn> {
    tx.tick().await?;
    let email = fold_email(&who.email).map_err(|detail| Error::invalid("/email", "invalid_email", detail))?;
    let identity = Identity { provider: who.provider, subject: who.subject };
    let found: Option<UserId> = tx.find(FIND_BY_IDENTITY, args![identity.provider, identity.subject]).await?;
    let known = found.is_some();
    let old = match found {
        Some(id) => Some(read(tx, id).await?),
        None => read_by_email(tx, &email).await?,
    };
    if old.as_ref().is_some_and(|old| old.status == Status::Disabled) {
        return Ok(SignedOn::Disabled);
    }
    // No provider of a tenant decides who holds the platform's office: it would by giving somebody that address.
    if !known && old.as_ref().is_some_and(|old| !old.identities.is_empty() || old.platform_operator) {
        return Ok(SignedOn::OtherIdentity);
    }
    let Some(role) = who.role else {
        if let Some(id) = found {
            end_provider_sessions(tx, id, &identity.provider.to_string()).await?;
        }
        return Ok(SignedOn::NoRole);
    };
    let Some(old) = old else {
        let name = who.name.and_then(|name| Label::parse(&name).ok()).map(Label::into_string);
        let name = name.unwrap_or_else(|| name_of(&email));
        let (status, identity) = (Status::Active, Some(identity));
        let made = insert(tx, Draft { email, name, role, status, platform_operator: false, identity }).await?;
        return Ok(SignedOn::Welcome { user: Box::new(made), ignored_email: None });
    };
    let mut new = User { last_signed_in_at: Some(tx.world().now()), ..old.clone() };
    let mut ignored_email = None;
    if may_rename(tx, &old, &email, identity.provider).await? {
        new.email = email;
    } else if email != old.email {
        ignored_email = Some(email);
    }
    if !known {
        insert_identity(tx, old.id, &identity).await?;
        new.identities.push(identity);
    }
    // The platform's office is not the provider's to give or to take, nor is the tenant's last active admin: nobody would be
    // left to set the provider's rules right.
    let demoted = User { role, ..old.clone() };
    if !loses_admin(&old, &demoted) || has_other_admin(tx, old.id).await? {
        new.role = role;
    }
    tx.later(NOTE_SIGN_ON, vec![new.id.into(), new.last_signed_in_at.into()]).await?;
    let user = Box::new(save(tx, &old, new).await?);
    Ok(SignedOn::Welcome { user, ignored_email })
}

/// Whether a provider may give a user another address, of a domain that it vouches for: one that nobody has, and not instead of
/// an address that another provider vouches for.
async fn may_rename(tx: &mut Tx, user: &User, email: &str, provider: ProviderId) -> Result<bool> {
    if email == user.email || read_by_email(tx, email).await?.is_some() {
        return Ok(false);
    }
    let Some(domain) = email_domain(&user.email) else { return Ok(true) };
    Ok(find_domain_provider(tx, &domain).await?.is_none_or(|owner| owner == provider))
}
