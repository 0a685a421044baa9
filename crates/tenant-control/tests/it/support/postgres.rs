//! Fresh PostgreSQL databases on the private server that `./test` starts.

use kernel::base::World;
use kernel::store::{Options, PostgresOptions, Store};
use tenant_control::migrations::MIGRATIONS;
use tokio_postgres::{Client, NoTls};

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
    let template = template_name();
    let client = connect(&server_url()).await;
    if !exists(&client, &template).await {
        // Tests run in many processes at once: one makes it, the others wait.
        client.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the lock");
        if !exists(&client, &template).await {
            make_template(&client, &template).await;
        }
    }
    copy_of(&template).await
}

async fn exists(client: &Client, name: &str) -> bool {
    let found = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]).await;
    found.expect("the list of databases").is_some()
}

/// Under its name only when it is whole.
async fn make_template(client: &Client, template: &str) {
    let making = copy_of("template0").await;
    let options = Options::postgres(PostgresOptions::new(&making.url));
    let store = Store::open(options, World::default()).await.expect("the template opens");
    store.migrate(MIGRATIONS).await.expect("the template migrates");
    store.close().await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
    client.execute(end, &[&making.name]).await.expect("nobody is in the template");
    client.batch_execute(&format!("ALTER DATABASE {} RENAME TO {template}", making.name)).await.expect("a name");
}

/// One for each build of the tests: another may have other migrations.
fn template_name() -> String {
    let built = std::env::current_exe().and_then(|path| path.metadata()).and_then(|file| file.modified());
    let built = built.expect("the tests' own file").duration_since(std::time::UNIX_EPOCH).expect("a time");
    format!("tc_template_{}", built.as_millis())
}

async fn copy_of(template: &str) -> TestDatabase {
    let server = server_url();
    // Chance keeps the names of many processes apart.
    let name = format!("tc_{}", kernel::base::Chance::System.base62(20).to_lowercase());
    let client = connect(&server).await;
    client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.expect("CREATE DATABASE");
    TestDatabase { url: replaced(&server, "/postgres?", &format!("/{name}?")), name }
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

fn server_url() -> String {
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
        let (server, name) = (server_url(), self.name.clone());
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let client = connect(&server).await;
                client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.ok()
            })
        });
        let _ = dropping.join();
    }
}
