//! Routes that are not in the document: other credentials and other bodies, and everything else as everywhere. The route
//! here is the test's own: a report of an agent, which comes with HTTP Basic.

use axum::http::{HeaderMap, Method};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::audit::{self, NewAuditEntry};
use kernel::base::{ActorKind, ActorRef, Code, Error, Result, TenantId, sha256};
use kernel::http::{
    Api, App, CredentialHolder, CredentialOwner, CustomCredential, NoContent, QueryString, RatePolicy, Raw, RawAnswer,
    RenderedError, Rules,
};
use kernel::rules;
use kernel::store::Db;
use serde_json::json;

use crate::support::call::Call;
use crate::support::people::{KEYS, SESSION};
use crate::support::raw::send_raw;
use crate::support::{Answer, Server, Setup, over_http};

const INGEST: &str = "/internal/test/reports";
const SPOKEN: &str = "/internal/test/spoken";
const AUDIT: &str = "/api/admin/audit";
const BYTES_MAX: usize = 3 * kernel::http::BODY_BYTES_MAX;

rules! {
    Reporting = Rules::new(RatePolicy::Ingest, &[]).media_types(&["application/xml", "text/csv"]).body_bytes_max(BYTES_MAX);
    Speaking = Rules::new(RatePolicy::Ingest, &[]).media_types(&["text/csv"]).with_error_renderer(speak);
}

/// A tenant's slug, and the one password that is right.
struct Agent {
    slug: String,
    password: String,
}

impl CustomCredential for Agent {
    const CHALLENGE: &'static str = "Basic realm=\"reports\"";

    type Reach = ();

    fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let pair = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
        let pair = pair.and_then(|coded| String::from_utf8(BASE64.decode(coded).ok()?).ok());
        pair.and_then(|pair| {
            let (slug, password) = pair.split_once(':')?;
            Some(Agent { slug: slug.to_owned(), password: password.to_owned() })
        })
    }

    fn secret_hash(&self) -> [u8; 32] {
        sha256(format!("{}:{}", self.slug, self.password).as_bytes())
    }

    async fn find_owner(&self, all: &Db, _: &App) -> Result<Option<CredentialOwner<()>>> {
        let sql = "SELECT id FROM tenants WHERE slug = $1";
        let tenant: Option<TenantId> = all.find(sql, kernel::args![self.slug]).await?;
        let who = ActorRef { kind: ActorKind::System, id: None, name: format!("Agent of {}", self.slug) };
        let id = format!("agent_{}", self.slug).into();
        Ok(tenant.filter(|_| self.password == "right").map(|tenant| CredentialOwner {
            tenant,
            id,
            actor: who,
            reach: (),
        }))
    }
}

async fn report(agent: CredentialHolder<Agent, Reporting>, query: QueryString<()>, body: Raw) -> Result<NoContent> {
    query.parse()?;
    let body = body.read_body().await?;
    let (what, bytes) = (body.media_type, body.bytes.len());
    agent
        .db()
        .write(async move |tx| {
            tx.tick().await?;
            audit::record_entry(tx, NewAuditEntry::new("test.report", "report", format!("{what} {bytes}"))).await
        })
        .await?;
    Ok(NoContent)
}

/// Whoever sends CSV reads CSV.
fn speak(headers: &HeaderMap, error: &Error) -> Option<RenderedError> {
    let csv = headers.get("content-type").is_some_and(|given| given == "text/csv");
    csv.then(|| say(format!("by its headers,{}", error.code().name())))
}

fn say(text: String) -> RenderedError {
    RenderedError { media_type: "text/csv", body: text.into() }
}

/// Gives back what it gets, unless it is told to refuse.
async fn converse(_agent: CredentialHolder<Agent, Speaking>, body: Raw) -> Response {
    match body.read_body().await {
        Ok(body) if body.bytes == b"refuse" => {
            say("by its body,conflict".to_owned()).into_answer(Error::conflict("No."))
        }
        Ok(body) if body.bytes == b"revoked" => Error::new(Code::Unauthenticated, "Gone.").into_response(),
        Ok(body) => RawAnswer { media_type: "text/csv", bytes: body.bytes }.into_response(),
        Err(error) => error.into_response(),
    }
}

