//! Resolves a presented credential to its principal, and records when each was last used.
//!
//! A read is cached for half a second from its start, so a revocation by another process takes effect within a second. A
//! revocation by this process takes effect before its response.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::key_format::PublicId;
use super::principal::{KeyIdentity, Principal, Tenant, UserIdentity};
use super::role::Role;
use super::scope::{Scope, Scopes};
use crate::base::{ApiKeyId, Code, Error, Result, SessionId, TenantId, Timestamp, constant_time_eq, lock_unpoisoned};
use crate::store::{Db, FromRow, Purpose, Row, Store};

crate::statements! {
    FIND_KEY = "SELECT t.id, t.slug, t.name, k.id, k.name, k.scopes, k.allowed_cidrs, k.expires_at, k.revoked_at,
            s.public_id, s.secret_hash, s.valid_until,
            COALESCE((SELECT u.platform_operator FROM users u
                WHERE u.tenant_id = k.tenant_id AND u.id = k.maker_user_id AND u.status = 'active'), FALSE)
        FROM api_key_secrets s
        JOIN api_keys k ON k.tenant_id = s.tenant_id AND k.id = s.key_id
        JOIN tenants t ON t.id = s.tenant_id
        WHERE s.public_id = $1";
    FIND_SESSION = "SELECT t.id, t.slug, t.name, s.id, u.id, u.name, u.email, u.role, u.platform_operator,
            s.last_seen_at, s.expires_at
        FROM sessions s
        JOIN users u ON u.tenant_id = s.tenant_id AND u.id = s.user_id AND u.status = 'active'
        JOIN tenants t ON t.id = s.tenant_id
        WHERE s.token_hash = $1";
    STORED_KEYS = "SELECT public_id, secret_hash FROM api_key_secrets WHERE public_id > $1 ORDER BY public_id LIMIT $2";
    STORED_SESSIONS = "SELECT token_hash FROM sessions WHERE token_hash > $1 ORDER BY token_hash LIMIT $2";
    SAVE_KEY_USE = "INSERT INTO api_key_uses (tenant_id, key_id, last_used_at, last_used_ip) VALUES ($1, $2, $3, $4)
        ON CONFLICT (tenant_id, key_id) DO UPDATE SET last_used_at = excluded.last_used_at, last_used_ip = excluded.last_used_ip
        WHERE api_key_uses.last_used_at < excluded.last_used_at";
    SAVE_SESSION_USE = "UPDATE sessions SET last_seen_at = $2 WHERE id = $1 AND last_seen_at < $2";
}

/// An API key as stored.
struct CachedKey {
    principal: Arc<Principal>,
    expires_at: Timestamp,
    revoked_at: Option<Timestamp>,
    secret_hash: Vec<u8>,
    valid_until: Option<Timestamp>,
}

impl FromRow for CachedKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (scopes, cidrs, secret): (String, String, String) = (row.get(5)?, row.get(6)?, row.get(9)?);
        let mut scopes = Scopes::from_json(&scopes)?;
        let made_by_operator: bool = row.get(12)?;
        if !made_by_operator {
            scopes = scopes.without_scope(Scope::PlatformRead);
        }
        let key = KeyIdentity {
            id: row.get(3)?,
            secret: PublicId::parse(&secret).ok_or_else(|| Error::internal("a stored public id is malformed"))?,
            name: row.get(4)?,
            allowed_cidrs: serde_json::from_str(&cidrs).map_err(Error::internal)?,
        };
        Ok(CachedKey {
            principal: Arc::new(Principal::from_key(tenant_from_row(row)?, key, scopes)),
            expires_at: row.get(7)?,
            revoked_at: row.get(8)?,
            secret_hash: row.get(10)?,
            valid_until: row.get(11)?,
        })
    }
}

impl CachedKey {
    fn check_valid(&self, now: Timestamp) -> Result<ValidPrincipal> {
        if self.revoked_at.is_some() || self.valid_until.is_some_and(|end| end <= now) {
            return Err(unauthenticated_error());
        }
        if self.expires_at <= now {
            return Err(Error::new(Code::KeyExpired, format!("The key expired at {}.", self.expires_at)));
        }
        Ok((self.principal.clone(), self.expires_at))
    }
}

