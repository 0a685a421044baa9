//! The server's own secrets: the pepper for hashing API keys, and the keys that seal stored values.
//!
//! They live in one file outside the database (`secrets_file.rs`), so that a stolen database alone reveals no secret. The
//! database keeps a check value of each, so that a node with other secrets refuses to start instead of rejecting every API
//! key.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::keyring::{Keyring, KeyringChange, SealingKey, unusable_secrets};
use super::{Error, HmacKey, RandomSource, Result, lock_unpoisoned};

/// The secrets in memory. `Debug` prints `[redacted]`.
#[derive(Clone)]
pub struct Secrets {
    pepper: HmacKey,
    cursor_key: HmacKey,
    token_key: HmacKey,
    /// Shared by all clones, because a running server adopts a changed keyring.
    keyring: Arc<Mutex<Arc<Keyring>>>,
}

/// The secrets file: JSON, so that any tool can create or inspect it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretsFile {
    pepper: String,
    sealing_keys: Vec<SealingKeyFile>,
    /// The id of the key that seals; the last one if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    primary: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealingKeyFile {
    id: u32,
    key: String,
}

impl SealingKeyFile {
    fn generate(id: u32, random: &RandomSource) -> Self {
        SealingKeyFile { id, key: BASE64.encode(random.secret_bytes::<32>()) }
    }
}

impl SecretsFile {
    fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|error| unusable_secrets(&format!("not a secrets file, see line {}", error.line())))
    }

    fn to_text(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(Error::internal)
    }

    fn apply_change(&mut self, change: KeyringChange, random: &RandomSource) {
        match change {
            KeyringChange::AddKey(id) => {
                // Without a chosen primary the last key seals, which is the new one from now on.
                self.primary = self.primary.or_else(|| self.sealing_keys.last().map(|key| key.id));
                self.sealing_keys.push(SealingKeyFile::generate(id, random));
            }
            KeyringChange::SetPrimary(id) => self.primary = Some(id),
            KeyringChange::RemoveKey(id) => self.sealing_keys.retain(|key| key.id != id),
        }
    }
}

impl Secrets {
    /// Generates new secrets and returns them as the text of a secrets file.
    pub fn generate_text(random: &RandomSource) -> Result<String> {
        let pepper = BASE64.encode(random.secret_bytes::<32>());
        SecretsFile { pepper, sealing_keys: vec![SealingKeyFile::generate(1, random)], primary: None }.to_text()
    }

    /// The text of a secrets file after a change of its sealing keys. A text that could not be used is refused.
    pub fn change_text(text: &str, change: KeyringChange, random: &RandomSource) -> Result<String> {
        let mut file = SecretsFile::parse(text)?;
        file.apply_change(change, random);
        let text = file.to_text()?;
        Secrets::parse(&text).map(|_| text)
    }

    /// Reads the text of a secrets file.
    pub fn parse(text: &str) -> Result<Self> {
        let file = SecretsFile::parse(text)?;
        let pepper = HmacKey::new(&key_bytes(&file.pepper, "pepper")?);
        let sealing = file
            .sealing_keys
            .iter()
            .map(|entry| Ok(SealingKey { id: entry.id, key: key_bytes(&entry.key, "a sealing key")? }));
        let keyring = Keyring::new(sealing.collect::<Result<Vec<_>>>()?, file.primary)?;
        // HKDF-Expand with one block: the pepper is uniformly random, so no extraction is needed.
        let cursor_key = HmacKey::new(&pepper.sign(b"tenant-control cursor\x01"));
        let token_key = HmacKey::new(&pepper.sign(b"tenant-control sealed token\x01"));
        Ok(Secrets { pepper, cursor_key, token_key, keyring: Arc::new(Mutex::new(Arc::new(keyring))) })
    }

    pub fn pepper(&self) -> &HmacKey {
        &self.pepper
    }

    pub fn cursor_key(&self) -> &HmacKey {
        &self.cursor_key
    }

    /// The key from which the keys of a [`TokenSeal`](super::TokenSeal) are derived.
    pub(super) fn token_key(&self) -> &HmacKey {
        &self.token_key
    }

    /// The sealing keys as they are now.
    pub fn keyring(&self) -> Arc<Keyring> {
        lock_unpoisoned(&self.keyring).clone()
    }

