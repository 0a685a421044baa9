//! SQL of documents: reads records by id, and walks over all records of all tenants.
//!
//! All statements run on the system handle, so each names the tenant itself. Deleted records are filtered after the
//! statement, because a condition in it would make SQLite use another index.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fleet::devices::{ALL_ORGANIZATIONS, SOFTWARE_DIMENSION};
use kernel::args;
use kernel::base::{Error, Result, TenantId};
use kernel::store::{Db, FromRow, Param, Row, Select, Value};
use serde::de::DeserializeOwned;

use super::rules::{
    IndexedDevice, IndexedOrganization, IndexedSoftware, IndexedTicket, IndexedUser, IndexedVm, IndexedWorkflow,
};
use super::{DocumentKind, SearchDocument};

kernel::columns! {
    /// The network cards are a subquery per row, because the planner could start a join with them.
    struct IndexedDeviceColumns {
        tenant_id = "d.tenant_id", id = "d.id", hostname = "d.hostname", display_name = "d.display_name",
        r#type = "d.type", platform = "d.platform", os_name = "d.os_name", os_version = "d.os_version",
        status = "d.status", organization_id = "d.organization_id", manufacturer = "d.manufacturer", model = "d.model",
        serial_number = "d.serial_number", asset_tag = "d.asset_tag", uuid = "d.uuid",
        primary_ip = "d.primary_ip", primary_mac = "d.primary_mac", last_logged_user = "d.last_logged_user", tags = "d.tags",
        first_seen_at = "d.first_seen_at", deleted_at = "d.deleted_at", updated_at = "d.updated_at",
        nics = "(SELECT p.nics FROM device_parts p WHERE p.tenant_id = d.tenant_id AND p.number = d.number)",
    }
}

kernel::columns! {
    /// The description is cut to as many characters as bytes of it are indexed.
    struct IndexedTicketColumns {
        tenant_id, id, number, subject, status, priority, organization_id, requester_name, requester_email,
        assignee_id, team, category, tags, external_id, updated_at, custom_fields,
        description = "substr(description, 1, 8192)",
    }
}

kernel::columns! {
    struct IndexedUserColumns { tenant_id, id, email, name, role, status, updated_at }
}

kernel::columns! {
    struct IndexedOrganizationColumns { tenant_id, id, slug, name, external_id, domains, tags, archived, updated_at }
}

kernel::columns! {
    struct IndexedWorkflowColumns {
        tenant_id = "w.tenant_id", id = "w.id", name = "w.name", enabled = "w.enabled", next_run_at = "w.next_run_at",
        first_event = "(SELECT MIN(p.pattern) FROM workflow_triggers p WHERE p.tenant_id = w.tenant_id AND p.workflow_id = w.id)",
        last_event = "(SELECT MAX(p.pattern) FROM workflow_triggers p WHERE p.tenant_id = w.tenant_id AND p.workflow_id = w.id)",
        deleted_at = "w.deleted_at", updated_at = "w.updated_at",
    }
}

kernel::columns! {
    struct IndexedVmColumns {
        tenant_id, id, name, external_id, region, size_id, state, organization_id, public_ips, private_ips, tags, deleted_at,
        updated_at,
    }
}

kernel::columns! {
    struct IndexedSoftwareColumns { tenant_id, value, label }
}

const DEVICES: &str = kernel::sql!["SELECT ", IndexedDeviceColumns::LIST, " FROM devices d WHERE "];
const TICKETS: &str = kernel::sql!["SELECT ", IndexedTicketColumns::LIST, " FROM tickets WHERE "];
const USERS: &str = kernel::sql!["SELECT ", IndexedUserColumns::LIST, " FROM users WHERE "];
const ORGANIZATIONS: &str = kernel::sql!["SELECT ", IndexedOrganizationColumns::LIST, " FROM organizations WHERE "];
const WORKFLOWS: &str = kernel::sql!["SELECT ", IndexedWorkflowColumns::LIST, " FROM workflows w WHERE "];
const VMS: &str = kernel::sql!["SELECT ", IndexedVmColumns::LIST, " FROM vms WHERE "];
/// The counters over all organizations, which have one row for each name.
const COUNTED: &str =
    kernel::sql!["organization_id = '", ALL_ORGANIZATIONS, "' AND dimension = '", SOFTWARE_DIMENSION, "'"];
