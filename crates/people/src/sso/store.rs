//! SQL of single sign-on: providers and their domains, which the operator sets up at the command line, and the used states
//! of sign-ons. Sign-ons under way are in browsers (`sealed_flow`).

use kernel::args;
use kernel::audit::{self, AuditChanges, NewAuditEntry};
use kernel::auth::{ProviderSession, Role, SignInToken, start_session};
use kernel::base::seal::{SealedCell, SealedColumn, SealedValue};
use kernel::base::{Code, Error, OnDuplicate, Result, Secrets, TenantId, Timestamp};
use kernel::keyring::{RewrapStatements, SealedColumnStatements};
use kernel::store::{Db, FromRow, Row, Tx};
use serde_json::{Value, json};

use super::refusal::{RefusedSignOn, SignOnRefusal};
use super::rules::check_provider;
use super::{Domain, NewProvider, OIDC, PROVIDERS_MAX, Provider, ProviderId, RoleRule, TxtRecord};
use crate::identity_providers::{IdentityProvider, find_domain_provider};
use crate::users::{SignOn, SignOnOutcome, sign_on};

kernel::columns! {
    /// Every column of a provider except the secret.
    struct ProviderColumns in "sso_providers" {
        id, name, protocol, issuer, client_id, scope, default_role, role_map, trust_email, sign_out_at_provider, enabled,
        version, created_at, updated_at,
    }
}

kernel::columns! {
    /// Every column of a new provider.
    struct NewProviderColumns in "sso_providers" {
        id, name, protocol, issuer, client_id, client_secret, scope, default_role, role_map, trust_email,
        sign_out_at_provider, enabled, version, created_at, updated_at,
    }
}

