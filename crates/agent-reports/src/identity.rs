//! Distinguishes real serial numbers, UUIDs and hardware addresses from placeholders of the manufacturer.
//!
//! Devices are matched by these values. An accepted placeholder merges two machines, which is worse than a rejected real
//! value: that leaves two devices where there should be one, and a person can merge them.

/// Placeholders for a serial number, a model or an asset tag: their letters and digits in lower case, separated by `|`.
/// Compared so, `To be filled by O.E.M.`, `$(DEFAULT_STRING)` and `(null string)` are in the list in every spelling.
const PLACEHOLDERS: &str = "\
    na|none|null|nullstring|nil|undefined|unknown|invalid|empty|oem|oemserial|default|defaultstring|\
    notavailable|notapplicable|notspecified|notdefined|notpresent|notsettable|notused|notsupported|notprovided|notset|\
    noenclosure|noassettag|noassetinformation|noserialnumber|noserial|nodata|tobefilledbyoem|tobefilled|fillbyoem|\
    filledbyoem|tobedefinedbyoem|tobefilledbyoemserial|oemdefaultstring000|systemserialnumber|systemserial|\
    systemserialnumb|systemproductname|systemname|systemmanufacturer|systemmodel|systemversion|chassisserialnumber|\
    chassisassettag|assettag|assettracking|ataginfo|serialnumber|serial|serialnumberxxxxxx|sn|ssn|sernum0|tagnumber|\
    baseboardserialnumber|baseboardassettag|boardserialnumber|mbserialnumber|productname|modelname|typeproductname|\
    eval|iatpass|test|dummy|sample|xxx|01234567890123456789ab|sn123456fvgv3i0b8o5n6n7k|tulipcomputers|ibmserial|\
    insydeserial|pleaseenterserialnumber|standard|generic";

/// Shorter is not a serial number: "0", "1", "x".
const SERIAL_CHARS_MIN: usize = 3;

/// Digits in their order, which somebody typed or a maker left: `12345`, `SYS-1234567890`, `9876543210`.
const COUNTED_DIGITS: [&str; 3] = ["01234567890123456789", "98765432109876543210", "123456789000"];
/// So many digits in their order are a placeholder, whatever letters come before them.
const COUNTED_DIGITS_MIN: usize = 10;

/// UUIDs that makers put into every machine, or that none has set.
const PLACEHOLDER_UUIDS: [&str; 14] = [
    "03000200-0400-0500-0006-000700080009",
    "00020003-0004-0005-0006-000700080009",
    "01020304-0506-0708-090a-0b0c0d0e0f10",
    "01234567-8910-1112-1314-151617181920",
    "01234567-89ab-cdef-0123-456789abcdef",
    "12345678-1234-5678-90ab-cddeefaabbcc",
    "12345678-1234-1234-1234-123456789abc",
    "12345678-1234-5678-1234-567812345678",
    "12345678-9abc-def0-1234-56789abcdef0",
    "11111111-2222-3333-4444-555555555555",
    "00112233-4455-6677-8899-aabbccddeeff",
    "6ab5b300-538d-1014-9fb5-b0684d007b53",
    "ffffff00-ffff-ffff-ffff-ffffffffffff",
    "ffffffff-ffff-ffff-ffff-fffffffffff0",
];

/// Prefixes of MACs that software assigns to many machines.
const SHARED_MACS: [&str; 27] = [
    "00:50:56:c0:00:", // VMware's host adapters
    "00:ff:",          // TAP adapters
    "02:42:",          // Docker
    "0a:00:27:",       // VirtualBox's host adapters
    "08:00:58:00:00:", // a VPN adapter
    "20:41:53:59:4e:", // the RAS async adapter, its name in ASCII
    "33:50:6f:45:",    // PPPoE, its name in ASCII
    "50:50:54:50:",    // PPTP, its name in ASCII
    "00:05:9a:3c:7",   // a VPN adapter
    "00:09:0f:fe:00:", // a VPN adapter
    "00:53:45:00:",    // WAN miniport
    "02:00:4c:4f:4f:", // Microsoft's loopback adapter
    "00:00:5e:00:",    // VRRP, shared by redundant routers
    "02:00:4e:43:50:", // an adapter of Nortel's VPN
    "02:80:37:ec:02:", // a mobile broadband adapter
    "00:a0:c6:00:00:", // Qualcomm's mobile broadband adapters
    "24:b6:20:52:41:", // the RAS adapter
    "d2:0a:2d:a0:04:", // a USB network adapter of phones
    "d2:6b:25:2f:2c:", // the same
    "e2:e6:16:20:0a:", // the same
    "00:1c:42:00:00:", // Parallels' host adapters
    "00:15:5d:00:00:", // Hyper-V before it draws an address
    "00:00:0c:07:ac:", // HSRP, likewise
    "00:00:0c:9f:f",   // HSRP version 2
    "00:07:b4:00:",    // GLBP
    "00:23:04:ee:be:", // the two switches of a vPC domain
    "00:09:0f:09:",    // a cluster of firewalls
];

