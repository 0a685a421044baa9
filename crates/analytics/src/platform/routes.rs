//! `/api/analytics/platform`

use kernel::auth::Scope;
use kernel::base::Result;
use kernel::http::{Access, Api, FromParams, Params, QueryString, RatePolicy, Rules, Streamer};
use kernel::operations;
use kernel::rules;

use super::{PlatformAnalytics, store};
use crate::answer::{AnalyticsAnswer, Asked, answer_asked};
use crate::csv::FigureFile;
use crate::query::{FigureFormat, FigureQuery};
use crate::report::read_families;
use crate::rollups::store::FigureReader;

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(read_platform_analytics)).add_schema::<PlatformAnalytics>()
}

const PATH: &str = "/api/analytics/platform";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::PlatformRead]).or_export();
}

pub struct PlatformQuery(FigureQuery);

impl FromParams for PlatformQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        FigureQuery::take_query(params).map(PlatformQuery)
    }
}

/// Read the figures of the platform
///
/// The same figures as those of a tenant, of all tenants together, and what only an operator may see: which tenants there are,
/// how much they do, and which nodes serve them. For platform operators, and for keys with `platform:read` that they made.
#[utoipa::path(
    get, path = PATH, tag = "Search and reporting", operation_id = "read_platform_analytics",
    params(QueryString<PlatformQuery>)
)]
pub async fn read_platform_analytics(
    caller: Access<Reading>,
    streamer: Streamer,
    query: QueryString<PlatformQuery>,
) -> Result<AnalyticsAnswer<PlatformAnalytics>> {
    let system = caller.platform_db();
    let PlatformQuery(query) = query.parse()?;
    let (interval, timezone, format) = (query.interval, query.timezone.clone(), query.format);
    let request = query.into_request(caller.app().env.now())?;
    let calculate = async move {
        let reader = FigureReader::Platform(&system);
        let families = read_families(reader, &request).await?;
        if format == FigureFormat::Csv {
            return Ok(Asked::File(Box::new(FigureFile::new(families, &request))));
        }
        let (tenants, top_tenants, growth) = store::read_tenants(reader, &system, &request).await?;
        let nodes = store::list_nodes(&system).await?;
        let (since, until) = request.moments();
        let figures =
            PlatformAnalytics { since, until, interval, timezone, tenants, top_tenants, growth, nodes, families };
        Ok(Asked::Figures(Box::new(figures)))
    };
    answer_asked(caller, streamer, Box::pin(calculate)).await
}
