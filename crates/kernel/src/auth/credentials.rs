//! From a presented credential to who it stands for, and notes of when each was last used.
//!
//! On the embedded store every request reads the credential. On PostgreSQL a read may be reused for half a second,
//! counted from its start, so that a revocation on another node is seen within a second.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde::Serialize;

use super::role::Role;
use super::scope::Scopes;
use crate::base::{ApiKeyId, Code, Error, Result, SessionId, TenantId, Timestamp, UserId, equal};
use crate::store::{Db, Engine, FromRow, Purpose, Row, Store};

crate::statements! {
    FIND_KEY = "SELECT t.id, t.slug, t.name, k.id, k.name, k.scopes, k.allowed_cidrs, k.expires_at, k.revoked_at,
            s.secret_hash, s.valid_until,
            COALESCE((SELECT u.platform_operator FROM users u WHERE u.tenant_id = k.tenant_id AND u.id = k.maker_user_id), FALSE)
        FROM api_key_secrets s
        JOIN api_keys k ON k.tenant_id = s.tenant_id AND k.id = s.key_id
        JOIN tenants t ON t.id = s.tenant_id
        WHERE s.public_id = $1";
    FIND_SESSION = "SELECT t.id, t.slug, t.name, s.id, u.id, u.name, u.email, u.role, u.platform_operator,
            s.last_seen_at, s.expires_at
        FROM sessions s
        JOIN users u ON u.tenant_id = s.tenant_id AND u.id = s.user_id
        JOIN tenants t ON t.id = s.tenant_id
        WHERE s.token_hash = $1";
    STORED_KEYS = "SELECT public_id, secret_hash FROM api_key_secrets WHERE public_id > $1 ORDER BY public_id LIMIT $2";
    STORED_SESSIONS = "SELECT token_hash FROM sessions WHERE token_hash > $1 ORDER BY token_hash LIMIT $2";
    NOTE_KEY_USE = "INSERT INTO api_key_uses (tenant_id, key_id, last_used_at, last_used_ip) VALUES ($1, $2, $3, $4)
        ON CONFLICT (tenant_id, key_id) DO UPDATE SET last_used_at = excluded.last_used_at, last_used_ip = excluded.last_used_ip
        WHERE api_key_uses.last_used_at < excluded.last_used_at";
    NOTE_SESSION_USE = "UPDATE sessions SET last_seen_at = $2 WHERE id = $1 AND last_seen_at < $2";
}

/// A tenant, as answers name it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Tenant {
    #[schema(value_type = String, example = "ten_01jd8z6v2mfkpb7h3q9xw5t4ra")]
    pub id: TenantId,
    #[schema(example = "acme")]
    pub slug: String,
    #[schema(example = "Acme")]
    pub name: String,
}

/// An API key as stored.
#[derive(Clone)]
pub struct StoredKey {
    pub tenant: Tenant,
    pub id: ApiKeyId,
    pub name: String,
    pub scopes: Scopes,
    pub allowed_cidrs: Vec<IpNet>,
    pub expires_at: Timestamp,
    revoked_at: Option<Timestamp>,
    secret_hash: Vec<u8>,
    valid_until: Option<Timestamp>,
    pub made_by_operator: bool,
}

impl FromRow for StoredKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let cidrs: String = row.get(6)?;
        Ok(StoredKey {
            tenant: Tenant { id: row.get(0)?, slug: row.get(1)?, name: row.get(2)? },
            id: row.get(3)?,
            name: row.get(4)?,
            scopes: Scopes::from_json(&row.get::<String>(5)?)?,
            allowed_cidrs: serde_json::from_str(&cidrs).map_err(Error::internal)?,
            expires_at: row.get(7)?,
            revoked_at: row.get(8)?,
            secret_hash: row.get(9)?,
            valid_until: row.get(10)?,
            made_by_operator: row.get(11)?,
        })
    }
}

/// A session as stored.
#[derive(Clone)]
pub struct StoredSession {
    pub tenant: Tenant,
    pub id: SessionId,
    pub user_id: UserId,
    pub user_name: String,
    pub email: String,
    pub role: Role,
    pub platform_operator: bool,
    pub last_seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl FromRow for StoredSession {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let role: String = row.get(7)?;
        Ok(StoredSession {
            tenant: Tenant { id: row.get(0)?, slug: row.get(1)?, name: row.get(2)? },
            id: row.get(3)?,
            user_id: row.get(4)?,
            user_name: row.get(5)?,
            email: row.get(6)?,
            role: Role::parse(&role).ok_or_else(|| Error::internal(format!("unknown role {role:?}")))?,
            platform_operator: row.get(8)?,
            last_seen_at: row.get(9)?,
            expires_at: row.get(10)?,
        })
    }
}

/// A read may be reused for this long from its start.
const CACHED_MAX: Duration = Duration::from_millis(500);
/// Beyond this the cache is emptied: it refills within half a second.
const CACHE_ENTRIES_MAX: usize = 20_000;

