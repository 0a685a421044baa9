//! SQL of reports: finding the device of a report, and saving the report.

use std::collections::{BTreeMap, BTreeSet};

use agent_reports::{AgentReport, DeviceFacts};
use kernel::args;
use kernel::base::{DAY_MS, Result, StringEnum, Timestamp};
use kernel::store::{Db, Tx, Value};
use people::organizations::OrganizationId;

use super::{DeviceIdentifiers, Reporter, agent_identities, apply_report, blank_device};
use crate::devices::{
    self, ChangeOrigin, DeviceId, DeviceSettings, DeviceStatus, FullDevice, ReportRowUpdate, row_limit,
};
use crate::ingest_keys::{self, IngestReach};

kernel::statements! {
    // The device is a subquery and not a join: a join might start with all devices of the tenant.
    /// Devices with an identity, newest first, below a number. The status is null unless the device is live and in reach: of
    /// the organization of the key, or of none.
    LIST_MATCHES = "SELECT i.number, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = i.number
            AND d.deleted_at IS NULL AND (CAST($3 AS TEXT) IS NULL OR d.organization_id IS NULL OR d.organization_id = $3))
        FROM device_identities i WHERE i.tenant_id = $1 AND i.identity = $2 AND i.number < $4
        ORDER BY i.number DESC LIMIT $5";
    UNCHANGED = "SELECT r.device, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = r.device
            AND d.deleted_at IS NULL AND (CAST($3 AS TEXT) IS NULL OR d.organization_id IS NULL OR d.organization_id = $3))
        FROM device_reports r WHERE r.tenant_id = $1 AND r.digest = $2 LIMIT $4";
    /// Times never go back, though several reports of one device may be saved at once.
    UPDATE_LAST_SEEN = "UPDATE device_reports SET last_seen_at = CASE WHEN last_seen_at > $3 THEN last_seen_at ELSE $3 END
        WHERE tenant_id = $1 AND device = $2";
    UPDATE_LAST_INVENTORY = "UPDATE device_reports SET last_seen_at = CASE WHEN last_seen_at > $3 THEN last_seen_at ELSE $3 END,
            inventory_at = CASE WHEN inventory_at > $3 THEN inventory_at ELSE $3 END
        WHERE tenant_id = $1 AND device = $2";
    STATUS = "SELECT status FROM devices WHERE tenant_id = $1 AND number = $2 AND deleted_at IS NULL";
    IDENTITIES = "SELECT identity, added_at FROM device_identities /* INDEXED BY device_identities_by_device */
        WHERE tenant_id = $1 AND number = $2";
    OWNER = "SELECT organization_id, possible_duplicate_of FROM devices WHERE tenant_id = $1 AND number = $2";
    INSERT_IDENTITY = "INSERT INTO device_identities (tenant_id, identity, number, added_at) VALUES ($1, $2, $3, $4)";
    TOUCH_IDENTITY = "UPDATE device_identities SET added_at = $4 WHERE tenant_id = $1 AND identity = $2 AND number = $3";
    DELETE_IDENTITY = "DELETE FROM device_identities WHERE tenant_id = $1 AND identity = $2 AND number = $3";
    BY_SLUG = "SELECT id, archived FROM organizations WHERE tenant_id = $1 AND slug = $2";
    BY_NAME = "SELECT id, archived FROM organizations /* INDEXED BY organizations_by_name */
        WHERE tenant_id = $1 AND name = $2 LIMIT 10";
}

/// Agent identities kept for one device: each installation of an agent has its own.
const AGENT_IDENTITIES_MAX: usize = 16;
/// The time of use of an identity is updated at most this often. The least recently used one is dropped first, and a day is
/// precise enough for that.
const TOUCH_INTERVAL_MS: i64 = DAY_MS;
/// Devices in reach that share an identity: more of them would not change the result.
const CANDIDATES_MAX: usize = 100;
/// Rows read in each step for one identity. Nearly always there is one; but every customer may have a device with the same
/// hostname, and all but one of them are out of reach.
const CANDIDATE_STEPS: [usize; 4] = [CANDIDATES_MAX, 1_000, 4_000, 16_000];

/// A parsed report with its sender.
pub struct IncomingReport {
    pub reach: IngestReach,
    pub reporter: Reporter,
    pub report: AgentReport,
    pub facts: DeviceFacts,
    /// The digest of a full inventory.
    pub digest: Option<String>,
}

/// The device that identities belong to.
enum IdentityMatch {
    One(i64),
    /// Several devices match; this is the oldest.
    Ambiguous(i64),
    None,
}

