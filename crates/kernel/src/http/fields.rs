//! Reads a JSON object field by field, so that all bad fields are reported at once with their pointers.

use serde_json::{Map, Value};

use crate::base::{Error, FieldError, RecordId, Result, StringEnum, Timestamp};
use crate::store::references::RecordReference;

/// A type parsed from a JSON object. It reads every known field; unknown ones are refused, and all errors are reported
/// at once.
pub trait FromBody: Sized {
    fn from_fields(fields: &mut BodyFields) -> Option<Self>;
}

/// The fields of an object that have not been read yet, and the errors of those that have.
pub struct BodyFields {
    pointer: String,
    object: Map<String, Value>,
    findings: BodyFindings,
}

/// The errors and references collected while reading.
#[derive(Default)]
pub(super) struct BodyFindings {
    pub errors: Vec<FieldError>,
    pub references: Vec<RecordReference>,
}

/// More errors than this only make the answer large.
pub(super) const ERRORS_MAX: usize = 100;

impl BodyFields {
    pub fn new(object: Map<String, Value>) -> Self {
        BodyFields { pointer: String::new(), object, findings: BodyFindings::default() }
    }

    pub fn has_field(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// Reads a field that must be present.
    pub fn read_required<T>(&mut self, name: &str, parse: impl FnOnce(&mut BodyField<'_>) -> Option<T>) -> Option<T> {
        if !self.has_field(name) {
            self.report_field(name, "required", "is required");
            return None;
        }
        self.read_optional(name, parse).flatten()
    }

    /// Reads a field that may be absent, which is `Some(None)`. `None` means that it was present and invalid.
    pub fn read_optional<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&mut BodyField<'_>) -> Option<T>,
    ) -> Option<Option<T>> {
        let Some(value) = self.object.remove(name) else { return Some(None) };
        let pointer = format!("{}/{}", self.pointer, escape_pointer(name));
        parse(&mut BodyField { pointer, value, findings: &mut self.findings }).map(Some)
    }

    /// Reads a field that changes the meaning of the whole body, so that no other field is allowed beside it.
    pub fn read_alone<T>(&mut self, name: &str, parse: impl FnOnce(&mut BodyField<'_>) -> Option<T>) -> Option<T> {
        if self.has_field(name) && self.object.len() > 1 {
            self.report_field(name, "not_alone", "must be alone in the body");
        }
        self.read_required(name, parse)
    }

    pub fn report_field(&mut self, name: &str, code: &'static str, detail: impl Into<String>) {
        let pointer = format!("{}/{}", self.pointer, escape_pointer(name));
        self.findings.errors.push(FieldError { pointer, code, detail: detail.into() });
    }

    /// All findings, including the fields that were not read.
    pub(super) fn finish_reading(mut self) -> BodyFindings {
        self.report_unknown_fields();
        self.findings
    }

    fn report_unknown_fields(&mut self) {
        let rest: Vec<String> = self.object.keys().take(ERRORS_MAX).cloned().collect();
        for mut name in rest {
            // The answer repeats the name several times.
            name.truncate(name.floor_char_boundary(UNKNOWN_NAME_BYTES_MAX));
            self.report_field(&name, "unknown_field", "is not a field that can be set here");
        }
    }
}

/// How much of an unknown field's name a refusal repeats.
const UNKNOWN_NAME_BYTES_MAX: usize = 256;

/// The value parsed from an object, and its errors.
pub struct ParsedObject<T> {
    pub value: Option<T>,
    pub errors: Vec<FieldError>,
    /// The records that the object refers to.
    pub references: Vec<RecordReference>,
}

impl<T> ParsedObject<T> {
    /// The value and its references, or all bad fields at once.
    pub fn into_result(self) -> Result<(T, Vec<RecordReference>)> {
        if !self.errors.is_empty() {
            return Err(Error::invalid_fields(self.errors));
        }
        let value = self.value.ok_or_else(|| Error::internal("an object was refused without a reason"))?;
        Ok((value, self.references))
    }

    /// The result of the check alone, without the value.
    #[must_use]
    pub fn without_value(self) -> ParsedObject<()> {
        ParsedObject { value: self.value.map(drop), errors: self.errors, references: self.references }
    }
}

/// Reads an object like the body of a request.
pub fn read_object<T: FromBody>(object: Map<String, Value>) -> ParsedObject<T> {
    let mut fields = BodyFields::new(object);
    let value = T::from_fields(&mut fields);
    let BodyFindings { mut errors, references } = fields.finish_reading();
    errors.truncate(ERRORS_MAX);
    ParsedObject { value, errors, references }
}

/// One value with its pointer.
pub struct BodyField<'a> {
    pointer: String,
    value: Value,
    findings: &'a mut BodyFindings,
}

impl BodyField<'_> {
    pub fn report_error<T>(&mut self, code: &'static str, detail: impl Into<String>) -> Option<T> {
        self.findings.errors.push(FieldError { pointer: self.pointer.clone(), code, detail: detail.into() });
        None
    }

    /// Reports a member of the value, which is an object.
    pub fn report_member(&mut self, name: &str, code: &'static str, detail: impl Into<String>) {
        let pointer = format!("{}/{}", self.pointer, escape_pointer(name));
        self.findings.errors.push(FieldError { pointer, code, detail: detail.into() });
    }

