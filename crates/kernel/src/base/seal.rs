//! Seals values that must be read back: webhook secrets, header values, stored responses with secrets, cloud credentials.
//!
//! Each value has its own data key, wrapped by a key of the secrets file: changing that key rewraps 32 bytes per value. The
//! tenant, column, record and version are authenticated with it, so a sealed value copied to another record does not open.
//!
//! Layout: format (1) · key id (4) · nonce (12) · wrapped data key (32 + 16) · nonce (12) · ciphertext (n + 16).

use std::fmt;
use std::marker::PhantomData;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::{Error, Id, Identified, Keyring, RandomSource, Result, Secrets, TenantId};

const FORMAT: u8 = 1;
/// Where the key id ends.
const ID_END: usize = 1 + 4;
const TAG_LEN: usize = 16;
const WRAPPED_LEN: usize = 32 + TAG_LEN;
const HEADER_LEN: usize = ID_END + NONCE_LEN + WRAPPED_LEN + NONCE_LEN;

/// The tenant, table, record and version that a value is sealed for. It opens with the same binding only.
#[derive(Clone, Copy, Debug)]
pub struct SealBinding<'a> {
    pub tenant: &'a str,
    pub table: &'a str,
    pub record: &'a str,
    pub version: i64,
}

impl SealBinding<'_> {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in [self.tenant, self.table, self.record, &self.version.to_string()] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

/// A column whose values are sealed, each for its tenant, record and version.
///
/// ```
/// # use kernel::base::{Id, Identified, seal::SealedColumn};
/// # struct Account;
/// # impl Identified for Account { const PREFIX: &'static str = "acc"; }
/// const CREDENTIALS: SealedColumn<Account> = SealedColumn::new("cloud_accounts.credentials");
/// ```
pub struct SealedColumn<R> {
    name: &'static str,
    of: PhantomData<fn() -> R>,
}

impl<R: Identified> SealedColumn<R> {
    /// The name is that of the table and the column. It is bound into every value, so it must never change, and each column
    /// has its own.
    pub const fn new(name: &'static str) -> Self {
        SealedColumn { name, of: PhantomData }
    }

    /// The name that is bound into every value.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The cell of one value. The version prevents an older value from replacing a newer one.
    pub fn cell_for(&self, tenant: TenantId, record: Id<R>, version: i64) -> SealedCell {
        SealedCell { tenant: tenant.to_string(), column: self.name, record: record.to_string(), version }
    }
}

/// One cell of a [`SealedColumn`]: the tenant, record and version of a value.
pub struct SealedCell {
    tenant: String,
    column: &'static str,
    record: String,
    version: i64,
}

impl SealedCell {
    pub fn seal(&self, secrets: &Secrets, random: &RandomSource, value: &[u8]) -> Result<SealedValue> {
        secrets.seal_value(random, self.as_binding(), value).map(SealedValue)
    }

    pub fn open(&self, secrets: &Secrets, sealed: &SealedValue) -> Result<Vec<u8>> {
        secrets.open_value(self.as_binding(), &sealed.0)
    }

    fn as_binding(&self) -> SealBinding<'_> {
        SealBinding { tenant: &self.tenant, table: self.column, record: &self.record, version: self.version }
    }
}

/// A value as it is stored in a [`SealedColumn`]. It opens only in the cell it was sealed for.
pub struct SealedValue(pub(crate) Vec<u8>);

impl From<Vec<u8>> for SealedValue {
    fn from(stored: Vec<u8>) -> Self {
        SealedValue(stored)
    }
}

impl SealedValue {
    /// Whether the value was erased. A sealed value is never empty, even if it seals an empty text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SealedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[sealed]")
    }
}

/// The id of the key that wraps a value's data key, from the value or its first five bytes, by which statements count. None if
/// it is not a sealed value.
pub fn sealed_key_id(sealed: &[u8]) -> Option<u32> {
    let (format, rest) = sealed.split_first()?;
    rest.first_chunk::<4>().filter(|_| *format == FORMAT).map(|id| u32::from_be_bytes(*id))
}

