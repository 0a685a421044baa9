//! SQL of what only the operator of the platform sees.

use figures::cells::{DEVICES, REQUESTS, TENANT, TICKETS_CREATED};
use kernel::args;
use kernel::base::Result;
use kernel::keyring::nodes::{RUNNING_MS, list_known_nodes};
use kernel::store::Db;

use super::{Growth, NodeStatus, PlatformNode, TenantCounts, TopTenant, growth_percent};
use crate::grain::START_OF_TIME;
use crate::report::ReportRequest;
use crate::rollups::store::{FigureReader, TimeRange};

kernel::statements! {
    COUNT_TENANTS = "SELECT COUNT(*) FROM tenants WHERE created_at < $1";
    SLUG = "SELECT slug FROM tenants WHERE id = $1";
}

const TOP_TENANTS: usize = 20;

pub async fn read_tenants(
    reader: FigureReader<'_>,
    system: &Db,
    request: &ReportRequest,
) -> Result<(TenantCounts, Vec<TopTenant>, Growth)> {
    let range = request.read_range();
    let until = request.range.until;
    let (since, length) = (range.since, until - range.since);
    let mut tenants: Vec<(String, i64, i64)> = reader
        .read_groups(TENANT, range)
        .await?
        .into_iter()
        .map(|(tenant, figures)| (tenant, figures.count(REQUESTS), figures.count(TICKETS_CREATED)))
        .collect();
    tenants.sort_by(|one, other| (other.1, other.2, &one.0).cmp(&(one.1, one.2, &other.0)));
    let active = tenants.iter().filter(|(_, requests, _)| *requests > 0).count() as i64;
    let mut top_tenants = Vec::new();
    for (tenant, requests, tickets) in tenants.into_iter().take(TOP_TENANTS) {
        // A tenant has its own sums; all of its devices were added since the beginning.
        let own = reader.of_tenant(&tenant).read_level(range.until).await?;
        let Some(slug) = system.find(SLUG, args![tenant]).await? else { continue };
        top_tenants.push(TopTenant { tenant_id: tenant, slug, requests, tickets, devices: own.count(DEVICES) });
    }
    let total: i64 = system.get_one(COUNT_TENANTS, args![until]).await?;
    let tenants_before: i64 = system.get_one(COUNT_TENANTS, args![since]).await?;
    let (now, before) = (reader.read_level(range.until).await?, reader.read_level(since).await?);
    let created = reader.read_range(range).await?.count(TICKETS_CREATED);
    let earlier = TimeRange { since: (since - length).max(START_OF_TIME), until: since };
    let created_before = reader.read_range(earlier).await?.count(TICKETS_CREATED);
    let growth = Growth {
        tenants: growth_percent(tenants_before, total),
        tickets: growth_percent(created_before, created),
        devices: growth_percent(before.count(DEVICES), now.count(DEVICES)),
    };
    Ok((TenantCounts { total, active }, top_tenants, growth))
}

pub async fn list_nodes(system: &Db) -> Result<Vec<PlatformNode>> {
    let now = system.database_now().await?;
    let nodes = list_known_nodes(system).await?.into_iter().map(|node| PlatformNode {
        id: node.node,
        version: node.version,
        started_at: node.started_at,
        last_seen_at: node.seen_at,
        status: if node.seen_at.plus_ms(RUNNING_MS) > now { NodeStatus::Running } else { NodeStatus::Lost },
    });
    Ok(nodes.collect())
}
