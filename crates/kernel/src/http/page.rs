//! Lists: `data`, `has_more`, `next_cursor`.

use std::fmt::Write;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::caller::Caller;
use super::cursors::CursorSigner;
use super::param::QueryParam;
use super::params::{self, Params};
use super::reply::{NamedSchema, Ok200, Record, ResponseDocs, Versioned, document_response};
use crate::base::{Error, Result};
use crate::store::{CursorKey, Value};

pub const LIMIT_DEFAULT: usize = 50;
pub const LIMIT_MAX: usize = 200;

/// A page ends before its limit when its records reach this many bytes of JSON, which bounds the memory of an answer and
/// the time a slow client takes to read it.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// The requested page of a list, with its filters. A cursor is bound to them, to the list and to the tenant.
#[derive(Clone, Debug)]
pub struct PageRequest {
    pub limit: usize,
    cursor: Option<String>,
    /// Names and values in their canonical spelling.
    filters: Vec<(&'static str, String)>,
}

const LIMIT: QueryParam = QueryParam::new(
    params::LIMIT,
    "Records per page, at most; 50 when omitted. Large records end a page earlier. A single record is read with any limit.",
)
.unbound_from_cursor();
const CURSOR: QueryParam =
    QueryParam::new(params::CURSOR, "The `next_cursor` of the page before; only for the same list and filters.")
        .unbound_from_cursor();

impl PageRequest {
    /// Takes `limit` and `cursor`. It comes last: every parameter taken before it is a filter of the list.
    pub fn take_page(params: &mut Params) -> Result<Self> {
        let limit = params.take_number(LIMIT, 1..=LIMIT_MAX, LIMIT_DEFAULT)?;
        let cursor = params.take_text(CURSOR)?;
        Ok(PageRequest { limit, cursor, filters: params.take_filters() })
    }

    /// Whether the request continues after an earlier page.
    pub fn has_cursor(&self) -> bool {
        self.cursor.is_some()
    }

    /// Whether another filter than this one is given.
    pub fn has_filters_beside(&self, name: &str) -> bool {
        self.filters.iter().any(|(filter, _)| *filter != name)
    }

    /// One row more than the page, to find out whether there is a next page.
    pub fn fetch_limit(&self) -> usize {
        self.limit + 1
    }

    /// The position after which the page starts, if the cursor was signed for this path, these filters and this tenant.
    pub fn cursor_position(&self, caller: &Caller, path: &str) -> Result<Option<Vec<Value>>> {
        self.cursor.as_deref().map(|cursor| self.cursor_signer(caller, path).open_cursor(cursor)).transpose()
    }

    /// Like [`PageRequest::cursor_position`], as the list's own key type.
    pub fn cursor_key<K: CursorKey>(&self, caller: &Caller, path: &str) -> Result<Option<K>> {
        self.cursor.as_deref().map(|cursor| self.cursor_signer(caller, path).open_as(cursor)).transpose()
    }

