//! Identifiers: a prefix that names the kind, `_`, and 26 characters of Crockford base32 of a UUIDv7 (TypeID).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::{Env, Timestamp};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 26 characters of 5 bits hold 130 bits; a UUID has 128, so the first character is at most 7.
const DIGITS: usize = 26;
/// The latest time that an id can hold.
const LAST_MS: i64 = (1 << 48) - 1;

/// A record with ids. The feature that owns the record declares their prefix:
///
/// ```
/// use kernel::base::{Id, Identified};
///
/// pub struct Lamp;
/// pub type LampId = Id<Lamp>;
/// impl Identified for Lamp {
///     const PREFIX: &'static str = "lmp";
/// }
/// assert!("lmp_01h2xcejqtf2nbrexx3vqjhp41".parse::<LampId>().is_ok());
/// ```
pub trait Identified {
    /// Two to four lower-case letters, unique among all kinds.
    const PREFIX: &'static str;
    /// The description of the `id` parameter in the OpenAPI document.
    const ABOUT: &'static str = "The record to act on.";
}

/// The id of an `R`. Each kind of record has its own id type, so the compiler keeps them apart.
pub struct Id<R>(Uuid, PhantomData<fn() -> R>);

impl<R> Id<R> {
    const fn from_uuid(id: Uuid) -> Self {
        Id(id, PhantomData)
    }

    /// A new id, ordered by its time of creation.
    pub fn new(env: &Env) -> Self {
        Self::new_at(env, env.now())
    }

    /// A new id that is ordered as if it were made at `at`.
    pub fn new_at(env: &Env, at: Timestamp) -> Self {
        Self::from_uuid(uuid_at(at, &env.random.public_bytes()))
    }

    /// A new id that sorts after those of smaller numbers, even within one millisecond.
    pub fn new_numbered(env: &Env, at: Timestamp, number: i64) -> Self {
        Self::from_uuid(uuid_at(at, &with_number_prefix(number, env.random.public_bytes())))
    }

    /// A lower bound: no id made at `at` or later sorts before it.
    pub fn first_at(at: Timestamp) -> Self {
        Self::from_uuid(uuid_at(at, &[0; 10]))
    }

    /// An upper bound: every id sorts before it.
    pub fn after_all() -> Self {
        Self::first_at(Timestamp::from_millis(LAST_MS))
    }
}

impl<R: Identified> RecordId for Id<R> {
    const PREFIX: &'static str = {
        assert!(R::PREFIX.len() >= PREFIX_MIN && R::PREFIX.len() <= PREFIX_MAX, "a prefix has two to four letters");
        R::PREFIX
    };
    const ABOUT: &'static str = R::ABOUT;
    const NONE: Self = Self::from_uuid(Uuid::nil());
}

impl<R: Identified> fmt::Display for Id<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(IdText::new(Self::PREFIX, self.0).as_str())
    }
}

impl<R: Identified> fmt::Debug for Id<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<R: Identified> FromStr for Id<R> {
    type Err = MalformedId;
    fn from_str(text: &str) -> Result<Self, MalformedId> {
        decode_id(Self::PREFIX, text).map(Self::from_uuid).ok_or(MalformedId)
    }
}

impl<R: Identified> Serialize for Id<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(IdText::new(Self::PREFIX, self.0).as_str())
    }
}

// Written by hand, because derives would require the same traits of the record.
impl<R> Copy for Id<R> {}

impl<R> Clone for Id<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Eq for Id<R> {}