async fn start(mut setup: Setup, limits: &[(RatePolicy, u64)]) -> Server {
    for (policy, per_minute) in limits {
        setup.settings.rate_table.set(*policy, *per_minute);
    }
    setup.mount = |api: Api| {
        api.add_internal_route(Method::POST, INGEST, report).add_internal_route(Method::POST, SPOKEN, converse)
    };
    setup.start().await
}

fn sent<'a>(server: &'a Server, slug: &str, password: &str) -> Call<'a> {
    let pair = BASE64.encode(format!("{slug}:{password}"));
    server.post(INGEST).header("authorization", format!("Basic {pair}"))
}

fn csv<'a>(server: &'a Server, password: &str, body: impl Into<Vec<u8>>) -> Call<'a> {
    let pair = BASE64.encode(format!("acme:{password}"));
    let call = server.post(SPOKEN).header("authorization", format!("Basic {pair}"));
    call.header("content-type", "text/csv").body(body)
}

/// A refusal in the client's own language, with the headers that every refusal has.
#[track_caller]
fn assert_told(answer: &Answer, status: u16, told: &str) {
    assert_eq!(String::from_utf8_lossy(&answer.is(status).body), told);
    assert_eq!(answer.header("content-type"), "text/csv");
    assert!(answer.header("x-request-id").starts_with("req_"));
    assert_eq!(answer.header("www-authenticate"), if status == 401 { Agent::CHALLENGE } else { "" });
    assert_eq!(answer.headers.contains_key("retry-after"), [429, 503].contains(&status));
}

