//! Identifiers: a prefix that names the kind, `_`, and 26 characters of Crockford base32 of a UUIDv7 (TypeID).

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::{Timestamp, World};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 26 characters of 5 bits hold 130 bits; the first may only use the 128 that a UUID has.
const DIGITS: usize = 26;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, ordered by the time it is made.
            pub fn new(world: &World) -> Self {
                Self::new_at(world, world.now())
            }

            /// A new id that is ordered as if made at this moment.
            pub fn new_at(world: &World, at: Timestamp) -> Self {
                $name(uuid_at(at, &world.chance.bytes()))
            }

            /// A new id that comes behind those of smaller numbers, even of the same millisecond.
            pub fn new_numbered(world: &World, at: Timestamp, number: i64) -> Self {
                $name(uuid_at(at, &numbered(number, world.chance.bytes())))
            }

            /// No id of this moment or later comes before this one.
            pub fn first_at(at: Timestamp) -> Self {
                $name(uuid_at(at, &[0; 10]))
            }
        }

        const _: () = assert!($prefix.len() <= PREFIX_MAX);

        impl RecordId for $name {
            const PREFIX: &'static str = $prefix;
            const NONE: Self = $name(Uuid::nil());
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                encode($prefix, self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = MalformedId;
            fn from_str(text: &str) -> Result<Self, MalformedId> {
                decode($prefix, text).map($name).ok_or(MalformedId)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

ids! {
    TenantId "ten"
    UserId "usr"
    ApiKeyId "key"
    AuditId "aud"
    WebhookId "wh"
    EventId "evt"
    DeliveryId "dlv"
    /// Sessions are never named in an answer but in the audit trail.
    SessionId "ses"
    OrganizationId "org"
    TicketId "tkt"
    CommentId "cmt"
    DeviceId "dev"
}

/// What all kinds of ids have in common.
pub trait RecordId: Copy + FromStr + fmt::Display {
    /// What ids of this kind start with.
    const PREFIX: &'static str;
    /// An id that no record has. A malformed one becomes this, so that it is answered exactly like an unknown one, and
    /// no earlier.
    const NONE: Self;
}

/// The text is not an id of the wanted kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedId;

impl fmt::Display for MalformedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed id")
    }
}

impl std::error::Error for MalformedId {}

/// Whether a text looks like the id of any record: what a filter accepts without knowing the kind.
pub fn is_record_id(text: &str) -> bool {
    text.split_once('_').is_some_and(|(prefix, _)| {
        (2..=4).contains(&prefix.len())
            && prefix.bytes().all(|byte| byte.is_ascii_lowercase())
            && decode(prefix, text).is_some()
    })
}

fn uuid_at(at: Timestamp, random: &[u8; 10]) -> Uuid {
    let at = u64::try_from(at.as_millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(at, random).into_uuid()
}

/// Random bytes that start with the low 32 bits of a number, placed where the version and the variant of a UUIDv7 leave
/// room: its standard lets a counter stand there.
fn numbered(number: i64, mut bytes: [u8; 10]) -> [u8; 10] {
    let [.., a, b, c, d] = number.to_be_bytes();
    bytes[0] = a >> 4;
    bytes[1] = (a << 4) | (b >> 4);
    bytes[2] = ((b & 0x0f) << 2) | (c >> 6);
    bytes[3] = (c << 2) | (d >> 6);
    bytes[4] = (d << 2) | (bytes[4] & 0x03);
    bytes
}

/// The longest prefix, as [`is_record_id`] knows it.
const PREFIX_MAX: usize = 4;

/// Written in one piece: ids are made into text several times in every request.
fn encode(prefix: &str, id: Uuid, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let bits = id.as_u128();
    let mut text = [b'_'; PREFIX_MAX + 1 + DIGITS];
    let (start, digits) = text.split_at_mut(prefix.len() + 1);
    start[..prefix.len()].copy_from_slice(prefix.as_bytes());
    for (place, digit) in digits[..DIGITS].iter_mut().enumerate() {
        *digit = ALPHABET[(bits >> (5 * (DIGITS - 1 - place))) as usize & 31];
    }
    let text = &text[..prefix.len() + 1 + DIGITS];
    f.write_str(std::str::from_utf8(text).map_err(|_| fmt::Error)?)
}

/// What each byte stands for as a digit; [`NO_DIGIT`] for all others.
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

fn decode(prefix: &str, text: &str) -> Option<Uuid> {
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
        let id = TenantId::new(&World::default());
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
        let (world, at) = (World::default(), Timestamp::from_millis(1_700_000_000_000));
        let numbers =
            [1, 2, 63, 64, 255, 256, 16_383, 16_384, 1_048_575, 1_048_576, 268_435_455, 268_435_456, 4_294_967_295];
        let ids: Vec<TicketId> = numbers.iter().map(|number| TicketId::new_numbered(&world, at, *number)).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        assert!(ids.iter().all(|id| *id >= TicketId::first_at(at) && *id < TicketId::first_at(at.plus(1))));
    }

    #[test]
    fn the_text_is_that_of_the_typeid_specification() {
        let id = TenantId(Uuid::from_u128(0x0188_bac7_4afa_78aa_bc3b_bd1e_ef28_d881));
        assert_eq!(id.to_string(), "ten_01h2xcejqtf2nbrexx3vqjhp41");
    }
}
