//! A caller's rights, confirmed again inside a transaction.
//!
//! A request is admitted before its body arrives, and a body may take seconds. A credential that was revoked or restricted
//! meanwhile must not count any more, so a write that grants rights reads them again. It reads under the tenant's clock,
//! which every change of a credential ticks, so the rights hold until the commit. The check covers the presented secret and
//! not only its key, because the key may have been rotated. Expiry is judged by the time of day, because the tenant's clock
//! may be ahead.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::credentials::unauthenticated_error;
use super::key_format::PublicId;
use super::role::Role;
use super::scope::{Scope, Scopes};
use crate::base::{ApiKeyId, Code, Error, Result, SECOND_MS, SessionId, Timestamp, UserId};
use crate::store::{Db, FromRow, PendingRows, Row, Select, Tx};

crate::statements! {
    FIND_KEY = "SELECT k.scopes, k.allowed_cidrs, k.expires_at,
            COALESCE((SELECT u.platform_operator FROM users u
                WHERE u.tenant_id = k.tenant_id AND u.id = k.maker_user_id AND u.status = 'active'), FALSE)
        FROM api_key_secrets s JOIN api_keys k ON k.tenant_id = s.tenant_id AND k.id = s.key_id
        WHERE s.public_id = $3 AND s.tenant_id = $1 AND s.key_id = $2 AND (s.valid_until IS NULL OR s.valid_until > $4)
            AND k.revoked_at IS NULL";
    FIND_SESSION = "SELECT u.role, u.platform_operator FROM sessions s
        JOIN users u ON u.tenant_id = s.tenant_id AND u.id = s.user_id AND u.status = 'active'
        WHERE s.tenant_id = $1 AND s.id = $2 AND s.expires_at > $3";
    /// The same columns as [`FIND_KEY`], for several secrets.
    LIST_KEYS = "SELECT k.scopes, k.allowed_cidrs, k.expires_at,
            COALESCE((SELECT u.platform_operator FROM users u
                WHERE u.tenant_id = k.tenant_id AND u.id = k.maker_user_id AND u.status = 'active'), FALSE), s.public_id
        FROM api_key_secrets s JOIN api_keys k ON k.tenant_id = s.tenant_id AND k.id = s.key_id
        WHERE s.tenant_id = $1 AND (s.valid_until IS NULL OR s.valid_until > $2) AND k.revoked_at IS NULL";
    LIST_SESSIONS = "SELECT u.role, u.platform_operator, s.id FROM sessions s
        JOIN users u ON u.tenant_id = s.tenant_id AND u.id = s.user_id AND u.status = 'active'
        WHERE s.tenant_id = $1 AND s.expires_at > $2";
}

/// After a longer wait for the tenant's clock, the rights are read again.
const WAIT_MS: i64 = SECOND_MS;

/// The credential that a request presented, by its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialRef {
    Session { user: UserId, session: SessionId },
    Key { id: ApiKeyId, secret: PublicId },
}

/// The current rights of a credential.
#[derive(Clone, Debug)]
pub struct Rights {
    /// `None` when the service acts on behalf of a saver: see [`super::load_saver_rights`].
    pub credential: Option<CredentialRef>,
    pub scopes: Scopes,
    /// The networks that a key is restricted to; empty means no restriction.
    pub allowed_cidrs: Vec<IpNet>,
    /// When a key expires; `None` for a session, whose end does not limit what its user creates.
    pub expires_at: Option<Timestamp>,
}

impl CredentialRef {
    /// Ticks the tenant's clock, then returns the current rights: 401 if the credential is gone, 403 if the scope is.
    pub async fn confirm_rights(self, tx: &mut Tx, scope: Scope) -> Result<Rights> {
        self.query_rights(tx).await?.confirm_rights(tx, scope).await
    }

    /// The first half of [`CredentialRef::confirm_rights`]: sends the queries without waiting, so that others can follow.
    pub async fn query_rights(self, tx: &mut Tx) -> Result<PendingRights> {
        tx.defer_tick().await?;
        self.send_rights_query(tx).await
    }

    /// 401 if the credential is gone, before a stored response is replayed. It writes nothing, so the clock does not tick.
    pub(crate) async fn confirm_valid(self, tx: &mut Tx) -> Result<()> {
        self.send_rights_query(tx).await?.await_valid_rights(tx).await.map(drop)
    }

