//! SQL of merging two records of one machine.

use feature_kit::custom_fields::check_custom_fields;
use kernel::args;
use kernel::audit::{self, NewAuditEntry};
use kernel::base::{Error, Result};
use kernel::store::{Db, Tx};

use super::super::store::{
    DELETE_IDENTITY, IDENTITIES, INSERT_IDENTITY, MERGED_AT_MS, SET_KEY, SEVERAL_KEYS, TOUCH_IDENTITY,
    is_agent_identity,
};
use crate::devices::actions::store::TAGS_MAX;
use crate::devices::{
    self, ChangeOrigin, Cpu, Device, DeviceId, DeviceParts, DevicePatch, FullDevice, Os, ReportRowUpdate,
};

/// Merges a duplicate into a device and deletes the duplicate. Its identities move, so its reports match the kept device.
pub async fn merge_duplicate(db: &Db, keep: DeviceId, duplicate: DeviceId) -> Result<Device> {
    if keep == duplicate {
        return Err(Error::conflict("A device cannot be merged with itself."));
    }
    db.write(async move |tx| {
        let now = tx.tick().await?.at;
        for id in [keep, duplicate] {
            devices::lock_device(tx, id).await?;
        }
        let stored = devices::find_device(tx, keep).await?.ok_or_else(|| missing_device_error(keep))?;
        let other = devices::find_device(tx, duplicate).await?.ok_or_else(|| missing_device_error(duplicate))?;
        let mut merged = stored.full.clone();
        merge_records(&mut merged, &other.full);
        if stored.full.device.agent.device_id.is_none() {
            keep_identities(tx, stored.number).await?;
        }
        let is_kept = other.full.device.agent.device_id.is_none();
        move_identities(tx, other.number, stored.number, is_kept).await?;
        devices::delete_device(tx, duplicate, ChangeOrigin::Deliberate).await?;
        let report_update = ReportRowUpdate::Report { digest: None, check_at: Some(now) };
        let device = devices::save_device(tx, &stored, merged, report_update, ChangeOrigin::Deliberate).await?;
        tx.defer_exec(SET_KEY, vec![stored.number.into(), SEVERAL_KEYS.into()]).await?;
        let mut entry = audit::AuditChanges::default();
        entry.add_described("duplicate", &serde_json::Value::Null, &duplicate.to_string().into());
        audit::record_entry(tx, NewAuditEntry::new("device.merge", "device", keep).with_changes(entry)).await?;
        Ok(device)
    })
    .await
}

fn missing_device_error(id: DeviceId) -> Error {
    Error::conflict(format!("There is no device {id} in this tenant."))
}

/// Reported fields come from the record with the later inventory, and from the other where they are missing. Fields set by
/// users stay, and are filled up from the duplicate.
fn merge_records(merged: &mut FullDevice, other: &FullDevice) {
    let (old, new) = (merged.device.clone(), other.device.clone());
    let is_later = new.inventory_at > old.inventory_at;
    let own = std::mem::take(&mut merged.parts);
    merged.parts = if is_later { merge_parts(other.parts.clone(), own) } else { merge_parts(own, other.parts.clone()) };
    let (first, second) = if is_later { (new.clone(), old.clone()) } else { (old.clone(), new.clone()) };
    let mut tags = old.tags.clone();
    tags.extend(new.tags.iter().filter(|tag| !old.tags.contains(tag)).cloned());
    tags.truncate(TAGS_MAX);
    let mut custom_fields = new.custom_fields.clone();
    custom_fields.extend(old.custom_fields.clone());
    if check_custom_fields(&custom_fields).is_err() {
        custom_fields.clone_from(&old.custom_fields);
    }
    merged.device = Device {
        id: old.id,
        version: old.version,
        created_at: old.created_at,
        updated_at: old.updated_at,
        deleted_at: None,
        tags,
        custom_fields,
        display_name: old.display_name.or(new.display_name),
        organization_id: old.organization_id.or(new.organization_id),
        asset_tag: old.asset_tag.or(new.asset_tag),
        warranty: if old.warranty.end_date.is_some() { old.warranty } else { new.warranty },
        first_seen_at: [old.first_seen_at, new.first_seen_at].into_iter().flatten().min(),
        last_seen_at: old.last_seen_at.max(new.last_seen_at),
        inventory_at: old.inventory_at.max(new.inventory_at),
        status: if new.last_seen_at > old.last_seen_at { new.status } else { old.status },
        possible_duplicate_of: old.possible_duplicate_of.filter(|id| *id != new.id),
        hostname: first.hostname.or(second.hostname),
        os: Os {
            name: first.os.name.or(second.os.name),
            version: first.os.version.or(second.os.version),
            build: first.os.build.or(second.os.build),
            kernel: first.os.kernel.or(second.os.kernel),
            arch: first.os.arch.or(second.os.arch),
        },
        manufacturer: first.manufacturer.or(second.manufacturer),
        model: first.model.or(second.model),
        serial_number: first.serial_number.or(second.serial_number),
        uuid: first.uuid.or(second.uuid),
        cpu: Cpu {
            model: first.cpu.model.or(second.cpu.model),
            sockets: first.cpu.sockets.or(second.cpu.sockets),
            cores: first.cpu.cores.or(second.cpu.cores),
        },
        memory_bytes: first.memory_bytes.or(second.memory_bytes),
        firmware: first.firmware.or(second.firmware),
        page_count: first.page_count.or(second.page_count),
        primary_ip: first.primary_ip.or(second.primary_ip),
        primary_mac: first.primary_mac.or(second.primary_mac),
        last_logged_user: first.last_logged_user.or(second.last_logged_user),
        last_boot_at: first.last_boot_at.or(second.last_boot_at),
        needs_reboot: first.needs_reboot.or(second.needs_reboot),
        patch: DevicePatch {
            pending: first.patch.pending.or(second.patch.pending),
            failed: first.patch.failed.or(second.patch.failed),
            last_installed_at: first.patch.last_installed_at.or(second.patch.last_installed_at),
        },
        r#type: first.r#type,
        platform: first.platform,
        agent: first.agent,
        health: first.health,
    };
}

