//! Sessions of signed-in users and the one-time links that start them. Only hashes of tokens are stored.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Serialize;

use super::credentials::Credentials;
use super::people::has_user;
use crate::audit::{self, Entry};
use crate::base::{
    Actor, ActorKind, ActorRef, Chain, Credential, CredentialKind, Error, MINUTE_MS, Result, SessionId, TenantId,
    Timestamp, UserId, World, sha256,
};
use crate::store::{Db, FromRow, Purpose, Row, Store, Tx, Value};

crate::statements! {
    INSERT_SESSION = "INSERT INTO sessions
            (tenant_id, token_hash, id, user_id, created_at, last_seen_at, expires_at, provider_id)
        VALUES ($1, $2, $3, $4, $5, $5, $6, $7)";
    DELETE_SESSION = "DELETE FROM sessions WHERE tenant_id = $1 AND id = $2";
    /// Of whichever tenant: that is what the read finds out.
    FIND_BY_TOKEN = "SELECT s.tenant_id, s.id, s.user_id, u.name, s.provider_id FROM sessions s
        JOIN users u ON u.tenant_id = s.tenant_id AND u.id = s.user_id WHERE s.token_hash = $1";
    LIST_SESSIONS = "SELECT s.id, u.email, s.created_at, s.last_seen_at, s.expires_at FROM sessions s
        JOIN users u ON u.tenant_id = s.tenant_id AND u.id = s.user_id
        WHERE s.tenant_id = $1 AND s.id > $2 AND s.expires_at > $3 ORDER BY s.id LIMIT $4";
    LIST_USER_SESSIONS = "SELECT id FROM sessions WHERE tenant_id = $1 AND user_id = $2 ORDER BY id";
    DELETE_USER_LINKS = "DELETE FROM signin_links WHERE tenant_id = $1 AND user_id = $2";
    INSERT_LINK = "INSERT INTO signin_links (tenant_id, token_hash, user_id, expires_at) VALUES ($1, $2, $3, $4)";
    FIND_LINK = "SELECT l.tenant_id, l.user_id, u.name FROM signin_links l
        JOIN users u ON u.tenant_id = l.tenant_id AND u.id = l.user_id AND u.status = 'active'
        WHERE l.token_hash = $1 AND l.expires_at > $2";
    DELETE_LINK = "DELETE FROM signin_links WHERE tenant_id = $1 AND token_hash = $2";
    /// The server observes it: neither the version nor the time of the last change moves.
    NOTE_SIGN_IN = "UPDATE users SET last_signed_in_at = $3 WHERE tenant_id = $1 AND id = $2";
}

/// How long a sign-in link works.
pub const SIGNIN_LINK_MS: i64 = 15 * MINUTE_MS;

/// 256 random bits that stand for a user: shown once, stored as a hash, never printed.
pub struct Token(String);

impl Token {
    fn new(world: &World) -> Self {
        Token(BASE64.encode(world.chance.bytes::<32>()))
    }

