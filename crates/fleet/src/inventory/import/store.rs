//! SQL of an import: finding the device of each row, and writing rows in batches.

use std::collections::{BTreeSet, HashMap};

use feature_kit::custom_fields::check_custom_fields;
use kernel::args;
use kernel::base::{Result, Timestamp};
use kernel::store::{Db, Tx};
use people::organizations::OrganizationId;
use serde::Serialize;

use super::super::store::{self, BY_SLUG, identities_of, save_identities};
use super::super::{DeviceIdentifiers, blank_device};
use super::{ImportFile, ImportRow, ImportRowError};
use crate::devices::{self, ChangeOrigin, Device, FullDevice, LoadedDevice, ReportRowUpdate};

kernel::statements! {
    BY_ID = "SELECT id, archived FROM organizations WHERE tenant_id = $1 AND id = $2";
}

/// Rows of one transaction: few, so that other writes do not wait long.
const TRANSACTION_ROWS_MAX: usize = 50;

/// The result of an import.
#[derive(Debug, Default, Serialize)]
pub struct ImportSummary {
    pub created: usize,
    pub updated: usize,
    pub unchanged: usize,
    pub ignored_columns: Vec<String>,
    /// Errors of the trial mean that nothing was imported. Later errors come from concurrent writes; the other rows were
    /// imported.
    pub errors: Vec<ImportRowError>,
    pub dry_run: bool,
    /// True if the import ended with the trial.
    #[serde(skip)]
    pub nothing_written: bool,
}

/// The outcome of one row.
enum ImportRowOutcome {
    Created,
    Updated,
    Unchanged,
    Failed(ImportRowError),
}

/// Imports a file, or predicts the result. Every row is tried first: a file with an error changes nothing.
pub async fn import_devices(db: &Db, file: ImportFile, dry_run: bool) -> Result<ImportSummary> {
    let mut tried = ImportSummary {
        ignored_columns: file.ignored_columns,
        errors: file.errors,
        dry_run,
        nothing_written: true,
        ..ImportSummary::default()
    };
    let mut before = PrecedingRows::default();
    for rows in file.rows.chunks(TRANSACTION_ROWS_MAX) {
        let rows = rows.to_vec();
        let (outcomes, behind) = db.write(async move |tx| try_rows(tx, &rows, before).await).await?;
        before = behind;
        tally_outcomes(&mut tried, outcomes);
        db.yield_write_lock().await;
    }
    if dry_run || !tried.errors.is_empty() {
        return Ok(tried);
    }
    db.env().faults.check_outside_tx("import.tried").await?;
    let mut done = ImportSummary { ignored_columns: tried.ignored_columns, ..ImportSummary::default() };
    for rows in file.rows.chunks(TRANSACTION_ROWS_MAX) {
        let rows = rows.to_vec();
        tally_outcomes(&mut done, db.write(async move |tx| write_rows(tx, &rows).await).await?);
        db.yield_write_lock().await;
        // A device that moves to another organization moves its software counters. The rows are already saved: software that
        // cannot be indexed now is indexed later by the server.
        if let Err(error) = devices::software::store::index_most_yielding(db).await {
            tracing::warn!(%error, "failed to index device software; will retry");
        }
    }
    Ok(done)
}

fn tally_outcomes(imported: &mut ImportSummary, outcomes: Vec<ImportRowOutcome>) {
    for outcome in outcomes {
        match outcome {
            ImportRowOutcome::Created => imported.created += 1,
            ImportRowOutcome::Updated => imported.updated += 1,
            ImportRowOutcome::Unchanged => imported.unchanged += 1,
            ImportRowOutcome::Failed(error) if imported.errors.len() < super::ERRORS_MAX => imported.errors.push(error),
            ImportRowOutcome::Failed(_) => {}
        }
    }
}

/// Predicts the outcomes of rows, after preceding rows that are not written either.
async fn try_rows(
    tx: &mut Tx,
    rows: &[ImportRow],
    mut before: PrecedingRows,
) -> Result<(Vec<ImportRowOutcome>, PrecedingRows)> {
    let (now, mut outcomes) = (tx.env().now(), Vec::with_capacity(rows.len()));
    for row in rows {
        outcomes.push(match plan_row(tx, row, now, &before).await? {
            Ok(_) if row.has_error => continue,
            Ok(ImportRowPlan { kept, after }) => {
                before.add_device(row.number, kept.as_ref(), &after);
                predict_outcome(kept.as_ref(), after, now)?
            }
            Err(error) => ImportRowOutcome::Failed(error),
        });
    }
    Ok((outcomes, before))
}