/// Credentials remembered as stored; beyond this another is forgotten for each. Some megabytes.
const KNOWN_MAX: usize = 50_000;
/// Rows of one read of them.
const LEARN_ROWS: i64 = 1_000;

pub struct Credentials {
    cache: Option<Mutex<Cache>>,
    /// What is stored, as far as this node has learnt. Nothing is granted for it: it is only looked up whoever else
    /// guesses at the same address.
    known: Mutex<HashSet<[u8; 32]>>,
    uses: Mutex<Uses>,
}

#[derive(Default)]
struct Cache {
    /// Grows with every local revocation; a read that began before it is not kept.
    epoch: u64,
    keys: HashMap<[u8; 32], (Instant, Arc<StoredKey>)>,
    sessions: HashMap<[u8; 32], (Instant, Arc<StoredSession>)>,
}

#[derive(Default)]
struct Uses {
    keys: HashMap<ApiKeyId, (TenantId, Timestamp, IpAddr)>,
    sessions: HashMap<SessionId, Timestamp>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Credentials {
    pub fn new(engine: Engine) -> Self {
        let cache = (engine == Engine::Postgres).then(Mutex::default);
        Credentials { cache, known: Mutex::default(), uses: Mutex::default() }
    }

    /// Whether a credential of this hash is stored, as far as this node has learnt.
    pub fn knows(&self, hash: &[u8; 32]) -> bool {
        lock(&self.known).contains(hash)
    }

    /// Remembers what was found, and forgets what was not.
    pub(super) fn note<T>(&self, hash: [u8; 32], found: Result<T>) -> Result<T> {
        match &found {
            Ok(_) => self.remember(hash),
            // A database that is away says nothing about the credential.
            Err(error) if error.code().status() >= 500 => {}
            Err(_) => drop(lock(&self.known).remove(&hash)),
        }
        found
    }

    /// For a credential that has just been made: its owner may use it at once.
    pub fn remember(&self, hash: [u8; 32]) {
        let mut known = lock(&self.known);
        if known.len() >= KNOWN_MAX
            && !known.contains(&hash)
            && let Some(other) = known.iter().next().copied()
        {
            known.remove(&other);
        }
        known.insert(hash);
    }

    /// Learns what is stored, so that a credential that was made elsewhere or before the start is looked up, too,
    /// while somebody guesses at its address; and forgets what is no longer.
    pub async fn learn(&self, store: &Store) -> Result<()> {
        let db = store.system(Purpose::Credentials);
        let mut stored = HashSet::new();
        let mut after = String::new();
        while stored.len() < KNOWN_MAX {
            let rows: Vec<(String, Vec<u8>)> = db.list(STORED_KEYS, crate::args![after, LEARN_ROWS]).await?;
            let Some((last, _)) = rows.last() else { break };
            after.clone_from(last);
            stored.extend(rows.into_iter().filter_map(|(_, hash)| <[u8; 32]>::try_from(hash).ok()));
        }
        let mut after = Vec::new();
        while stored.len() < KNOWN_MAX {
            let rows: Vec<Vec<u8>> = db.list(STORED_SESSIONS, crate::args![after.as_slice(), LEARN_ROWS]).await?;
            let Some(last) = rows.last() else { break };
            after.clone_from(last);
            stored.extend(rows.into_iter().filter_map(|hash| <[u8; 32]>::try_from(hash).ok()));
        }
        *lock(&self.known) = stored;
        Ok(())
    }

    /// The key of a public id and a hash, if it is right, not revoked and not expired.
    pub async fn find_key(
        &self,
        store: &Store,
        public_id: &str,
        hash: [u8; 32],
        now: Timestamp,
    ) -> Result<Arc<StoredKey>> {
        let found = self.look_up_key(store, public_id, hash, now).await;
        self.note(hash, found)
    }

    async fn look_up_key(
        &self,
        store: &Store,
        public_id: &str,
        hash: [u8; 32],
        now: Timestamp,
    ) -> Result<Arc<StoredKey>> {
        let key = if let Some(key) = self.cached(|cache| cache.keys.get(&hash).cloned()) {
            key
        } else {
            let read = self.start_read();
            let db = store.system(Purpose::Credentials);
            let found: Option<StoredKey> = db.find(FIND_KEY, crate::args![public_id]).await?;
            let found = found.filter(|key| equal(&key.secret_hash, &hash)).map(Arc::new);
            let key = found.ok_or_else(unauthenticated)?;
            self.keep(read, |cache, started| drop(cache.keys.insert(hash, (started, key.clone()))));
            key
        };
        if key.revoked_at.is_some() || key.valid_until.is_some_and(|end| end <= now) {
            return Err(unauthenticated());
        }
        if key.expires_at <= now {
            return Err(Error::new(Code::KeyExpired, format!("The key expired at {}.", key.expires_at)));
        }
        Ok(key)
    }

    /// The session behind the hash of a cookie, and when it ends if nothing more happens.
    pub async fn find_session(
        &self,
        store: &Store,
        hash: [u8; 32],
        now: Timestamp,
        idle_ms: i64,
    ) -> Result<(Arc<StoredSession>, Timestamp)> {
        let found = self.look_up_session(store, hash, now, idle_ms).await;
        self.note(hash, found)
    }

    async fn look_up_session(
        &self,
        store: &Store,
        hash: [u8; 32],
        now: Timestamp,
        idle_ms: i64,
    ) -> Result<(Arc<StoredSession>, Timestamp)> {
        let session = if let Some(session) = self.cached(|cache| cache.sessions.get(&hash).cloned()) {
            session
        } else {
            let read = self.start_read();
            let db = store.system(Purpose::Credentials);
            let found: Option<StoredSession> = db.find(FIND_SESSION, crate::args![hash.as_slice()]).await?;
            let session = found.map(Arc::new).ok_or_else(unauthenticated)?;
            self.keep(read, |cache, started| drop(cache.sessions.insert(hash, (started, session.clone()))));
            session
        };
        let noted = lock(&self.uses).sessions.get(&session.id).copied();
        let last_seen = noted.map_or(session.last_seen_at, |noted| noted.max(session.last_seen_at));
        if session.expires_at.min(last_seen.plus(idle_ms)) <= now {
            return Err(Error::new(Code::SessionExpired, "The session has expired; sign in again."));
        }
        Ok((session.clone(), session.expires_at.min(now.plus(idle_ms))))
    }

    fn cached<T>(&self, get: impl FnOnce(&Cache) -> Option<(Instant, Arc<T>)>) -> Option<Arc<T>> {
        let (started, value) = get(&lock(self.cache.as_ref()?))?;
        (started.elapsed() < CACHED_MAX).then_some(value)
    }

    fn start_read(&self) -> (Instant, u64) {
        (Instant::now(), self.cache.as_ref().map_or(0, |cache| lock(cache).epoch))
    }

    fn keep(&self, (started, epoch): (Instant, u64), insert: impl FnOnce(&mut Cache, Instant)) {
        let Some(mut cache) = self.cache.as_ref().map(lock) else { return };
        if cache.epoch == epoch {
            if cache.keys.len() + cache.sessions.len() >= CACHE_ENTRIES_MAX {
                cache.keys.clear();
                cache.sessions.clear();
            }
            insert(&mut cache, started);
        }
    }

    /// Nothing that was read of this tenant before now counts any more. Called when a credential changes, before the
    /// answer. Other tenants keep what is cached of theirs.
    pub fn forget(&self, tenant: TenantId) {
        if let Some(mut cache) = self.cache.as_ref().map(lock) {
            cache.epoch += 1;
            cache.keys.retain(|_, (_, key)| key.tenant.id != tenant);
            cache.sessions.retain(|_, (_, session)| session.tenant.id != tenant);
        }
    }

    /// The same for the sessions of all tenants.
    fn forget_sessions(&self) {
        if let Some(mut cache) = self.cache.as_ref().map(lock) {
            cache.epoch += 1;
            cache.sessions.clear();
        }
    }

    pub(super) fn note_key_use(&self, key: ApiKeyId, tenant: TenantId, now: Timestamp, address: IpAddr) {
        lock(&self.uses).keys.insert(key, (tenant, now, address));
    }

    pub(super) fn note_session_use(&self, session: SessionId, now: Timestamp) {
        lock(&self.uses).sessions.insert(session, now);
    }

    /// Writes down the last uses noted since the last time.
    pub async fn flush_uses(&self, db: &Db) -> Result<()> {
        let mut keys: Vec<_> = lock(&self.uses).keys.iter().map(|(id, used)| (*id, *used)).collect();
        let mut sessions: Vec<_> = lock(&self.uses).sessions.iter().map(|(id, at)| (*id, *at)).collect();
        // The same order on every node, so that two nodes never wait for each other's rows.
        keys.sort_unstable_by_key(|(id, _)| *id);
        sessions.sort_unstable_by_key(|(id, _)| *id);
        for chunk in keys.chunks(FLUSH_ROWS) {
            let written = chunk.to_vec();
            db.write(async move |tx| {
                for (id, (tenant, at, address)) in written {
                    tx.exec(NOTE_KEY_USE, crate::args![tenant, id, at, address.to_string()]).await?;
                }
                Ok(())
            })
            .await?;
            // Kept until it is on disk: a database that is away for a while must not make it forgotten.
            let mut uses = lock(&self.uses);
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
                    tx.exec(NOTE_SESSION_USE, crate::args![id, at]).await?;
                }
                Ok(())
            })
            .await?;
            // Kept until it is on disk and nobody remembers the row before: a session in use must not look idle.
            self.forget_sessions();
            let mut uses = lock(&self.uses);
            for (id, at) in chunk {
                if uses.sessions.get(id) == Some(at) {
                    uses.sessions.remove(id);
                }
            }
        }
        Ok(())
    }
}

/// Keep write jobs short: one slow job delays its group.
const FLUSH_ROWS: usize = 200;

pub(super) fn unauthenticated() -> Error {
    Error::new(Code::Unauthenticated, "Send a valid API key (Authorization: Bearer or X-API-Key) or a session cookie.")
}