kernel::statements! {
    LIST = kernel::sql![ProviderColumns::SELECT, " ORDER BY id LIMIT $2"];
    GET = kernel::sql![ProviderColumns::SELECT, " AND id = $2"];
    COUNT = "SELECT COUNT(*) FROM sso_providers WHERE tenant_id = $1";
    INSERT = NewProviderColumns::INSERT;
    DISABLE = "UPDATE sso_providers SET enabled = FALSE, version = version + 1, updated_at = $3
        WHERE tenant_id = $1 AND id = $2 AND enabled";
    LIST_DOMAINS = "SELECT domain, provider_id, verified_at, proof FROM sso_domains
        WHERE tenant_id = $1 AND provider_id = $2 ORDER BY domain LIMIT $3";
    FIND_DOMAIN = "SELECT domain, provider_id, verified_at, proof FROM sso_domains WHERE tenant_id = $1 AND domain = $2";
    INSERT_DOMAIN = "INSERT INTO sso_domains (tenant_id, domain, provider_id, proof, created_at)
        VALUES ($1, $2, $3, $4, $5)";
    MOVE_DOMAIN = "UPDATE sso_domains SET provider_id = $3 WHERE tenant_id = $1 AND domain = $2";
    RELEASE_DOMAIN = "UPDATE sso_domains SET verified_at = NULL
        WHERE tenant_id = $1 AND domain = $2 AND verified_at IS NOT NULL";
    VERIFY_DOMAIN = "UPDATE sso_domains SET verified_at = $3 WHERE tenant_id = $1 AND domain = $2 AND verified_at IS NULL";
    ENABLED_VERSION = "SELECT version FROM sso_providers WHERE tenant_id = $1 AND id = $2 AND enabled";
    /// An enabled provider with its secret.
    CONNECT = "SELECT tenant_id, id, name, protocol, issuer, client_id, scope, role_map, version, client_secret,
            default_role, trust_email, sign_out_at_provider
        FROM sso_providers WHERE tenant_id = $1 AND id = $2 AND enabled";
    /// Of any tenant: the domain determines it.
    FIND_BY_DOMAIN = "SELECT p.tenant_id, p.id, p.name, p.protocol, p.issuer, p.client_id, p.scope, p.role_map,
            p.version
        FROM sso_domains d JOIN sso_providers p ON p.tenant_id = d.tenant_id AND p.id = d.provider_id
        WHERE d.domain = $1 AND d.verified_at IS NOT NULL AND p.enabled";
    /// If signing out continues at the provider.
    FIND_TO_SIGN_OUT = "SELECT tenant_id, id, name, protocol, issuer, client_id, scope, role_map, version
        FROM sso_providers WHERE tenant_id = $1 AND id = $2 AND enabled AND sign_out_at_provider";
    /// Over all tenants, for the operator.
    LIST_VOUCHED_ELSEWHERE = "SELECT DISTINCT t.slug, u.email FROM user_identities i
        JOIN users u ON u.tenant_id = i.tenant_id AND u.id = i.user_id AND u.status = 'active'
        JOIN tenants t ON t.id = i.tenant_id
        JOIN sso_providers p ON p.tenant_id = i.tenant_id AND p.id = i.provider_id AND p.enabled
        JOIN sso_domains d ON d.tenant_id = i.tenant_id AND d.verified_at IS NOT NULL AND d.provider_id <> i.provider_id
            AND u.email LIKE '%@' || d.domain
        ORDER BY t.slug, u.email LIMIT $1";
    FIND_USED_STATE = "SELECT expires_at FROM sso_used_states WHERE tenant_id = $1 AND state_hash = $2";
    CLAIM_STATE = "INSERT INTO sso_used_states (tenant_id, state_hash, expires_at) VALUES ($1, $2, $3)
        ON CONFLICT DO NOTHING";
    CLEAN_USED_STATES = "DELETE FROM sso_used_states WHERE (tenant_id, state_hash) IN
        (SELECT tenant_id, state_hash FROM sso_used_states WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
    /// Only older versions write this table.
    CLEAN_FLOWS = "DELETE FROM sso_flows WHERE state_hash IN
        (SELECT state_hash FROM sso_flows WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)";
    COUNT_CLIENT_SECRETS = "SELECT substr(client_secret, 1, 5), COUNT(*) FROM sso_providers GROUP BY 1";
    /// Every secret is sealed for version 1.
    WALK_CLIENT_SECRETS = "SELECT tenant_id, id, CAST(1 AS BIGINT), client_secret FROM sso_providers
        WHERE (tenant_id, id, CAST(1 AS BIGINT)) > ($1, $2, $3) ORDER BY tenant_id, id LIMIT $4";
    REWRAP_CLIENT_SECRET = "UPDATE sso_providers SET client_secret = $5
        WHERE tenant_id = $1 AND id = $2 AND CAST($3 AS BIGINT) = 1 AND client_secret = $4";
}

/// The client secret. It is always sealed for version 1, because only the current secret is stored.
const CLIENT_SECRET: SealedColumn<IdentityProvider> = SealedColumn::new("sso_providers.client_secret");
const SECRET_VERSION: i64 = 1;

pub const SEALED_COLUMNS: &[SealedColumnStatements] = &[SealedColumnStatements {
    name: CLIENT_SECRET.name(),
    count: COUNT_CLIENT_SECRETS,
    rewrap: Some(RewrapStatements { walk: WALK_CLIENT_SECRETS, replace: REWRAP_CLIENT_SECRET }),
}];

pub fn secret_cell(tenant: TenantId, id: ProviderId) -> SealedCell {
    CLIENT_SECRET.cell_for(tenant, id, SECRET_VERSION)
}

impl FromRow for Provider {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: ProviderColumns<usize> = ProviderColumns::AT;
        let (default_role, role_map): (String, String) = (row.get(AT.default_role)?, row.get(AT.role_map)?);
        Ok(kernel::read_record!(row, ProviderColumns => Provider {
            id, name, protocol, issuer, client_id, scope, trust_email, sign_out_at_provider, enabled, version,
            created_at, updated_at;
            default_role: stored_default_role(&default_role)?,
            role_map: stored_rules(&role_map)?,
            // Domains are rows of their own.
            domains: Vec::new(),
        }))
    }
}

impl FromRow for Domain {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (domain, proof): (String, String) = (row.get(0)?, row.get(3)?);
        let txt = TxtRecord::for_domain(&domain, &proof);
        Ok(Domain { domain, provider_id: row.get(1)?, verified_at: row.get(2)?, txt })
    }
}

fn stored_role(text: &str) -> Result<Role> {
    Role::parse(text).ok_or_else(|| Error::internal(format!("unknown role {text:?}")))
}

/// The stored default role of a provider without one.
const NO_ROLE: &str = "none";

fn stored_default_role(text: &str) -> Result<Option<Role>> {
    if text == NO_ROLE { Ok(None) } else { stored_role(text).map(Some) }
}

pub fn default_role_text(role: Option<Role>) -> &'static str {
    role.map_or(NO_ROLE, Role::as_str)
}

/// Parses the stored form `[[claim, value, role]]`.
fn stored_rules(text: &str) -> Result<Vec<RoleRule>> {
    let rules: Vec<(String, String, String)> = serde_json::from_str(text).map_err(Error::internal)?;
    rules.into_iter().map(|(claim, value, role)| Ok(RoleRule { claim, value, role: stored_role(&role)? })).collect()
}

