//! The messages of agents, whatever their format.

use super::report::AgentReport;
use super::text::{first_byte, without_byte_order_mark};

/// The format of a message, which its answer uses too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFormat {
    Xml,
    Json,
}

/// The format of an inflated body, by its first byte.
pub fn detect_format(inflated: &[u8]) -> Option<MessageFormat> {
    match first_byte(without_byte_order_mark(inflated))? {
        b'<' => Some(MessageFormat::Xml),
        b'{' => Some(MessageFormat::Json),
        _ => None,
    }
}

/// A message of an agent.
#[derive(Debug, PartialEq)]
pub enum AgentMessage {
    /// The agent asks for its tasks: PROLOG in XML, contact in JSON.
    Contact {
        device_id: String,
    },
    Inventory(Box<AgentReport>),
    /// What an agent found on the network, a report for each device; none in messages about the scan itself.
    Scan(Vec<AgentReport>),
    /// A task that is not supported, by its name.
    Other(String),
}
