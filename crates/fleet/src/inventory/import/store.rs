//! SQL of an import: finding the device of each row, and writing rows in batches.

use std::collections::{BTreeSet, HashMap};

use feature_kit::custom_fields::check_custom_fields;
use kernel::args;
use kernel::base::{Result, Timestamp};
use kernel::store::{Db, Tx};
use people::organizations::OrganizationId;
use serde::Serialize;

use super::super::matching;
use super::super::store::{BY_SLUG, StoredMembers, identities_of, save_identities};
use super::super::{DeviceIdentifiers, blank_device};
use super::{DOUBTFUL_TAGS, ImportFile, ImportRow, ImportRowError, TAGS_COLUMN, is_other_notation};
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
    let mut preceding = PrecedingRows::default();
    for rows in file.rows.chunks(TRANSACTION_ROWS_MAX) {
        let rows = rows.to_vec();
        let (outcomes, preceding_rows) = db.write(async move |tx| try_rows(tx, &rows, preceding).await).await?;
        preceding = preceding_rows;
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
    mut preceding: PrecedingRows,
) -> Result<(Vec<ImportRowOutcome>, PrecedingRows)> {
    let (now, mut outcomes) = (tx.env().now(), Vec::with_capacity(rows.len()));
    for row in rows {
        outcomes.push(match plan_row(tx, row, now, &preceding).await? {
            Ok(_) if row.has_error => continue,
            Ok(ImportRowPlan { stored, updated }) => {
                preceding.add_device(row.number, stored.as_ref(), &updated);
                predict_outcome(stored.as_ref(), updated, now)?
            }
            Err(error) => ImportRowOutcome::Failed(error),
        });
    }
    Ok((outcomes, preceding))
}

/// The outcome that saving would have.
fn predict_outcome(stored: Option<&LoadedDevice>, mut updated: FullDevice, now: Timestamp) -> Result<ImportRowOutcome> {
    let Some(stored) = stored else { return Ok(ImportRowOutcome::Created) };
    devices::update_derived_fields(&mut updated, now);
    let any = devices::compare_devices(&stored.full, &updated)?.has_changes;
    Ok(if any { ImportRowOutcome::Updated } else { ImportRowOutcome::Unchanged })
}

