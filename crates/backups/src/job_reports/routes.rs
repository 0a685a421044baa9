//! `/internal/ingest/backup`: where scripts report what backup jobs did. It is not in the document.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use fleet::ingest_keys::credential::IngestCredential;
use kernel::base::{Result, run_blocking};
use kernel::http::{Api, CredentialHolder, Json, Ok200, RatePolicy, Rules};
use kernel::rules;

use super::AcceptedReport;
use super::input::JobReport;
use super::store::{SavedReport, judge_report, save_report};

/// The operations of this feature.
pub fn mount(api: Api) -> Api {
    api.add_internal_route(Method::POST, PATH, receive_report).add_schema::<super::JobRun>()
}

pub const PATH: &str = "/internal/ingest/backup";

/// What tools print of a million files.
pub const BODY_BYTES_MAX: usize = 16 << 20;

rules! {
    Reporting = Rules::new(RatePolicy::Ingest, &[]).body_bytes_max(BODY_BYTES_MAX);
}

/// 201 with a new report; 200 with one that was sent before.
pub struct ReportAnswer(SavedReport);

impl IntoResponse for ReportAnswer {
    fn into_response(self) -> Response {
        let (status, report): (StatusCode, AcceptedReport) = match self.0 {
            SavedReport::New(report) => (StatusCode::CREATED, report),
            SavedReport::Repeated(report) => (StatusCode::OK, report),
        };
        let mut response = Ok200(report).into_response();
        *response.status_mut() = status;
        response
    }
}

/// Receives a report.
pub async fn receive_report(
    sender: CredentialHolder<IngestCredential, Reporting>,
    body: Json<JobReport>,
) -> Result<ReportAnswer> {
    // Reading what a tool has printed occupies a thread and memory.
    let (body, parser) = body.read_in_turn(async || sender.acquire_parser().await).await?;
    let judged = run_blocking(move || Ok(judge_report(body.value))).await?;
    drop(parser);
    save_report(&sender.db(), *sender.reach(), judged).await.map(ReportAnswer)
}
