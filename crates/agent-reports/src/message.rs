//! The messages of agents, whatever their format.

use super::sections::AgentReport;
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
    /// XML: the agent asks for its tasks.
    Prolog {
        device_id: String,
    },
    /// JSON: the agent asks for its tasks.
    Contact {
        device_id: String,
        name: Option<String>,
        version: Option<String>,
        tag: Option<String>,
    },
    Inventory(Box<AgentReport>),
    /// A task that is not supported, by its name.
    Other(String),
}
