//! `/documentation/api/`: the OpenAPI document as pages. One page lists all operations, each operation has its own, and one
//! lists all events. Their only source is the document that the service publishes.

use askama::Template;
use kernel::base::{Error, Result};

use super::contract::{Answer, Contract, Operation, Parameter};
use super::errors::reason;
use super::fields::{self, Field, Shape, pretty};
use super::library::Pages;
use super::markdown;

const PATH: &str = "/documentation/api/";
const EVENTS_PATH: &str = "/documentation/api/events/";

#[derive(Template)]
#[template(path = "reference.html")]
struct Reference<'a> {
    here: &'static str,
    version: &'a str,
    about: String,
    groups: &'a [Group<'a>],
    events_path: &'static str,
}

/// The operations of one tag.
struct Group<'a> {
    name: &'a str,
    anchor: String,
    description: &'a str,
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    method: String,
    path: &'a str,
    operation: &'a Operation,
}

#[derive(Template)]
#[template(path = "operation.html")]
struct OperationPage<'a> {
    here: &'static str,
    entry: &'a Entry<'a>,
    group: &'a Group<'a>,
    description: String,
    credential: Credential,
    /// Any one of these scopes is enough.
    scopes: Vec<&'a str>,
    inputs: Vec<Input<'a>>,
    bodies: Vec<Shape>,
    command: String,
    /// The shell variables that the command uses.
    variables: Vec<String>,
    statuses: Vec<Status<'a>>,
    answers: Vec<Shape>,
}

enum Credential {
    Nothing,
    KeyOrSession,
    Session,
}

/// A parameter.
struct Input<'a> {
    place: &'a str,
    field: Field,
}

struct Status<'a> {
    code: &'a str,
    reason: &'static str,
    meaning: String,
}

#[derive(Template)]
#[template(path = "events.html")]
struct Events<'a> {
    here: &'static str,
    /// The headers of every delivery.
    inputs: Vec<Input<'a>>,
    kinds: Vec<Kind<'a>>,
}

/// A kind of event.
struct Kind<'a> {
    name: &'a str,
    anchor: &'a str,
    summary: String,
    example: Option<String>,
}

/// Renders all pages of the document.
pub fn write(pages: &mut Pages, json: &str, base_url: &str) -> Result<()> {
    let contract = Contract::parse(json)?;
    let groups = groups(&contract);
    let reference = Reference {
        here: PATH,
        version: &contract.info.version,
        about: markdown::render(&contract.info.description),
        groups: &groups,
        events_path: EVENTS_PATH,
    };
    pages.insert(PATH.to_owned(), html(&reference)?);
    pages.insert(EVENTS_PATH.to_owned(), html(&events(&contract))?);
    for group in &groups {
        for entry in &group.entries {
            pages.insert(entry.page(), html(&OperationPage::of(&contract, group, entry, base_url))?);
        }
    }
    Ok(())
}

fn html(template: &impl Template) -> Result<String> {
    template.render().map_err(Error::internal)
}

fn groups(contract: &Contract) -> Vec<Group<'_>> {
    let mut groups = Vec::new();
    for tag in &contract.tags {
        let mut entries = Vec::new();
        for (path, methods) in contract.paths.all() {
            let of_tag = methods.all().filter(|(_, operation)| operation.tags.first() == Some(&tag.name));
            entries.extend(of_tag.map(|(method, operation)| Entry { method: method.to_uppercase(), path, operation }));
        }
        let anchor = markdown::anchor(&tag.name);
        groups.push(Group { name: &tag.name, anchor, description: &tag.description, entries });
    }
    groups
}

fn events(contract: &Contract) -> Events<'_> {
    let (mut inputs, mut kinds) = (Vec::new(), Vec::new());
    for (name, methods) in contract.webhooks.all() {
        for (_, operation) in methods.all() {
            if inputs.is_empty() {
                inputs = self::inputs(contract, operation);
            }
            let media = operation.request_body.as_ref().and_then(|body| body.content.all().next());
            kinds.push(Kind {
                name,
                anchor: &operation.id,
                summary: markdown::render(&operation.summary),
                example: media.and_then(|(_, media)| media.example.as_ref()).map(pretty),
            });
        }
    }
    Events { here: "", inputs, kinds }
}

