//! SQL of reports: finding the device of a report, and saving the report.

use std::collections::{BTreeMap, BTreeSet};

use kernel::args;
use kernel::base::{DAY_MS, Result, Timestamp, Word};
use kernel::store::{Db, Tx, Value};

use super::{Marks, Reporter, apply, given_names, unknown};
use crate::devices::{self, By, DeviceId, FullDevice, Noted, Settings, Status};
use crate::ingest_keys::{self, IngestReach};
use agent_reports::{Facts, Report};
use people::organizations::OrganizationId;

kernel::statements! {
    // The device is a subquery and not a join: a join might start with all devices of the tenant.
    /// Devices with an identity, newest first, below a number. The status is null unless the device is live and in reach: of
    /// the organization of the key, or of none.
    KNOWN = "SELECT i.number, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = i.number
            AND d.deleted_at IS NULL AND (CAST($3 AS TEXT) IS NULL OR d.organization_id IS NULL OR d.organization_id = $3))
        FROM device_identities i WHERE i.tenant_id = $1 AND i.identity = $2 AND i.number < $4
        ORDER BY i.number DESC LIMIT $5";
    UNCHANGED = "SELECT r.device, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = r.device
            AND d.deleted_at IS NULL AND (CAST($3 AS TEXT) IS NULL OR d.organization_id IS NULL OR d.organization_id = $3))
        FROM device_reports r WHERE r.tenant_id = $1 AND r.digest = $2 LIMIT $4";
    /// Times never go back, though several reports of one device may be saved at once.
    NOTE_SEEN = "UPDATE device_reports SET last_seen_at = CASE WHEN last_seen_at > $3 THEN last_seen_at ELSE $3 END
        WHERE tenant_id = $1 AND device = $2";
    NOTE_INVENTORY = "UPDATE device_reports SET last_seen_at = CASE WHEN last_seen_at > $3 THEN last_seen_at ELSE $3 END,
            inventory_at = CASE WHEN inventory_at > $3 THEN inventory_at ELSE $3 END
        WHERE tenant_id = $1 AND device = $2";
    STATUS = "SELECT status FROM devices WHERE tenant_id = $1 AND number = $2 AND deleted_at IS NULL";
    IDENTITIES = "SELECT identity, added_at FROM device_identities /* INDEXED BY device_identities_by_device */
        WHERE tenant_id = $1 AND number = $2";
    WHOSE = "SELECT organization_id, possible_duplicate_of FROM devices WHERE tenant_id = $1 AND number = $2";
    INSERT_IDENTITY = "INSERT INTO device_identities (tenant_id, identity, number, added_at) VALUES ($1, $2, $3, $4)";
    TOUCH_IDENTITY = "UPDATE device_identities SET added_at = $4 WHERE tenant_id = $1 AND identity = $2 AND number = $3";
    DELETE_IDENTITY = "DELETE FROM device_identities WHERE tenant_id = $1 AND identity = $2 AND number = $3";
    BY_SLUG = "SELECT id, archived FROM organizations WHERE tenant_id = $1 AND slug = $2";
    BY_NAME = "SELECT id, archived FROM organizations /* INDEXED BY organizations_by_name */
        WHERE tenant_id = $1 AND name = $2 LIMIT 10";
}

/// Agent identities kept for one device: each installation of an agent has its own.
const NAMES_MAX: usize = 16;
/// The time of use of an identity is updated at most this often. The least recently used one is dropped first, and a day is
/// precise enough for that.
const TOUCH_MS: i64 = DAY_MS;
/// Devices in reach that share an identity: more of them would not change the result.
const CANDIDATES: usize = 100;
/// Rows read in each step for one identity. Nearly always there is one; but every customer may have a device with the same
/// hostname, and all but one of them are out of reach.
const LOOKS: [usize; 4] = [CANDIDATES, 1_000, 4_000, 16_000];

/// A parsed report with its sender.
pub struct Taken {
    pub reach: IngestReach,
    pub reporter: Reporter,
    pub report: Report,
    pub facts: Facts,
    /// The digest of a full inventory.
    pub digest: Option<String>,
}

