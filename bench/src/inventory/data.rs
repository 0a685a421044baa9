//! The devices of a tenant, always the same for the same number.

use kernel::base::{DAY_MS, Env, HOUR_MS, Timestamp};
use tenant_control::features::devices::{
    DeviceId, DeviceSettings, DeviceStatus, Disk, FullDevice, Nic, Platform, Software, Type, Volume, next_check_at,
    update_derived_fields,
};
use tenant_control::features::inventory::blank_device;
use tenant_control::features::organizations::OrganizationId;

use crate::chance::{Chance, Skewed};

const PACKAGES: usize = 2_000;
/// Installed on each device.
const INSTALLED: usize = 30;
/// Every package has been released so many times, and the last is not yet everywhere.
const RELEASES: usize = 5;
const TAGS: usize = 50;
const GB: i64 = 1 << 30;
/// The oldest device is as old as this; the newest came with the last hour.
const YEARS_MS: i64 = 3 * 365 * DAY_MS;
/// When devices changed last.
const CHANGES_MS: i64 = 30 * DAY_MS;

const SITES: [&str; 8] = ["ber", "ams", "lon", "par", "vie", "zrh", "mad", "osl"];
const KINDS: [(Type, &str); 4] =
    [(Type::Workstation, "ws"), (Type::Laptop, "nb"), (Type::Server, "srv"), (Type::Virtual, "vm")];
const PLATFORMS: [(Platform, &str, &str); 4] = [
    (Platform::Windows, "Microsoft Windows 11 Pro", "10.0.22631"),
    (Platform::Linux, "Debian GNU/Linux 12 (bookworm)", "12.11"),
    (Platform::Macos, "macOS 14", "14.6"),
    (Platform::Other, "FreeBSD", "14.1"),
];
const MODELS: [(&str, &str); 6] = [
    ("Dell Inc.", "Latitude"),
    ("Dell Inc.", "PowerEdge"),
    ("LENOVO", "ThinkPad"),
    ("HP", "EliteBook"),
    ("Apple Inc.", "MacBookPro"),
    ("VMware, Inc.", "Virtual"),
];

/// What devices are made of.
pub struct Makings {
    world: Env,
    pub packages: Vec<String>,
    by_package: Skewed,
    by_organization: Skewed,
    /// With the lists that belong to a device.
    pub with_parts: bool,
}

/// What is drawn for one device, and what it is sought by.
pub struct Made {
    pub full: FullDevice,
    pub check_at: Option<Timestamp>,
}

impl Makings {
    pub fn new(with_parts: bool) -> Self {
        let name = |n: usize| match n % 3 {
            0 => format!("lib{}{n}", WORDS[n % WORDS.len()]),
            1 => format!("{} Tools {n}", WORDS[n % WORDS.len()]),
            _ => format!("{}-{n}", WORDS[n % WORDS.len()]),
        };
        Makings {
            world: Env::default(),
            packages: (0..PACKAGES).map(name).collect(),
            by_package: Skewed::new(PACKAGES, 1.0),
            by_organization: Skewed::new(ORGANIZATIONS, 0.8),
            with_parts,
        }
    }

    /// One of a tenant's `size` devices, of which the last came at `end`.
    pub fn device(&self, seed: u64, number: i64, size: i64, end: i64, organizations: &[OrganizationId]) -> Made {
        let mut chance = Chance::new(seed.wrapping_mul(1_000_003).wrapping_add(number.unsigned_abs()));
        let created = Timestamp::from_millis(end - HOUR_MS - (size - number) * (YEARS_MS / size.max(1)));
        let mut full = blank_device(created);
        let silent = match chance.pick(&[85, 10]) {
            0 => below(&mut chance, 20 * HOUR_MS),
            1 => 2 * DAY_MS + below(&mut chance, 20 * DAY_MS),
            _ => 31 * DAY_MS + below(&mut chance, 300 * DAY_MS),
        };
        let seen = Timestamp::from_millis(end - silent);
        let device = &mut full.device;
        device.id = DeviceId::new_numbered(&self.world, created, number);
        device.status = match silent {
            silent if silent < DAY_MS => DeviceStatus::Online,
            silent if silent < 30 * DAY_MS => DeviceStatus::Offline,
            _ => DeviceStatus::Stale,
        };
        (device.first_seen_at, device.last_seen_at, device.inventory_at) = (Some(created), Some(seen), Some(seen));
        device.version = 1 + below(&mut chance, 40);
        let changed = end - HOUR_MS - below(&mut chance, CHANGES_MS);
        device.updated_at = Timestamp::from_millis(changed.max(created.as_millis()));
        let organization = self.by_organization.draw(&mut chance) % organizations.len().max(1);
        device.organization_id = (chance.below(100) < 95).then(|| organizations.get(organization).copied()).flatten();
        describe(&mut full, &mut chance, number);
        if self.with_parts {
            self.add_parts(&mut full, &mut chance);
        }
        update_derived_fields(&mut full, Timestamp::from_millis(end));
        let check_at = next_check_at(&full.device, &DeviceSettings::default());
        Made { full, check_at }
    }

