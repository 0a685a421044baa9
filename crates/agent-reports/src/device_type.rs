//! The type and the platform of a device, which lists are filtered by.

use super::parts::{DeviceType, Platform};
use super::report::AgentReport;

const LAPTOP_CHASSIS: [&str; 7] =
    ["laptop", "notebook", "portable", "convertible", "detachable", "tablet", "hand held"];

const SERVER_CHASSIS: [&str; 11] = [
    "server",
    "main system",
    "rack mount",
    "blade",
    "multi-system",
    "raid",
    "storage chassis",
    "expansion chassis",
    "sub chassis",
    "compactpci",
    "advancedtca",
];

const WORKSTATION_CHASSIS: [&str; 9] =
    ["desktop", "tower", "mini pc", "all in one", "all-in-one", "pizza box", "space-saving", "sealed-case", "stick pc"];

/// Manufacturers and models of virtual machines. The OCS agent does not always report `VMSYSTEM`.
const VIRTUAL_MODELS: [&str; 7] = ["virtual machine", "vmware", "virtualbox", "qemu", "kvm", "hvm domu", "bochs"];

const LINUX_NAMES: [&str; 15] = [
    "linux",
    "debian",
    "ubuntu",
    "red hat",
    "centos",
    "rocky",
    "almalinux",
    "suse",
    "fedora",
    "raspbian",
    "gentoo",
    "proxmox",
    "manjaro",
    "nixos",
    "mint",
];

/// The type of a device, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTypeFact {
    /// By the agent, the chassis or the name of the system.
    Told(DeviceType),
    /// From the platform alone.
    Guessed(DeviceType),
}

impl DeviceTypeFact {
    pub fn device_type(self) -> DeviceType {
        let (DeviceTypeFact::Told(device_type) | DeviceTypeFact::Guessed(device_type)) = self;
        device_type
    }
}

/// What a machine is taken for of which only the platform is known.
pub fn guess_device_type(platform: Platform) -> DeviceType {
    match platform {
        Platform::Windows | Platform::Macos => DeviceType::Workstation,
        Platform::Linux => DeviceType::Server,
        Platform::Android | Platform::Ios => DeviceType::Mobile,
        Platform::Other => DeviceType::Other,
    }
}

/// `None` if the report is not enough: it lacks the hardware, or the operating system where that decides.
pub fn detect_device_type(report: &AgentReport) -> Option<DeviceTypeFact> {
    let has_hardware = report.hardware.is_some() || report.item_type.as_deref().is_some_and(|kind| kind != "Computer");
    if report.partial && !has_hardware {
        return None;
    }
    told_device_type(report)
        .map(DeviceTypeFact::Told)
        .or_else(|| detect_platform(report).map(guess_device_type).map(DeviceTypeFact::Guessed))
}

fn told_device_type(report: &AgentReport) -> Option<DeviceType> {
    match report.item_type.as_deref().map(str::to_ascii_lowercase).as_deref() {
        Some("networkequipment") => return Some(DeviceType::Network),
        Some("printer") => return Some(DeviceType::Printer),
        Some("phone") => return Some(DeviceType::Mobile),
        _ => {}
    }
    if is_virtual(report) {
        return Some(DeviceType::Virtual);
    }
    let chassis = chassis_type(report);
    if contains_any(&chassis, &LAPTOP_CHASSIS) {
        return Some(DeviceType::Laptop);
    }
    if contains_any(&chassis, &SERVER_CHASSIS) {
        return Some(DeviceType::Server);
    }
    let names = os_names(report);
    if is_esx_host(report) {
        return Some(DeviceType::Server);
    }
    // Before the desktop chassis: many small servers have a tower chassis.
    if names.contains("server") {
        return Some(DeviceType::Server);
    }
    // A partial report without the system does not tell a tower that is a server.
    let is_desktop = contains_any(&chassis, &WORKSTATION_CHASSIS) && !(report.partial && names.is_empty());
    is_desktop.then_some(DeviceType::Workstation)
}

/// `None` if the report lacks the operating system.
pub fn detect_platform(report: &AgentReport) -> Option<Platform> {
    let names = os_names(report);
    if names.is_empty() {
        return None;
    }
    let is_appliance = report.item_type.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case("networkequipment"));
    // Darwin has "win" in it, Android runs on Linux, and a router's IOS is not a phone's.
    Some(if contains_any(&names, &["darwin", "macos", "mac os", "os x"]) {
        Platform::Macos
    } else if contains_any(&names, &["windows", "mswin"]) {
        Platform::Windows
    } else if names.contains("android") {
        Platform::Android
    } else if contains_any(&names, &LINUX_NAMES) {
        Platform::Linux
    } else if !is_appliance && names.split_whitespace().any(|word| matches!(word, "ios" | "ipados")) {
        Platform::Ios
    } else {
        Platform::Other
    })
}

/// Whether the report is of a VMware host. No agent runs on one: an agent elsewhere has asked it.
pub fn is_esx_host(report: &AgentReport) -> bool {
    let names = report.os.iter().flat_map(|os| [&os.name, &os.full_name]).flatten();
    names.into_iter().any(|name| name.get(..10).is_some_and(|start| start.eq_ignore_ascii_case("vmware esx")))
}

/// The type of a device that was scanned. `None` if the agent does not know it: a computer or phone that answers a scan may
/// be any.
pub fn detect_scanned_type(kind: Option<&str>, item_type: Option<&str>) -> Option<DeviceType> {
    [kind, item_type].into_iter().flatten().find_map(|word| match word.to_ascii_lowercase().as_str() {
        "printer" => Some(DeviceType::Printer),
        "networking" | "networkequipment" | "storage" | "power" | "video" | "kvm" => Some(DeviceType::Network),
        _ => None,
    })
}

fn is_virtual(report: &AgentReport) -> bool {
    let vm_system = report.hardware.as_ref().and_then(|hardware| hardware.vm_system.as_deref());
    if let Some(system) = vm_system {
        return !system.eq_ignore_ascii_case("physical");
    }
    report.bios.as_ref().is_some_and(|bios| {
        [&bios.system_manufacturer, &bios.model]
            .into_iter()
            .flatten()
            .any(|name| contains_any(&name.to_ascii_lowercase(), &VIRTUAL_MODELS))
    })
}

fn chassis_type(report: &AgentReport) -> String {
    let hardware = report.hardware.as_ref().and_then(|hardware| hardware.chassis_type.as_deref());
    let bios = report.bios.as_ref().and_then(|bios| bios.chassis_type.as_deref());
    hardware.or(bios).unwrap_or_default().to_ascii_lowercase()
}

/// All reported names of the operating system, in lower case.
fn os_names(report: &AgentReport) -> String {
    let mut names = Vec::new();
    if let Some(os) = &report.os {
        names.extend([&os.kernel_name, &os.full_name, &os.name].into_iter().flatten());
    }
    if let Some(hardware) = &report.hardware {
        names.extend(&hardware.os_name);
    }
    names.into_iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>().join(" ")
}

fn contains_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}
