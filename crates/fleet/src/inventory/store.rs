//! SQL of reports: finding the device of a report, and saving the report.

use std::collections::{BTreeMap, BTreeSet};

use agent_reports::{AgentReport, DeviceFacts};
use kernel::args;
use kernel::base::{Code, DAY_MS, Error, Result, StringEnum, Timestamp};
use kernel::store::{Db, Tx, Value};
use people::organizations::{OrganizationId, fold_name};

use super::matching::store::{CANDIDATES_MAX, LIST_MATCHES, match_contact, match_report};
use super::matching::{DeviceMatch, ReportedMachine};
use super::scans::{apply_facts, given_identities};
use super::{DeviceIdentifiers, Reporter, agent_identities, blank_device};
use crate::devices::{
    self, ChangeOrigin, Device, DeviceId, DeviceSettings, DeviceStatus, FullDevice, ReportRowUpdate, row_limit,
};
use crate::ingest_keys::{self, IngestKeyId, IngestReach};

kernel::statements! {
    UNCHANGED = "SELECT r.device, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = r.device
            AND d.deleted_at IS NULL AND (CAST($3 AS TEXT) IS NULL OR d.organization_id IS NULL OR d.organization_id = $3))
        FROM device_reports r WHERE r.tenant_id = $1 AND r.digest = $2 LIMIT $4";
    /// Times never go back, though several reports of one device may be saved at once.
    UPDATE_LAST_SEEN = "UPDATE device_reports SET last_seen_at = CASE WHEN last_seen_at > $3 THEN last_seen_at ELSE $3 END,
            ingest_key_id = CASE WHEN ingest_key_id <> $4 THEN '*' ELSE ingest_key_id END
        WHERE tenant_id = $1 AND device = $2";
    UPDATE_LAST_INVENTORY = "UPDATE device_reports SET last_seen_at = CASE WHEN last_seen_at > $3 THEN last_seen_at ELSE $3 END,
            inventory_at = CASE WHEN inventory_at > $3 THEN inventory_at ELSE $3 END,
            ingest_key_id = CASE WHEN ingest_key_id <> $4 THEN '*' ELSE ingest_key_id END
        WHERE tenant_id = $1 AND device = $2";
    SET_KEY = "UPDATE device_reports SET ingest_key_id = $3 WHERE tenant_id = $1 AND device = $2";
    /// Another key than the only one so far has reported the device.
    ADD_KEY = "UPDATE device_reports SET ingest_key_id = '*' WHERE tenant_id = $1 AND device = $2 AND ingest_key_id <> $3";
    OF_KEY = "SELECT d.id, r.device FROM device_reports r JOIN devices d ON d.tenant_id = r.tenant_id AND d.number = r.device
        WHERE r.tenant_id = $1 AND r.ingest_key_id = $2 AND r.device > $3 AND r.device <= $4 AND d.deleted_at IS NULL
        ORDER BY r.device LIMIT $5";
    LAST_OF_KEY = "SELECT COALESCE(MAX(device), 0) FROM device_reports WHERE tenant_id = $1 AND ingest_key_id = $2";
    COUNT_DEVICES = "SELECT COALESCE(CAST(SUM(devices) AS BIGINT), 0) FROM device_counts
        WHERE tenant_id = $1 AND organization_id = '*' AND dimension = 'status'";
    STATUS = "SELECT status FROM devices WHERE tenant_id = $1 AND number = $2 AND deleted_at IS NULL";
    IDENTITIES = "SELECT identity, added_at FROM device_identities /* INDEXED BY device_identities_by_device */
        WHERE tenant_id = $1 AND number = $2";
    INSERT_IDENTITY = "INSERT INTO device_identities (tenant_id, identity, number, added_at) VALUES ($1, $2, $3, $4)";
    TOUCH_IDENTITY = "UPDATE device_identities SET added_at = $4 WHERE tenant_id = $1 AND identity = $2 AND number = $3";
    DELETE_IDENTITY = "DELETE FROM device_identities WHERE tenant_id = $1 AND identity = $2 AND number = $3";
    BY_SLUG = "SELECT id, archived FROM organizations WHERE tenant_id = $1 AND slug = $2";
    BY_NAME = "SELECT id, archived FROM organizations /* INDEXED BY organizations_by_folded_name */
        WHERE tenant_id = $1 AND folded_name = $2 LIMIT 10";
    /// The same for organizations that a node of an older version saved.
    BY_EXACT_NAME = "SELECT id, archived FROM organizations /* INDEXED BY organizations_by_name */
        WHERE tenant_id = $1 AND name = $2 LIMIT 10";
}

