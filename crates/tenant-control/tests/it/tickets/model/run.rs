//! One sequence in a tenant of its own: each operation is asked of the service and of the plain list, and the answers
//! are held against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kernel::auth::Role;
use kernel::base::{Actor, Timestamp, UserId};
use serde_json::{Value, json};
use tenant_control::features::devices::DeviceId;
use tenant_control::features::organizations::{self, OrganizationId};
use tenant_control::features::tickets::TicketId;
use tenant_control::features::users::{NewUser, create_user};

use super::find::Question;
use super::operations::{Caller, NOBODY, Operation, Query, Version};
use super::plain::{Act, Names, Outcome, Plain};
use crate::support::people::SESSION;
use crate::support::{Answer, Key, Server, Tenancy};
use crate::tickets::TICKETS;

/// More pages than any sequence can fill.
const PAGES_MAX: usize = 500;

pub struct Run {
    server: Arc<Server>,
    tenancy: Tenancy,
    key: Key,
    user: Value,
    plain: Plain,
    /// How often what was asked came to what.
    pub tally: BTreeMap<String, usize>,
}

/// The difference, in words.
pub type Checked = Result<(), String>;

impl Run {
    /// `foreign` is an organization of another tenant.
    pub async fn new(server: Arc<Server>, slug: &str, foreign: &str) -> Run {
        let tenancy = server.tenant(slug).await;
        let key = server.key(&tenancy, &["tickets:*"]).await;
        let me = server.get(SESSION).cookie(&tenancy.admin).await.ok(200);
        let user = json!({"type": "user", "id": me["actor"]["id"], "name": me["actor"]["name"]});
        let world = &server.app.env;
        let colleague = technician(&server, &tenancy, format!("colleague@{slug}.test")).await;
        let other = technician(&server, &tenancy, format!("other@{slug}.test")).await;
        let names = Names(vec![
            ("$globex", organization(&server, &tenancy, "globex").await),
            ("$initech", organization(&server, &tenancy, "initech").await),
            ("$hooli", organization(&server, &tenancy, "hooli").await),
            ("$umbrella", organization(&server, &tenancy, "umbrella").await),
            ("$admin", user["id"].as_str().expect("an id").to_owned()),
            ("$colleague", colleague),
            ("$other", other),
            ("$unknown_organization", OrganizationId::new(world).to_string()),
            ("$foreign_organization", foreign.to_owned()),
            ("$unknown_user", UserId::new(world).to_string()),
            ("$device", DeviceId::new(world).to_string()),
        ]);
        let plain = Plain { names, ..Plain::default() };
        Run { server, tenancy, key, user, plain, tally: BTreeMap::new() }
    }

    pub async fn step(&mut self, operation: &Operation) -> Checked {
        match operation {
            Operation::List { query, between } => self.list(query, between).await,
            Operation::Get { ticket } => self.get(*ticket).await,
            Operation::RefusedList { query, code } => {
                let answer = self.server.get(format!("{TICKETS}?{query}")).key(&self.key.plain).await;
                self.count(&answer, "GET list");
                refused(&answer, 400, &[code], &[])
            }
            _ => self.change(operation).await,
        }
    }

    async fn change(&mut self, operation: &Operation) -> Checked {
        match operation {
            Operation::Pass { ms } => self.server.advance(*ms),
            Operation::Create { by, body } => self.create(*by, body).await?,
            Operation::Patch { by, ticket, version, body } => self.patch(*by, *ticket, *version, body).await?,
            other => unreachable!("{other:?} changes nothing"),
        }
        Ok(())
    }

    async fn create(&mut self, by: Caller, body: &Value) -> Checked {
        let act = self.act(by);
        let outcome = self.plain.create(body, &act);
        let call = self.server.post(TICKETS).json(&self.plain.names.fill_body(body));
        let answer = match by {
            Caller::User => call.cookie(&self.tenancy.admin).await,
            Caller::Key => call.key(&self.key.plain).await,
        };
        self.count(&answer, "POST");
        match outcome {
            Outcome::Refused(status, codes, pointers) => refused(&answer, status, &codes, &pointers),
            Outcome::Done(mut record) => {
                let got = answered(&answer, 201)?;
                let id = got["id"].as_str().unwrap_or_default();
                let last = self.plain.tickets.last().map(|ticket| id_of(&ticket.record)).unwrap_or_default();
                if !id.starts_with("tkt_") || id <= last {
                    return Err(format!("the id {id} does not follow {last}"));
                }
                record["id"] = json!(id);
                same("the created ticket", &record, &got)?;
                self.plain.add(record, &act);
                Ok(())
            }
        }
    }

