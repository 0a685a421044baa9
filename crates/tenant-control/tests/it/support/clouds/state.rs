//! What a stub knows: accounts, tokens and machines, what it was asked, and what goes wrong.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Value, json};

use super::{digitalocean, hetzner};
use crate::support::receiver::Gate;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    Account,
    /// One machine of the list, to see whether the list may be read.
    ListOne,
    /// A page of the list of machines.
    List,
    /// A page of DigitalOcean's list of machines with GPUs.
    ListGpus,
    /// One machine by its id.
    Get,
    /// The machines of an order.
    Find,
    Create,
    /// A creation without any field, to see whether it may be asked for.
    CheckCreate,
    CheckTag,
    Regions,
    Sizes,
    Images,
    Pricing,
    Other,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct CloudCall {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub token: String,
    pub body: Value,
}

impl CloudCall {
    /// The kind of a request for machines at this path, which both clouds tell apart alike.
    pub(super) fn ask_for_machines(&self, machines: &str, filter: &str) -> Option<Asked> {
        let rest = self.path.strip_prefix(machines)?;
        Some(match (self.method.as_str(), rest) {
            ("GET", "") if self.query.contains_key(filter) => Asked::Find,
            ("GET", "") if self.query.get("per_page").is_some_and(|size| size == "1") => Asked::ListOne,
            ("GET", "") if self.query.get("type").is_some_and(|kind| kind == "gpus") => Asked::ListGpus,
            ("GET", "") => Asked::List,
            ("POST", "") if self.body == json!({}) => Asked::CheckCreate,
            ("POST", "") => Asked::Create,
            ("GET", _) => Asked::Get,
            _ => Asked::Other,
        })
    }

    /// The number behind the path of machines.
    pub(super) fn machine_id(&self) -> Option<u64> {
        self.path.rsplit('/').next()?.parse().ok()
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.query.get(name)?.parse().ok()
    }
}

#[derive(Clone, Debug)]
pub struct StubAnswer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Value,
}

impl StubAnswer {
    pub(super) fn new(status: u16, body: Value) -> StubAnswer {
        StubAnswer { status, headers: Vec::new(), body }
    }
}

/// What goes wrong with a request.
#[derive(Clone, Debug)]
pub enum Fault {
    None,
    /// The connection breaks before anything is done.
    LostRequest,
    /// The connection breaks after it is done.
    LostAnswer,
    /// It is done, and half of the answer's body comes.
    Truncated,
    /// Nothing is done, and this is answered.
    Refused(StubAnswer),
    /// It is done when the gate opens, whoever waits for it then.
    HeldRequest(Gate),
    /// It is done, and answered when the gate opens.
    HeldAnswer(Gate),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    All,
    ReadOnly,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub account: String,
    pub rights: Rights,
}

#[derive(Clone, Debug)]
pub struct StubMachine {
    pub id: u64,
    pub account: String,
    pub name: String,
    pub region: String,
    /// Of Hetzner's alone; an empty one is not told.
    pub zone: String,
    pub size: String,
    pub image: String,
    /// In the cloud's own words.
    pub state: String,
    /// As the cloud has them: an object of labels at Hetzner, a list of words at DigitalOcean.
    pub tags: Value,
    pub ip: String,
    /// Whether lists leave it out.
    pub is_hidden: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Hetzner,
    Digitalocean,
}

pub struct State {
    pub dialect: Dialect,
    pub machines: Vec<StubMachine>,
    pub tokens: HashMap<String, Token>,
    /// Machines on a page, where the request asks for more.
    pub page_max: usize,
    /// Whether the tags of machines are not there yet.
    pub hides_tags: bool,
    /// Whether new machines do not come to run.
    pub keeps_booting: bool,
    pub is_away: bool,
    pub calls: Vec<(Asked, CloudCall)>,
    /// How many of them are done with.
    pub finished: usize,
    pub scripts: HashMap<Asked, VecDeque<Fault>>,
    pub standing: HashMap<Asked, Fault>,
    next_id: u64,
}

impl State {
    pub fn new(dialect: Dialect) -> State {
        State {
            dialect,
            machines: Vec::new(),
            tokens: HashMap::new(),
            page_max: usize::MAX,
            hides_tags: false,
            keeps_booting: false,
            is_away: false,
            calls: Vec::new(),
            finished: 0,
            scripts: HashMap::new(),
            standing: HashMap::new(),
            next_id: 1_001,
        }
    }

    /// Notes a request, and tells what goes wrong with it.
    pub(super) fn begin(&mut self, call: &CloudCall) -> Fault {
        let asked = match self.dialect {
            Dialect::Hetzner => hetzner::classify(call),
            Dialect::Digitalocean => digitalocean::classify(call),
        };
        self.calls.push((asked, call.clone()));
        if self.is_away {
            return Fault::LostRequest;
        }
        let scripted = self.scripts.get_mut(&asked).and_then(VecDeque::pop_front);
        scripted.or_else(|| self.standing.get(&asked).cloned()).unwrap_or(Fault::None)
    }

    /// Does what is asked for.
    pub(super) fn carry_out(&mut self, call: &CloudCall) -> StubAnswer {
        match self.dialect {
            Dialect::Hetzner => hetzner::answer(self, call),
            Dialect::Digitalocean => digitalocean::answer(self, call),
        }
    }

    pub(super) fn insert(&mut self, mut machine: StubMachine) -> StubMachine {
        machine.id = self.next_id;
        machine.ip = format!("203.0.113.{}", self.next_id - 1_000);
        self.next_id += 1;
        self.machines.push(machine.clone());
        machine
    }

    /// The machines that a list shows an account.
    pub(super) fn listed(&self, account: &str) -> Vec<StubMachine> {
        let is_listed = |machine: &&StubMachine| machine.account == account && !machine.is_hidden;
        self.machines.iter().filter(is_listed).cloned().collect()
    }

    pub(super) fn find(&self, account: &str, id: Option<u64>) -> Option<&StubMachine> {
        self.machines.iter().find(|machine| machine.account == account && Some(machine.id) == id)
    }

    /// The rows of the page that is asked for, and the number of the next page.
    pub(super) fn cut_page<T: Clone>(&self, rows: &[T], call: &CloudCall) -> (Vec<T>, Option<usize>) {
        let size = call.number("per_page").unwrap_or(25).min(self.page_max);
        let page = call.number("page").unwrap_or(1);
        let rest = rows.get((page - 1) * size..).unwrap_or_default();
        (rest.iter().take(size).cloned().collect(), (rest.len() > size).then_some(page + 1))
    }
}

/// The text of a field of a body; an empty one if it is not there.
pub(super) fn text(body: &Value, field: &str) -> String {
    body[field].as_str().unwrap_or_default().to_owned()
}
