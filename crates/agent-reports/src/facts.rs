//! The facts of a report, in our shapes and units instead of the agents'.
//!
//! A group is `None` if the report does not have its section, so that a partial report changes only the sections it has.
//! Within a group `None` means that the machine has no such value, or only a placeholder.

use kernel::base::Timestamp;

use super::device_type::{DeviceTypeFact, detect_device_type, detect_platform};
use super::identity::{real_label, real_serial, real_uuid};
use super::network_cards::{convert_nic, is_loopback, primary_address};
use super::parts::{Cpu, Disk, Nic, Os, Platform, Port, Software, Supply, Volume};
use super::report::AgentReport;
use super::sections::{Bios, CpuEntry, DiskEntry, DriveEntry, Hardware, NicEntry};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    pub device_type: Option<DeviceTypeFact>,
    pub platform: Option<Platform>,
    pub host: Option<HostFacts>,
    pub machine: Option<MachineFacts>,
    pub system: Option<SystemFacts>,
    pub cpu: Option<Cpu>,
    pub disks: Option<Vec<Disk>>,
    pub volumes: Option<Vec<Volume>>,
    pub network: Option<NetworkFacts>,
    pub software: Option<Vec<Software>>,
    /// Only of a device that an agent scanned.
    pub scan: Option<ScanFacts>,
}

