//! Streams a whole list in bounded memory: pages are read one at a time by keyset, each after the client has taken the
//! one before. There is never one long read.
//!
//! Every page is read like a request of its own: it waits for a read permit, and the caller's rights are checked again.
//! An error after the first page breaks the answer off, so that a part does not look complete: the connection ends
//! without the last chunk, or its stream is reset.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Version, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::try_unfold;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::IntoResponses;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, RefOr, ResponseBuilder};

use super::access::Access;
use super::admission::StreamBytes;
use super::app::SharedApp;
use super::context::RequestContext;
use super::csv::CsvLine;
use super::page::PAGE_BYTES_MAX;
use super::reply::ResponseDocs;
use super::rules::Route;
use crate::base::{BudgetPermit, Code, Error, Result, TenantId};

/// The memory reserved for a stream while it lasts: the rows of one page, which [`super::PageBytes`] bounds, and their
/// text.
const STREAM_BYTES: usize = 2 * PAGE_BYTES_MAX;
/// The time for one page. With the wait for a permit it is shorter than the stall timeout.
const PAGE_TIME_MAX: Duration = Duration::from_secs(15);
/// The time for all pages: longer than the largest list takes.
const STREAM_TIME_MAX: Duration = Duration::from_hours(1);

/// The format of the rows.
pub enum RowEncoding<T> {
    /// An object on each line.
    Ndjson,
    /// RFC 4180: a header line, then a line for each row.
    Csv { columns: Vec<Cow<'static, str>>, write: Box<WriteLine<T>> },
}

/// Writes the fields of one row.
pub type WriteLine<T> = dyn Fn(&T, &mut CsvLine<'_>) + Send + Sync;

/// Some rows, and the key of the next page if there are more.
pub struct RowBatch<T, P> {
    pub rows: Vec<T>,
    pub next: Option<P>,
}

/// Starts streams. It knows the HTTP version of the request.
pub struct Streamer {
    context: Result<Arc<RequestContext>>,
    version: Version,
}

/// An answer whose rows are read while it is sent.
pub struct Streamed {
    media_type: &'static str,
    /// The file name without its extension.
    name: Option<&'static str>,
    body: Body,
}

const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv; charset=utf-8";

impl Streamed {
    /// Sets the file name; the format adds the extension.
    #[must_use]
    pub fn with_file_name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// The `Content-Disposition` header.
    fn content_disposition(&self) -> Option<HeaderValue> {
        let ending = if self.media_type == CSV { "csv" } else { "ndjson" };
        let value = format!("attachment; filename=\"{}.{ending}\"", self.name?);
        HeaderValue::from_str(&value).ok()
    }
}

impl Streamer {
    /// Streams the pages that `read` returns for each key, starting with `None`. The first page is read here, so that its
    /// errors are ordinary refusals.
    pub async fn stream_rows<R, T, P, F>(
        self,
        caller: Access<R>,
        encoding: RowEncoding<T>,
        read: impl FnMut(Option<P>) -> F + Send + 'static,
    ) -> Result<Streamed>
    where
        R: Route,
        T: Serialize + Send + 'static,
        P: Send + 'static,
        F: Future<Output = Result<RowBatch<T, P>>> + Send + 'static,
    {
        if self.version < Version::HTTP_11 {
            let detail = "A file needs HTTP/1.1 or later: HTTP/1.0 cannot show that a file is incomplete.";
            return Err(Error::new(Code::InvalidParameter, detail));
        }
        let permit = caller.app().streams.try_acquire(caller.tenant_id().into(), 1);
        let permit = permit.ok_or_else(|| Error::unavailable("too many files of one tenant go out"))?;
        let (media_type, text) = encoding.header_text();
        let until = Instant::now() + STREAM_TIME_MAX;
        let mut pages =
            PageStream { caller, context: self.context?, _permit: permit, encoding, read, until, text, next: None };
        pages.read_page(None).await?;
        Ok(Streamed { media_type, name: None, body: Body::from_stream(try_unfold(pages, PageStream::next_chunk)) })
    }
}

struct PageStream<R, T, P, G> {
    caller: Access<R>,
    context: Arc<RequestContext>,
    _permit: BudgetPermit<TenantId>,
    encoding: RowEncoding<T>,
    read: G,
    until: Instant,
    /// Text that is not sent yet.
    text: Vec<u8>,
    next: Option<P>,
}

impl<R, T, P, F, G> PageStream<R, T, P, G>
where
    R: Route,
    T: Serialize + Send + 'static,
    P: Send + 'static,
    F: Future<Output = Result<RowBatch<T, P>>> + Send + 'static,
    G: FnMut(Option<P>) -> F + Send + 'static,
{
    /// The text of the next page. It is empty if none of the examined rows matched.
    async fn next_chunk(mut self) -> Result<Option<(Bytes, Self)>> {
        if self.text.is_empty() {
            let Some(key) = self.next.take() else { return Ok(None) };
            if let Err(error) = self.read_next_page(key).await {
                let cause = error.cause_chain().unwrap_or_else(|| error.detail().to_owned());
                tracing::error!(request_id = &*self.context.request_id, cause, "streamed answer broke off");
                metrics::counter!("tc_http_answers_broken_total").increment(1);
                return Err(error);
            }
        }
        let text = std::mem::take(&mut self.text);
        Ok(Some((text.into(), self)))
    }

    async fn read_next_page(&mut self, key: P) -> Result<()> {
        if Instant::now() > self.until {
            return Err(Error::unavailable("the whole answer took too long"));
        }
        let app = self.caller.app().clone();
        let _permit = app.admission.acquire_read(self.caller.tenant_id()).await?;
        let read = async {
            self.caller.confirm_rights_now().await?;
            self.read_page(Some(key)).await
        };
        let late = |_| Error::unavailable("a page of the answer took too long");
        tokio::time::timeout(PAGE_TIME_MAX, read).await.map_err(late)?
    }

    async fn read_page(&mut self, key: Option<P>) -> Result<()> {
        let RowBatch { rows, next } = (self.read)(key).await?;
        self.next = next;
        rows.iter().try_for_each(|row| self.encoding.write_row(row, &mut self.text))
    }
}

impl<T: Serialize> RowEncoding<T> {
    /// The media type, and the text before the first row.
    fn header_text(&self) -> (&'static str, Vec<u8>) {
        match self {
            RowEncoding::Ndjson => (NDJSON, Vec::new()),
            RowEncoding::Csv { columns, .. } => {
                let mut text = Vec::new();
                let mut line = CsvLine::new(&mut text);
                for column in columns {
                    line.push_text(column);
                }
                line.end_line();
                (CSV, text)
            }
        }
    }

    fn write_row(&self, row: &T, text: &mut Vec<u8>) -> Result<()> {
        match self {
            RowEncoding::Ndjson => {
                serde_json::to_writer(&mut *text, row).map_err(Error::internal)?;
                text.push(b'\n');
            }
            RowEncoding::Csv { write, .. } => {
                let mut line = CsvLine::new(text);
                write(row, &mut line);
                line.end_line();
            }
        }
        Ok(())
    }
}

impl FromRequestParts<SharedApp> for Streamer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &SharedApp) -> Result<Self, Infallible> {
        Ok(Streamer { context: RequestContext::from_parts(parts), version: parts.version })
    }
}

impl IntoResponse for Streamed {
    fn into_response(self) -> Response {
        let disposition = self.content_disposition();
        let mut response = Response::new(self.body);
        if let Some(disposition) = disposition {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
        }
        response.extensions_mut().insert(StreamBytes(STREAM_BYTES));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        response
    }
}

impl IntoResponses for Streamed {
    fn responses() -> ResponseDocs {
        let text = || ContentBuilder::new().schema(Some(ObjectBuilder::new().schema_type(Type::String))).build();
        let response = ResponseBuilder::new()
            .description(
                "The whole list. One that breaks off ends without its last chunk, or with a reset of its stream.",
            )
            .content(CSV, text())
            .content(NDJSON, text())
            .build();
        ResponseDocs::from([("200".to_owned(), RefOr::T(response))])
    }
}
