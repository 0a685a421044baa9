//! `/internal/ingest/inventory`: the one endpoint of agents.

use std::time::Duration;

use agent_reports::{
    AgentInfo, AgentMessage, AgentReport, Codec, DeviceFacts, MessageFormat, ReportRefusal, ReportRefusalKind,
};
use axum::http::HeaderMap;
use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use kernel::base::{Code, Error, Result, run_blocking, sha256_parts};
use kernel::http::{Api, CredentialHolder, RatePolicy, Raw, RawAnswer, RawBody, RenderedError, Rules, WorkPermit};
use kernel::rules;
use kernel::store::Db;

use super::Reporter;
use super::matching::ReportedMachine;
use super::store::{self, IncomingReport, SignOfLife};
use crate::devices::{DeviceSettings, software};
use crate::ingest_keys::credential::IngestCredential;

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_internal_route(Method::POST, PATH, receive_message).add_internal_route(
        Method::GET,
        PATH,
        answer_configuration,
    )
}

pub const PATH: &str = "/internal/ingest/inventory";

/// The largest body as sent; inflated it may have [`agent_reports::INFLATED_BYTES_MAX`].
pub const BODY_BYTES_MAX: usize = 16 << 20;

/// Media types that agents send. Some agents use one for everything, so the first bytes decide.
const MEDIA_TYPES: &[&str] = &[
    "application/x-compress-zlib",
    "application/x-compress-gzip",
    "application/x-compress",
    "application/x-zlib",
    "application/zlib",
    "application/x-gzip",
    "application/gzip",
    "application/xml",
    "text/xml",
    "application/json",
    "application/octet-stream",
];

rules! {
    Ingesting = Rules::new(RatePolicy::Ingest, &[]).media_types(MEDIA_TYPES).body_bytes_max(BODY_BYTES_MAX).with_error_renderer(render_error);
}

pub const MALFORMED_REPORT: Code = Code::new(
    400,
    "malformed_report",
    "The report of an agent cannot be read",
    "It is cut off, not well formed, or of a kind that is not taken here. The detail says what is wrong.",
    "The body ends before the compressed data does.",
);

/// The header in which agents that can speak JSON send their permanent id.
const AGENT_ID: &str = "glpi-agent-id";
/// Shorter bodies are contacts, or inventories so small that comparing digests saves nothing.
const INVENTORY_BYTES_MIN: usize = 1_024;

/// The largest body that stays in memory without a parser permit.
const UNPARSED_BYTES_MAX: usize = 1 << 20;

/// Receives a contact or an inventory of an agent.
pub async fn receive_message(
    agent: CredentialHolder<IngestCredential, Ingesting>,
    headers: HeaderMap,
    body: Raw,
) -> Result<RawAnswer> {
    let body = body.read_body().await?;
    let report = agent.acquire_report().await?;
    let parser = agent.acquire_parser().await?;
    // A task of its own: a disconnecting agent must not release its parser permit while its body is still parsed.
    tokio::spawn(process_body(agent, headers, body, report, parser)).await.map_err(Error::internal)?
}

/// Parses a body and processes its message. The parser permit is released once the body is parsed and freed, the report
/// permit once the report is saved and most software is indexed: reports cannot arrive faster than they are indexed.
async fn process_body(
    agent: CredentialHolder<IngestCredential, Ingesting>,
    headers: HeaderMap,
    body: RawBody,
    _report: WorkPermit,
    parser: WorkPermit,
) -> Result<RawAnswer> {
    let settings: DeviceSettings = agent.app().settings.feature_settings();
    let media_type = body.media_type;
    let reporter = Reporter { organization: agent.reach().organization_id, agent_id: agent_id_from_headers(&headers) };
    let (db, reach, sender) = (agent.db(), *agent.reach(), reporter.clone());
    let opening = move || {
        // Moved in whole, with its memory permit.
        let body = body;
        open_body(&body.bytes, &sender)
    };
    let OpenedBody { codec, bytes, digest } = run_blocking(opening).await?;
    let answer = |plain: Vec<u8>| Ok(RawAnswer { media_type, bytes: agent_reports::encode_answer(codec, &plain) });
    let mut parser = Some(parser);
    if bytes.len() >= INVENTORY_BYTES_MIN
        && let Some(device) = store::find_unchanged_device(&db, reach, &digest).await?
    {
        parser = parser.filter(|_| bytes.len() > UNPARSED_BYTES_MAX);
        if store::record_sign_of_life(&db, settings, reach, device, SignOfLife::Inventory).await? {
            let format = agent_reports::detect_format(&bytes).unwrap_or(MessageFormat::Xml);
            return answer(inventory_answer(format, agent_from_headers(&headers).as_ref(), settings));
        }
    }
    let parser = match parser {
        Some(parser) => parser,
        None => agent.acquire_parser().await?,
    };
    let parsing = move || parse_body(&bytes).map_err(refusal_error);
    let (format, message) = run_blocking(parsing).await?;
    drop(parser);
    match message {
        ParsedMessage::Reports(reports) => {
            let of_header = agent_from_headers(&headers);
            let first = reports.first().and_then(|(report, _)| report.agent.clone());
            let reply = inventory_answer(format, first.or(of_header.clone()).as_ref(), settings);
            let mut refused = Ok(());
            for (mut report, facts) in reports {
                report.agent = report.agent.take().or_else(|| of_header.clone());
                // The counters of a scan differ every time, and one message describes several devices.
                let digest = Some(digest.clone()).filter(|_| !report.partial && facts.scan.is_none());
                let incoming = IncomingReport { reach, reporter: reporter.clone(), report, facts, digest };
                // A scan beyond the limit of devices still reports those that are known.
                match store::save_report(&db, settings, incoming).await {
                    Err(error) if error.code() == Code::LimitReached => refused = Err(error),
                    saved => saved?,
                }
            }
            index_software(&db).await;
            refused?;
            answer(reply)
        }
        ParsedMessage::Contact { device_id } => {
            store::record_contact(&db, settings, reach, &reporter, &device_id).await?;
            answer(match format {
                MessageFormat::Json => agent_reports::json_contact(report_hours(settings)),
                // An agent that can speak JSON switches to it after a JSON answer.
                MessageFormat::Xml if reporter.agent_id.is_some() => agent_reports::json_ok(report_hours(settings)),
                MessageFormat::Xml => agent_reports::xml_prolog(report_hours(settings)),
            })
        }
        ParsedMessage::Other(name) => {
            let detail = format!("Only contact messages and inventories are accepted here, not {name}.");
            Err(Error::new(MALFORMED_REPORT, detail))
        }
    }
}

