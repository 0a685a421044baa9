//! Settings of the store: what every command needs.

use std::path::PathBuf;

use clap::Args;
use kernel::base::SecretsSource;
use kernel::store::{PostgresOptions, SqliteSynchronous, StoreOptions};

use super::DATA_DIR;
use crate::features;

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

fn synchronous_mode() -> SqliteSynchronous {
    if std::env::var(SYNCHRONOUS_VARIABLE).is_ok_and(|text| text == "off") {
        tracing::warn!("{SYNCHRONOUS_VARIABLE} is off: a power cut will lose acknowledged writes");
        return SqliteSynchronous::Off;
    }
    SqliteSynchronous::Full
}