/// In the place of a key: a device was reported with several.
pub const SEVERAL_KEYS: &str = "*";
/// Agent identities kept for one device: each installation of an agent has its own.
const AGENT_IDENTITIES_MAX: usize = 16;
/// Serial numbers of a stack that are kept while they are not told: with two forms of the manufacturer, more than it has
/// members.
const MEMBER_IDENTITIES_MAX: usize = 100;
/// In the place of the time: an operator has merged two devices, and no report takes the identity away. Where no agent runs,
/// nothing else tells that what is seen at two addresses is one device.
pub const MERGED_AT_MS: i64 = 0;
/// The time of use of an identity is updated at most this often. The least recently used one is dropped first, and a day is
/// precise enough for that.
const TOUCH_INTERVAL_MS: i64 = DAY_MS;
/// A parsed report with its sender.
pub struct IncomingReport {
    pub reach: IngestReach,
    pub reporter: Reporter,
    pub report: AgentReport,
    pub facts: DeviceFacts,
    /// The digest of a full inventory.
    pub digest: Option<String>,
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
        let given = given_identities(&reporter, &report, &facts);
        // An archived organization gets no new devices; a device that belongs to it stays.
        let joined = named.filter(|(_, is_archived)| !is_archived).map(|(id, _)| id);
        let found = match_report(tx, &reporter, &report, &facts, organization, joined).await?;
        let mut updated = blank_device(now);
        let stored = match found {
            DeviceMatch::One(number) => devices::find_device_by_number(tx, number).await?,
            DeviceMatch::Duplicate(of) => {
                let of = devices::find_device_by_number(tx, of).await?;
                updated.device.possible_duplicate_of = of.map(|stored| stored.full.device.id);
                None
            }
            DeviceMatch::Unclear => return Ok(()),
            DeviceMatch::None => None,
        };
        if let Some(stored) = &stored {
            updated = stored.full.clone();
        } else if report.partial && ReportedMachine::from_facts(&facts).is_passing() {
            return Ok(());
        }
        let (is_scanned, members) = (facts.scan.is_some(), StoredMembers::from_facts(&facts));
        apply_facts(&report, facts, &mut updated);
        mark_seen(&mut updated, now);
        if is_inventory(&report, is_scanned, &updated.device) {
            updated.device.inventory_at = Some(now);
        }
        updated.device.organization_id = joined.or(updated.device.organization_id);
        // A tag without an organization may get one tomorrow: without a digest the same report is parsed again then.
        let is_there = organization.is_some() && updated.device.organization_id == organization;
        let digest = digest.filter(|_| report.tag.is_none() || is_there);
        let names = identities_of(&updated, given);
        let check_at = devices::next_check_at(&updated.device, &settings);
        let report_update = if is_scanned && updated.device.agent.device_id.is_some() {
            ReportRowUpdate::Scan { check_at }
        } else {
            ReportRowUpdate::Report { digest, check_at }
        };
        let number = if let Some(stored) = stored {
            devices::save_device(tx, &stored, updated, report_update, ChangeOrigin::Automatic).await?;
            tx.defer_exec(ADD_KEY, vec![stored.number.into(), reach.key_id.into()]).await?;
            stored.number
        } else {
            check_device_limit(tx, &settings).await?;
            let created = devices::create_device(tx, updated, report_update, ChangeOrigin::Automatic).await?;
            tx.defer_exec(SET_KEY, vec![created.number.into(), reach.key_id.into()]).await?;
            created.number
        };
        save_identities(tx, number, names, members, now).await
    })
    .await
}

