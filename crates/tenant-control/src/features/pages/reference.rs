//! `/documentation/api/`: the OpenAPI document as pages. One page lists all operations, each operation has its own, and one
//! lists all events. Their only source is the document that the service publishes.

use askama::Template;
use kernel::base::{Error, Result};

use super::contract::{ApiOperation, ApiParameter, ApiResponse, Contract};
use super::errors::status_reason;
use super::fields::{self, BodyShape, FieldRow, format_example};
use super::markdown;
use super::page::LibraryPages;

const PATH: &str = "/documentation/api/";
const EVENTS_PATH: &str = "/documentation/api/events/";

#[derive(Template)]
#[template(path = "reference.html")]
struct ReferencePage<'a> {
    here: &'static str,
    version: &'a str,
    about: String,
    groups: &'a [OperationGroup<'a>],
    events_path: &'static str,
}

/// The operations of one tag.
struct OperationGroup<'a> {
    name: &'a str,
    anchor: String,
    description: &'a str,
    entries: Vec<OperationEntry<'a>>,
}

struct OperationEntry<'a> {
    method: String,
    path: &'a str,
    operation: &'a ApiOperation,
}

#[derive(Template)]
#[template(path = "operation.html")]
struct OperationPage<'a> {
    here: &'static str,
    entry: &'a OperationEntry<'a>,
    group: &'a OperationGroup<'a>,
    description: String,
    credential: Credential,
    /// Any one of these scopes is enough.
    scopes: Vec<&'a str>,
    inputs: Vec<OperationInput<'a>>,
    bodies: Vec<BodyShape>,
    command: String,
    /// The shell variables that the command uses.
    variables: Vec<String>,
    statuses: Vec<ResponseStatus<'a>>,
    answers: Vec<BodyShape>,
}

enum Credential {
    Nothing,
    KeyOrSession,
    Session,
}

/// A parameter.
struct OperationInput<'a> {
    place: &'a str,
    field: FieldRow,
}

struct ResponseStatus<'a> {
    code: &'a str,
    reason: &'static str,
    meaning: String,
}

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage<'a> {
    here: &'static str,
    /// The headers of every delivery.
    inputs: Vec<OperationInput<'a>>,
    kinds: Vec<DocumentedEvent<'a>>,
}

/// A kind of event.
struct DocumentedEvent<'a> {
    name: &'a str,
    anchor: &'a str,
    summary: String,
    example: Option<String>,
}

/// Renders all pages of the document.
pub fn render_reference(pages: &mut LibraryPages, json: &str, base_url: &str) -> Result<()> {
    let contract = Contract::parse(json)?;
    let groups = group_operations(&contract);
    let reference = ReferencePage {
        here: PATH,
        version: &contract.info.version,
        about: markdown::to_html(&contract.info.description),
        groups: &groups,
        events_path: EVENTS_PATH,
    };
    pages.insert(PATH.to_owned(), render_template(&reference)?);
    pages.insert(EVENTS_PATH.to_owned(), render_template(&events_page(&contract))?);
    for group in &groups {
        for entry in &group.entries {
            pages.insert(entry.page(), render_template(&OperationPage::for_entry(&contract, group, entry, base_url))?);
        }
    }
    Ok(())
}

fn render_template(template: &impl Template) -> Result<String> {
    template.render().map_err(Error::internal)
}

fn group_operations(contract: &Contract) -> Vec<OperationGroup<'_>> {
    let mut groups = Vec::new();
    for tag in &contract.tags {
        let mut entries = Vec::new();
        for (path, methods) in contract.paths.iter_members() {
            let of_tag = methods.iter_members().filter(|(_, operation)| operation.tags.first() == Some(&tag.name));
            entries.extend(of_tag.map(|(method, operation)| OperationEntry {
                method: method.to_uppercase(),
                path,
                operation,
            }));
        }
        let anchor = markdown::heading_anchor(&tag.name);
        groups.push(OperationGroup { name: &tag.name, anchor, description: &tag.description, entries });
    }
    groups
}

fn events_page(contract: &Contract) -> EventsPage<'_> {
    let (mut inputs, mut kinds) = (Vec::new(), Vec::new());
    for (name, methods) in contract.webhooks.iter_members() {
        for (_, operation) in methods.iter_members() {
            if inputs.is_empty() {
                inputs = self::operation_inputs(contract, operation);
            }
            let media = operation.request_body.as_ref().and_then(|body| body.content.iter_members().next());
            kinds.push(DocumentedEvent {
                name,
                anchor: &operation.id,
                summary: markdown::to_html(&operation.summary),
                example: media.and_then(|(_, media)| media.example.as_ref()).map(format_example),
            });
        }
    }
    EventsPage { here: "", inputs, kinds }
}