    /// A string without U+0000, which PostgreSQL cannot store.
    pub fn read_string(&mut self) -> Option<String> {
        match self.value.take() {
            Value::String(text) if has_nul(&text) => self.report_error("invalid_text", NUL),
            Value::String(text) => Some(text),
            _ => self.report_error("wrong_type", "must be a string"),
        }
    }

    /// A string that the parser accepts; the parser's error is the detail.
    pub fn read_parsed<T>(&mut self, code: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.read_string()?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(detail) => self.report_error(code, detail),
        }
    }

    /// An integer in a range. 90.0 is one, as in JSON Schema.
    pub fn read_integer(&mut self, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        #[expect(clippy::cast_possible_truncation, reason = "the fraction is zero and the bound is far below 2^53")]
        let number = match &self.value {
            Value::Number(n) => {
                n.as_i64().or_else(|| n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15).map(|f| f as i64))
            }
            _ => return self.report_error("wrong_type", "must be an integer"),
        };
        let fractional = number.is_none() && self.value.as_f64().is_some_and(|f| f.fract() != 0.0);
        match number {
            Some(number) if range.contains(&number) => Some(number),
            None if fractional => self.report_error("wrong_type", "must be an integer"),
            _ => self.report_error("out_of_range", format!("must be between {} and {}", range.start(), range.end())),
        }
    }

    pub fn read_boolean(&mut self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => self.report_error("wrong_type", "must be true or false"),
        }
    }

    /// An RFC 3339 time.
    pub fn read_time(&mut self) -> Option<Timestamp> {
        self.read_parsed("invalid_time", |text| {
            Timestamp::parse(text).ok_or_else(|| "must be an RFC 3339 time such as 2026-01-31T08:00:00Z".to_owned())
        })
    }

    /// The id of a record. A malformed one becomes an id that no record has.
    pub fn read_id<I: RecordId>(&mut self) -> Option<I> {
        self.read_string().map(|text| text.parse().unwrap_or(I::NONE))
    }

    /// The id of another record that is looked up later, see `RecordReference`.
    pub fn read_reference<I: RecordId>(&mut self) -> Option<I> {
        let id = self.read_string()?;
        let parsed = id.parse().unwrap_or(I::NONE);
        self.findings.references.push(RecordReference { pointer: self.pointer.clone(), prefix: I::PREFIX, id });
        Some(parsed)
    }

    /// A value of a closed set of words.
    pub fn read_enum<W: StringEnum>(&mut self) -> Option<W> {
        self.read_parsed("invalid_value", |text| {
            W::parse(text).ok_or_else(|| format!("must be {}", W::expected_names()))
        })
    }

    /// Whether the value is an array.
    pub fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// The value itself, unchecked.
    pub fn take_value(&mut self) -> Value {
        self.value.take()
    }

    /// `null`, or the parsed value.
    pub fn read_or_null<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.value.is_null() { Some(None) } else { parse(self).map(Some) }
    }

    /// An object with at most `max` members, whose names the client chooses. Every bad one is reported.
    pub fn read_map<T>(
        &mut self,
        max: usize,
        mut parse: impl FnMut(&str, &mut BodyField<'_>) -> Option<T>,
    ) -> Option<Vec<(String, T)>> {
        let Value::Object(object) = self.value.take() else {
            return self.report_error("wrong_type", "must be an object");
        };
        if object.len() > max {
            return self.report_error("too_many", format!("must have at most {max} fields"));
        }
        let mut values = Vec::with_capacity(object.len());
        let mut complete = true;
        for (name, value) in object {
            let pointer = format!("{}/{}", self.pointer, escape_pointer(&name));
            if has_nul(&name) {
                let detail = "must have a name without the character U+0000".to_owned();
                self.findings.errors.push(FieldError { pointer, code: "invalid_text", detail });
                complete = false;
                continue;
            }
            match parse(&name, &mut BodyField { pointer, value, findings: self.findings }) {
                Some(value) => values.push((name, value)),
                None => complete = false,
            }
        }
        complete.then_some(values)
    }

    /// A list of at most `max` elements. Every bad one is reported.
    pub fn read_list<T>(
        &mut self,
        max: usize,
        mut parse: impl FnMut(&mut BodyField<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Value::Array(items) = self.value.take() else {
            return self.report_error("wrong_type", "must be an array");
        };
        if items.len() > max {
            return self.report_error("too_many", format!("must have at most {max} elements"));
        }
        let mut values = Vec::with_capacity(items.len());
        let mut complete = true;
        for (index, value) in items.into_iter().enumerate() {
            let mut field = BodyField { pointer: format!("{}/{index}", self.pointer), value, findings: self.findings };
            match parse(&mut field) {
                Some(value) => values.push(value),
                None => complete = false,
            }
        }
        complete.then_some(values)
    }

    /// A nested object, read as strictly as the outer one.
    pub fn read_object<T>(&mut self, parse: impl FnOnce(&mut BodyFields) -> Option<T>) -> Option<T> {
        let Value::Object(object) = self.value.take() else {
            return self.report_error("wrong_type", "must be an object");
        };
        let mut fields = BodyFields { pointer: self.pointer.clone(), object, findings: std::mem::take(self.findings) };
        let value = parse(&mut fields);
        *self.findings = fields.finish_reading();
        value
    }
}

const NUL: &str = "must not contain the character U+0000";

fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

/// Escapes a name for a JSON pointer (RFC 6901).
pub(super) fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
