//! `/api/analytics/tenant`

use kernel::auth::Scope;
use kernel::base::Result;
use kernel::http::{Access, Api, FromParams, Params, QueryString, RatePolicy, Rules, Streamer};
use kernel::operations;
use kernel::rules;

use super::TenantAnalytics;
use crate::answer::{AnalyticsAnswer, Asked, answer_asked};
use crate::csv::FigureFile;
use crate::families::Family;
use crate::query::{FigureFormat, FigureQuery};
use crate::report::read_families;
use crate::rollups::store::FigureReader;

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(read_tenant_analytics))
        .add_schema::<TenantAnalytics>()
        .add_schema::<Family>()
        .add_schema::<FigureFormat>()
}

const PATH: &str = "/api/analytics/tenant";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::AnalyticsRead]).or_export();
}

pub struct AnalyticsQuery(FigureQuery);

impl FromParams for AnalyticsQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        FigureQuery::take_query(params).map(AnalyticsQuery)
    }
}

/// Read the figures of the tenant
///
/// `totals` are of exactly the range, from `since` to before `until`. `series` has every hour, day or week that the range
/// reaches into, as a whole, and with zeros where nothing happened; so they add up to `totals` where `since` and `until` are
/// bounds of buckets. Levels such as `open` are as they were at the end of the range, or of the bucket. Figures are at most two
/// seconds late.
#[utoipa::path(
    get, path = PATH, tag = "Search and reporting", operation_id = "read_tenant_analytics",
    params(QueryString<AnalyticsQuery>)
)]
pub async fn read_tenant_analytics(
    caller: Access<Reading>,
    streamer: Streamer,
    query: QueryString<AnalyticsQuery>,
) -> Result<AnalyticsAnswer<TenantAnalytics>> {
    let db = caller.db();
    let AnalyticsQuery(query) = query.parse()?;
    let (interval, timezone, format) = (query.interval, query.timezone.clone(), query.format);
    let request = query.into_request(caller.app().env.now())?;
    let calculate = async move {
        let families = read_families(FigureReader::Tenant(&db), &request).await?;
        if format == FigureFormat::Csv {
            return Ok(Asked::File(Box::new(FigureFile::new(families, &request))));
        }
        let (since, until) = request.moments();
        Ok(Asked::Figures(Box::new(TenantAnalytics { since, until, interval, timezone, families })))
    };
    answer_asked(caller, streamer, Box::pin(calculate)).await
}
