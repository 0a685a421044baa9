//! A migrated store of its own for every test, on either engine.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use kernel::args;
use kernel::base::{Actor, Env, TenantId, Timestamp, WallClock};
use kernel::store::{DatabaseEngine, Db, PostgresOptions, Purpose, Store, StoreOptions};
use tempfile::TempDir;
use tenant_control::features;
use tenant_control::migrations::MIGRATIONS;

use super::postgres::{TestDatabase, build_ms, fresh_database, migrated_database};

/// Where a test's clock stands at first: 2026-01-01T00:00:00Z.
pub const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A store with a manual clock, and what it lives in. It is the [`Store`] wherever one is wanted.
pub struct TestStore {
    pub store: Store,
    pub place: Place,
}

pub enum Place {
    Folder(TempDir),
    Database(TestDatabase),
}

impl Place {
    pub fn folder() -> Place {
        Place::Folder(TempDir::new().expect("a temporary folder"))
    }

    /// With the schema in it: a copy takes a fraction of the time that migrating does.
    pub async fn migrated_folder() -> Place {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::copy(template().await, folder.path().join(FILE)).expect("a copy of the template");
        Place::Folder(folder)
    }

    pub async fn database() -> Place {
        Place::Database(fresh_database().await)
    }

    pub async fn migrated_database() -> Place {
        Place::Database(migrated_database().await)
    }

    pub fn options(&self) -> StoreOptions {
        let options = match self {
            Place::Folder(folder) => StoreOptions::sqlite(folder.path().join(FILE)),
            Place::Database(database) => StoreOptions::postgres(PostgresOptions::new(&database.url)),
        };
        options.followed_by(&features::install().followers)
    }
}

/// The database's file.
const FILE: &str = "control.db";

/// A migrated database of this build, which other processes made or this one makes. Those of earlier builds go.
async fn template() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("migrated-{}.db", build_ms());
    let template = folder.join(&name);
    if template.exists() {
        return template;
    }
    for file in std::fs::read_dir(folder).expect("the folder of the tests").flatten() {
        let found = file.file_name().to_string_lossy().into_owned();
        if found.starts_with("migrated-") && found != name {
            // Another process may be faster.
            let _ = std::fs::remove_file(file.path());
        }
    }
    let making = TempDir::new_in(folder).expect("a temporary folder");
    let file = making.path().join(FILE);
    let store = Store::open(StoreOptions::sqlite(&file), Env::default()).await.expect("the template opens");
    store.migrate(MIGRATIONS).await.expect("the template migrates");
    store.close().await;
    assert!(!making.path().join(format!("{FILE}-wal")).exists(), "all of it is in the one file");
    // Under its name only when it is whole.
    std::fs::rename(&file, &template).expect("a name");
    template
}

impl TestStore {
    pub async fn sqlite() -> TestStore {
        TestStore::migrated(Place::migrated_folder().await).await
    }

    pub async fn postgres() -> TestStore {
        TestStore::migrated(Place::migrated_database().await).await
    }

    async fn migrated(place: Place) -> TestStore {
        let world = Env { clock: WallClock::new_manual(START), ..Env::default() };
        let store = Store::open(place.options(), world).await.expect("the store opens");
        TestStore { store, place }
    }

    /// Opens the same database once more, as another process would.
    pub async fn open_again(&self, change: impl FnOnce(StoreOptions) -> StoreOptions) -> Store {
        Store::open(change(self.place.options()), self.store.env().clone()).await.expect("the store opens again")
    }

    /// A file beside the database.
    pub fn path(&self, name: &str) -> PathBuf {
        match &self.place {
            Place::Folder(folder) => folder.path().join(name),
            Place::Database(_) => panic!("a PostgreSQL database is not a file"),
        }
    }

    pub fn database(&self) -> &TestDatabase {
        match &self.place {
            Place::Folder(_) => panic!("not a PostgreSQL database"),
            Place::Database(database) => database,
        }
    }

    pub fn is_sqlite(&self) -> bool {
        self.store.engine() == DatabaseEngine::Sqlite
    }

    /// A new tenant and a handle to it.
    pub async fn tenant(&self, slug: &'static str) -> Db {
        let id = TenantId::new(self.store.env());
        let now = self.store.env().now();
        self.store
            .system(Purpose::Cli)
            .write(async move |tx| {
                let insert = "INSERT INTO tenants (id, slug, name, version, created_at, updated_at)
                     VALUES ($1, $2, $2, 1, $3, $3)";
                tx.exec(insert, args![id, slug, now]).await
            })
            .await
            .expect("the tenant is made");
        self.store.tenant_for_test(id, Actor::for_system())
    }
}

impl Deref for TestStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

/// Makes two tests of each function: `name::sqlite` and `name::postgres`.
macro_rules! on_both {
    ($($(#[$meta:meta])* async fn $name:ident($store:ident: TestStore) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports, reason = "some bodies need nothing but their store")]
            use super::*;

            async fn test($store: $crate::support::stores::TestStore) $body

            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                test($crate::support::stores::TestStore::sqlite().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                test($crate::support::stores::TestStore::postgres().await).await;
            }
        }
    )*};
}

pub(crate) use on_both;