/// The serial number, unless it is a placeholder.
pub fn real_serial(value: &str) -> Option<&str> {
    let value = real_label(value)?;
    let plain = letters_and_digits(value);
    let first = plain.chars().next();
    let is_one_letter = plain.chars().all(|character| Some(character) == first);
    (plain.chars().count() >= SERIAL_CHARS_MIN && !is_one_letter && !is_counted(&plain)).then_some(value)
}

/// Whether it is digits in their order, alone or behind letters.
fn is_counted(plain: &str) -> bool {
    let digits = plain.trim_start_matches(|character: char| character.is_alphabetic());
    let starts = matches!(digits.as_bytes().first(), Some(b'0' | b'1' | b'9'));
    let is_whole = digits.len() == plain.len() || digits.len() >= COUNTED_DIGITS_MIN || plain.starts_with("sn");
    starts && is_whole && COUNTED_DIGITS.iter().any(|order| order.contains(digits))
}

/// A model, a manufacturer or an asset tag, unless it is a placeholder.
pub fn real_label(value: &str) -> Option<&str> {
    let value = value.trim();
    let plain = letters_and_digits(value);
    let is_counted = plain.len() >= COUNTED_DIGITS_MIN && is_counted(&plain);
    (!plain.is_empty() && !is_counted && !PLACEHOLDERS.split('|').any(|known| known == plain)).then_some(value)
}

