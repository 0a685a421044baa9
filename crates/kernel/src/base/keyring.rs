//! The keys that wrap the data keys of sealed values: all of them open, one of them seals.

use std::collections::BTreeSet;

use super::{Error, Result, hmac_sha256};

/// A key-encryption key with its id. It has no `Debug`.
#[derive(Clone)]
pub(super) struct SealingKey {
    pub id: u32,
    pub key: [u8; 32],
}

/// The keys of a secrets file. It has no `Debug`.
#[derive(Clone)]
pub struct Keyring {
    /// In the order of the file, the newest last; never empty.
    keys: Vec<SealingKey>,
    /// The index of the key that seals.
    primary_at: usize,
    /// False while the primary is a key that was removed, and there is no other to seal with.
    can_seal: bool,
}

impl Keyring {
    /// Without a chosen one, the last key is the primary.
    pub(super) fn new(keys: Vec<SealingKey>, primary: Option<u32>) -> Result<Self> {
        if keys.is_empty() {
            return Err(unusable_secrets("sealing_keys is empty"));
        }
        let mut ids = BTreeSet::new();
        if let Some(double) = keys.iter().find(|key| !ids.insert(key.id)) {
            return Err(unusable_secrets(&format!("two sealing keys have the id {}", double.id)));
        }
        let primary_at = match primary {
            None => keys.len() - 1,
            Some(id) => keys.iter().position(|key| key.id == id).ok_or_else(|| {
                unusable_secrets(&format!("the primary sealing key is {id}, which is not among sealing_keys"))
            })?,
        };
        Ok(Keyring { keys, primary_at, can_seal: true })
    }

    /// The key that seals.
    pub(super) fn sealing_key(&self) -> Result<&SealingKey> {
        if self.can_seal {
            return Ok(&self.keys[self.primary_at]);
        }
        let reason = format!("key {} was removed, and the secrets have no other key to seal with", self.primary_id());
        Err(Error::unavailable(reason))
    }

    /// The same keys with another primary; without one, they open and seal nothing. None if it is not among them.
    pub fn with_primary(&self, id: Option<u32>) -> Option<Keyring> {
        let primary_at = match id {
            None => self.primary_at,
            Some(id) => self.keys.iter().position(|key| key.id == id)?,
        };
        Some(Keyring { keys: self.keys.clone(), primary_at, can_seal: id.is_some() })
    }

    pub(super) fn find_key(&self, id: u32) -> Option<&SealingKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// The id of the key that seals.
    pub fn primary_id(&self) -> u32 {
        self.keys[self.primary_at].id
    }

    pub fn can_seal(&self) -> bool {
        self.can_seal
    }

    /// The ids in the order of the file, the newest last.
    pub fn key_ids(&self) -> Vec<u32> {
        self.keys.iter().map(|key| key.id).collect()
    }

    pub fn has_key(&self, id: u32) -> bool {
        self.find_key(id).is_some()
    }

    /// A name and a check value for each key.
    pub(super) fn check_values(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        self.keys.iter().map(|key| (key_check_name(key.id), hmac_sha256(&key.key, b"check").to_vec()))
    }
}

/// What the names of check values of sealing keys begin with; the id follows.
const CHECK_NAME_START: &str = "sealing_key_";

/// The name under which the database keeps the check value of a sealing key.
pub fn key_check_name(id: u32) -> String {
    format!("{CHECK_NAME_START}{id}")
}

/// The id of the sealing key that a check value is of; none if it is of another secret.
pub fn parse_key_check_name(name: &str) -> Option<u32> {
    name.strip_prefix(CHECK_NAME_START)?.parse().ok()
}

/// A change of the sealing keys in a secrets file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyringChange {
    /// Adds a random key with this id, which does not seal yet.
    AddKey(u32),
    /// Makes this key the one that seals.
    SetPrimary(u32),
    RemoveKey(u32),
}

pub(super) fn unusable_secrets(reason: &str) -> Error {
    Error::internal(format!("the secrets cannot be used: {reason}"))
}