/// Percents of the limit from which each new device is worth a warning.
const WARNED_PERCENTS: [i64; 3] = [90, 95, 99];

/// Refuses a new device beyond the tenant's limit, and warns the operator before it is reached.
pub async fn check_device_limit(tx: &mut Tx, settings: &DeviceSettings) -> Result<()> {
    let (count, limit): (i64, i64) = (tx.get_one(COUNT_DEVICES, args![]).await?, settings.devices_max);
    if count >= limit {
        let detail = format!("This tenant has {count} devices, and at most {limit} are allowed (--devices-max).");
        return Err(Error::new(Code::LimitReached, detail));
    }
    if let Some(percent) = WARNED_PERCENTS.into_iter().find(|percent| count + 1 == limit * percent / 100) {
        tracing::warn!(
            tenant = tx.tenant_id().map(|id| id.to_string()),
            percent,
            limit,
            "a tenant is about to reach its limit of devices"
        );
    }
    Ok(())
}

/// Devices deleted in one transaction.
const DELETE_ROWS: i64 = 20;

/// Deletes the devices that one ingest key created and no other has reported. Returns how many. A key that still reports
/// creates others meanwhile: they stay, so that this ends.
pub async fn delete_devices_of_key(db: &Db, key: IngestKeyId) -> Result<u64> {
    let last: i64 = db.get_one(LAST_OF_KEY, args![key]).await?;
    let (mut deleted, mut after) = (0, 0_i64);
    loop {
        let found: Vec<(DeviceId, i64)> = db
            .write(async move |tx| {
                let found: Vec<(DeviceId, i64)> = tx.list(OF_KEY, args![key, after, last, DELETE_ROWS]).await?;
                for (id, _) in &found {
                    devices::delete_device(tx, *id, ChangeOrigin::Deliberate).await?;
                }
                Ok(found)
            })
            .await?;
        let batch = found.len() as u64;
        after = found.last().map_or(after, |(_, number)| *number);
        deleted += batch;
        if batch == 0 {
            return Ok(deleted);
        }
        db.yield_write_lock().await;
    }
}

/// All identities of a device.
pub fn identities_of(full: &FullDevice, given: Vec<Vec<String>>) -> BTreeSet<String> {
    let identifiers = DeviceIdentifiers::from_device(full);
    let weak = [identifiers.alias_identities(), identifiers.mac_identities()];
    given.into_iter().chain(identifiers.identity_levels()).chain(weak).flatten().collect()
}

/// Sets the device online and its times.
fn mark_seen(full: &mut FullDevice, now: Timestamp) {
    full.device.status = DeviceStatus::Online;
    full.device.last_seen_at = Some(now);
    full.device.first_seen_at.get_or_insert(now);
}

/// Whether a report counts as an inventory of the device. Partial reports of a new device do not, however many arrive: its
/// health stays unknown. A discovery never does, nor does a scan of a machine with an agent: both would hide that the agent
/// reports no more.
fn is_inventory(report: &AgentReport, is_scanned: bool, device: &Device) -> bool {
    if is_scanned {
        return !report.partial && device.agent.device_id.is_none();
    }
    !report.partial || device.inventory_at.is_some()
}

/// An organization, and whether it is archived.
type TagOrganization = (OrganizationId, bool);

