//! Sessions of signed-in users and the one-time links that start them. Only hashes of tokens are stored.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use super::credentials::Credentials;
use super::people::has_user;
use crate::audit::{self, Entry};
use crate::base::{
    Actor, ActorKind, ActorRef, Chain, Error, MINUTE_MS, Result, SessionId, TenantId, Timestamp, UserId, World, sha256,
};
use crate::store::{Db, Purpose, Store, Tx};

crate::statements! {
    INSERT_SESSION = "INSERT INTO sessions (tenant_id, token_hash, id, user_id, created_at, last_seen_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $5, $6)";
    DELETE_SESSION = "DELETE FROM sessions WHERE tenant_id = $1 AND id = $2";
    INSERT_LINK = "INSERT INTO signin_links (tenant_id, token_hash, user_id, expires_at) VALUES ($1, $2, $3, $4)";
    FIND_LINK = "SELECT l.tenant_id, l.user_id, u.name FROM signin_links l
        JOIN users u ON u.tenant_id = l.tenant_id AND u.id = l.user_id
        WHERE l.token_hash = $1 AND l.expires_at > $2";
    DELETE_LINK = "DELETE FROM signin_links WHERE tenant_id = $1 AND token_hash = $2";
}

/// How long a sign-in link works.
pub const SIGNIN_LINK_MS: i64 = 15 * MINUTE_MS;

/// 256 random bits that stand for a user: shown once, stored as a hash, never printed.
pub struct Token(String);

impl Token {
    fn new(world: &World) -> Self {
        Token(BASE64.encode(world.chance.bytes::<32>()))
    }

    fn hash(&self) -> [u8; 32] {
        sha256(self.0.as_bytes())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// A new session, made by the operator for a user. Tells when it ends at the latest.
pub async fn create_session(
    store: &Store,
    tenant: TenantId,
    user: UserId,
    lifetime_ms: i64,
) -> Result<(Token, Timestamp)> {
    let token = Token::new(store.world());
    let hash = token.hash();
    let db = store.tenant(tenant, Actor::operator());
    let expires_at = db
        .write(async move |tx| {
            lock_user(tx, user).await?;
            insert_session(tx, user, hash, lifetime_ms).await
        })
        .await?;
    Ok((token, expires_at))
}

/// Moves the tenant's clock before anything else: a row that refers to the user locks the user, and whoever removes the
/// user holds the clock. And the user may be gone by then.
async fn lock_user(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.tick().await?;
    if has_user(tx, user).await? { Ok(()) } else { Err(Error::not_found()) }
}

/// The clock has been moved already: see [`lock_user`].
async fn insert_session(tx: &mut Tx, user: UserId, token_hash: [u8; 32], lifetime_ms: i64) -> Result<Timestamp> {
    let id = SessionId::new(tx.world());
    let now = tx.world().now();
    let expires_at = now.plus(lifetime_ms);
    tx.exec(INSERT_SESSION, crate::args![token_hash.as_slice(), id, user, now, expires_at]).await?;
    audit::record(tx, Entry::new("session.create", "session", id)).await?;
    Ok(expires_at)
}

/// A link's token for a user, good once and for 15 minutes.
pub async fn create_signin_link(store: &Store, tenant: TenantId, user: UserId) -> Result<Token> {
    let token = Token::new(store.world());
    let hash = token.hash();
    let expires_at = store.world().now().plus(SIGNIN_LINK_MS);
    store
        .tenant(tenant, Actor::operator())
        .write(async move |tx| {
            lock_user(tx, user).await?;
            tx.exec(INSERT_LINK, crate::args![hash.as_slice(), user, expires_at]).await?;
            audit::record(tx, Entry::new("signin_link.create", "user", user)).await
        })
        .await?;
    Ok(token)
}

/// Uses a link up and starts the session it stands for. `None` when it is unknown, used or too old.
pub(crate) async fn redeem_signin_link(
    (store, credentials): (&Store, &Credentials),
    token: &str,
    lifetime_ms: i64,
    (address, request_id): (IpAddr, &str),
) -> Result<Option<Token>> {
    let hash = sha256(token.as_bytes());
    let now = store.world().now();
    let db = store.system(Purpose::SignIn);
    let found: Option<(TenantId, UserId, String)> = db.find(FIND_LINK, crate::args![hash.as_slice(), now]).await?;
    let Some((tenant, user, name)) = found else { return Ok(None) };
    let actor = Actor {
        who: ActorRef { kind: ActorKind::User, id: Some(user.to_string()), name },
        credential: None,
        address: Some(address),
        request_id: Some(request_id.into()),
        chain: Chain::default(),
    };
    let session = Token::new(store.world());
    let session_hash = session.hash();
    let redeemed = store
        .tenant(tenant, actor)
        .write(async move |tx| {
            // Removing the user removes the link: so whoever still finds it finds the user.
            tx.tick().await?;
            // Deleting it is what uses it up: of two requests at once, one finds it gone.
            if tx.exec(DELETE_LINK, crate::args![hash.as_slice()]).await? == 0 {
                return Ok(false);
            }
            insert_session(tx, user, session_hash, lifetime_ms).await?;
            Ok(true)
        })
        .await?;
    credentials.remember(session_hash);
    Ok(redeemed.then_some(session))
}

/// Ends a session of the tenant.
pub(crate) async fn end_session(db: &Db, id: SessionId) -> Result<()> {
    db.write(async move |tx| {
        // First, so that a write of the same session is either before this or sees it gone.
        tx.tick().await?;
        tx.exec(DELETE_SESSION, crate::args![id]).await?;
        audit::record(tx, Entry::new("session.delete", "session", id)).await
    })
    .await
}
