//! TLS to PostgreSQL has the meaning that libpq gives to `sslmode`.

use kernel::args;
use kernel::base::Env;
use kernel::store::{PostgresOptions, Purpose, Store, StoreOptions};

use crate::support::postgres::{TestDatabase, certificate_authority, fresh_database};

/// Whether the connection came about, and if so whether it is encrypted.
async fn encrypted(database: &TestDatabase, host: &str, mode: &str, root: Option<&str>) -> Result<bool, String> {
    let options = StoreOptions::postgres(PostgresOptions::new(database.url_with_tls(host, mode, root)));
    let store = Store::open(options, Env::default()).await.map_err(|error| error.to_string())?;
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    store.system(Purpose::Cli).get_one(sql, args![]).await.map_err(|error| error.to_string())
}

/// A certificate authority that has signed nothing here.
fn stranger(folder: &std::path::Path) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let file = folder.join("stranger.pem");
    std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_root_certificate_the_connection_is_only_encrypted() {
    let database = fresh_database().await;
    assert_eq!(encrypted(&database, "127.0.0.1", "disable", None).await, Ok(false));
    for mode in ["allow", "prefer", "require"] {
        assert_eq!(encrypted(&database, "127.0.0.1", mode, None).await, Ok(true), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_ca_checks_who_signed_and_verify_full_the_name_too() {
    let database = fresh_database().await;
    let root = certificate_authority();
    for (host, mode, wanted) in [
        ("127.0.0.1", "require", true),
        ("127.0.0.1", "verify-ca", true),
        ("127.0.0.1", "verify-full", false),
        ("localhost", "verify-full", true),
    ] {
        let got = encrypted(&database, host, mode, Some(&root)).await;
        assert_eq!(got == Ok(true), wanted, "{host} {mode}: {got:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_signed_by_a_stranger_is_refused() {
    let database = fresh_database().await;
    let folder = tempfile::tempdir().unwrap();
    let root = stranger(folder.path());
    for mode in ["require", "verify-ca", "verify-full"] {
        let refused = encrypted(&database, "localhost", mode, Some(&root)).await.unwrap_err();
        assert!(refused.contains("UnknownIssuer"), "{mode}: {refused}");
    }
}
