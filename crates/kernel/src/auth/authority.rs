//! What somebody may do now who is not there to ask: whoever saved what the service does by itself.
//!
//! It is looked up when something is done, in the transaction that does it and under the tenant's clock, which every change
//! of a credential moves: what it tells holds until the commit. A key's networks bind requests, and this is none.

use super::standing::{KeyRow, Rights, person};
use crate::base::{ActorKind, ActorRef, Error, Result};
use crate::store::Tx;

crate::statements! {
    FIND_SAVER_KEY = "SELECT k.scopes, k.allowed_cidrs, k.expires_at,
            COALESCE((SELECT u.platform_operator FROM users u
                WHERE u.tenant_id = k.tenant_id AND u.id = k.maker_user_id AND u.status = 'active'), FALSE)
        FROM api_keys k WHERE k.tenant_id = $1 AND k.id = $2 AND k.revoked_at IS NULL";
    FIND_SAVER_USER = "SELECT role, platform_operator FROM users
        WHERE tenant_id = $1 AND id = $2 AND status = 'active'";
}

/// The rights of whoever saved it, as they are now. One who has none any more is told as 403, with what became of them.
pub async fn authority(tx: &mut Tx, saver: &ActorRef) -> Result<Rights> {
    tx.tick().await?;
    let gone = |why: &str| {
        let detail = format!("{} {}, who saved this, {why}.", saver.kind.as_str(), saver.name);
        Error::insufficient_scope("", detail)
    };
    let id = saver.id.as_deref().unwrap_or_default();
    match saver.kind {
        ActorKind::User => {
            let row: Option<(String, bool)> = tx.find(FIND_SAVER_USER, crate::args![id]).await?;
            row.and_then(|row| person(None, &row)).ok_or_else(|| gone("is no longer an active user"))
        }
        ActorKind::ApiKey => {
            let row: Option<KeyRow> = tx.find(FIND_SAVER_KEY, crate::args![id]).await?;
            let rights = row.map(|row| row.rights(None)).ok_or_else(|| gone("was revoked"))?;
            // By the time of day, not by the tenant's clock, which may be ahead of it.
            if rights.ends_at.is_some_and(|end| end <= tx.world().now()) {
                return Err(gone("has expired"));
            }
            Ok(rights)
        }
        ActorKind::Workflow | ActorKind::System | ActorKind::Operator => Err(gone("lends no rights")),
    }
}
