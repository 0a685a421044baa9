//! SQL of the descendants of a key.

use ipnet::IpNet;
use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::auth::{CredentialRef, Rights, Scope, Scopes};
use kernel::base::{ApiKeyId, Error, Result, Timestamp};
use kernel::events;
use kernel::store::{FromRow, Row, Tx, from_json};

use super::super::API_KEY_REVOKED;
use super::super::find::store::read_shown;
use super::KeyBounds;

kernel::statements! {
    /// The descendants of a key that are not revoked. Descendants of a revoked key are revoked too, so the recursion ends
    /// there; CROSS JOIN keeps SQLite from starting with the wrong table.
    DESCENDANTS = "WITH RECURSIVE made (id) AS (
            SELECT id FROM api_keys WHERE tenant_id = $1 AND maker_key_id = $2 AND revoked_at IS NULL
            UNION SELECT k.id FROM made m CROSS JOIN api_keys k
            WHERE k.tenant_id = $1 AND k.maker_key_id = m.id AND k.revoked_at IS NULL)
        SELECT id FROM made ORDER BY id";
    /// The descendants that have not expired by $3, makers first. An expired key has no descendant that expires later. There
    /// are no more of them than a tenant may have active keys.
    ACTIVE_DESCENDANTS = "WITH RECURSIVE made (id, depth) AS (
            SELECT id, 1 FROM api_keys WHERE tenant_id = $1 AND maker_key_id = $2 AND revoked_at IS NULL AND expires_at > $3
            UNION ALL SELECT k.id, m.depth + 1 FROM made m CROSS JOIN api_keys k
            WHERE k.tenant_id = $1 AND k.maker_key_id = m.id AND k.revoked_at IS NULL AND k.expires_at > $3)
        SELECT k.id, k.maker_key_id, k.scopes, k.allowed_cidrs, k.expires_at FROM made m CROSS JOIN api_keys k
        WHERE k.tenant_id = $1 AND k.id = m.id ORDER BY m.depth, k.id";
    /// Whether key $3 is an ancestor of key $2. The chain is no longer than the number of keys active at one time.
    IS_ANCESTOR = "WITH RECURSIVE makers (id) AS (
            SELECT maker_key_id FROM api_keys WHERE tenant_id = $1 AND id = $2
            UNION SELECT k.maker_key_id FROM makers m CROSS JOIN api_keys k WHERE k.tenant_id = $1 AND k.id = m.id)
        SELECT id FROM makers WHERE id = $3";
    MAKER = "SELECT m.expires_at, m.allowed_cidrs FROM api_keys k
            JOIN api_keys m ON m.tenant_id = k.tenant_id AND m.id = k.maker_key_id
        WHERE k.tenant_id = $1 AND k.id = $2";
    NARROW = "UPDATE api_keys SET scopes = $3, allowed_cidrs = $4, expiry_announced = expiry_announced AND expires_at = $5,
            expires_at = $5, version = version + 1, updated_at = $6
        WHERE tenant_id = $1 AND id = $2";
    REVOKE = "UPDATE api_keys SET revoked_at = $3, version = version + 1, updated_at = $3
        WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL";
    DELETE_SECRETS = "DELETE FROM api_key_secrets WHERE tenant_id = $1 AND key_id = $2";
}

struct DescendantKey {
    id: ApiKeyId,
    maker: ApiKeyId,
    bounds: KeyBounds,
}

impl FromRow for DescendantKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let bounds = KeyBounds {
            scopes: Scopes::from_json(&row.get::<String>(2)?)?,
            networks: row.get_json(3)?,
            expires_at: row.get(4)?,
        };
        Ok(DescendantKey { id: row.get(0)?, maker: row.get(1)?, bounds })
    }
}

/// The expiry and the networks of the key that made this one; `None` when a person did.
pub async fn find_maker(tx: &mut Tx, id: ApiKeyId) -> Result<Option<(Timestamp, Vec<IpNet>)>> {
    let Some((end, cidrs)) = tx.find::<(Timestamp, String)>(MAKER, args![id]).await? else { return Ok(None) };
    Ok(Some((end, from_json(&cidrs)?)))
}

/// A key may change only itself and its descendants: the secret of any other key would outlive the caller's own revocation.
pub async fn check_is_own(tx: &mut Tx, rights: &Rights, id: ApiKeyId) -> Result<()> {
    let Some(CredentialRef::Key { id: caller, .. }) = rights.credential else { return Ok(()) };
    if caller == id || tx.find::<String>(IS_ANCESTOR, args![id, caller]).await?.is_some() {
        return Ok(());
    }
    let detail = "A key can change and rotate only keys that it has made. Sign in, or use the key that made this one.";
    Err(Error::insufficient_scope(Scope::ApiKeysWrite.name(), detail))
}

/// Takes from a key's descendants what the key itself has lost. A descendant that nothing is left of is revoked, with its
/// own descendants.
pub async fn narrow_descendants(tx: &mut Tx, id: ApiKeyId, old: &KeyBounds, new: &KeyBounds) -> Result<()> {
    if !new.is_narrower_than(old) {
        return Ok(());
    }
    let (at, now) = (tx.tick().await?.at, tx.env().now());
    let descendants: Vec<DescendantKey> = tx.list(ACTIVE_DESCENDANTS, args![id, now]).await?;
    let mut revoked: Vec<ApiKeyId> = Vec::new();
    for DescendantKey { id, maker, bounds } in descendants {
        if revoked.contains(&maker) {
            revoked.push(id);
            continue;
        }
        match bounds.narrow_with_ancestor(old, new) {
            None => {
                revoke_with_descendants(tx, id).await?;
                revoked.push(id);
            }
            Some(left) if left == bounds => {}
            Some(left) => {
                let (scopes, cidrs) = left.to_json_texts()?;
                tx.exec(NARROW, args![id, scopes, cidrs, left.expires_at, at]).await?;
                audit::record_entry(
                    tx,
                    NewAuditEntry::new("api_key.update", "api_key", id).with_changes(bounds.list_changes(&left)),
                )
                .await?;
            }
        }
    }
    Ok(())
}

/// Revokes a key and its descendants, and publishes an event for each.
pub async fn revoke_with_descendants(tx: &mut Tx, id: ApiKeyId) -> Result<()> {
    let at = tx.tick().await?.at;
    let made: Vec<ApiKeyId> = tx.list(DESCENDANTS, args![id]).await?;
    for id in std::iter::once(id).chain(made) {
        tx.exec(REVOKE, args![id, at]).await?;
        delete_secrets(tx, id).await?;
        audit::record_entry(tx, NewAuditEntry::new("api_key.revoke", "api_key", id)).await?;
        let record = read_shown(tx, id).await?;
        events::publish(tx, &API_KEY_REVOKED, id, &record).await?;
    }
    Ok(())
}

pub async fn delete_secrets(tx: &mut Tx, id: ApiKeyId) -> Result<()> {
    tx.exec(DELETE_SECRETS, args![id]).await.map(drop)
}
