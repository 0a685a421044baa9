//! The current rights of the saver: the user or key that saved what the service later does by itself, such as a workflow.
//!
//! They are read in the transaction of the action and under the tenant's clock, which every change of a credential ticks, so
//! they hold until the commit. A key's networks restrict requests only, so they do not matter here.

use super::rights::{KeyRightsRow, Rights, user_rights};
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

/// Returns the current rights of the saver. If there are none left, the error is a 403 that says why.
pub async fn load_saver_rights(tx: &mut Tx, saver: &ActorRef) -> Result<Rights> {
    tx.tick().await?;
    let gone = |why: &str| {
        let detail = format!("{} {}, who saved this, {why}.", saver.kind.as_str(), saver.name);
        Error::insufficient_scope("", detail)
    };
    let id = saver.id.as_deref().unwrap_or_default();
    match saver.kind {
        ActorKind::User => {
            let row: Option<(String, bool)> = tx.find(FIND_SAVER_USER, crate::args![id]).await?;
            row.and_then(|row| user_rights(None, &row)).ok_or_else(|| gone("is no longer an active user"))
        }
        ActorKind::ApiKey => {
            let row: Option<KeyRightsRow> = tx.find(FIND_SAVER_KEY, crate::args![id]).await?;
            let rights = row.map(|row| row.into_rights(None)).ok_or_else(|| gone("was revoked"))?;
            // Judged by the time of day, because the tenant's clock may be ahead.
            if rights.expires_at.is_some_and(|end| end <= tx.env().now()) {
                return Err(gone("has expired"));
            }
            Ok(rights)
        }
        ActorKind::Workflow | ActorKind::System | ActorKind::Operator => Err(gone("lends no rights")),
    }
}
