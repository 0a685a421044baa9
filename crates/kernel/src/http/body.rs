//! JSON bodies, read when the handler calls `read`: 415, 413, 400 and 422 in that order.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::admission::ArrivedBody;
use super::app::SharedApp;
use super::fields::{BodyFields, ERRORS_MAX, FromBody, escape_pointer};
use super::raw::Raw;
use crate::base::{Code, Error, FieldError, Result, run_blocking, sha256};
use crate::store::Db;
use crate::store::references::{self, RecordReference, Referable};

/// A body that has not been read yet.
pub struct Json<T>(Raw, PhantomData<fn() -> T>);

/// A body that was read.
pub struct ReceivedBody<T> {
    pub value: T,
    /// SHA-256 of the received bytes: two bodies are the same if their bytes are.
    pub digest: [u8; 32],
    /// The records that the body refers to, for `check_references` in the transaction.
    pub references: Vec<RecordReference>,
}

impl<T: FromBody> Json<T> {
    pub async fn read(self) -> Result<ReceivedBody<T>> {
        self.read_with(async |_| Ok(Vec::new())).await
    }

    /// Like [`Json::read`], for a body that may refer to other records. If the body is refused for other errors, references
    /// to unknown records are reported too. The references of an accepted body are left to `check_references` in
    /// the transaction, where a repeated request is recognized.
    pub async fn read_referring(self, db: &Db, referable: &'static [Referable]) -> Result<ReceivedBody<T>> {
        self.read_with(async |references| references::list_unknown(db, referable, references).await).await
    }

    /// Like [`Json::read`], for bodies that are large: once one has arrived, it is parsed off the threads that serve requests,
    /// and in its turn, with this permit. Returns the permit, too.
    pub async fn read_in_turn<P>(self, permit: impl AsyncFnOnce() -> Result<P>) -> Result<(ReceivedBody<T>, P)> {
        let parse = async |bytes: Vec<u8>| {
            let permit = permit().await?;
            let object = run_blocking(move || Ok((parse_object(&bytes)?, bytes))).await?;
            Ok((object, permit))
        };
        self.read_parsed(async |_| Ok(Vec::new()), parse).await
    }

    async fn read_with(
        self,
        unknown: impl AsyncFnOnce(Vec<RecordReference>) -> Result<Vec<FieldError>>,
    ) -> Result<ReceivedBody<T>> {
        let parse = async |bytes: Vec<u8>| Ok(((parse_object(&bytes)?, bytes), ()));
        self.read_parsed(unknown, parse).await.map(|(received, ())| received)
    }

    async fn read_parsed<P>(
        self,
        unknown: impl AsyncFnOnce(Vec<RecordReference>) -> Result<Vec<FieldError>>,
        parse: impl AsyncFnOnce(Vec<u8>) -> Result<((Map<String, Value>, Vec<u8>), P)>,
    ) -> Result<(ReceivedBody<T>, P)> {
        let Raw { app, context, headers, body, rules } = self.0;
        check_content_type(&headers)?;
        let context = context?;
        let ArrivedBody { bytes, memory } = context.receive_body(&app, body, rules.bytes_max).await?;
        context.acquire_write(&app).await?;
        let ((object, bytes), permit) = parse(bytes).await?;
        let mut fields = BodyFields::new(object);
        let value = T::from_fields(&mut fields);
        let findings = fields.finish_reading();
        if !findings.errors.is_empty() {
            let mut errors = findings.errors;
            errors.truncate(ERRORS_MAX);
            if !findings.references.is_empty() {
                errors.extend(unknown(findings.references).await?);
            }
            return Err(Error::invalid_fields(errors));
        }
        let value = value.ok_or_else(|| Error::internal("a body was refused without a reason"))?;
        let digest = sha256(&bytes);
        drop((bytes, memory));
        Ok((ReceivedBody { value, digest, references: findings.references }, permit))
    }
}

