//! Sessions of signed-in users. Only hashes of their tokens are stored. Sign-in links are in `signin_links.rs`.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Serialize;

use super::credentials::Credentials;
use crate::audit::{self, AuditChanges, NewAuditEntry};
use crate::base::seal::SealBinding;
use crate::base::{
    Actor, ActorCredential, ActorKind, ActorRef, CredentialKind, Env, Error, Result, Secrets, SessionId, TenantId,
    Timestamp, UserId, WorkflowChain, sha256,
};
use crate::store::{Db, FromRow, Purpose, Row, Store, Tx, Value};

crate::statements! {
    FIND_ACTIVE_USER = "SELECT email, name FROM users WHERE tenant_id = $1 AND id = $2 AND status = 'active'";
    INSERT_SESSION = "INSERT INTO sessions
            (tenant_id, token_hash, id, user_id, created_at, last_seen_at, expires_at, provider_id, id_token)
        VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8)";
    DELETE_SESSION = "DELETE FROM sessions WHERE tenant_id = $1 AND id = $2";
    /// Over all tenants, because the token alone is known.
    FIND_BY_TOKEN = "SELECT s.tenant_id, s.id, s.user_id, u.name, s.provider_id, s.id_token FROM sessions s
        JOIN users u ON u.tenant_id = s.tenant_id AND u.id = s.user_id WHERE s.token_hash = $1";
    LIST_SESSIONS = "SELECT s.id, u.email, s.created_at, s.last_seen_at, s.expires_at FROM sessions s
        JOIN users u ON u.tenant_id = s.tenant_id AND u.id = s.user_id
        WHERE s.tenant_id = $1 AND s.id > $2 AND s.expires_at > $3 ORDER BY s.id LIMIT $4";
    LIST_USER_SESSIONS = "SELECT id FROM sessions WHERE tenant_id = $1 AND user_id = $2 ORDER BY id";
    LIST_PROVIDER_SESSIONS = "SELECT id FROM sessions
        WHERE tenant_id = $1 AND user_id = $2 AND provider_id = $3 ORDER BY id";
    DELETE_USER_LINKS = "DELETE FROM signin_links WHERE tenant_id = $1 AND user_id = $2";
}

/// A secret of 256 random bits that authenticates a user: shown once, stored as a hash, never logged.
pub struct SignInToken(String);

impl SignInToken {
    pub(super) fn new(env: &Env) -> Self {
        SignInToken(BASE64.encode(env.random.secret_bytes::<32>()))
    }

    /// The hash that is stored and cached instead of the token.
    pub fn hash(&self) -> [u8; 32] {
        sha256(self.0.as_bytes())
    }

    pub fn expose_secret(&self) -> &str {
        &self.0
    }
}

/// Creates a session for a user on behalf of the operator. Returns its token and its latest end.
pub async fn create_session(
    store: &Store,
    tenant: TenantId,
    user: UserId,
    lifetime_ms: i64,
) -> Result<(SignInToken, Timestamp)> {
    let db = store.tenant(tenant, Actor::for_operator(&store.env().operator));
    db.write(async move |tx| {
        let owner = lock_user(tx, user).await?;
        insert_session(tx, &owner, lifetime_ms, None).await
    })
    .await
}

/// The identity provider that started a session. It has no `Debug`, because it holds the ID token.
pub struct ProviderSession<'a> {
    pub provider: &'a str,
    /// The ID token, kept for signing out at the provider, and the secrets that seal it.
    pub id_token: Option<(&'a str, &'a Secrets)>,
}

/// Starts a session of a user whom a provider has signed in, in the transaction that identified the user. After the commit,
/// the caller calls [`Credentials::remember_credential`], so that the session works at once even if its address is
/// throttled.
pub async fn start_session(
    tx: &mut Tx,
    user: UserId,
    lifetime_ms: i64,
    provider_session: &ProviderSession<'_>,
) -> Result<SignInToken> {
    let owner = lock_user(tx, user).await?;
    let (token, _) = insert_session(tx, &owner, lifetime_ms, Some(provider_session)).await?;
    Ok(token)
}

/// The user whose session starts.
pub(super) struct SessionOwner {
    pub id: UserId,
    pub email: String,
    pub name: String,
}

impl SessionOwner {
    pub fn actor_ref(&self) -> ActorRef {
        ActorRef { kind: ActorKind::User, id: Some(self.id.to_string()), name: self.name.clone() }
    }
}