/// A session as stored.
struct CachedSession {
    principal: Arc<Principal>,
    id: SessionId,
    last_seen_at: Timestamp,
    expires_at: Timestamp,
}

impl FromRow for CachedSession {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let role: String = row.get(7)?;
        let user = UserIdentity {
            id: row.get(4)?,
            session: row.get(3)?,
            name: row.get(5)?,
            email: row.get(6)?,
            role: Role::parse(&role).ok_or_else(|| Error::internal(format!("unknown role {role:?}")))?,
            platform_operator: row.get(8)?,
        };
        Ok(CachedSession {
            id: user.session,
            principal: Arc::new(Principal::from_user(tenant_from_row(row)?, user)),
            last_seen_at: row.get(9)?,
            expires_at: row.get(10)?,
        })
    }
}

fn tenant_from_row(row: &Row<'_>) -> Result<Tenant> {
    Ok(Tenant { id: row.get(0)?, slug: row.get(1)?, name: row.get(2)? })
}

/// How long a read is cached, from its start.
const CACHED_MAX: Duration = Duration::from_millis(500);
/// A full cache is emptied; it refills within half a second.
const CACHE_ENTRIES_MAX: usize = 20_000;

/// Known credentials; beyond this, each new one evicts another. They take a few megabytes.
const KNOWN_MAX: usize = 50_000;
/// Rows per statement when they are loaded.
const LOAD_ROWS: i64 = 1_000;

#[derive(Default)]
pub struct Credentials {
    cache: Mutex<CredentialCache>,
    /// Hashes of stored credentials that this node has seen. A known credential is looked up even while its address is
    /// throttled because of wrong guesses. Being known grants no rights.
    known: Mutex<HashSet<[u8; 32]>>,
    /// The same for custom credentials, which are stored by their features.
    known_custom: Mutex<HashSet<[u8; 32]>>,
    uses: Mutex<PendingUses>,
}

#[derive(Default)]
struct CredentialCache {
    /// Incremented by every local revocation; a read that began earlier is not cached.
    epoch: u64,
    keys: HashMap<[u8; 32], (Instant, Arc<CachedKey>)>,
    sessions: HashMap<[u8; 32], (Instant, Arc<CachedSession>)>,
}

/// The principal, and when its credential expires.
pub type ValidPrincipal = (Arc<Principal>, Timestamp);

#[derive(Default)]
struct PendingUses {
    keys: HashMap<ApiKeyId, (TenantId, Timestamp, IpAddr)>,
    sessions: HashMap<SessionId, Timestamp>,
}

impl Credentials {
    /// Whether this node knows that a credential with this hash is stored.
    pub(crate) fn is_known(&self, hash: &[u8; 32]) -> bool {
        lock_unpoisoned(&self.known).contains(hash) || lock_unpoisoned(&self.known_custom).contains(hash)
    }

    /// Adds the hash to the known ones if the credential was found, and removes it if it was not.
    fn update_known<T>(&self, hash: [u8; 32], found: Result<T>) -> Result<T> {
        update_known_set(&self.known, hash, found)
    }

    pub(crate) fn update_known_custom<T>(&self, hash: [u8; 32], found: Result<T>) -> Result<T> {
        update_known_set(&self.known_custom, hash, found)
    }

    /// Adds a credential that was just created, so that its owner can use it at once.
    pub fn remember_credential(&self, hash: [u8; 32]) {
        insert_known(&self.known, hash);
    }

    /// Reloads the known credentials, so that one created by another node or before the start is looked up, too, while its
    /// address is throttled. Deleted credentials drop out.
    pub async fn load_known(&self, store: &Store) -> Result<()> {
        let db = store.system(Purpose::Credentials);
        let mut stored = HashSet::new();
        let mut after = String::new();
        while stored.len() < KNOWN_MAX {
            let rows: Vec<(String, Vec<u8>)> = db.list(STORED_KEYS, crate::args![after, LOAD_ROWS]).await?;
            let Some((last, _)) = rows.last() else { break };
            after.clone_from(last);
            stored.extend(rows.into_iter().filter_map(|(_, hash)| <[u8; 32]>::try_from(hash).ok()));
        }
        let mut after = Vec::new();
        while stored.len() < KNOWN_MAX {
            let rows: Vec<Vec<u8>> = db.list(STORED_SESSIONS, crate::args![after.as_slice(), LOAD_ROWS]).await?;
            let Some(last) = rows.last() else { break };
            after.clone_from(last);
            stored.extend(rows.into_iter().filter_map(|hash| <[u8; 32]>::try_from(hash).ok()));
        }
        *lock_unpoisoned(&self.known) = stored;
        Ok(())
    }