/// Parses the body as a JSON object without duplicate members.
fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>> {
    let malformed = |error| {
        // Some programs send other encodings unless they are told not to, and the parser's words do not say so.
        let detail = match std::str::from_utf8(bytes) {
            Ok(_) => format!("The body is not JSON: {error}."),
            Err(error) => format!("The body is not UTF-8: byte {} is wrong.", error.valid_up_to() + 1),
        };
        Error::new(Code::MalformedJson, detail)
    };
    let mut found = BodyFindings::default();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = DuplicateChecker { path: ValuePath::Body, found: &mut found }.deserialize(&mut json);
    if found.values > VALUES_MAX {
        let detail = format!("The body has more than {VALUES_MAX} values.");
        return Err(Error::new(Code::PayloadTooLarge, detail));
    }
    let value = parsed.map_err(malformed)?;
    json.end().map_err(malformed)?;
    let duplicates = found.duplicates;
    let Value::Object(object) = value else {
        return Err(Error::invalid("", "wrong_type", "must be an object"));
    };
    if duplicates.is_empty() { Ok(object) } else { Err(Error::invalid_fields(duplicates)) }
}

/// Bounds on reported duplicates, because more of them only make the answer large: in number, or by their long pointers.
const DUPLICATES_MAX: usize = 100;
const POINTERS_BYTES_MAX: usize = 16 * 1024;

/// A value takes up to a hundred bytes of memory, and two of a body. No body of the usual size has so many.
const VALUES_MAX: usize = 600_000;

/// What was found in a body.
#[derive(Default)]
struct BodyFindings {
    values: usize,
    duplicates: Vec<FieldError>,
}

/// Deserializes a `Value` and reports duplicate members. serde would silently take the last, while another reader of the
/// same body, such as a proxy, may take the first. serde_json itself bounds the depth.
struct DuplicateChecker<'a> {
    path: ValuePath<'a>,
    found: &'a mut BodyFindings,
}

/// The path of a value. Its pointer is built only for an error: building each one below a long name would take hours.
#[derive(Clone, Copy)]
enum ValuePath<'a> {
    Body,
    Member(&'a ValuePath<'a>, &'a str),
    Item(&'a ValuePath<'a>, usize),
}

impl ValuePath<'_> {
    fn to_pointer(self) -> String {
        match self {
            ValuePath::Body => String::new(),
            ValuePath::Member(parent, name) => parent.to_pointer() + "/" + &escape_pointer(name),
            ValuePath::Item(parent, index) => parent.to_pointer() + "/" + &index.to_string(),
        }
    }
}

impl DuplicateChecker<'_> {
    fn report_duplicate(&mut self, name: &str) {
        let duplicates = &mut self.found.duplicates;
        let bytes: usize = duplicates.iter().map(|field| field.pointer.len()).sum();
        if duplicates.len() < DUPLICATES_MAX && bytes < POINTERS_BYTES_MAX {
            let (pointer, detail) =
                (ValuePath::Member(&self.path, name).to_pointer(), "is given more than once".to_owned());
            duplicates.push(FieldError { pointer, code: "duplicate_field", detail });
        }
    }
}

impl<'de> DeserializeSeed<'de> for DuplicateChecker<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.found.values += 1;
        if self.found.values > VALUES_MAX {
            return Err(serde::de::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateChecker<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = ValuePath::Item(&self.path, values.len());
            match items.next_element_seed(DuplicateChecker { path, found: self.found })? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let path = ValuePath::Member(&self.path, &name);
            let value = members.next_value_seed(DuplicateChecker { path, found: self.found })?;
            if object.contains_key(&name) {
                self.report_duplicate(&name);
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<()> {
    let refused = |detail: &str| Err(Error::new(Code::UnsupportedMediaType, detail));
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(kind), None) = (types.next(), types.next()) else {
        return refused("Send one Content-Type: application/json.");
    };
    let mut parts = kind.to_str().unwrap_or_default().split(';').map(str::trim);
    if !parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return refused("Send Content-Type: application/json.");
    }
    let charset =
        parts.find_map(|part| part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset")));
    if charset.is_some_and(|(_, value)| !value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")) {
        return refused("JSON is UTF-8; send no other charset.");
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return refused("Send the body without a Content-Encoding.");
    }
    Ok(())
}

impl<T> FromRequest<SharedApp> for Json<T> {
    type Rejection = Infallible;

    async fn from_request(request: Request, app: &SharedApp) -> Result<Self, Infallible> {
        Raw::from_request(request, app).await.map(|raw| Json(raw, PhantomData))
    }
}
