//! SQL of organizations: reading one, and every change. Lists are in `find`.

use std::collections::{HashMap, HashSet};

use feature_kit::registry;
use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::base::{Code, Error, Label, RecordId, Result, Timestamp, check_slug};
use kernel::events;
use kernel::http::IfMatch;
use kernel::store::references;
use kernel::store::{ChangeKey, Db, FromRow, Row, Select, Tick, Tx, Value, to_json};
use serde_json::json;

use super::input::OrganizationInput;
use super::slug::{common_prefix, first_free_slug, slug_from_name};
use super::{
    ORGANIZATION_CREATED, ORGANIZATION_DELETED, ORGANIZATION_UPDATED, ORGANIZATIONS_MAX, Organization, OrganizationId,
    UpdatedOrganization, diff_organizations,
};

kernel::columns! {
    /// Every column of an organization.
    pub struct OrganizationColumns in "organizations" by id {
        id, slug, name, folded_name, external_id, domains, tags, custom_fields, archived, version, created_at, updated_at, sequence,
    }
}

kernel::statements! {
    GET = kernel::sql![OrganizationColumns::SELECT, " AND id = $2"];
    FIND_BY_SLUG = kernel::sql![OrganizationColumns::SELECT, " AND slug = $2"];
    FIND_EXTERNAL = kernel::sql![OrganizationColumns::SELECT, " AND external_id = $2"];
    LIST = kernel::sql![OrganizationColumns::SELECT, " AND slug > $2 ORDER BY slug LIMIT $3"];
    COUNT = "SELECT COUNT(*) FROM organizations WHERE tenant_id = $1";
    WITH_SLUG = "SELECT id FROM organizations WHERE tenant_id = $1 AND slug = $2";
    SLUGS = "SELECT slug FROM organizations WHERE tenant_id = $1 AND slug >= $2 AND slug < $3 ORDER BY slug LIMIT $4";
    /// The list adds the slugs.
    BY_SLUGS = "SELECT slug, id, archived FROM organizations WHERE tenant_id = $1";
    FIND_SLUG = "SELECT slug FROM organizations WHERE tenant_id = $1 AND id = $2";
    INSERT = OrganizationColumns::INSERT;
    UPDATE = OrganizationColumns::UPDATE;
    DELETE = "DELETE FROM organizations WHERE tenant_id = $1 AND id = $2";
    /// Organizations that changed while the tenant's clock was ahead.
    IN_FUTURE = "SELECT id FROM organizations WHERE tenant_id = $1 AND updated_at > $2
        ORDER BY updated_at, sequence, id LIMIT $3";
    CLAMP_FUTURE = "UPDATE organizations SET updated_at = $3, created_at = CASE WHEN created_at > $3 THEN $3 ELSE created_at END
        WHERE tenant_id = $1 AND id = $2";
}

/// The record type in the audit trail and in the feed of changes.
const KIND: &str = "organization";

/// Rows of one read when the command line lists everything: some are tens of kilobytes.
const LIST_ROWS: i64 = 100;

/// Sorts after every character of a slug.
const BEHIND_LETTERS: char = '{';

/// A stored organization.
pub struct StoredOrganization {
    pub organization: Organization,
    /// The sequence of the last change.
    pub sequence: i64,
}

impl StoredOrganization {
    /// The position in the order of changes.
    pub fn change_key(&self) -> ChangeKey<OrganizationId> {
        ChangeKey { at: self.organization.updated_at, sequence: self.sequence, key: self.organization.id }
    }
}

impl FromRow for StoredOrganization {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: OrganizationColumns<usize> = OrganizationColumns::AT;
        let organization = kernel::read_record!(row, OrganizationColumns => Organization {
            id, name, slug, external_id, archived, version, created_at, updated_at;
            domains: row.get_json(AT.domains)?,
            tags: row.get_json(AT.tags)?,
            custom_fields: row.get_json(AT.custom_fields)?,
        });
        Ok(StoredOrganization { organization, sequence: row.get(AT.sequence)? })
    }
}

pub async fn get_organization(db: &Db, id: OrganizationId) -> Result<Organization> {
    Ok(db.get_one::<StoredOrganization>(GET, args![id]).await?.organization)
}

pub async fn find_by_slug(db: &Db, slug: &str) -> Result<Option<Organization>> {
    let found: Option<StoredOrganization> = db.find(FIND_BY_SLUG, args![slug]).await?;
    Ok(found.map(|stored| stored.organization))
}

/// An organization that something names by its slug.
#[derive(Clone, Copy, Debug)]
pub struct NamedOrganization {
    pub id: OrganizationId,
    pub is_archived: bool,
}

/// The organizations with these slugs, by slug.
pub async fn find_by_slugs(tx: &mut Tx, slugs: &[&str]) -> Result<HashMap<String, NamedOrganization>> {
    Ok(to_named(tx.select(&select_by_slugs(slugs)).await?))
}

/// Like [`find_by_slugs`], outside any transaction.
pub async fn list_by_slugs(db: &Db, slugs: &[&str]) -> Result<HashMap<String, NamedOrganization>> {
    Ok(to_named(db.select(&select_by_slugs(slugs)).await?))
}

