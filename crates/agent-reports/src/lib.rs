//! Parses the messages of inventory agents: FusionInventory and OCS XML, GLPI-agent JSON, plain or compressed. An agent
//! describes the machine it runs on, or devices that it scanned over the network.
//!
//! Pure functions over bytes: no clock, no store, no network. The bytes of a body decide its format, never its headers.
//! Unused content (environment variables, processes, users and every section without a field here) is skipped while
//! parsing and never copied into memory.
//!
//! The steps are separate because the caller compares digests before it parses: `inflate_body`, then `fingerprint_parts`
//! into a digest, and only if the digest is new `parse_message` and `extract_facts`.

mod answers;
mod codec;
mod collector;
mod device_type;
mod facts;
mod fingerprint;
mod identity;
mod json;
mod message;
mod network_cards;
mod parts;
mod refusal;
mod report;
mod scan_facts;
mod scanned;
mod sections;
mod text;
mod xml;
mod xml_scan;

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;

pub use answers::{json_contact, json_error, json_ok, xml_inventory_for, xml_prolog};
pub use codec::{Codec, INFLATED_BYTES_MAX, detect_codec, encode_answer, inflate_body};
pub use device_type::{DeviceTypeFact, guess_device_type};
pub use facts::{DeviceFacts, HostFacts, MachineFacts, NetworkFacts, ScanFacts, SystemFacts};
pub use fingerprint::fingerprint_parts;
pub use identity::{
    compact_mac, is_generic_name, is_random_mac, maker_name, normal_mac, real_label, real_mac, real_serial, real_uuid,
    swap_uuid_byte_order,
};
pub use message::{AgentMessage, MessageFormat, detect_format};
pub use network_cards::is_virtual_interface;
pub use parts::{Cpu, DeviceType, Disk, Nic, Os, Platform, Port, Software, Supply, Volume};
pub use refusal::{ReportRefusal, ReportRefusalKind};
pub use report::AgentReport;
pub use scanned::ScannedDevice;
pub use sections::{AgentInfo, Bios, CpuEntry, DiskEntry, DriveEntry, Hardware, NicEntry, OperatingSystem};

pub use text::LABEL_CHARS_MAX;

/// Parses an inflated body. Blocking: it uses only processor time.
pub fn parse_message(inflated: &[u8]) -> Result<(MessageFormat, AgentMessage), ReportRefusal> {
    let content = text::without_byte_order_mark(inflated);
    match detect_format(content) {
        Some(MessageFormat::Xml) => Ok((MessageFormat::Xml, xml::parse(content)?)),
        Some(MessageFormat::Json) => Ok((MessageFormat::Json, json::parse(content)?)),
        None => Err(ReportRefusal::unsupported("The body is not XML or JSON.")),
    }
}

/// What a report tells of its device. Takes the software and the scanned device out of it.
pub fn extract_facts(report: &mut AgentReport) -> DeviceFacts {
    match report.scanned.take() {
        Some(scanned) => scan_facts::extract_scan_facts(report, *scanned),
        None => facts::extract_machine_facts(report),
    }
}
