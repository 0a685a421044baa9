//! `/internal/ingest/inventory`: the one endpoint of agents.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use kernel::base::{Code, Error, Result, sha256_parts};
use kernel::http::{Api, Holder, Policy, Raw, RawAnswer, RawBody, Rules, Spoken, WorkPermit};
use kernel::rules;
use kernel::store::Db;

use super::Reporter;
use super::store::{self, Sign, Taken};
use crate::devices::{Settings, software};
use crate::ingest_keys::pass::IngestPass;
use agent_reports::{Codec, Facts, Language, Message, Refusal, RefusalKind, Report};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.internal(Method::POST, PATH, receive).internal(Method::GET, PATH, configure)
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
    Ingesting = Rules::new(Policy::Ingest, &[]).media_types(MEDIA_TYPES).body_bytes_max(BODY_BYTES_MAX).speaking(speak);
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
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Receives a contact or an inventory of an agent.
pub async fn receive(agent: Holder<IngestPass, Ingesting>, headers: HeaderMap, body: Raw) -> Result<RawAnswer> {
    let body = body.read().await?;
    let report = agent.acquire_report().await?;
    let parser = agent.acquire_parser().await?;
    // A task of its own: a disconnecting agent must not release its parser permit while its body is still parsed.
    tokio::spawn(take_in(agent, headers, body, report, parser)).await.map_err(Error::internal)?
}

/// Parses a body and processes its message. The parser permit is released once the body is parsed and freed, the report
/// permit once the report is saved and most software is indexed: reports cannot arrive faster than they are indexed.
async fn take_in(
    agent: Holder<IngestPass, Ingesting>,
    headers: HeaderMap,
    body: RawBody,
    _report: WorkPermit,
    parser: WorkPermit,
) -> Result<RawAnswer> {
    let settings: Settings = agent.app().settings.of_feature();
    let media_type = body.media_type;
    let reporter = Reporter { organization: agent.reach().organization_id, agent_id: agent_id(&headers) };
    let (db, reach, who) = (agent.db(), *agent.reach(), reporter.clone());
    let opening = move || {
        // Moved in whole, with its memory permit.
        let body = body;
        open(&body.bytes, &who)
    };
    let Opened { codec, bytes, digest } = blocking(opening).await?;
    let answer = |plain: Vec<u8>| Ok(RawAnswer { media_type, bytes: agent_reports::encode(codec, &plain) });
    let mut parser = Some(parser);
    if bytes.len() >= INVENTORY_BYTES_MIN
        && let Some(heard) = store::find_unchanged(&db, reach, &digest).await?
    {
        parser = parser.filter(|_| bytes.len() > WAITING_BYTES_MAX);
        if store::note(&db, settings, reach, heard, Sign::Inventory).await? {
            return answer(done(language_of(&bytes), named(&headers).as_ref(), settings));
        }
    }
    let parser = match parser {
        Some(parser) => parser,
        None => agent.acquire_parser().await?,
    };
    let (language, message) = blocking(move || agent_reports::parse(&bytes).map(with_facts).map_err(refused)).await?;
    drop(parser);
    match message {
        Read::Inventory(taken) => {
            let (mut report, facts) = *taken;
            report.agent = report.agent.take().or_else(|| named(&headers));
            let reply = done(language, report.agent.as_ref(), settings);
            let digest = Some(digest).filter(|_| !report.partial);
            store::take(&db, settings, Taken { reach, reporter, report, facts, digest }).await?;
            index(&db).await;
            answer(reply)
        }
        Read::Question { device_id } => {
            store::note_alive(&db, settings, reach, &reporter, &device_id).await?;
            answer(match language {
                Language::Json => agent_reports::json_contact(hours(settings)),
                // An agent that can speak JSON switches to it after a JSON answer.
                Language::Xml if reporter.agent_id.is_some() => agent_reports::json_ok(hours(settings)),
                Language::Xml => agent_reports::xml_prolog(hours(settings)),
            })
        }
        Read::Other(name) => {
            let detail = format!("Only questions and inventories are taken here, not {name}.");
            Err(Error::new(MALFORMED_REPORT, detail))
        }
    }
}