/// Saves a report: creates or changes its device, or only updates the report row if nothing differs.
pub async fn save_report(db: &Db, settings: DeviceSettings, incoming: IncomingReport) -> Result<()> {
    db.write(async move |tx| {
        let now = tx.tick().await?.at;
        let IncomingReport { reach, reporter, report, facts, digest } = incoming;
        // A body may take minutes to arrive; a key that was revoked meanwhile is refused.
        ingest_keys::confirm_ingest_key(tx, reach.key_id).await?;
        let named = resolve_organization(tx, &reporter, report.tag.as_deref()).await?;
        let organization = named.map(|(id, _)| id);
        let given = agent_identities(&reporter, &report.device_id);
        let found = match match_agent_identities(tx, &given, reporter.organization, organization).await? {
            IdentityMatch::None => {
                match_identities(tx, &DeviceIdentifiers::from_facts(&facts).identity_levels(), reporter.organization)
                    .await?
            }
            found => found,
        };
        let mut updated = blank_device(now);
        let stored = match found {
            IdentityMatch::One(number) => devices::find_device_by_number(tx, number).await?,
            IdentityMatch::Ambiguous(first) => {
                let first = devices::find_device_by_number(tx, first).await?;
                updated.device.possible_duplicate_of = first.map(|stored| stored.full.device.id);
                None
            }
            IdentityMatch::None => None,
        };
        if let Some(stored) = &stored {
            updated = stored.full.clone();
        }
        apply_report(&report, facts, &mut updated);
        mark_seen(&mut updated, now);
        // Partial reports of a new device are no inventory, however many arrive: its health stays unknown.
        let is_inventory = !report.partial || updated.device.inventory_at.is_some();
        updated.device.inventory_at = is_inventory.then_some(now);
        // An archived organization gets no new devices; a device that belongs to it stays.
        let joined = named.filter(|(_, is_archived)| !is_archived).map(|(id, _)| id);
        updated.device.organization_id = joined.or(updated.device.organization_id);
        // A tag without an organization may get one tomorrow: without a digest the same report is parsed again then.
        let is_there = organization.is_some() && updated.device.organization_id == organization;
        let digest = digest.filter(|_| report.tag.is_none() || is_there);
        let names = identities_of(&updated, given);
        let report_update =
            ReportRowUpdate::Report { digest, check_at: devices::next_check_at(&updated.device, &settings) };
        let number = match stored {
            Some(stored) => {
                devices::save_device(tx, &stored, updated, report_update, ChangeOrigin::Automatic).await?;
                stored.number
            }
            None => devices::create_device(tx, updated, report_update, ChangeOrigin::Automatic).await?.number,
        };
        save_identities(tx, number, names, now).await
    })
    .await
}

/// All identities of a device.
pub fn identities_of(full: &FullDevice, given: Vec<Vec<String>>) -> BTreeSet<String> {
    let identifiers = DeviceIdentifiers::from_device(full);
    given.into_iter().chain(identifiers.identity_levels()).chain([identifiers.alias_identities()]).flatten().collect()
}

/// Sets the device online and its times.
fn mark_seen(full: &mut FullDevice, now: Timestamp) {
    full.device.status = DeviceStatus::Online;
    full.device.last_seen_at = Some(now);
    full.device.first_seen_at.get_or_insert(now);
}

/// An organization, and whether it is archived.
type TagOrganization = (OrganizationId, bool);

/// The organization of the key; else the one that the agent's tag names, by slug or by a unique name; else none. A key bound
/// to an archived organization keeps reporting for it: otherwise its devices would be in reach of every key.
async fn resolve_organization(tx: &mut Tx, reporter: &Reporter, tag: Option<&str>) -> Result<Option<TagOrganization>> {
    if let Some(own) = reporter.organization {
        return Ok(Some((own, false)));
    }
    let Some(tag) = tag else { return Ok(None) };
    if let Some(named) = tx.find(BY_SLUG, args![tag]).await? {
        return Ok(Some(named));
    }
    let named: Vec<TagOrganization> = tx.list(BY_NAME, args![tag]).await?;
    let (archived, live): (Vec<TagOrganization>, Vec<TagOrganization>) =
        named.into_iter().partition(|(_, is_archived)| *is_archived);
    Ok(match (live.as_slice(), archived.as_slice()) {
        ([one], _) | ([], [one]) => Some(*one),
        _ => None,
    })
}