    /// Finds the principal of a key by its public id and hash, if it is neither revoked nor expired. `admit` is called
    /// before the store is read for an unknown key, and can refuse.
    pub(crate) async fn find_key(
        &self,
        store: &Store,
        (public_id, hash): (&str, [u8; 32]),
        now: Timestamp,
        admit: impl FnOnce() -> Result<()>,
    ) -> Result<ValidPrincipal> {
        if let Some(key) = self.find_cached(|cache| cache.keys.get(&hash)) {
            return key.check_valid(now);
        }
        if !self.is_known(&hash) {
            admit()?;
        }
        let found = self.read_key(store, public_id, hash).await.and_then(|key| key.check_valid(now));
        self.update_known(hash, found)
    }

    async fn read_key(&self, store: &Store, public_id: &str, hash: [u8; 32]) -> Result<Arc<CachedKey>> {
        let read = self.start_read();
        let db = store.system(Purpose::Credentials);
        let found: Option<CachedKey> = db.find(FIND_KEY, crate::args![public_id]).await?;
        let found = found.filter(|key| constant_time_eq(&key.secret_hash, &hash)).map(Arc::new);
        let key = found.ok_or_else(unauthenticated_error)?;
        self.insert_cached(read, |cache, started| drop(cache.keys.insert(hash, (started, key.clone()))));
        Ok(key)
    }

    /// Finds the principal of a session by the hash of its cookie, and when the session ends if it is not used again.
    pub(crate) async fn find_session(
        &self,
        store: &Store,
        hash: [u8; 32],
        (now, idle_ms): (Timestamp, i64),
        admit: impl FnOnce() -> Result<()>,
    ) -> Result<ValidPrincipal> {
        if let Some(session) = self.find_cached(|cache| cache.sessions.get(&hash)) {
            return self.check_session(&session, now, idle_ms);
        }
        if !self.is_known(&hash) {
            admit()?;
        }
        let session = self.read_session(store, hash).await;
        self.update_known(hash, session.and_then(|session| self.check_session(&session, now, idle_ms)))
    }

    async fn read_session(&self, store: &Store, hash: [u8; 32]) -> Result<Arc<CachedSession>> {
        let read = self.start_read();
        let db = store.system(Purpose::Credentials);
        let found: Option<CachedSession> = db.find(FIND_SESSION, crate::args![hash.as_slice()]).await?;
        let session = found.map(Arc::new).ok_or_else(unauthenticated_error)?;
        self.insert_cached(read, |cache, started| drop(cache.sessions.insert(hash, (started, session.clone()))));
        Ok(session)
    }

    fn check_session(&self, session: &CachedSession, now: Timestamp, idle_ms: i64) -> Result<ValidPrincipal> {
        let unsaved_use = lock_unpoisoned(&self.uses).sessions.get(&session.id).copied();
        let last_seen = unsaved_use.map_or(session.last_seen_at, |used_at| used_at.max(session.last_seen_at));
        if session.expires_at.min(last_seen.plus_ms(idle_ms)) <= now {
            return Err(Error::new(Code::SessionExpired, "The session has expired; sign in again."));
        }
        Ok((session.principal.clone(), session.expires_at.min(now.plus_ms(idle_ms))))
    }

    fn find_cached<T>(&self, get: impl FnOnce(&CredentialCache) -> Option<&(Instant, Arc<T>)>) -> Option<Arc<T>> {
        let cache = lock_unpoisoned(&self.cache);
        let (started, value) = get(&cache)?;
        (started.elapsed() < CACHED_MAX).then(|| value.clone())
    }

    fn start_read(&self) -> (Instant, u64) {
        (Instant::now(), lock_unpoisoned(&self.cache).epoch)
    }

