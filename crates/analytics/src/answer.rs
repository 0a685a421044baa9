//! The answers of both routes: JSON, or a file.

use axum::response::{IntoResponse, Response};
use kernel::base::{Error, Result};
use kernel::http::{Access, Ok200, ResponseDocs, Route, RowBatch, Streamed, Streamer};
use serde::Serialize;
use utoipa::openapi::{ContentBuilder, Ref, RefOr};
use utoipa::{IntoResponses, ToSchema};

use crate::csv;
use crate::families::Families;
use crate::report::ReportRequest;

pub enum AnalyticsAnswer<T> {
    Figures(Box<T>),
    File(Streamed),
}

impl<T: Serialize> IntoResponse for AnalyticsAnswer<T> {
    fn into_response(self) -> Response {
        match self {
            AnalyticsAnswer::Figures(figures) => Ok200(*figures).into_response(),
            AnalyticsAnswer::File(file) => file.into_response(),
        }
    }
}

/// A file with `include=searches`.
const EXAMPLE: &str = "start,searches.count,searches.without_result,searches.latency_ms.p50,searches.latency_ms.p99\r\n\
                       2026-11-16T00:00:00.000Z,12,1,0.7,2.4\r\n";

impl<T: ToSchema> IntoResponses for AnalyticsAnswer<T> {
    fn responses() -> ResponseDocs {
        let mut all = Streamed::responses();
        if let Some(RefOr::T(response)) = all.get_mut("200") {
            response.description.clear();
            response.description.push_str("The figures; with `format=csv` a row for each bucket.");
            response.content.retain(|media_type, _| media_type.starts_with("text/csv"));
            for file in response.content.values_mut() {
                if let RefOr::T(file) = file {
                    file.example = Some(EXAMPLE.into());
                }
            }
            let schema = Ref::from_schema_name(T::name());
            let json = ContentBuilder::new().schema(Some(schema)).build();
            response.content.insert("application/json".to_owned(), json.into());
        }
        all
    }
}

/// The series as a file.
pub async fn stream_rows<R: Route>(
    caller: Access<R>,
    streamer: Streamer,
    families: &Families,
    request: &ReportRequest,
) -> Result<Streamed> {
    let starts = request.bounds.split_last().map(|(_, starts)| starts).unwrap_or_default();
    let (rows, encoding) = csv::to_rows(families, starts);
    let mut rows = Some(rows);
    let read = move |_: Option<()>| {
        let rows = rows.take().ok_or_else(|| Error::internal("a file of one page is read once"));
        async move { Ok(RowBatch { rows: rows?, next: None }) }
    };
    Ok(streamer.stream_rows(caller, encoding, read).await?.with_file_name("analytics"))
}