pub fn rules_text(rules: &[RoleRule]) -> Result<String> {
    let rules: Vec<(&str, &str, &str)> =
        rules.iter().map(|rule| (rule.claim.as_str(), rule.value.as_str(), rule.role.as_str())).collect();
    serde_json::to_string(&rules).map_err(Error::internal)
}

/// Adds a provider. Each domain must be verified before it is used, except domains taken over from a disabled provider.
pub async fn add_provider(db: &Db, new: NewProvider, secrets: &Secrets) -> Result<Provider> {
    let (new, secrets) = (check_provider(new)?, secrets.clone());
    db.write(async move |tx| {
        let at = tx.tick().await?.at;
        let count: i64 = tx.get_one(COUNT, args![]).await?;
        if count >= PROVIDERS_MAX {
            return Err(Error::new(Code::LimitReached, format!("A tenant has at most {PROVIDERS_MAX} providers.")));
        }
        let id = ProviderId::new(tx.env());
        let tenant = tx.tenant_id().ok_or_else(|| Error::internal("a provider belongs to a tenant"))?;
        let sealed = secret_cell(tenant, id).seal(&secrets, &tx.env().random, new.client_secret.as_bytes())?;
        let row = NewProviderColumns {
            id: id.into(),
            name: new.name.into(),
            protocol: OIDC.into(),
            issuer: new.issuer.into(),
            client_id: new.client_id.into(),
            client_secret: sealed.into(),
            scope: new.scope.into(),
            default_role: default_role_text(new.default_role).into(),
            role_map: rules_text(&new.role_map)?.into(),
            trust_email: new.trust_email.into(),
            sign_out_at_provider: new.sign_out_at_provider.into(),
            enabled: true.into(),
            version: SECRET_VERSION.into(),
            created_at: at.into(),
            updated_at: at.into(),
        };
        tx.defer_exec(INSERT, row.into_vec()).await?;
        for domain in &new.domains {
            claim_domain(tx, id, domain, at).await?;
        }
        audit::record_entry(tx, NewAuditEntry::new("sso.create", "sso_provider", id)).await?;
        get_provider_in_tx(tx, id).await
    })
    .await
}

/// Characters of `0-9A-Za-z` with nearly six bits each, so that nobody can guess the proof.
const PROOF_CHARS: usize = 32;

/// Assigns a domain to a provider, unless it belongs to another enabled one.
pub async fn claim_domain(tx: &mut Tx, id: ProviderId, domain: &str, at: Timestamp) -> Result<()> {
    let Some(old) = tx.find::<Domain>(FIND_DOMAIN, args![domain]).await? else {
        let proof = tx.env().random.base62_text(PROOF_CHARS);
        return tx.exec(INSERT_DOMAIN, args![domain, id, proof, at]).await.map(drop);
    };
    if tx.find::<i64>(ENABLED_VERSION, args![old.provider_id]).await?.is_some() {
        let detail = format!("The domain {domain} leads to the provider {}. Disable that one first.", old.provider_id);
        return Err(Error::conflict(detail));
    }
    tx.exec(MOVE_DOMAIN, args![domain, id]).await.map(drop)
}

/// An unknown provider is "not found".
pub async fn get_provider_in_tx(tx: &mut Tx, id: ProviderId) -> Result<Provider> {
    let provider: Provider = tx.get_one(GET, args![id]).await?;
    Ok(Provider { domains: tx.list(LIST_DOMAINS, args![id, DOMAIN_ROWS]).await?, ..provider })
}

/// More than `DOMAINS_MAX`, because domains taken over from other providers come on top.
const DOMAIN_ROWS: i64 = 10_000;

/// All providers of a tenant, oldest first.
pub async fn list_providers(db: &Db) -> Result<Vec<Provider>> {
    let mut all: Vec<Provider> = db.list(LIST, args![PROVIDERS_MAX]).await?;
    for provider in &mut all {
        provider.domains = db.list(LIST_DOMAINS, args![provider.id, DOMAIN_ROWS]).await?;
    }
    Ok(all)
}

/// Disables a provider: new sign-ons are refused, sessions go on. An unknown provider is "not found".
pub async fn disable_provider(db: &Db, id: ProviderId) -> Result<Provider> {
    db.write(async move |tx| {
        let at = tx.tick().await?.at;
        if tx.exec(DISABLE, args![id, at]).await? == 1 {
            let mut changes = AuditChanges::default();
            changes.add_if_changed("enabled", true, false);
            audit::record_entry(tx, NewAuditEntry::new("sso.disable", "sso_provider", id).with_changes(changes))
                .await?;
        }
        get_provider_in_tx(tx, id).await
    })
    .await
}