/// Ticks the tenant's clock before anything else, because a row that refers to the user locks the user, and the transaction
/// that disables a user holds the clock. The user is read after that, since it may have been disabled meanwhile.
pub(super) async fn lock_user(tx: &mut Tx, id: UserId) -> Result<SessionOwner> {
    tx.tick().await?;
    let (email, name): (String, String) = tx.get_one(FIND_ACTIVE_USER, crate::args![id]).await?;
    Ok(SessionOwner { id, email, name })
}

/// The caller has ticked the clock: see [`lock_user`].
pub(super) async fn insert_session(
    tx: &mut Tx,
    owner: &SessionOwner,
    lifetime_ms: i64,
    provider_session: Option<&ProviderSession<'_>>,
) -> Result<(SignInToken, Timestamp)> {
    let (token, id) = (SignInToken::new(tx.env()), SessionId::new(tx.env()));
    let now = tx.env().now();
    let expires_at = now.plus_ms(lifetime_ms);
    let (hash, provider) = (token.hash(), provider_session.map(|session| session.provider));
    let id_token = match provider_session.and_then(|session| session.id_token) {
        Some((text, secrets)) => Some(seal_id_token(tx, id, text, secrets)?),
        None => None,
    };
    let id_token = id_token.as_deref();
    tx.exec(INSERT_SESSION, crate::args![hash.as_slice(), id, owner.id, now, expires_at, provider, id_token]).await?;
    let mut changes = AuditChanges::default();
    changes.add_if_changed("user_id", None, Some(owner.id.to_string()));
    changes.add_if_changed("email", None, Some(owner.email.as_str()));
    let entry = NewAuditEntry::new("session.create", "session", id).with_changes(changes);
    // With a provider, the user is the actor: this transaction has identified them.
    let entry = if provider_session.is_some() { entry.with_actor(owner.actor_ref()) } else { entry };
    audit::record_entry(tx, entry).await?;
    Ok((token, expires_at))
}

/// A session has one ID token, which never changes, so the version is always 1.
fn id_token_binding<'a>(tenant: &'a str, session: &'a str) -> SealBinding<'a> {
    SealBinding { tenant, table: "sessions.id_token", record: session, version: 1 }
}

fn seal_id_token(tx: &Tx, id: SessionId, text: &str, secrets: &Secrets) -> Result<Vec<u8>> {
    let tenant = tx.tenant_id().ok_or_else(|| Error::internal("a session belongs to a tenant"))?;
    let (tenant, session) = (tenant.to_string(), id.to_string());
    secrets.seal_value(&tx.env().random, id_token_binding(&tenant, &session), text.as_bytes())
}

/// Returns `None` if the token does not open; signing out continues without it.
fn open_id_token(tenant: TenantId, id: SessionId, sealed: &[u8], secrets: &Secrets) -> Option<String> {
    let (tenant, session) = (tenant.to_string(), id.to_string());
    let opened = secrets.open_value(id_token_binding(&tenant, &session), sealed);
    opened
        .inspect_err(|error| tracing::warn!(%error, session, "failed to open the ID token of a session"))
        .ok()
        .and_then(|plain| String::from_utf8(plain).ok())
}

/// Ends a session of the tenant.
pub(crate) async fn end_session(db: &Db, id: SessionId) -> Result<()> {
    db.write(async move |tx| {
        // The clock comes first, so that a write of the same session either commits before this or finds the session
        // deleted.
        tx.tick().await?;
        tx.exec(DELETE_SESSION, crate::args![id]).await?;
        audit::record_entry(tx, NewAuditEntry::new("session.delete", "session", id)).await
    })
    .await
}

/// An ended session, as its identity provider needs it. It has no `Debug`, because it holds the ID token.
pub struct EndedSession {
    pub tenant: TenantId,
    pub provider: String,
    pub id_token: Option<String>,
}

