//! What agents are answered: the few bytes that each of them understands, found by asking the real ones.

use serde_json::json;

use super::sections::Agent;

const XML_HEADER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// To a PROLOG: send the inventory, and ask again after so many hours.
pub fn xml_prolog(hours: u32) -> Vec<u8> {
    xml(&format!("<RESPONSE>SEND</RESPONSE><PROLOG_FREQ>{hours}</PROLOG_FREQ>"))
}

/// To an INVENTORY of the FusionInventory agent.
pub fn xml_inventory_fusion() -> Vec<u8> {
    xml("")
}

/// To an INVENTORY of the OCS agent, which takes anything else for a failure.
pub fn xml_inventory_ocs() -> Vec<u8> {
    xml("<RESPONSE>no_account_update</RESPONSE>")
}

/// To an INVENTORY, by the name of the agent. Pass what the User-Agent header says where the report is silent.
pub fn xml_inventory_for(agent: Option<&Agent>) -> Vec<u8> {
    if agent.is_some_and(Agent::is_ocs) { xml_inventory_ocs() } else { xml_inventory_fusion() }
}

pub fn xml_error(message: &str) -> Vec<u8> {
    xml(&format!("<RESPONSE>ERROR</RESPONSE><ERROR>{}</ERROR>", escape(message)))
}

/// To a CONTACT. A server called otherwise would be asked in XML too.
pub fn json_contact(hours: u32) -> Vec<u8> {
    let tasks = json!({"inventory": {"server": "glpi", "version": "11.0"}});
    json!({"status": "ok", "expiration": hours, "tasks": tasks}).to_string().into_bytes()
}

/// To a JSON inventory, and to the first PROLOG of an agent that can speak JSON: with `expiration` it goes on in JSON.
pub fn json_ok(hours: u32) -> Vec<u8> {
    json!({"status": "ok", "expiration": hours}).to_string().into_bytes()
}

pub fn json_error(message: &str) -> Vec<u8> {
    json!({"status": "error", "message": message}).to_string().into_bytes()
}

fn xml(content: &str) -> Vec<u8> {
    format!("{XML_HEADER}<REPLY>{content}</REPLY>\n").into_bytes()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // A character that XML does not know would make the whole answer unreadable.
            control if control.is_control() => {}
            other => escaped.push(other),
        }
    }
    escaped
}
