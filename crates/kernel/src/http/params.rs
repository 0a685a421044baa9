//! Strict parsing of the query string: unknown or invalid parameters are refused, never ignored. A list is given with commas
//! or by repeating its parameter; any other parameter is given once.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use utoipa::openapi::Ref;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::{IntoParams, ToSchema};

use super::param::{KnownParam, ParamShape, QueryParam};
use crate::base::{Code, Error, RecordId, Result, StringEnum, Timestamp};

/// The query string of a request. The handler parses it after the scope is checked.
pub struct QueryString<T> {
    raw: String,
    kind: PhantomData<fn() -> T>,
}

/// A type made from a query string by taking every parameter that the route knows. Nothing else declares them: the
/// document lists the taken parameters in their order, others are refused, and cursors are bound to the taken ones.
///
/// So an implementation takes all its parameters in every call, whether they are given or not, and the page last.
pub trait FromParams: Sized {
    fn from_params(params: &mut Params) -> Result<Self>;
}

/// A route without parameters.
impl FromParams for () {
    fn from_params(_: &mut Params) -> Result<Self> {
        Ok(())
    }
}

/// The `id` of the record that PUT, PATCH or DELETE acts on, as the only parameter.
pub struct RecordQuery<I> {
    pub id: I,
}

impl<I: RecordId> FromParams for RecordQuery<I> {
    fn from_params(params: &mut Params) -> Result<Self> {
        Ok(RecordQuery { id: params.take_id(I::ABOUT)? })
    }
}

impl<T: FromParams> QueryString<T> {
    pub fn parse(&self) -> Result<T> {
        let mut params = Params::parse(&self.raw)?;
        let value = T::from_params(&mut params);
        // An unknown name may be a misspelt required one, so it is reported first. On success every known parameter has
        // been taken, and those left over are unknown.
        let known = if value.is_ok() { Vec::new() } else { known_params::<T>() };
        match params.given.iter().find(|(name, _)| known.iter().all(|known| known.param.name != name)) {
            None => value,
            Some((name, _)) => Err(unknown_parameter(name, &known_params::<T>())),
        }
    }
}

/// The parameters of a route, recorded while it takes them from an empty query string.
fn known_params<T: FromParams>() -> Vec<KnownParam> {
    let mut params = Params { given: Vec::new(), filters: Some(Vec::new()), known: Some(Vec::new()) };
    // Only the recorded parameters are needed.
    drop(T::from_params(&mut params));
    params.known.unwrap_or_default()
}

impl<T: FromParams> IntoParams for QueryString<T> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        known_params::<T>().into_iter().map(KnownParam::into_parameter).collect()
    }
}

impl<S: Sync, T> FromRequestParts<S> for QueryString<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(QueryString { raw: parts.uri.query().unwrap_or_default().to_owned(), kind: PhantomData })
    }
}

/// A parsed query string, from which each parameter is taken once.
pub struct Params {
    /// The parameters that have not been taken yet, with the values that each was given.
    given: Vec<(String, Vec<String>)>,
    /// The parameters that cursors are bound to, with canonical values; `None` once the page is taken.
    filters: Option<Vec<(&'static str, String)>>,
    /// Records the taken parameters for [`known_params`].
    known: Option<Vec<KnownParam>>,
}

impl Params {
    /// Takes time linear in the length of the query, for any input.
    fn parse(raw: &str) -> Result<Self> {
        let mut given: Vec<(String, Vec<String>)> = Vec::new();
        let mut positions = HashMap::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode_component(name).ok_or_else(|| invalid_parameter(name, UNREADABLE))?;
            let value = decode_component(value).ok_or_else(|| invalid_parameter(&name, UNREADABLE))?;
            let at = *positions.entry(name.clone()).or_insert(given.len());
            match given.get_mut(at) {
                Some((_, values)) => values.push(value),
                None => given.push((name, vec![value])),
            }
        }
        Ok(Params { given, filters: Some(Vec::new()), known: None })
    }

    /// The basis of all other `take_` methods. `parse` returns the value and its canonical spelling, or the error detail. It
    /// sees a repeated list with commas.
    fn take_param<V>(
        &mut self,
        param: QueryParam,
        shape: ParamShape,
        parse: impl FnOnce(String) -> Result<(V, String), String>,
    ) -> Result<Option<V>> {
        let is_list = shape.is_list();
        if let Some(known) = &mut self.known {
            known.push(KnownParam { param, shape });
        }
        let filters = self.filters.as_mut().ok_or_else(|| Error::internal("a parameter is taken after the page"))?;
        let Some(at) = self.given.iter().position(|(name, _)| name == param.name) else { return Ok(None) };
        let (_, values) = self.given.remove(at);
        if values.len() > 1 && !is_list {
            return Err(invalid_parameter(param.name, "takes one value, and is given more than once"));
        }
        let (value, spelling) = parse(values.join(",")).map_err(|detail| invalid_parameter(param.name, &detail))?;
        if param.bound {
            filters.push((param.name, spelling));
        }
        Ok(Some(value))
    }

