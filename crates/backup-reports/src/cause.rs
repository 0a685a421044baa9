//! Why a run failed, and what its owner can do.

use crate::BackupTool;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    Interrupted,
    ProgramMissing,
    CommandLine,
    PasswordMissing,
    WrongPassword,
    RepositoryUnreachable,
    RepositoryMissing,
    RepositoryLocked,
    StorageFull,
    ErrorsFound,
    SnapshotMissing,
    ArchiveExists,
    SourcesMissing,
}

impl FailureCause {
    pub const ALL: [Self; 13] = [
        Self::Interrupted,
        Self::ProgramMissing,
        Self::CommandLine,
        Self::PasswordMissing,
        Self::WrongPassword,
        Self::RepositoryUnreachable,
        Self::RepositoryMissing,
        Self::RepositoryLocked,
        Self::StorageFull,
        Self::ErrorsFound,
        Self::SnapshotMissing,
        Self::ArchiveExists,
        Self::SourcesMissing,
    ];

    pub fn code(self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::ProgramMissing => "program_missing",
            Self::CommandLine => "command_line",
            Self::PasswordMissing => "password_missing",
            Self::WrongPassword => "wrong_password",
            Self::RepositoryUnreachable => "repository_unreachable",
            Self::RepositoryMissing => "repository_missing",
            Self::RepositoryLocked => "repository_locked",
            Self::StorageFull => "storage_full",
            Self::ErrorsFound => crate::ERRORS_FOUND,
            Self::SnapshotMissing => "snapshot_missing",
            Self::ArchiveExists => "archive_exists",
            Self::SourcesMissing => "sources_missing",
        }
    }

    /// What happened and what to do, as a sentence or two.
    pub fn advice(self, tool: BackupTool) -> &'static str {
        let is_restic = tool == BackupTool::Restic;
        match self {
            Self::Interrupted => {
                "The run was ended before it was done: by a signal, a timeout or a shutdown. Run it again; if it is \
                 ended every time, give it more time or memory."
            }
            Self::ProgramMissing => {
                "The backup program could not be started. Install it, or correct its path in the job."
            }
            Self::CommandLine => "The program does not understand its command line. Correct the command of the job.",
            Self::PasswordMissing if is_restic => {
                "The job has no password for the repository. Set RESTIC_PASSWORD_FILE or RESTIC_PASSWORD_COMMAND."
            }
            Self::PasswordMissing => {
                "The job has no passphrase for the repository. Set BORG_PASSCOMMAND or BORG_PASSPHRASE."
            }
            Self::WrongPassword => {
                "The password of the repository is wrong. Give the job a password that opens the repository."
            }
            Self::RepositoryUnreachable => {
                "The repository could not be reached. Check the network, the address and the login of the backup storage."
            }
            Self::RepositoryMissing => {
                "There is no repository at this place. Check its address, and whether its disk is mounted."
            }
            Self::RepositoryLocked if is_restic => {
                "Another run holds the lock of the repository. Wait until it ends; if none is running, use `restic unlock`."
            }
            Self::RepositoryLocked => {
                "Another run holds the lock of the repository. Wait until it ends; if none is running, use `borg break-lock`."
            }
            Self::StorageFull => "The backup storage is full. Make room there, or prune old snapshots.",
            Self::ErrorsFound => {
                "The repository is damaged. Keep a copy of it, follow the repair guide of the tool, and make a new backup."
            }
            Self::SnapshotMissing => "The snapshot or archive does not exist. Correct its name in the job.",
            Self::ArchiveExists => {
                "An archive of this name exists already. Put the time into the name: `{hostname}-{now}`."
            }
            Self::SourcesMissing => {
                "None of the source paths exists. Correct the paths of the job, or mount what is missing."
            }
        }
    }
}

/// A shell says 128 + n for signal n, a runtime -n; there are 64 signals.
pub fn is_signal(exit_code: i64) -> bool {
    exit_code < 0 || (129..=192).contains(&exit_code)
}

/// Codes of restic since 0.17 and of borg with `BORG_EXIT_CODES=modern`, and those of `timeout` and shells.
pub fn cause_of_exit_code(tool: BackupTool, exit_code: i64) -> Option<FailureCause> {
    match (tool, exit_code) {
        (_, 124) => Some(FailureCause::Interrupted),
        (_, 126 | 127) => Some(FailureCause::ProgramMissing),
        (BackupTool::Restic, 10) | (BackupTool::Borg, 13) => Some(FailureCause::RepositoryMissing),
        (BackupTool::Restic, 11) | (BackupTool::Borg, 70..=75) => Some(FailureCause::RepositoryLocked),
        (BackupTool::Restic, 12) | (BackupTool::Borg, 52) => Some(FailureCause::WrongPassword),
        (BackupTool::Borg, 30) => Some(FailureCause::ArchiveExists),
        (BackupTool::Borg, 31) => Some(FailureCause::SnapshotMissing),
        (BackupTool::Borg, 50) => Some(FailureCause::PasswordMissing),
        (BackupTool::Borg, 80..=84) => Some(FailureCause::RepositoryUnreachable),
        (BackupTool::Borg, 90..=99) => Some(FailureCause::ErrorsFound),
        _ => None,
    }
}

