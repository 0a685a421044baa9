//! Answers to agents: the few bytes that each agent understands, found by testing with real agents.

use serde_json::json;

use super::sections::AgentInfo;

const XML_HEADER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// Answers a PROLOG: send the inventory, and ask again after so many hours.
pub fn xml_prolog(hours: u32) -> Vec<u8> {
    xml_reply(&format!("<RESPONSE>SEND</RESPONSE><PROLOG_FREQ>{hours}</PROLOG_FREQ>"))
}

/// Answers an INVENTORY of the FusionInventory agent.
pub fn xml_inventory_fusion() -> Vec<u8> {
    xml_reply("")
}

/// Answers an INVENTORY of the OCS agent, which treats any other answer as a failure.
pub fn xml_inventory_ocs() -> Vec<u8> {
    xml_reply("<RESPONSE>no_account_update</RESPONSE>")
}

/// Answers an INVENTORY by the name of the agent. If the report has none, pass the name from the User-Agent header.
pub fn xml_inventory_for(agent: Option<&AgentInfo>) -> Vec<u8> {
    if agent.is_some_and(AgentInfo::is_ocs) { xml_inventory_ocs() } else { xml_inventory_fusion() }
}

pub fn xml_error(message: &str) -> Vec<u8> {
    xml_reply(&format!("<RESPONSE>ERROR</RESPONSE><ERROR>{}</ERROR>", escape_xml(message)))
}

/// Answers a CONTACT. To a server with another name the agent would also send XML.
pub fn json_contact(hours: u32) -> Vec<u8> {
    let tasks = json!({"inventory": {"server": "glpi", "version": "11.0"}});
    json!({"status": "ok", "expiration": hours, "tasks": tasks}).to_string().into_bytes()
}

/// Answers a JSON inventory, and the first PROLOG of an agent that can speak JSON: `expiration` makes it switch to JSON.
pub fn json_ok(hours: u32) -> Vec<u8> {
    json!({"status": "ok", "expiration": hours}).to_string().into_bytes()
}

pub fn json_error(message: &str) -> Vec<u8> {
    json!({"status": "error", "message": message}).to_string().into_bytes()
}

fn xml_reply(content: &str) -> Vec<u8> {
    format!("{XML_HEADER}<REPLY>{content}</REPLY>\n").into_bytes()
}

fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // A character that XML does not allow would make the whole answer unreadable.
            control if control.is_control() => {}
            other => escaped.push(other),
        }
    }
    escaped
}
