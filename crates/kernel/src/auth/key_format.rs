//! The text of an API key: `tck_`, a public id of 8 characters, `_`, 32 random characters and a checksum of 6.
//!
//! Scanners find a leaked key by its pattern, and a mistyped key is refused without a database query.

use crate::base::{BASE62, RandomSource, Secrets};

const PREFIX: &str = "tck_";
const PUBLIC_ID_LEN: usize = 8;
const RANDOM_LEN: usize = 32;
const CHECKSUM_LEN: usize = 6;
const LEN: usize = PREFIX.len() + PUBLIC_ID_LEN + 1 + RANDOM_LEN + CHECKSUM_LEN;

/// The public part of a key's secret, which identifies it. A rotated key has two secrets for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicId([u8; PUBLIC_ID_LEN]);

impl PublicId {
    pub fn parse(text: &str) -> Option<Self> {
        text.as_bytes().try_into().ok().map(PublicId)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A key in plain text: shown once, never stored, never logged.
pub struct PlainKey(String);

impl PlainKey {
    pub fn generate(random: &RandomSource) -> Self {
        let body = format!("{PREFIX}{}_{}", random.base62_text(PUBLIC_ID_LEN), random.base62_text(RANDOM_LEN));
        let checksum = compute_checksum(&body).map(char::from);
        PlainKey(body + &String::from_iter(checksum))
    }

    /// Returns the key if its form and checksum are right.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != LEN || !text.is_ascii() {
            return None;
        }
        let (body, given) = text.split_at(LEN - CHECKSUM_LEN);
        let (public_id, random) = body.strip_prefix(PREFIX)?.split_at(PUBLIC_ID_LEN);
        let random = random.strip_prefix('_')?;
        let well_formed = [public_id, random].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        (well_formed && compute_checksum(body) == given.as_bytes()).then(|| PlainKey(text.to_owned()))
    }

    pub fn public_id(&self) -> &str {
        &self.0[PREFIX.len()..PREFIX.len() + PUBLIC_ID_LEN]
    }

    /// The prefix that lists show to tell keys apart.
    pub fn display_prefix(&self) -> &str {
        &self.0[..PREFIX.len() + PUBLIC_ID_LEN]
    }

    pub fn last_four(&self) -> &str {
        &self.0[LEN - 4..]
    }

    /// The hash that the database stores.
    pub fn hash(&self, secrets: &Secrets) -> [u8; 32] {
        secrets.pepper().sign(self.0.as_bytes())
    }

    /// The plain text, for the one response that shows it.
    pub fn expose_secret(self) -> String {
        self.0
    }
}

fn compute_checksum(body: &str) -> [u8; CHECKSUM_LEN] {
    let mut rest = crc32fast::hash(body.as_bytes()) as usize;
    let mut text = [b'0'; CHECKSUM_LEN];
    for digit in text.iter_mut().rev() {
        *digit = BASE62[rest % 62];
        rest /= 62;
    }
    text
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32_in_base62() {
        // The check value of CRC32 (IEEE), read back from its six digits.
        let mut value = 0u64;
        for digit in compute_checksum("123456789") {
            let index = BASE62.iter().position(|c| *c == digit);
            value = value * 62 + index.unwrap() as u64;
        }
        assert_eq!(value, 0xCBF4_3926);
    }

    #[test]
    fn a_key_reads_back_and_any_other_character_is_refused() {
        let text = PlainKey::generate(&RandomSource::System).expose_secret();
        assert!(PlainKey::parse(&text).is_some());
        for at in 0..text.len() {
            let mut altered = text.clone().into_bytes();
            altered[at] = if altered[at] == b'x' { b'y' } else { b'x' };
            assert!(PlainKey::parse(std::str::from_utf8(&altered).unwrap()).is_none(), "character {at}");
        }
        assert!(PlainKey::parse("").is_none() && PlainKey::parse(&(text + "0")).is_none());
    }
}
