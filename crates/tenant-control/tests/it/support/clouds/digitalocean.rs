//! DigitalOcean's API, as far as it is asked: accounts with a name, names of machines that need not be unique, tags that are
//! words, pages with addresses.

use serde_json::{Value, json};

use super::state::{Asked, CloudCall, Rights, State, StubAnswer, StubMachine, text};

const DROPLETS: &str = "/v2/droplets";

pub fn classify(call: &CloudCall) -> Asked {
    if let Some(asked) = call.ask_for_machines(DROPLETS, "tag_name") {
        return asked;
    }
    match call.path.as_str() {
        "/v2/account" => Asked::Account,
        "/v2/tags" => Asked::CheckTag,
        "/v2/regions" => Asked::Regions,
        "/v2/sizes" => Asked::Sizes,
        "/v2/images" => Asked::Images,
        _ => Asked::Other,
    }
}

pub fn refuse(status: u16, id: &str, message: &str) -> StubAnswer {
    StubAnswer::new(status, json!({"id": id, "message": message, "request_id": "4d9d8375"}))
}

pub fn answer(state: &mut State, call: &CloudCall) -> StubAnswer {
    let Some(token) = state.tokens.get(&call.token).cloned() else {
        return refuse(401, "unauthorized", "Unable to authenticate you");
    };
    if call.method == "POST" && token.rights == Rights::ReadOnly {
        return refuse(403, "forbidden", "You are not authorized to perform this operation");
    }
    match classify(call) {
        Asked::Account => {
            let (uuid, email) = (format!("team-{}", token.account), format!("ops@{}.test", token.account));
            StubAnswer::new(200, json!({"account": {"uuid": "user-1", "email": email, "team": {"uuid": uuid}}}))
        }
        asked @ (Asked::ListOne | Asked::List | Asked::ListGpus) => {
            let mut listed = state.listed(&token.account);
            listed.retain(|one| one.size.starts_with("gpu-") == (asked == Asked::ListGpus));
            list(state, call, &listed, "droplets", |one| droplet(state, one))
        }
        Asked::Find => {
            let wanted = json!(call.query["tag_name"]);
            let has_tag = |one: &StubMachine| one.tags.as_array().is_some_and(|words| words.contains(&wanted));
            let mut found = state.listed(&token.account);
            found.retain(|one| !state.hides_tags && has_tag(one));
            list(state, call, &found, "droplets", |one| droplet(state, one))
        }
        Asked::Get => match state.find(&token.account, call.machine_id()) {
            Some(found) => StubAnswer::new(200, json!({"droplet": droplet(state, found)})),
            None => refuse(404, "not_found", "The resource you requested could not be found."),
        },
        Asked::CheckCreate | Asked::CheckTag => refuse(422, "unprocessable_entity", "Name can't be blank"),
        Asked::Create => create(state, call, token.account),
        Asked::Regions => list(
            state,
            call,
            &["ams3", "fra1", "nyc3"],
            "regions",
            |slug| json!({"slug": slug, "name": format!("Region {slug}"), "available": true}),
        ),
        Asked::Sizes => list(state, call, &["s-1vcpu-1gb", "s-2vcpu-4gb"], "sizes", |slug| {
            json!({"slug": slug, "description": "Basic", "vcpus": 1, "memory": 1_024, "disk": 25, "price_monthly": 6.0,
                "available": true, "regions": ["ams3", "fra1"]})
        }),
        Asked::Images => list(state, call, &["debian-13-x64", "ubuntu-26-04-x64"], "images", |slug| {
            json!({"id": 7, "slug": slug, "distribution": "Debian", "name": slug, "regions": ["ams3", "fra1"],
                "created_at": "2026-01-01T00:00:00Z"})
        }),
        _ => refuse(404, "not_found", "The resource you requested could not be found."),
    }
}

fn list<T: Clone>(state: &State, call: &CloudCall, rows: &[T], key: &str, show: impl Fn(&T) -> Value) -> StubAnswer {
    let (page, next) = state.cut_page(rows, call);
    let shown: Vec<Value> = page.iter().map(show).collect();
    let address = |page: usize| format!("https://api.digitalocean.com{}?page={page}&per_page=200", call.path);
    let links = next.map_or_else(|| json!({}), |page| json!({"pages": {"next": address(page), "last": address(page)}}));
    StubAnswer::new(200, json!({key: shown, "links": links, "meta": {"total": rows.len()}}))
}

fn create(state: &mut State, call: &CloudCall, account: String) -> StubAnswer {
    let made = state.insert(StubMachine {
        id: 0,
        account,
        name: text(&call.body, "name"),
        region: text(&call.body, "region"),
        zone: String::new(),
        size: text(&call.body, "size"),
        image: text(&call.body, "image"),
        state: if state.keeps_booting { "new" } else { "active" }.to_owned(),
        tags: call.body["tags"].clone(),
        ip: String::new(),
        is_hidden: false,
    });
    let told = StubMachine { state: "new".to_owned(), tags: json!([]), ..made };
    StubAnswer::new(202, json!({"droplet": droplet(state, &told), "links": {}}))
}

fn droplet(state: &State, machine: &StubMachine) -> Value {
    let tags = if state.hides_tags { json!([]) } else { machine.tags.clone() };
    json!({
        "id": machine.id, "name": machine.name, "status": machine.state, "tags": tags, "size_slug": machine.size,
        "size": {"slug": machine.size, "price_monthly": 6.0}, "vcpus": 1, "memory": 1_024, "disk": 25,
        "region": {"slug": machine.region}, "image": {"id": 7, "slug": machine.image},
        "networks": {"v4": [
            {"ip_address": machine.ip, "type": "public"}, {"ip_address": "10.0.0.5", "type": "private"},
        ], "v6": []},
    })
}