/// A sealed value in its parts.
struct SealedParts<'a> {
    key_id: u32,
    wrapped_key: &'a [u8],
    ciphertext: &'a [u8],
}

impl<'a> SealedParts<'a> {
    fn parse(sealed: &'a [u8]) -> Result<Self> {
        let malformed = || Error::internal("a sealed value is malformed");
        let key_id = sealed_key_id(sealed).filter(|_| sealed.len() >= HEADER_LEN + TAG_LEN).ok_or_else(malformed)?;
        let (wrapped_key, ciphertext) = sealed[ID_END..].split_at(NONCE_LEN + WRAPPED_LEN);
        Ok(SealedParts { key_id, wrapped_key, ciphertext })
    }

    fn unwrap_data_key(&self, keyring: &Keyring, binding: &[u8]) -> Result<Vec<u8>> {
        let sealing_key = keyring.find_key(self.key_id).ok_or_else(|| {
            Error::internal(format!("a value was sealed with key {}, which is not in the secrets file", self.key_id))
        })?;
        decrypt_bytes(&sealing_key.key, binding, self.wrapped_key)
    }
}

impl Secrets {
    /// Seals a value with the primary key.
    pub fn seal_value(&self, random: &RandomSource, binding: SealBinding<'_>, value: &[u8]) -> Result<Vec<u8>> {
        let binding = binding.to_bytes();
        let data_key = random.secret_bytes::<32>();
        let mut sealed = wrap_data_key(&self.keyring(), random, &binding, &data_key, value.len() + TAG_LEN)?;
        encrypt_bytes(&data_key, random, &binding, value, &mut sealed)?;
        Ok(sealed)
    }

    /// Opens a value that was sealed with the same binding.
    pub fn open_value(&self, binding: SealBinding<'_>, sealed: &[u8]) -> Result<Vec<u8>> {
        let (parts, binding) = (SealedParts::parse(sealed)?, binding.to_bytes());
        let data_key = parts.unwrap_data_key(&self.keyring(), &binding)?;
        decrypt_bytes(&data_key, &binding, parts.ciphertext)
    }

    /// Wraps the data key of a value with the primary key; the ciphertext stays. `None` if the primary wraps it already.
    pub fn rewrap_value(
        &self,
        random: &RandomSource,
        binding: SealBinding<'_>,
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let (parts, keyring, binding) = (SealedParts::parse(sealed)?, self.keyring(), binding.to_bytes());
        if parts.key_id == keyring.primary_id() {
            return Ok(None);
        }
        let data_key = parts.unwrap_data_key(&keyring, &binding)?;
        let mut rewrapped = wrap_data_key(&keyring, random, &binding, &data_key, parts.ciphertext.len())?;
        rewrapped.extend_from_slice(parts.ciphertext);
        Ok(Some(rewrapped))
    }
}

/// The beginning of a sealed value, up to its ciphertext.
fn wrap_data_key(
    keyring: &Keyring,
    random: &RandomSource,
    binding: &[u8],
    data_key: &[u8],
    ciphertext_len: usize,
) -> Result<Vec<u8>> {
    let primary = keyring.sealing_key()?;
    let mut sealed = Vec::with_capacity(HEADER_LEN + ciphertext_len);
    sealed.push(FORMAT);
    sealed.extend_from_slice(&primary.id.to_be_bytes());
    encrypt_bytes(&primary.key, random, binding, data_key, &mut sealed)?;
    Ok(sealed)
}

pub(super) fn encrypt_bytes(
    key: &[u8],
    random: &RandomSource,
    binding: &[u8],
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    let nonce = random.secret_bytes::<NONCE_LEN>();
    let mut text = value.to_vec();
    new_cipher(key)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(binding), &mut text)
        .map_err(|_| Error::internal("sealing failed"))?;
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&text);
    Ok(())
}

