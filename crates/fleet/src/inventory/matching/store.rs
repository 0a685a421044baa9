//! SQL of matching: the devices that a report may belong to, and the evidence of each.

use std::collections::BTreeSet;

use agent_reports::{AgentReport, DeviceFacts};
use kernel::args;
use kernel::base::{Result, StringEnum, Timestamp};
use kernel::store::{FromRow, Row, Tx};
use people::organizations::OrganizationId;

use super::super::{DeviceIdentifiers, agent_identities};
use super::weak::{WeakEvidence, weak_identities};
use super::{DeviceMatch, MachineEvidence, MatchCandidate, ReportedMachine, choose_candidate};
use crate::devices::{DeviceId, Nic, Type, row_limit};
use crate::inventory::Reporter;

kernel::statements! {
    // The device is a subquery and not a join: a join might start with all devices of the tenant.
    /// Devices with an identity, newest first, below a number. The status is null unless the device is live and in reach: of
    /// the organization of the key, or of none.
    LIST_MATCHES = "SELECT i.number, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = i.number
            AND d.deleted_at IS NULL AND (CAST($3 AS TEXT) IS NULL OR d.organization_id IS NULL OR d.organization_id = $3))
        FROM device_identities i WHERE i.tenant_id = $1 AND i.identity = $2 AND i.number < $4
        ORDER BY i.number DESC LIMIT $5";
    /// The same of devices that were imported, have never reported, and are of the same organization.
    LIST_IMPORTED = "SELECT i.number, (SELECT d.status FROM devices d WHERE d.tenant_id = $1 AND d.number = i.number
            AND d.deleted_at IS NULL AND d.first_seen_at IS NULL
            AND COALESCE(d.organization_id, '') = COALESCE(CAST($3 AS TEXT), ''))
        FROM device_identities i WHERE i.tenant_id = $1 AND i.identity = $2 AND i.number < $4
        ORDER BY i.number DESC LIMIT $5";
    EVIDENCE = "SELECT number, organization_id, possible_duplicate_of, uuid, serial_number, primary_mac,
            (SELECT p.nics FROM device_parts p WHERE p.tenant_id = $1 AND p.number = devices.number),
            hostname, manufacturer, type, agent_device_id, first_seen_at
        FROM devices WHERE tenant_id = $1 AND number = $2 AND deleted_at IS NULL";
    OWNER = "SELECT organization_id, possible_duplicate_of FROM devices WHERE tenant_id = $1 AND number = $2";
}

/// Devices in reach that share an identity: more of them would not change the result.
pub const CANDIDATES_MAX: usize = 100;
/// Rows read in each step for one identity. Nearly always there is one; but every customer may have a device with the same
/// hostname, and all but one of them are out of reach.
const CANDIDATE_STEPS: [usize; 4] = [CANDIDATES_MAX, 1_000, 4_000, 16_000];

impl FromRow for MatchCandidate {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let texts: [Option<String>; 3] = [row.get(3)?, row.get(4)?, row.get(5)?];
        let nics: Option<Vec<Nic>> = match row.get::<Option<String>>(6)? {
            Some(_) => Some(row.get_json(6)?),
            None => None,
        };
        let [uuid, serial_number, primary_mac] = texts.each_ref().map(Option::as_deref);
        let nics = nics.unwrap_or_default();
        let identifiers = DeviceIdentifiers { uuid, serial_number, primary_mac, nics: &nics, ..Default::default() };
        Ok(MatchCandidate {
            number: row.get(0)?,
            organization: row.get(1)?,
            is_flagged: row.get::<Option<DeviceId>>(2)?.is_some(),
            evidence: MachineEvidence::from_identifiers(&identifiers),
            hostname: row.get(7)?,
            manufacturer: row.get(8)?,
            device_type: Type::from_stored(&row.get::<String>(9)?)?,
            has_agent: row.get::<Option<String>>(10)?.is_some(),
            is_imported: row.get::<Option<Timestamp>>(11)?.is_none(),
        })
    }
}

/// The device that a report belongs to. `own` is the organization of the report, `joined` the one that a new device of it
/// gets, `reach` that of its key.
pub async fn match_report(
    tx: &mut Tx,
    reporter: &Reporter,
    report: &AgentReport,
    facts: &DeviceFacts,
    own: Option<OrganizationId>,
    joined: Option<OrganizationId>,
) -> Result<DeviceMatch> {
    let reach = reporter.organization;
    let machine = ReportedMachine::from_facts(facts);
    let evidence = &machine.evidence;
    let mut clone_of = None;
    let given = report.device_id.as_deref().map(|device_id| agent_identities(reporter, device_id));
    for name in given.iter().flatten().flatten() {
        let numbers = list_by_agent_identity(tx, name, reach, own).await?;
        let found = load_candidates(tx, numbers).await?;
        let (others, same): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|candidate| candidate.evidence.is_another_machine(evidence));
        clone_of = clone_of.or(others.iter().map(|candidate| candidate.number).min());
        let of_own = same.iter().filter(|candidate| candidate.organization == own).count();
        if report.partial && evidence.is_empty() && same.len() > 1 && of_own != 1 {
            return Ok(DeviceMatch::Unclear);
        }
        if !same.is_empty() {
            return Ok(choose_candidate(same, own, evidence));
        }
    }
    for (level, names) in machine.identity_levels().iter().enumerate() {
        let mut found = load_by_identities(tx, names, reach).await?;
        found.retain(|candidate| !candidate.is_of_another(own) && machine.may_be(candidate, level));
        if !found.is_empty() {
            return Ok(choose_candidate(found, own, evidence));
        }
    }
    for name in machine.alias_identities() {
        let numbers = list_in_steps(tx, LIST_IMPORTED, &name, own).await?;
        let mut found = load_candidates(tx, numbers).await?;
        // Another machine may have taken over the hostname of one that has gone.
        let is_serial = name.starts_with("z:");
        found.retain(|candidate| {
            let is_of_another_kind = machine.is_scanned && machine.is_of_another_kind(candidate);
            let has_other_macs = !is_serial && candidate.evidence.has_other_macs(evidence);
            !candidate.evidence.contradicts(evidence) && !has_other_macs && !is_of_another_kind
        });
        if !found.is_empty() {
            return Ok(choose_candidate(found, own, evidence));
        }
    }
    let weak = match_by_weak_evidence(tx, &machine, report, [own, joined], reach).await?;
    Ok(weak.or(clone_of.map(DeviceMatch::Duplicate)).unwrap_or(DeviceMatch::None))
}

