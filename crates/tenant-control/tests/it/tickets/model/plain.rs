//! Tickets as the contract describes them, in a list in memory: the rules written a second time, as plainly as they can
//! be, and without a look at those of the service.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::find::Changes;
use super::vocabulary::{MOMENTS, REFUSED, REFUSED_IN_CREATE};

/// What a request must come to.
#[derive(Clone, Debug)]
pub enum Outcome {
    Done(Value),
    /// With one of these codes, and at these pointers.
    Refused(u16, Vec<&'static str>, Vec<String>),
}

#[derive(Clone, Debug)]
pub struct Ticket {
    pub record: Value,
    pub comments: Vec<Value>,
    pub history: Vec<Value>,
}

/// Who acts, and when.
#[derive(Clone, Debug)]
pub struct Act {
    pub actor: Value,
    pub now: String,
}

#[derive(Clone, Debug, Default)]
pub struct Plain {
    /// The first has the number 1.
    pub tickets: Vec<Ticket>,
    pub names: Names,
    pub changes: Changes,
    /// How many changes there have been.
    pub changed: usize,
}

/// What each `$name` of the vocabulary stands for.
#[derive(Clone, Debug, Default)]
pub struct Names(pub Vec<(&'static str, String)>);

impl Names {
    pub fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, id)| text.replace(name, id))
    }

    pub fn fill_body(&self, body: &Value) -> Value {
        parse(&self.fill(&body.to_string()))
    }
}

impl Plain {
    pub fn create(&self, body: &Value, act: &Act) -> Outcome {
        let filled = self.names.fill_body(body);
        let (given, body) = (body.as_object().expect("an object"), filled.as_object().expect("an object"));
        let mut pointers = refused_fields(given, true);
        if !body.contains_key("subject") {
            pointers.push("/subject".to_owned());
        }
        if !pointers.is_empty() {
            return refuse_fields(pointers);
        }
        if self.has_external_id(body, None) {
            return Outcome::Refused(409, vec!["conflict"], Vec::new());
        }
        let source = if act.actor["type"] == "user" { "ui" } else { "api" };
        let mut record = json!({
            "number": self.tickets.len() + 1, "description": null, "type": "incident", "status": "new",
            "priority": "medium", "organization_id": null, "requester": null, "assignee_id": null, "team": null,
            "category": null, "tags": [], "custom_fields": {}, "device_ids": [], "external_id": null,
            "source": source, "due_at": null, "first_response_due_at": null, "first_responded_at": null,
            "resolution_due_at": null, "resolved_at": null, "closed_at": null, "sla_state": "none",
            "comment_count": 0, "version": 1, "created_at": act.now, "updated_at": act.now,
        });
        apply(&mut record, body);
        Outcome::Done(record)
    }

    /// Takes up a ticket that was made.
    pub fn add(&mut self, record: Value, act: &Act) {
        let begun = json!({"at": act.now, "actor": act.actor, "changes": {"status": {"from": null, "to": "new"}}});
        self.note(&record);
        self.tickets.push(Ticket { record, comments: Vec::new(), history: vec![begun] });
    }

    /// Changes a ticket, or nothing where the request must be refused. `at` is none where no ticket is named.
    pub fn patch(&mut self, at: Option<usize>, body: &Value, version: Option<i64>, act: &Act) -> Outcome {
        let filled = self.names.fill_body(body);
        let (given, body) = (body.as_object().expect("an object"), filled.as_object().expect("an object"));
        let pointers = refused_fields(given, false);
        if !pointers.is_empty() {
            return refuse_fields(pointers);
        }
        let Some(at) = at else { return Outcome::Refused(404, vec!["not_found"], Vec::new()) };
        let old = self.tickets[at].record.clone();
        if version.is_some_and(|version| old["version"] != version) {
            return Outcome::Refused(412, vec!["version_mismatch"], Vec::new());
        }
        let mut codes = Vec::new();
        if !may_become(&old["status"], body.get("status")) {
            codes.push("invalid_transition");
        }
        if self.has_external_id(body, Some(at)) {
            codes.push("conflict");
        }
        if !codes.is_empty() {
            return Outcome::Refused(409, codes, Vec::new());
        }
        change(&mut self.tickets[at], body, act);
        let record = self.tickets[at].record.clone();
        if record["version"] != old["version"] {
            self.note(&record);
        }
        Outcome::Done(record)
    }

    fn note(&mut self, record: &Value) {
        self.changed += 1;
        self.changes.insert(record["id"].as_str().expect("an id").to_owned(), self.changed);
    }

    fn has_external_id(&self, body: &Map<String, Value>, but: Option<usize>) -> bool {
        let wanted = body.get("external_id").filter(|id| id.is_string());
        let others = self.tickets.iter().enumerate().filter(|(at, _)| Some(*at) != but);
        wanted.is_some_and(|id| others.into_iter().any(|(_, ticket)| ticket.record["external_id"] == *id))
    }
}

