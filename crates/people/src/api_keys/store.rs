//! SQL of API keys. Every change, its audit entry and its consequences for descendants commit together.

use ipnet::IpNet;
use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::auth::{CredentialRef, PlainKey, Rights};
use kernel::base::{ApiKeyId, Code, DAY_MS, Error, HOUR_MS, MINUTE_MS, Result, Secrets, TenantId, Timestamp};
use kernel::events;
use kernel::http::IfMatch;
use kernel::store::{BATCH_ROWS, Db, Tx, Value};

use super::descendants::KeyBounds;
use super::descendants::store::{
    check_is_own, delete_secrets, find_maker, narrow_descendants, revoke_with_descendants,
};
use super::find::store::{StoredApiKey, read_api_key, read_shown};
use super::networks::{check_networks, check_takeover, intersect_networks, keep_networks};
use super::{
    ACTIVE_KEYS_MAX, ANNOUNCE_MS, API_KEY_CREATED, API_KEY_EXPIRING, API_KEY_ROTATED, ApiKey, ApiKeyInput,
    ApiKeyStatus, EXPIRES_DAYS_MAX, NewKey, OVERLAP_HOURS_MAX, cap_at_maker_expiry, check_grant, resolve_expiry,
};

kernel::columns! {
    /// The columns of a new key.
    struct NewApiKeyColumns in "api_keys" {
        id, name, scopes, allowed_cidrs, prefix, last_four, expires_at, maker_key_id, maker_user_id, created_by_type,
        created_by_id, created_by_name, version, created_at, updated_at,
    }
}

kernel::statements! {
    COUNT_ACTIVE = "SELECT COUNT(*) FROM api_keys WHERE tenant_id = $1 AND revoked_at IS NULL AND expires_at > $2";
    INSERT = NewApiKeyColumns::INSERT;
    /// The public id must be unique in the whole installation.
    INSERT_SECRET = "INSERT INTO api_key_secrets (tenant_id, public_id, key_id, secret_hash) VALUES ($1, $2, $3, $4)
        ON CONFLICT (public_id) DO NOTHING";
    UPDATE = "UPDATE api_keys SET name = $3, scopes = $4, allowed_cidrs = $5,
            expiry_announced = expiry_announced AND expires_at = $6, expires_at = $6, version = version + 1, updated_at = $7
        WHERE tenant_id = $1 AND id = $2";
    UPDATE_SECRET = "UPDATE api_keys SET prefix = $3, last_four = $4, version = version + 1, updated_at = $5
        WHERE tenant_id = $1 AND id = $2";
    /// A second rotation ends the first one's overlap.
    END_OVERLAPS = "DELETE FROM api_key_secrets WHERE tenant_id = $1 AND key_id = $2 AND valid_until IS NOT NULL";
    START_OVERLAP = "UPDATE api_key_secrets SET valid_until = $3 WHERE tenant_id = $1 AND key_id = $2";
    TO_ANNOUNCE = "SELECT tenant_id, id FROM api_keys
        WHERE revoked_at IS NULL AND NOT expiry_announced AND expires_at <= $1 ORDER BY expires_at LIMIT $2";
    ANNOUNCED = "UPDATE api_keys SET expiry_announced = TRUE
        WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL AND NOT expiry_announced AND expires_at <= $3";
    /// Keys that were created or changed while the tenant's clock was ahead.
    IN_FUTURE = "SELECT id, updated_at FROM api_keys WHERE tenant_id = $1 AND updated_at > $2 ORDER BY id LIMIT $3";
    /// An overlap that ends later than any rotation until now could have set ($5) is moved back by $3, the time by which the
    /// key's last change is ahead of now ($4), but not to before now.
    CLAMP_OVERLAP = "UPDATE api_key_secrets SET valid_until = CASE WHEN valid_until - $3 < $4 THEN $4
            WHEN valid_until - $3 > $5 THEN $5 ELSE valid_until - $3 END
        WHERE tenant_id = $1 AND key_id = $2 AND valid_until > $5";
    /// A key that was created in the future keeps its lifetime, counted from now ($3). For a key that was only changed in
    /// the future, it is unknown whether its expiry was set there too: it is capped at that of a key created now ($4).
    CLAMP_FUTURE = "UPDATE api_keys SET updated_at = $3,
            expires_at = CASE WHEN created_at > $3 AND expires_at - created_at + $3 < $4 THEN expires_at - created_at + $3
                WHEN expires_at > $4 THEN $4 ELSE expires_at END,
            created_at = CASE WHEN created_at > $3 THEN $3 ELSE created_at END,
            revoked_at = CASE WHEN revoked_at > $3 THEN $3 ELSE revoked_at END
        WHERE tenant_id = $1 AND id = $2";
    /// Keys that were announced by a clock that was ahead are announced again in time.
    UNANNOUNCE = "UPDATE api_keys SET expiry_announced = FALSE WHERE tenant_id = $1 AND id IN
        (SELECT k.id FROM api_keys k WHERE k.tenant_id = $1 AND k.revoked_at IS NULL AND k.expires_at > $2
            AND k.expiry_announced ORDER BY k.expires_at LIMIT $3)";
    CLEAN_SECRETS = "DELETE FROM api_key_secrets WHERE public_id IN
        (SELECT public_id FROM api_key_secrets WHERE valid_until < $1 ORDER BY valid_until LIMIT $2)";
}