fn inputs<'a>(contract: &Contract, operation: &'a Operation) -> Vec<Input<'a>> {
    let input =
        |parameter: &'a Parameter| Input { place: &parameter.place, field: fields::parameter(contract, parameter) };
    operation.parameters.iter().map(input).collect()
}

impl Entry<'_> {
    fn page(&self) -> String {
        format!("{PATH}{}/", self.operation.id)
    }
}

impl<'a> OperationPage<'a> {
    fn of(contract: &'a Contract, group: &'a Group<'a>, entry: &'a Entry<'a>, base_url: &str) -> Self {
        let operation = entry.operation;
        let mut bodies = Vec::new();
        for (_, media) in operation.request_body.iter().flat_map(|body| body.content.all()) {
            bodies.extend(fields::shapes(contract, media, "body"));
        }
        let example = bodies.iter().find_map(|shape| shape.example.as_deref());
        let credential = Credential::of(operation);
        let variables = variables(entry);
        OperationPage {
            here: "",
            entry,
            group,
            description: markdown::render(&operation.description),
            scopes: scopes(operation),
            inputs: inputs(contract, operation),
            command: command(base_url, entry, &credential, &variables, example),
            credential,
            variables: variables.iter().map(|name| name.to_uppercase()).collect(),
            statuses: operation.responses.iter().map(|(code, answer)| Status::of(contract, code, answer)).collect(),
            answers: answers(contract, operation),
            bodies,
        }
    }
}

impl Credential {
    fn of(operation: &Operation) -> Self {
        let has = |name: &str| operation.security.iter().any(|way| way.contains_key(name));
        match (has("api_key"), has("session")) {
            (true, _) => Credential::KeyOrSession,
            (false, true) => Credential::Session,
            (false, false) => Credential::Nothing,
        }
    }
}

fn scopes(operation: &Operation) -> Vec<&str> {
    let mut scopes: Vec<&str> = Vec::new();
    for scope in operation.security.iter().flat_map(|way| way.values().flatten()) {
        if !scopes.contains(&scope.as_str()) {
            scopes.push(scope);
        }
    }
    scopes
}

/// The parameters that a call must set: the required ones, and the id of the record that it changes.
fn variables<'a>(entry: &Entry<'a>) -> Vec<&'a str> {
    let is_change = ["PUT", "PATCH", "DELETE"].contains(&entry.method.as_str());
    let named = entry.operation.parameters.iter().filter(|parameter| parameter.place == "query");
    let needed = named.filter(|parameter| parameter.required || (is_change && parameter.name == "id"));
    needed.map(|parameter| parameter.name.as_str()).collect()
}

/// The call as a shell command. Variables `$…` are set before.
fn command(
    base_url: &str,
    entry: &Entry<'_>,
    credential: &Credential,
    variables: &[&str],
    body: Option<&str>,
) -> String {
    let set: Vec<String> = variables.iter().map(|name| format!("{name}=${}", name.to_uppercase())).collect();
    let url = format!("{base_url}{}", entry.path);
    let mut lines = vec![match (entry.method.as_str(), set.is_empty()) {
        // Query values may contain anything, so curl encodes them.
        ("GET", false) => format!("curl -s -G \"{url}\""),
        ("GET", true) => format!("curl -s \"{url}\""),
        ("DELETE", true) => format!("curl -si -X DELETE \"{url}\""),
        ("DELETE", false) => format!("curl -si -X DELETE \"{url}?{}\"", set.join("&")),
        (method, true) => format!("curl -s -X {method} \"{url}\""),
        (method, false) => format!("curl -s -X {method} \"{url}?{}\"", set.join("&")),
    }];
    if entry.method == "GET" {
        lines.extend(set.iter().map(|set| format!("--data-urlencode \"{set}\"")));
    }
    match credential {
        Credential::KeyOrSession => lines.push("-H \"Authorization: Bearer $KEY\"".to_owned()),
        Credential::Session => lines.push("-H \"Cookie: $COOKIE\"".to_owned()),
        Credential::Nothing => {}
    }
    if let Some(body) = body {
        lines.push("-H 'Content-Type: application/json'".to_owned());
        // Within single quotes a shell interprets only the single quote.
        lines.push(format!("-d '{}'", body.replace('\'', "'\\''")));
    }
    lines.join(" \\\n  ")
}