    async fn patch(&mut self, by: Caller, ticket: usize, version: Version, body: &Value) -> Checked {
        let act = self.act(by);
        let at = self.at(ticket);
        let current = at.map_or(1, |at| self.plain.tickets[at].record["version"].as_i64().unwrap());
        let version = match version {
            Version::Unsaid => None,
            Version::Current => Some(current),
            Version::Old => Some(current - 1),
        };
        let call = self.server.patch(self.target(at)).json(&self.plain.names.fill_body(body));
        let call = version.iter().fold(call, |call, version| call.header("if-match", format!("\"{version}\"")));
        let answer = match by {
            Caller::User => call.cookie(&self.tenancy.admin).await,
            Caller::Key => call.key(&self.key.plain).await,
        };
        self.count(&answer, "PATCH");
        match self.plain.patch(at, body, version, &act) {
            Outcome::Refused(status, codes, pointers) => refused(&answer, status, &codes, &pointers),
            Outcome::Done(record) => {
                same("the changed ticket", &record, &answered(&answer, 200)?)?;
                let tag = format!("\"{}\"", record["version"]);
                if answer.header("etag") == tag { Ok(()) } else { Err(format!("the ETag is not {tag}")) }
            }
        }
    }

    async fn get(&mut self, ticket: usize) -> Checked {
        let at = self.at(ticket);
        let answer = self.server.get(self.target(at)).key(&self.key.plain).await;
        self.count(&answer, "GET one");
        let Some(at) = at else { return refused(&answer, 404, &["not_found"], &[]) };
        let got = answered(&answer, 200)?;
        let ticket = &mut self.plain.tickets[at];
        // The ids of comments are the service's own; what was seen once must stay.
        let comments = got["comments"].as_array().cloned().unwrap_or_default();
        for (known, shown) in ticket.comments.iter_mut().zip(&comments) {
            if known["id"].is_null() {
                known["id"] = shown["id"].clone();
            }
        }
        let ids: Vec<&str> = comments.iter().map(id_of).collect();
        if !ids.is_sorted() || ids.iter().any(|id| !id.starts_with("cmt_")) {
            return Err(format!("the ids of the comments are out of order: {ids:?}"));
        }
        let mut expected = ticket.record.clone();
        expected["comments"] = json!(ticket.comments);
        expected["history"] = json!(ticket.history);
        same("the whole ticket", &expected, &got)
    }