/// Creates a key within the caller's rights. It is revoked with the key that made it, and `platform:read` ends when its
/// maker is no longer a platform operator.
pub async fn create_api_key(tx: &mut Tx, rights: &Rights, input: ApiKeyInput, secrets: &Secrets) -> Result<NewKey> {
    check_grant(rights, &input.scopes)?;
    // Expiry is counted from the wall clock, which the tenant's clock may be ahead of.
    let (at, now) = (tx.tick().await?.at, tx.env().now());
    let allowed_cidrs = match input.allowed_cidrs {
        Some(requested) => check_networks(rights, requested)?,
        None => rights.allowed_cidrs.clone(),
    };
    let expires_at = resolve_expiry(now, input.expires_days, rights.expires_at)?;
    let (maker_key, maker_user) = match rights.credential {
        Some(CredentialRef::Session { user, .. }) => (None, Some(user)),
        Some(CredentialRef::Key { id, .. }) => (Some(id), None),
        None => return Err(Error::internal("a key is made by somebody who asks for it")),
    };
    check_active_key_limit(tx, now).await?;
    let id = ApiKeyId::new(tx.env());
    let plain = PlainKey::generate(&tx.env().random);
    let by = tx.actor().who.clone();
    let (scopes, cidrs) = KeyBounds { scopes: input.scopes, networks: allowed_cidrs, expires_at }.to_json_texts()?;
    let name = input.name.into_string();
    let row = NewApiKeyColumns {
        id: id.into(),
        name: name.into(),
        scopes: scopes.into(),
        allowed_cidrs: cidrs.into(),
        prefix: plain.display_prefix().into(),
        last_four: plain.last_four().into(),
        expires_at: expires_at.into(),
        maker_key_id: maker_key.into(),
        maker_user_id: maker_user.into(),
        created_by_type: by.kind.as_str().into(),
        created_by_id: by.id.into(),
        created_by_name: by.name.into(),
        version: Value::Int(1),
        created_at: at.into(),
        updated_at: at.into(),
    };
    tx.defer_exec(INSERT, row.into_vec()).await?;
    let plain = insert_secret(tx, id, plain, secrets).await?;
    audit::record_entry(tx, NewAuditEntry::new("api_key.create", "api_key", id)).await?;
    let record = read_shown(tx, id).await?;
    events::publish(tx, &API_KEY_CREATED, id, &record).await?;
    Ok(NewKey { record, key: plain.expose_secret() })
}

/// Refuses another active key at the limit. The tenant's clock is locked, so the count cannot change meanwhile.
async fn check_active_key_limit(tx: &mut Tx, now: Timestamp) -> Result<()> {
    let active: i64 = tx.get_one(COUNT_ACTIVE, args![now]).await?;
    if active < ACTIVE_KEYS_MAX {
        return Ok(());
    }
    let detail = format!("A tenant has at most {ACTIVE_KEYS_MAX} active keys. Revoke one that is no longer needed.");
    Err(Error::new(Code::LimitReached, detail))
}