/// The device that identities belong to.
enum Match {
    One(i64),
    /// Several devices match; this is the oldest.
    Several(i64),
    None,
}

/// Saves a report: creates or changes its device, or only updates the report row if nothing differs.
pub async fn take(db: &Db, settings: Settings, taken: Taken) -> Result<()> {
    db.write(async move |tx| {
        let now = tx.tick().await?.at;
        let Taken { reach, reporter, report, facts, digest } = taken;
        // A body may take minutes to arrive; a key that was revoked meanwhile is refused.
        ingest_keys::confirm(tx, reach.key_id).await?;
        let named = organization(tx, &reporter, report.tag.as_deref()).await?;
        let organization = named.map(|(id, _)| id);
        let given = given_names(&reporter, &report.device_id);
        let found = match find_given(tx, &given, reporter.organization, organization).await? {
            Match::None => find_match(tx, &Marks::told(&facts).levels(), reporter.organization).await?,
            found => found,
        };
        let mut after = unknown(now);
        let kept = match found {
            Match::One(number) => devices::find_by_number(tx, number).await?,
            Match::Several(first) => {
                let first = devices::find_by_number(tx, first).await?;
                after.device.possible_duplicate_of = first.map(|kept| kept.full.device.id);
                None
            }
            Match::None => None,
        };
        if let Some(kept) = &kept {
            after = kept.full.clone();
        }
        apply(&report, facts, &mut after);
        hear(&mut after, now);
        // Partial reports of a new device are no inventory, however many arrive: its health stays unknown.
        let is_inventory = !report.partial || after.device.inventory_at.is_some();
        after.device.inventory_at = is_inventory.then_some(now);
        // An archived organization gets no new devices; a device that belongs to it stays.
        let joined = named.filter(|(_, is_archived)| !is_archived).map(|(id, _)| id);
        after.device.organization_id = joined.or(after.device.organization_id);
        // A tag without an organization may get one tomorrow: without a digest the same report is parsed again then.
        let is_there = organization.is_some() && after.device.organization_id == organization;
        let digest = digest.filter(|_| report.tag.is_none() || is_there);
        let names = names_of(&after, given);
        let noted = Noted::Report { digest, check_at: check_at(&after, settings) };
        let number = match kept {
            Some(kept) => {
                devices::save(tx, &kept, after, noted, By::Itself).await?;
                kept.number
            }
            None => devices::create(tx, after, noted, By::Itself).await?.number,
        };
        remember(tx, number, names, now).await
    })
    .await
}

/// All identities of a device.
pub fn names_of(full: &FullDevice, given: Vec<Vec<String>>) -> BTreeSet<String> {
    let marks = Marks::of(full);
    given.into_iter().chain(marks.levels()).chain([marks.aliases()]).flatten().collect()
}

/// Sets the device online and its times.
fn hear(full: &mut FullDevice, now: Timestamp) {
    full.device.status = Status::Online;
    full.device.last_seen_at = Some(now);
    full.device.first_seen_at.get_or_insert(now);
}

fn check_at(full: &FullDevice, settings: Settings) -> Option<Timestamp> {
    let device = &full.device;
    devices::next_check(device.last_seen_at, device.status, &device.warranty, &settings)
}

/// An organization, and whether it is archived.
type Named = (OrganizationId, bool);

/// The organization of the key; else the one that the agent's tag names, by slug or by a unique name; else none. A key bound
/// to an archived organization keeps reporting for it: otherwise its devices would be in reach of every key.
async fn organization(tx: &mut Tx, reporter: &Reporter, tag: Option<&str>) -> Result<Option<Named>> {
    if let Some(own) = reporter.organization {
        return Ok(Some((own, false)));
    }
    let Some(tag) = tag else { return Ok(None) };
    if let Some(named) = tx.find(BY_SLUG, args![tag]).await? {
        return Ok(Some(named));
    }
    let named: Vec<Named> = tx.list(BY_NAME, args![tag]).await?;
    let (archived, live): (Vec<Named>, Vec<Named>) = named.into_iter().partition(|(_, is_archived)| *is_archived);
    Ok(match (live.as_slice(), archived.as_slice()) {
        ([one], _) | ([], [one]) => Some(*one),
        _ => None,
    })
}