/// The names that borg gives its messages.
pub fn cause_of_message_id(id: &str) -> Option<FailureCause> {
    match id {
        "PassphraseWrong" | "PasswordRetriesExceeded" => Some(FailureCause::WrongPassword),
        "NoPassphraseFailure" | "PasscommandFailure" => Some(FailureCause::PasswordMissing),
        "Repository.DoesNotExist" | "Repository.InvalidRepository" => Some(FailureCause::RepositoryMissing),
        "LockTimeout" | "LockError" | "LockErrorT" | "LockFailed" => Some(FailureCause::RepositoryLocked),
        "ConnectionClosed" | "ConnectionClosedWithHint" | "ConnectionBrokenWithHint" => {
            Some(FailureCause::RepositoryUnreachable)
        }
        "Repository.InsufficientFreeSpaceError" | "Repository.StorageQuotaExceeded" => Some(FailureCause::StorageFull),
        "IntegrityError" | "Repository.CheckNeeded" | "Repository.ObjectNotFound" | "NoManifestError" => {
            Some(FailureCause::ErrorsFound)
        }
        "Archive.DoesNotExist" => Some(FailureCause::SnapshotMissing),
        "Archive.AlreadyExists" => Some(FailureCause::ArchiveExists),
        "CommandError" => Some(FailureCause::CommandLine),
        _ if id.starts_with("Signal.") => Some(FailureCause::Interrupted),
        _ => None,
    }
}

/// What sentences of the tools, in lower case, mean. The first that fits wins: "connection refused" comes before "is
/// there a repository", which restic asks then as well.
const SENTENCES: [(&str, FailureCause); 41] = [
    ("interrupt received", FailureCause::Interrupted),
    ("terminated received", FailureCause::Interrupted),
    ("context canceled", FailureCause::Interrupted),
    ("got ctrl-c", FailureCause::Interrupted),
    ("received sig", FailureCause::Interrupted),
    ("keyboard interrupt", FailureCause::Interrupted),
    ("command not found", FailureCause::ProgramMissing),
    ("unknown flag", FailureCause::CommandLine),
    ("unknown command", FailureCause::CommandLine),
    ("unrecognized arguments", FailureCause::CommandLine),
    ("invalid choice", FailureCause::CommandLine),
    ("an empty password is not", FailureCause::PasswordMissing),
    ("can not acquire a passphrase", FailureCause::PasswordMissing),
    ("resolving password failed", FailureCause::PasswordMissing),
    ("wrong password", FailureCause::WrongPassword),
    ("passphrase supplied in", FailureCause::WrongPassword),
    ("connection refused", FailureCause::RepositoryUnreachable),
    ("connection closed by remote", FailureCause::RepositoryUnreachable),
    ("connection timed out", FailureCause::RepositoryUnreachable),
    ("i/o timeout", FailureCause::RepositoryUnreachable),
    ("no route to host", FailureCause::RepositoryUnreachable),
    ("no such host", FailureCause::RepositoryUnreachable),
    ("could not resolve host", FailureCause::RepositoryUnreachable),
    ("no space left on device", FailureCause::StorageFull),
    ("insufficient free space", FailureCause::StorageFull),
    ("disk quota exceeded", FailureCause::StorageFull),
    ("already locked", FailureCause::RepositoryLocked),
    ("acquire the lock", FailureCause::RepositoryLocked),
    ("target directories/files do not exist", FailureCause::SourcesMissing),
    ("source directories/files do not exist", FailureCause::SourcesMissing),
    ("no matching id found", FailureCause::SnapshotMissing),
    ("already exists", FailureCause::ArchiveExists),
    ("repository contains errors", FailureCause::ErrorsFound),
    ("data integrity error", FailureCause::ErrorsFound),
    ("errors found.", FailureCause::ErrorsFound),
    ("ciphertext verification failed", FailureCause::ErrorsFound),
    ("packs from index missing", FailureCause::ErrorsFound),
    ("is there a repository", FailureCause::RepositoryMissing),
    ("repository does not exist", FailureCause::RepositoryMissing),
    ("unable to open config file", FailureCause::RepositoryMissing),
    ("not a valid repository", FailureCause::RepositoryMissing),
];

pub fn cause_of_line(line: &str) -> Option<FailureCause> {
    let lower = line.to_lowercase();
    if lower.starts_with("repository ") && lower.ends_with(" does not exist.") {
        return Some(FailureCause::RepositoryMissing);
    }
    SENTENCES.iter().find(|(sentence, _)| lower.contains(sentence)).map(|(_, cause)| *cause)
}
