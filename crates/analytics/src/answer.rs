//! The answers of both routes: JSON, or a file.

use std::marker::PhantomData;

use axum::response::{IntoResponse, Response};
use kernel::base::Result;
use kernel::http::{Access, Ok200, ResponseDocs, Route, Streamed, Streamer};
use serde::Serialize;
use utoipa::openapi::{ContentBuilder, Ref, RefOr};
use utoipa::{IntoResponses, ToSchema};

use crate::csv::FigureFile;

/// What was asked for.
pub enum Asked<T> {
    Figures(Box<T>),
    File(Box<FigureFile>),
}

pub struct AnalyticsAnswer<T> {
    response: Response,
    figures: PhantomData<T>,
}

impl<T> IntoResponse for AnalyticsAnswer<T> {
    fn into_response(self) -> Response {
        self.response
    }
}

/// Calculates figures and writes them down, megabytes of them, where nobody else waits; a file is written page by page.
pub async fn answer_asked<R: Route, T: Serialize + Send + 'static>(
    caller: Access<R>,
    streamer: Streamer,
    calculate: impl Future<Output = Result<Asked<T>>> + Send + 'static,
) -> Result<AnalyticsAnswer<T>> {
    let written = async {
        Ok(match calculate.await? {
            Asked::Figures(figures) => Asked::Figures(Box::new(Ok200(*figures).into_response())),
            Asked::File(file) => Asked::File(file),
        })
    };
    let response = match caller.calculate(written).await? {
        Asked::Figures(response) => *response,
        Asked::File(file) => file.stream(caller, streamer).await?.into_response(),
    };
    Ok(AnalyticsAnswer { response, figures: PhantomData })
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