/// The organization of the key; else the one that the agent's tag names, by slug or by a unique name, ignoring case; else
/// none. A key bound
/// to an archived organization keeps reporting for it: otherwise its devices would be in reach of every key.
async fn resolve_organization(tx: &mut Tx, reporter: &Reporter, tag: Option<&str>) -> Result<Option<TagOrganization>> {
    if let Some(own) = reporter.organization {
        return Ok(Some((own, false)));
    }
    let Some(tag) = tag else { return Ok(None) };
    let slug = tag.to_lowercase();
    let by_slug: Option<TagOrganization> = tx.find(BY_SLUG, args![slug]).await?;
    // A slug to the letter is meant even if it is archived; in another case a live organization of that name is.
    if by_slug.is_some_and(|(_, is_archived)| !is_archived || slug == tag) {
        return Ok(by_slug);
    }
    let mut named: Vec<TagOrganization> = tx.list(BY_NAME, args![fold_name(tag)]).await?;
    if named.is_empty() {
        named = tx.list(BY_EXACT_NAME, args![tag]).await?;
    }
    let (archived, live): (Vec<TagOrganization>, Vec<TagOrganization>) =
        named.into_iter().partition(|(_, is_archived)| *is_archived);
    Ok(match (live.as_slice(), by_slug, archived.as_slice()) {
        ([one], ..) | ([], None, [one]) => Some(*one),
        ([], by_slug, _) => by_slug,
        _ => None,
    })
}

/// Whether an agent gave this identity. Such identities stay when others are added: two agents on one machine give two.
pub fn is_agent_identity(identity: &str) -> bool {
    identity.starts_with("a:") || identity.starts_with("d:")
}

/// Whether it is a serial number with its manufacturer, of the device or of a member of a stack.
fn is_serial_identity(identity: &str) -> bool {
    identity.starts_with("n:")
}

/// What becomes of the stored serial numbers of a stack's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredMembers {
    /// The members are not told: a discovery, or a row of a file.
    Kept,
    Replaced,
}

impl StoredMembers {
    /// Only an inventory of a stack tells its members.
    fn from_facts(facts: &DeviceFacts) -> Self {
        match &facts.scan {
            Some(scan) if scan.chassis_serials.is_empty() => Self::Kept,
            _ => Self::Replaced,
        }
    }
}

/// Replaces the identities of a device by these; agent identities stay up to their limit.
pub async fn save_identities(
    tx: &mut Tx,
    number: i64,
    identities: BTreeSet<String>,
    members: StoredMembers,
    now: Timestamp,
) -> Result<()> {
    let stored: Vec<(String, Timestamp)> = tx.list(IDENTITIES, args![number]).await?;
    let mut stored: BTreeMap<String, Timestamp> = stored.into_iter().collect();
    let added: Vec<&String> = identities.iter().filter(|name| !stored.contains_key(*name)).collect();
    let is_due = |name: &&String| {
        is_agent_identity(name) && stored.get(*name).is_some_and(|at| at.plus_ms(TOUCH_INTERVAL_MS) <= now)
    };
    let used: Vec<&String> = identities.iter().filter(is_due).collect();
    let serials = stored.keys().filter(|name| is_serial_identity(name)).count();
    let are_kept = members == StoredMembers::Kept && serials <= MEMBER_IDENTITIES_MAX;
    let is_member = |name: &str| are_kept && is_serial_identity(name);
    let stays = |name: &str, at: Timestamp| {
        is_agent_identity(name) || is_member(name) || at.as_millis() == MERGED_AT_MS || identities.contains(name)
    };
    let mut removed: Vec<String> =
        stored.iter().filter(|(name, at)| !stays(name, **at)).map(|(name, _)| name.clone()).collect();
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
    let Some(number) = db.write(async move |tx| match_contact(tx, &given, own).await).await? else { return Ok(()) };
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
                tx.exec(sql, args![number, now, reach.key_id]).await?;
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
        tx.exec(sql, args![number, now, reach.key_id]).await?;
        let check_at = devices::next_check_at(&updated.device, &settings);
        devices::save_device(tx, &stored, updated, ReportRowUpdate::CheckAt(check_at), ChangeOrigin::Automatic).await?;
        Ok(true)
    })
    .await
}