/// The device that a machine is by weak evidence alone, if there is one.
async fn match_by_weak_evidence(
    tx: &mut Tx,
    machine: &ReportedMachine<'_>,
    report: &AgentReport,
    homes: [Option<OrganizationId>; 2],
    reach: Option<OrganizationId>,
) -> Result<Option<DeviceMatch>> {
    let [own, _] = homes;
    for (kind, names) in weak_identities(machine, report.device_id.is_some()) {
        let mut found = load_by_identities(tx, &names, reach).await?;
        // Another customer has a printer of the same name, and devices of nobody may be anybody's.
        found.retain(|candidate| {
            let is_at_home = homes.contains(&candidate.organization);
            !candidate.is_of_another(own)
                && !candidate.evidence.contradicts(&machine.evidence)
                && (kind == WeakEvidence::Mac || is_at_home)
        });
        let is_unclear = report.partial && machine.may_have_agent(&found, kind);
        found.retain(|candidate| machine.may_be_by_weak_evidence(candidate, kind));
        if found.iter().any(|candidate| machine.has_name_of(candidate) == Some(true)) {
            found.retain(|candidate| machine.has_name_of(candidate) == Some(true));
        }
        if !found.is_empty() {
            return Ok(Some(choose_candidate(found, own, &machine.evidence)));
        }
        if is_unclear {
            return Ok(Some(DeviceMatch::Unclear));
        }
    }
    Ok(None)
}

/// Live devices in reach that have one of the identities.
async fn load_by_identities(
    tx: &mut Tx,
    names: &[String],
    reach: Option<OrganizationId>,
) -> Result<Vec<MatchCandidate>> {
    let mut numbers = BTreeSet::new();
    for name in names {
        numbers.extend(list_by_identity(tx, name, reach).await?);
    }
    load_candidates(tx, numbers.into_iter().collect()).await
}

async fn load_candidates(tx: &mut Tx, numbers: Vec<i64>) -> Result<Vec<MatchCandidate>> {
    let mut candidates = Vec::with_capacity(numbers.len());
    for number in numbers {
        candidates.extend(tx.find(EVIDENCE, args![number]).await?);
    }
    Ok(candidates)
}

/// Live devices in reach with an identity, newest first.
pub async fn list_by_identity(tx: &mut Tx, name: &str, reach: Option<OrganizationId>) -> Result<Vec<i64>> {
    list_in_steps(tx, LIST_MATCHES, name, reach).await
}

async fn list_in_steps(
    tx: &mut Tx,
    sql: &'static str,
    name: &str,
    organization: Option<OrganizationId>,
) -> Result<Vec<i64>> {
    let (mut numbers, mut before) = (Vec::new(), i64::MAX);
    for step in CANDIDATE_STEPS {
        let found: Vec<(i64, Option<String>)> =
            tx.list(sql, args![name, organization, before, row_limit(step)]).await?;
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

/// Those of the report's own organization are among them, even if there are many of others that are newer.
async fn list_by_agent_identity(
    tx: &mut Tx,
    name: &str,
    reach: Option<OrganizationId>,
    own: Option<OrganizationId>,
) -> Result<Vec<i64>> {
    let mut numbers = list_by_identity(tx, name, reach).await?;
    if own != reach && numbers.len() == CANDIDATES_MAX {
        numbers.extend(list_by_identity(tx, name, own).await?);
        numbers.sort_unstable();
        numbers.dedup();
    }
    Ok(numbers)
}

/// The device that a sign of life without any evidence belongs to, if that is clear: the only one with an agent's identity,
/// the only one of the organization, or where none is of it the newest that was created as a duplicate.
pub async fn match_contact(tx: &mut Tx, given: &[Vec<String>], own: Option<OrganizationId>) -> Result<Option<i64>> {
    for name in given.iter().flatten() {
        let numbers = list_by_identity(tx, name, own).await?;
        let (mut of_own, mut flagged) = (Vec::new(), None);
        for number in &numbers {
            let found: Option<(Option<OrganizationId>, Option<DeviceId>)> = tx.find(OWNER, args![number]).await?;
            let Some((organization, duplicate_of)) = found else { continue };
            of_own.extend((organization == own).then_some(*number));
            flagged = flagged.or(duplicate_of.map(|_| *number));
        }
        match (numbers.as_slice(), of_own.as_slice()) {
            ([], _) => {}
            ([one], _) | (_, [one]) => return Ok(Some(*one)),
            (_, []) => return Ok(flagged),
            _ => return Ok(None),
        }
    }
    Ok(None)
}
