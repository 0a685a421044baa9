//! Changing a provider. The identities of its users stay valid.

use kernel::args;
use kernel::audit::{self, AuditChanges, NewAuditEntry};
use kernel::base::seal::SealedValue;
use kernel::base::{Error, Result, Secrets};
use kernel::store::{Db, Tx};
use serde_json::{Value, json};

use super::super::rules::{check_change, check_domain_count};
use super::super::store::{claim_domain, default_role_text, get_provider_in_tx, rules_text, secret_cell};
use super::super::{Provider, ProviderChange, ProviderId, RoleRule};

kernel::statements! {
    UPDATE = "UPDATE sso_providers SET name = $3, client_id = $4, scope = $5, default_role = $6, role_map = $7,
            trust_email = $8, sign_out_at_provider = $9, enabled = $10, version = $11, updated_at = $12
        WHERE tenant_id = $1 AND id = $2";
    GET_SECRET = "SELECT client_secret FROM sso_providers WHERE tenant_id = $1 AND id = $2";
    SET_SECRET = "UPDATE sso_providers SET client_secret = $3 WHERE tenant_id = $1 AND id = $2";
}

/// Stands for a new secret in the audit trail.
const NEW_SECRET: &str = "(new)";

/// Changes a provider, in force for sign-ons that begin from now on; those under way are refused and begin again. Without a
/// difference nothing is written. An unknown provider is "not found".
pub async fn update_provider(db: &Db, id: ProviderId, change: ProviderChange) -> Result<Provider> {
    let change = check_change(change)?;
    db.write(async move |tx| {
        let at = tx.tick().await?.at;
        let old = get_provider_in_tx(tx, id).await?;
        let new = apply_change(&old, &change);
        let mut changes = diff_providers(&old, &new);
        if let Some((secret, secrets)) = &change.client_secret
            && set_secret(tx, id, secret, secrets).await?
        {
            changes.add_described("client_secret", &Value::Null, &json!(NEW_SECRET));
        }
        let has = |name: &String| old.domains.iter().any(|owned| owned.domain == *name);
        let added: Vec<&String> = change.domains.iter().filter(|name| !has(name)).collect();
        if !added.is_empty() {
            check_domain_count(old.domains.len() + added.len())?;
            for domain in &added {
                claim_domain(tx, id, domain, at).await?;
            }
            changes.add_described("added_domains", &Value::Null, &json!(added));
        }
        if changes.is_empty() {
            return Ok(old);
        }
        let row = vec![
            id.into(),
            new.name.into(),
            new.client_id.into(),
            new.scope.into(),
            default_role_text(new.default_role).into(),
            rules_text(&new.role_map)?.into(),
            new.trust_email.into(),
            new.sign_out_at_provider.into(),
            new.enabled.into(),
            (old.version + 1).into(),
            at.into(),
        ];
        tx.defer_exec(UPDATE, row).await?;
        audit::record_entry(tx, NewAuditEntry::new("sso.update", "sso_provider", id).with_changes(changes)).await?;
        get_provider_in_tx(tx, id).await
    })
    .await
}

/// The provider with the change applied, except domains and the secret.
fn apply_change(old: &Provider, change: &ProviderChange) -> Provider {
    Provider {
        name: change.name.clone().unwrap_or_else(|| old.name.clone()),
        client_id: change.client_id.clone().unwrap_or_else(|| old.client_id.clone()),
        scope: change.scope.clone().unwrap_or_else(|| old.scope.clone()),
        default_role: change.default_role.unwrap_or(old.default_role),
        role_map: change.role_map.clone().unwrap_or_else(|| old.role_map.clone()),
        trust_email: change.trust_email.unwrap_or(old.trust_email),
        sign_out_at_provider: change.sign_out_at_provider.unwrap_or(old.sign_out_at_provider),
        enabled: old.enabled || change.enable,
        ..old.clone()
    }
}

fn diff_providers(old: &Provider, new: &Provider) -> AuditChanges {
    let mut changes = AuditChanges::default();
    changes.add_if_changed("name", old.name.as_str(), new.name.as_str());
    changes.add_if_changed("client_id", old.client_id.as_str(), new.client_id.as_str());
    changes.add_if_changed("scope", old.scope.as_deref(), new.scope.as_deref());
    changes.add_if_changed("default_role", default_role_text(old.default_role), default_role_text(new.default_role));
    if old.role_map != new.role_map {
        changes.add_described("role_map", &rules_for_audit(&old.role_map), &rules_for_audit(&new.role_map));
    }
    changes.add_if_changed("trust_email", old.trust_email, new.trust_email);
    changes.add_if_changed("sign_out_at_provider", old.sign_out_at_provider, new.sign_out_at_provider);
    changes.add_if_changed("enabled", old.enabled, new.enabled);
    changes
}

/// Role rules in the syntax of the command line.
fn rules_for_audit(rules: &[RoleRule]) -> Value {
    rules.iter().map(|rule| format!("{}={}:{}", rule.claim, rule.value, rule.role.as_str())).collect()
}

/// Stores the client secret. False if it is unchanged.
async fn set_secret(tx: &mut Tx, id: ProviderId, secret: &str, secrets: &Secrets) -> Result<bool> {
    let tenant = tx.tenant_id().ok_or_else(|| Error::internal("a provider belongs to a tenant"))?;
    let cell = secret_cell(tenant, id);
    let (stored,): (SealedValue,) = tx.get_one(GET_SECRET, args![id]).await?;
    // A stored secret that cannot be opened is useless, and is replaced.
    if cell.open(secrets, &stored).is_ok_and(|opened| opened == secret.as_bytes()) {
        return Ok(false);
    }
    let sealed = cell.seal(secrets, &tx.env().random, secret.as_bytes())?;
    tx.exec(SET_SECRET, args![id, sealed]).await?;
    Ok(true)
}
