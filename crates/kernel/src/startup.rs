//! Before the first request: this node's secrets must be those that the database was set up with.

use crate::base::{Error, Result, Secrets, SecretsSource, equal};
use crate::store::{Purpose, Store};

crate::statements! {
    LIST_CHECKS = "SELECT name, value FROM secret_checks ORDER BY name";
    INSERT_CHECK = "INSERT INTO secret_checks (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
}

/// The secrets of this node. They are made only while the database knows none; of two nodes that start at once with
/// secrets of their own, one is refused.
pub async fn load_secrets(store: &Store, source: &SecretsSource) -> Result<Secrets> {
    let db = store.system(Purpose::Startup);
    let known: Vec<(String, Vec<u8>)> = db.list(LIST_CHECKS, crate::args![]).await?;
    let secrets = match source.load()? {
        Some(secrets) => secrets,
        None if known.is_empty() => source.create(&store.world().chance)?,
        None => {
            let detail = "this database was set up with a secrets file that is not here; copy it from a node that runs, or from your backup";
            return Err(Error::internal(detail));
        }
    };
    let checks = secrets.checks();
    db.write(async move |tx| {
        for (name, value) in checks {
            tx.exec(INSERT_CHECK, crate::args![name, value]).await?;
        }
        Ok(())
    })
    .await?;
    let known: Vec<(String, Vec<u8>)> = db.list(LIST_CHECKS, crate::args![]).await?;
    match mismatch(&secrets, &known) {
        None => Ok(secrets),
        Some(name) => {
            let detail = format!(
                "the secrets of this node are not those of the database ({name} differs); every node needs the same secrets file"
            );
            Err(Error::internal(detail))
        }
    }
}

/// The first secret of this node whose check value the database has otherwise.
pub fn mismatch(secrets: &Secrets, known: &[(String, Vec<u8>)]) -> Option<String> {
    let differs =
        |(name, value): &(String, Vec<u8>)| known.iter().any(|(known, check)| known == name && !equal(check, value));
    secrets.checks().into_iter().find(differs).map(|(name, _)| name)
}

/// Whether this node could start, without changing anything: for `doctor`.
pub async fn check_secrets(store: &Store, source: &SecretsSource) -> Result<()> {
    let known: Vec<(String, Vec<u8>)> = store.system(Purpose::Startup).list(LIST_CHECKS, crate::args![]).await?;
    let Some(secrets) = source.load()? else {
        let missing = Error::internal("the secrets file does not exist");
        return if known.is_empty() { Ok(()) } else { Err(missing) };
    };
    mismatch(&secrets, &known)
        .map_or(Ok(()), |name| Err(Error::internal(format!("{name} differs from the database's"))))
}