    /// The given filters. No parameter can be taken afterwards, because cursors would not be bound to it.
    pub(super) fn take_filters(&mut self) -> Vec<(&'static str, String)> {
        self.filters.take().unwrap_or_default()
    }

    /// Whether the parameter is given and not taken yet.
    pub fn has_param(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// The record that PUT, PATCH and DELETE act on. A malformed id is treated like an unknown one.
    pub fn take_id<I: RecordId>(&mut self, about: &'static str) -> Result<I> {
        let id =
            self.take_param(QueryParam::new(ID, about).required(), ParamShape::Text, |text| Ok(parse_id(&text)))?;
        // While the parameters are recorded, none is given.
        let id = id.or_else(|| self.known.is_some().then_some(I::NONE));
        id.ok_or_else(|| Error::new(Code::MissingParameter, "Name the record with the query parameter id."))
    }

    /// The record that GET shows, or `None` for the list. No other parameter is allowed beside an id but `limit`, which one
    /// record never exceeds: clients that send a limit with every request can read one, too.
    pub fn take_optional_id<I: RecordId>(&mut self, about: &'static str) -> Result<Option<I>> {
        self.take_optional_id_beside(about, &[])
    }

    /// Like [`Params::take_optional_id`], with some other parameters allowed beside the id.
    pub fn take_optional_id_beside<I: RecordId>(&mut self, about: &'static str, beside: &[&str]) -> Result<Option<I>> {
        self.take_only_id(ID, about, beside)
    }

    /// Like [`Params::take_optional_id`], for `run_id`, where `id` names the workflow.
    pub fn take_optional_run_id<I: RecordId>(&mut self, about: &'static str) -> Result<Option<I>> {
        self.take_only_id(RUN_ID, about, &[])
    }

    fn take_only_id<I: RecordId>(
        &mut self,
        own: &'static str,
        about: &'static str,
        beside: &[&str],
    ) -> Result<Option<I>> {
        let id = self.take_param(QueryParam::new(own, about), ParamShape::Text, |text| Ok(parse_id(&text)))?;
        let other = self.given.iter().find(|(name, _)| name != LIMIT && !beside.contains(&name.as_str()));
        match other.filter(|_| id.is_some()) {
            Some((name, _)) => Err(invalid_parameter(name, &format!("cannot be combined with {own}"))),
            None => Ok(id),
        }
    }

    /// Any text.
    pub fn take_text(&mut self, param: QueryParam) -> Result<Option<String>> {
        self.take_parsed(param, |text| Ok(text.to_owned()))
    }

    /// A value that the parser accepts and that has only one spelling. The parser's error is the detail.
    pub fn take_parsed<V>(
        &mut self,
        param: QueryParam,
        parse: impl Fn(&str) -> Result<V, String>,
    ) -> Result<Option<V>> {
        self.take_param(param, ParamShape::Text, |text| parse(&text).map(|value| (value, text)))
    }

    /// Whether the parameter is given. Its only value is `word`.
    pub fn take_flag(&mut self, param: QueryParam, word: &'static str) -> Result<bool> {
        let given = self.take_param(param, ParamShape::Word(word), |text| {
            if text == word { Ok(((), text)) } else { Err(format!("must be {word}, or left out")) }
        })?;
        Ok(given.is_some())
    }

    /// `true` or `false`.
    pub fn take_bool(&mut self, param: QueryParam) -> Result<Option<bool>> {
        self.take_param(param, ParamShape::Bool, |text| {
            let value = text.parse().map_err(|_| "must be true or false".to_owned())?;
            Ok((value, text))
        })
    }

    pub fn take_enum<W: StringEnum + ToSchema>(&mut self, param: QueryParam) -> Result<Option<W>> {
        self.take_param(param, ParamShape::Enum(schema_ref::<W>), |text| {
            let word = W::parse(&text).ok_or_else(|| format!("must be {}", W::expected_names()))?;
            Ok((word, text))
        })
    }

    /// An integer in a range.
    pub fn take_number(&mut self, param: QueryParam, range: RangeInclusive<usize>, default: usize) -> Result<usize> {
        let number = self.take_param(param, ParamShape::Number(range.clone()), |text| {
            let number = plain_number(&text).filter(|number| range.contains(number));
            let number =
                number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))?;
            Ok((number, number.to_string()))
        })?;
        Ok(number.unwrap_or(default))
    }

    pub fn take_time(&mut self, param: QueryParam) -> Result<Option<Timestamp>> {
        self.take_param(param, ParamShape::Time, |text| {
            let hint = if text.contains(' ') { "; write + as %2B" } else { "" };
            let wrong = || format!("must be an RFC 3339 time such as 2026-01-31T08:00:00Z{hint}");
            Timestamp::parse(&text).map(|at| (at, at.to_string())).ok_or_else(wrong)
        })
    }
}

