//! Hetzner's API, as far as it is asked: tokens for reading and for all, names that are unique, pages with numbers.

use serde_json::{Value, json};

use super::state::{Asked, CloudCall, Rights, State, StubAnswer, StubMachine, text};

const OPERATION_LABEL: &str = "tenant-control/operation";
const SERVERS: &str = "/v1/servers";

pub fn classify(call: &CloudCall) -> Asked {
    if let Some(asked) = call.ask_for_machines(SERVERS, "label_selector") {
        return asked;
    }
    match call.path.as_str() {
        "/v1/locations" => Asked::Regions,
        "/v1/server_types" => Asked::Sizes,
        "/v1/images" => Asked::Images,
        "/v1/pricing" => Asked::Pricing,
        _ => Asked::Other,
    }
}

pub fn refuse(status: u16, code: &str, message: &str) -> StubAnswer {
    StubAnswer::new(status, json!({"error": {"code": code, "message": message, "details": null}}))
}

pub fn answer(state: &mut State, call: &CloudCall) -> StubAnswer {
    let Some(token) = state.tokens.get(&call.token).cloned() else {
        return refuse(401, "unauthorized", "unable to authenticate");
    };
    if call.method == "POST" && token.rights == Rights::ReadOnly {
        return refuse(403, "token_readonly", "token is only allowed to perform GET requests");
    }
    match classify(call) {
        Asked::ListOne | Asked::List => {
            list(state, call, &state.listed(&token.account), "servers", |one| server(state, one))
        }
        Asked::Find => {
            let wanted = call.query["label_selector"].split_once("==").map_or("", |(_, id)| id).to_owned();
            let mut found = state.listed(&token.account);
            found.retain(|one| !state.hides_tags && one.tags[OPERATION_LABEL] == wanted.as_str());
            list(state, call, &found, "servers", |one| server(state, one))
        }
        Asked::Get => match state.find(&token.account, call.machine_id()) {
            Some(found) => StubAnswer::new(200, json!({"server": server(state, found)})),
            None => refuse(404, "not_found", "server not found"),
        },
        Asked::CheckCreate => refuse(422, "invalid_input", "invalid input in fields 'name', 'server_type', 'image'"),
        Asked::Create => create(state, call, token.account),
        Asked::Regions => list(
            state,
            call,
            &["fsn1", "hel1", "nbg1"],
            "locations",
            |name| json!({"name": name, "city": format!("City of {name}"), "country": "DE"}),
        ),
        Asked::Sizes => list(state, call, &["cx22", "cx32", "cpx11"], "server_types", |name| server_type(name)),
        Asked::Images => list(
            state,
            call,
            &["debian-13", "ubuntu-26.04"],
            "images",
            |name| json!({"id": 7, "name": name, "description": format!("System {name}"), "type": "system", "deprecated": null}),
        ),
        Asked::Pricing => StubAnswer::new(200, json!({"pricing": {"currency": "EUR"}})),
        _ => refuse(404, "not_found", "no such path"),
    }
}

fn list<T: Clone>(state: &State, call: &CloudCall, rows: &[T], key: &str, show: impl Fn(&T) -> Value) -> StubAnswer {
    let (page, next) = state.cut_page(rows, call);
    let shown: Vec<Value> = page.iter().map(show).collect();
    let number = call.number("page").unwrap_or(1);
    let pagination = json!({"page": number, "next_page": next, "total_entries": rows.len()});
    StubAnswer::new(200, json!({key: shown, "meta": {"pagination": pagination}}))
}

fn create(state: &mut State, call: &CloudCall, account: String) -> StubAnswer {
    let name = text(&call.body, "name");
    if state.machines.iter().any(|machine| machine.account == account && machine.name == name) {
        return refuse(409, "uniqueness_error", "server name is already used");
    }
    let made = state.insert(StubMachine {
        id: 0,
        account,
        name,
        region: text(&call.body, "location"),
        zone: String::new(),
        size: text(&call.body, "server_type"),
        image: text(&call.body, "image"),
        state: if state.keeps_booting { "initializing" } else { "running" }.to_owned(),
        tags: call.body["labels"].clone(),
        ip: String::new(),
        is_hidden: false,
    });
    let told = StubMachine { state: "initializing".to_owned(), ..made };
    StubAnswer::new(201, json!({"server": server(state, &told), "root_password": "stub-root-password"}))
}

fn server(state: &State, machine: &StubMachine) -> Value {
    let labels = if state.hides_tags { json!({}) } else { machine.tags.clone() };
    json!({
        "id": machine.id, "name": machine.name, "status": machine.state, "labels": labels,
        "location": {"name": machine.region}, "datacenter": {"name": machine.zone},
        "server_type": server_type(&machine.size), "primary_disk_size": 40,
        "image": {"id": 7, "name": machine.image},
        "public_net": {"ipv4": {"ip": machine.ip}, "ipv6": null}, "private_net": [],
    })
}

fn server_type(name: &str) -> Value {
    let price = |location: &str| json!({"location": location, "price_monthly": {"net": "3.7900", "gross": "4.5101"}});
    json!({
        "name": name, "description": name.to_uppercase(), "cores": 2, "memory": 4.0, "disk": 40, "deprecated": false,
        "prices": [price("fsn1"), price("nbg1")],
    })
}
