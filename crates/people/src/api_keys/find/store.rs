//! SQL that reads API keys.

use kernel::args;
use kernel::auth::Scopes;
use kernel::base::{ApiKeyId, Error, Result, Timestamp};
use kernel::store::{Db, FromRow, Row, Select, SortDirection, Tx, Value};

use super::super::descendants::KeyBounds;
use super::super::{ACTIVE_KEYS_MAX, ApiKey, ApiKeyStatus};

kernel::columns! {
    /// The columns of a key and its last use.
    struct ApiKeyColumns {
        id = "k.id", name = "k.name", scopes = "k.scopes", allowed_cidrs = "k.allowed_cidrs", prefix = "k.prefix",
        last_four = "k.last_four", expires_at = "k.expires_at", revoked_at = "k.revoked_at", last_used_at = "u.last_used_at",
        last_used_ip = "u.last_used_ip", created_by_type = "k.created_by_type", created_by_id = "k.created_by_id",
        created_by_name = "k.created_by_name", version = "k.version", created_at = "k.created_at",
        updated_at = "k.updated_at",
    }
}

kernel::statements! {
    LIST = kernel::sql![
        "SELECT ",
        ApiKeyColumns::LIST,
        " FROM api_keys k LEFT JOIN api_key_uses u ON u.tenant_id = k.tenant_id AND u.key_id = k.id WHERE k.tenant_id = $1"
    ];
    GET = kernel::sql![LIST, " AND k.id = $2"];
    ACTIVE = "SELECT id FROM api_keys /* INDEXED BY api_keys_by_end */
        WHERE tenant_id = $1 AND revoked_at IS NULL AND expires_at > $2 ORDER BY expires_at LIMIT $3";
}

/// A key as stored. Whether it has expired depends on the time of reading.
pub struct StoredApiKey {
    pub record: ApiKey,
    pub scopes: Scopes,
}

impl FromRow for StoredApiKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: ApiKeyColumns<usize> = ApiKeyColumns::AT;
        let scopes = Scopes::from_json(&row.get::<String>(AT.scopes)?)?;
        let revoked_at: Option<Timestamp> = row.get(AT.revoked_at)?;
        let record = kernel::read_record!(row, ApiKeyColumns => ApiKey {
            id, name, prefix, last_four, expires_at, last_used_at, last_used_ip, version, created_at, updated_at;
            scopes: scopes.granted_words().to_vec(),
            allowed_cidrs: serde_json::from_str(&row.get::<String>(AT.allowed_cidrs)?).map_err(Error::internal)?,
            status: if revoked_at.is_some() { ApiKeyStatus::Revoked } else { ApiKeyStatus::Active },
            created_by: row.get_actor([AT.created_by_type, AT.created_by_id, AT.created_by_name])?,
        });
        Ok(StoredApiKey { record, scopes })
    }
}

impl StoredApiKey {
    pub fn key_bounds(&self) -> KeyBounds {
        let ApiKey { allowed_cidrs, expires_at, .. } = &self.record;
        KeyBounds { scopes: self.scopes.clone(), networks: allowed_cidrs.clone(), expires_at: *expires_at }
    }

    pub fn into_api_key(mut self, now: Timestamp) -> ApiKey {
        if self.record.status == ApiKeyStatus::Active && self.record.expires_at <= now {
            self.record.status = ApiKeyStatus::Expired;
        }
        self.record
    }
}

pub async fn get_api_key(db: &Db, id: ApiKeyId) -> Result<ApiKey> {
    let key: StoredApiKey = db.get_one(GET, args![id]).await?;
    Ok(key.into_api_key(db.env().now()))
}

/// Whether a key comes after the cursor of a page.
fn is_after_cursor(key: &ApiKey, cursor: Option<&[Value]>) -> bool {
    match cursor {
        Some([Value::Int(at), Value::Text(id)]) => (key.created_at.as_millis(), key.id.to_string()) < (*at, id.clone()),
        _ => true,
    }
}

/// Newest first; without `status`, all but revoked keys. Revoked and expired keys are never deleted, so each part is read
/// along an index that holds hardly anything else.
pub async fn list_api_keys(
    db: &Db,
    status: Option<&[ApiKeyStatus]>,
    after: Option<Vec<Value>>,
    limit: usize,
) -> Result<Vec<ApiKey>> {
    let now = db.env().now();
    let includes = |candidate| status.map_or(candidate != ApiKeyStatus::Revoked, |any| any.contains(&candidate));
    let all = Select::new(LIST);
    let live = || Select::new(LIST).append_sql("AND k.revoked_at IS NULL", []);
    let revoked = || Select::new(LIST).append_sql("AND k.revoked_at IS NOT NULL", []);
    let (active, expired) = (includes(ApiKeyStatus::Active), includes(ApiKeyStatus::Expired));
    let part = match (active, expired, includes(ApiKeyStatus::Revoked)) {
        (true, true, true) => Some(all),
        (true, true, false) => Some(live()),
        (false, true, true) => {
            Some(all.append_sql("AND (k.revoked_at IS NOT NULL OR k.expires_at <= ?)", [now.into()]))
        }
        (false, true, false) => Some(live().append_sql("AND k.expires_at <= ?", [now.into()])),
        (_, false, true) => Some(revoked()),
        (_, false, false) => None,
    };
    let mut keys: Vec<ApiKey> = Vec::new();
    if active && !expired {
        // A tenant has at most a hundred active keys, however many there have been, so all of them are read.
        let ids: Vec<ApiKeyId> = db.list(ACTIVE, args![now, 4 * ACTIVE_KEYS_MAX]).await?;
        let rows_max = ids.len();
        let rows: Vec<StoredApiKey> = db.select(&Select::new(LIST).where_in("k.id", ids).limit(rows_max)).await?;
        keys.extend(
            rows.into_iter().map(|key| key.into_api_key(now)).filter(|key| is_after_cursor(key, after.as_deref())),
        );
    }
    if let Some(mut part) = part {
        let order = ["k.created_at", "k.id"];
        if let Some(position) = after {
            part = part.seek_after(&order, SortDirection::Descending, position);
        }
        let rows: Vec<StoredApiKey> = db.select(&part.order_by(&order, SortDirection::Descending).limit(limit)).await?;
        keys.extend(rows.into_iter().map(|key| key.into_api_key(now)));
    }
    keys.sort_by_key(|key| std::cmp::Reverse((key.created_at, key.id)));
    // A key that was revoked between the two queries is in both results.
    keys.dedup_by_key(|key| key.id);
    keys.truncate(limit);
    Ok(keys)
}

pub async fn read_api_key(tx: &mut Tx, id: ApiKeyId) -> Result<StoredApiKey> {
    tx.get_one(GET, args![id]).await
}

/// The key as the API shows it now.
pub async fn read_shown(tx: &mut Tx, id: ApiKeyId) -> Result<ApiKey> {
    let now = tx.env().now();
    Ok(read_api_key(tx, id).await?.into_api_key(now))
}
