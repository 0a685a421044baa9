//! SQL of the organization lists. The columns that filters need are read along an index first, then the records of the page.

use std::collections::HashMap;

use kernel::args;
use kernel::base::{Error, RecordId, Result, Timestamp};
use kernel::http::PageBytes;
use kernel::store::delta::{self, Delta};
use kernel::store::{ArmSql, CursorKey, Db, FromRow, IndexWalk, Row, Select, WalkRow};

use super::super::store::{FIND_BY_SLUG, FIND_EXTERNAL, OrganizationColumns, StoredOrganization};
use super::super::{Organization, OrganizationId};
use super::{Filter, OrganizationChangeKey, OrganizationCreationKey};

const BRIEFS: ArmSql =
    ArmSql::new("created_at, id, name, slug, external_id, domains", "organizations", &["created_at", "id"]);

kernel::statements! {
    BY_CREATION = kernel::arm!(BRIEFS.use_index("organizations_by_creation").where_equal(&["archived"]));
    /// The list adds the index and the order of changes.
    CHANGES = "SELECT updated_at, sequence, id, name, slug, external_id, domains, archived FROM organizations WHERE tenant_id = $1";
    /// The records of one part of a page; the list adds their ids.
    READ = OrganizationColumns::SELECT;
}

const BY_CHANGE: &str = "organizations_by_change";
const DELTA: Delta = Delta { key: "id", tombstone: None };

/// Rows that one request may examine, and rows of one step.
const EXAMINED_ROWS_MAX: usize = 3_000;
const STEP_MAX: usize = 500;
/// Organizations that are read at once: the largest are tens of kilobytes.
const READ_ROWS: usize = 50;

/// The columns of an organization that filters need.
struct OrganizationSummaryRow {
    creation_key: OrganizationCreationKey,
    name: String,
    slug: String,
    external_id: Option<String>,
    domains: Vec<String>,
}

impl FromRow for OrganizationSummaryRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(OrganizationSummaryRow {
            creation_key: (row.get(0)?, row.get(1)?),
            name: row.get(2)?,
            slug: row.get(3)?,
            external_id: row.get(4)?,
            domains: domains_from_json(&row.get::<String>(5)?)?,
        })
    }
}

impl WalkRow for OrganizationSummaryRow {
    type Key = OrganizationCreationKey;

    fn sort_key(&self) -> OrganizationCreationKey {
        self.creation_key
    }
}

/// The columns that filters need, in the order of changes.
struct OrganizationChangeRow {
    change_key: OrganizationChangeKey,
    name: String,
    slug: String,
    external_id: Option<String>,
    domains: Vec<String>,
    archived: bool,
}

impl FromRow for OrganizationChangeRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(OrganizationChangeRow {
            change_key: OrganizationChangeKey { at: row.get(0)?, sequence: row.get(1)?, id: row.get(2)? },
            name: row.get(3)?,
            slug: row.get(4)?,
            external_id: row.get(5)?,
            domains: domains_from_json(&row.get::<String>(6)?)?,
            archived: row.get(7)?,
        })
    }
}

fn domains_from_json(text: &str) -> Result<Vec<String>> {
    serde_json::from_str(text).map_err(Error::internal)
}

/// A page of organizations, newest first, and the key after which the next page starts.
pub async fn list_organizations(
    db: &Db,
    filter: &Filter,
    after: Option<OrganizationCreationKey>,
    limit: usize,
) -> Result<(Vec<Organization>, Option<OrganizationCreationKey>)> {
    if let Some(found) = find_unique(db, filter).await? {
        return Ok((found, None));
    }
    let below = after.unwrap_or((Timestamp::from_millis(i64::MAX), OrganizationId::NONE));
    let least = (Timestamp::from_millis(0), OrganizationId::NONE);
    let archived = filter.effective_archived().unwrap_or(false);
    let walk = IndexWalk::new(BY_CREATION, vec![vec![archived.into()]], least..below, filter.words.is_empty());
    let matches_words = |brief: &OrganizationSummaryRow| {
        filter.has_words(&brief.name, &brief.slug, brief.external_id.as_deref(), &brief.domains)
    };
    let (rows, next) = walk.load_page(db, limit, matches_words).await?;
    let positions: Vec<(OrganizationCreationKey, OrganizationId)> =
        rows.iter().map(|brief| (brief.creation_key, brief.creation_key.1)).collect();
    load_page(db, &positions, next, |stored, _| filter.matches_organization(&stored.organization)).await
}