    /// Uses the sealing keys of a changed secrets file from now on, in all clones. The caller has checked that the file is of
    /// the same installation.
    pub fn adopt_keyring(&self, changed: &Secrets) {
        let keyring = changed.keyring();
        *lock_unpoisoned(&self.keyring) = keyring;
    }

    /// Seals with another of the keys from now on, in all clones; without one, nothing. Returns false if there is no such key.
    pub fn set_primary(&self, id: Option<u32>) -> bool {
        let mut keyring = lock_unpoisoned(&self.keyring);
        let Some(changed) = keyring.with_primary(id) else { return false };
        *keyring = Arc::new(changed);
        true
    }

    /// A name and a check value for each secret. The check value does not reveal the secret.
    pub fn check_values(&self) -> Vec<(String, Vec<u8>)> {
        let mut checks = vec![("pepper".to_owned(), self.pepper.sign(b"check").to_vec())];
        checks.extend(self.keyring().check_values());
        checks
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

fn key_bytes(text: &str, name: &str) -> Result<[u8; 32]> {
    let bytes = BASE64.decode(text).map_err(|_| unusable_secrets(&format!("{name} is not base64")))?;
    bytes.try_into().map_err(|_| unusable_secrets(&format!("{name} is not 32 bytes long")))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn ids(text: &str) -> (Vec<u32>, u32) {
        let keyring = Secrets::parse(text).unwrap().keyring();
        (keyring.key_ids(), keyring.primary_id())
    }

    #[test]
    fn an_added_key_seals_only_when_it_is_made_primary() {
        let random = RandomSource::System;
        let first = Secrets::generate_text(&random).unwrap();
        assert_eq!(ids(&first), (vec![1], 1));
        assert!(!first.contains("primary"), "a new file is one that earlier releases read");
        let added = Secrets::change_text(&first, KeyringChange::AddKey(2), &random).unwrap();
        assert_eq!(ids(&added), (vec![1, 2], 1));
        let rotated = Secrets::change_text(&added, KeyringChange::SetPrimary(2), &random).unwrap();
        assert_eq!(ids(&rotated), (vec![1, 2], 2));
        let removed = Secrets::change_text(&rotated, KeyringChange::RemoveKey(1), &random).unwrap();
        assert_eq!(ids(&removed), (vec![2], 2));
        let pepper = |text: &str| Secrets::parse(text).unwrap().pepper().sign(b"x");
        assert_eq!(pepper(&first), pepper(&removed), "nothing else changes");
    }

    #[test]
    fn changes_that_leave_no_usable_file_are_refused() {
        let random = RandomSource::System;
        let text = Secrets::generate_text(&random).unwrap();
        for (change, reason) in [
            (KeyringChange::AddKey(1), "two sealing keys have the id 1"),
            (KeyringChange::SetPrimary(7), "the primary sealing key is 7, which is not among sealing_keys"),
            (KeyringChange::RemoveKey(1), "sealing_keys is empty"),
        ] {
            let refused = Secrets::change_text(&text, change, &random).unwrap_err();
            assert!(refused.to_string().contains(reason), "{refused}");
        }
        let added = Secrets::change_text(&text, KeyringChange::AddKey(2), &random).unwrap();
        let refused = Secrets::change_text(&added, KeyringChange::RemoveKey(1), &random).unwrap_err();
        assert!(refused.to_string().contains("the primary sealing key is 1"), "{refused}");
    }

    #[test]
    fn an_adopted_keyring_is_that_of_all_clones() {
        let random = RandomSource::System;
        let text = Secrets::generate_text(&random).unwrap();
        let (secrets, added) =
            (Secrets::parse(&text).unwrap(), Secrets::change_text(&text, KeyringChange::AddKey(2), &random).unwrap());
        let clone = secrets.clone();
        secrets.adopt_keyring(&Secrets::parse(&added).unwrap());
        assert_eq!(clone.keyring().key_ids(), [1, 2]);
        assert_eq!(format!("{clone:?}"), "[redacted]");
        let primary = || (secrets.keyring().primary_id(), secrets.keyring().can_seal());
        assert!(clone.set_primary(Some(2)) && !clone.set_primary(Some(3)));
        assert_eq!(primary(), (2, true));
        assert!(clone.set_primary(None));
        assert_eq!(primary(), (2, false));
    }
}
