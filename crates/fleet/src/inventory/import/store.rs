//! SQL of an import: finding the device of each row, and writing rows in batches.

use std::collections::{BTreeSet, HashMap};

use kernel::args;
use kernel::base::{Result, Timestamp};
use kernel::store::{Db, Tx};
use serde::Serialize;

use super::super::store::{self, BY_SLUG, names_of, remember};
use super::super::{Marks, unknown};
use super::{File, Row, RowError};
use crate::devices::{self, By, Device, FullDevice, Kept, Noted};
use feature_kit::custom_fields::check_custom_fields;
use people::organizations::OrganizationId;

kernel::statements! {
    BY_ID = "SELECT id, archived FROM organizations WHERE tenant_id = $1 AND id = $2";
}

/// Rows of one transaction: few, so that other writes do not wait long.
const TOGETHER: usize = 50;

/// The result of an import.
#[derive(Debug, Default, Serialize)]
pub struct Imported {
    pub created: usize,
    pub updated: usize,
    pub unchanged: usize,
    pub ignored_columns: Vec<String>,
    /// Errors of the trial mean that nothing was imported. Later errors come from concurrent writes; the other rows were
    /// imported.
    pub errors: Vec<RowError>,
    pub dry_run: bool,
    /// True if the import ended with the trial.
    #[serde(skip)]
    pub tried: bool,
}

/// The outcome of one row.
enum Outcome {
    Created,
    Updated,
    Unchanged,
    Wrong(RowError),
}