/// Live devices in reach with an identity, newest first.
pub async fn list_by_identity(tx: &mut Tx, name: &str, reach: Option<OrganizationId>) -> Result<Vec<i64>> {
    let (mut numbers, mut before) = (Vec::new(), i64::MAX);
    for step in CANDIDATE_STEPS {
        let found: Vec<(i64, Option<String>)> =
            tx.list(LIST_MATCHES, args![name, reach, before, row_limit(step)]).await?;
        let last = found.last().filter(|_| found.len() == step).map(|(number, _)| *number);
        numbers.extend(found.into_iter().filter(|(_, status)| status.is_some()).map(|(number, _)| number));
        match last {
            Some(last) if numbers.len() < CANDIDATES_MAX => before = last,
            _ => break,
        }
    }
    numbers.truncate(CANDIDATES_MAX);
    Ok(numbers)
}

/// The device with one of these agent identities. Keys of several organizations can lead to several such devices: then the
/// one of the report's own organization matches, else the one that was created as a possible duplicate.
async fn match_agent_identities(
    tx: &mut Tx,
    given: &[Vec<String>],
    reach: Option<OrganizationId>,
    own: Option<OrganizationId>,
) -> Result<IdentityMatch> {
    for name in given.iter().flatten() {
        let mut numbers = list_by_identity(tx, name, reach).await?;
        let oldest = match numbers.as_slice() {
            [] => continue,
            [one] => return Ok(IdentityMatch::One(*one)),
            [_, .., oldest] => *oldest,
        };
        if own != reach {
            // A key without an organization reaches all devices; those of the report's organization may be older than these.
            numbers.extend(list_by_identity(tx, name, own).await?);
        }
        let mut flagged = None;
        for number in &numbers {
            let found: Option<(Option<OrganizationId>, Option<DeviceId>)> = tx.find(OWNER, args![number]).await?;
            let Some((of, duplicate)) = found else { continue };
            if own.is_some() && of == own {
                return Ok(IdentityMatch::One(*number));
            }
            flagged = flagged.or(duplicate.map(|_| *number));
        }
        return Ok(flagged.map_or(IdentityMatch::Ambiguous(oldest), IdentityMatch::One));
    }
    Ok(IdentityMatch::None)
}

/// The first level with any match decides.
async fn match_identities(tx: &mut Tx, levels: &[Vec<String>], reach: Option<OrganizationId>) -> Result<IdentityMatch> {
    for level in levels {
        let mut numbers = BTreeSet::new();
        for name in level {
            numbers.extend(list_by_identity(tx, name, reach).await?);
        }
        match (numbers.len(), numbers.first()) {
            (_, None) => {}
            (1, Some(number)) => return Ok(IdentityMatch::One(*number)),
            (_, Some(first)) => return Ok(IdentityMatch::Ambiguous(*first)),
        }
    }
    Ok(IdentityMatch::None)
}

/// Whether an agent gave this identity. Such identities stay when others are added: two agents on one machine give two.
fn is_agent_identity(identity: &str) -> bool {
    identity.starts_with("a:") || identity.starts_with("d:")
}

/// Replaces the identities of a device by these; agent identities stay up to their limit.
pub async fn save_identities(tx: &mut Tx, number: i64, identities: BTreeSet<String>, now: Timestamp) -> Result<()> {
    let stored: Vec<(String, Timestamp)> = tx.list(IDENTITIES, args![number]).await?;
    let mut stored: BTreeMap<String, Timestamp> = stored.into_iter().collect();
    let added: Vec<&String> = identities.iter().filter(|name| !stored.contains_key(*name)).collect();
    let is_due = |name: &&String| {
        is_agent_identity(name) && stored.get(*name).is_some_and(|at| at.plus_ms(TOUCH_INTERVAL_MS) <= now)
    };
    let used: Vec<&String> = identities.iter().filter(is_due).collect();
    let mut removed: Vec<String> =
        stored.keys().filter(|name| !is_agent_identity(name) && !identities.contains(*name)).cloned().collect();
    stored.extend(added.iter().map(|name| ((*name).clone(), now)));
    let mut given: Vec<(&Timestamp, &String)> =
        stored.iter().filter(|(name, _)| is_agent_identity(name)).map(|(n, at)| (at, n)).collect();
    given.sort_by_key(|(at, name)| (identities.contains(*name), **at));
    let surplus = given.len().saturating_sub(AGENT_IDENTITIES_MAX);
    removed.extend(given.into_iter().take(surplus).map(|(_, name)| name.clone()));
    for name in &removed {
        tx.defer_exec(DELETE_IDENTITY, vec![name.as_str().into(), number.into()]).await?;
    }
    for name in added {
        tx.defer_exec(INSERT_IDENTITY, vec![name.as_str().into(), number.into(), Value::from(now)]).await?;
    }
    for name in used {
        tx.defer_exec(TOUCH_IDENTITY, vec![name.as_str().into(), number.into(), Value::from(now)]).await?;
    }
    Ok(())
}