async fn insert_secret(tx: &mut Tx, id: ApiKeyId, plain: PlainKey, secrets: &Secrets) -> Result<PlainKey> {
    let inserted = tx.exec(INSERT_SECRET, args![plain.public_id(), id, plain.hash(secrets).as_slice()]).await?;
    // A collision has a chance of one in 10^14: the caller tries again.
    if inserted == 0 { Err(Error::unavailable("a public id was drawn twice")) } else { Ok(plain) }
}

/// The key to be changed: 404, then 403 if it has more scopes than the caller or the caller is a key that has not made it,
/// then 412, then 409 if it is revoked.
async fn read_to_change(tx: &mut Tx, id: ApiKeyId, rights: &Rights, if_match: &IfMatch) -> Result<StoredApiKey> {
    let key = read_api_key(tx, id).await?;
    rights.require_all(&key.scopes, "Changing this key")?;
    check_is_own(tx, rights, id).await?;
    check_changeable(&key, if_match)?;
    Ok(key)
}

fn check_changeable(key: &StoredApiKey, if_match: &IfMatch) -> Result<()> {
    if_match.check_version(key.record.version)?;
    if key.record.status == ApiKeyStatus::Revoked {
        return Err(Error::conflict("The key is revoked, which cannot be undone or changed."));
    }
    Ok(())
}

pub async fn replace_api_key(
    tx: &mut Tx,
    rights: &Rights,
    id: ApiKeyId,
    if_match: &IfMatch,
    input: ApiKeyInput,
) -> Result<ApiKey> {
    if rights.is_key(id) {
        return Err(Error::insufficient_scope("api_keys:write", "A key cannot change itself, only rotate."));
    }
    check_grant(rights, &input.scopes)?;
    let (at, now) = (tx.tick().await?.at, tx.env().now());
    let requested_end =
        input.expires_days.map(|days| resolve_expiry(now, Some(days), rights.expires_at)).transpose()?;
    let requested_networks = input.allowed_cidrs.map(|requested| check_networks(rights, requested)).transpose()?;
    let stored = read_to_change(tx, id, rights, if_match).await?;
    let old_bounds = stored.key_bounds();
    let old = stored.into_api_key(now);
    let (expires_at, stored_networks) = match requested_end {
        Some(end) => bound_by_maker(tx, &old, end).await?,
        None => (old.expires_at, old.allowed_cidrs.clone()),
    };
    let networks = match requested_networks {
        Some(requested) => requested,
        None => keep_networks(rights, &stored_networks)?,
    };
    let bounds = KeyBounds { scopes: input.scopes, networks, expires_at };
    let name = input.name.into_string();
    let mut changes = old_bounds.list_changes(&bounds);
    changes.add_if_changed("name", old.name.clone(), name.clone());
    if changes.is_empty() {
        return Ok(old);
    }
    if old.status == ApiKeyStatus::Expired && expires_at > now {
        check_active_key_limit(tx, now).await?;
    }
    let (scopes, cidrs) = bounds.to_json_texts()?;
    tx.exec(UPDATE, args![id, name, scopes, cidrs, expires_at, at]).await?;
    audit::record_entry(tx, NewAuditEntry::new("api_key.update", "api_key", id).with_changes(changes)).await?;
    narrow_descendants(tx, id, &old_bounds, &bounds).await?;
    read_shown(tx, id).await
}

/// The requested expiry, which must not exceed the maker's, and the networks that the key keeps if none are requested. An
/// expired key was not narrowed with its maker, so it is narrowed here when it becomes active again.
async fn bound_by_maker(tx: &mut Tx, key: &ApiKey, requested: Timestamp) -> Result<(Timestamp, Vec<IpNet>)> {
    let stored = key.allowed_cidrs.clone();
    let Some((maker_end, maker_networks)) = find_maker(tx, key.id).await? else { return Ok((requested, stored)) };
    let end = cap_at_maker_expiry(requested, maker_end)?;
    if key.status != ApiKeyStatus::Expired {
        return Ok((end, stored));
    }
    // If the lists have nothing in common, the key gets the maker's networks.
    Ok((end, intersect_networks(&stored, &maker_networks).unwrap_or(maker_networks)))
}