    fn insert_cached(&self, (started, epoch): (Instant, u64), insert: impl FnOnce(&mut CredentialCache, Instant)) {
        let mut cache = lock_unpoisoned(&self.cache);
        if cache.epoch == epoch {
            if cache.keys.len() + cache.sessions.len() >= CACHE_ENTRIES_MAX {
                cache.keys.clear();
                cache.sessions.clear();
            }
            insert(&mut cache, started);
        }
    }

    /// Removes the tenant's credentials from the cache. Called when a credential changes, before the response.
    pub fn invalidate_tenant(&self, tenant: TenantId) {
        let mut cache = lock_unpoisoned(&self.cache);
        cache.epoch += 1;
        cache.keys.retain(|_, (_, key)| key.principal.tenant.id != tenant);
        cache.sessions.retain(|_, (_, session)| session.principal.tenant.id != tenant);
    }

    /// Removes the sessions of all tenants from the cache.
    fn invalidate_sessions(&self) {
        let mut cache = lock_unpoisoned(&self.cache);
        cache.epoch += 1;
        cache.sessions.clear();
    }

    pub(crate) fn record_key_use(&self, key: ApiKeyId, tenant: TenantId, now: Timestamp, address: IpAddr) {
        lock_unpoisoned(&self.uses).keys.insert(key, (tenant, now, address));
    }

    pub(crate) fn record_session_use(&self, session: SessionId, now: Timestamp) {
        lock_unpoisoned(&self.uses).sessions.insert(session, now);
    }

    /// Saves the last uses recorded since the last call.
    pub async fn flush_uses(&self, db: &Db) -> Result<()> {
        let mut keys: Vec<_> = lock_unpoisoned(&self.uses).keys.iter().map(|(id, used)| (*id, *used)).collect();
        let mut sessions: Vec<_> = lock_unpoisoned(&self.uses).sessions.iter().map(|(id, at)| (*id, *at)).collect();
        // The same order on every node, so that two nodes do not deadlock.
        keys.sort_unstable_by_key(|(id, _)| *id);
        sessions.sort_unstable_by_key(|(id, _)| *id);
        for chunk in keys.chunks(FLUSH_ROWS) {
            let written = chunk.to_vec();
            db.write(async move |tx| {
                for (id, (tenant, at, address)) in written {
                    tx.exec(SAVE_KEY_USE, crate::args![tenant, id, at, address.to_string()]).await?;
                }
                Ok(())
            })
            .await?;
            // A use is kept until it is on disk, so that an outage of the database does not lose it.
            let mut uses = lock_unpoisoned(&self.uses);
            for (id, used) in chunk {
                if uses.keys.get(id) == Some(used) {
                    uses.keys.remove(id);
                }
            }
        }
        for chunk in sessions.chunks(FLUSH_ROWS) {
            let written = chunk.to_vec();
            db.write(async move |tx| {
                for (id, at) in written {
                    tx.exec(SAVE_SESSION_USE, crate::args![id, at]).await?;
                }
                Ok(())
            })
            .await?;
            // A use is kept until it is on disk and no cached row is older, so that a session in use does not look idle.
            self.invalidate_sessions();
            let mut uses = lock_unpoisoned(&self.uses);
            for (id, at) in chunk {
                if uses.sessions.get(id) == Some(at) {
                    uses.sessions.remove(id);
                }
            }
        }
        Ok(())
    }
}

fn update_known_set<T>(known: &Mutex<HashSet<[u8; 32]>>, hash: [u8; 32], found: Result<T>) -> Result<T> {
    match &found {
        Ok(_) => insert_known(known, hash),
        // An outage of the database says nothing about the credential.
        Err(error) if error.code().status() >= 500 => {}
        Err(_) => drop(lock_unpoisoned(known).remove(&hash)),
    }
    found
}

fn insert_known(known: &Mutex<HashSet<[u8; 32]>>, hash: [u8; 32]) {
    let mut known = lock_unpoisoned(known);
    if known.len() >= KNOWN_MAX
        && !known.contains(&hash)
        && let Some(other) = known.iter().next().copied()
    {
        known.remove(&other);
    }
    known.insert(hash);
}

/// Rows per transaction. Transactions are short, because one slow transaction delays its group commit.
const FLUSH_ROWS: usize = 200;

pub(crate) fn unauthenticated_error() -> Error {
    Error::new(Code::Unauthenticated, "Send a valid API key (Authorization: Bearer or X-API-Key) or a session cookie.")
}