pub(super) fn decrypt_bytes(key: &[u8], binding: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
    let failed = || Error::internal("a sealed value does not open: it was changed, moved, or sealed elsewhere");
    let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or_else(failed)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| failed())?;
    let mut text = text.to_vec();
    let plain = new_cipher(key)?.open_in_place(nonce, Aad::from(binding), &mut text).map_err(|_| failed())?;
    Ok(plain.to_vec())
}

fn new_cipher(key: &[u8]) -> Result<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| Error::internal("a key is not 32 bytes long"))?;
    Ok(LessSafeKey::new(key))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::super::{Env, KeyringChange};
    use super::*;

    const BINDING: SealBinding<'_> = SealBinding { tenant: "ten_a", table: "webhooks", record: "wh_a", version: 1 };

    #[test]
    fn a_sealed_value_opens_only_in_its_own_place_and_unchanged() {
        let random = RandomSource::System;
        let secrets = Secrets::parse(&Secrets::generate_text(&random).unwrap()).unwrap();
        let sealed = secrets.seal_value(&random, BINDING, b"whsec_x").unwrap();
        assert_eq!(secrets.open_value(BINDING, &sealed).unwrap(), b"whsec_x");
        assert!(secrets.open_value(SealBinding { tenant: "ten_b", ..BINDING }, &sealed).is_err());
        assert!(secrets.open_value(SealBinding { version: 2, ..BINDING }, &sealed).is_err());
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert!(secrets.open_value(BINDING, &altered).is_err(), "byte {at}");
        }
        let others = Secrets::parse(&Secrets::generate_text(&random).unwrap()).unwrap();
        assert!(others.open_value(BINDING, &sealed).is_err());
    }

    struct Lamp;

    impl Identified for Lamp {
        const PREFIX: &'static str = "lmp";
    }

    const WIRING: SealedColumn<Lamp> = SealedColumn::new("lamps.wiring");
    const SWITCH: SealedColumn<Lamp> = SealedColumn::new("lamps.switch");

    #[test]
    fn a_value_opens_only_in_its_own_cell() {
        let env = Env::default();
        let secrets = Secrets::parse(&Secrets::generate_text(&env.random).unwrap()).unwrap();
        let (tenant, lamp) = (TenantId::new(&env), Id::new(&env));
        let sealed = WIRING.cell_for(tenant, lamp, 3).seal(&secrets, &env.random, b"red and blue").unwrap();
        assert_eq!(WIRING.cell_for(tenant, lamp, 3).open(&secrets, &sealed).unwrap(), b"red and blue");
        let elsewhere = [
            WIRING.cell_for(tenant, lamp, 2),
            WIRING.cell_for(tenant, Id::new(&env), 3),
            WIRING.cell_for(TenantId::new(&env), lamp, 3),
            SWITCH.cell_for(tenant, lamp, 3),
        ];
        assert!(elsewhere.iter().all(|cell| cell.open(&secrets, &sealed).is_err()));
        assert_eq!(format!("{sealed:?}"), "[sealed]");
    }

    /// The stored value was made by hand from the layout in the module's documentation, with another implementation of
    /// AES-GCM. It must not change: code that cannot open it cannot open existing databases.
    #[test]
    fn what_is_stored_opens_for_good() {
        let secrets = Secrets::parse(
            r#"{"pepper": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
                "sealing_keys": [{"id": 7, "key": "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="},
                                 {"id": 8, "key": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}]}"#,
        );
        let stored = "AQAAAAdgYWJjZGVmZ2hpamui1e/ot5U9ErENLfdZBz02IlbJURVYDp5T/uMz04ztYouUuL7zdcx47LDJ2r5C7cRsbW5vcHFyc3R1dn\
                      cidqDfK1dJdbPg5RB3zvDFuOk6dtKJYoj0yg/q";
        let sealed = SealedValue(BASE64.decode(stored).unwrap());
        let tenant = "ten_01jd8z6v2mfkpb7h3q9xw5t4ra".parse().unwrap();
        let lamp = "lmp_01jd8z6v2mfkpb7h3q9xw5t4rb".parse().unwrap();
        let (secrets, cell) = (secrets.unwrap(), WIRING.cell_for(tenant, lamp, 3));
        assert_eq!(cell.open(&secrets, &sealed).unwrap(), b"red and blue");
        // New values have the same layout and use the primary key, which is the last where the file names none.
        let today = cell.seal(&secrets, &RandomSource::System, b"red and blue").unwrap();
        assert_eq!((today.0.len(), &today.0[..5]), (sealed.0.len(), &[FORMAT, 0, 0, 0, 8][..]));
    }

    #[test]
    fn a_rewrapped_value_needs_the_new_key_alone_and_opens_only_in_its_own_place() {
        let random = RandomSource::System;
        let text = Secrets::generate_text(&random).unwrap();
        let change = |text: &str, change| Secrets::change_text(text, change, &random).unwrap();
        let both = change(&change(&text, KeyringChange::AddKey(2)), KeyringChange::SetPrimary(2));
        let [old, both, new] =
            [&text, &both, &change(&both, KeyringChange::RemoveKey(1))].map(|text| Secrets::parse(text).unwrap());
        let sealed = old.seal_value(&random, BINDING, b"whsec_x").unwrap();
        assert_eq!(sealed_key_id(&sealed), Some(1));
        assert!(new.open_value(BINDING, &sealed).is_err());
        for elsewhere in [SealBinding { tenant: "ten_b", ..BINDING }, SealBinding { version: 2, ..BINDING }] {
            assert!(both.rewrap_value(&random, elsewhere, &sealed).is_err(), "what was moved is not made good");
        }
        assert!(new.rewrap_value(&random, BINDING, &sealed).is_err(), "a lost key");
        let rewrapped = both.rewrap_value(&random, BINDING, &sealed).unwrap().unwrap();
        assert_eq!((rewrapped.len(), sealed_key_id(&rewrapped)), (sealed.len(), Some(2)));
        assert_eq!(rewrapped[HEADER_LEN..], sealed[HEADER_LEN..], "the ciphertext stays");
        assert_eq!(new.open_value(BINDING, &rewrapped).unwrap(), b"whsec_x");
        assert!(old.open_value(BINDING, &rewrapped).is_err());
        assert!(new.open_value(SealBinding { record: "wh_b", ..BINDING }, &rewrapped).is_err());
        assert_eq!(both.rewrap_value(&random, BINDING, &rewrapped).unwrap(), None, "it is done");
        for broken in [&sealed[..HEADER_LEN], &[], &[FORMAT, 0, 0, 0], &[9, 0, 0, 0, 1]] {
            assert!(both.rewrap_value(&random, BINDING, broken).is_err());
        }
        assert_eq!((sealed_key_id(&[]), sealed_key_id(&[9, 0, 0, 0, 1])), (None, None));
    }

    #[test]
    fn what_was_sealed_before_there_were_columns_still_opens() {
        let env = Env::default();
        let secrets = Secrets::parse(&Secrets::generate_text(&env.random).unwrap()).unwrap();
        let (tenant, lamp) = (TenantId::new(&env), Id::new(&env));
        let (tenant_text, lamp_text) = (tenant.to_string(), lamp.to_string());
        let binding = SealBinding { tenant: &tenant_text, table: "lamps.wiring", record: &lamp_text, version: 3 };
        let sealed = SealedValue(secrets.seal_value(&env.random, binding, b"red and blue").unwrap());
        assert_eq!(WIRING.cell_for(tenant, lamp, 3).open(&secrets, &sealed).unwrap(), b"red and blue");
    }
}
