//! The query string, strictly: unknown, repeated or bad parameters are refused, never ignored.

use std::collections::HashSet;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::base::{Code, Error, RecordId, Result, Timestamp, Word};

/// The parameters of a route, parsed when the handler asks, after the scope is checked.
pub struct Query<T> {
    raw: String,
    kind: PhantomData<fn() -> T>,
}

/// A type made from a query string. `take_*` every parameter that the route knows; the rest is refused afterwards.
pub trait FromParams: Sized {
    /// Every parameter that the route knows.
    const NAMES: &'static [&'static str];

    fn from_params(params: &mut Params) -> Result<Self>;
}

/// A route without parameters.
impl FromParams for () {
    const NAMES: &'static [&'static str] = &[];

    fn from_params(_: &mut Params) -> Result<Self> {
        Ok(())
    }
}

impl<T: FromParams> Query<T> {
    pub fn parse(&self) -> Result<T> {
        // A misspelt name explains a missing one, so it is reported first.
        let mut params = Params::parse(&self.raw, T::NAMES)?;
        let value = T::from_params(&mut params)?;
        // What was not taken would be ignored.
        match params.pairs.first() {
            None => Ok(value),
            Some((name, _)) => Err(unknown(name)),
        }
    }
}

impl<S: Sync, T> FromRequestParts<S> for Query<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Query { raw: parts.uri.query().unwrap_or_default().to_owned(), kind: PhantomData })
    }
}

/// Parameters that have not been taken yet.
pub struct Params {
    pairs: Vec<(String, String)>,
}

impl Params {
    /// Keeps known names only, and takes time in proportion to the query, whatever it is made of.
    fn parse(raw: &str, known: &[&str]) -> Result<Self> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let (mut given, mut first_unknown) = (HashSet::new(), None);
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| invalid(name, "the name is not percent-encoded UTF-8"))?;
            let value = decode(value).ok_or_else(|| invalid(&name, "the value is not percent-encoded UTF-8"))?;
            if !given.insert(name.clone()) {
                return Err(invalid(&name, "is given more than once"));
            }
            if known.contains(&name.as_str()) {
                pairs.push((name, value));
            } else {
                first_unknown.get_or_insert(name);
            }
        }
        match first_unknown {
            None => Ok(Params { pairs }),
            Some(name) => Err(unknown(&name)),
        }
    }

    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.pairs.iter().position(|(known, _)| known == name)?;
        Some(self.pairs.swap_remove(at).1)
    }

    /// The record that PUT, PATCH and DELETE act on. A malformed id is the same as one that does not exist.
    pub fn take_id<I: RecordId>(&mut self) -> Result<I> {
        let text = self
            .take("id")
            .ok_or_else(|| Error::new(Code::MissingParameter, "Name the record with the query parameter id."))?;
        Ok(text.parse().unwrap_or(I::NONE))
    }

    /// The record that GET shows, or `None` for the list. With an id, no other parameter makes sense.
    pub fn take_optional_id<I: RecordId>(&mut self) -> Result<Option<I>> {
        let Some(text) = self.take("id") else { return Ok(None) };
        if let Some((other, _)) = self.pairs.first() {
            return Err(invalid(other, "cannot be combined with id"));
        }
        Ok(Some(text.parse().unwrap_or(I::NONE)))
    }

    /// A whole number in a range.
    pub fn take_number(&mut self, name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let wrong = || invalid(name, &format!("must be a whole number from {} to {}", range.start(), range.end()));
        number.map(Some).ok_or_else(wrong)
    }

    pub fn take_time(&mut self, name: &str) -> Result<Option<Timestamp>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let hint = if text.contains(' ') { "; write + as %2B" } else { "" };
        let wrong = || invalid(name, &format!("must be an RFC 3339 time such as 2026-01-31T08:00:00Z{hint}"));
        Timestamp::parse(&text).map(Some).ok_or_else(wrong)
    }

    /// A comma list that means any of; `expected` says what one value must be.
    pub fn take_list<V>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<V>,
    ) -> Result<Option<Vec<V>>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > LIST_MAX {
            return Err(invalid(name, &format!("takes at most {LIST_MAX} values")));
        }
        let values: Option<Vec<V>> = parts.into_iter().map(parse).collect();
        values.map(Some).ok_or_else(|| invalid(name, &format!("must be {expected}, or a comma list of them")))
    }
}

impl Params {
    /// A comma list of words.
    pub fn take_words<W: Word>(&mut self, name: &str) -> Result<Option<Vec<W>>> {
        self.take_list(name, &W::expected(), W::parse)
    }

    /// A comma list of ids; `noun` says whose.
    pub fn take_ids<I: RecordId>(&mut self, name: &str, noun: &str) -> Result<Option<Vec<I>>> {
        self.take_list(name, &format!("the id of {noun}"), |text| text.parse().ok())
    }

    /// A value that a parser accepts; its error says what would be right.
    pub fn take_parsed<V>(&mut self, name: &str, parse: impl Fn(&str) -> Result<V, String>) -> Result<Option<V>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        parse(&text).map(Some).map_err(|detail| invalid(name, &detail))
    }
}

/// More values than this in one filter is a mistake, and each is a bound argument.
const LIST_MAX: usize = 100;

/// As much of a client's own text as an answer repeats.
const NAME_CHARS_MAX: usize = 100;

fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

fn unknown(name: &str) -> Error {
    Error::new(Code::UnknownParameter, format!("The query parameter {:?} is not known here.", shown(name)))
}

fn invalid(name: &str, detail: &str) -> Error {
    let name = shown(name);
    Error::new(Code::InvalidParameter, format!("The query parameter {name} {detail}."))
}

pub(super) fn decode(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    // percent_decode_str lets a stray % through.
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        let hex = rest.get(at + 1..at + 3)?;
        if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        rest = &rest[at + 3..];
    }
    percent_decode_str(&text).decode_utf8().ok().map(Into::into)
}