/// Lists of alternatives, separated by commas or given one by one. Order and repetition do not matter to a cursor.
impl Params {
    /// `expected` describes one value in the error.
    pub fn take_list<V: Display>(
        &mut self,
        param: QueryParam,
        expected: &str,
        parse: impl Fn(&str) -> Option<V>,
    ) -> Result<Option<Vec<V>>> {
        self.take_param(param, ParamShape::Texts, |text| {
            Ok(sort_distinct(split_list(&text, expected, parse)?, V::to_string))
        })
    }

    pub fn take_enums<W: StringEnum + ToSchema>(&mut self, param: QueryParam) -> Result<Option<Vec<W>>> {
        self.take_param(param, ParamShape::Words(schema_ref::<W>), |text| {
            Ok(sort_distinct(split_list(&text, &W::expected_names(), W::parse)?, |word| word.as_str().to_owned()))
        })
    }

    /// Integers from 1.
    pub fn take_numbers(&mut self, param: QueryParam) -> Result<Option<Vec<i64>>> {
        self.take_param(param, ParamShape::Numbers, |text| {
            let numbers =
                split_list(&text, "a whole number from 1", |text| plain_number(text).filter(|number| *number > 0))?;
            Ok(sort_distinct(numbers, i64::to_string))
        })
    }

    /// Ids of records; `noun` names their kind in the error.
    pub fn take_ids<I: RecordId>(&mut self, param: QueryParam, noun: &str) -> Result<Option<Vec<I>>> {
        self.take_list(param, &format!("the id of {noun}"), |text| text.parse().ok())
    }
}

pub(super) const ID: &str = "id";
/// How many records a page has at most.
pub(super) const LIMIT: &str = "limit";
/// Where a page starts.
pub(super) const CURSOR: &str = "cursor";
/// Names the run of a workflow, where [`ID`] names the workflow.
pub(super) const RUN_ID: &str = "run_id";

/// The id of the affected record in an unparsed query string, as it is given.
pub(super) fn find_raw_id(query: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(name, _)| decode_component(name).is_some_and(|name| name == ID || name == RUN_ID))
        .and_then(|(_, id)| decode_component(id))
}

fn parse_id<I: RecordId>(text: &str) -> (I, String) {
    let id: I = text.parse().unwrap_or(I::NONE);
    (id, id.to_string())
}

/// The reference to a word's schema in the document.
fn schema_ref<W: ToSchema>() -> Ref {
    Ref::from_schema_name(W::name())
}

fn split_list<V>(text: &str, expected: &str, parse: impl Fn(&str) -> Option<V>) -> Result<Vec<V>, String> {
    if text.split(',').count() > LIST_MAX {
        return Err(format!("takes at most {LIST_MAX} values"));
    }
    let values: Option<Vec<V>> = text.split(',').map(parse).collect();
    values.ok_or_else(|| format!("must be {expected}, or a comma list of them"))
}

/// The distinct values sorted by their spelling, and their canonical list, which is the same for all equivalent lists.
fn sort_distinct<V>(values: Vec<V>, spell: impl Fn(&V) -> String) -> (Vec<V>, String) {
    let values: BTreeMap<String, V> = values.into_iter().map(|value| (spell(&value), value)).collect();
    let (spellings, values): (Vec<String>, Vec<V>) = values.into_iter().unzip();
    (values, spellings.join(","))
}

/// A number without a plus sign or leading zeros, so that each has one spelling.
fn plain_number<N: FromStr + Display>(text: &str) -> Option<N> {
    text.parse().ok().filter(|number: &N| number.to_string() == text)
}

/// The most values in one filter. Each is a bound argument of the statement, and more are surely a mistake.
pub const LIST_MAX: usize = 100;

