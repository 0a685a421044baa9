//! `Idempotency-Key`: the answer is stored in the transaction of the change, so that a repeated request replays it and a
//! crash cannot separate the two.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use utoipa::IntoResponses;

use super::caller::Caller;
use super::params::find_raw_id;
use super::reply::{RenderedReply, Reply, ResponseDocs};
use super::running_keys::in_progress_error;
use crate::base::seal::SealBinding;
use crate::base::{Code, DAY_MS, Error, Result, Secrets, Timestamp, constant_time_eq, sha256};
use crate::store::{BATCH_ROWS, Db, FromRow, Row, Tx, Value, WriteFn};

pub const HEADER: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const KEY_CHARS_MAX: usize = 255;
/// How long an answer can be replayed.
const ANSWER_RETENTION_MS: i64 = DAY_MS;

crate::statements! {
    /// The stored answer of a key, if it has not expired.
    FIND = "SELECT body_hash, status, headers, body FROM idempotency_records
        WHERE tenant_id = $1 AND actor_id = $2 AND route = $3 AND idempotency_key = $4 AND expires_at > $5";
    /// Removes an expired answer before the new one is inserted.
    DELETE = "DELETE FROM idempotency_records
        WHERE tenant_id = $1 AND actor_id = $2 AND route = $3 AND idempotency_key = $4";
    INSERT = "INSERT INTO idempotency_records
        (tenant_id, actor_id, route, idempotency_key, body_hash, status, headers, body, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    /// The next answers of a tenant in the order of their keys. There is no index by tenant and expiry.
    STEP = "SELECT actor_id, route, idempotency_key FROM idempotency_records
        WHERE tenant_id = $1 AND (actor_id, route, idempotency_key) > ($2, $3, $4)
        ORDER BY actor_id, route, idempotency_key LIMIT $5";
    SHORTEN = "UPDATE idempotency_records SET expires_at = $8
        WHERE tenant_id = $1 AND (actor_id, route, idempotency_key) > ($2, $3, $4)
            AND (actor_id, route, idempotency_key) <= ($5, $6, $7) AND expires_at > $8";
}

/// A write that returns its rendered answer.
type Rendering =
    Box<dyn for<'t> FnOnce(&'t mut Tx) -> Pin<Box<dyn Future<Output = Result<RenderedReply>> + Send + 't>> + Send>;

/// The `Idempotency-Key` header, parsed after the body is accepted, with the route and record that distinguish requests
/// with the same body. The extractor reads them, so no handler can forget them. A handler that retries after a conflict
/// clones it.
#[derive(Clone)]
pub struct Idempotency {
    headers: HeaderMap,
    route: String,
    /// The id of the changed record.
    id: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Idempotency {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let mut headers = HeaderMap::new();
        for value in parts.headers.get_all(HEADER) {
            headers.append(HEADER, value.clone());
        }
        let path = parts.uri.path();
        // Keys are stored by route; those of PATCH are apart from those of POST.
        let route = if parts.method == Method::POST { path.to_owned() } else { format!("{} {path}", parts.method) };
        Ok(Idempotency { headers, route, id: find_raw_id(parts.uri.query().unwrap_or_default()) })
    }
}

impl Idempotency {
    /// Runs a write once per key, body and record. Without the header the write always runs.
    pub async fn run_once<R: Reply + Send>(
        self,
        caller: &Caller,
        db: &Db,
        digest: [u8; 32],
        job: impl for<'t> WriteFn<&'t mut Tx, Result<R>, Fut: Send> + Send + 'static,
    ) -> Result<IdempotentReply<R>> {
        let job: Rendering = Box::new(move |tx| Box::pin(async move { job(tx).await?.render_reply() }));
        let (rendered, replayed) = self.render_once(caller, db, digest, job).await?;
        Ok(IdempotentReply { rendered, replayed, kind: PhantomData })
    }

    async fn render_once(
        self,
        caller: &Caller,
        db: &Db,
        digest: [u8; 32],
        job: Rendering,
    ) -> Result<(RenderedReply, bool)> {
        let Some(key) = self.parse_key()? else {
            return Ok((db.write(async move |tx| job(tx).await).await?, false));
        };
        // The same body for another record is another request.
        let digest = self.id.map_or(digest, |id| sha256(&[id.as_bytes(), b"\n", &digest].concat()));
        let (actor, secrets) = (caller.actor_id().to_owned(), caller.app().secrets.clone());
        let entry = IdempotencyEntry { actor, route: self.route, key, digest, secrets };
        let name = format!("{}\n{}\n{}\n{}", caller.tenant_id(), entry.actor, entry.route, entry.key);
        let running = caller.app().running_keys.start_key(&name)?;
        let credential_ref = caller.credential_ref();
        db.write(async move |tx| {
            // Held until this job is done, even if the client disconnects.
            let _running = running;
            if let Some(stored) = entry.lock_and_find(tx).await? {
                // The answer may contain a secret, and the credential may have been revoked while the body arrived.
                credential_ref.confirm_valid(tx).await?;
                return Ok((stored, true));
            }
            let rendered = job(tx).await?;
            entry.store_answer(tx, &rendered).await?;
            Ok((rendered, false))
        })
        .await
    }

    /// Whether an answer is stored for the key, so that the request will be replayed or refused. For a handler whose work
    /// outside the transaction is not to be repeated.
    pub async fn has_answer(&self, caller: &Caller, db: &Db) -> Result<bool> {
        let Some(key) = self.parse_key()? else { return Ok(false) };
        let now = db.env().now();
        let stored: Option<StoredAnswerRow> =
            db.find(FIND, crate::args![caller.actor_id(), self.route, key, now]).await?;
        Ok(stored.is_some())
    }