    async fn send_rights_query(self, tx: &mut Tx) -> Result<PendingRights> {
        let at = tx.env().now();
        let row = match self {
            CredentialRef::Key { id, secret } => PendingRightsRow::Key(
                tx.defer_query(FIND_KEY, vec![id.into(), secret.as_str().into(), at.into()]).await?,
            ),
            CredentialRef::Session { session, .. } => {
                PendingRightsRow::Session(tx.defer_query(FIND_SESSION, vec![session.into(), at.into()]).await?)
            }
        };
        Ok(PendingRights { credential: self, at, row })
    }

    /// Like [`CredentialRef::confirm_rights`], outside of a transaction.
    pub(crate) async fn confirm_rights_now(self, db: &Db, scope: Scope) -> Result<Rights> {
        let now = db.env().now();
        let rights = match self {
            CredentialRef::Key { id, secret } => {
                let row: Option<KeyRightsRow> = db.find(FIND_KEY, crate::args![id, secret.as_str(), now]).await?;
                row.map(|row| row.into_rights(Some(self)))
            }
            CredentialRef::Session { session, .. } => {
                let row: Option<(String, bool)> = db.find(FIND_SESSION, crate::args![session, now]).await?;
                row.and_then(|row| user_rights(Some(self), &row))
            }
        };
        let rights = check_restrictions(rights, now, db.actor().address)?;
        rights.require_scope(scope)?;
        Ok(rights)
    }
}

/// The rights of several credentials of a tenant, read together for a batch of requests.
#[derive(Debug, Default)]
pub struct RightsBatch(HashMap<CredentialRef, Option<Rights>>);

impl RightsBatch {
    /// Runs at most two statements, whatever the number of credentials.
    pub async fn load_rights(db: &Db, credentials: impl IntoIterator<Item = CredentialRef>) -> Result<Self> {
        let mut found: HashMap<CredentialRef, Option<Rights>> =
            credentials.into_iter().map(|one| (one, None)).collect();
        let now = db.env().now();
        let (mut keys, mut sessions) = (HashMap::new(), HashMap::new());
        for credential in found.keys() {
            match credential {
                CredentialRef::Key { secret, .. } => drop(keys.insert(secret.as_str().to_owned(), *credential)),
                CredentialRef::Session { session, .. } => drop(sessions.insert(session.to_string(), *credential)),
            }
        }
        if !keys.is_empty() {
            let select =
                Select::new(LIST_KEYS).bind_value(now).where_in("s.public_id", keys.keys().map(String::as_str));
            let rows: Vec<KeyedRow<KeyRightsRow>> = db.select(&select.limit(keys.len())).await?;
            for KeyedRow { row, name } in rows {
                let credential = keys.get(&name).copied();
                found.extend(credential.map(|credential| (credential, Some(row.into_rights(Some(credential))))));
            }
        }
        if !sessions.is_empty() {
            let select =
                Select::new(LIST_SESSIONS).bind_value(now).where_in("s.id", sessions.keys().map(String::as_str));
            let rows: Vec<KeyedRow<UserRightsRow>> = db.select(&select.limit(sessions.len())).await?;
            for KeyedRow { row: UserRightsRow(row), name } in rows {
                let credential = sessions.get(&name).copied();
                found.extend(credential.map(|credential| (credential, user_rights(Some(credential), &row))));
            }
        }
        Ok(RightsBatch(found))
    }

    /// Like [`CredentialRef::confirm_rights_now`], with the rights in this batch. Returns `None` if the credential is not
    /// in it.
    pub(crate) fn check_rights(&self, credential: CredentialRef, scope: Scope, db: &Db) -> Option<Result<Rights>> {
        let rights = self.0.get(&credential)?.clone();
        let checked = check_restrictions(rights, db.env().now(), db.actor().address);
        Some(checked.and_then(|rights| rights.require_scope(scope).map(|()| rights)))
    }
}

/// A row of [`LIST_KEYS`] or [`LIST_SESSIONS`] with the public id of its secret or the id of its session.
struct KeyedRow<T> {
    row: T,
    name: String,
}

struct UserRightsRow((String, bool));

impl FromRow for KeyedRow<KeyRightsRow> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(KeyedRow { row: KeyRightsRow::from_row(row)?, name: row.get(4)? })
    }
}

impl FromRow for KeyedRow<UserRightsRow> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(KeyedRow { row: UserRightsRow((row.get(0)?, row.get(1)?)), name: row.get(2)? })
    }
}