/// Longest wait for the software index after a report is saved.
const INDEX_WAIT_MAX: Duration = Duration::from_secs(10);

/// The report is saved; its agent waits while software is indexed. The job indexes the rest, or what failed.
async fn index_software(db: &Db) {
    if let Ok(Err(error)) = tokio::time::timeout(INDEX_WAIT_MAX, software::store::index_most(db)).await {
        tracing::warn!(%error, "failed to index device software; will retry");
    }
}

/// Agents ask here for tasks other than inventory. There are none.
pub async fn answer_configuration(_: CredentialHolder<IngestCredential, Ingesting>) -> Result<RawAnswer> {
    Ok(RawAnswer { media_type: "application/json", bytes: b"{}".to_vec() })
}

/// An inflated body with the digest of its content and sender.
struct OpenedBody {
    codec: Codec,
    bytes: Vec<u8>,
    digest: String,
}

fn open_body(body: &[u8], reporter: &Reporter) -> Result<OpenedBody> {
    let codec = agent_reports::detect_codec(body).map_err(refusal_error)?;
    let bytes = agent_reports::inflate_body(body, codec).map_err(refusal_error)?.into_owned();
    // The sender is part of the digest: the same body from another sender is another device.
    let organization = reporter.organization.map(|id| id.to_string()).unwrap_or_default();
    let sender = [organization.as_bytes(), b"\n", reporter.agent_id.as_deref().unwrap_or_default().as_bytes(), b"\n"];
    let digest = sha256_parts(sender.into_iter().chain(agent_reports::fingerprint_parts(&bytes)));
    Ok(OpenedBody { codec, digest: BASE64.encode(digest), bytes })
}

/// A message with the facts of its reports.
enum ParsedMessage {
    Contact {
        device_id: String,
    },
    /// One inventory, or a scan of any number of devices.
    Reports(Vec<(AgentReport, DeviceFacts)>),
    Other(String),
}

fn parse_body(bytes: &[u8]) -> Result<(MessageFormat, ParsedMessage), ReportRefusal> {
    let (format, message) = agent_reports::parse_message(bytes)?;
    let reports = match message {
        AgentMessage::Contact { device_id } => return Ok((format, ParsedMessage::Contact { device_id })),
        AgentMessage::Other(name) => return Ok((format, ParsedMessage::Other(name))),
        AgentMessage::Inventory(report) => vec![*report],
        AgentMessage::Scan(reports) => reports,
    };
    let with_facts = |mut report: AgentReport| {
        let facts = agent_reports::extract_facts(&mut report);
        let is_of_host = report.device_id.is_none() && facts.scan.is_none();
        if is_of_host && !ReportedMachine::from_facts(&facts).is_recognizable() {
            let detail = "A VMware host has no UUID, serial number, name or hardware address to be recognized by.";
            return Err(ReportRefusal::malformed(detail));
        }
        Ok((report, facts))
    };
    let reports: Result<Vec<_>, ReportRefusal> = reports.into_iter().map(with_facts).collect();
    Ok((format, ParsedMessage::Reports(reports?)))
}

fn report_hours(settings: DeviceSettings) -> u32 {
    u32::try_from(settings.report_hours).unwrap_or(24)
}

/// The answer to an accepted inventory.
fn inventory_answer(format: MessageFormat, agent: Option<&AgentInfo>, settings: DeviceSettings) -> Vec<u8> {
    match format {
        MessageFormat::Json => agent_reports::json_ok(report_hours(settings)),
        MessageFormat::Xml => agent_reports::xml_inventory_for(agent),
    }
}

/// Some agents name themselves only in the User-Agent header.
fn agent_from_headers(headers: &HeaderMap) -> Option<AgentInfo> {
    headers.get("user-agent").and_then(|value| AgentInfo::from_label(value.to_str().ok()?))
}

fn agent_id_from_headers(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(AGENT_ID)?.to_str().ok()?.trim();
    agent_reports::real_uuid(id)
}

fn refusal_error(refusal: ReportRefusal) -> Error {
    match refusal.kind {
        ReportRefusalKind::TooLarge | ReportRefusalKind::TooMany => Error::new(Code::PayloadTooLarge, refusal.detail),
        ReportRefusalKind::Unsupported => Error::new(Code::UnsupportedMediaType, refusal.detail),
        ReportRefusalKind::Malformed => Error::new(MALFORMED_REPORT, refusal.detail),
    }
}

/// Agents that speak JSON print the error message; the others print only the status.
fn render_error(headers: &HeaderMap, error: &Error) -> Option<RenderedError> {
    let is_json = headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let rendered =
        || RenderedError { media_type: "application/json", body: agent_reports::json_error(error.detail()).into() };
    (is_json || headers.contains_key(AGENT_ID)).then(rendered)
}
