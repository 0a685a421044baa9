//! Reads a JSON object field by field, so that all bad fields are reported at once with their pointers.

use serde_json::{Map, Value};

use super::body::FromBody;
use crate::base::{Error, FieldError, RecordId, Result, Timestamp, Word};
use crate::store::refer::Reference;

/// The fields of an object that have not been read yet, and the errors of those that have.
pub struct Fields {
    pointer: String,
    object: Map<String, Value>,
    noted: Noted,
}

/// The errors and references collected while reading.
#[derive(Default)]
pub(super) struct Noted {
    pub errors: Vec<FieldError>,
    pub references: Vec<Reference>,
}

/// More errors than this only make the answer large.
pub(super) const ERRORS_MAX: usize = 100;

impl Fields {
    pub fn new(object: Map<String, Value>) -> Self {
        Fields { pointer: String::new(), object, noted: Noted::default() }
    }

    pub fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// Reads a field that must be present.
    pub fn required<T>(&mut self, name: &str, parse: impl FnOnce(&mut Field<'_>) -> Option<T>) -> Option<T> {
        if !self.has(name) {
            self.report(name, "required", "is required");
            return None;
        }
        self.optional(name, parse).flatten()
    }

    /// Reads a field that may be absent, which is `Some(None)`. `None` means that it was present and invalid.
    pub fn optional<T>(&mut self, name: &str, parse: impl FnOnce(&mut Field<'_>) -> Option<T>) -> Option<Option<T>> {
        let Some(value) = self.object.remove(name) else { return Some(None) };
        let pointer = format!("{}/{}", self.pointer, escape(name));
        parse(&mut Field { pointer, value, noted: &mut self.noted }).map(Some)
    }

    /// Reads a field that changes the meaning of the whole body, so that no other field is allowed beside it.
    pub fn alone<T>(&mut self, name: &str, parse: impl FnOnce(&mut Field<'_>) -> Option<T>) -> Option<T> {
        if self.has(name) && self.object.len() > 1 {
            self.report(name, "not_alone", "must be alone in the body");
        }
        self.required(name, parse)
    }

    pub fn report(&mut self, name: &str, code: &'static str, detail: impl Into<String>) {
        let pointer = format!("{}/{}", self.pointer, escape(name));
        self.noted.errors.push(FieldError { pointer, code, detail: detail.into() });
    }

    /// All findings, including the fields that were not read.
    pub(super) fn finish(mut self) -> Noted {
        self.refuse_rest();
        self.noted
    }

    fn refuse_rest(&mut self) {
        let rest: Vec<String> = self.object.keys().take(ERRORS_MAX).cloned().collect();
        for mut name in rest {
            // The answer repeats the name several times.
            name.truncate(name.floor_char_boundary(UNKNOWN_NAME_BYTES_MAX));
            self.report(&name, "unknown_field", "is not a field that can be set here");
        }
    }
}

/// How much of an unknown field's name a refusal repeats.
const UNKNOWN_NAME_BYTES_MAX: usize = 256;

/// The value parsed from an object, and its errors.
pub struct Read<T> {
    pub value: Option<T>,
    pub errors: Vec<FieldError>,
    /// The records that the object refers to.
    pub references: Vec<Reference>,
}

impl<T> Read<T> {
    /// The value and its references, or all bad fields at once.
    pub fn into_result(self) -> Result<(T, Vec<Reference>)> {
        if !self.errors.is_empty() {
            return Err(Error::invalid_fields(self.errors));
        }
        let value = self.value.ok_or_else(|| Error::internal("an object was refused without a reason"))?;
        Ok((value, self.references))
    }

    /// The result of the check alone, without the value.
    #[must_use]
    pub fn checked(self) -> Read<()> {
        Read { value: self.value.map(drop), errors: self.errors, references: self.references }
    }
}

/// Reads an object like the body of a request.
pub fn read_object<T: FromBody>(object: Map<String, Value>) -> Read<T> {
    let mut fields = Fields::new(object);
    let value = T::from_fields(&mut fields);
    let Noted { mut errors, references } = fields.finish();
    errors.truncate(ERRORS_MAX);
    Read { value, errors, references }
}

/// One value with its pointer.
pub struct Field<'a> {
    pointer: String,
    value: Value,
    noted: &'a mut Noted,
}

impl Field<'_> {
    pub fn wrong<T>(&mut self, code: &'static str, detail: impl Into<String>) -> Option<T> {
        self.noted.errors.push(FieldError { pointer: self.pointer.clone(), code, detail: detail.into() });
        None
    }

    /// A string without U+0000, which PostgreSQL cannot store.
    pub fn string(&mut self) -> Option<String> {
        match self.value.take() {
            Value::String(text) if has_nul(&text) => self.wrong("invalid_text", NUL),
            Value::String(text) => Some(text),
            _ => self.wrong("wrong_type", "must be a string"),
        }
    }

    /// A string that the parser accepts; the parser's error is the detail.
    pub fn parsed<T>(&mut self, code: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.string()?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(detail) => self.wrong(code, detail),
        }
    }