/// Longest wait for the software index after a report is saved.
const INDEX_WAIT_MAX: Duration = Duration::from_secs(10);

/// The report is saved; its agent waits while software is indexed. The job indexes the rest, or what failed.
async fn index(db: &Db) {
    if let Ok(Err(error)) = tokio::time::timeout(INDEX_WAIT_MAX, software::store::index_most(db)).await {
        tracing::warn!(%error, "failed to index device software; will retry");
    }
}

/// Agents ask here for tasks other than inventory. There are none.
pub async fn configure(_: Holder<IngestPass, Ingesting>) -> Result<RawAnswer> {
    Ok(RawAnswer { media_type: "application/json", bytes: b"{}".to_vec() })
}

/// An inflated body with the digest of its content and sender.
struct Opened {
    codec: Codec,
    bytes: Vec<u8>,
    digest: String,
}

fn open(body: &[u8], reporter: &Reporter) -> Result<Opened> {
    let codec = agent_reports::detect(body).map_err(refused)?;
    let bytes = agent_reports::inflate(body, codec).map_err(refused)?.into_owned();
    // The sender is part of the digest: the same body from another sender is another device.
    let organization = reporter.organization.map(|id| id.to_string()).unwrap_or_default();
    let who = [organization.as_bytes(), b"\n", reporter.agent_id.as_deref().unwrap_or_default().as_bytes(), b"\n"];
    let digest = sha256_parts(who.into_iter().chain(agent_reports::fingerprint_parts(&bytes)));
    Ok(Opened { codec, digest: BASE64.encode(digest), bytes })
}

/// The message of a body, with its facts extracted.
enum Read {
    Inventory(Box<(Report, Facts)>),
    Question { device_id: String },
    Other(String),
}

fn with_facts((language, message): (Language, Message)) -> (Language, Read) {
    let read = match message {
        Message::Inventory(mut report) => {
            let facts = agent_reports::facts(&mut report);
            Read::Inventory(Box::new((*report, facts)))
        }
        Message::Prolog { device_id } | Message::Contact { device_id, .. } => Read::Question { device_id },
        Message::Other(name) => Read::Other(name),
    };
    (language, read)
}

fn hours(settings: Settings) -> u32 {
    u32::try_from(settings.report_hours).unwrap_or(24)
}

/// The answer to an accepted inventory.
fn done(language: Language, agent: Option<&agent_reports::Agent>, settings: Settings) -> Vec<u8> {
    match language {
        Language::Json => agent_reports::json_ok(hours(settings)),
        Language::Xml => agent_reports::xml_inventory_for(agent),
    }
}

fn language_of(bytes: &[u8]) -> Language {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace() && byte.is_ascii());
    if first == Some(&b'{') { Language::Json } else { Language::Xml }
}

/// Some agents name themselves only in the User-Agent header.
fn named(headers: &HeaderMap) -> Option<agent_reports::Agent> {
    headers.get("user-agent").and_then(|value| agent_reports::Agent::named(value.to_str().ok()?))
}

fn agent_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(AGENT_ID)?.to_str().ok()?.trim();
    agent_reports::real_uuid(id)
}

fn refused(refusal: Refusal) -> Error {
    match refusal.kind {
        RefusalKind::TooLarge | RefusalKind::TooMany => Error::new(Code::PayloadTooLarge, refusal.detail),
        RefusalKind::Unsupported => Error::new(Code::UnsupportedMediaType, refusal.detail),
        RefusalKind::Malformed => Error::new(MALFORMED_REPORT, refusal.detail),
    }
}

/// Agents that speak JSON print the error message; the others print only the status.
fn speak(headers: &HeaderMap, error: &Error) -> Option<Spoken> {
    let is_json = headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let spoken = || Spoken { media_type: "application/json", body: agent_reports::json_error(error.detail()).into() };
    (is_json || headers.contains_key(AGENT_ID)).then(spoken)
}

/// Runs a job off the request threads.
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(job).await.map_err(Error::internal)?
}
