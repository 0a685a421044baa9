//! Where the secrets are kept: in a file (mode 0600) or in a text that the operator gives. The file is created once, and only
//! its sealing keys ever change.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::keyring::KeyringChange;
use super::keyring::unusable_secrets;
use super::{Error, RandomSource, Result, Secrets};

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
        self.read_text()?.map(|text| Secrets::parse(&text)).transpose()
    }

    /// The text of the file; `None` when it does not exist yet.
    pub fn read_text(&self) -> Result<Option<String>> {
        match self {
            SecretsSource::Text(text) => Ok(Some(text.clone())),
            SecretsSource::File(path) => match fs::read_to_string(path) {
                Ok(text) => Ok(Some(text)),
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

    /// Locks the file for a change, and reads it. None while another command has it locked. A text that the operator gives cannot
    /// be changed here.
    pub fn try_lock_file(&self) -> Result<Option<LockedSecretsFile>> {
        let SecretsSource::File(path) = self else {
            return Err(unusable_secrets("they are given as a text, which no command can change"));
        };
        let failed = |error: std::io::Error| unusable_secrets(&format!("{}: {error}", path.display()));
        // The file behind a symbolic link is replaced, not the link.
        let path = fs::canonicalize(path).map_err(failed)?;
        let Some(folder) = try_lock_folder(&path).map_err(failed)? else { return Ok(None) };
        let text = fs::read_to_string(&path).map_err(failed)?;
        Ok(Some(LockedSecretsFile { path, text, _folder: folder }))
    }
}

/// The secrets file while one command changes it. Others wait until this value is dropped, or the process ends.
pub struct LockedSecretsFile {
    path: PathBuf,
    text: String,
    /// The lock lives as long as it is open.
    _folder: fs::File,
}

impl LockedSecretsFile {
    pub fn parse_secrets(&self) -> Result<Secrets> {
        Secrets::parse(&self.text)
    }

    /// The text of the file after a change of its sealing keys. A text that could not be used is refused.
    pub fn change_text(&self, change: KeyringChange, random: &RandomSource) -> Result<String> {
        Secrets::change_text(&self.text, change, random)
    }

    /// Replaces the file. When this returns, the text is on disk; after a crash the file is as before or as changed.
    pub fn replace_text(&mut self, text: String) -> Result<()> {
        if let Err(error) = replace_private(&self.path, &text) {
            return Err(Error::internal(format!("failed to change {}: {error}", self.path.display())));
        }
        self.text = text;
        Ok(())
    }

    /// Whether a key is in the file on disk, also after [`replace_text`](Self::replace_text) has failed.
    pub fn has_key_on_disk(&self, id: u32) -> bool {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        Secrets::parse(&text).is_ok_and(|secrets| secrets.keyring().has_key(id))
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

/// Locks the folder and not the file, which is replaced. None while another process has it locked.
fn try_lock_folder(path: &Path) -> std::io::Result<Option<fs::File>> {
    let folder = fs::File::open(find_folder(path).unwrap_or(Path::new(".")))?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Gives the draft its final name, unless a file of that name exists.
fn move_into_place(draft: &Path, path: &Path) -> std::io::Result<()> {
    match fs::hard_link(draft, path) {
        // A file system without hard links. The check values in the database detect it if two nodes rename at once.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => fs::rename(draft, path)?,
        linked => linked?,
    }
    sync_folder(path)
}

/// Replaces a file as a whole by a text that its owner alone can read.
fn replace_private(path: &Path, text: &str) -> std::io::Result<()> {
    // Always the same name: a draft that a killed command has left is replaced by the next one's.
    let draft = path.with_extension("change.draft");
    let _ = fs::remove_file(&draft);
    let replaced =
        write_private(&draft, text).and_then(|()| copy_owner(path, &draft)).and_then(|()| fs::rename(&draft, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&draft);
    }
    replaced.and_then(|()| sync_folder(path))
}

/// A command that root runs must not lock the server's user out, who may read the file through its group. Others never may.
fn copy_owner(replaced: &Path, draft: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let (model, own) = (fs::metadata(replaced)?, fs::metadata(draft)?);
        if (model.uid(), model.gid()) != (own.uid(), own.gid()) {
            chown(draft, Some(model.uid()), Some(model.gid()))?;
        }
        // The owner last: a file that another user owns keeps no mode that was set before.
        fs::set_permissions(draft, fs::Permissions::from_mode((model.mode() & 0o770) | 0o600))?;
    }
    Ok(())
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
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