/// A page of changed organizations in the order of changes, and the key after which the next page starts.
pub async fn list_changes(
    db: &Db,
    filter: &Filter,
    since: Timestamp,
    after: Option<OrganizationChangeKey>,
    limit: usize,
) -> Result<(Vec<Organization>, Option<OrganizationChangeKey>)> {
    if let Some(found) = find_unique(db, filter).await? {
        return Ok((found, None));
    }
    let until = db.last_tick().await?;
    let (mut position, mut found, mut step, mut rows_examined) = (after, Vec::new(), limit + 1, 0);
    let end = loop {
        let from = position
            .map_or(delta::DeltaStart::Since(since), |position| delta::DeltaStart::Behind(position.to_position()));
        let select = DELTA.select_changes(Select::new(CHANGES).use_index(BY_CHANGE), from, until).limit(step);
        let rows: Vec<OrganizationChangeRow> = db.select(&select).await?;
        rows_examined += rows.len();
        let end = rows.last().filter(|_| rows.len() == step).map(|row| row.change_key);
        found.extend(
            rows.iter().filter(|row| matches_filter(filter, row)).map(|row| (row.change_key, row.change_key.id)),
        );
        if end.is_none() || found.len() > limit || rows_examined >= EXAMINED_ROWS_MAX {
            break end;
        }
        position = end;
        step = (2 * step).min(STEP_MAX);
    };
    let more = found.len() > limit;
    found.truncate(limit);
    let next = if more { found.last().map(|(changed, _)| *changed) } else { end };
    // An organization that has changed again comes later in the order.
    load_page(db, &found, next, |stored, changed| stored.change_key() == changed).await
}

fn matches_filter(filter: &Filter, row: &OrganizationChangeRow) -> bool {
    filter.effective_archived().is_none_or(|archived| archived == row.archived)
        && filter.has_words(&row.name, &row.slug, row.external_id.as_deref(), &row.domains)
}

/// The organization with the slug or external id of the filter, if it matches; `None` if the filter has neither.
async fn find_unique(db: &Db, filter: &Filter) -> Result<Option<Vec<Organization>>> {
    let (sql, value) = match (&filter.slug, &filter.external_id) {
        (Some(slug), _) => (FIND_BY_SLUG, slug),
        (None, Some(external_id)) => (FIND_EXTERNAL, external_id),
        (None, None) => return Ok(None),
    };
    let found: Option<StoredOrganization> = db.find(sql, args![value]).await?;
    Ok(Some(
        found.map(|stored| stored.organization).filter(|one| filter.matches_organization(one)).into_iter().collect(),
    ))
}

/// The organizations at these positions until the page is full, and the key after which the next page starts. A record that
/// was deleted or has changed meanwhile is left out.
async fn load_page<K: Copy>(
    db: &Db,
    positions: &[(K, OrganizationId)],
    next: Option<K>,
    is_still: impl Fn(&StoredOrganization, K) -> bool,
) -> Result<(Vec<Organization>, Option<K>)> {
    let (mut all, mut bytes, mut last) = (Vec::new(), PageBytes::default(), None);
    for part in positions.chunks(READ_ROWS) {
        let select = Select::new(READ).where_in("id", part.iter().map(|(_, id)| *id)).limit(part.len());
        let read: Vec<StoredOrganization> = db.select(&select).await?;
        let mut read: HashMap<OrganizationId, StoredOrganization> =
            read.into_iter().map(|stored| (stored.organization.id, stored)).collect();
        for (position, id) in part {
            let Some(stored) = read.remove(id).filter(|stored| is_still(stored, *position)) else { continue };
            if !bytes.fits_record(&stored.organization)? {
                return Ok((all, last));
            }
            all.push(stored.organization);
            last = Some(*position);
        }
    }
    Ok((all, next))
}