/// Imports a file, or predicts the result. Every row is tried first: a file with an error changes nothing.
pub async fn import(db: &Db, file: File, dry_run: bool) -> Result<Imported> {
    let mut tried =
        Imported { ignored_columns: file.ignored, errors: file.errors, dry_run, tried: true, ..Imported::default() };
    let mut before = Before::default();
    for rows in file.rows.chunks(TOGETHER) {
        let rows = rows.to_vec();
        let (outcomes, behind) = db.write(async move |tx| try_some(tx, &rows, before).await).await?;
        before = behind;
        tally(&mut tried, outcomes);
        db.make_way().await;
    }
    if dry_run || !tried.errors.is_empty() {
        return Ok(tried);
    }
    db.world().faults.pass("import.tried").await?;
    let mut done = Imported { ignored_columns: tried.ignored_columns, ..Imported::default() };
    for rows in file.rows.chunks(TOGETHER) {
        let rows = rows.to_vec();
        tally(&mut done, db.write(async move |tx| write_some(tx, &rows).await).await?);
        db.make_way().await;
        // A device that moves to another organization moves its software counters. The rows are already saved: software that
        // cannot be indexed now is indexed later by the server.
        if let Err(error) = devices::software::store::index_most_beside(db).await {
            tracing::warn!(%error, "failed to index device software; will retry");
        }
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

/// Predicts the outcomes of rows, after preceding rows that are not written either.
async fn try_some(tx: &mut Tx, rows: &[Row], mut before: Before) -> Result<(Vec<Outcome>, Before)> {
    let (now, mut outcomes) = (tx.world().now(), Vec::with_capacity(rows.len()));
    for row in rows {
        outcomes.push(match plan(tx, row, now, &before).await? {
            Ok(_) if row.is_wrong => continue,
            Ok(Plan { kept, after }) => {
                before.add(row.number, kept.as_ref(), &after);
                outcome(kept.as_ref(), after, now)?
            }
            Err(error) => Outcome::Wrong(error),
        });
    }
    Ok((outcomes, before))
}

/// The outcome that saving would have.
fn outcome(kept: Option<&Kept>, mut after: FullDevice, now: Timestamp) -> Result<Outcome> {
    let Some(kept) = kept else { return Ok(Outcome::Created) };
    devices::settle(&mut after, now);
    let any = devices::differences(&kept.full, &after)?.any;
    Ok(if any { Outcome::Updated } else { Outcome::Unchanged })
}

/// Writes some rows in one transaction.
async fn write_some(tx: &mut Tx, rows: &[Row]) -> Result<Vec<Outcome>> {
    let (now, before) = (tx.tick().await?.at, Before::default());
    let mut outcomes = Vec::with_capacity(rows.len());
    for row in rows {
        outcomes.push(match plan(tx, row, now, &before).await? {
            Ok(plan) => write(tx, plan, now).await?,
            Err(error) => Outcome::Wrong(error),
        });
    }
    Ok(outcomes)
}

/// The devices of preceding rows as they will be: a trial writes nothing, so they cannot be queried.
#[derive(Debug, Default)]
struct Before {
    /// The rows by identity.
    names: HashMap<String, Vec<usize>>,
    /// The rows of stored devices by device number.
    numbers: HashMap<i64, usize>,
    /// Identifiers by row, to distinguish devices with the same name.
    marks: HashMap<usize, OwnMarks>,
}

#[derive(Debug)]
struct OwnMarks {
    organization: Option<OrganizationId>,
    uuid: Option<String>,
    serial_number: Option<String>,
    manufacturer: Option<String>,
}

impl OwnMarks {
    fn of(device: &Device) -> Self {
        OwnMarks {
            organization: device.organization_id,
            uuid: device.uuid.clone(),
            serial_number: device.serial_number.clone(),
            manufacturer: device.manufacturer.clone(),
        }
    }

    /// Whether a row with these identifiers and organization can be of this device.
    fn may_be(&self, marks: &Marks<'_>, organization: Option<OrganizationId>) -> bool {
        let own = Marks {
            uuid: self.uuid.as_deref(),
            serial_number: self.serial_number.as_deref(),
            manufacturer: self.manufacturer.as_deref(),
            ..Marks::default()
        };
        let in_reach = organization.is_none() || self.organization.is_none() || self.organization == organization;
        in_reach && !marks.contradict(&own)
    }
}

impl Before {
    fn add(&mut self, row: usize, kept: Option<&Kept>, after: &FullDevice) {
        for name in names_of(after, Vec::new()) {
            self.names.entry(name).or_default().push(row);
        }
        self.numbers.extend(kept.map(|kept| (kept.number, row)));
        self.marks.insert(row, OwnMarks::of(&after.device));
    }
}

/// The stored device of a row, if any, and its state after the import.
struct Plan {
    kept: Option<Kept>,
    after: FullDevice,
}

async fn plan(tx: &mut Tx, row: &Row, now: Timestamp, before: &Before) -> Result<Result<Plan, RowError>> {
    let wrong = |column: &str, detail: &str| {
        Ok(Err(RowError { row: row.number, column: column.to_owned(), detail: detail.to_owned() }))
    };
    let named: Option<(OrganizationId, bool)> = match &row.organization {
        Some(name) => match tx.find(if is_id(name) { BY_ID } else { BY_SLUG }, args![name]).await? {
            Some(named) => Some(named),
            None => return wrong("organization", "there is no such organization"),
        },
        None => None,
    };
    let organization = named.map(|(id, _)| id);
    let kept = match row.id {
        Some(id) => match devices::find(tx, id).await? {
            Some(kept) => Some(kept),
            None => return wrong("id", "there is no such device"),
        },
        None => match known(tx, row, organization, before).await? {
            Ok(kept) => kept,
            Err(detail) => return wrong("", &detail),
        },
    };
    if let Some(first) = kept.as_ref().and_then(|kept| before.numbers.get(&kept.number)) {
        return wrong("", &same_as(*first));
    }
    let mut after = kept.as_ref().map_or_else(|| unknown(now), |kept| kept.full.clone());
    // A device that belongs to it already may stay, so that every exported file can be imported.
    if named.is_some_and(|(id, is_archived)| is_archived && after.device.organization_id != Some(id)) {
        return wrong("organization", "is archived: no device can be given to it");
    }
    row.apply(&mut after);
    after.device.organization_id = organization.or(after.device.organization_id);
    if let Err((_, detail)) = check_custom_fields(&after.device.custom_fields) {
        return wrong("custom_fields", &detail);
    }
    Ok(Ok(Plan { kept, after }))
}

fn is_id(text: &str) -> bool {
    text.parse::<OrganizationId>().is_ok()
}

fn same_as(row: usize) -> String {
    format!("is of the same device as row {row}")
}

/// A device that a row may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    /// A stored device that no preceding row belongs to, by its number.
    There(i64),
    /// The device of a preceding row.
    Before(usize),
}

/// The device of a row: by the identities that reports use, else by the most reliable alias of the row within the same
/// organization.
async fn known(
    tx: &mut Tx,
    row: &Row,
    organization: Option<OrganizationId>,
    before: &Before,
) -> Result<Result<Option<Kept>, String>> {
    let mut told = unknown(Timestamp::from_millis(0));
    row.apply(&mut told);
    let marks = Marks::of(&told);
    let mut found = BTreeSet::new();
    for level in marks.levels() {
        for name in &level {
            found.extend(candidates(tx, name, None, before).await?);
        }
        if !found.is_empty() {
            break;
        }
    }
    if found.is_empty()
        && let Some(alias) = marks.aliases().into_iter().next()
    {
        found = called(tx, &alias, &marks, organization, before).await?;
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (None, _) => Ok(Ok(None)),
        (Some(Candidate::There(number)), None) => devices::find_by_number(tx, number).await.map(Ok),
        (Some(Candidate::Before(first)), None) => Ok(Err(same_as(first))),
        (Some(_), Some(_)) => Ok(Err("several devices are known by what the row says: give the id".to_owned())),
    }
}

/// The devices with an identity.
async fn candidates(tx: &mut Tx, name: &str, reach: Option<OrganizationId>, before: &Before) -> Result<Vec<Candidate>> {
    let there = store::known(tx, name, reach).await?.into_iter();
    // The identities of these devices may change with their rows, so the rows decide.
    let there = there.filter(|number| !before.numbers.contains_key(number)).map(Candidate::There);
    let before = before.names.get(name).into_iter().flatten().copied().map(Candidate::Before);
    Ok(there.chain(before).collect())
}

/// Devices with an alias that do not conflict with the row. Two are enough to make it ambiguous.
async fn called(
    tx: &mut Tx,
    alias: &str,
    marks: &Marks<'_>,
    organization: Option<OrganizationId>,
    before: &Before,
) -> Result<BTreeSet<Candidate>> {
    let mut found = BTreeSet::new();
    for candidate in candidates(tx, alias, organization, before).await? {
        let may_be = match candidate {
            Candidate::There(number) => {
                let kept = devices::find_by_number(tx, number).await?;
                kept.is_some_and(|kept| !marks.contradict(&Marks::of(&kept.full)))
            }
            Candidate::Before(row) => before.marks.get(&row).is_some_and(|own| own.may_be(marks, organization)),
        };
        if may_be {
            found.insert(candidate);
        }
        if found.len() > 1 {
            break;
        }
    }
    Ok(found)
}

async fn write(tx: &mut Tx, Plan { kept, after }: Plan, now: Timestamp) -> Result<Outcome> {
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