/// How much of a client's own text an answer repeats.
const NAME_CHARS_MAX: usize = 100;

fn shorten_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

fn unknown_parameter(name: &str, known: &[KnownParam]) -> Error {
    let known: Vec<&str> = known.iter().map(|known| known.param.name).collect();
    let known =
        if known.is_empty() { "There are none.".to_owned() } else { format!("Known are {}.", known.join(", ")) };
    let name = shorten_name(name);
    Error::new(Code::UnknownParameter, format!("The query parameter {name:?} is not known here. {known}"))
}

fn invalid_parameter(name: &str, detail: &str) -> Error {
    let name = shorten_name(name);
    Error::new(Code::InvalidParameter, format!("The query parameter {name} {detail}."))
}

const UNREADABLE: &str = "must be percent-encoded UTF-8 without the character U+0000";

/// Decodes a name or value of a query string or a form. U+0000 is refused, because PostgreSQL cannot store it.
pub(super) fn decode_component(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    // percent_decode_str accepts a stray %.
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        let hex = rest.get(at + 1..at + 3)?;
        if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        rest = &rest[at + 3..];
    }
    let decoded = percent_decode_str(&text).decode_utf8().ok()?;
    (!decoded.contains('\0')).then(|| decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::page::PageRequest;
    use super::*;

    struct Listed {
        number: Option<Vec<i64>>,
        since: Option<Timestamp>,
        filters: Vec<(&'static str, String)>,
    }

    impl FromParams for Listed {
        fn from_params(params: &mut Params) -> Result<Self> {
            let (number, since) = (QueryParam::new("number", "Of these."), QueryParam::new("since", "Not before."));
            Ok(Listed {
                number: params.take_numbers(number)?,
                since: params.take_time(since)?,
                filters: params.take_filters(),
            })
        }
    }

    struct OneBehind;

    impl FromParams for OneBehind {
        fn from_params(params: &mut Params) -> Result<Self> {
            let _: crate::base::UserId = params.take_id("Whom.")?;
            params.take_text(QueryParam::new("after", "Nothing."))?;
            Ok(OneBehind)
        }
    }

    /// Takes a parameter after the page, which would not be bound to the cursor.
    struct Late;

    impl FromParams for Late {
        fn from_params(params: &mut Params) -> Result<Self> {
            PageRequest::take_page(params)?;
            params.take_text(QueryParam::new("late", "A filter."))?;
            Ok(Late)
        }
    }

    fn parse<T: FromParams>(raw: &str) -> Result<T> {
        QueryString { raw: raw.to_owned(), kind: PhantomData }.parse()
    }

    fn refusal<T: FromParams>(raw: &str) -> Option<Code> {
        parse::<T>(raw).err().map(|error| error.code())
    }

    #[test]
    fn what_is_taken_is_what_the_document_lists_and_what_a_cursor_is_bound_to() -> Result<()> {
        let listed = parse::<Listed>("since=2026-01-31T09:00:00%2B01:00&number=7,2,7")?;
        assert_eq!(listed.number, Some(vec![2, 7]), "each once");
        assert!(listed.since.is_some());
        let spelt = [("number", "2,7".to_owned()), ("since", "2026-01-31T08:00:00.000Z".to_owned())];
        assert_eq!(listed.filters, spelt, "in the order of the declaration, each value in one spelling");
        let names = |known: Vec<Parameter>| known.into_iter().map(|known| known.name).collect::<Vec<_>>();
        assert_eq!(names(<QueryString<Listed>>::into_params(|| None)), ["number", "since"]);
        assert_eq!(
            names(<QueryString<OneBehind>>::into_params(|| None)),
            ["id", "after"],
            "what is required ends no declaration"
        );
        Ok(())
    }

    #[test]
    fn an_unknown_name_is_reported_before_anything_else_that_is_wrong() {
        assert_eq!(refusal::<Listed>("stauts=1"), Some(Code::UnknownParameter));
        assert_eq!(refusal::<Listed>("number=x&stauts=1"), Some(Code::UnknownParameter));
        assert_eq!(refusal::<Listed>("number=x&since=1"), Some(Code::InvalidParameter));
        assert_eq!(refusal::<OneBehind>("after=1&idd=1"), Some(Code::UnknownParameter));
        assert_eq!(refusal::<OneBehind>("after=1"), Some(Code::MissingParameter));
    }

    #[test]
    fn nothing_can_be_taken_after_the_page() {
        assert_eq!(refusal::<Late>(""), Some(Code::Internal));
    }
}