fn refuse_fields(mut pointers: Vec<String>) -> Outcome {
    pointers.sort();
    pointers.dedup();
    Outcome::Refused(422, vec!["invalid_fields"], pointers)
}

/// Every field that is wrong, at once.
fn refused_fields(body: &Map<String, Value>, in_create: bool) -> Vec<String> {
    let more = if in_create { REFUSED_IN_CREATE } else { &[] };
    let known: Vec<(&str, Value, &str)> =
        REFUSED.iter().chain(more).map(|(name, text, pointer)| (*name, parse(text), *pointer)).collect();
    let wrong = known.iter().filter(|(name, value, _)| body.get(*name) == Some(value));
    wrong.map(|(_, _, pointer)| (*pointer).to_owned()).collect()
}

pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn may_become(from: &Value, to: Option<&Value>) -> bool {
    let (from, Some(to)) = (from.as_str().unwrap(), to.and_then(Value::as_str)) else { return true };
    let works = ["open", "in_progress", "pending", "on_hold"];
    match (from, to) {
        _ if from == to => true,
        (_, "new") => false,
        ("resolved", "closed") => true,
        ("resolved" | "closed" | "cancelled", _) => to == "open",
        (_, "resolved" | "cancelled") => true,
        _ => works.contains(&to),
    }
}

fn change(ticket: &mut Ticket, body: &Map<String, Value>, act: &Act) {
    let old = ticket.record.clone();
    let record = &mut ticket.record;
    apply(record, body);
    let (was, is) = (old["status"].as_str().unwrap(), record["status"].as_str().unwrap().to_owned());
    if was != is {
        match is.as_str() {
            "resolved" => record["resolved_at"] = json!(act.now),
            "closed" => record["closed_at"] = json!(act.now),
            "open" => (record["resolved_at"], record["closed_at"]) = (Value::Null, Value::Null),
            _ => {}
        }
    }
    if let Some(comment) = body.get("comment") {
        let public = comment.get("public").is_none_or(|public| public == true);
        if public && record["first_responded_at"].is_null() {
            record["first_responded_at"] = json!(act.now);
        }
        record["comment_count"] = json!(ticket.comments.len() + 1);
        let said = json!({
            "id": null, "body": comment["body"], "public": public, "author": act.actor, "created_at": act.now,
        });
        ticket.comments.push(said);
    }
    if *record == old {
        return;
    }
    // Neither of them is a change of its own.
    let told = |name: &&String| *name != "comment_count" && old[name.as_str()] != record[name.as_str()];
    let names: Vec<String> = old.as_object().unwrap().keys().filter(told).cloned().collect();
    let changes: BTreeMap<&String, Value> =
        names.iter().map(|name| (name, json!({"from": old[name], "to": record[name]}))).collect();
    if !changes.is_empty() {
        ticket.history.push(json!({"at": act.now, "actor": act.actor, "changes": changes}));
    }
    record["version"] = json!(old["version"].as_i64().unwrap() + 1);
    record["updated_at"] = json!(act.now);
}

/// A merge patch; the comment is none of the ticket's fields.
fn apply(record: &mut Value, body: &Map<String, Value>) {
    for (name, value) in body.iter().filter(|(name, _)| *name != "comment") {
        record[name] = match (name.as_str(), value) {
            ("tags" | "device_ids", Value::Null) => json!([]),
            ("custom_fields", Value::Null) => json!({}),
            ("custom_fields", _) => merged(&record[name], value),
            ("requester", Value::Object(given)) => requester(&record[name], given),
            ("due_at", Value::String(text)) => json!(shown(text)),
            _ => value.clone(),
        };
    }
}

/// RFC 7396.
fn merged(old: &Value, patch: &Value) -> Value {
    let Some(patch) = patch.as_object() else { return patch.clone() };
    let mut new = old.as_object().cloned().unwrap_or_default();
    for (name, value) in patch {
        if value.is_null() {
            new.remove(name);
        } else {
            new.insert(name.clone(), merged(old.get(name).unwrap_or(&Value::Null), value));
        }
    }
    Value::Object(new)
}

/// Both fields are always there; nobody at all is null.
fn requester(old: &Value, given: &Map<String, Value>) -> Value {
    let part = |name: &str| given.get(name).unwrap_or(&old[name]).clone();
    let (name, email) = (part("name"), part("email"));
    if name.is_null() && email.is_null() { Value::Null } else { json!({"name": name, "email": email}) }
}

/// A time of the vocabulary as it is shown: in UTC, with milliseconds.
fn shown(text: &str) -> &'static str {
    MOMENTS.iter().find(|(given, _)| *given == text).expect("a moment of the vocabulary").1
}