fn select_by_slugs(slugs: &[&str]) -> Select {
    Select::new(BY_SLUGS).where_in("slug", slugs.iter().copied()).limit(slugs.len())
}

fn to_named(rows: Vec<(String, OrganizationId, bool)>) -> HashMap<String, NamedOrganization> {
    rows.into_iter().map(|(slug, id, is_archived)| (slug, NamedOrganization { id, is_archived })).collect()
}

/// The slug of an organization.
pub async fn find_slug(tx: &mut Tx, id: OrganizationId) -> Result<Option<String>> {
    tx.find(FIND_SLUG, args![id]).await
}

/// All organizations of the tenant, archived ones included, by slug.
pub async fn list_organizations(db: &Db) -> Result<Vec<Organization>> {
    let mut all: Vec<Organization> = Vec::new();
    loop {
        let after = all.last().map(|organization| organization.slug.clone()).unwrap_or_default();
        let rows: Vec<StoredOrganization> = db.list(LIST, args![after, LIST_ROWS]).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows.into_iter().map(|stored| stored.organization));
    }
}

/// Creates an organization from a name and a slug.
pub async fn create_named_organization(db: &Db, name: &str, slug: &str) -> Result<Organization> {
    let name = Label::parse(name).map_err(|detail| Error::invalid("/name", "invalid_name", detail))?;
    check_slug(slug)?;
    create_organization(db, OrganizationInput::new(name, slug.to_owned())).await
}

/// Creates an organization from parsed input.
pub async fn create_organization(db: &Db, input: OrganizationInput) -> Result<Organization> {
    db.write(async move |tx| insert_organization(tx, input).await).await
}

/// What the command line may change; `None` stays.
pub struct OrganizationUpdate {
    pub name: Option<Label>,
    /// Checked by the caller.
    pub slug: Option<String>,
    pub archived: Option<bool>,
}

pub async fn update_organization(db: &Db, id: OrganizationId, update: OrganizationUpdate) -> Result<Organization> {
    db.write(async move |tx| {
        tx.tick().await?;
        let old = get_organization_in_tx(tx, id).await?;
        let new = Organization {
            name: update.name.map_or_else(|| old.name.clone(), Label::into_string),
            slug: update.slug.unwrap_or_else(|| old.slug.clone()),
            archived: update.archived.unwrap_or(old.archived),
            ..old.clone()
        };
        save_organization(tx, old, new).await
    })
    .await
}

pub async fn delete_organization(db: &Db, id: OrganizationId) -> Result<()> {
    db.write(async move |tx| delete_if_unreferenced(tx, id, &IfMatch::default()).await).await
}

pub(super) async fn insert_organization(tx: &mut Tx, input: OrganizationInput) -> Result<Organization> {
    let Tick { at, sequence } = tx.tick().await?;
    let count: i64 = tx.get_one(COUNT, args![]).await?;
    if count >= ORGANIZATIONS_MAX {
        let detail = format!("A tenant has at most {ORGANIZATIONS_MAX} organizations, archived ones included.");
        return Err(Error::new(Code::LimitReached, detail));
    }
    let name = input.name.into_string();
    let slug = match input.slug {
        Some(slug) => {
            check_slug_is_free(tx, &slug).await?;
            slug
        }
        None => make_slug(tx, &name).await?,
    };
    check_external_id_is_free(tx, input.external_id.as_deref()).await?;
    let organization = Organization {
        // The sequence keeps ids of one millisecond in the order of creation.
        id: OrganizationId::new_numbered(tx.env(), at, sequence),
        name,
        slug,
        external_id: input.external_id,
        domains: input.domains,
        tags: input.tags,
        custom_fields: input.custom_fields,
        archived: input.archived,
        version: 1,
        created_at: at,
        updated_at: at,
    };
    let id = organization.id;
    tx.defer_exec(INSERT, to_row_values(&organization, sequence)?).await?;
    tx.record_change(KIND, id).await?;
    audit::record_entry(tx, NewAuditEntry::new("organization.create", KIND, id)).await?;
    events::publish(tx, &ORGANIZATION_CREATED, id, &organization).await?;
    Ok(organization)
}

pub(super) async fn replace_organization(
    tx: &mut Tx,
    id: OrganizationId,
    if_match: &IfMatch,
    input: OrganizationInput,
) -> Result<Organization> {
    tx.tick().await?;
    let old = get_organization_in_tx(tx, id).await?;
    if_match.check_version(old.version)?;
    let new = Organization {
        name: input.name.into_string(),
        slug: input.slug.unwrap_or_else(|| old.slug.clone()),
        external_id: input.external_id,
        domains: input.domains,
        tags: input.tags,
        custom_fields: input.custom_fields,
        archived: input.archived,
        ..old.clone()
    };
    save_organization(tx, old, new).await
}