    /// Checks the header's syntax. For PUT and DELETE, which accept a key but need none, because they are idempotent.
    pub fn check_key(&self) -> Result<()> {
        self.parse_key().map(drop)
    }

    /// The key, if there is one. `"k"` and `k` are the same key.
    fn parse_key(&self) -> Result<Option<String>> {
        let mut values = self.headers.get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let refused = || {
            let detail = format!("Idempotency-Key must be given once, with 1 to {KEY_CHARS_MAX} visible characters.");
            Error::new(Code::InvalidHeader, detail)
        };
        if values.next().is_some() {
            return Err(refused());
        }
        let text = value.to_str().map_err(|_| refused())?.trim();
        let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
        let valid =
            (1..=KEY_CHARS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        if valid { Ok(Some(text.to_owned())) } else { Err(refused()) }
    }
}

/// One key of one actor on one route.
struct IdempotencyEntry {
    actor: String,
    route: String,
    key: String,
    digest: [u8; 32],
    secrets: Secrets,
}

struct StoredAnswerRow {
    body_hash: Vec<u8>,
    status: i64,
    headers: String,
    body: Vec<u8>,
}

impl FromRow for StoredAnswerRow {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(StoredAnswerRow { body_hash: row.get(0)?, status: row.get(1)?, headers: row.get(2)?, body: row.get(3)? })
    }
}

impl IdempotencyEntry {
    fn lock_name(&self, tx: &Tx) -> String {
        let tenant = tx.tenant_id().map(|id| id.to_string()).unwrap_or_default();
        format!("idempotency\n{tenant}\n{}\n{}\n{}", self.actor, self.route, self.key)
    }

    /// Takes the key's lock and reads the stored answer. 409 if another request holds the lock.
    async fn lock_and_find(&self, tx: &mut Tx) -> Result<Option<RenderedReply>> {
        let locking = tx.defer_try_lock(&self.lock_name(tx));
        let now = tx.env().now();
        let stored: Option<StoredAnswerRow> =
            tx.find(FIND, crate::args![self.actor, self.route, self.key, now]).await?;
        if !tx.await_rows(locking).await?.contains(&true) {
            return Err(in_progress_error());
        }
        let Some(stored) = stored else { return Ok(None) };
        if !constant_time_eq(&stored.body_hash, &self.digest) {
            return Err(Error::new(Code::IdempotencyKeyReused, "This Idempotency-Key was used with another request."));
        }
        let body = self.with_binding(tx, |binding| self.secrets.open_value(binding, &stored.body))?;
        let (etag, location) = serde_json::from_str(&stored.headers).map_err(Error::internal)?;
        let status = u16::try_from(stored.status).map_err(Error::internal)?;
        Ok(Some(RenderedReply { status, etag, location, body }))
    }

    async fn store_answer(&self, tx: &mut Tx, rendered: &RenderedReply) -> Result<()> {
        let random = tx.env().random.clone();
        let expires_at: Timestamp = tx.env().now().plus_ms(ANSWER_RETENTION_MS);
        // Every stored answer is sealed, so that no route has to decide whether its answer contains a secret.
        let body = self.with_binding(tx, |binding| self.secrets.seal_value(&random, binding, &rendered.body))?;
        let headers = serde_json::to_string(&(&rendered.etag, &rendered.location)).map_err(Error::internal)?;
        let digest = self.digest.to_vec();
        let status = i64::from(rendered.status);
        let key: [Value; 3] = [self.actor.as_str().into(), self.route.as_str().into(), self.key.as_str().into()];
        tx.defer_exec(DELETE, key.to_vec()).await?;
        let answer: [Value; 5] = [digest.into(), status.into(), headers.into(), body.into(), expires_at.into()];
        tx.defer_exec(INSERT, key.into_iter().chain(answer).collect()).await
    }

    fn with_binding<R>(&self, tx: &Tx, run: impl FnOnce(SealBinding<'_>) -> Result<R>) -> Result<R> {
        let tenant = tx.tenant_id().map(|id| id.to_string()).unwrap_or_default();
        let record = format!("{}\n{}\n{}", self.actor, self.route, self.key);
        run(SealBinding { tenant: &tenant, table: "idempotency_records", record: &record, version: 1 })
    }
}

/// Shortens the expiry of answers that were stored while a clock was ahead: none is kept longer than one stored now,
/// because it may contain a secret. Walks all answers of a tenant in steps.
pub async fn shorten_stored_answers(db: &Db, now: Timestamp) -> Result<()> {
    let expires_at = now.plus_ms(ANSWER_RETENTION_MS);
    let mut after = (String::new(), String::new(), String::new());
    loop {
        let next = db.write(async move |tx| {
            let (actor, route, key) = &after;
            let mut step: Vec<(String, String, String)> =
                tx.list(STEP, crate::args![actor, route, key, BATCH_ROWS]).await?;
            let Some(last) = step.pop() else { return Ok(None) };
            tx.exec(SHORTEN, crate::args![actor, route, key, last.0, last.1, last.2, expires_at]).await?;
            Ok(Some(last))
        });
        match next.await? {
            Some(last) => after = last,
            None => return Ok(()),
        }
    }
}

/// An answer that is new or replayed.
pub struct IdempotentReply<R> {
    rendered: RenderedReply,
    replayed: bool,
    kind: PhantomData<fn() -> R>,
}

impl<R> IntoResponse for IdempotentReply<R> {
    fn into_response(self) -> Response {
        let mut response = self.rendered.into_reply();
        if self.replayed {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

impl<R: IntoResponses> IntoResponses for IdempotentReply<R> {
    fn responses() -> ResponseDocs {
        R::responses()
    }
}
