//! Values during evaluation. Values from JSON or from the expression's source are borrowed; new values are shared, so that
//! `[a, a]` does not hold `a` twice.

mod key;
mod result;
mod time;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;

use serde_json::{Number, Value};

pub use self::key::MapKey;
pub use self::time::{CelTime, NANOSECONDS, parse_offset, span_text};

/// The cost of an element of a list, of an entry of a map, and of a value in the result: about their size in memory.
pub const SLOT_BYTES: usize = 32;
pub const ENTRY_BYTES: usize = 64;
const _: () = assert!(size_of::<CelValue<'_>>() <= SLOT_BYTES);
const _: () = assert!(size_of::<(MapKey<'_>, CelValue<'_>)>() <= ENTRY_BYTES);

pub type MapEntries<'a> = BTreeMap<MapKey<'a>, CelValue<'a>>;

#[derive(Clone, Debug)]
pub enum CelValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(CelText<'a>),
    Bytes(Rc<[u8]>),
    Time(CelTime),
    /// In nanoseconds.
    Span(i64),
    Type(&'static str),
    /// An optional value, which may have none.
    Optional(Option<Rc<CelValue<'a>>>),
    Ip(Rc<IpAddr>),
    Cidr(Rc<CidrRange>),
    /// An array or an object, nothing else.
    Json(&'a Value),
    List(Rc<Vec<CelValue<'a>>>),
    Map(Rc<MapEntries<'a>>),
}

#[derive(Clone, Debug)]
pub enum CelText<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

impl Deref for CelText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            CelText::Borrowed(text) => text,
            CelText::Shared(text) => text,
        }
    }
}

/// A range of addresses, as in `10.0.0.0/8`. The address may have bits beyond the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CidrRange {
    pub address: IpAddr,
    pub prefix_length: u8,
}

impl<'a> CelValue<'a> {
    pub fn from_json(value: &'a Value) -> CelValue<'a> {
        match value {
            Value::Null => CelValue::Null,
            Value::Bool(yes) => CelValue::Bool(*yes),
            Value::Number(number) => CelValue::from_json_number(number),
            Value::String(text) => CelValue::Text(CelText::Borrowed(text)),
            Value::Array(_) | Value::Object(_) => CelValue::Json(value),
        }
    }

    /// An integer becomes an `int`, one too large for that a `uint`, and every other number a `double`.
    fn from_json_number(number: &Number) -> CelValue<'a> {
        if let Some(int) = number.as_i64() {
            CelValue::Int(int)
        } else if let Some(uint) = number.as_u64() {
            CelValue::Uint(uint)
        } else {
            CelValue::Double(number.as_f64().unwrap_or(f64::NAN))
        }
    }

    pub fn shared_text(text: impl Into<Rc<str>>) -> CelValue<'a> {
        CelValue::Text(CelText::Shared(text.into()))
    }

    pub fn from_items(items: Vec<CelValue<'a>>) -> CelValue<'a> {
        CelValue::List(Rc::new(items))
    }

    pub fn from_count(count: usize) -> CelValue<'a> {
        CelValue::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub fn present(self) -> CelValue<'a> {
        CelValue::Optional(Some(Rc::new(self)))
    }

    /// The optional value of what may be missing.
    pub fn optional(found: Option<CelValue<'a>>) -> CelValue<'a> {
        CelValue::Optional(found.map(Rc::new))
    }

    /// The name of the value's type, as `type()` returns it.
    pub fn type_name(&self) -> &'static str {
        match self {
            CelValue::Null => "null_type",
            CelValue::Bool(_) => "bool",
            CelValue::Int(_) => "int",
            CelValue::Uint(_) => "uint",
            CelValue::Double(_) => "double",
            CelValue::Text(_) => "string",
            CelValue::Bytes(_) => "bytes",
            CelValue::Time(_) => "google.protobuf.Timestamp",
            CelValue::Span(_) => "google.protobuf.Duration",
            CelValue::Type(_) => "type",
            CelValue::Optional(_) => "optional_type",
            CelValue::Ip(_) => "net.IP",
            CelValue::Cidr(_) => "net.CIDR",
            CelValue::Json(Value::Array(_)) | CelValue::List(_) => "list",
            CelValue::Json(_) | CelValue::Map(_) => "map",
        }
    }

    /// The name of the value's type in error messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            CelValue::Null => "null",
            CelValue::Time(_) => "timestamp",
            CelValue::Span(_) => "duration",
            CelValue::Optional(_) => "optional",
            CelValue::Ip(_) => "ip",
            CelValue::Cidr(_) => "cidr",
            other => other.type_name(),
        }
    }

    /// Null, also as an optional value.
    pub fn is_nothing(&self) -> bool {
        match self {
            CelValue::Null => true,
            CelValue::Optional(Some(value)) => value.is_nothing(),
            _ => false,
        }
    }

    pub fn is_list(&self) -> bool {
        matches!(self, CelValue::List(_) | CelValue::Json(Value::Array(_)))
    }

    pub fn is_map(&self) -> bool {
        matches!(self, CelValue::Map(_) | CelValue::Json(Value::Object(_)))
    }

    pub fn is_number(&self) -> bool {
        matches!(self, CelValue::Int(_) | CelValue::Uint(_) | CelValue::Double(_))
    }

    /// The value as a key of a map. Lists, fractions and other values that cannot be keys give `None`.
    pub fn to_key(&self) -> Option<MapKey<'a>> {
        match self {
            CelValue::Bool(yes) => Some(MapKey::Bool(*yes)),
            CelValue::Text(text) => Some(MapKey::Text(text.clone())),
            CelValue::Uint(uint) => Some(MapKey::Uint(*uint)),
            other => {
                let integer = other.to_integer()?;
                i64::try_from(integer).map(MapKey::Int).or_else(|_| u64::try_from(integer).map(MapKey::Uint)).ok()
            }
        }
    }

    /// The value of a number without a fraction.
    pub fn to_integer(&self) -> Option<i128> {
        match self {
            CelValue::Int(int) => Some(i128::from(*int)),
            CelValue::Uint(uint) => Some(i128::from(*uint)),
            #[expect(clippy::cast_possible_truncation, reason = "what has no fraction and is below 2^64 fits")]
            CelValue::Double(double) if double.fract() == 0.0 && double.abs() < 18_446_744_073_709_551_616.0 => {
                Some(*double as i128)
            }
            _ => None,
        }
    }

    /// The number of elements or entries; of other values 0.
    pub fn element_count(&self) -> usize {
        match self {
            CelValue::Json(Value::Array(items)) => items.len(),
            CelValue::Json(Value::Object(entries)) => entries.len(),
            CelValue::List(items) => items.len(),
            CelValue::Map(entries) => entries.len(),
            _ => 0,
        }
    }

    /// The element of a list; of other values `None`.
    pub fn element_at(&self, at: usize) -> Option<CelValue<'a>> {
        match self {
            CelValue::Json(Value::Array(items)) => items.get(at).map(CelValue::from_json),
            CelValue::List(items) => items.get(at).cloned(),
            _ => None,
        }
    }

    /// The elements of a list; of other values none.
    pub fn elements(&self) -> impl Iterator<Item = CelValue<'a>> {
        (0..self.element_count()).map_while(|at| self.element_at(at))
    }
}

/// The shortest text that parses to the same number; whole numbers have no fraction.
pub fn double_text(double: f64) -> String {
    if double.is_infinite() {
        (if double > 0.0 { "+Inf" } else { "-Inf" }).to_owned()
    } else if double != 0.0 && (double.abs() >= 1e21 || double.abs() < 1e-6) {
        format!("{double:e}")
    } else {
        double.to_string()
    }
}
