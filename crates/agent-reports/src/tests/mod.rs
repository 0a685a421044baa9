//! Bodies of real agents, and hostile ones.

mod agents;
mod codecs;
mod fingerprints;
mod hostile;
mod rules;
mod scans;

use super::{
    AgentMessage, AgentReport, Codec, MessageFormat, ReportRefusal, detect_codec, inflate_body, parse_message,
};

const FUSION: &[u8] = include_bytes!("../testdata/fusioninventory.xml");
const OCS: &[u8] = include_bytes!("../testdata/ocs.xml");
const GLPI: &[u8] = include_bytes!("../testdata/inventory-full-request.json");
const GLPI_CONTACT: &[u8] = include_bytes!("../testdata/contact-request.json");
const GLPI_PROLOG: &[u8] = include_bytes!("../testdata/first-prolog-request.xml");

/// Parses a body as it was sent.
fn read_body(body: &[u8]) -> Result<(Codec, MessageFormat, AgentMessage), ReportRefusal> {
    let codec = detect_codec(body)?;
    let (format, message) = parse_message(&inflate_body(body, codec)?)?;
    Ok((codec, format, message))
}

fn parse_report(inflated: &[u8]) -> AgentReport {
    match parse_message(inflated) {
        Ok((_, AgentMessage::Inventory(report))) => *report,
        other => panic!("not an inventory: {other:?}"),
    }
}

/// An XML inventory with this content.
fn xml_inventory(content: &str) -> Vec<u8> {
    format!("<REQUEST><CONTENT>{content}</CONTENT><DEVICEID>d</DEVICEID><QUERY>INVENTORY</QUERY></REQUEST>")
        .into_bytes()
}

/// A JSON inventory with this content.
fn json_inventory(content: &str) -> Vec<u8> {
    format!("{{\"action\":\"inventory\",\"deviceid\":\"d\",\"content\":{content}}}").into_bytes()
}

fn parse_refusal(inflated: &[u8]) -> ReportRefusal {
    match parse_message(inflated) {
        Err(refusal) => refusal,
        Ok(message) => panic!("not refused: {message:?}"),
    }
}
