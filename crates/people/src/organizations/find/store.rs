//! SQL of the organization lists. The columns that filters need are read along an index first, then the records of the page.

use kernel::args;
use kernel::base::{Error, RecordId, Result, Timestamp};
use kernel::http::{json_size, load_records};
use kernel::store::delta::{ChangeWalk, Delta};
use kernel::store::{ArmSql, ChangeKey, Db, FromRow, IndexWalk, ListKey, Row, RowBudget, Select, fill_page, pair_rows};

use super::super::store::{FIND_BY_SLUG, FIND_EXTERNAL, OrganizationColumns, StoredOrganization};
use super::super::{Organization, OrganizationId};
use super::{Filter, OrganizationListKey};

/// The columns that filters need.
const BRIEFS: ArmSql = ArmSql::new(BriefColumns::LIST, "organizations", &["created_at", "id"]);

kernel::columns! {
    struct BriefColumns { updated_at, sequence, id, created_at, name, slug, external_id, domains, archived }
}

kernel::statements! {
    BY_CREATION = kernel::arm!(BRIEFS.use_index("organizations_by_creation").where_equal(&["archived"]));
    /// The list adds the index and the order of changes.
    CHANGES = kernel::sql!["SELECT ", BriefColumns::LIST, " FROM organizations WHERE tenant_id = $1"];
    /// The records of one part of a page; the list adds their ids.
    READ = OrganizationColumns::SELECT;
}

const DELTA: Delta = Delta { key: "id" };

/// Organizations that are read at once: the largest are tens of kilobytes.
const READ_ROWS: usize = 50;

/// A row of [`BriefColumns`].
struct OrganizationSummaryRow {
    id: OrganizationId,
    created_at: Timestamp,
    changed: ChangeKey<OrganizationId>,
    name: String,
    slug: String,
    external_id: Option<String>,
    domains: Vec<String>,
    archived: bool,
}

impl FromRow for OrganizationSummaryRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: BriefColumns<usize> = BriefColumns::AT;
        Ok(OrganizationSummaryRow {
            id: row.get(AT.id)?,
            created_at: row.get(AT.created_at)?,
            changed: ChangeKey::from_row(row)?,
            name: row.get(AT.name)?,
            slug: row.get(AT.slug)?,
            external_id: row.get(AT.external_id)?,
            domains: serde_json::from_str(&row.get::<String>(AT.domains)?).map_err(Error::internal)?,
            archived: row.get(AT.archived)?,
        })
    }
}

/// A page of organizations, and the key after which the next page starts.
pub async fn list_organizations(
    db: &Db,
    filter: &Filter,
    after: Option<OrganizationListKey>,
    limit: usize,
) -> Result<(Vec<Organization>, Option<OrganizationListKey>)> {
    if let Some(found) = find_unique(db, filter).await? {
        return Ok((found, None));
    }
    let (rows, next) = match filter.updated_since {
        Some(since) => list_changes(db, filter, since, after, limit).await?,
        None => list_newest(db, filter, after, limit).await?,
    };
    load_records(
        &rows,
        next,
        |_| READ_ROWS,
        json_size,
        |part| async move {
            let select = Select::new(READ).where_in("id", part.iter().map(|row| row.id)).limit(part.len());
            let stored: Vec<StoredOrganization> = db.select(&select).await?;
            let pairs = pair_rows(part, |row| row.id, stored, |stored| stored.organization.id);
            // An organization that has changed meanwhile may no longer match; in the order of changes it comes later.
            let still_listed = |row: &OrganizationSummaryRow, stored: &StoredOrganization| match filter.updated_since {
                Some(_) => stored.change_key() == row.changed,
                None => filter.matches_organization(&stored.organization),
            };
            let pairs = pairs.filter(|(row, stored)| still_listed(row, stored));
            Ok(pairs.map(|(row, stored)| (row.list_key(filter), stored.organization)).collect())
        },
    )
    .await
}

type SummaryPage = (Vec<OrganizationSummaryRow>, Option<OrganizationListKey>);

async fn list_newest(
    db: &Db,
    filter: &Filter,
    after: Option<OrganizationListKey>,
    limit: usize,
) -> Result<SummaryPage> {
    let below = after.and_then(ListKey::newest);
    let below = below.unwrap_or((Timestamp::from_millis(i64::MAX), OrganizationId::NONE));
    let least = (Timestamp::from_millis(0), OrganizationId::NONE);
    let archived = filter.effective_archived().unwrap_or(false);
    let walk = IndexWalk::new(BY_CREATION, vec![vec![archived.into()]], least..below, filter.words.is_empty());
    let creation = |row: &OrganizationSummaryRow| (row.created_at, row.id);
    let (rows, next) = walk.load_page(db, limit, creation, |row| row.matches_filter(filter)).await?;
    Ok((rows, next.map(ListKey::Newest)))
}

/// Changed organizations in the order of changes.
async fn list_changes(
    db: &Db,
    filter: &Filter,
    since: Timestamp,
    after: Option<OrganizationListKey>,
    limit: usize,
) -> Result<SummaryPage> {
    let select = Select::new(CHANGES).use_index("organizations_by_change");
    let walk = &ChangeWalk { delta: DELTA, select, since, until: db.last_tick().await?, with_values: None };
    let start = (after.and_then(ListKey::change), limit, limit + 1);
    let changed = |row: &OrganizationSummaryRow| row.changed;
    let (rows, next) = fill_page(&mut RowBudget::default(), start, changed, |after, rows| async move {
        let step = walk.read_step(db, after, rows, changed).await?;
        Ok(step.retain_matches(|row| row.matches_filter(filter)))
    })
    .await?;
    Ok((rows, next.map(ListKey::Change)))
}

impl OrganizationSummaryRow {
    fn matches_filter(&self, filter: &Filter) -> bool {
        filter.effective_archived().is_none_or(|archived| archived == self.archived)
            && filter.has_words(&self.name, &self.slug, self.external_id.as_deref(), &self.domains)
    }

    fn list_key(&self, filter: &Filter) -> OrganizationListKey {
        match filter.updated_since {
            Some(_) => ListKey::Change(self.changed),
            None => ListKey::Newest((self.created_at, self.id)),
        }
    }
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