/// A message of a device without news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignOfLife {
    /// The agent asks for its tasks.
    Contact,
    /// The same inventory as last time.
    Inventory,
}

/// A device that sent a sign of life, with its stored status.
#[derive(Clone, Debug)]
pub struct SeenDevice {
    number: i64,
    status: String,
}

/// The device whose last full inventory has this digest.
pub async fn find_unchanged_device(db: &Db, reach: IngestReach, digest: &str) -> Result<Option<SeenDevice>> {
    let found: Vec<(i64, Option<String>)> =
        db.list(UNCHANGED, args![digest, reach.organization_id, row_limit(CANDIDATES_MAX)]).await?;
    Ok(found.into_iter().find_map(|(number, status)| Some(SeenDevice { number, status: status? })))
}

/// Records a contact of the device that an inventory of this agent would match, if there is one.
pub async fn record_contact(
    db: &Db,
    settings: DeviceSettings,
    reach: IngestReach,
    reporter: &Reporter,
    device_id: &str,
) -> Result<()> {
    let (given, own) = (agent_identities(reporter, device_id), reporter.organization);
    for name in given.iter().flatten() {
        let found: Vec<(i64, Option<String>)> =
            db.list(LIST_MATCHES, args![name, own, i64::MAX, row_limit(CANDIDATES_MAX)]).await?;
        let is_all = found.len() < CANDIDATES_MAX;
        let mut live = found.into_iter().filter_map(|(number, status)| Some(SeenDevice { number, status: status? }));
        match (live.next(), live.next()) {
            (None, _) if is_all => {}
            (Some(device), None) if is_all => {
                return record_sign_of_life(db, settings, reach, device, SignOfLife::Contact).await.map(drop);
            }
            _ => return record_ambiguous_contact(db, settings, reach, given).await,
        }
    }
    Ok(())
}

/// The same where several devices share the identity. Without a clear match nothing is recorded.
async fn record_ambiguous_contact(
    db: &Db,
    settings: DeviceSettings,
    reach: IngestReach,
    given: Vec<Vec<String>>,
) -> Result<()> {
    let own = reach.organization_id;
    let found = db.write(async move |tx| match_agent_identities(tx, &given, own, own).await).await?;
    let IdentityMatch::One(number) = found else { return Ok(()) };
    let status: Option<String> = db.find(STATUS, args![number]).await?;
    let Some(status) = status else { return Ok(()) };
    record_sign_of_life(db, settings, reach, SeenDevice { number, status }, SignOfLife::Contact).await.map(drop)
}

/// Records a sign of life and returns whether the device still exists. An online device only gets new times in its report
/// row. A check that finds the device silent holds the lock of that row, and this write waits for it.
pub async fn record_sign_of_life(
    db: &Db,
    settings: DeviceSettings,
    reach: IngestReach,
    device: SeenDevice,
    sign: SignOfLife,
) -> Result<bool> {
    let SeenDevice { number, status } = device;
    let sql = match sign {
        SignOfLife::Contact => UPDATE_LAST_SEEN,
        SignOfLife::Inventory => UPDATE_LAST_INVENTORY,
    };
    let online = DeviceStatus::Online.as_str();
    if status == online {
        let status: Option<String> = db
            .write(async move |tx| {
                ingest_keys::confirm_ingest_key(tx, reach.key_id).await?;
                let now = tx.env().now();
                tx.exec(sql, args![number, now]).await?;
                tx.find(STATUS, args![number]).await
            })
            .await?;
        match status {
            None => return Ok(false),
            Some(status) if status == online => return Ok(true),
            Some(_) => {}
        }
    }
    db.write(async move |tx| {
        let now = tx.tick().await?.at;
        ingest_keys::confirm_ingest_key(tx, reach.key_id).await?;
        let Some(stored) = devices::find_device_by_number(tx, number).await? else { return Ok(false) };
        let mut updated = stored.full.clone();
        mark_seen(&mut updated, now);
        tx.exec(sql, args![number, now]).await?;
        let check_at = devices::next_check_at(&updated.device, &settings);
        devices::save_device(tx, &stored, updated, ReportRowUpdate::CheckAt(check_at), ChangeOrigin::Automatic).await?;
        Ok(true)
    })
    .await
}