/// Releases a domain: it belongs to no tenant until one verifies it. An unknown domain is "not found".
pub async fn release_domain(db: &Db, domain: &str) -> Result<Domain> {
    let name = domain.to_owned();
    db.write(async move |tx| {
        tx.tick().await?;
        let stored: Domain = tx.get_one(FIND_DOMAIN, args![name]).await?;
        if tx.exec(RELEASE_DOMAIN, args![name]).await? == 1 {
            let mut changes = AuditChanges::default();
            changes.add_described("verified_domain", &json!(name), &Value::Null);
            let entry = NewAuditEntry::new("sso.release_domain", "sso_provider", stored.provider_id);
            audit::record_entry(tx, entry.with_changes(changes)).await?;
        }
        tx.get_one(FIND_DOMAIN, args![name]).await
    })
    .await
}

/// Users who sign in at one provider with an address that another vouches for, each with the tenant's slug. An admin may
/// have set the address, the domain may have moved, or an earlier version let one provider take over users of another.
pub async fn list_vouched_elsewhere(all: &Db, limit: i64) -> Result<Vec<(String, String)>> {
    all.list(LIST_VOUCHED_ELSEWHERE, args![limit]).await
}

pub async fn find_domain(db: &Db, domain: &str) -> Result<Option<Domain>> {
    db.find(FIND_DOMAIN, args![domain]).await
}

/// Marks a domain as verified for this tenant. The caller has checked the proof or trusts the operator. A domain has one
/// owner. An unknown domain is "not found".
pub async fn verify_domain(db: &Db, domain: &str) -> Result<Domain> {
    let name = domain.to_owned();
    let verified = db
        .write(async move |tx| {
            let at = tx.tick().await?.at;
            if tx.exec(VERIFY_DOMAIN, args![name, at]).await? == 1 {
                let stored: Domain = tx.get_one(FIND_DOMAIN, args![name]).await?;
                let mut changes = AuditChanges::default();
                changes.add_described("verified_domain", &Value::Null, &json!(name));
                let entry = NewAuditEntry::new("sso.verify_domain", "sso_provider", stored.provider_id);
                audit::record_entry(tx, entry.with_changes(changes)).await?;
            }
            tx.get_one(FIND_DOMAIN, args![name]).await
        })
        .await;
    verified.on_duplicate(|| {
        Error::conflict(format!("The domain {domain} is another tenant's already; a domain has one owner."))
    })
}

/// The configuration of an enabled provider, without the secret.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    pub tenant: TenantId,
    pub id: ProviderId,
    pub name: String,
    pub protocol: String,
    pub issuer: String,
    pub client_id: String,
    /// The scope set by the operator.
    pub scope: Option<String>,
    pub role_map: Vec<RoleRule>,
    pub version: i64,
}

impl FromRow for ProviderConfig {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let role_map: String = row.get(7)?;
        Ok(ProviderConfig {
            tenant: row.get(0)?,
            id: row.get(1)?,
            name: row.get(2)?,
            protocol: row.get(3)?,
            issuer: row.get(4)?,
            client_id: row.get(5)?,
            scope: row.get(6)?,
            role_map: stored_rules(&role_map)?,
            version: row.get(8)?,
        })
    }
}

/// The provider of a domain. Unknown, unverified and disabled are all `None`, by the same single read.
pub async fn find_by_domain(all: &Db, domain: &str) -> Result<Option<ProviderConfig>> {
    all.find(FIND_BY_DOMAIN, args![domain]).await
}

pub async fn is_state_used(db: &Db, state_hash: [u8; 32]) -> Result<bool> {
    Ok(db.find::<Timestamp>(FIND_USED_STATE, args![state_hash.as_slice()]).await?.is_some())
}

/// Marks a state as used, whatever the outcome of the sign-on. False if it was used before: of two concurrent requests, one
/// gets false.
pub async fn claim_state(db: &Db, state_hash: [u8; 32], expires_at: Timestamp) -> Result<bool> {
    let claimed =
        db.write(async move |tx| tx.exec(CLAIM_STATE, args![state_hash.as_slice(), expires_at]).await).await?;
    Ok(claimed == 1)
}

/// A provider with everything that finishing a sign-on needs.
pub struct ProviderConnection {
    pub config: ProviderConfig,
    pub default_role: Option<Role>,
    pub trust_email: bool,
    pub sign_out_at_provider: bool,
    sealed: SealedValue,
}