    fn cursor_signer<'a>(&'a self, caller: &'a Caller, path: &'a str) -> CursorSigner<'a> {
        CursorSigner { app: caller.app(), tenant: caller.tenant_id(), path, filters: &self.filters }
    }

    /// Removes the extra row and signs the cursor of the next page.
    pub fn build_page<T>(
        &self,
        caller: &Caller,
        path: &str,
        mut rows: Vec<T>,
        position: impl Fn(&T) -> Vec<Value>,
    ) -> Result<ListPage<T>> {
        let has_more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let next = rows.last().filter(|_| has_more).map(position);
        self.sign_page(caller, path, rows, next)
    }

    /// A page of rows without an extra one; `next` is the key after which the next page starts.
    pub fn build_cut_page<T>(
        &self,
        caller: &Caller,
        path: &str,
        data: Vec<T>,
        next: Option<impl CursorKey>,
    ) -> Result<ListPage<T>> {
        self.sign_page(caller, path, data, next.map(CursorKey::to_position))
    }

    fn sign_page<T>(&self, caller: &Caller, path: &str, data: Vec<T>, next: Option<Vec<Value>>) -> Result<ListPage<T>> {
        let (next_cursor, next_link) =
            next.map(|position| self.sign_next(caller, path, &position)).transpose()?.unzip();
        Ok(ListPage { data, has_more: next_cursor.is_some(), next_cursor, next_link })
    }

    /// A cursor for the page after this position, bound to this list, these filters and this tenant, and its `Link` header.
    pub fn sign_next(&self, caller: &Caller, path: &str, position: &[Value]) -> Result<(String, String)> {
        let cursor = self.cursor_signer(caller, path).sign_position(position)?;
        let mut link = format!("<{}{path}?", caller.app().settings.base_url.as_str());
        for (name, value) in &self.filters {
            let _ = write!(link, "{name}={}&", utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        let _ = write!(link, "limit={}&cursor={cursor}>; rel=\"next\"", self.limit);
        Ok((cursor, link))
    }
}

/// The size of a page so far, bounded by [`PAGE_BYTES_MAX`].
#[derive(Debug, Default)]
pub struct PageBytes(usize);

impl PageBytes {
    /// Adds a record of this size, and returns whether it fits. The first record always does.
    pub fn fits_bytes(&mut self, bytes: usize) -> bool {
        let first = self.0 == 0;
        self.0 += bytes.max(1);
        first || self.0 <= PAGE_BYTES_MAX
    }
}

/// The size of a record as JSON.
pub fn json_size(record: &impl Serialize) -> Result<usize> {
    let mut counted = ByteCounter(0);
    serde_json::to_writer(&mut counted, record).map_err(Error::internal)?;
    Ok(counted.0)
}

/// Loads the records of a page part by part until the page is full, so that no more of them are in memory together. A part is
/// as many rows as `part_len` tells; `load` returns its records with their keys, in order and without those that are gone.
/// Also returns the key after which the next page starts: `next`, unless the page was full before.
pub async fn load_records<'a, R, K, T, F: Future<Output = Result<Vec<(K, T)>>>>(
    mut rows: &'a [R],
    next: Option<K>,
    part_len: impl Fn(&[R]) -> usize,
    size: impl Fn(&T) -> Result<usize>,
    load: impl Fn(&'a [R]) -> F,
) -> Result<(Vec<T>, Option<K>)> {
    let (mut records, mut bytes, mut last) = (Vec::new(), PageBytes::default(), None);
    while !rows.is_empty() {
        let (part, rest) = rows.split_at(part_len(rows).clamp(1, rows.len()));
        rows = rest;
        for (key, record) in load(part).await? {
            if !bytes.fits_bytes(size(&record)?) {
                return Ok((records, last));
            }
            records.push(record);
            last = Some(key);
        }
    }
    Ok((records, next))
}

/// A writer that counts bytes and discards them.
struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub struct ListPage<T> {
    pub data: Vec<T>,
    /// Whether there may be another page.
    pub has_more: bool,
    /// Give it back as `cursor` to get the next page.
    pub next_cursor: Option<String>,
    #[serde(skip)]
    next_link: Option<String>,
}

impl<T: Serialize> IntoResponse for ListPage<T> {
    fn into_response(mut self) -> Response {
        let link = self.next_link.take();
        with_link(Ok200(self).into_response(), link)
    }
}

/// Adds the `Link` header of the next page.
fn with_link(mut response: Response, link: Option<String>) -> Response {
    if let Some(link) = link.and_then(|link| HeaderValue::try_from(link).ok()) {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

impl<T> ListPage<T> {
    /// Adds fields about the whole list.
    pub fn with_summary<W>(self, summary: W) -> PageWith<T, W> {
        PageWith { page: self, summary }
    }
}

/// A page of a list, with fields about the whole list.
#[derive(Debug, Serialize)]
pub struct PageWith<T, W> {
    #[serde(flatten)]
    page: ListPage<T>,
    #[serde(flatten)]
    summary: W,
}

impl<T: Serialize, W: Serialize> IntoResponse for PageWith<T, W> {
    fn into_response(mut self) -> Response {
        let link = self.page.next_link.take();
        with_link(Ok200(self).into_response(), link)
    }
}

impl<T: ToSchema> PartialSchema for ListPage<T> {
    fn schema() -> RefOr<Schema> {
        let cursor = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .description(Some("Give it back as `cursor` to get the next page; null on the last one."));
        let record = match T::schema() {
            RefOr::T(Schema::Object(object)) => object.example,
            _ => None,
        };
        let example =
            record.map(|record| serde_json::json!({"data": [record], "has_more": false, "next_cursor": null}));
        ObjectBuilder::new()
            .examples(example)
            .property("data", ArrayBuilder::new().items(Ref::from_schema_name(T::name())))
            .property(
                "has_more",
                ObjectBuilder::new().schema_type(Type::Boolean).description(Some(
                    "Whether there may be another page. A page may end before its `limit`: go by this.",
                )),
            )
            .property("next_cursor", cursor)
            .required("data")
            .required("has_more")
            .required("next_cursor")
            .into()
    }
}

/// Named after its records: `ApiKeyPage`.
impl<T: ToSchema> ToSchema for ListPage<T> {
    fn name() -> std::borrow::Cow<'static, str> {
        format!("{}Page", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into(), T::schema()));
        T::schemas(schemas);
    }
}

impl<T: ToSchema> IntoResponses for ListPage<T> {
    fn responses() -> ResponseDocs {
        document_response::<NamedSchema<ListPage<T>>>("200", "A page of the list.")
    }
}

/// The answer of a collection to GET: a page, or with `?id=` one record, which may have more fields than those of a page.
pub enum OneOrPage<T, O = T> {
    One(O),
    Page(ListPage<T>),
}

impl<T: Serialize, O: Record> IntoResponse for OneOrPage<T, O> {
    fn into_response(self) -> Response {
        match self {
            OneOrPage::One(record) => Versioned(record).into_response(),
            OneOrPage::Page(page) => page.into_response(),
        }
    }
}

impl<T: ToSchema, O: ToSchema> PartialSchema for OneOrPage<T, O> {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(Ref::from_schema_name(<ListPage<T>>::name()))
            .item(Ref::from_schema_name(O::name()))
            .into()
    }
}

impl<T: ToSchema, O: ToSchema> IntoResponses for OneOrPage<T, O> {
    fn responses() -> ResponseDocs {
        document_response::<Self>("200", "A page of the list; with `id`, the one record.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_when_its_records_come_to_its_bytes_and_never_before_the_first() {
        let mut bytes = PageBytes::default();
        assert!(bytes.fits_bytes(2 * PAGE_BYTES_MAX) && !bytes.fits_bytes(1));
        let (mut bytes, record) = (PageBytes::default(), "x".repeat(PAGE_BYTES_MAX / 4));
        let size = json_size(&record).unwrap_or_default();
        let fitting = (0..9).filter(|_| bytes.fits_bytes(size)).count();
        assert_eq!(fitting, 3, "with the quotes, four are too many");
    }
}