const INSTALLED: &str = kernel::sql![
    "SELECT ",
    IndexedSoftwareColumns::LIST,
    " FROM device_counts WHERE tenant_id = $1 AND ",
    COUNTED,
    " AND devices > 0 AND "
];

// Each lookup and each walk uses the table's primary key: (tenant_id, id), or for software
// (tenant_id, organization_id, dimension, value).
kernel::statements! {
    LOOKUP_DEVICE = kernel::sql![DEVICES, "d.tenant_id = $1 AND d.id = $2"];
    LOOKUP_TICKET = kernel::sql![TICKETS, "tenant_id = $1 AND id = $2"];
    LOOKUP_USER = kernel::sql![USERS, "tenant_id = $1 AND id = $2"];
    LOOKUP_ORGANIZATION = kernel::sql![ORGANIZATIONS, "tenant_id = $1 AND id = $2"];
    LOOKUP_WORKFLOW = kernel::sql![WORKFLOWS, "w.tenant_id = $1 AND w.id = $2"];
    LOOKUP_VM = kernel::sql![VMS, "tenant_id = $1 AND id = $2"];
    LOOKUP_SOFTWARE = kernel::sql![INSTALLED, "value = $2"];
    WALK_DEVICES = kernel::sql![DEVICES, "(d.tenant_id, d.id) > ($1, $2) ORDER BY d.tenant_id, d.id LIMIT $3"];
    WALK_TICKETS = kernel::sql![TICKETS, "(tenant_id, id) > ($1, $2) ORDER BY tenant_id, id LIMIT $3"];
    WALK_USERS = kernel::sql![USERS, "(tenant_id, id) > ($1, $2) ORDER BY tenant_id, id LIMIT $3"];
    WALK_ORGANIZATIONS = kernel::sql![ORGANIZATIONS, "(tenant_id, id) > ($1, $2) ORDER BY tenant_id, id LIMIT $3"];
    WALK_WORKFLOWS = kernel::sql![WORKFLOWS, "(w.tenant_id, w.id) > ($1, $2) ORDER BY w.tenant_id, w.id LIMIT $3"];
    WALK_VMS = kernel::sql![VMS, "(tenant_id, id) > ($1, $2) ORDER BY tenant_id, id LIMIT $3"];
    /// Walks one tenant, because the counters of all organizations lie between the software of two tenants.
    WALK_SOFTWARE = kernel::sql![INSTALLED, "value > $2 ORDER BY value LIMIT $3"];
    /// The next tenant that has any software, with one lookup for each tenant.
    NEXT_WITH_SOFTWARE = kernel::sql![
        "SELECT n.id FROM tenants n WHERE n.id > $1 AND (SELECT value FROM device_counts WHERE tenant_id = n.id AND ",
        COUNTED,
        " ORDER BY value LIMIT 1) IS NOT NULL ORDER BY n.id LIMIT 1"
    ];
}

/// The most records in one statement, each with a lookup of its own: with a list of ids, PostgreSQL may scan all records.
const LOOKUPS_MAX: usize = 32;
/// The number of values that a lookup binds: the tenant and the key.
const LOOKUP_VALUES: usize = 2;

/// The position of a walk: every record up to here was returned. The default is before all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkPosition {
    tenant: String,
    /// The record's id, or the name of software.
    key: String,
}

/// Reads the current documents of these records, each once and in no order. Deleted records are missing.
pub async fn read_documents(
    system: &Db,
    kind: DocumentKind,
    ids: &[(TenantId, String)],
) -> Result<Vec<SearchDocument>> {
    match kind {
        DocumentKind::Device => read_rows::<IndexedDevice>(system, ids).await,
        DocumentKind::User => read_rows::<IndexedUser>(system, ids).await,
        DocumentKind::Organization => read_rows::<IndexedOrganization>(system, ids).await,
        DocumentKind::Ticket => read_rows::<IndexedTicket>(system, ids).await,
        DocumentKind::Workflow => read_rows::<IndexedWorkflow>(system, ids).await,
        DocumentKind::Software => read_rows::<IndexedSoftware>(system, ids).await,
        DocumentKind::Vm => read_rows::<IndexedVm>(system, ids).await,
    }
}

