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

use super::credentials::unauthenticated;
use super::key_format::PublicId;
use super::role::Role;
use super::scope::{Scope, Scopes};
use crate::base::{ApiKeyId, Code, Error, Result, SECOND_MS, SessionId, Timestamp, UserId};
use crate::store::{Ahead, Db, FromRow, Row, Select, Tx};

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
pub enum Standing {
    Person { user: UserId, session: SessionId },
    Key { id: ApiKeyId, secret: PublicId },
}

/// The current rights of a credential.
#[derive(Clone, Debug)]
pub struct Rights {
    /// `None` when the service acts on behalf of a saver: see [`super::load_saver_rights`].
    pub standing: Option<Standing>,
    pub scopes: Scopes,
    /// The networks that a key is restricted to; empty means no restriction.
    pub allowed_cidrs: Vec<IpNet>,
    /// When a key expires; `None` for a session, whose end does not limit what its user creates.
    pub ends_at: Option<Timestamp>,
}

impl Standing {
    /// Ticks the tenant's clock, then returns the current rights: 401 if the credential is gone, 403 if the scope is.
    pub async fn confirm(self, tx: &mut Tx, scope: Scope) -> Result<Rights> {
        self.ask(tx).await?.confirm(tx, scope).await
    }

    /// The first half of [`CredentialRef::confirm_rights`]: sends the queries without waiting, so that others can follow.
    pub async fn ask(self, tx: &mut Tx) -> Result<AskedRights> {
        tx.tick_ahead().await?;
        self.look(tx).await
    }

    /// 401 if the credential is gone, before a stored response is replayed. It writes nothing, so the clock does not tick.
    pub(crate) async fn still_stands(self, tx: &mut Tx) -> Result<()> {
        self.look(tx).await?.rights(tx).await.map(drop)
    }

    async fn look(self, tx: &mut Tx) -> Result<AskedRights> {
        let at = tx.world().now();
        let row = match self {
            Standing::Key { id, secret } => {
                AskedRow::Key(tx.ask(FIND_KEY, vec![id.into(), secret.as_str().into(), at.into()]).await?)
            }
            Standing::Person { session, .. } => {
                AskedRow::Person(tx.ask(FIND_SESSION, vec![session.into(), at.into()]).await?)
            }
        };
        Ok(AskedRights { standing: self, at, row })
    }

    /// Like [`CredentialRef::confirm_rights`], outside of a transaction.
    pub(crate) async fn still_holds(self, db: &Db, scope: Scope) -> Result<Rights> {
        let now = db.world().now();
        let rights = match self {
            Standing::Key { id, secret } => {
                let row: Option<KeyRow> = db.find(FIND_KEY, crate::args![id, secret.as_str(), now]).await?;
                row.map(|row| row.rights(Some(self)))
            }
            Standing::Person { session, .. } => {
                let row: Option<(String, bool)> = db.find(FIND_SESSION, crate::args![session, now]).await?;
                row.and_then(|row| person(Some(self), &row))
            }
        };
        let rights = judge(rights, now, db.actor().address)?;
        rights.require(scope)?;
        Ok(rights)
    }
}

/// The rights of several credentials of a tenant, read together for a batch of requests.
#[derive(Debug, Default)]
pub struct RightsOfMany(HashMap<Standing, Option<Rights>>);

impl RightsOfMany {
    /// Runs at most two statements, whatever the number of credentials.
    pub async fn read(db: &Db, standings: impl IntoIterator<Item = Standing>) -> Result<Self> {
        let mut found: HashMap<Standing, Option<Rights>> = standings.into_iter().map(|one| (one, None)).collect();
        let now = db.world().now();
        let (mut keys, mut sessions) = (HashMap::new(), HashMap::new());
        for standing in found.keys() {
            match standing {
                Standing::Key { secret, .. } => drop(keys.insert(secret.as_str().to_owned(), *standing)),
                Standing::Person { session, .. } => drop(sessions.insert(session.to_string(), *standing)),
            }
        }
        if !keys.is_empty() {
            let select = Select::new(LIST_KEYS).bind(now).any("s.public_id", keys.keys().map(String::as_str));
            let rows: Vec<OneOfMany<KeyRow>> = db.select(&select.limit(keys.len())).await?;
            for OneOfMany { row, name } in rows {
                let standing = keys.get(&name).copied();
                found.extend(standing.map(|standing| (standing, Some(row.rights(Some(standing))))));
            }
        }
        if !sessions.is_empty() {
            let select = Select::new(LIST_SESSIONS).bind(now).any("s.id", sessions.keys().map(String::as_str));
            let rows: Vec<OneOfMany<PersonRow>> = db.select(&select.limit(sessions.len())).await?;
            for OneOfMany { row: PersonRow(row), name } in rows {
                let standing = sessions.get(&name).copied();
                found.extend(standing.map(|standing| (standing, person(Some(standing), &row))));
            }
        }
        Ok(RightsOfMany(found))
    }