/// The outcome that saving would have.
fn predict_outcome(kept: Option<&LoadedDevice>, mut after: FullDevice, now: Timestamp) -> Result<ImportRowOutcome> {
    let Some(kept) = kept else { return Ok(ImportRowOutcome::Created) };
    devices::update_derived_fields(&mut after, now);
    let any = devices::compare_devices(&kept.full, &after)?.has_changes;
    Ok(if any { ImportRowOutcome::Updated } else { ImportRowOutcome::Unchanged })
}

/// Writes some rows in one transaction.
async fn write_rows(tx: &mut Tx, rows: &[ImportRow]) -> Result<Vec<ImportRowOutcome>> {
    let (now, before) = (tx.tick().await?.at, PrecedingRows::default());
    let mut outcomes = Vec::with_capacity(rows.len());
    for row in rows {
        outcomes.push(match plan_row(tx, row, now, &before).await? {
            Ok(plan) => write_row(tx, plan, now).await?,
            Err(error) => ImportRowOutcome::Failed(error),
        });
    }
    Ok(outcomes)
}

/// The devices of preceding rows as they will be: a trial writes nothing, so they cannot be queried.
#[derive(Debug, Default)]
struct PrecedingRows {
    /// The rows by identity.
    identities: HashMap<String, Vec<usize>>,
    /// The rows of stored devices by device number.
    numbers: HashMap<i64, usize>,
    /// Identifiers by row, to distinguish devices with the same name.
    identifiers: HashMap<usize, OwnedIdentifiers>,
}

#[derive(Debug)]
struct OwnedIdentifiers {
    organization: Option<OrganizationId>,
    uuid: Option<String>,
    serial_number: Option<String>,
    manufacturer: Option<String>,
}

impl OwnedIdentifiers {
    fn from_device(device: &Device) -> Self {
        OwnedIdentifiers {
            organization: device.organization_id,
            uuid: device.uuid.clone(),
            serial_number: device.serial_number.clone(),
            manufacturer: device.manufacturer.clone(),
        }
    }

    /// Whether a row with these identifiers and organization can be of this device.
    fn may_match(&self, marks: &DeviceIdentifiers<'_>, organization: Option<OrganizationId>) -> bool {
        let own = DeviceIdentifiers {
            uuid: self.uuid.as_deref(),
            serial_number: self.serial_number.as_deref(),
            manufacturer: self.manufacturer.as_deref(),
            ..DeviceIdentifiers::default()
        };
        let in_reach = organization.is_none() || self.organization.is_none() || self.organization == organization;
        in_reach && !marks.conflicts_with(&own)
    }
}

impl PrecedingRows {
    fn add_device(&mut self, row: usize, kept: Option<&LoadedDevice>, after: &FullDevice) {
        for name in identities_of(after, Vec::new()) {
            self.identities.entry(name).or_default().push(row);
        }
        self.numbers.extend(kept.map(|kept| (kept.number, row)));
        self.identifiers.insert(row, OwnedIdentifiers::from_device(&after.device));
    }
}

/// The stored device of a row, if any, and its state after the import.
struct ImportRowPlan {
    kept: Option<LoadedDevice>,
    after: FullDevice,
}

async fn plan_row(
    tx: &mut Tx,
    row: &ImportRow,
    now: Timestamp,
    before: &PrecedingRows,
) -> Result<Result<ImportRowPlan, ImportRowError>> {
    let wrong = |column: &str, detail: &str| {
        Ok(Err(ImportRowError { row: row.number, column: column.to_owned(), detail: detail.to_owned() }))
    };
    let named: Option<(OrganizationId, bool)> = match &row.organization {
        Some(name) => match tx.find(if is_organization_id(name) { BY_ID } else { BY_SLUG }, args![name]).await? {
            Some(named) => Some(named),
            None => return wrong("organization", "there is no such organization"),
        },
        None => None,
    };
    let organization = named.map(|(id, _)| id);
    let kept = match row.id {
        Some(id) => match devices::find_device(tx, id).await? {
            Some(kept) => Some(kept),
            None => return wrong("id", "there is no such device"),
        },
        None => match match_row(tx, row, organization, before).await? {
            Ok(kept) => kept,
            Err(detail) => return wrong("", &detail),
        },
    };
    if let Some(first) = kept.as_ref().and_then(|kept| before.numbers.get(&kept.number)) {
        return wrong("", &same_device_detail(*first));
    }
    let mut after = kept.as_ref().map_or_else(|| blank_device(now), |kept| kept.full.clone());
    // A device that belongs to it already may stay, so that every exported file can be imported.
    if named.is_some_and(|(id, is_archived)| is_archived && after.device.organization_id != Some(id)) {
        return wrong("organization", "is archived: no device can be given to it");
    }
    row.apply_to(&mut after);
    after.device.organization_id = organization.or(after.device.organization_id);
    if let Err((_, detail)) = check_custom_fields(&after.device.custom_fields) {
        return wrong("custom_fields", &detail);
    }
    Ok(Ok(ImportRowPlan { kept, after }))
}