/// Reads the next documents of one kind over all tenants, ordered by tenant and key, and the position after which there may
/// be more. A page can be empty although there are more, if all its records are deleted.
pub async fn walk_documents(
    system: &Db,
    kind: DocumentKind,
    after: Option<WalkPosition>,
    limit: usize,
) -> Result<(Vec<SearchDocument>, Option<WalkPosition>)> {
    match (kind, after.unwrap_or_default()) {
        (DocumentKind::Device, after) => walk_rows::<IndexedDevice>(system, after, limit).await,
        (DocumentKind::User, after) => walk_rows::<IndexedUser>(system, after, limit).await,
        (DocumentKind::Organization, after) => walk_rows::<IndexedOrganization>(system, after, limit).await,
        (DocumentKind::Ticket, after) => walk_rows::<IndexedTicket>(system, after, limit).await,
        (DocumentKind::Workflow, after) => walk_rows::<IndexedWorkflow>(system, after, limit).await,
        (DocumentKind::Software, after) => walk_software(system, after, limit).await,
        (DocumentKind::Vm, after) => walk_rows::<IndexedVm>(system, after, limit).await,
    }
}

/// A row of one kind, and its statements.
trait IndexedRecord: FromRow + 'static {
    /// Selects one row by tenant and key.
    const LOOKUP: &'static str;
    /// Selects the next rows after a tenant and a key, with a limit.
    const WALK: &'static str;

    fn walk_position(&self) -> WalkPosition;

    /// Whether only a tombstone is left.
    fn is_gone(&self) -> bool {
        false
    }

    fn to_document(&self) -> SearchDocument;
}

async fn read_rows<F: IndexedRecord>(system: &Db, ids: &[(TenantId, String)]) -> Result<Vec<SearchDocument>> {
    let distinct: BTreeSet<(TenantId, &str)> = ids.iter().map(|(tenant, id)| (*tenant, id.as_str())).collect();
    let ids: Vec<(TenantId, &str)> = distinct.into_iter().collect();
    let mut documents = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(LOOKUPS_MAX) {
        // Lookups that find nothing pad the statement, so that there are few different SQL texts.
        let lookups = chunk.len().next_power_of_two();
        let mut values: Vec<Value> =
            chunk.iter().flat_map(|(tenant, id)| [Value::from(*tenant), Value::from(*id)]).collect();
        values.resize(lookups * LOOKUP_VALUES, Value::from(""));
        let params: Vec<&dyn Param> = values.iter().map(|value| value as &dyn Param).collect();
        let rows: Vec<F> = system.list(&union_lookups(F::LOOKUP, lookups), &params).await?;
        documents.extend(live_documents(&rows));
    }
    Ok(documents)
}

/// Joins `count` lookups to one statement, each with its own values.
fn union_lookups(lookup: &str, count: usize) -> String {
    let mut text = String::with_capacity(count * (lookup.len() + 16));
    for index in 0..count {
        text.push_str(if index == 0 { "" } else { " UNION ALL " });
        let mut parts = lookup.split('$');
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = part.split_at(digits);
            let number: usize = number.parse().unwrap_or_default();
            let _ = write!(text, "${}{rest}", number + index * LOOKUP_VALUES);
        }
    }
    text
}

async fn walk_rows<F: IndexedRecord>(
    system: &Db,
    after: WalkPosition,
    limit: usize,
) -> Result<(Vec<SearchDocument>, Option<WalkPosition>)> {
    let limit = limit.max(1);
    let rows_max = i64::try_from(limit).map_err(Error::internal)?;
    let select = Select::for_system(F::WALK).bind_value(after.tenant).bind_value(after.key).bind_value(rows_max);
    let rows: Vec<F> = system.scan(&select).await?;
    let next = if rows.len() < limit { None } else { rows.last().map(F::walk_position) };
    Ok((live_documents(&rows), next))
}

/// Walks software tenant by tenant. The first page is empty, because no tenant has an empty id.
async fn walk_software(
    system: &Db,
    after: WalkPosition,
    limit: usize,
) -> Result<(Vec<SearchDocument>, Option<WalkPosition>)> {
    let tenant = after.tenant.clone();
    let (documents, next) = walk_rows::<IndexedSoftware>(system, after, limit).await?;
    let next = match next {
        Some(next) => Some(next),
        None => find_software_tenant(system, &tenant).await?,
    };
    Ok((documents, next))
}

