//! The server's own secrets: the pepper for hashing API keys, and the keys that seal stored values.
//!
//! They live in one file outside the database (mode 0600), so that a stolen database alone reveals no secret. The database
//! keeps a check value of each, so that a node with other secrets refuses to start instead of rejecting every API key.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::{Error, HmacKey, RandomSource, Result, hmac_sha256};

/// The secrets in memory. `Debug` prints `[redacted]`.
#[derive(Clone)]
pub struct Secrets {
    pepper: HmacKey,
    cursor_key: HmacKey,
    token_key: HmacKey,
    sealing: Vec<SealingKey>,
}

/// A key-encryption key with its id.
#[derive(Clone)]
pub struct SealingKey {
    pub(super) id: u32,
    pub(super) key: [u8; 32],
}

impl SealingKey {
    fn check_value(&self) -> [u8; 32] {
        hmac_sha256(&self.key, b"check")
    }
}

/// The secrets file: JSON, so that any tool can create or inspect it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretsFile {
    pepper: String,
    sealing_keys: Vec<SealingKeyFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealingKeyFile {
    id: u32,
    key: String,
}

impl Secrets {
    /// Generates new secrets and returns them as the text of a secrets file.
    pub fn generate_text(random: &RandomSource) -> Result<String> {
        let file = SecretsFile {
            pepper: BASE64.encode(random.secret_bytes::<32>()),
            sealing_keys: vec![SealingKeyFile { id: 1, key: BASE64.encode(random.secret_bytes::<32>()) }],
        };
        serde_json::to_string_pretty(&file).map_err(Error::internal)
    }

    /// Reads the text of a secrets file.
    pub fn parse(text: &str) -> Result<Self> {
        let file: SecretsFile = serde_json::from_str(text)
            .map_err(|e| unusable_secrets(&format!("not a secrets file, see line {}", e.line())))?;
        let pepper = HmacKey::new(&key_bytes(&file.pepper, "pepper")?);
        if file.sealing_keys.is_empty() {
            return Err(unusable_secrets("sealing_keys is empty"));
        }
        let sealing = file
            .sealing_keys
            .iter()
            .map(|entry| Ok(SealingKey { id: entry.id, key: key_bytes(&entry.key, "a sealing key")? }));
        let sealing = sealing.collect::<Result<Vec<_>>>()?;
        // HKDF-Expand with one block: the pepper is uniformly random, so no extraction is needed.
        let cursor_key = HmacKey::new(&pepper.sign(b"tenant-control cursor\x01"));
        let token_key = HmacKey::new(&pepper.sign(b"tenant-control sealed token\x01"));
        Ok(Secrets { pepper, cursor_key, token_key, sealing })
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

    /// Newest last: the last one seals, all of them open.
    pub fn sealing_keys(&self) -> &[SealingKey] {
        &self.sealing
    }

    /// A name and a check value for each secret. The check value does not reveal the secret.
    pub fn check_values(&self) -> Vec<(String, Vec<u8>)> {
        let mut checks = vec![("pepper".to_owned(), self.pepper.sign(b"check").to_vec())];
        checks.extend(self.sealing.iter().map(|key| (format!("sealing_key_{}", key.id), key.check_value().to_vec())));
        checks
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Where the secrets are read from.
#[derive(Clone)]
pub enum SecretsSource {
    /// A file that is created on the first start.
    File(PathBuf),
    /// The text of the file, given by the operator.
    Text(String),
}

impl SecretsSource {
    /// Returns `None` when the file does not exist yet.
    pub fn load_secrets(&self) -> Result<Option<Secrets>> {
        match self {
            SecretsSource::Text(text) => Secrets::parse(text).map(Some),
            SecretsSource::File(path) => match fs::read_to_string(path) {
                Ok(text) => Secrets::parse(&text).map(Some),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(unusable_secrets(&format!("{}: {error}", path.display()))),
            },
        }
    }

    /// Creates the file, and its folder if that is missing, or reads the file if another node has created it first. Before
    /// this returns, the file is complete, synced to disk and readable by its owner only.
    pub fn create_file(&self, random: &RandomSource) -> Result<Secrets> {
        let SecretsSource::File(path) = self else {
            return Err(unusable_secrets("the secrets given from outside are empty"));
        };
        let text = Secrets::generate_text(random)?;
        let draft = path.with_extension(format!("{}.draft", random.base62_text(12)));
        let result = find_folder(path)
            .map_or(Ok(()), create_private_dir)
            .and_then(|()| write_private(&draft, &text))
            .and_then(|()| move_into_place(&draft, path));
        // The draft is already gone if it was renamed.
        let _ = fs::remove_file(&draft);
        match result {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(unusable_secrets(&format!("{}: {error}", path.display())))
            }
            _ => self.load_secrets()?.ok_or_else(|| unusable_secrets(&format!("{} has gone again", path.display()))),
        }
    }
}

/// Creates a folder with access for its owner only, unless it exists.
pub fn create_private_dir(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// The folder that a path names; none if it is the working directory.
fn find_folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Gives the draft its final name, unless a file of that name exists.
fn move_into_place(draft: &Path, path: &Path) -> std::io::Result<()> {
    match fs::hard_link(draft, path) {
        // A file system without hard links. The check values in the database detect it if two nodes rename at once.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => fs::rename(draft, path)?,
        linked => linked?,
    }
    match find_folder(path) {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn key_bytes(text: &str, name: &str) -> Result<[u8; 32]> {
    let bytes = BASE64.decode(text).map_err(|_| unusable_secrets(&format!("{name} is not base64")))?;
    bytes.try_into().map_err(|_| unusable_secrets(&format!("{name} is not 32 bytes long")))
}

fn unusable_secrets(reason: &str) -> Error {
    Error::internal(format!("the secrets cannot be used: {reason}"))
}