    /// What is stored of it, and what a node remembers it by.
    pub fn hash(&self) -> [u8; 32] {
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
    let db = store.tenant(tenant, Actor::operator(store.world()));
    db.write(async move |tx| {
        lock_user(tx, user).await?;
        insert_session(tx, user, lifetime_ms, None).await
    })
    .await
}

/// A new session of somebody whom a provider has signed in, in the write that found out who it is. Once that is on disk, the
/// node is told by [`Credentials::remember`], so that it works at once whatever others at the same address do.
pub async fn start_session(tx: &mut Tx, user: UserId, lifetime_ms: i64, provider: Option<&str>) -> Result<Token> {
    lock_user(tx, user).await?;
    let (token, _) = insert_session(tx, user, lifetime_ms, provider).await?;
    Ok(token)
}

/// Moves the tenant's clock before anything else: a row that refers to the user locks the user, and whoever disables the
/// user holds the clock. And the user may be disabled by then.
async fn lock_user(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.tick().await?;
    if has_user(tx, user).await? { Ok(()) } else { Err(Error::not_found()) }
}

/// The clock has been moved already: see [`lock_user`].
async fn insert_session(
    tx: &mut Tx,
    user: UserId,
    lifetime_ms: i64,
    provider: Option<&str>,
) -> Result<(Token, Timestamp)> {
    let (token, id) = (Token::new(tx.world()), SessionId::new(tx.world()));
    let now = tx.world().now();
    let expires_at = now.plus(lifetime_ms);
    let hash = token.hash();
    tx.exec(INSERT_SESSION, crate::args![hash.as_slice(), id, user, now, expires_at, provider]).await?;
    audit::record(tx, Entry::new("session.create", "session", id)).await?;
    Ok((token, expires_at))
}

/// A link's token for a user, good once and for 15 minutes.
pub async fn create_signin_link(store: &Store, tenant: TenantId, user: UserId) -> Result<Token> {
    let token = Token::new(store.world());
    let hash = token.hash();
    let expires_at = store.world().now().plus(SIGNIN_LINK_MS);
    store
        .tenant(tenant, Actor::operator(store.world()))
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
    let redeemed = store
        .tenant(tenant, actor)
        .write(async move |tx| {
            // Disabling the user removes the link: so whoever still finds it finds a user who may sign in.
            tx.tick().await?;
            // Deleting it is what uses it up: of two requests at once, one finds it gone.
            if tx.exec(DELETE_LINK, crate::args![hash.as_slice()]).await? == 0 {
                return Ok(None);
            }
            let (session, _) = insert_session(tx, user, lifetime_ms, None).await?;
            tx.later(NOTE_SIGN_IN, vec![user.into(), tx.world().now().into()]).await?;
            Ok(Some(session))
        })
        .await?;
    if let Some(session) = &redeemed {
        credentials.remember(session.hash());
    }
    Ok(redeemed)
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

/// Ends the session that a browser presents, of whichever tenant it is, be it too old to act with: its user does. Tells whose it was
/// and which provider had begun it, if one had. None if it is gone already.
pub(crate) async fn end_presented_session(
    (store, credentials): (&Store, &Credentials),
    token: &str,
    (address, request_id): (IpAddr, &str),
) -> Result<Option<(TenantId, Option<String>)>> {
    let hash = sha256(token.as_bytes());
    let db = store.system(Purpose::SignIn);
    let found: Option<(TenantId, SessionId, UserId, String, Option<String>)> =
        db.find(FIND_BY_TOKEN, crate::args![hash.as_slice()]).await?;
    let Some((tenant, id, user, name, provider)) = found else { return Ok(None) };
    let actor = Actor {
        who: ActorRef { kind: ActorKind::User, id: Some(user.to_string()), name },
        credential: Some(Credential { kind: CredentialKind::Session, id: id.to_string() }),
        address: Some(address),
        request_id: Some(request_id.into()),
        chain: Chain::default(),
    };
    store
        .tenant(tenant, actor)
        .write(async move |tx| {
            tx.tick().await?;
            if tx.exec(DELETE_SESSION, crate::args![id]).await? == 0 {
                return Ok(());
            }
            audit::record(tx, Entry::new("session.delete", "session", id)).await
        })
        .await?;
    credentials.forget(tenant);
    Ok(Some((tenant, provider)))
}

/// Ends whatever a user is signed in by, or could be: sessions and links. For whoever disables or unlinks the user, and
/// tells of that.
pub async fn end_sign_ins(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.tick().await?;
    // In the order in which last uses are noted, so that the two never wait for each other.
    let sessions: Vec<SessionId> = tx.list(LIST_USER_SESSIONS, crate::args![user]).await?;
    let sessions: Vec<Vec<Value>> = sessions.into_iter().map(|session| vec![session.into()]).collect();
    tx.exec_each(DELETE_SESSION, &sessions).await?;
    tx.exec(DELETE_USER_LINKS, crate::args![user]).await.map(drop)
}

/// A session as the operator sees it.
#[derive(Clone, Debug, Serialize)]
pub struct SessionEntry {
    pub id: SessionId,
    pub email: String,
    pub created_at: Timestamp,
    /// Some seconds late, as uses are noted.
    pub last_seen_at: Timestamp,
    /// At the latest; it ends earlier if it is not used.
    pub expires_at: Timestamp,
}

impl FromRow for SessionEntry {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(SessionEntry {
            id: row.get(0)?,
            email: row.get(1)?,
            created_at: row.get(2)?,
            last_seen_at: row.get(3)?,
            expires_at: row.get(4)?,
        })
    }
}

/// Rows of one step when the command line lists everything.
const LIST_ROWS: i64 = 500;

/// The sessions of a tenant that have not come to their end, the oldest first.
pub async fn list_sessions(db: &Db) -> Result<Vec<SessionEntry>> {
    let now = db.world().now();
    let mut all: Vec<SessionEntry> = Vec::new();
    loop {
        let after = all.last().map(|session| session.id.to_string()).unwrap_or_default();
        let rows: Vec<SessionEntry> = db.list(LIST_SESSIONS, crate::args![after, now, LIST_ROWS]).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
}

/// Ends a session because the operator wants it; whether it was there. Servers see it within the half second for which they
/// use again what they have read.
pub async fn revoke_session(db: &Db, id: SessionId) -> Result<bool> {
    db.write(async move |tx| {
        tx.tick().await?;
        revoke(tx, id).await
    })
    .await
}

/// The same with all sessions of a user, and links that would begin another; how many sessions there were.
pub async fn revoke_sessions(db: &Db, user: UserId) -> Result<usize> {
    db.write(async move |tx| {
        tx.tick().await?;
        let sessions: Vec<SessionId> = tx.list(LIST_USER_SESSIONS, crate::args![user]).await?;
        tx.exec(DELETE_USER_LINKS, crate::args![user]).await?;
        let mut revoked = 0;
        for id in sessions {
            revoked += usize::from(revoke(tx, id).await?);
        }
        Ok(revoked)
    })
    .await
}

async fn revoke(tx: &mut Tx, id: SessionId) -> Result<bool> {
    if tx.exec(DELETE_SESSION, crate::args![id]).await? == 0 {
        return Ok(false);
    }
    audit::record(tx, Entry::new("session.revoke", "session", id)).await?;
    Ok(true)
}