/// The position before all software of the next tenant that has any.
async fn find_software_tenant(system: &Db, after: &str) -> Result<Option<WalkPosition>> {
    let tenant: Option<String> = system.find(NEXT_WITH_SOFTWARE, args![after]).await?;
    Ok(tenant.map(|tenant| WalkPosition { tenant, key: String::new() }))
}

fn live_documents<F: IndexedRecord>(rows: &[F]) -> Vec<SearchDocument> {
    rows.iter().filter(|row| !row.is_gone()).map(F::to_document).collect()
}

/// Invalid JSON is not indexed; the other columns of the record still are.
fn parse_json_or_default<T: DeserializeOwned + Default>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_default()
}

impl FromRow for IndexedDevice {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: IndexedDeviceColumns<usize> = IndexedDeviceColumns::AT;
        Ok(IndexedDevice {
            tenant: row.get(AT.tenant_id)?,
            id: row.get(AT.id)?,
            hostname: row.get(AT.hostname)?,
            display_name: row.get(AT.display_name)?,
            r#type: row.get(AT.r#type)?,
            platform: row.get(AT.platform)?,
            os_name: row.get(AT.os_name)?,
            os_version: row.get(AT.os_version)?,
            status: row.get(AT.status)?,
            organization_id: row.get(AT.organization_id)?,
            manufacturer: row.get(AT.manufacturer)?,
            model: row.get(AT.model)?,
            serial_number: row.get(AT.serial_number)?,
            asset_tag: row.get(AT.asset_tag)?,
            uuid: row.get(AT.uuid)?,
            primary_ip: row.get(AT.primary_ip)?,
            primary_mac: row.get(AT.primary_mac)?,
            last_logged_user: row.get(AT.last_logged_user)?,
            tags: parse_json_or_default(&row.get::<String>(AT.tags)?),
            nics: row.get::<Option<String>>(AT.nics)?.map(|nics| parse_json_or_default(&nics)).unwrap_or_default(),
            has_reported: row.get::<Option<i64>>(AT.first_seen_at)?.is_some(),
            is_deleted: row.get::<Option<i64>>(AT.deleted_at)?.is_some(),
            updated_at: row.get(AT.updated_at)?,
        })
    }
}

impl FromRow for IndexedTicket {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: IndexedTicketColumns<usize> = IndexedTicketColumns::AT;
        Ok(IndexedTicket {
            tenant: row.get(AT.tenant_id)?,
            id: row.get(AT.id)?,
            number: row.get(AT.number)?,
            subject: row.get(AT.subject)?,
            status: row.get(AT.status)?,
            priority: row.get(AT.priority)?,
            organization_id: row.get(AT.organization_id)?,
            requester_name: row.get(AT.requester_name)?,
            requester_email: row.get(AT.requester_email)?,
            assignee_id: row.get(AT.assignee_id)?,
            team: row.get(AT.team)?,
            category: row.get(AT.category)?,
            tags: parse_json_or_default(&row.get::<String>(AT.tags)?),
            external_id: row.get(AT.external_id)?,
            custom_fields: parse_json_or_default(&row.get::<String>(AT.custom_fields)?),
            description: row.get(AT.description)?,
            updated_at: row.get(AT.updated_at)?,
        })
    }
}

impl FromRow for IndexedUser {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: IndexedUserColumns<usize> = IndexedUserColumns::AT;
        Ok(IndexedUser {
            tenant: row.get(AT.tenant_id)?,
            id: row.get(AT.id)?,
            email: row.get(AT.email)?,
            name: row.get(AT.name)?,
            role: row.get(AT.role)?,
            is_active: row.get::<String>(AT.status)? == "active",
            updated_at: row.get(AT.updated_at)?,
        })
    }
}

impl FromRow for IndexedOrganization {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: IndexedOrganizationColumns<usize> = IndexedOrganizationColumns::AT;
        Ok(IndexedOrganization {
            tenant: row.get(AT.tenant_id)?,
            id: row.get(AT.id)?,
            slug: row.get(AT.slug)?,
            name: row.get(AT.name)?,
            external_id: row.get(AT.external_id)?,
            domains: parse_json_or_default(&row.get::<String>(AT.domains)?),
            tags: parse_json_or_default(&row.get::<String>(AT.tags)?),
            is_archived: row.get(AT.archived)?,
            updated_at: row.get(AT.updated_at)?,
        })
    }
}