    /// An integer in a range. 90.0 is one, as in JSON Schema.
    pub fn integer(&mut self, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        #[expect(clippy::cast_possible_truncation, reason = "the fraction is zero and the bound is far below 2^53")]
        let number = match &self.value {
            Value::Number(n) => {
                n.as_i64().or_else(|| n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15).map(|f| f as i64))
            }
            _ => return self.wrong("wrong_type", "must be an integer"),
        };
        let fractional = number.is_none() && self.value.as_f64().is_some_and(|f| f.fract() != 0.0);
        match number {
            Some(number) if range.contains(&number) => Some(number),
            None if fractional => self.wrong("wrong_type", "must be an integer"),
            _ => self.wrong("out_of_range", format!("must be between {} and {}", range.start(), range.end())),
        }
    }

    pub fn boolean(&mut self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => self.wrong("wrong_type", "must be true or false"),
        }
    }

    /// An RFC 3339 time.
    pub fn time(&mut self) -> Option<Timestamp> {
        self.parsed("invalid_time", |text| {
            Timestamp::parse(text).ok_or_else(|| "must be an RFC 3339 time such as 2026-01-31T08:00:00Z".to_owned())
        })
    }

    /// The id of a record. A malformed one becomes an id that no record has.
    pub fn id<I: RecordId>(&mut self) -> Option<I> {
        self.string().map(|text| text.parse().unwrap_or(I::NONE))
    }

    /// The id of another record that is looked up later, see `RecordReference`.
    pub fn reference<I: RecordId>(&mut self) -> Option<I> {
        let id = self.string()?;
        let parsed = id.parse().unwrap_or(I::NONE);
        self.noted.references.push(Reference { pointer: self.pointer.clone(), prefix: I::PREFIX, id });
        Some(parsed)
    }

    /// A value of a closed set of words.
    pub fn word<W: Word>(&mut self) -> Option<W> {
        self.parsed("invalid_value", |text| W::parse(text).ok_or_else(|| format!("must be {}", W::expected())))
    }

    /// Whether the value is an array.
    pub fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// The value itself, unchecked.
    pub fn take(&mut self) -> Value {
        self.value.take()
    }

    /// `null`, or the parsed value.
    pub fn or_null<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.value.is_null() { Some(None) } else { parse(self).map(Some) }
    }

    /// An object with at most `max` members, whose names the client chooses. Every bad one is reported.
    pub fn map<T>(
        &mut self,
        max: usize,
        mut parse: impl FnMut(&str, &mut Field<'_>) -> Option<T>,
    ) -> Option<Vec<(String, T)>> {
        let Value::Object(object) = self.value.take() else {
            return self.wrong("wrong_type", "must be an object");
        };
        if object.len() > max {
            return self.wrong("too_many", format!("must have at most {max} fields"));
        }
        let mut values = Vec::with_capacity(object.len());
        let mut complete = true;
        for (name, value) in object {
            let pointer = format!("{}/{}", self.pointer, escape(&name));
            if has_nul(&name) {
                let detail = "must have a name without the character U+0000".to_owned();
                self.noted.errors.push(FieldError { pointer, code: "invalid_text", detail });
                complete = false;
                continue;
            }
            match parse(&name, &mut Field { pointer, value, noted: self.noted }) {
                Some(value) => values.push((name, value)),
                None => complete = false,
            }
        }
        complete.then_some(values)
    }

    /// A list of at most `max` elements. Every bad one is reported.
    pub fn list<T>(&mut self, max: usize, mut parse: impl FnMut(&mut Field<'_>) -> Option<T>) -> Option<Vec<T>> {
        let Value::Array(items) = self.value.take() else {
            return self.wrong("wrong_type", "must be an array");
        };
        if items.len() > max {
            return self.wrong("too_many", format!("must have at most {max} elements"));
        }
        let mut values = Vec::with_capacity(items.len());
        let mut complete = true;
        for (index, value) in items.into_iter().enumerate() {
            let mut field = Field { pointer: format!("{}/{index}", self.pointer), value, noted: self.noted };
            match parse(&mut field) {
                Some(value) => values.push(value),
                None => complete = false,
            }
        }
        complete.then_some(values)
    }

    /// A nested object, read as strictly as the outer one.
    pub fn object<T>(&mut self, parse: impl FnOnce(&mut Fields) -> Option<T>) -> Option<T> {
        let Value::Object(object) = self.value.take() else {
            return self.wrong("wrong_type", "must be an object");
        };
        let mut fields = Fields { pointer: self.pointer.clone(), object, noted: std::mem::take(self.noted) };
        let value = parse(&mut fields);
        *self.noted = fields.finish();
        value
    }
}

const NUL: &str = "must not contain the character U+0000";

fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

/// Escapes a name for a JSON pointer (RFC 6901).
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