/// What only a scan of a device tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanFacts {
    pub firmware: Option<String>,
    pub page_count: Option<i64>,
    pub ports: Option<Vec<Port>>,
    pub supplies: Option<Vec<Supply>>,
    /// All addresses of the device.
    pub ips: Vec<String>,
    /// The serial numbers of the members of a stack: any of them may become the one that the stack reports.
    pub chassis_serials: Vec<String>,
    /// Only the name server knows the hostname.
    pub is_name_from_dns: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    pub hostname: Option<String>,
    pub uuid: Option<String>,
    pub memory_bytes: Option<i64>,
    pub last_logged_user: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineFacts {
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    pub serial_number: Option<String>,
    pub asset_tag: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemFacts {
    pub os: Os,
    /// The build by the version of the kernel, where none is told.
    pub guessed_build: Option<String>,
    pub last_boot_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkFacts {
    pub nics: Vec<Nic>,
    pub primary_ip: Option<String>,
    pub primary_mac: Option<String>,
}

/// What an agent tells of the machine that it runs on. Moves the software out of the report instead of copying it: it is most
/// of the report.
pub fn extract_machine_facts(report: &mut AgentReport) -> DeviceFacts {
    let software = report.software.take().map(normalize_software);
    let report = &*report;
    let default_gateway = report.hardware.as_ref().and_then(|hardware| hardware.default_gateway.as_deref());
    let platform = detect_platform(report);
    DeviceFacts {
        device_type: detect_device_type(report),
        platform,
        host: host_facts(report),
        machine: report.bios.as_ref().map(machine_facts),
        system: system_facts(report),
        cpu: cpu_facts(report),
        disks: report.disks.as_ref().map(|entries| entries.iter().filter_map(convert_disk).collect()),
        volumes: report.volumes.as_ref().map(|entries| convert_volumes(entries, platform)),
        network: report.nics.as_ref().map(|entries| network_facts(entries, default_gateway)),
        software,
        scan: None,
    }
}

fn host_facts(report: &AgentReport) -> Option<HostFacts> {
    let fqdn = report.os.as_ref().and_then(|os| os.fqdn.as_deref());
    let Some(hardware) = &report.hardware else {
        return (!report.partial).then(|| HostFacts { hostname: fqdn.map(str::to_owned), ..HostFacts::default() });
    };
    Some(HostFacts {
        hostname: hardware.hostname.clone().or_else(|| fqdn.map(str::to_owned)),
        uuid: hardware.uuid.as_deref().and_then(real_uuid),
        memory_bytes: hardware.memory_bytes.filter(|&bytes| bytes > 0),
        last_logged_user: last_logged_user(hardware),
    })
}

/// Agents on Unix read the user from `last`. If nobody signed in, some take its closing line "wtmp begins …" for a user.
fn last_logged_user(hardware: &Hardware) -> Option<String> {
    hardware.last_logged_user.clone().or_else(|| hardware.user_id.clone()).filter(|user| user != "wtmp")
}

/// The manufacturer of the system is preferred to that of the board, and that to the firmware's.
fn machine_facts(bios: &Bios) -> MachineFacts {
    MachineFacts {
        manufacturer: first_real_label([&bios.system_manufacturer, &bios.board_manufacturer, &bios.bios_manufacturer]),
        model: first_real_label([&bios.model, &bios.board_model]),
        serial_number: bios.serial.as_deref().and_then(real_serial).map(str::to_owned),
        asset_tag: bios.asset_tag.as_deref().and_then(real_label).map(str::to_owned),
    }
}

/// The first label that is no placeholder.
pub fn first_real_label<'a>(labels: impl IntoIterator<Item = &'a Option<String>>) -> Option<String> {
    labels.into_iter().find_map(|label| real_label(label.as_deref()?)).map(str::to_owned)
}

fn system_facts(report: &AgentReport) -> Option<SystemFacts> {
    let is_windows = detect_platform(report) == Some(Platform::Windows);
    if let Some(os) = &report.os {
        return Some(SystemFacts {
            os: Os {
                name: os.full_name.clone().or_else(|| os.name.clone()),
                version: os.version.clone(),
                build: os.build.clone(),
                kernel: os.kernel_version.clone(),
                arch: os.arch.clone(),
            },
            guessed_build: os.kernel_version.as_deref().filter(|_| is_windows).and_then(windows_build),
            last_boot_at: os.boot_time_ms().map(Timestamp::from_millis),
        });
    }
    let hardware = report.hardware.as_ref().filter(|hardware| hardware.os_name.is_some())?;
    let cpu_arch = || report.cpus.as_ref().and_then(|cpus| cpus.first()).and_then(|cpu| cpu.arch.clone());
    Some(SystemFacts {
        os: Os {
            name: hardware_os_name(hardware),
            version: hardware.os_version.clone(),
            build: None,
            kernel: None,
            arch: hardware.arch.clone().or_else(cpu_arch),
        },
        guessed_build: hardware.os_version.as_deref().filter(|_| is_windows).and_then(windows_build),
        last_boot_at: None,
    })
}

/// The OCS agent sends the short name as the name and the full one, "Debian GNU/Linux 12 (bookworm)", as a comment.
fn hardware_os_name(hardware: &Hardware) -> Option<String> {
    let name = hardware.os_name.as_deref()?;
    let full = hardware.os_comments.as_deref().filter(|comments| comments.starts_with(name));
    Some(full.unwrap_or(name).to_owned())
}

/// The build is the third number, as in `10.0.19045`.
fn windows_build(version: &str) -> Option<String> {
    version.split('.').nth(2).map(str::to_owned)
}

fn cpu_facts(report: &AgentReport) -> Option<Cpu> {
    let Some(entries) = &report.cpus else {
        let hardware = report.hardware.as_ref()?;
        let model = hardware.processor.clone()?;
        return Some(Cpu { model: Some(model), sockets: hardware.processor_count, cores: None });
    };
    let cores: Option<Vec<i64>> = entries.iter().map(|entry: &CpuEntry| entry.cores).collect();
    Some(Cpu {
        model: entries.first().and_then(|entry| entry.name.clone()),
        sockets: i64::try_from(entries.len()).ok().filter(|&sockets| sockets > 0),
        cores: cores
            .and_then(|cores| cores.into_iter().try_fold(0_i64, |sum, cores| sum.checked_add(cores)))
            .filter(|&cores| cores > 0),
    })
}

/// `None` for optical and tape drives, RAM disks and loop devices.
pub fn convert_disk(entry: &DiskEntry) -> Option<Disk> {
    let size_bytes = entry.size_bytes.filter(|&bytes| bytes > 0)?;
    let texts = [&entry.kind, &entry.description].into_iter().flatten();
    let words = texts.map(|word| word.to_ascii_lowercase()).collect::<Vec<_>>().join(" ");
    let is_other = ["cd-rom", "cdrom", "cd/dvd", "dvd", "tape", "floppy", "multipath child"];
    let name = entry.name.as_deref().unwrap_or_default().trim_start_matches("/dev/");
    let is_other_name = ["zram", "loop", "ram", "sr", "st", "nst", "fd"].iter().any(|start| {
        name.strip_prefix(start).is_some_and(|number| number.bytes().next().is_some_and(|digit| digit.is_ascii_digit()))
    });
    if is_other_name || words == "cd" || is_other.iter().any(|word| words.contains(word)) {
        return None;
    }
    Some(Disk {
        name: entry.name.clone(),
        model: entry.model.clone(),
        serial: entry.serial.as_deref().and_then(real_serial).map(str::to_owned),
        size_bytes: Some(size_bytes),
        interface: entry.interface.clone().or_else(|| entry.description.clone().filter(|word| is_bus(word))),
    })
}

/// Some agents send the bus as the description.
fn is_bus(word: &str) -> bool {
    ["ata", "sata", "ide", "scsi", "sas", "usb", "nvme", "fc", "1394", "mmc", "iscsi"]
        .iter()
        .any(|bus| word.eq_ignore_ascii_case(bus))
}

/// The letters of Windows tell its volumes where a partial report does not tell the system.
pub fn convert_volumes(entries: &[DriveEntry], platform: Option<Platform>) -> Vec<Volume> {
    let has_letters = entries.iter().any(|entry| entry.letter.is_some());
    let is_windows = platform.map_or(has_letters, |platform| platform == Platform::Windows);
    entries.iter().filter_map(|entry| convert_volume(entry, is_windows)).collect()
}

/// A volume that can fill up: `None` for optical discs and images, which are always full, and for network drives.
fn convert_volume(entry: &DriveEntry, is_windows: bool) -> Option<Volume> {
    let filesystem = entry.filesystem.as_deref().unwrap_or_default().to_ascii_lowercase();
    let kind = entry.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
    let is_image = ["squashfs", "iso9660", "udf", "cdfs", "tmpfs", "devtmpfs"].contains(&filesystem.as_str());
    let is_elsewhere = is_windows && ["network", "compact disc", "cd-rom"].iter().any(|word| kind.contains(word));
    if is_image || is_elsewhere || entry.total_bytes.unwrap_or(0) == 0 {
        return None;
    }
    // On Windows the letter is the mount point; `kind` and `volume` are the drive type and the label.
    let (mount, device) =
        if is_windows { (entry.letter.clone(), None) } else { (entry.kind.clone(), entry.volume.clone()) };
    Some(Volume {
        mount,
        device,
        filesystem: entry.filesystem.clone(),
        total_bytes: entry.total_bytes,
        free_bytes: entry.free_bytes,
        encrypted: entry.is_encrypted(),
    })
}

fn network_facts(entries: &[NicEntry], default_gateway: Option<&str>) -> NetworkFacts {
    let (primary_ip, primary_mac) = primary_address(entries, default_gateway);
    NetworkFacts {
        nics: entries.iter().filter(|entry| !is_loopback(entry)).map(convert_nic).collect(),
        primary_ip,
        primary_mac,
    }
}

/// Each program once, in an order that does not depend on the agent. Of several entries for one program the same one is
/// kept, whatever their order.
fn normalize_software(mut entries: Vec<Software>) -> Vec<Software> {
    entries.sort_by(|one, other| {
        let program = (&one.name, &one.version, &one.arch).cmp(&(&other.name, &other.version, &other.arch));
        // Descending, so that entries with values come before entries without.
        let (details, other_details) =
            ((&one.publisher, &one.source, &one.installed_at), (&other.publisher, &other.source, &other.installed_at));
        program.then_with(|| other_details.cmp(&details))
    });
    entries.dedup_by(|one, other| one.name == other.name && one.version == other.version && one.arch == other.arch);
    entries
}