fn operation_inputs<'a>(contract: &Contract, operation: &'a ApiOperation) -> Vec<OperationInput<'a>> {
    let input = |parameter: &'a ApiParameter| OperationInput {
        place: &parameter.place,
        field: fields::parameter_row(contract, parameter),
    };
    operation.parameters.iter().map(input).collect()
}

impl OperationEntry<'_> {
    fn page(&self) -> String {
        format!("{PATH}{}/", self.operation.id)
    }
}

impl<'a> OperationPage<'a> {
    fn for_entry(
        contract: &'a Contract,
        group: &'a OperationGroup<'a>,
        entry: &'a OperationEntry<'a>,
        base_url: &str,
    ) -> Self {
        let operation = entry.operation;
        let mut bodies = Vec::new();
        for (_, media) in operation.request_body.iter().flat_map(|body| body.content.iter_members()) {
            bodies.extend(fields::body_shapes(contract, media, "body"));
        }
        let example = bodies.iter().find_map(|shape| shape.example.as_deref());
        let credential = Credential::from_operation(operation);
        let variables = required_variables(entry);
        OperationPage {
            here: "",
            entry,
            group,
            description: markdown::to_html(&operation.description),
            scopes: required_scopes(operation),
            inputs: operation_inputs(contract, operation),
            command: curl_command(base_url, entry, &credential, &variables, example),
            credential,
            variables: variables.iter().map(|name| name.to_uppercase()).collect(),
            statuses: operation
                .responses
                .iter()
                .map(|(code, answer)| ResponseStatus::from_response(contract, code, answer))
                .collect(),
            answers: success_shapes(contract, operation),
            bodies,
        }
    }
}

impl Credential {
    fn from_operation(operation: &ApiOperation) -> Self {
        let has = |name: &str| operation.security.iter().any(|requirement| requirement.contains_key(name));
        match (has("api_key"), has("session")) {
            (true, _) => Credential::KeyOrSession,
            (false, true) => Credential::Session,
            (false, false) => Credential::Nothing,
        }
    }
}

fn required_scopes(operation: &ApiOperation) -> Vec<&str> {
    let mut scopes: Vec<&str> = Vec::new();
    for scope in operation.security.iter().flat_map(|requirement| requirement.values().flatten()) {
        if !scopes.contains(&scope.as_str()) {
            scopes.push(scope);
        }
    }
    scopes
}

/// The parameters that a call must set: the required ones, and the id of the record that it changes.
fn required_variables<'a>(entry: &OperationEntry<'a>) -> Vec<&'a str> {
    let is_change = ["PUT", "PATCH", "DELETE"].contains(&entry.method.as_str());
    let named = entry.operation.parameters.iter().filter(|parameter| parameter.place == "query");
    let needed = named.filter(|parameter| parameter.required || (is_change && parameter.name == "id"));
    needed.map(|parameter| parameter.name.as_str()).collect()
}

/// The call as a shell command. Variables `$…` are set before.
fn curl_command(
    base_url: &str,
    entry: &OperationEntry<'_>,
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

impl<'a> ResponseStatus<'a> {
    fn from_response(contract: &Contract, code: &'a str, answer: &ApiResponse) -> Self {
        let found = contract.resolve_response(answer);
        let is_refusal = code.starts_with(['4', '5']);
        let meaning = if is_refusal { link_codes(&found.description) } else { found.description.clone() };
        let reason = code.parse().map(status_reason).unwrap_or_default();
        ResponseStatus { code, reason, meaning: markdown::to_html(&meaning) }
    }
}

/// Links each error code in the text of an error response to its entry on the page of errors.
fn link_codes(refusal: &str) -> String {
    let link = |paragraph: &str| match paragraph.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
        Some((code, help)) => format!("[`{code}`](/documentation/errors/#{code}): {help}"),
        None => paragraph.to_owned(),
    };
    refusal.split("\n\n").map(link).collect::<Vec<_>>().join("\n\n")
}

/// The bodies of successful responses. All errors have one form, which has its own page.
fn success_shapes(contract: &Contract, operation: &ApiOperation) -> Vec<BodyShape> {
    let mut answers = Vec::new();
    for (code, answer) in operation.responses.iter().filter(|(code, _)| code.starts_with('2')) {
        for (number, (media_type, media)) in contract.resolve_response(answer).content.iter_members().enumerate() {
            let anchor = format!("answer-{code}-{}", number + 1);
            for mut shape in fields::body_shapes(contract, media, &anchor) {
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
        let groups = group_operations(&contract);
        let commands = groups[0].entries.iter().map(|entry| {
            let page = OperationPage::for_entry(&contract, &groups[0], entry, "https://tc.test");
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
        assert_eq!(link_codes("`a_b`: Why.\n\nElse."), "[`a_b`](/documentation/errors/#a_b): Why.\n\nElse.");
    }
}