    async fn list(&mut self, query: &Query, between: &[Operation]) -> Checked {
        let question = self.question(query);
        let mut changes = between.iter();
        let before: Vec<Value> = question.answer(self.records(), &self.plain.changes).into_iter().cloned().collect();
        let mut seen: Vec<Value> = Vec::new();
        let mut cursor = None;
        for page in 0.. {
            if page == PAGES_MAX {
                return Err("the pages have no end".to_owned());
            }
            let answer = self.server.get(target(&question, cursor.as_deref())).key(&self.key.plain).await;
            self.count(&answer, "GET list");
            let got = answered(&answer, 200)?;
            let rows = got["data"].as_array().cloned().unwrap_or_default();
            self.check_page(&question, &rows, &got)?;
            *self.tally.entry("rows listed".to_owned()).or_default() += rows.len();
            seen.extend(rows);
            cursor = got["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
            if let Some(change) = changes.next() {
                self.change(change).await?;
                *self.tally.entry("changes between pages".to_owned()).or_default() += 1;
            }
        }
        self.check_walk(&question, &before, &seen)
    }

    /// A page is a page, its rows are as they are now, wanted and in order.
    fn check_page(&self, question: &Question, rows: &[Value], got: &Value) -> Checked {
        let limit = question.limit.unwrap_or(50);
        if got["has_more"] != got["next_cursor"].is_string() || rows.len() > limit {
            return Err(format!("no page of {limit}: {got}"));
        }
        if got["has_more"] == true && rows.len() != limit {
            return Err(format!("a page of {} of {limit} says that there is more", rows.len()));
        }
        let numbers: Vec<&Value> = rows.iter().map(|row| &row["number"]).collect();
        for row in rows {
            let known = self.records().find(|record| record["id"] == row["id"]);
            same("a listed ticket", known.unwrap_or(&Value::Null), row)?;
            if !question.wants(row) {
                return Err(format!("ticket {} was not asked for", row["number"]));
            }
        }
        let ordered = rows.is_sorted_by(|a, b| question.compare(a, b, &self.plain.changes).is_lt());
        if ordered { Ok(()) } else { Err(format!("the page {numbers:?} is not in order")) }
    }

    /// A row that did not change appears exactly once, in order, and none twice unless it changed.
    fn check_walk(&self, question: &Question, before: &[Value], seen: &[Value]) -> Checked {
        let still: BTreeSet<&str> = self.records().filter(|record| before.contains(record)).map(id_of).collect();
        let expected: Vec<&str> = before.iter().map(id_of).filter(|id| still.contains(id)).collect();
        let got: Vec<&str> = seen.iter().map(id_of).filter(|id| still.contains(id)).collect();
        if expected != got {
            let number = |id: &&str| self.records().find(|record| id_of(record) == *id).map(|record| &record["number"]);
            let (expected, got): (Vec<_>, Vec<_>) =
                (expected.iter().filter_map(number).collect(), got.iter().filter_map(number).collect());
            return Err(format!(
                "of what did not change the list {question:?} must show {expected:?}, and shows {got:?}"
            ));
        }
        let states: BTreeSet<(&str, i64)> =
            seen.iter().map(|row| (id_of(row), row["version"].as_i64().unwrap())).collect();
        if states.len() == seen.len() { Ok(()) } else { Err("a row comes twice without having changed".to_owned()) }
    }

    fn act(&self, by: Caller) -> Act {
        let actor = match by {
            Caller::User => self.user.clone(),
            Caller::Key => json!({"type": "api_key", "id": self.key.id, "name": self.key.record["name"]}),
        };
        Act { actor, now: self.server.now().to_string() }
    }

    /// Which of the tickets is meant; none before there is any.
    fn at(&self, ticket: usize) -> Option<usize> {
        (!self.plain.tickets.is_empty() && ticket != NOBODY).then(|| ticket % self.plain.tickets.len())
    }

    fn target(&self, at: Option<usize>) -> String {
        let nobody = || TicketId::new(&self.server.app.env).to_string();
        let id = at.map_or_else(nobody, |at| id_of(&self.plain.tickets[at].record).to_owned());
        format!("{TICKETS}?id={id}")
    }

    fn records(&self) -> impl Iterator<Item = &Value> {
        self.plain.tickets.iter().map(|ticket| &ticket.record)
    }

    fn question(&self, query: &Query) -> Question {
        let mut filters: Vec<(&str, String)> =
            query.filters.iter().map(|(name, text)| (*name, self.plain.names.fill(text))).collect();
        if let Some((name, ticket, ms)) = query.since {
            let field = name.replace("since", "at");
            let at = self.at(ticket).and_then(|at| self.plain.tickets[at].record[field].as_str());
            let at = at.map_or(self.server.now(), |text| Timestamp::parse(text).expect("a time"));
            filters.push((name, at.plus_ms(ms).to_string()));
        }
        Question { filters, sort: query.sort, limit: query.limit }
    }

    fn count(&mut self, answer: &Answer, what: &str) {
        let code = if answer.status < 400 { Value::Null } else { answer.json()["code"].clone() };
        let code = code.as_str().unwrap_or_default();
        *self.tally.entry(format!("{what} {} {code}", answer.status).trim_end().to_owned()).or_default() += 1;
    }
}

async fn technician(server: &Server, tenancy: &Tenancy, email: String) -> String {
    let new = NewUser { email, name: None, role: Role::Technician, platform_operator: false };
    create_user(&server.app.store, &tenancy.tenant, new).await.expect("a user").id.to_string()
}

pub async fn organization(server: &Server, tenancy: &Tenancy, slug: &str) -> String {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    organizations::create_named_organization(&db, slug, slug).await.expect("an organization").id.to_string()
}

fn id_of(record: &Value) -> &str {
    record["id"].as_str().unwrap_or_default()
}

fn target(question: &Question, cursor: Option<&str>) -> String {
    let mut all: Vec<String> =
        question.filters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    all.extend(question.sort.map(|sort| format!("sort={sort}")));
    all.extend(question.limit.map(|limit| format!("limit={limit}")));
    all.extend(cursor.map(|cursor| format!("cursor={cursor}")));
    format!("{TICKETS}?{}", all.join("&"))
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02X}"))
}

fn answered(answer: &Answer, status: u16) -> Result<Value, String> {
    let body = String::from_utf8_lossy(&answer.body);
    if answer.status == status {
        Ok(answer.json())
    } else {
        Err(format!("{status} expected, not {}: {body}", answer.status))
    }
}

fn refused(answer: &Answer, status: u16, codes: &[&str], pointers: &[String]) -> Checked {
    let body = answered(answer, status)?;
    let mut named: Vec<&str> = Vec::new();
    for error in body["errors"].as_array().into_iter().flatten() {
        named.push(error["pointer"].as_str().unwrap_or_default());
    }
    named.sort_unstable();
    if codes.contains(&body["code"].as_str().unwrap_or_default()) && named == *pointers {
        return Ok(());
    }
    Err(format!("{codes:?} at {pointers:?} expected, not {body}"))
}

/// Names the fields that differ.
fn same(what: &str, expected: &Value, got: &Value) -> Checked {
    let empty = serde_json::Map::new();
    let (expected, got) = (expected.as_object().unwrap_or(&empty), got.as_object().unwrap_or(&empty));
    let names: BTreeSet<&String> = expected.keys().chain(got.keys()).collect();
    let differ = names.into_iter().filter(|name| expected.get(*name) != got.get(*name));
    let told: Vec<String> = differ
        .map(|name| {
            let text = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
            format!("{name} must be {} and is {}", text(expected.get(name)), text(got.get(name)))
        })
        .collect();
    if told.is_empty() { Ok(()) } else { Err(format!("{what}: {}", told.join("; "))) }
}