impl<R> PartialEq for Id<R> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<R> Ord for Id<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl<R> PartialOrd for Id<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Hash for Id<R> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Declares the ids of the kernel's own records. Features declare theirs in their folders.
macro_rules! own {
    ($($(#[$doc:meta])* $name:ident of $record:ident $prefix:literal $(=> $about:literal)?)*) => {
        mod own {
            $(pub enum $record {})*
        }
        $(
            $(#[$doc])*
            pub type $name = Id<own::$record>;

            impl Identified for own::$record {
                const PREFIX: &'static str = $prefix;
                $(const ABOUT: &'static str = $about;)?
            }
        )*
    };
}

own! {
    TenantId of Tenant "ten"
    UserId of User "usr"
    /// Session ids appear in the audit trail only, never in a response.
    SessionId of Session "ses"
    ApiKeyId of ApiKey "key" => "The key to act on."
    AuditId of AuditEntry "aud"
    EventId of Event "evt"
}

/// The common interface of all id types.
pub trait RecordId: Copy + FromStr + fmt::Display {
    /// The prefix of ids of this kind.
    const PREFIX: &'static str;
    /// The description of the `id` parameter in the OpenAPI document.
    const ABOUT: &'static str;
    /// An id that no record has. A malformed id is replaced by it, so that the response is the same as for an unknown id,
    /// and comes no earlier.
    const NONE: Self;
}

/// The text is not an id of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedId;

impl fmt::Display for MalformedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed id")
    }
}

impl std::error::Error for MalformedId {}

/// Whether a text has the form of a record id, for filters that do not know the kind.
pub fn is_record_id(text: &str) -> bool {
    text.split_once('_').is_some_and(|(prefix, _)| {
        (PREFIX_MIN..=PREFIX_MAX).contains(&prefix.len())
            && prefix.bytes().all(|byte| byte.is_ascii_lowercase())
            && decode_id(prefix, text).is_some()
    })
}

fn uuid_at(at: Timestamp, random: &[u8; 10]) -> Uuid {
    let at = u64::try_from(at.as_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(at, random).into_uuid()
}

/// Puts the low 32 bits of a number in front of the random bytes, around the version and variant bits of a UUIDv7. RFC 9562
/// allows a counter there.
fn with_number_prefix(number: i64, mut bytes: [u8; 10]) -> [u8; 10] {
    let [.., a, b, c, d] = number.to_be_bytes();
    bytes[0] = a >> 4;
    bytes[1] = (a << 4) | (b >> 4);
    bytes[2] = ((b & 0x0f) << 2) | (c >> 6);
    bytes[3] = (c << 2) | (d >> 6);
    bytes[4] = (d << 2) | (bytes[4] & 0x03);
    bytes
}

const PREFIX_MIN: usize = 2;
const PREFIX_MAX: usize = 4;

/// An id as text on the stack, because every request formats several ids.
struct IdText {
    bytes: [u8; PREFIX_MAX + 1 + DIGITS],
    len: usize,
}

impl IdText {
    fn new(prefix: &str, id: Uuid) -> Self {
        let (bits, len) = (id.as_u128(), prefix.len() + 1 + DIGITS);
        let mut bytes = [b'_'; PREFIX_MAX + 1 + DIGITS];
        let (start, digits) = bytes.split_at_mut(prefix.len() + 1);
        start[..prefix.len()].copy_from_slice(prefix.as_bytes());
        for (index, digit) in digits[..DIGITS].iter_mut().enumerate() {
            *digit = ALPHABET[(bits >> (5 * (DIGITS - 1 - index))) as usize & 31];
        }
        IdText { bytes, len }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// The value of each byte as a base-32 digit; [`NO_DIGIT`] for all other bytes.
const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value: u8 = 0;
    while (value as usize) < ALPHABET.len() {
        values[ALPHABET[value as usize] as usize] = value;
        value += 1;
    }
    values
};
const NO_DIGIT: u8 = 255;

fn decode_id(prefix: &str, text: &str) -> Option<Uuid> {
    let digits = text.strip_prefix(prefix)?.strip_prefix('_')?.as_bytes();
    if digits.len() != DIGITS || digits[0] > b'7' {
        return None;
    }
    let mut bits = 0u128;
    for digit in digits {
        let value = VALUES[usize::from(*digit)];
        if value == NO_DIGIT {
            return None;
        }
        bits = (bits << 5) | u128::from(value);
    }
    Some(Uuid::from_u128(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_refuses_everything_else() {
        let id = TenantId::new(&Env::default());
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "ten_",
            "usr_01h455vb4pex5vsknk084sn02q",
            "ten_81h455vb4pex5vsknk084sn02q",
            "ten_01H455VB4PEX5VSKNK084SN02Q",
        ] {
            assert_eq!(bad.parse::<TenantId>(), Err(MalformedId), "{bad}");
        }
    }

    #[test]
    fn numbered_ids_of_one_moment_are_ordered_by_their_numbers() {
        let (env, at) = (Env::default(), Timestamp::from_millis(1_700_000_000_000));
        let numbers =
            [1, 2, 63, 64, 255, 256, 16_383, 16_384, 1_048_575, 1_048_576, 268_435_455, 268_435_456, 4_294_967_295];
        let ids: Vec<EventId> = numbers.iter().map(|number| EventId::new_numbered(&env, at, *number)).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        assert!(ids.iter().all(|id| *id >= EventId::first_at(at) && *id < EventId::first_at(at.plus_ms(1))));
    }

    #[test]
    fn the_text_is_that_of_the_typeid_specification() {
        let id = TenantId::from_uuid(Uuid::from_u128(0x0188_bac7_4afa_78aa_bc3b_bd1e_ef28_d881));
        assert_eq!(id.to_string(), "ten_01h2xcejqtf2nbrexx3vqjhp41");
    }
}
