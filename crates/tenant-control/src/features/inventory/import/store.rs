//! SQL of an import: which device each row is of, and writing them some at a time.

use kernel::args;
use kernel::base::{Error, Result};
use kernel::store::{Db, Tx};
use serde::Serialize;

use super::super::store::{self, BY_SLUG, Match, find_match, names_of, remember};
use super::super::{Marks, unknown};
use super::{File, Row, RowError};
use crate::features::devices::{self, By, FullDevice, Kept, Noted};
use crate::features::organizations::OrganizationId;
use crate::features::tickets::input::check_custom_fields;

kernel::statements! {
    BY_ID = "SELECT id FROM organizations WHERE tenant_id = $1 AND id = $2";
}

/// Rows of one transaction, so that nobody's write waits long for it.
const TOGETHER: usize = 50;

/// What became of a file.
#[derive(Debug, Default, Serialize)]
pub struct Imported {
    pub created: usize,
    pub updated: usize,
    pub unchanged: usize,
    pub ignored_columns: Vec<String>,
    /// If there are any, nothing was imported.
    pub errors: Vec<RowError>,
    pub dry_run: bool,
    /// Whether nothing was written.
    #[serde(skip)]
    pub tried: bool,
}

/// What one row comes to.
enum Outcome {
    Created,
    Updated,
    Unchanged,
    Wrong(RowError),
}

/// Imports a file, or finds out what that would come to. Every row is tried first: a file with an error changes nothing.
pub async fn import(db: &Db, file: File, dry_run: bool) -> Result<Imported> {
    let mut tried =
        Imported { ignored_columns: file.ignored, errors: file.errors, dry_run, tried: true, ..Imported::default() };
    for rows in file.rows.chunks(TOGETHER) {
        tally(&mut tried, some(db, rows.to_vec(), false).await?);
        db.make_way().await;
    }
    if dry_run || !tried.errors.is_empty() {
        return Ok(tried);
    }
    let mut done = Imported { ignored_columns: tried.ignored_columns, ..Imported::default() };
    for rows in file.rows.chunks(TOGETHER) {
        tally(&mut done, some(db, rows.to_vec(), true).await?);
        db.make_way().await;
    }
    Ok(done)
}

fn tally(imported: &mut Imported, outcomes: Vec<Outcome>) {
    for outcome in outcomes {
        match outcome {
            Outcome::Created => imported.created += 1,
            Outcome::Updated => imported.updated += 1,
            Outcome::Unchanged => imported.unchanged += 1,
            Outcome::Wrong(error) if imported.errors.len() < super::ERRORS_MAX => imported.errors.push(error),
            Outcome::Wrong(_) => {}
        }
    }
}

/// Some rows in one transaction, which is undone if they are only tried.
async fn some(db: &Db, rows: Vec<Row>, keep: bool) -> Result<Vec<Outcome>> {
    let (told, mut tells) = tokio::sync::oneshot::channel();
    let written = db
        .write(async move |tx| {
            tx.tick().await?;
            let mut outcomes = Vec::with_capacity(rows.len());
            for row in &rows {
                outcomes.push(one(tx, row).await?);
            }
            if keep {
                return Ok(outcomes);
            }
            // Nobody waits for it who has gone.
            let _ = told.send(outcomes);
            Err(Error::internal("only tried"))
        })
        .await;
    match tells.try_recv() {
        Ok(outcomes) => Ok(outcomes),
        Err(_) => written,
    }
}

async fn one(tx: &mut Tx, row: &Row) -> Result<Outcome> {
    let now = tx.tick().await?.at;
    let wrong = |column: &str, detail: &str| {
        Ok(Outcome::Wrong(RowError { row: row.number, column: column.to_owned(), detail: detail.to_owned() }))
    };
    let organization: Option<OrganizationId> = match &row.organization {
        Some(name) => match tx.find(if is_id(name) { BY_ID } else { BY_SLUG }, args![name]).await? {
            Some(id) => Some(id),
            None => return wrong("organization", "there is no such organization"),
        },
        None => None,
    };
    let kept = match row.id {
        Some(id) => match devices::find(tx, id).await? {
            Some(kept) => Some(kept),
            None => return wrong("id", "there is no such device"),
        },
        None => match known(tx, row, organization).await? {
            Ok(kept) => kept,
            Err(detail) => return wrong("", detail),
        },
    };
    let mut after = kept.as_ref().map_or_else(|| unknown(now), |kept| kept.full.clone());
    row.apply(&mut after);
    after.device.organization_id = organization.or(after.device.organization_id);
    if let Err((_, detail)) = check_custom_fields(&after.device.custom_fields) {
        return wrong("custom_fields", &detail);
    }
    write(tx, kept, after).await
}

fn is_id(text: &str) -> bool {
    text.parse::<OrganizationId>().is_ok()
}

/// The device that a row is of: by what reports are known by; else by the surest of what the row says, if it is of the same
/// organization.
async fn known(
    tx: &mut Tx,
    row: &Row,
    organization: Option<OrganizationId>,
) -> Result<Result<Option<Kept>, &'static str>> {
    let mut told = unknown(tx.tick().await?.at);
    row.apply(&mut told);
    let marks = Marks::of(&told);
    let several = "several devices are known by what the row says: give the id";
    let number = match find_match(tx, &marks.levels(), None).await? {
        Match::One(number) => number,
        Match::Several(_) => return Ok(Err(several)),
        Match::None => {
            let Some(alias) = marks.aliases().into_iter().next() else { return Ok(Ok(None)) };
            let mut found = Vec::new();
            for number in store::known(tx, &alias, None).await? {
                let kept = devices::find_by_number(tx, number).await?;
                let is_it = |kept: &Kept| {
                    let of = kept.full.device.organization_id;
                    organization.is_none_or(|own| of.is_none_or(|of| of == own))
                        && !marks.contradict(&Marks::of(&kept.full))
                };
                found.extend(kept.filter(is_it));
            }
            return Ok(match found.len() {
                0 | 1 => Ok(found.pop()),
                _ => Err(several),
            });
        }
    };
    devices::find_by_number(tx, number).await.map(Ok)
}

async fn write(tx: &mut Tx, kept: Option<Kept>, after: FullDevice) -> Result<Outcome> {
    let now = tx.tick().await?.at;
    let names = names_of(&after, Vec::new());
    let (number, outcome) = match kept {
        None => (devices::create(tx, after, Noted::Edit, By::Somebody).await?.number, Outcome::Created),
        Some(kept) => {
            let version = kept.full.device.version;
            let device = devices::save(tx, &kept, after, Noted::Edit, By::Somebody).await?;
            (kept.number, if device.version == version { Outcome::Unchanged } else { Outcome::Updated })
        }
    };
    remember(tx, number, names, now).await?;
    Ok(outcome)
}