impl FromRow for ProviderConnection {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let default_role: String = row.get(10)?;
        Ok(ProviderConnection {
            config: ProviderConfig::from_row(row)?,
            sealed: row.get(9)?,
            default_role: stored_default_role(&default_role)?,
            trust_email: row.get(11)?,
            sign_out_at_provider: row.get(12)?,
        })
    }
}

impl ProviderConnection {
    /// The client secret in plain text. It is sent to the provider and goes nowhere else.
    pub fn open_secret(&self, secrets: &Secrets) -> Result<String> {
        let plain = secret_cell(self.config.tenant, self.config.id).open(secrets, &self.sealed)?;
        String::from_utf8(plain).map_err(Error::internal)
    }
}

/// `None` if the provider is disabled.
pub async fn find_connection(db: &Db, id: ProviderId) -> Result<Option<ProviderConnection>> {
    db.find(CONNECT, args![id]).await
}

/// The provider for signing out; `None` if it is disabled or signing out ends here.
pub async fn find_sign_out_provider(db: &Db, id: ProviderId) -> Result<Option<ProviderConfig>> {
    db.find(FIND_TO_SIGN_OUT, args![id]).await
}

/// A sign-on that the provider vouches for. Not `Debug`, because it has the ID token.
pub struct VouchedSignOn {
    pub who: SignOn,
    /// The domain of the e-mail address.
    pub domain: String,
    /// The version of the provider whose rules were applied.
    pub version: i64,
    /// Stored with the session, for signing out at the provider.
    pub id_token: Option<String>,
}

/// Finishes a sign-on: user, session and audit entry commit together. A refusal commits too, because it may have ended
/// sessions.
pub async fn finish_sign_on(
    db: &Db,
    vouched: VouchedSignOn,
    lifetime_ms: i64,
    secrets: &Secrets,
) -> Result<Result<SignInToken, SignOnRefusal>> {
    let (VouchedSignOn { who, domain, version, id_token }, secrets) = (vouched, secrets.clone());
    db.write(async move |tx| {
        tx.tick().await?;
        let provider = who.provider;
        match tx.find::<i64>(ENABLED_VERSION, args![provider]).await? {
            None => return Ok(Err(SignOnRefusal::ProviderDisabled)),
            Some(now) if now != version => return Ok(Err(SignOnRefusal::ProviderChanged)),
            Some(_) => {}
        }
        match find_domain_provider(tx, &domain).await? {
            None => return Ok(Err(SignOnRefusal::ForeignDomain)),
            Some(other) if other != provider => return Ok(Err(SignOnRefusal::DomainOfOtherProvider)),
            Some(_) => {}
        }
        let (user, ignored_email) = match sign_on(tx, who).await? {
            SignOnOutcome::SignedIn { user, ignored_email } => (user, ignored_email),
            SignOnOutcome::Disabled => return Ok(Err(SignOnRefusal::UserDisabled)),
            SignOnOutcome::OtherIdentity => return Ok(Err(SignOnRefusal::OtherIdentity)),
            SignOnOutcome::NoRole => return Ok(Err(SignOnRefusal::NoRole)),
        };
        let mut entry = NewAuditEntry::new("sso.sign_in", "user", user.id);
        if ignored_email.is_some() {
            let mut changes = AuditChanges::default();
            changes.add_if_changed("ignored_email", None, ignored_email);
            entry = entry.with_changes(changes);
        }
        audit::record_entry(tx, entry).await?;
        let provider = provider.to_string();
        let id_token = id_token.as_deref().map(|token| (token, &secrets));
        let provider_session = ProviderSession { provider: &provider, id_token };
        start_session(tx, user.id, lifetime_ms, &provider_session).await.map(Ok)
    })
    .await
}

/// Writes a refused sign-on to the tenant's audit trail: the reason, the person if the provider has named them, and how many
/// refusals were left out before. Nothing of the request itself is written.
pub async fn record_refusal(db: &Db, provider: ProviderId, refused: &RefusedSignOn, left_out: u64) -> Result<()> {
    let mut changes = AuditChanges::default();
    changes.add_if_changed("reason", None, Some(refused.refusal.as_str()));
    if let Some(person) = &refused.person {
        changes.add_if_changed("subject", None, Some(person.subject.as_str()));
        changes.add_if_changed("email", None, person.email.as_deref());
    }
    changes.add_if_changed("left_out", None, (left_out > 0).then_some(left_out));
    db.write(async move |tx| {
        tx.tick().await?;
        audit::record_entry(tx, NewAuditEntry::new("sso.refused", "sso_provider", provider).with_changes(changes)).await
    })
    .await
}
