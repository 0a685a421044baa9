//! Settings of the store: what every command needs.

use std::path::{Path, PathBuf};

use clap::Args;
use kernel::base::SecretsSource;
use kernel::store::{PostgresOptions, SqliteSynchronous, StoreOptions};

use super::DATA_DIR;
use crate::features;
use crate::shell::{format_flag, quote_word};

/// The database's URL.
pub const DATABASE_VARIABLE: &str = "TENANT_CONTROL_DATABASE_URL";
/// The content of the secrets file, for installations that keep it elsewhere.
pub(super) const SECRETS_VARIABLE: &str = "TENANT_CONTROL_SECRETS";
/// `off` makes the embedded store unsafe, so that the power-cut test can prove that it detects lost writes.
const SYNCHRONOUS_VARIABLE: &str = "TENANT_CONTROL_TEST_SYNCHRONOUS";

/// Where the data is: what every command needs.
#[derive(Args, Clone)]
pub struct StoreArgs {
    /// Where the embedded store and the secrets file live
    #[arg(long, value_name = "DIR", env = "TENANT_CONTROL_DATA_DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// PostgreSQL to use instead of the embedded store; sslmode and sslrootcert as libpq means them
    #[arg(long, value_name = "URL", env = "TENANT_CONTROL_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// The server's secrets [default: secrets.json in the data directory]
    #[arg(long, value_name = "FILE", env = "TENANT_CONTROL_SECRETS_FILE")]
    pub secrets_file: Option<PathBuf>,
    /// Accept a PostgreSQL role that bypasses row-level security
    #[arg(long, env = "TENANT_CONTROL_ALLOW_SUPERUSER")]
    pub allow_superuser: bool,
    /// TOML file with settings, named like the flags
    #[arg(long, value_name = "FILE", env = "TENANT_CONTROL_CONFIG")]
    pub config: Option<PathBuf>,
}

impl StoreArgs {
    pub fn database_file(&self) -> PathBuf {
        self.data_dir.join("tenant-control.db")
    }

    /// The folder of the search index. The index is a copy and not part of a backup.
    pub fn search_folder(&self) -> PathBuf {
        self.data_dir.join("search")
    }

    pub fn store_options(&self) -> StoreOptions {
        let options = match &self.database_url {
            None => StoreOptions::sqlite(self.database_file()).with_synchronous(synchronous_mode()),
            Some(url) => {
                let mut options = PostgresOptions::new(url);
                options.allow_superuser = self.allow_superuser;
                StoreOptions::postgres(options)
            }
        };
        options.followed_by(&features::install().followers)
    }

    /// The store as messages name it: its folder, or its database without the password.
    pub fn describe_store(&self) -> String {
        match &self.database_url {
            None => std::path::absolute(&self.data_dir).unwrap_or_else(|_| self.data_dir.clone()).display().to_string(),
            Some(url) => PostgresOptions::new(url).describe_database().unwrap_or_else(|_| "the database".to_owned()),
        }
    }

    /// A command line that works on this store, for people to paste.
    pub fn command_line(&self, command: &str) -> String {
        format!("tenant-control {command}{}", self.to_flags())
    }

    /// The flags with which another command finds this store and its secrets, each after a space. They work where this one
    /// was started: in its folder and with its environment.
    pub fn to_flags(&self) -> String {
        let mut flags = String::new();
        let mut push_path = |name: &str, path: &Path| {
            flags.push(' ');
            flags.push_str(&format_flag(name, &path.to_string_lossy()));
        };
        if let Some(file) = &self.config {
            push_path("--config", file);
        }
        // Also beside a database: the secrets and the search index are in the folder.
        if self.data_dir != Path::new(DATA_DIR) {
            push_path("--data-dir", &self.data_dir);
        }
        if let Some(file) = &self.secrets_file {
            push_path("--secrets-file", file);
        }
        if let Some(url) = &self.database_url {
            // The password of a server with a settings file is in the file, as far as this can know.
            let is_in_file = self.config.is_some() && has_password(url);
            if !self.is_in_variable() && !is_in_file {
                flags.push_str(" --database-url ");
                flags.push_str(&self.database_word());
            }
            if self.allow_superuser {
                flags.push_str(" --allow-superuser");
            }
        }
        flags
    }

    /// Like [`StoreArgs::to_flags`], for a command that is run in any folder.
    pub fn to_absolute_flags(&self) -> String {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let from_anywhere = StoreArgs {
            data_dir: absolute(&self.data_dir),
            secrets_file: self.secrets_file.as_ref().map(absolute),
            config: self.config.as_ref().map(absolute),
            ..self.clone()
        };
        from_anywhere.to_flags()
    }

    /// The database's URL as a word of a command line: the variable that holds it, or the URL itself. One with a password
    /// is not printed, and its variable must be set before the line is used.
    pub fn database_word(&self) -> String {
        let url = self.database_url.as_deref().filter(|url| !self.is_in_variable() && !has_password(url));
        url.map_or_else(|| format!("\"${DATABASE_VARIABLE}\""), quote_word)
    }

    /// Whether [`StoreArgs::database_word`] is a variable that is not set.
    pub fn hides_database_url(&self) -> bool {
        self.database_url.as_deref().is_some_and(has_password) && !self.is_in_variable()
    }

    /// Whether the environment says which database it is.
    fn is_in_variable(&self) -> bool {
        self.database_url.is_some() && std::env::var(DATABASE_VARIABLE).ok() == self.database_url
    }

    pub fn secrets_path(&self) -> PathBuf {
        self.secrets_file.clone().unwrap_or_else(|| self.data_dir.join("secrets.json"))
    }

    pub fn secrets_source(&self) -> SecretsSource {
        match std::env::var(SECRETS_VARIABLE) {
            Ok(text) if !text.is_empty() => SecretsSource::Text(text),
            _ => SecretsSource::File(self.secrets_path()),
        }
    }
}

fn has_password(url: &str) -> bool {
    PostgresOptions::new(url).has_password()
}

fn synchronous_mode() -> SqliteSynchronous {
    if std::env::var(SYNCHRONOUS_VARIABLE).is_ok_and(|text| text == "off") {
        tracing::warn!("{SYNCHRONOUS_VARIABLE} is off: a power cut will lose acknowledged writes");
        return SqliteSynchronous::Off;
    }
    SqliteSynchronous::Full
}