impl FromRow for IndexedWorkflow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: IndexedWorkflowColumns<usize> = IndexedWorkflowColumns::AT;
        Ok(IndexedWorkflow {
            tenant: row.get(AT.tenant_id)?,
            id: row.get(AT.id)?,
            name: row.get(AT.name)?,
            is_enabled: row.get(AT.enabled)?,
            next_run_at: row.get(AT.next_run_at)?,
            first_event: row.get(AT.first_event)?,
            last_event: row.get(AT.last_event)?,
            is_deleted: row.get::<Option<i64>>(AT.deleted_at)?.is_some(),
            updated_at: row.get(AT.updated_at)?,
        })
    }
}

impl FromRow for IndexedVm {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: IndexedVmColumns<usize> = IndexedVmColumns::AT;
        Ok(IndexedVm {
            tenant: row.get(AT.tenant_id)?,
            id: row.get(AT.id)?,
            name: row.get(AT.name)?,
            external_id: row.get(AT.external_id)?,
            region: row.get(AT.region)?,
            size: row.get(AT.size_id)?,
            state: row.get(AT.state)?,
            organization_id: row.get(AT.organization_id)?,
            public_ips: parse_json_or_default(&row.get::<String>(AT.public_ips)?),
            private_ips: parse_json_or_default(&row.get::<String>(AT.private_ips)?),
            tags: parse_json_or_default(&row.get::<String>(AT.tags)?),
            is_deleted: row.get::<Option<i64>>(AT.deleted_at)?.is_some(),
            updated_at: row.get(AT.updated_at)?,
        })
    }
}

impl FromRow for IndexedSoftware {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        const AT: IndexedSoftwareColumns<usize> = IndexedSoftwareColumns::AT;
        Ok(IndexedSoftware { tenant: row.get(AT.tenant_id)?, name: row.get(AT.value)?, label: row.get(AT.label)? })
    }
}

/// Implements `IndexedRecord` for each row: its key, its statements, and its tombstone column if it has one.
macro_rules! impl_indexed_record {
    ($($row:ident by $key:ident, $lookup:ident, $walk:ident $(, $is_gone:ident)?;)*) => {$(
        impl IndexedRecord for $row {
            const LOOKUP: &'static str = $lookup;
            const WALK: &'static str = $walk;

            fn walk_position(&self) -> WalkPosition {
                WalkPosition { tenant: self.tenant.to_string(), key: self.$key.clone() }
            }

            $(fn is_gone(&self) -> bool {
                self.$is_gone
            })?

            fn to_document(&self) -> SearchDocument {
                $row::to_document(self)
            }
        }
    )*};
}

impl_indexed_record! {
    IndexedDevice by id, LOOKUP_DEVICE, WALK_DEVICES, is_deleted;
    IndexedTicket by id, LOOKUP_TICKET, WALK_TICKETS;
    IndexedUser by id, LOOKUP_USER, WALK_USERS;
    IndexedOrganization by id, LOOKUP_ORGANIZATION, WALK_ORGANIZATIONS;
    IndexedWorkflow by id, LOOKUP_WORKFLOW, WALK_WORKFLOWS, is_deleted;
    IndexedVm by id, LOOKUP_VM, WALK_VMS, is_deleted;
    IndexedSoftware by name, LOOKUP_SOFTWARE, WALK_SOFTWARE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_look_has_values_of_its_own() {
        let one = "SELECT a FROM t WHERE tenant_id = $1 AND id = $2";
        assert_eq!(union_lookups(one, 1), one);
        let last = " UNION ALL SELECT a FROM t WHERE tenant_id = $31 AND id = $32";
        assert!(union_lookups(one, 16).ends_with(last), "{}", union_lookups(one, 16));
    }

    #[test]
    fn as_much_of_a_description_is_read_as_is_found() {
        let read = format!("substr(description, 1, {})", super::super::rules::DESCRIPTION_BYTES_MAX);
        assert!(WALK_TICKETS.contains(&read) && LOOKUP_TICKET.contains(&read));
    }
}
