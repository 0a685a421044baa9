//! Checks before the first request that this node's secrets are those of the database, and saves for commands what they need
//! to know of the server.

use crate::base::{Error, Result, Secrets, SecretsSource};
use crate::http::BaseUrl;
use crate::keyring::SealedColumnStatements;
use crate::keyring::checks::{self, SecretsProblem};
use crate::store::{Purpose, Store};

crate::statements! {
    UPSERT_NOTE = "INSERT INTO service_notes (name, value, noted_at) VALUES ($1, $2, $3)
        ON CONFLICT (name) DO UPDATE SET value = $2, noted_at = $3";
    FIND_NOTE = "SELECT value FROM service_notes WHERE name = $1";
    DELETE_NOTE = "DELETE FROM service_notes WHERE name = $1";
}

/// Loads the secrets of this node, and checks that they are those of the database: none differs, and no key is missing that
/// seals the values of these columns. They are created only while the database has no check values; if two nodes start at once
/// with secrets of their own, one is refused.
pub async fn load_secrets(
    store: &Store,
    source: &SecretsSource,
    columns: &[SealedColumnStatements],
) -> Result<Secrets> {
    let db = store.system(Purpose::Startup);
    let is_new = checks::list_checks(&db).await?.is_empty();
    let secrets = match source.load_secrets()? {
        Some(secrets) => secrets,
        None if is_new => source.create_file(&store.env().random)?,
        None => {
            let detail = "this database was set up with a secrets file that is not here; copy it from a node that runs, or from your backup";
            return Err(Error::internal(detail));
        }
    };
    checks::register_secrets(&db, &secrets, columns).await?;
    Ok(secrets)
}

/// Whether this node could start, without changing anything: for `doctor`. Returns its secrets, unless there are none yet.
pub async fn check_secrets(
    store: &Store,
    source: &SecretsSource,
    columns: &[SealedColumnStatements],
) -> Result<Option<Secrets>> {
    let db = store.system(Purpose::Startup);
    let Some(secrets) = source.load_secrets()? else {
        let missing = Error::internal(
            "the secrets file does not exist, and this store needs its own: copy it from where the store comes from",
        );
        return if checks::list_checks(&db).await?.is_empty() { Ok(None) } else { Err(missing) };
    };
    match checks::find_problem(&db, &secrets, columns).await? {
        None => Ok(Some(secrets)),
        Some(SecretsProblem::Mismatch(name)) => {
            Err(Error::internal(format!("{name} differs from the database's; use the secrets file of this store")))
        }
        Some(problem) => Err(problem.into()),
    }
}

/// The names of notes in `service_notes`.
const BASE_URL_NAME: &str = "base_url";
const HOLD_NAME: &str = "outgoing_held_since";

/// Saves the base URL of this server, for links that commands print. The last node to start wins, as all nodes serve the
/// same. An unchanged URL is not written again.
pub async fn save_base_url(store: &Store, base_url: &BaseUrl) -> Result<()> {
    if find_base_url(store).await.ok().flatten().as_ref() == Some(base_url) {
        return Ok(());
    }
    save_note(store, BASE_URL_NAME, base_url.as_str().to_owned()).await
}

/// The base URL of the server that was started last on this store; none if no server was started yet.
pub async fn find_base_url(store: &Store) -> Result<Option<BaseUrl>> {
    find_note(store, BASE_URL_NAME).await?.map(|url| BaseUrl::parse(&url)).transpose()
}

/// Saves whether this server holds outgoing traffic, for `doctor`. The last node to start wins.
pub async fn save_outgoing_hold(store: &Store, is_holding: bool) -> Result<()> {
    match (is_holding, find_note(store, HOLD_NAME).await?) {
        (true, None) => save_note(store, HOLD_NAME, store.env().now().to_string()).await,
        (false, Some(_)) => delete_note(store, HOLD_NAME).await,
        _ => Ok(()),
    }
}

/// Since when servers on this store hold outgoing traffic, if the one that was started last does.
pub async fn find_outgoing_hold(store: &Store) -> Result<Option<String>> {
    find_note(store, HOLD_NAME).await
}

/// Deletes what a server has noted about itself: a copy of a store may be served in another way.
pub async fn delete_server_notes(store: &Store) -> Result<()> {
    for name in [BASE_URL_NAME, HOLD_NAME] {
        delete_note(store, name).await?;
    }
    Ok(())
}

async fn save_note(store: &Store, name: &'static str, value: String) -> Result<()> {
    let (db, now) = (store.system(Purpose::Startup), store.env().now());
    db.write(async move |tx| tx.exec(UPSERT_NOTE, crate::args![name, value, now]).await).await.map(drop)
}

async fn find_note(store: &Store, name: &str) -> Result<Option<String>> {
    store.system(Purpose::Startup).find(FIND_NOTE, crate::args![name]).await
}

async fn delete_note(store: &Store, name: &'static str) -> Result<()> {
    let db = store.system(Purpose::Startup);
    db.write(async move |tx| tx.exec(DELETE_NOTE, crate::args![name]).await).await.map(drop)
}
