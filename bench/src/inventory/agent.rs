//! Inventories of 250 kB as the FusionInventory agent of a Debian server sends them: some 800 packages, its processes and
//! local users, and a little hardware. Each machine has names of its own, and its own choice of packages.

use std::fmt::Write as _;
use std::io::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::Value;

use crate::chance::Chance;
use crate::harness::Outcome;

/// Of the bodies before they are compressed; the last bytes are filled with packages.
pub const BODY_BYTES: usize = 250_000;
/// Every machine has these packages, and more that others may not have.
const COMMON: usize = 600;
const PACKAGES: usize = 3_000;
const PROCESSES: usize = 73;
const USERS: usize = 24;

/// What one machine tells in one run of its agent.
#[derive(Clone, Copy)]
pub struct Run {
    pub machine: usize,
    /// Free space and two packages are others with each.
    pub state: usize,
    /// When it ran: what the agent writes of itself is different with each, and nothing else.
    pub at: usize,
}

/// The request of a run as the agent sends it, compressed by zlib.
pub fn request(key: &IngestKey, run: Run) -> Outcome<Vec<u8>> {
    request_of(key, &inventory(run)?)
}

/// The request of a machine that nobody has heard of, with as many packages that nobody has heard of either.
pub fn strange_request(key: &IngestKey, name: &str, packages: usize) -> Outcome<Vec<u8>> {
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n<REQUEST><CONTENT><HARDWARE><NAME>{name}</NAME></HARDWARE><BIOS><SSN>{name}\
         </SSN></BIOS>"
    );
    for n in 0..packages {
        write!(xml, "<SOFTWARES><NAME>{n}-{name}</NAME><VERSION>1.{n}</VERSION></SOFTWARES>")?;
    }
    write!(xml, "</CONTENT><DEVICEID>{name}-2026-11-15-00-18-42</DEVICEID><QUERY>INVENTORY</QUERY></REQUEST>")?;
    request_of(key, &xml)
}

fn request_of(key: &IngestKey, xml: &str) -> Outcome<Vec<u8>> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(xml.as_bytes())?;
    let body = packed.finish()?;
    let mut request = format!(
        "POST /internal/ingest/inventory HTTP/1.1\r\nHost: bench\r\nAuthorization: Basic {}\r\n\
         User-Agent: FusionInventory-Agent_v2.6-3\r\nContent-Type: application/x-compress-zlib\r\nContent-Length: {}\r\n\r\n",
        key.basic,
        body.len()
    )
    .into_bytes();
    request.extend(body);
    Ok(request)
}

/// What an agent presents.
pub struct IngestKey {
    pub basic: String,
}

impl IngestKey {
    /// Of what the command line tells of a new one.
    pub fn read(made: &Value) -> Outcome<Self> {
        let (id, secret) = made["id"].as_str().zip(made["secret"].as_str()).ok_or("no ingest key")?;
        Ok(IngestKey { basic: BASE64.encode(format!("{id}:{secret}")) })
    }
}

fn inventory(Run { machine, state, at }: Run) -> Result<String, std::fmt::Error> {
    let mut xml = String::with_capacity(BODY_BYTES + 1_000);
    let (minute, second) = (at / 60 % 60, at % 60);
    write!(
        xml,
        "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n<REQUEST>\n  <CONTENT>\n    <ACCESSLOG>\n      \
         <LOGDATE>2026-11-16 12:{minute:02}:{second:02}</LOGDATE>\n    </ACCESSLOG>\n    <BIOS>\n      \
         <SMANUFACTURER>Dell Inc.</SMANUFACTURER>\n      <SMODEL>PowerEdge R640</SMODEL>\n      <SSN>S{machine:08}</SSN>\n    \
         </BIOS>\n"
    )?;
    hardware(&mut xml, machine, state, at)?;
    for n in 0..USERS {
        write!(
            xml,
            "    <LOCAL_USERS>\n      <HOME>/home/user{n}</HOME>\n      <ID>{}</ID>\n      <LOGIN>user{n}</LOGIN>\n      \
             <NAME>User {n}</NAME>\n      <SHELL>/bin/bash</SHELL>\n    </LOCAL_USERS>\n",
            1_000 + n
        )?;
    }
    for n in 0..PROCESSES {
        write!(
            xml,
            "    <PROCESSES>\n      <CMD>/usr/lib/service-{n}/daemon --config=/etc/service-{n}/main.conf --worker={n} \
             --verbose --no-fork</CMD>\n      <CPUUSAGE>0.{n}</CPUUSAGE>\n      <MEM>1.{n}</MEM>\n      <PID>{}</PID>\n      \
             <STARTED>2026-11-15 13:{:02}</STARTED>\n      <TTY>?</TTY>\n      <USER>root</USER>\n      \
             <VIRTUALMEMORY>{}</VIRTUALMEMORY>\n    </PROCESSES>\n",
            300 + 7 * n,
            n % 60,
            10_000 + 977 * n
        )?;
    }
    packages(&mut xml, machine, state)?;
    write!(
        xml,
        "    <VERSIONCLIENT>FusionInventory-Agent_v2.6-3</VERSIONCLIENT>\n  </CONTENT>\n  \
         <DEVICEID>host{machine:06}-2026-11-15-00-18-42</DEVICEID>\n  <QUERY>INVENTORY</QUERY>\n</REQUEST>\n"
    )?;
    Ok(xml)
}

