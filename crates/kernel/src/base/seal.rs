//! Sealing what must be read back: webhook secrets, header values, stored answers with secrets, cloud credentials.
//!
//! Each value has its own data key, which is wrapped by a key of the secrets file: changing that key re-wraps 32 bytes
//! per value. The place a value belongs to is bound in, so a sealed value copied to another record does not open.
//!
//! Layout: format (1) · key id (4) · nonce (12) · wrapped data key (32 + 16) · nonce (12) · ciphertext (n + 16).

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::{Chance, Error, Result, Secrets, hmac_sha256};

const FORMAT: u8 = 1;
const TAG_LEN: usize = 16;
const WRAPPED_LEN: usize = 32 + TAG_LEN;
const HEADER_LEN: usize = 1 + 4 + NONCE_LEN + WRAPPED_LEN + NONCE_LEN;

/// A key-encryption key with its number.
#[derive(Clone)]
pub struct SealingKey {
    id: u32,
    key: [u8; 32],
}

impl SealingKey {
    pub fn new(id: u32, key: [u8; 32]) -> Self {
        SealingKey { id, key }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn check(&self) -> [u8; 32] {
        hmac_sha256(&self.key, b"check")
    }
}

/// The place a sealed value belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub tenant: &'a str,
    pub table: &'a str,
    pub record: &'a str,
    pub version: i64,
}

impl Place<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in [self.tenant, self.table, self.record, &self.version.to_string()] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

impl Secrets {
    /// Seals a value for one place, with the newest key.
    pub fn seal(&self, chance: &Chance, place: Place<'_>, value: &[u8]) -> Result<Vec<u8>> {
        let Some(sealing_key) = self.sealing_keys().last() else {
            return Err(Error::internal("no sealing key"));
        };
        let place = place.bytes();
        let data_key = chance.bytes::<32>();
        let mut sealed = Vec::with_capacity(HEADER_LEN + value.len() + TAG_LEN);
        sealed.push(FORMAT);
        sealed.extend_from_slice(&sealing_key.id.to_be_bytes());
        encrypt(&sealing_key.key, chance, &place, &data_key, &mut sealed)?;
        encrypt(&data_key, chance, &place, value, &mut sealed)?;
        Ok(sealed)
    }

    /// Opens a value sealed for the same place.
    pub fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Vec<u8>> {
        if sealed.len() < HEADER_LEN + TAG_LEN || sealed[0] != FORMAT {
            return Err(Error::internal("a sealed value is malformed"));
        }
        let place = place.bytes();
        let (id, rest) = sealed[1..].split_at(4);
        let (wrapped, value) = rest.split_at(NONCE_LEN + WRAPPED_LEN);
        let sealing_key = self.sealing_keys().iter().find(|key| key.id.to_be_bytes() == *id);
        let sealing_key = sealing_key
            .ok_or_else(|| Error::internal("a value was sealed with a key that is not in the secrets file"))?;
        let data_key = decrypt(&sealing_key.key, &place, wrapped)?;
        decrypt(&data_key, &place, value)
    }
}

fn encrypt(key: &[u8], chance: &Chance, place: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let nonce = chance.bytes::<NONCE_LEN>();
    let mut text = value.to_vec();
    cipher(key)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place), &mut text)
        .map_err(|_| Error::internal("sealing failed"))?;
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&text);
    Ok(())
}

fn decrypt(key: &[u8], place: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
    let failed = || Error::internal("a sealed value does not open: it was changed, moved, or sealed elsewhere");
    let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or_else(failed)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| failed())?;
    let mut text = text.to_vec();
    let plain = cipher(key)?.open_in_place(nonce, Aad::from(place), &mut text).map_err(|_| failed())?;
    Ok(plain.to_vec())
}

fn cipher(key: &[u8]) -> Result<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| Error::internal("a key is not 32 bytes long"))?;
    Ok(LessSafeKey::new(key))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const PLACE: Place<'_> = Place { tenant: "ten_a", table: "webhooks", record: "wh_a", version: 1 };

    #[test]
    fn a_sealed_value_opens_only_in_its_own_place_and_unchanged() {
        let chance = Chance::System;
        let secrets = Secrets::parse(&Secrets::generate(&chance).unwrap()).unwrap();
        let sealed = secrets.seal(&chance, PLACE, b"whsec_x").unwrap();
        assert_eq!(secrets.open(PLACE, &sealed).unwrap(), b"whsec_x");
        assert!(secrets.open(Place { tenant: "ten_b", ..PLACE }, &sealed).is_err());
        assert!(secrets.open(Place { version: 2, ..PLACE }, &sealed).is_err());
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert!(secrets.open(PLACE, &altered).is_err(), "byte {at}");
        }
        let others = Secrets::parse(&Secrets::generate(&chance).unwrap()).unwrap();
        assert!(others.open(PLACE, &sealed).is_err());
    }
}
