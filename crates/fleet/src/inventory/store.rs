//! SQL of reports: which device it is that reports, and what is noted of it.

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
    // The device is looked up for each row and not joined: a join might begin with all devices of the tenant.
    /// What is known by something, with the status of what is live and in the reach of whoever asks: of its organization, or
    /// of none. What is older than what was read before comes with the next look.
    KNOWN = "SELECT i.number, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = i.number
            AND d.deleted_at IS NULL AND (CAST($3 AS TEXT) IS NULL OR d.organization_id IS NULL OR d.organization_id = $3))
        FROM device_identities i WHERE i.tenant_id = $1 AND i.identity = $2 AND i.number < $4
        ORDER BY i.number DESC LIMIT $5";
    UNCHANGED = "SELECT r.device, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = r.device
            AND d.deleted_at IS NULL AND (CAST($3 AS TEXT) IS NULL OR d.organization_id IS NULL OR d.organization_id = $3))
        FROM device_reports r WHERE r.tenant_id = $1 AND r.digest = $2 LIMIT $4";
    /// Times never go back, though notes of one device may be made at the same time.
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

/// Names that agents give to one device and that are remembered: each installation of an agent has its own.
const NAMES_MAX: usize = 16;
/// From one note that a name is in use to the next: what was not used for longest is forgotten first, and a day more or less does
/// not matter.
const TOUCH_MS: i64 = DAY_MS;
/// Devices in reach that share a mark: more of them tell nothing that these do not.
const CANDIDATES: usize = 100;
/// How many of those that share a mark are looked at, step by step. Nearly always it is one; but a hostname may be that of a
/// device of each customer, and all but one of them are out of reach.
const LOOKS: [usize; 4] = [CANDIDATES, 1_000, 4_000, 16_000];

/// A report as it is to be taken.
pub struct Taken {
    pub reach: IngestReach,
    pub reporter: Reporter,
    pub report: Report,
    pub facts: Facts,
    /// Of a whole inventory.
    pub digest: Option<String>,
}

/// Which device a report is of.
enum Match {
    One(i64),
    /// The oldest of them: it may be any.
    Several(i64),
    None,
}

/// Takes a report: its device is made or changed, or only noted to be alive if nothing is different.
pub async fn take(db: &Db, settings: Settings, taken: Taken) -> Result<()> {
    db.write(async move |tx| {
        let now = tx.tick().await?.at;
        let Taken { reach, reporter, report, facts, digest } = taken;
        // A body may take minutes to come, and a key that was revoked meanwhile is none.
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
        // Parts of what nobody knows are no inventory, however many come: how such a device is, is not known.
        let is_inventory = !report.partial || after.device.inventory_at.is_some();
        after.device.inventory_at = is_inventory.then_some(now);
        // What is archived is no new reference; a device that has it keeps it.
        let joined = named.filter(|(_, is_archived)| !is_archived).map(|(id, _)| id);
        after.device.organization_id = joined.or(after.device.organization_id);
        // A tag that names nobody may name somebody tomorrow: the same report is to be read again then.
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

/// Everything that a device is known by from now on.
pub fn names_of(full: &FullDevice, given: Vec<Vec<String>>) -> BTreeSet<String> {
    let marks = Marks::of(full);
    given.into_iter().chain(marks.levels()).chain([marks.aliases()]).flatten().collect()
}

/// Notes that a device has been heard of.
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

/// The key's own; else what the agent's tag names, by slug or by a name that only one has; else none. A key that is bound to an
/// organization which was archived goes on reporting for it: its devices would be in everybody's reach otherwise.
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

/// Live devices in reach that are known by something, the newest first.
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

/// The device that agents call so. Several of that name have come about by keys of several organizations: it is the one of the
/// report's own organization, else the one that was made because nobody could tell.
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
            // Where a key reaches all, those of the report's own organization may be older than all of these.
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

/// The first level that names anybody decides.
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

/// Whether it is a name that an agent gave, which stays when others come: two agents of one machine have two.
fn is_given(identity: &str) -> bool {
    identity.starts_with("a:") || identity.starts_with("d:")
}

/// Remembers by what a device is known from now on.
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

/// What is heard of a device beside a report that says something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The agent asks what it shall do.
    Alive,
    /// The same inventory as last time.
    Inventory,
}

/// A device that something was heard of.
#[derive(Clone, Debug)]
pub struct Heard {
    number: i64,
    status: String,
}

/// The device that sent this very inventory before, if there is one.
pub async fn find_unchanged(db: &Db, reach: IngestReach, digest: &str) -> Result<Option<Heard>> {
    let found: Vec<(i64, Option<String>)> =
        db.list(UNCHANGED, args![digest, reach.organization_id, rows(CANDIDATES)]).await?;
    Ok(found.into_iter().find_map(|(number, status)| Some(Heard { number, status: status? })))
}

/// Notes that whoever asks is alive, if it is known: the device that its inventory would be taken for.
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

/// The same where others are called so, too. Whoever cannot be told from the others is not noted.
async fn note_one_of_several(db: &Db, settings: Settings, reach: IngestReach, given: Vec<Vec<String>>) -> Result<()> {
    let own = reach.organization_id;
    let found = db.write(async move |tx| find_given(tx, &given, own, own).await).await?;
    let Match::One(number) = found else { return Ok(()) };
    let status: Option<String> = db.find(STATUS, args![number]).await?;
    let Some(status) = status else { return Ok(()) };
    note(db, settings, reach, Heard { number, status }, Sign::Alive).await.map(drop)
}

/// Notes it, and tells whether the device is still there. Of one that is online nothing changes. Whoever finds it silent has
/// locked the note, and is waited for.
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