/// Writes some rows in one transaction.
async fn write_rows(tx: &mut Tx, rows: &[ImportRow]) -> Result<Vec<ImportRowOutcome>> {
    let (now, preceding) = (tx.tick().await?.at, PrecedingRows::default());
    let mut outcomes = Vec::with_capacity(rows.len());
    for row in rows {
        outcomes.push(match plan_row(tx, row, now, &preceding).await? {
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
    fn may_match(&self, identifiers: &DeviceIdentifiers<'_>, organization: Option<OrganizationId>) -> bool {
        let own = DeviceIdentifiers {
            uuid: self.uuid.as_deref(),
            serial_number: self.serial_number.as_deref(),
            manufacturer: self.manufacturer.as_deref(),
            ..DeviceIdentifiers::default()
        };
        let in_reach = organization.is_none() || self.organization.is_none() || self.organization == organization;
        in_reach && !identifiers.conflicts_with(&own)
    }
}

impl PrecedingRows {
    fn add_device(&mut self, row: usize, stored: Option<&LoadedDevice>, updated: &FullDevice) {
        for name in identities_of(updated, Vec::new()) {
            self.identities.entry(name).or_default().push(row);
        }
        self.numbers.extend(stored.map(|stored| (stored.number, row)));
        self.identifiers.insert(row, OwnedIdentifiers::from_device(&updated.device));
    }
}

/// The stored device of a row, if any, and its state after the import.
struct ImportRowPlan {
    stored: Option<LoadedDevice>,
    updated: FullDevice,
}

async fn plan_row(
    tx: &mut Tx,
    row: &ImportRow,
    now: Timestamp,
    preceding: &PrecedingRows,
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
    let stored = match row.id {
        Some(id) => match devices::find_device(tx, id).await? {
            Some(stored) => Some(stored),
            None => return wrong("id", "there is no such device"),
        },
        None => match match_row(tx, row, organization, preceding).await? {
            Ok(stored) => stored,
            Err(detail) => return wrong("", &detail),
        },
    };
    if let Some(first) = stored.as_ref().and_then(|stored| preceding.numbers.get(&stored.number)) {
        return wrong("", &same_device_detail(*first));
    }
    let mut updated = stored.as_ref().map_or_else(|| blank_device(now), |stored| stored.full.clone());
    // A device that belongs to it already may stay, so that every exported file can be imported.
    if named.is_some_and(|(id, is_archived)| is_archived && updated.device.organization_id != Some(id)) {
        return wrong("organization", "is archived: no device can be given to it");
    }
    row.apply_to(&mut updated);
    // A device that has exactly these tags may keep them, so that every exported file can be imported.
    let kept_tags = stored.as_ref().map(|stored| &stored.full.device.tags);
    if row.tags_text().is_some_and(is_other_notation) && kept_tags != Some(&updated.device.tags) {
        return wrong(TAGS_COLUMN, DOUBTFUL_TAGS);
    }
    updated.device.organization_id = organization.or(updated.device.organization_id);
    if let Err((_, detail)) = check_custom_fields(&updated.device.custom_fields) {
        return wrong("custom_fields", &detail);
    }
    Ok(Ok(ImportRowPlan { stored, updated }))
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
    preceding: &PrecedingRows,
) -> Result<Result<Option<LoadedDevice>, String>> {
    let mut described_device = blank_device(Timestamp::from_millis(0));
    row.apply_to(&mut described_device);
    let identifiers = DeviceIdentifiers::from_device(&described_device);
    let mut found = BTreeSet::new();
    for level in identifiers.identity_levels() {
        for name in &level {
            found.extend(list_matching(tx, name, &identifiers, organization, preceding).await?);
        }
        if !found.is_empty() {
            break;
        }
    }
    if found.is_empty()
        && let Some(alias) = identifiers.alias_identities().into_iter().next()
    {
        found = list_matching(tx, &alias, &identifiers, organization, preceding).await?;
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
    preceding: &PrecedingRows,
) -> Result<Vec<ImportCandidate>> {
    let there = matching::store::list_by_identity(tx, name, reach).await?.into_iter();
    // The identities of these devices may change with their rows, so the rows decide.
    let there = there.filter(|number| !preceding.numbers.contains_key(number)).map(ImportCandidate::Stored);
    let preceding = preceding.identities.get(name).into_iter().flatten().copied().map(ImportCandidate::Preceding);
    Ok(there.chain(preceding).collect())
}

/// Devices with an identity that do not conflict with the row, of the same organization or of none. Two are enough to make
/// it ambiguous.
async fn list_matching(
    tx: &mut Tx,
    name: &str,
    identifiers: &DeviceIdentifiers<'_>,
    organization: Option<OrganizationId>,
    preceding: &PrecedingRows,
) -> Result<BTreeSet<ImportCandidate>> {
    let mut found = BTreeSet::new();
    for candidate in list_candidates(tx, name, organization, preceding).await? {
        let may_be = match candidate {
            ImportCandidate::Stored(number) => {
                let stored = devices::find_device_by_number(tx, number).await?;
                stored.is_some_and(|stored| !identifiers.conflicts_with(&DeviceIdentifiers::from_device(&stored.full)))
            }
            ImportCandidate::Preceding(row) => {
                preceding.identifiers.get(&row).is_some_and(|own| own.may_match(identifiers, organization))
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
    ImportRowPlan { stored, updated }: ImportRowPlan,
    now: Timestamp,
) -> Result<ImportRowOutcome> {
    let names = identities_of(&updated, Vec::new());
    // A row that corrects the serial number takes the wrong one away.
    let before = stored.as_ref().map(|stored| &stored.full.device.serial_number);
    let has_same_serial = before.is_none_or(|serial| *serial == updated.device.serial_number);
    let members = if has_same_serial { StoredMembers::Kept } else { StoredMembers::Replaced };
    let (number, outcome) = match stored {
        None => (
            devices::create_device(tx, updated, ReportRowUpdate::Edit, ChangeOrigin::Deliberate).await?.number,
            ImportRowOutcome::Created,
        ),
        Some(stored) => {
            let version = stored.full.device.version;
            let device =
                devices::save_device(tx, &stored, updated, ReportRowUpdate::Edit, ChangeOrigin::Deliberate).await?;
            (
                stored.number,
                if device.version == version { ImportRowOutcome::Unchanged } else { ImportRowOutcome::Updated },
            )
        }
    };
    save_identities(tx, number, names, members, now).await?;
    Ok(outcome)
}