/// Each list of the first, or of the second where it is empty: not every agent reports all lists.
fn merge_parts(first: DeviceParts, second: DeviceParts) -> DeviceParts {
    DeviceParts {
        disks: if first.disks.is_empty() { second.disks } else { first.disks },
        volumes: if first.volumes.is_empty() { second.volumes } else { first.volumes },
        nics: if first.nics.is_empty() { second.nics } else { first.nics },
        software: if first.software.is_empty() { second.software } else { first.software },
        ports: if first.ports.is_empty() { second.ports } else { first.ports },
        supplies: if first.supplies.is_empty() { second.supplies } else { first.supplies },
    }
}

/// Identities of one device that outlast its reports. Each address, name and serial number makes up to three.
const MERGED_IDENTITIES_MAX: usize = 200;

/// Keeps the identities of a device without an agent, whatever its next report tells of it.
async fn keep_identities(tx: &mut Tx, number: i64) -> Result<()> {
    let own: Vec<(String, i64)> = tx.list(IDENTITIES, args![number]).await?;
    let room = room_for_merged(&own);
    for (name, _) in own.into_iter().filter(may_be_kept).take(room) {
        tx.defer_exec(TOUCH_IDENTITY, vec![name.as_str().into(), number.into(), MERGED_AT_MS.into()]).await?;
    }
    Ok(())
}

/// How many more identities of a device may outlast its reports.
fn room_for_merged(own: &[(String, i64)]) -> usize {
    let kept = own.iter().filter(|(_, added_at)| *added_at == MERGED_AT_MS).count();
    MERGED_IDENTITIES_MAX.saturating_sub(kept)
}

/// Those that agents give stay by rules of their own.
fn may_be_kept((name, added_at): &(String, i64)) -> bool {
    !is_agent_identity(name) && *added_at != MERGED_AT_MS
}

/// Moves the identities of one device to another, where no report takes them away if they are kept.
async fn move_identities(tx: &mut Tx, from: i64, to: i64, is_kept: bool) -> Result<()> {
    let own: Vec<(String, i64)> = tx.list(IDENTITIES, args![to]).await?;
    let others: Vec<(String, i64)> = tx.list(IDENTITIES, args![from]).await?;
    let mut room = room_for_merged(&own);
    for (name, added_at) in others {
        tx.defer_exec(DELETE_IDENTITY, vec![name.as_str().into(), from.into()]).await?;
        if own.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let is_merged = is_kept && room > 0 && !is_agent_identity(&name);
        room -= usize::from(is_merged);
        // One that was kept before, and for which there is no room, lasts until the next report.
        let added_at = if is_merged { MERGED_AT_MS } else { added_at.max(MERGED_AT_MS + 1) };
        tx.defer_exec(INSERT_IDENTITY, vec![name.as_str().into(), to.into(), added_at.into()]).await?;
    }
    Ok(())
}