/// Ends the session that a browser presents, even an expired one, of any tenant. The session's user is the actor. Returns
/// `None` if the session is gone already, or no provider had started it.
pub(crate) async fn end_presented_session(
    (store, credentials, secrets): (&Store, &Credentials, &Secrets),
    token: &str,
    (address, request_id): (IpAddr, &str),
) -> Result<Option<EndedSession>> {
    type Presented = (TenantId, SessionId, UserId, String, Option<String>, Option<Vec<u8>>);
    let hash = sha256(token.as_bytes());
    let db = store.system(Purpose::SignIn);
    let found: Option<Presented> = db.find(FIND_BY_TOKEN, crate::args![hash.as_slice()]).await?;
    let Some((tenant, id, user, name, provider, id_token)) = found else { return Ok(None) };
    let actor = Actor {
        who: ActorRef { kind: ActorKind::User, id: Some(user.to_string()), name },
        credential: Some(ActorCredential { kind: CredentialKind::Session, id: id.to_string() }),
        address: Some(address),
        request_id: Some(request_id.into()),
        chain: WorkflowChain::default(),
    };
    store
        .tenant(tenant, actor)
        .write(async move |tx| {
            tx.tick().await?;
            if tx.exec(DELETE_SESSION, crate::args![id]).await? == 0 {
                return Ok(());
            }
            audit::record_entry(tx, NewAuditEntry::new("session.delete", "session", id)).await
        })
        .await?;
    credentials.invalidate_tenant(tenant);
    let id_token = id_token.and_then(|sealed| open_id_token(tenant, id, &sealed, secrets));
    Ok(provider.map(|provider| EndedSession { tenant, provider, id_token }))
}

/// Deletes all sessions and sign-in links of a user who is disabled or unlinked; the caller writes the audit entry.
pub async fn end_sign_ins(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.tick().await?;
    let sessions: Vec<SessionId> = tx.list(LIST_USER_SESSIONS, crate::args![user]).await?;
    delete_sessions(tx, sessions).await?;
    tx.exec(DELETE_USER_LINKS, crate::args![user]).await.map(drop)
}

/// Ends the sessions of a user that one provider has started, when it no longer vouches for the user; the caller writes the
/// audit entry.
pub async fn end_provider_sessions(tx: &mut Tx, user: UserId, provider: &str) -> Result<()> {
    tx.tick().await?;
    let sessions: Vec<SessionId> = tx.list(LIST_PROVIDER_SESSIONS, crate::args![user, provider]).await?;
    delete_sessions(tx, sessions).await
}

/// Deletes in the order of ids, in which last uses are saved too, so that the two do not deadlock.
async fn delete_sessions(tx: &mut Tx, sessions: Vec<SessionId>) -> Result<()> {
    let sessions: Vec<Vec<Value>> = sessions.into_iter().map(|session| vec![session.into()]).collect();
    tx.exec_each(DELETE_SESSION, &sessions).await.map(drop)
}

/// A session as the operator sees it.
#[derive(Clone, Debug, Serialize)]
pub struct SessionEntry {
    pub id: SessionId,
    pub email: String,
    pub created_at: Timestamp,
    /// Some seconds late, because uses are saved in batches.
    pub last_seen_at: Timestamp,
    /// The latest end; an idle session ends earlier.
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

/// Rows per statement when the command line lists everything.
const LIST_ROWS: i64 = 500;

/// The sessions of a tenant that have not expired, the oldest first.
pub async fn list_sessions(db: &Db) -> Result<Vec<SessionEntry>> {
    let now = db.env().now();
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

/// Ends a session on behalf of the operator. Returns whether it existed. Servers notice within half a second, when their
/// cached read expires.
pub async fn revoke_session(db: &Db, id: SessionId) -> Result<bool> {
    db.write(async move |tx| {
        tx.tick().await?;
        revoke_in_tx(tx, id).await
    })
    .await
}

/// Ends all sessions and sign-in links of a user on behalf of the operator. Returns how many sessions there were.
pub async fn revoke_user_sessions(db: &Db, user: UserId) -> Result<usize> {
    db.write(async move |tx| {
        tx.tick().await?;
        let sessions: Vec<SessionId> = tx.list(LIST_USER_SESSIONS, crate::args![user]).await?;
        tx.exec(DELETE_USER_LINKS, crate::args![user]).await?;
        let mut revoked = 0;
        for id in sessions {
            revoked += usize::from(revoke_in_tx(tx, id).await?);
        }
        Ok(revoked)
    })
    .await
}

async fn revoke_in_tx(tx: &mut Tx, id: SessionId) -> Result<bool> {
    if tx.exec(DELETE_SESSION, crate::args![id]).await? == 0 {
        return Ok(false);
    }
    audit::record_entry(tx, NewAuditEntry::new("session.revoke", "session", id)).await?;
    Ok(true)
}