pub async fn rotate_api_key(
    tx: &mut Tx,
    rights: &Rights,
    id: ApiKeyId,
    if_match: &IfMatch,
    overlap_hours: i64,
    secrets: &Secrets,
) -> Result<NewKey> {
    let (at, now) = (tx.tick().await?.at, tx.env().now());
    let old = read_to_change(tx, id, rights, if_match).await?.record;
    check_takeover(rights, &old.allowed_cidrs)?;
    tx.exec(END_OVERLAPS, args![id]).await?;
    if overlap_hours == 0 {
        delete_secrets(tx, id).await?;
    } else {
        tx.exec(START_OVERLAP, args![id, now.plus_ms(overlap_hours * HOUR_MS)]).await?;
    }
    let plain = insert_secret(tx, id, PlainKey::generate(&tx.env().random), secrets).await?;
    tx.exec(UPDATE_SECRET, args![id, plain.display_prefix(), plain.last_four(), at]).await?;
    audit::record_entry(tx, NewAuditEntry::new("api_key.rotate", "api_key", id)).await?;
    let record = read_shown(tx, id).await?;
    events::publish(tx, &API_KEY_ROTATED, id, &record).await?;
    Ok(NewKey { record, key: plain.expose_secret() })
}

/// Revokes a key and its descendants.
pub async fn revoke_api_key(tx: &mut Tx, id: ApiKeyId, if_match: &IfMatch) -> Result<()> {
    tx.tick().await?;
    check_changeable(&read_api_key(tx, id).await?, if_match)?;
    revoke_with_descendants(tx, id).await
}

/// Keys of all tenants that expire before this time and have not been announced, the earliest first.
pub async fn list_expiring_keys(db: &Db, before: Timestamp, limit: usize) -> Result<Vec<(TenantId, ApiKeyId)>> {
    db.list(TO_ANNOUNCE, args![before, limit as i64]).await
}

/// Publishes that a key expires soon, unless it has been announced or no longer expires by then.
pub async fn publish_expiry(tx: &mut Tx, id: ApiKeyId, before: Timestamp) -> Result<()> {
    tx.tick().await?;
    let now = tx.env().now();
    if tx.exec(ANNOUNCED, args![id, before]).await? == 1 {
        let record = read_api_key(tx, id).await?.into_api_key(now);
        // A key with a shorter lifetime is not announced. The minute allows for a tenant's clock, which sets `created_at`,
        // that is ahead of the wall clock, from which the expiry is counted.
        let lived_ms = record.expires_at.as_millis() - record.created_at.as_millis() + MINUTE_MS;
        if record.status == ApiKeyStatus::Active && lived_ms >= ANNOUNCE_MS {
            events::publish(tx, &API_KEY_EXPIRING, id, &record).await?;
        }
    }
    Ok(())
}

/// Clamps future timestamps of keys, before the tenant's clock is set back. Returns how many keys changed.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    let (key_end, overlap_end) = (now.plus_ms(EXPIRES_DAYS_MAX * DAY_MS), now.plus_ms(OVERLAP_HOURS_MAX * HOUR_MS));
    let clamp = db.write_in_batches(BATCH_ROWS, async move |tx| {
        let found: Vec<(ApiKeyId, Timestamp)> = tx.list(IN_FUTURE, args![now, BATCH_ROWS]).await?;
        let (mut overlaps, mut keys): (Vec<Vec<Value>>, Vec<Vec<Value>>) = (Vec::new(), Vec::new());
        for (id, changed_at) in found {
            let later_ms = changed_at.as_millis() - now.as_millis();
            overlaps.push(vec![id.into(), later_ms.into(), now.into(), overlap_end.into()]);
            keys.push(vec![id.into(), now.into(), key_end.into()]);
        }
        tx.exec_each(CLAMP_OVERLAP, &overlaps).await?;
        tx.exec_each(CLAMP_FUTURE, &keys).await
    });
    let clamped = clamp.await?;
    db.exec_in_batches(UNANNOUNCE, vec![now.plus_ms(ANNOUNCE_MS).into()]).await?;
    Ok(clamped)
}