/// The rights of a credential, queried and not awaited yet.
pub struct PendingRights {
    credential: CredentialRef,
    at: Timestamp,
    row: PendingRightsRow,
}

enum PendingRightsRow {
    Key(PendingRows<KeyRightsRow>),
    Session(PendingRows<(String, bool)>),
}

impl PendingRights {
    /// The second half of [`CredentialRef::confirm_rights`].
    pub async fn confirm_rights(self, tx: &mut Tx, scope: Scope) -> Result<Rights> {
        tx.tick().await?;
        let rights = self.await_valid_rights(tx).await?;
        rights.require_scope(scope)?;
        Ok(rights)
    }

    async fn await_valid_rights(self, tx: &mut Tx) -> Result<Rights> {
        let (credential, queried_at) = (self.credential, self.at);
        let mut rights = self.await_row(tx).await?;
        // The query may have waited for the clock, and a credential may have ended meanwhile.
        let now = tx.env().now();
        if now > queried_at.plus_ms(WAIT_MS) {
            rights = credential.send_rights_query(tx).await?.await_row(tx).await?;
        }
        check_restrictions(rights, now, tx.actor().address)
    }

    async fn await_row(self, tx: &mut Tx) -> Result<Option<Rights>> {
        Ok(match self.row {
            PendingRightsRow::Key(row) => {
                tx.await_rows(row).await?.pop().map(|row| row.into_rights(Some(self.credential)))
            }
            PendingRightsRow::Session(row) => {
                tx.await_rows(row).await?.pop().and_then(|row| user_rights(Some(self.credential), &row))
            }
        })
    }
}

fn check_restrictions(rights: Option<Rights>, now: Timestamp, address: Option<IpAddr>) -> Result<Rights> {
    let rights = rights.ok_or_else(unauthenticated_error)?;
    if rights.expires_at.is_some_and(|end| end <= now) {
        return Err(Error::new(Code::KeyExpired, "The key expired while the request was under way."));
    }
    let allowed_cidrs = &rights.allowed_cidrs;
    if let Some(address) = address.filter(|_| !allowed_cidrs.is_empty())
        && !allowed_cidrs.iter().any(|network| network.contains(&address))
    {
        return Err(Error::new(Code::AddressNotAllowed, format!("The key may not be used from {address}.")));
    }
    Ok(rights)
}

impl Rights {
    pub fn is_key(&self, id: ApiKeyId) -> bool {
        matches!(self.credential, Some(CredentialRef::Key { id: own, .. }) if own == id)
    }

    fn require_scope(&self, scope: Scope) -> Result<()> {
        if self.scopes.has_scope(scope) {
            return Ok(());
        }
        Err(Error::insufficient_scope(scope.name(), format!("This needs the scope {}.", scope.name())))
    }

    /// A caller cannot grant, change or rotate scopes that it does not hold.
    pub fn require_all(&self, required: &Scopes, doing: &str) -> Result<()> {
        match self.scopes.find_missing(required) {
            None => Ok(()),
            Some(missing) => {
                let name = missing.name();
                Err(Error::insufficient_scope(name, format!("{doing} needs the scope {name}, which you do not hold.")))
            }
        }
    }
}

pub(super) fn user_rights(credential: Option<CredentialRef>, (role, operator): &(String, bool)) -> Option<Rights> {
    let scopes = Role::parse(role)?.granted_scopes(*operator);
    Some(Rights { credential, scopes, allowed_cidrs: Vec::new(), expires_at: None })
}

pub(super) struct KeyRightsRow {
    scopes: Scopes,
    allowed_cidrs: Vec<IpNet>,
    expires_at: Timestamp,
    made_by_operator: bool,
}

impl FromRow for KeyRightsRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(KeyRightsRow {
            scopes: Scopes::from_json(&row.get::<String>(0)?)?,
            allowed_cidrs: row.get_json(1)?,
            expires_at: row.get(2)?,
            made_by_operator: row.get(3)?,
        })
    }
}

impl KeyRightsRow {
    pub(super) fn into_rights(self, credential: Option<CredentialRef>) -> Rights {
        let scopes = if self.made_by_operator { self.scopes } else { self.scopes.without_scope(Scope::PlatformRead) };
        Rights { credential, scopes, allowed_cidrs: self.allowed_cidrs, expires_at: Some(self.expires_at) }
    }
}