    /// Like [`CredentialRef::confirm_rights_now`], with the rights in this batch. Returns `None` if the credential is not
    /// in it.
    pub(crate) fn judge(&self, standing: Standing, scope: Scope, db: &Db) -> Option<Result<Rights>> {
        let rights = self.0.get(&standing)?.clone();
        let judged = judge(rights, db.world().now(), db.actor().address);
        Some(judged.and_then(|rights| rights.require(scope).map(|()| rights)))
    }
}

/// A row of [`LIST_KEYS`] or [`LIST_SESSIONS`] with the public id of its secret or the id of its session.
struct OneOfMany<T> {
    row: T,
    name: String,
}

struct PersonRow((String, bool));

impl FromRow for OneOfMany<KeyRow> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(OneOfMany { row: KeyRow::from_row(row)?, name: row.get(4)? })
    }
}

impl FromRow for OneOfMany<PersonRow> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(OneOfMany { row: PersonRow((row.get(0)?, row.get(1)?)), name: row.get(2)? })
    }
}

/// The rights of a credential, queried and not awaited yet.
pub struct AskedRights {
    standing: Standing,
    at: Timestamp,
    row: AskedRow,
}

enum AskedRow {
    Key(Ahead<KeyRow>),
    Person(Ahead<(String, bool)>),
}

impl AskedRights {
    /// The second half of [`CredentialRef::confirm_rights`].
    pub async fn confirm(self, tx: &mut Tx, scope: Scope) -> Result<Rights> {
        tx.tick().await?;
        let rights = self.rights(tx).await?;
        rights.require(scope)?;
        Ok(rights)
    }

    async fn rights(self, tx: &mut Tx) -> Result<Rights> {
        let (standing, asked_at) = (self.standing, self.at);
        let mut rights = self.answer(tx).await?;
        // The query may have waited for the clock, and a credential may have ended meanwhile.
        let now = tx.world().now();
        if now > asked_at.plus(WAIT_MS) {
            rights = standing.look(tx).await?.answer(tx).await?;
        }
        judge(rights, now, tx.actor().address)
    }

    async fn answer(self, tx: &mut Tx) -> Result<Option<Rights>> {
        Ok(match self.row {
            AskedRow::Key(row) => tx.answer(row).await?.pop().map(|row| row.rights(Some(self.standing))),
            AskedRow::Person(row) => tx.answer(row).await?.pop().and_then(|row| person(Some(self.standing), &row)),
        })
    }
}

fn judge(rights: Option<Rights>, now: Timestamp, address: Option<IpAddr>) -> Result<Rights> {
    let rights = rights.ok_or_else(unauthenticated)?;
    if rights.ends_at.is_some_and(|end| end <= now) {
        return Err(Error::new(Code::KeyExpired, "The key expired while the request was under way."));
    }
    let held_to = &rights.allowed_cidrs;
    if let Some(address) = address.filter(|_| !held_to.is_empty())
        && !held_to.iter().any(|network| network.contains(&address))
    {
        return Err(Error::new(Code::AddressNotAllowed, format!("The key may not be used from {address}.")));
    }
    Ok(rights)
}

impl Rights {
    pub fn is_key(&self, id: ApiKeyId) -> bool {
        matches!(self.standing, Some(Standing::Key { id: own, .. }) if own == id)
    }

    fn require(&self, scope: Scope) -> Result<()> {
        if self.scopes.holds(scope) {
            return Ok(());
        }
        Err(Error::insufficient_scope(scope.name(), format!("This needs the scope {}.", scope.name())))
    }

    /// A caller cannot grant, change or rotate scopes that it does not hold.
    pub fn require_all(&self, wanted: &Scopes, doing: &str) -> Result<()> {
        match self.scopes.missing_of(wanted) {
            None => Ok(()),
            Some(missing) => {
                let name = missing.name();
                Err(Error::insufficient_scope(name, format!("{doing} needs the scope {name}, which you do not hold.")))
            }
        }
    }
}

pub(super) fn person(standing: Option<Standing>, (role, operator): &(String, bool)) -> Option<Rights> {
    let scopes = Role::parse(role)?.scopes(*operator);
    Some(Rights { standing, scopes, allowed_cidrs: Vec::new(), ends_at: None })
}

pub(super) struct KeyRow {
    scopes: Scopes,
    allowed_cidrs: Vec<IpNet>,
    expires_at: Timestamp,
    made_by_operator: bool,
}

impl FromRow for KeyRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(KeyRow {
            scopes: Scopes::from_json(&row.get::<String>(0)?)?,
            allowed_cidrs: serde_json::from_str(&row.get::<String>(1)?).map_err(Error::internal)?,
            expires_at: row.get(2)?,
            made_by_operator: row.get(3)?,
        })
    }
}

impl KeyRow {
    pub(super) fn rights(self, standing: Option<Standing>) -> Rights {
        let scopes = if self.made_by_operator { self.scopes } else { self.scopes.without(Scope::PlatformRead) };
        Rights { standing, scopes, allowed_cidrs: self.allowed_cidrs, ends_at: Some(self.expires_at) }
    }
}
