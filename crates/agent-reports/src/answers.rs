//! Answers to agents: the few bytes that each agent understands, found by testing with real agents.

use serde_json::json;

use super::sections::AgentInfo;

/// Answers a PROLOG: send the inventory, and ask again after so many hours.
pub fn xml_prolog(hours: u32) -> Vec<u8> {
    xml_reply(&format!("<RESPONSE>SEND</RESPONSE><PROLOG_FREQ>{hours}</PROLOG_FREQ>"))
}

/// Answers an INVENTORY by the name of the agent. If the report has none, pass the name from the User-Agent header. The OCS
/// agent treats any other answer than its own as a failure.
pub fn xml_inventory_for(agent: Option<&AgentInfo>) -> Vec<u8> {
    let is_ocs = agent.is_some_and(AgentInfo::is_ocs);
    xml_reply(if is_ocs { "<RESPONSE>no_account_update</RESPONSE>" } else { "" })
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
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<REPLY>{content}</REPLY>\n").into_bytes()
}
