//! Fresh PostgreSQL databases on the private server that `./test` starts.

use kernel::base::Env;
use kernel::store::{PostgresOptions, Store, StoreOptions};
use tenant_control::migrations::MIGRATIONS;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use super::keeper;

/// A database of its own, dropped with this value.
pub struct TestDatabase {
    pub url: String,
    name: String,
}

/// Makes an empty database, owned by a role that row-level security holds back.
pub async fn fresh_database() -> TestDatabase {
    copy_of("template0").await
}

/// The same with the schema in it: a copy takes a fraction of the time that migrating does.
pub async fn migrated_database() -> TestDatabase {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    copy_of(TEMPLATE.get_or_init(template).await).await
}

async fn template() -> String {
    let template = format!("tc_template_{}", build_ms());
    if !exists(&template).await {
        // Tests run in many processes at once: one makes it, the others wait.
        keeper::run("SELECT pg_advisory_lock(1)".to_owned()).await;
        if !exists(&template).await {
            make_template(&template).await;
        }
        keeper::run("SELECT pg_advisory_unlock(1)".to_owned()).await;
    }
    template
}

async fn exists(name: &str) -> bool {
    keeper::run(format!("SELECT 1 FROM pg_database WHERE datname = '{name}'")).await > 0
}

/// Under its name only when it is whole.
async fn make_template(template: &str) {
    let making = copy_of("template0").await;
    let options = StoreOptions::postgres(PostgresOptions::new(&making.url));
    let store = Store::open(options, Env::default()).await.expect("the template opens");
    store.migrate(MIGRATIONS).await.expect("the template migrates");
    store.close().await;
    let name = &making.name;
    keeper::run(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")).await;
    keeper::run(format!("ALTER DATABASE {name} RENAME TO {template}")).await;
}

/// When these tests were built: another build may have other migrations.
pub fn build_ms() -> u128 {
    let built = std::env::current_exe().and_then(|path| path.metadata()).and_then(|file| file.modified());
    built.expect("the tests' own file").duration_since(std::time::UNIX_EPOCH).expect("a time").as_millis()
}

/// By copying the files, which takes less than half of the work that writing every page to the log does. PostgreSQL 14
/// knows no other way, nor the word.
async fn copy_of(template: &str) -> TestDatabase {
    static STRATEGY: OnceCell<&str> = OnceCell::const_new();
    // Chance keeps the names of many processes apart.
    let name = format!("tc_{}", kernel::base::RandomSource::System.base62_text(20).to_lowercase());
    let strategy = STRATEGY.get_or_init(async || {
        let settable = "SELECT 1 WHERE current_setting('server_version_num')::int >= 150000";
        if keeper::run(settable.to_owned()).await > 0 { "STRATEGY file_copy" } else { "" }
    });
    keeper::run(format!("CREATE DATABASE {name} TEMPLATE {template} {}", strategy.await)).await;
    TestDatabase { url: replaced(&server_url(), "/postgres?", &format!("/{name}?")), name }
}

impl TestDatabase {
    /// The same database as the server's superuser sees it.
    pub fn url_as_superuser(&self) -> String {
        self.url_as("postgres")
    }

    /// The server trusts whoever connects from this machine.
    pub fn url_as(&self, role: &str) -> String {
        replaced(&self.url, "//tc_test@", &format!("//{role}@"))
    }

    /// The same database through TLS; the server's certificate is for `localhost` alone.
    pub fn url_with_tls(&self, host: &str, mode: &str, root: Option<&str>) -> String {
        let root = root.map_or_else(String::new, |root| format!("&sslrootcert={root}"));
        let url = replaced(&self.url, "@127.0.0.1:", &format!("@{host}:"));
        replaced(&url, "sslmode=disable", &format!("sslmode={mode}{root}"))
    }
}

/// The certificate that signed the server's.
pub fn certificate_authority() -> String {
    variable("TENANT_CONTROL_TEST_POSTGRES_CA")
}

/// A bare connection, for what the store would not do.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL of ./test");
    tokio::spawn(connection);
    client
}

pub fn server_url() -> String {
    variable("TENANT_CONTROL_TEST_POSTGRES")
}

fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: run ./test, which starts a PostgreSQL for the tests"))
}

fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old} is not in {text}");
    text.replacen(old, new, 1)
}

/// Best effort: what stays behind goes when `./test` removes the server.
impl Drop for TestDatabase {
    fn drop(&mut self) {
        keeper::try_blocking(format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}