/// Deletes the organization unless a record refers to it. The tenant's clock is locked, so no new reference can appear
/// meanwhile.
pub(super) async fn delete_if_unreferenced(tx: &mut Tx, id: OrganizationId, if_match: &IfMatch) -> Result<()> {
    tx.tick().await?;
    let old = get_organization_in_tx(tx, id).await?;
    if_match.check_version(old.version)?;
    let referring = references::find_referrers(tx, &registry().referrers, OrganizationId::PREFIX, id).await?;
    if !referring.is_empty() {
        let referrers = referring.join(", ");
        return Err(Error::conflict(format!(
            "There are {referrers} of this organization. It can be archived instead."
        )));
    }
    tx.exec(DELETE, args![id]).await?;
    tx.record_change(KIND, id).await?;
    let mut deleted = audit::AuditChanges::default();
    deleted.add_described("name", &json!(old.name), &serde_json::Value::Null);
    deleted.add_described("slug", &json!(old.slug), &serde_json::Value::Null);
    audit::record_entry(tx, NewAuditEntry::new("organization.delete", KIND, id).with_changes(deleted)).await?;
    events::publish(tx, &ORGANIZATION_DELETED, id, &old).await.map(drop)
}

async fn get_organization_in_tx(tx: &mut Tx, id: OrganizationId) -> Result<Organization> {
    Ok(tx.get_one::<StoredOrganization>(GET, args![id]).await?.organization)
}

/// Saves a change with its audit entry and event. Without a difference nothing is written.
async fn save_organization(tx: &mut Tx, old: Organization, mut new: Organization) -> Result<Organization> {
    let changes = diff_organizations(&old, &new)?;
    if changes.0.is_empty() {
        return Ok(old);
    }
    if new.slug != old.slug {
        check_slug_is_free(tx, &new.slug).await?;
    }
    if new.external_id != old.external_id {
        check_external_id_is_free(tx, new.external_id.as_deref()).await?;
    }
    let Tick { at, sequence } = tx.tick().await?;
    new.version += 1;
    new.updated_at = at;
    tx.defer_exec(UPDATE, to_row_values(&new, sequence)?).await?;
    tx.record_change(KIND, new.id).await?;
    let mut entry = audit::AuditChanges::default();
    for (field, change) in &changes.0 {
        entry.add_shortened(field, &change.from, &change.to)?;
    }
    audit::record_entry(tx, NewAuditEntry::new("organization.update", KIND, new.id).with_changes(entry)).await?;
    let updated = UpdatedOrganization { organization: new, changes };
    events::publish(tx, &ORGANIZATION_UPDATED, updated.organization.id, &updated).await?;
    Ok(updated.organization)
}

/// The unique index enforces this too. The tenant's clock is locked, so the slug stays free until the commit.
async fn check_slug_is_free(tx: &mut Tx, slug: &str) -> Result<()> {
    match tx.find::<OrganizationId>(WITH_SLUG, args![slug]).await? {
        None => Ok(()),
        Some(_) => {
            Err(Error::conflict(format!("An organization with the slug {slug:?} exists already in this tenant.")))
        }
    }
}

/// The unique index enforces this too; the check names the other organization.
async fn check_external_id_is_free(tx: &mut Tx, external_id: Option<&str>) -> Result<()> {
    let Some(external_id) = external_id else { return Ok(()) };
    match tx.find::<StoredOrganization>(FIND_EXTERNAL, args![external_id]).await? {
        None => Ok(()),
        Some(other) => {
            let slug = other.organization.slug;
            Err(Error::conflict(format!("The organization {slug:?} has this external_id already.")))
        }
    }
}

/// A free slug made from the name.
async fn make_slug(tx: &mut Tx, name: &str) -> Result<String> {
    let slug = slug_from_name(name);
    if tx.find::<OrganizationId>(WITH_SLUG, args![slug]).await?.is_none() {
        return Ok(slug);
    }
    let start = common_prefix(&slug);
    let end = format!("{start}{BEHIND_LETTERS}");
    let taken: Vec<String> = tx.list(SLUGS, args![start, end, ORGANIZATIONS_MAX]).await?;
    let taken: HashSet<String> = taken.into_iter().collect();
    Ok(first_free_slug(&slug, &taken))
}

fn to_row_values(one: &Organization, sequence: i64) -> Result<Vec<Value>> {
    let columns = OrganizationColumns {
        id: one.id.into(),
        slug: one.slug.as_str().into(),
        name: one.name.as_str().into(),
        folded_name: fold_name(&one.name).into(),
        external_id: one.external_id.as_deref().into(),
        domains: to_json(&one.domains)?.into(),
        tags: to_json(&one.tags)?.into(),
        custom_fields: to_json(&one.custom_fields)?.into(),
        archived: one.archived.into(),
        version: one.version.into(),
        created_at: one.created_at.into(),
        updated_at: one.updated_at.into(),
        sequence: sequence.into(),
    };
    Ok(columns.into_vec())
}

/// A name as agents' tags are compared with it: they ignore case.
pub fn fold_name(name: &str) -> String {
    name.to_lowercase()
}

/// Clamps future timestamps of organizations, before the tenant's clock is set back. Returns the number of organizations.
pub async fn clamp_future_timestamps(db: &Db, now: Timestamp) -> Result<u64> {
    db.clamp_future_records(KIND, (IN_FUTURE, CLAMP_FUTURE), now).await
}