impl<'a> Status<'a> {
    fn of(contract: &Contract, code: &'a str, answer: &Answer) -> Self {
        let found = contract.answer(answer);
        let meaning = if answer.reference.is_some() { linked(&found.description) } else { found.description.clone() };
        let reason = code.parse().map(reason).unwrap_or_default();
        Status { code, reason, meaning: markdown::render(&meaning) }
    }
}

/// Links each error code in the text of an error response to its entry on the page of errors.
fn linked(refusal: &str) -> String {
    let link = |paragraph: &str| match paragraph.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
        Some((code, help)) => format!("[`{code}`](/documentation/errors/#{code}): {help}"),
        None => paragraph.to_owned(),
    };
    refusal.split("\n\n").map(link).collect::<Vec<_>>().join("\n\n")
}

/// The bodies of successful responses. All errors have one form, which has its own page.
fn answers(contract: &Contract, operation: &Operation) -> Vec<Shape> {
    let mut answers = Vec::new();
    for (code, answer) in operation.responses.iter().filter(|(code, _)| code.starts_with('2')) {
        for (number, (media_type, media)) in contract.answer(answer).content.all().enumerate() {
            let anchor = format!("answer-{code}-{}", number + 1);
            for mut shape in fields::shapes(contract, media, &anchor) {
                let name = if shape.title.is_empty() { String::new() } else { format!(": {}", shape.title) };
                shape.title = format!("{code} {media_type}{name}");
                answers.push(shape);
            }
        }
    }
    answers
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{
        "info": {"description": "", "version": "1"}, "webhooks": {}, "components": {"responses": {}, "schemas": {}},
        "tags": [{"name": "Some things", "description": "All of them."}],
        "paths": {"/api/things": {
            "get": {"operationId": "find", "tags": ["Some things"], "security": [{"api_key": ["things:read"]}],
                "parameters": [{"name": "q", "in": "query", "required": true, "schema": {"type": "string"}}]},
            "patch": {"operationId": "change", "tags": ["Some things"], "security": [{"session": []}],
                "parameters": [{"name": "id", "in": "query", "schema": {"type": "string"}}],
                "requestBody": {"content": {"application/json": {"schema": {}, "example": "it's"}}}}}}
    }"#;

    #[test]
    fn a_command_names_what_the_call_needs() {
        let contract = Contract::parse(SAMPLE).unwrap();
        let groups = groups(&contract);
        let commands = groups[0].entries.iter().map(|entry| {
            let page = OperationPage::of(&contract, &groups[0], entry, "https://tc.test");
            (page.command, page.variables.join(" "))
        });
        let find = "curl -s -G \"https://tc.test/api/things\" \\\n  --data-urlencode \"q=$Q\" \\\n  \
            -H \"Authorization: Bearer $KEY\"";
        let change = "curl -s -X PATCH \"https://tc.test/api/things?id=$ID\" \\\n  -H \"Cookie: $COOKIE\" \\\n  \
            -H 'Content-Type: application/json' \\\n  -d 'it'\\''s'";
        let expected = [(find.to_owned(), "Q".to_owned()), (change.to_owned(), "ID".to_owned())];
        assert_eq!(commands.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_refusal_leads_to_its_codes() {
        assert_eq!(linked("`a_b`: Why.\n\nElse."), "[`a_b`](/documentation/errors/#a_b): Why.\n\nElse.");
    }
}