/// Live devices in reach with an identity, newest first.
pub async fn known(tx: &mut Tx, name: &str, reach: Option<OrganizationId>) -> Result<Vec<i64>> {
    let (mut numbers, mut before) = (Vec::new(), i64::MAX);
    for step in LOOKS {
        let found: Vec<(i64, Option<String>)> = tx.list(KNOWN, args![name, reach, before, rows(step)]).await?;
        let last = found.last().filter(|_| found.len() == step).map(|(number, _)| *number);
        numbers.extend(found.into_iter().filter(|(_, status)| status.is_some()).map(|(number, _)| number));
        match last {
            Some(last) if numbers.len() < CANDIDATES => before = last,
            _ => break,
        }
    }
    numbers.truncate(CANDIDATES);
    Ok(numbers)
}

fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The device with one of these agent identities. Keys of several organizations can lead to several such devices: then the
/// one of the report's own organization matches, else the one that was created as a possible duplicate.
async fn find_given(
    tx: &mut Tx,
    given: &[Vec<String>],
    reach: Option<OrganizationId>,
    own: Option<OrganizationId>,
) -> Result<Match> {
    for name in given.iter().flatten() {
        let mut numbers = known(tx, name, reach).await?;
        let oldest = match numbers.as_slice() {
            [] => continue,
            [one] => return Ok(Match::One(*one)),
            [_, .., oldest] => *oldest,
        };
        if own != reach {
            // A key without an organization reaches all devices; those of the report's organization may be older than these.
            numbers.extend(known(tx, name, own).await?);
        }
        let mut flagged = None;
        for number in &numbers {
            let found: Option<(Option<OrganizationId>, Option<DeviceId>)> = tx.find(WHOSE, args![number]).await?;
            let Some((of, duplicate)) = found else { continue };
            if own.is_some() && of == own {
                return Ok(Match::One(*number));
            }
            flagged = flagged.or(duplicate.map(|_| *number));
        }
        return Ok(flagged.map_or(Match::Several(oldest), Match::One));
    }
    Ok(Match::None)
}

/// The first level with any match decides.
async fn find_match(tx: &mut Tx, levels: &[Vec<String>], reach: Option<OrganizationId>) -> Result<Match> {
    for level in levels {
        let mut numbers = BTreeSet::new();
        for name in level {
            numbers.extend(known(tx, name, reach).await?);
        }
        match (numbers.len(), numbers.first()) {
            (_, None) => {}
            (1, Some(number)) => return Ok(Match::One(*number)),
            (_, Some(first)) => return Ok(Match::Several(*first)),
        }
    }
    Ok(Match::None)
}

/// Whether an agent gave this identity. Such identities stay when others are added: two agents on one machine give two.
fn is_given(identity: &str) -> bool {
    identity.starts_with("a:") || identity.starts_with("d:")
}

/// Replaces the identities of a device by the wanted ones; agent identities stay up to their limit.
pub async fn remember(tx: &mut Tx, number: i64, wanted: BTreeSet<String>, now: Timestamp) -> Result<()> {
    let known: Vec<(String, Timestamp)> = tx.list(IDENTITIES, args![number]).await?;
    let mut known: BTreeMap<String, Timestamp> = known.into_iter().collect();
    let came: Vec<&String> = wanted.iter().filter(|name| !known.contains_key(*name)).collect();
    let is_due = |name: &&String| is_given(name) && known.get(*name).is_some_and(|at| at.plus(TOUCH_MS) <= now);
    let used: Vec<&String> = wanted.iter().filter(is_due).collect();
    let mut gone: Vec<String> =
        known.keys().filter(|name| !is_given(name) && !wanted.contains(*name)).cloned().collect();
    known.extend(came.iter().map(|name| ((*name).clone(), now)));
    let mut given: Vec<(&Timestamp, &String)> =
        known.iter().filter(|(name, _)| is_given(name)).map(|(n, at)| (at, n)).collect();
    given.sort_by_key(|(at, name)| (wanted.contains(*name), **at));
    let surplus = given.len().saturating_sub(NAMES_MAX);
    gone.extend(given.into_iter().take(surplus).map(|(_, name)| name.clone()));
    for name in &gone {
        tx.later(DELETE_IDENTITY, vec![name.as_str().into(), number.into()]).await?;
    }
    for name in came {
        tx.later(INSERT_IDENTITY, vec![name.as_str().into(), number.into(), Value::from(now)]).await?;
    }
    for name in used {
        tx.later(TOUCH_IDENTITY, vec![name.as_str().into(), number.into(), Value::from(now)]).await?;
    }
    Ok(())
}

