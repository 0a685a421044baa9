//! Distinguishes real serial numbers, UUIDs and hardware addresses from placeholders of the manufacturer.
//!
//! Devices are matched by these values. An accepted placeholder merges two machines, which is worse than a rejected real
//! value: that leaves two devices where there should be one, and a person can merge them.

/// Placeholders for a serial number, a model or an asset tag, in lower case and with single spaces, separated by `|`.
const PLACEHOLDERS: &str = "\
    n/a|na|n.a.|none|null|nil|undefined|unknown|invalid|empty|oem|o.e.m.|o.e.m|default|default string|default_string|\
    not available|not applicable|not specified|not defined|not present|not settable|not used|not supported|\
    no enclosure|no asset tag|no asset information|no serial number|no serial|no data|to be filled by o.e.m.|\
    to be filled by o.e.m|to be filled by oem|to be filled|fill by oem|filled by oem|to be defined by oem|\
    oem default string000|system serial number|system serial #|systemserialnumb|system product name|system name|\
    system manufacturer|system model|system version|chassis serial number|chassis asset tag|asset tag|\
    asset-1234567890|asset tracking|ataginfo|serial number|serial|s/n|sn|ssn12345678901234567|sernum0|mb-1234567890|\
    base board serial number|base board asset tag|123456789|1234567890|0123456789|12345678|1234567|123456|\
    01234567890123456789ab|eval|xxx";

/// Shorter is not a serial number: "0", "1", "x".
const SERIAL_CHARS_MIN: usize = 3;

/// UUIDs that makers put into every machine, or that none has set.
const PLACEHOLDER_UUIDS: [&str; 12] = [
    "03000200-0400-0500-0006-000700080009",
    "00020003-0004-0005-0006-000700080009",
    "01020304-0506-0708-090a-0b0c0d0e0f10",
    "01234567-8910-1112-1314-151617181920",
    "01234567-89ab-cdef-0123-456789abcdef",
    "12345678-1234-5678-90ab-cddeefaabbcc",
    "12345678-1234-1234-1234-123456789abc",
    "12345678-1234-5678-1234-567812345678",
    "11111111-2222-3333-4444-555555555555",
    "00112233-4455-6677-8899-aabbccddeeff",
    "fefefefe-fefe-fefe-fefe-fefefefefefe",
    "ffffff00-ffff-ffff-ffff-ffffffffffff",
];

/// Prefixes of MACs that software assigns to many machines.
const SHARED_MACS: [&str; 13] = [
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
];

/// The serial number, unless it is a placeholder.
pub fn real_serial(value: &str) -> Option<&str> {
    let value = real_label(value)?;
    let letters = || value.chars().filter(|character| character.is_alphanumeric());
    if letters().count() < SERIAL_CHARS_MIN {
        return None;
    }
    let first = letters().next();
    (!letters().all(|character| Some(character) == first)).then_some(value)
}

/// A model, a manufacturer or an asset tag, unless it is a placeholder.
pub fn real_label(value: &str) -> Option<&str> {
    let value = value.trim();
    if !value.chars().any(char::is_alphanumeric) {
        return None;
    }
    let plain = value.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    // "Not Specified..", "Default string " and the like.
    let bare = plain.trim_end_matches(['.', ' ']);
    (!PLACEHOLDERS.split('|').any(|known| known == plain || known == bare)).then_some(value)
}

/// The UUID in lower case with hyphens, unless it is invalid or a placeholder.
pub fn real_uuid(value: &str) -> Option<String> {
    let digits = hex_digits(value.trim().trim_start_matches('{').trim_end_matches('}'), &['-'])?;
    if digits.len() != 32 {
        return None;
    }
    let first = digits.as_bytes().first();
    if digits.as_bytes().iter().all(|digit| Some(digit) == first) {
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