fn is_organization_id(text: &str) -> bool {
    text.parse::<OrganizationId>().is_ok()
}

fn same_device_detail(row: usize) -> String {
    format!("is of the same device as row {row}")
}

/// A device that a row may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ImportCandidate {
    /// A stored device that no preceding row belongs to, by its number.
    Stored(i64),
    /// The device of a preceding row.
    Preceding(usize),
}

/// The device of a row: by the identities that reports use, else by the most reliable alias of the row within the same
/// organization.
async fn match_row(
    tx: &mut Tx,
    row: &ImportRow,
    organization: Option<OrganizationId>,
    before: &PrecedingRows,
) -> Result<Result<Option<LoadedDevice>, String>> {
    let mut told = blank_device(Timestamp::from_millis(0));
    row.apply_to(&mut told);
    let marks = DeviceIdentifiers::from_device(&told);
    let mut found = BTreeSet::new();
    for level in marks.identity_levels() {
        for name in &level {
            found.extend(list_candidates(tx, name, None, before).await?);
        }
        if !found.is_empty() {
            break;
        }
    }
    if found.is_empty()
        && let Some(alias) = marks.alias_identities().into_iter().next()
    {
        found = list_candidates_by_alias(tx, &alias, &marks, organization, before).await?;
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (None, _) => Ok(Ok(None)),
        (Some(ImportCandidate::Stored(number)), None) => devices::find_device_by_number(tx, number).await.map(Ok),
        (Some(ImportCandidate::Preceding(first)), None) => Ok(Err(same_device_detail(first))),
        (Some(_), Some(_)) => Ok(Err("several devices are known by what the row says: give the id".to_owned())),
    }
}

/// The devices with an identity.
async fn list_candidates(
    tx: &mut Tx,
    name: &str,
    reach: Option<OrganizationId>,
    before: &PrecedingRows,
) -> Result<Vec<ImportCandidate>> {
    let there = store::list_by_identity(tx, name, reach).await?.into_iter();
    // The identities of these devices may change with their rows, so the rows decide.
    let there = there.filter(|number| !before.numbers.contains_key(number)).map(ImportCandidate::Stored);
    let before = before.identities.get(name).into_iter().flatten().copied().map(ImportCandidate::Preceding);
    Ok(there.chain(before).collect())
}

/// Devices with an alias that do not conflict with the row. Two are enough to make it ambiguous.
async fn list_candidates_by_alias(
    tx: &mut Tx,
    alias: &str,
    marks: &DeviceIdentifiers<'_>,
    organization: Option<OrganizationId>,
    before: &PrecedingRows,
) -> Result<BTreeSet<ImportCandidate>> {
    let mut found = BTreeSet::new();
    for candidate in list_candidates(tx, alias, organization, before).await? {
        let may_be = match candidate {
            ImportCandidate::Stored(number) => {
                let kept = devices::find_device_by_number(tx, number).await?;
                kept.is_some_and(|kept| !marks.conflicts_with(&DeviceIdentifiers::from_device(&kept.full)))
            }
            ImportCandidate::Preceding(row) => {
                before.identifiers.get(&row).is_some_and(|own| own.may_match(marks, organization))
            }
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

async fn write_row(
    tx: &mut Tx,
    ImportRowPlan { kept, after }: ImportRowPlan,
    now: Timestamp,
) -> Result<ImportRowOutcome> {
    let names = identities_of(&after, Vec::new());
    let (number, outcome) = match kept {
        None => (
            devices::create_device(tx, after, ReportRowUpdate::Edit, ChangeOrigin::Deliberate).await?.number,
            ImportRowOutcome::Created,
        ),
        Some(kept) => {
            let version = kept.full.device.version;
            let device =
                devices::save_device(tx, &kept, after, ReportRowUpdate::Edit, ChangeOrigin::Deliberate).await?;
            (
                kept.number,
                if device.version == version { ImportRowOutcome::Unchanged } else { ImportRowOutcome::Updated },
            )
        }
    };
    save_identities(tx, number, names, now).await?;
    Ok(outcome)
}