/// In lower case: placeholders differ in punctuation alone.
fn letters_and_digits(value: &str) -> String {
    value.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Words of a maker's name that say nothing: `Dell Inc.` is `Dell`.
const COMPANY_WORDS: [&str; 17] = [
    "inc",
    "incorporated",
    "corp",
    "corporation",
    "co",
    "company",
    "ltd",
    "limited",
    "llc",
    "gmbh",
    "ag",
    "kg",
    "sa",
    "bv",
    "plc",
    "computer",
    "computers",
];

/// Makers under several names.
const MAKERS: [(&str, &str); 7] = [
    ("hewlett packard", "hp"),
    ("asustek", "asus"),
    ("micro star international", "msi"),
    ("fujitsu siemens", "fujitsu"),
    ("fujitsu client computing", "fujitsu"),
    ("fujitsu technology solutions", "fujitsu"),
    ("super micro", "supermicro"),
];

/// A manufacturer in the one form in which names of it are compared.
pub fn maker_name(value: &str) -> Option<String> {
    let plain = real_label(value)?.to_lowercase().replace(|character: char| !character.is_alphanumeric(), " ");
    let words: Vec<&str> = plain.split_whitespace().collect();
    let length = words.iter().rposition(|word| !COMPANY_WORDS.contains(word)).map_or(words.len(), |last| last + 1);
    let name = words.get(..length).unwrap_or_default().join(" ");
    Some(MAKERS.iter().find(|(known, _)| *known == name).map_or(name, |(_, short)| (*short).to_owned()))
}

/// Names that devices have until somebody gives them one: their letters and digits in lower case.
const GENERIC_NAMES: [&str; 22] = [
    "accesspoint",
    "ap",
    "camera",
    "computer",
    "device",
    "firewall",
    "gateway",
    "host",
    "hostname",
    "localhost",
    "modem",
    "nas",
    "network",
    "noname",
    "openwrt",
    "pc",
    "printer",
    "router",
    "server",
    "snmp",
    "switch",
    "ups",
];

/// Whether a hostname is one that many devices have, or a placeholder: no device is recognized by it alone.
pub fn is_generic_name(name: &str) -> bool {
    let label = name.split('.').next().unwrap_or_default();
    real_label(label).is_none() || GENERIC_NAMES.contains(&letters_and_digits(label).as_str())
}

/// The UUID in lower case with hyphens, unless it is invalid or a placeholder.
pub fn real_uuid(value: &str) -> Option<String> {
    let digits = hex_digits(value.trim().trim_start_matches('{').trim_end_matches('}'), &['-'])?;
    if digits.len() != 32 {
        return None;
    }
    // One byte or digit over and over.
    let first = digits.get(..2);
    if digits.as_bytes().chunks(2).all(|byte| first.is_some_and(|first| first.as_bytes() == byte)) {
        return None;
    }
    let uuid = hyphenate_uuid(&digits)?;
    let is_placeholder = |uuid: &str| PLACEHOLDER_UUIDS.contains(&uuid);
    let has_placeholder_twin = swap_uuid_byte_order(&uuid).is_some_and(|twin| is_placeholder(&twin));
    (!is_placeholder(&uuid) && !has_placeholder_twin).then_some(uuid)
}

/// The UUID of the same machine in the other byte order: SMBIOS 2.6 swapped the bytes of the first three groups, and not
/// every tool followed.
pub fn swap_uuid_byte_order(uuid: &str) -> Option<String> {
    let digits = hex_digits(uuid, &['-'])?;
    if digits.len() != 32 {
        return None;
    }
    let turned = |start: usize, end: usize| -> Option<String> {
        let bytes = digits.get(start..end)?.as_bytes();
        Some(bytes.chunks(2).rev().flatten().map(|&digit| char::from(digit)).collect())
    };
    let twin = [turned(0, 8)?, turned(8, 12)?, turned(12, 16)?, digits.get(16..)?.to_owned()].concat();
    hyphenate_uuid(&twin)
}

/// The MAC in lower case with colons, unless it is invalid or shared by machines.
pub fn real_mac(value: &str) -> Option<String> {
    let mac = normal_mac(value)?;
    let first = u8::from_str_radix(mac.get(..2)?, 16).ok()?;
    let is_group = first & 1 == 1;
    (!is_group && !SHARED_MACS.iter().any(|start| mac.starts_with(start))).then_some(mac)
}

/// Locally administered addresses that last: QEMU gives a virtual machine one for good.
const LASTING_LOCAL_MAC: &str = "52:54:00:";

/// Whether software has chosen the address, in the form of [`real_mac`]. Phones have another one in every network, and change
/// it from time to time.
pub fn is_random_mac(mac: &str) -> bool {
    let first = mac.get(..2).and_then(|octet| u8::from_str_radix(octet, 16).ok());
    first.is_some_and(|octet| octet & 2 == 2) && !mac.starts_with(LASTING_LOCAL_MAC)
}

/// The MAC in lower case with colons, from any notation. All zeros and all ones are invalid.
pub fn normal_mac(value: &str) -> Option<String> {
    let digits = compact_mac(value.trim())?;
    if digits.len() != 12 || digits.bytes().all(|digit| digit == b'0') || digits.bytes().all(|digit| digit == b'f') {
        return None;
    }
    let pairs: Option<Vec<&str>> = (0..6).map(|pair| digits.get(pair * 2..pair * 2 + 2)).collect();
    Some(pairs?.join(":"))
}

/// A MAC or its prefix in lower case without separators: people write it in many notations.
pub fn compact_mac(value: &str) -> Option<String> {
    hex_digits(value, &[':', '-', '.']).filter(|digits| (2..=12).contains(&digits.len()))
}

/// The hexadecimal digits of a value in lower case; `None` if it has anything but digits and these separators.
fn hex_digits(value: &str, separators: &[char]) -> Option<String> {
    value
        .chars()
        .filter(|character| !separators.contains(character))
        .map(|character| character.is_ascii_hexdigit().then(|| character.to_ascii_lowercase()))
        .collect()
}

fn hyphenate_uuid(digits: &str) -> Option<String> {
    let groups = [digits.get(..8)?, digits.get(8..12)?, digits.get(12..16)?, digits.get(16..20)?, digits.get(20..)?];
    Some(groups.join("-"))
}