    fn add_parts(&self, full: &mut FullDevice, chance: &mut Chance) {
        let total = GB << (7 + chance.below(4));
        // A tenth of the machines is nearly full.
        let percent = if chance.below(100) < 90 { 12 + below(chance, 80) } else { below(chance, 10) };
        let volume = |mount: &str, percent: i64| Volume {
            mount: Some(mount.to_owned()),
            device: Some("/dev/sda1".to_owned()),
            filesystem: Some("ext4".to_owned()),
            total_bytes: Some(total),
            free_bytes: Some(total / 100 * percent),
            encrypted: Some(true),
        };
        full.parts.volumes = vec![volume("/", percent), volume("/boot", 60)];
        full.parts.disks = vec![Disk {
            name: Some("sda".to_owned()),
            model: Some("SSDSC2KB48".to_owned()),
            serial: Some(format!("PHYF{}", chance.below(10_000_000))),
            size_bytes: Some(total),
            interface: Some("SATA".to_owned()),
        }];
        full.parts.nics = vec![Nic {
            name: Some("eno1".to_owned()),
            mac: full.device.primary_mac.clone(),
            r#type: Some("ethernet".to_owned()),
            status: Some("up".to_owned()),
            ips: full.device.primary_ip.iter().cloned().collect(),
        }];
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < INSTALLED {
            chosen.insert(self.package(chance));
        }
        let installed = |n: usize, chance: &mut Chance| Software {
            name: self.packages[n].clone(),
            version: Some(version(n, release(chance))),
            publisher: Some("Bench".to_owned()),
            arch: Some("x86_64".to_owned()),
            source: Some("deb".to_owned()),
            installed_at: None,
        };
        full.parts.software = chosen.into_iter().map(|n| installed(n, chance)).collect();
        full.parts.software.sort_by(|a, b| a.name.cmp(&b.name));
    }

    pub fn package(&self, chance: &mut Chance) -> usize {
        self.by_package.draw(chance)
    }

    /// Which of so many organizations.
    pub fn organization(&self, chance: &mut Chance, count: usize) -> usize {
        self.by_organization.draw(chance) % count.max(1)
    }
}

/// Of the largest tenant; others have fewer.
pub const ORGANIZATIONS: usize = 200;

/// One of the releases, the first most often.
pub fn release(chance: &mut Chance) -> usize {
    chance.pick(&[50, 25, 15, 9]).min(RELEASES - 1)
}

/// Of a package in one of its releases; the last is rare.
pub fn version(package: usize, release: usize) -> String {
    format!("{}.{}.{release}", package % 9, package % 31)
}

/// The release that one device in a hundred has.
pub const RARE_RELEASE: usize = RELEASES - 1;

pub fn tag(chance: &mut Chance) -> String {
    // The first are the most frequent.
    let place = chance.below(TAGS) * chance.below(TAGS) / TAGS;
    format!("tag-{place}")
}

pub fn hostname(number: i64) -> String {
    let mut chance = Chance::new(number.unsigned_abs());
    let (site, (_, kind)) = (SITES[chance.below(SITES.len())], KINDS[chance.pick(&[45, 30, 15])]);
    format!("{site}-{kind}-{number:06}")
}

fn describe(full: &mut FullDevice, chance: &mut Chance, number: i64) {
    let device = &mut full.device;
    let name = hostname(number);
    let kind =
        KINDS.iter().find(|(_, kind)| name.split('-').nth(1) == Some(kind)).map_or(Type::Other, |(kind, _)| *kind);
    let (platform, os, version) = PLATFORMS[chance.pick(&[60, 25, 10])];
    let (maker, model) = MODELS[chance.below(MODELS.len())];
    device.hostname = Some(name);
    device.r#type = kind;
    device.platform = platform;
    device.os.name = Some(os.to_owned());
    device.os.version = Some(version.to_owned());
    device.os.kernel = (platform == Platform::Linux).then(|| "6.1.0-44-amd64".to_owned());
    device.os.arch = Some("x86_64".to_owned());
    device.manufacturer = Some(maker.to_owned());
    device.model = Some(format!("{model} {}", 5_000 + 10 * chance.below(40)));
    device.serial_number = Some(format!("{:X}", chance.next() >> 36));
    device.uuid = Some(format!("4c4c4544-0042-3310-8051-{:012x}", chance.next() >> 16));
    device.cpu.model = Some("Intel(R) Core(TM) i7-1185G7".to_owned());
    (device.cpu.sockets, device.cpu.cores) = (Some(1), Some(4));
    device.memory_bytes = Some(GB << (3 + chance.below(4)));
    let [a, b] = [number >> 8 & 255, number & 255];
    device.primary_ip = Some(format!("10.{}.{a}.{b}", number >> 16));
    device.primary_mac = Some(format!("ac:1f:6b:{:02x}:{a:02x}:{b:02x}", number >> 16));
    device.last_logged_user = Some(format!("user{}", chance.below(5_000)));
    device.last_boot_at = device.last_seen_at.map(|at| at.plus_ms(-below(chance, 20 * DAY_MS)));
    device.warranty.end_date = Some(format!("20{}-03-31", 24 + chance.below(6)));
    device.agent.name = Some("FusionInventory-Agent".to_owned());
    device.agent.version = Some("2.6".to_owned());
    device.agent.device_id = device.hostname.as_ref().map(|name| format!("{name}-2026-01-15-00-18-42"));
    let mut tags: Vec<String> = (0..chance.pick(&[30, 40, 20])).map(|_| tag(chance)).collect();
    tags.sort_unstable();
    tags.dedup();
    device.tags = tags;
}

fn below(chance: &mut Chance, most: i64) -> i64 {
    i64::try_from(chance.next() % most.max(1).unsigned_abs()).unwrap_or(0)
}

const WORDS: [&str; 12] = [
    "archive", "browser", "crypto", "driver", "editor", "fonts", "graphics", "history", "image", "java", "kernel",
    "office",
];
