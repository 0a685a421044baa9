//! The parameters of both routes.

use feature_kit::schedule::parse_zone;
use jiff::tz::TimeZone;
use kernel::base::{Code, DAY_MS, Error, Result, StringEnum, Timestamp};
use kernel::http::{Params, QueryParam};

use crate::buckets::{BUCKETS_MAX, Interval, bucket_bounds};
use crate::families::Family;
use crate::report::ReportRequest;
use crate::rollups::store::TimeRange;

kernel::string_enum! {
    /// `csv` has a row for each bucket.
    #[schema(as = AnalyticsFormat)]
    pub enum FigureFormat { Json "json", Csv "csv" }
}

/// What a route is asked for, before it is known what the time is.
pub struct FigureQuery {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    pub interval: Interval,
    pub timezone: String,
    zone: TimeZone,
    families: Option<Vec<Family>>,
    pub format: FigureFormat,
}

/// The range when none is given.
const DEFAULT_RANGE_MS: i64 = 30 * DAY_MS;
/// Before this there was nothing to count.
const EARLIEST: Timestamp = Timestamp::from_millis(0);
/// The year 2200.
const LATEST: Timestamp = Timestamp::from_millis(7_258_118_400_000);

impl FigureQuery {
    pub fn take_query(params: &mut Params) -> Result<Self> {
        let since = "The range begins at this moment. 30 days before its end when omitted.";
        let until = "The range ends before this moment. Now when omitted.";
        let interval = "How long a bucket of `series` is. A day when omitted.";
        let timezone = "The time zone of the buckets, such as `Europe/Berlin`. UTC when omitted.";
        let include = "Only these families of figures, as a comma list. All when omitted.";
        let format = "`csv` is `series` as a file, with a row for each bucket; counted as an export.";
        let (since, until) = (take_moment(params, "since", since)?, take_moment(params, "until", until)?);
        let interval = params.take_enum(QueryParam::new("interval", interval))?.unwrap_or(Interval::Day);
        let parse = |name: &str| parse_zone(name).map(|zone| (name.to_owned(), zone)).map_err(|fault| fault.detail);
        let zone = params.take_parsed(QueryParam::new("timezone", timezone).with_length(1, 64), parse)?;
        let (timezone, zone) = zone.unwrap_or_else(|| ("UTC".to_owned(), TimeZone::UTC));
        let families = params.take_enums(QueryParam::new("include", include))?;
        let format = params.take_enum(QueryParam::new("format", format))?.unwrap_or(FigureFormat::Json);
        Ok(FigureQuery { since, until, interval, timezone, zone, families, format })
    }

    pub fn into_request(self, now: Timestamp) -> Result<ReportRequest> {
        let until = self.until.unwrap_or(now);
        let since = self.since.unwrap_or_else(|| until.plus_ms(-DEFAULT_RANGE_MS).max(EARLIEST));
        if since >= until {
            let detail = "The query parameter since must be before until, which is now when it is omitted.";
            return Err(Error::new(Code::InvalidParameter, detail));
        }
        let is_until_now = self.until.is_none_or(|until| until > now);
        let range = TimeRange { since: since.as_millis(), until: until.as_millis() };
        let bounds = bucket_bounds(range, self.interval, &self.zone)?.ok_or_else(|| {
            let interval = self.interval.as_str();
            let detail = format!(
                "From since to until there are more than {BUCKETS_MAX} buckets by {interval}. Ask for a shorter range, or a \
                 longer interval."
            );
            Error::new(Code::InvalidParameter, detail)
        })?;
        let mut families = self.families.unwrap_or_else(|| Family::ALL.to_vec());
        families.sort();
        families.dedup();
        Ok(ReportRequest { range, is_until_now, bounds, families, now })
    }
}

fn take_moment(params: &mut Params, name: &'static str, about: &'static str) -> Result<Option<Timestamp>> {
    match params.take_time(QueryParam::new(name, about))? {
        Some(at) if !(EARLIEST..=LATEST).contains(&at) => {
            let detail = format!("The query parameter {name} must be between 1970 and 2200.");
            Err(Error::new(Code::InvalidParameter, detail))
        }
        at => Ok(at),
    }
}