/// A message of a device without news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The agent asks for its tasks.
    Alive,
    /// The same inventory as last time.
    Inventory,
}

/// A device that sent a sign of life, with its stored status.
#[derive(Clone, Debug)]
pub struct Heard {
    number: i64,
    status: String,
}

/// The device whose last full inventory has this digest.
pub async fn find_unchanged(db: &Db, reach: IngestReach, digest: &str) -> Result<Option<Heard>> {
    let found: Vec<(i64, Option<String>)> =
        db.list(UNCHANGED, args![digest, reach.organization_id, rows(CANDIDATES)]).await?;
    Ok(found.into_iter().find_map(|(number, status)| Some(Heard { number, status: status? })))
}

/// Records a contact of the device that an inventory of this agent would match, if there is one.
pub async fn note_alive(
    db: &Db,
    settings: Settings,
    reach: IngestReach,
    reporter: &Reporter,
    device_id: &str,
) -> Result<()> {
    let (given, own) = (given_names(reporter, device_id), reporter.organization);
    for name in given.iter().flatten() {
        let found: Vec<(i64, Option<String>)> = db.list(KNOWN, args![name, own, i64::MAX, rows(CANDIDATES)]).await?;
        let is_all = found.len() < CANDIDATES;
        let mut live = found.into_iter().filter_map(|(number, status)| Some(Heard { number, status: status? }));
        match (live.next(), live.next()) {
            (None, _) if is_all => {}
            (Some(heard), None) if is_all => return note(db, settings, reach, heard, Sign::Alive).await.map(drop),
            _ => return note_one_of_several(db, settings, reach, given).await,
        }
    }
    Ok(())
}

/// The same where several devices share the identity. Without a clear match nothing is recorded.
async fn note_one_of_several(db: &Db, settings: Settings, reach: IngestReach, given: Vec<Vec<String>>) -> Result<()> {
    let own = reach.organization_id;
    let found = db.write(async move |tx| find_given(tx, &given, own, own).await).await?;
    let Match::One(number) = found else { return Ok(()) };
    let status: Option<String> = db.find(STATUS, args![number]).await?;
    let Some(status) = status else { return Ok(()) };
    note(db, settings, reach, Heard { number, status }, Sign::Alive).await.map(drop)
}

/// Records a sign of life and returns whether the device still exists. An online device only gets new times in its report
/// row. A check that finds the device silent holds the lock of that row, and this write waits for it.
pub async fn note(db: &Db, settings: Settings, reach: IngestReach, heard: Heard, sign: Sign) -> Result<bool> {
    let Heard { number, status } = heard;
    let sql = match sign {
        Sign::Alive => NOTE_SEEN,
        Sign::Inventory => NOTE_INVENTORY,
    };
    let online = Status::Online.as_str();
    if status == online {
        let status: Option<String> = db
            .write(async move |tx| {
                ingest_keys::confirm(tx, reach.key_id).await?;
                let now = tx.world().now();
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
        ingest_keys::confirm(tx, reach.key_id).await?;
        let Some(kept) = devices::find_by_number(tx, number).await? else { return Ok(false) };
        let mut after = kept.full.clone();
        hear(&mut after, now);
        tx.exec(sql, args![number, now]).await?;
        let check_at = check_at(&after, settings);
        devices::save(tx, &kept, after, Noted::CheckAt(check_at), By::Itself).await?;
        Ok(true)
    })
    .await
}
