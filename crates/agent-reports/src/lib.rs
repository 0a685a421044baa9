//! Reads what inventory agents send: FusionInventory and OCS XML, GLPI-agent JSON, plain or compressed.
//!
//! Pure functions over bytes: no clock, no store, no network. A body is judged by what its bytes are, never by what its
//! headers say. What is not wanted (environment variables, processes, users and every section without a field here) is
//! skipped while reading and never exists in memory as text of its own.
//!
//! The steps are apart because the caller compares before it reads: `inflate`, then `fingerprint_parts` into a digest, and
//! only when that is new `parse` and `facts`.

mod answers;
mod codec;
mod collect;
mod facts;
mod fingerprint;
mod identity;
mod json;
mod kind;
mod parts;
mod primary;
mod refusal;
mod sections;
mod text;
mod xml;

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;

pub use answers::{
    json_contact, json_error, json_ok, xml_error, xml_inventory_for, xml_inventory_fusion, xml_inventory_ocs,
    xml_prolog,
};
pub use codec::{Codec, INFLATED_BYTES_MAX, detect, encode, inflate};
pub use facts::{Facts, Host, Machine, Network, System, facts};
pub use fingerprint::fingerprint_parts;
pub use identity::{normal_mac, real_label, real_mac, real_serial, real_uuid, uuid_twin};
pub use parts::{Cpu, DeviceType, Disk, Nic, Os, Platform, Software, Volume};
pub use primary::is_made;
pub use refusal::{Refusal, RefusalKind};
pub use sections::{Agent, Bios, CpuEntry, DiskEntry, DriveEntry, Hardware, NicEntry, OperatingSystem, Report};

pub use text::LABEL_CHARS_MAX;

/// A body, read.
#[derive(Debug)]
pub struct Received {
    pub codec: Codec,
    pub language: Language,
    pub message: Message,
}

/// The language of the body, in which it is also answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Xml,
    Json,
}

/// What the agent wants.
#[derive(Debug, PartialEq)]
pub enum Message {
    /// XML: the agent asks what it should do.
    Prolog {
        device_id: String,
    },
    /// JSON: the same question.
    Contact {
        device_id: String,
        name: Option<String>,
        version: Option<String>,
        tag: Option<String>,
    },
    Inventory(Box<Report>),
    /// A task that is not offered here, by its name.
    Other(String),
}

/// Reads a body as it came over the wire. Blocking: it costs processor time alone.
pub fn read(body: &[u8]) -> Result<Received, Refusal> {
    let codec = detect(body)?;
    let inflated = inflate(body, codec)?;
    let (language, message) = parse(&inflated)?;
    Ok(Received { codec, language, message })
}

/// Reads an inflated body.
pub fn parse(inflated: &[u8]) -> Result<(Language, Message), Refusal> {
    let content = text::without_mark(inflated);
    match text::first_byte(content) {
        Some(b'<') => Ok((Language::Xml, xml::parse(content)?)),
        Some(b'{') => Ok((Language::Json, json::parse(content)?)),
        _ => Err(Refusal::unsupported("The body is not XML or JSON.")),
    }
}