fn hardware(xml: &mut String, machine: usize, state: usize, at: usize) -> std::fmt::Result {
    let free = 150_000 - 37 * state;
    let [a, b, c] = [machine >> 16 & 255, machine >> 8 & 255, machine & 255];
    write!(
        xml,
        "    <CPUS>\n      <ARCH>i386</ARCH>\n      <CORE>10</CORE>\n      <NAME>Intel(R) Xeon(R) Silver 4210</NAME>\n      \
         <THREAD>20</THREAD>\n    </CPUS>\n    <DRIVES>\n      <FILESYSTEM>ext4</FILESYSTEM>\n      <FREE>{free}</FREE>\n      \
         <TOTAL>258019</TOTAL>\n      <TYPE>/</TYPE>\n      <VOLUMN>/dev/sda1</VOLUMN>\n    </DRIVES>\n    <HARDWARE>\n      \
         <CHASSIS_TYPE>Rack Mount Chassis</CHASSIS_TYPE>\n      <ETIME>{}</ETIME>\n      <MEMORY>64103</MEMORY>\n      \
         <NAME>host{machine:06}</NAME>\n      <OSNAME>Debian GNU/Linux 12 (bookworm)</OSNAME>\n      \
         <UUID>4C4C4544-0042-3310-8051-{machine:012X}</UUID>\n      <VMSYSTEM>Physical</VMSYSTEM>\n    </HARDWARE>\n    \
         <NETWORKS>\n      <DESCRIPTION>eno1</DESCRIPTION>\n      <IPADDRESS>10.{a}.{b}.{c}</IPADDRESS>\n      \
         <MACADDR>AC:1F:6B:{a:02X}:{b:02X}:{c:02X}</MACADDR>\n      <STATUS>Up</STATUS>\n      <TYPE>ethernet</TYPE>\n    \
         </NETWORKS>\n    <OPERATINGSYSTEM>\n      <ARCH>x86_64</ARCH>\n      <BOOT_TIME>2026-11-15 13:53:05</BOOT_TIME>\n      \
         <FULL_NAME>Debian GNU/Linux 12 (bookworm)</FULL_NAME>\n      <KERNEL_NAME>linux</KERNEL_NAME>\n      \
         <KERNEL_VERSION>6.1.0-44-amd64</KERNEL_VERSION>\n      <NAME>Debian GNU/Linux</NAME>\n      <VERSION>12.11</VERSION>\n    \
         </OPERATINGSYSTEM>\n    <STORAGES>\n      <DESCRIPTION>SATA</DESCRIPTION>\n      <DISKSIZE>480103</DISKSIZE>\n      \
         <MODEL>SSDSC2KB48</MODEL>\n      <NAME>sda</NAME>\n      <SERIALNUMBER>PHYF{machine:06}</SERIALNUMBER>\n      \
         <TYPE>disk</TYPE>\n    </STORAGES>\n",
        1 + at % 7
    )
}

/// As many as there is room for. With each state two of them have another version.
fn packages(xml: &mut String, machine: usize, state: usize) -> std::fmt::Result {
    const END: usize = 220;
    let mut chance = Chance::new(machine as u64);
    let (mut n, mut count) = (0, 0);
    while xml.len() + END < BODY_BYTES && n < PACKAGES {
        let is_changed = count % 400 == 7;
        let release = 1 + n % 5 + if is_changed { state } else { 0 };
        write!(
            xml,
            "    <SOFTWARES>\n      <ARCH>amd64</ARCH>\n      <FILESIZE>{}</FILESIZE>\n      <FROM>deb</FROM>\n      \
             <NAME>lib{}-{n}</NAME>\n      <PUBLISHER>Debian</PUBLISHER>\n      <SYSTEM_CATEGORY>{}</SYSTEM_CATEGORY>\n      \
             <VERSION>{}.{}.{}-{release}+deb12u{}</VERSION>\n    </SOFTWARES>\n",
            1_024 * (17 + n * 7_919 % 90_000),
            NAMES[n % NAMES.len()],
            SECTIONS[n % SECTIONS.len()],
            n % 7,
            n % 31,
            n % 13,
            n % 4,
        )?;
        n += if n < COMMON { 1 } else { 1 + chance.below(16) };
        count += 1;
    }
    Ok(())
}

const NAMES: [&str; 16] = [
    "apt-pkg",
    "archive",
    "avahi-common",
    "boost-system",
    "cairo",
    "crypto",
    "dbus",
    "event",
    "fontconfig",
    "glib",
    "icu",
    "jpeg",
    "kerberos",
    "mount",
    "perl",
    "python-minimal",
];
const SECTIONS: [&str; 7] = ["libs", "admin", "utils", "net", "perl", "python", "oldlibs"];
