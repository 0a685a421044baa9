//! One-time links that start a session. Only hashes of their tokens are stored. Opening a link does not use it up; redeeming
//! it does.

use std::net::IpAddr;

use super::credentials::Credentials;
use super::sessions::{SessionOwner, SignInToken, insert_session, lock_user};
use crate::audit::{self, NewAuditEntry};
use crate::base::{Actor, MINUTE_MS, Result, TenantId, Timestamp, UserId, WorkflowChain, sha256};
use crate::store::{FromRow, Purpose, Row, Store};

crate::statements! {
    INSERT_LINK = "INSERT INTO signin_links (tenant_id, token_hash, user_id, expires_at) VALUES ($1, $2, $3, $4)";
    /// Over all tenants, because the token alone is known.
    FIND_LINK = "SELECT l.tenant_id, t.name, l.user_id, u.email, u.name, l.expires_at FROM signin_links l
        JOIN tenants t ON t.id = l.tenant_id
        JOIN users u ON u.tenant_id = l.tenant_id AND u.id = l.user_id AND u.status = 'active'
        WHERE l.token_hash = $1 AND l.expires_at > $2";
    DELETE_LINK = "DELETE FROM signin_links WHERE tenant_id = $1 AND token_hash = $2";
    /// The sign-in is an observation of the server: neither `version` nor `updated_at` changes.
    SAVE_SIGN_IN = "UPDATE users SET last_signed_in_at = $3 WHERE tenant_id = $1 AND id = $2";
}

/// How long a sign-in link works.
pub const SIGNIN_LINK_MS: i64 = 15 * MINUTE_MS;

/// The user whom a link signs in.
pub struct SigninLink {
    tenant: TenantId,
    user: UserId,
    pub tenant_name: String,
    pub email: String,
    pub name: String,
    pub expires_at: Timestamp,
}

impl FromRow for SigninLink {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(SigninLink {
            tenant: row.get(0)?,
            tenant_name: row.get(1)?,
            user: row.get(2)?,
            email: row.get(3)?,
            name: row.get(4)?,
            expires_at: row.get(5)?,
        })
    }
}

/// Creates a link for a user that works once, within 15 minutes. Returns its token.
pub async fn create_signin_link(store: &Store, tenant: TenantId, user: UserId) -> Result<SignInToken> {
    let token = SignInToken::new(store.env());
    let hash = token.hash();
    let expires_at = store.env().now().plus_ms(SIGNIN_LINK_MS);
    store
        .tenant(tenant, Actor::for_operator(&store.env().operator))
        .write(async move |tx| {
            lock_user(tx, user).await?;
            tx.exec(INSERT_LINK, crate::args![hash.as_slice(), user, expires_at]).await?;
            audit::record_entry(tx, NewAuditEntry::new("signin_link.create", "user", user)).await
        })
        .await?;
    Ok(token)
}

/// Returns `None` when the link is unknown, used or expired, or its user is disabled.
pub(crate) async fn find_signin_link(store: &Store, token: &str) -> Result<Option<SigninLink>> {
    let (hash, now) = (sha256(token.as_bytes()), store.env().now());
    store.system(Purpose::SignIn).find(FIND_LINK, crate::args![hash.as_slice(), now]).await
}

/// Deletes a link and starts a session for its user. Returns `None` as [`find_signin_link`] does.
pub(crate) async fn redeem_signin_link(
    (store, credentials): (&Store, &Credentials),
    token: &str,
    lifetime_ms: i64,
    (address, request_id): (IpAddr, &str),
) -> Result<Option<SignInToken>> {
    let Some(link) = find_signin_link(store, token).await? else { return Ok(None) };
    let hash = sha256(token.as_bytes());
    let owner = SessionOwner { id: link.user, email: link.email, name: link.name };
    let actor = Actor {
        who: owner.actor_ref(),
        credential: None,
        address: Some(address),
        request_id: Some(request_id.into()),
        chain: WorkflowChain::default(),
    };
    let redeemed = store
        .tenant(link.tenant, actor)
        .write(async move |tx| {
            // Disabling a user deletes the links, so the user of an existing link may sign in.
            tx.tick().await?;
            // Of two concurrent requests, only one deletes the link.
            if tx.exec(DELETE_LINK, crate::args![hash.as_slice()]).await? == 0 {
                return Ok(None);
            }
            let (session, _) = insert_session(tx, &owner, lifetime_ms, None).await?;
            tx.defer_exec(SAVE_SIGN_IN, vec![owner.id.into(), tx.env().now().into()]).await?;
            Ok(Some(session))
        })
        .await?;
    if let Some(session) = &redeemed {
        credentials.remember_credential(session.hash());
    }
    Ok(redeemed)
}