fn xml(call: Call<'_>) -> Call<'_> {
    call.header("content-type", "application/xml; charset=utf-8").body("<report/>")
}

over_http! {
    async fn a_report_comes_in_and_is_its_tenants(setup: Setup) {
        let server = start(setup, &[]).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let answer = xml(sent(&server, "acme", "right")).header("x-request-id", "report-1").await;
        assert_eq!(answer.is(204).header("x-request-id"), "report-1");
        let entries = server.get(format!("{AUDIT}?action=test.report")).cookie(&acme.admin).await.ok(200);
        let [entry] = entries["data"].as_array().unwrap().as_slice() else { panic!("{entries}") };
        assert_eq!(entry["target"]["id"], "application/xml 9");
        assert_eq!(entry["actor"], json!({"type": "system", "id": null, "name": "Agent of acme"}));
        assert_eq!((&entry["request_id"], &entry["address"]), (&json!("report-1"), &json!("127.0.0.1")));
        let others = server.get(format!("{AUDIT}?action=test.report")).cookie(&globex.admin).await.ok(200);
        assert_eq!(others["data"], json!([]));
    }

    async fn other_credentials_are_none_and_guessing_is_charged_to_the_address(setup: Setup) {
        let server = start(setup, &[(RatePolicy::Public, 4)]).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await.plain;
        let refused = xml(server.post(INGEST)).await;
        refused.problem("unauthenticated");
        assert_eq!(refused.header("www-authenticate"), "Basic realm=\"reports\"");
        xml(server.post(INGEST).key(&key)).await.problem("unauthenticated");
        xml(sent(&server, "acme", "wrong")).await.problem("unauthenticated");
        xml(sent(&server, "nobody", "right")).await.problem("unauthenticated");
        xml(sent(&server, "acme", "wrong")).await.problem("rate_limited");
        // And the other way round.
        let basic = ("authorization", format!("Basic {}", BASE64.encode("acme:right")));
        server.get(SESSION).header(basic.0, &basic.1).await.problem("rate_limited");
        xml(sent(&server, "acme", "right")).await.is(204);
        server.get(KEYS).key(&key).await.is(200);
    }

    async fn the_order_of_checks_is_that_of_every_route(setup: Setup) {
        let server = start(setup, &[(RatePolicy::Ingest, 6)]).await;
        for slug in ["acme", "globex"] {
            server.tenant(slug).await;
        }
        let answer = server.get(INGEST).await;
        answer.problem("method_not_allowed");
        assert_eq!(answer.header("allow"), "POST");
        server.post("/internal/test").await.problem("not_found");
        let call = |query: &str| {
            let pair = BASE64.encode("acme:right");
            server.post(format!("{INGEST}{query}")).header("authorization", format!("Basic {pair}"))
        };
        // Only the head: it is refused by what that says, and who is still sending might not hear it.
        let (pair, length) = (BASE64.encode("acme:right"), BYTES_MAX + 1);
        let head = format!(
            "POST {INGEST} HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic {pair}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        call("?nonsense=1").header("content-type", "application/json").body("{}").await.problem("unknown_parameter");
        assert!(send_raw(&server, head).await.body.contains("\"unsupported_media_type\""));
        call("").header("content-type", "text/csv").header("content-encoding", "gzip").body("a").await.problem("unsupported_media_type");
        call("").body("a").await.problem("unsupported_media_type");
        let refused = call("").header("content-type", "text/csv").body(vec![b'x'; length]).await;
        assert_eq!(refused.problem("payload_too_large")["detail"], format!("A body is at most {BYTES_MAX} bytes."));
        call("").header("content-type", "Text/CSV").body(vec![b'x'; BYTES_MAX]).await.is(204);
        call("?nonsense=1").await.problem("rate_limited");
        xml(sent(&server, "globex", "right")).await.is(204);
    }

    async fn a_report_is_shed_like_any_request(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.requests_max = 0;
        let server = start(setup, &[]).await;
        xml(sent(&server, "acme", "right")).await.problem("unavailable");
        csv(&server, "right", "a,b").await.problem("unavailable");
    }

    async fn two_credentials_are_one_too_many(setup: Setup) {
        let server = start(setup, &[]).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await.plain;
        let good = || xml(sent(&server, "acme", "right"));
        good().await.is(204);
        good().header("x-api-key", &key).await.problem("ambiguous_credentials");
        good().key(&key).await.problem("ambiguous_credentials");
        good().cookie(&acme.admin).await.problem("ambiguous_credentials");
        good().cookie("theme=dark").await.is(204);
    }

    async fn refusals_are_told_in_the_language_of_the_client(setup: Setup) {
        let server = start(setup, &[(RatePolicy::Ingest, 6)]).await;
        server.tenant("acme").await;
        assert_told(&csv(&server, "wrong", "a,b").await, 401, "by its headers,unauthenticated");
        let heard = csv(&server, "right", "a,b").await;
        assert_eq!((&*heard.is(200).body, heard.header("content-type")), (&b"a,b"[..], "text/csv"));
        // Said by the handler, which has seen the body; and what it leaves to the headers.
        assert_told(&csv(&server, "right", "refuse").await, 409, "by its body,conflict");
        assert_told(&csv(&server, "right", "revoked").await, 401, "by its headers,unauthenticated");
        let large = vec![b'x'; kernel::http::BODY_BYTES_MAX + 1];
        assert_told(&csv(&server, "right", large).await, 413, "by its headers,payload_too_large");
        // Nobody knows how whoever sends something else speaks.
        xml(server.post(SPOKEN)).await.problem("unauthenticated");
        let basic = format!("Basic {}", BASE64.encode("acme:right"));
        xml(server.post(SPOKEN).header("authorization", &basic)).await.problem("unsupported_media_type");
        let wrong = server.get(SPOKEN).header("authorization", &basic).header("content-type", "text/csv");
        wrong.await.problem("method_not_allowed");
        csv(&server, "right", "a,b").await.is(200);
        assert_told(&csv(&server, "right", "a,b").await, 429, "by its headers,rate_limited");
    }

    async fn what_keeps_a_report_waiting_is_told_in_its_language_too(setup: Setup) {
        let mut setup = setup;
        setup.settings.admission.memory_bytes_max = 0;
        let server = start(setup, &[]).await;
        server.tenant("acme").await;
        assert_told(&csv(&server, "right", "a,b").await, 503, "by its headers,unavailable");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_does_not_tell_of_internal_routes() {
    let server = start(Setup::sqlite().await, &[]).await;
    assert!(server.contract.document["paths"].get(INGEST).is_none());
}
