//! What a receiver remembers, and what it was told to do.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::Notify;

use super::Behaviour;

/// How many requests a failed wait names.
const SUMMARY_MAX: usize = 50;

pub(super) type Choose = Box<dyn Fn(usize, &str) -> Behaviour + Send + Sync>;

/// A complete request. Header names are in lower case, and the values of a repeated one are joined by commas.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Received {
    /// Empty when there is none.
    pub fn webhook_id(&self) -> &str {
        self.headers.get("webhook-id").map_or("", String::as_str)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }
}

/// What became of one webhook-id on one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Complete requests.
    pub requests: usize,
    /// Whole answers of 2xx.
    pub acknowledged: usize,
    /// Answers of 2xx that a sender may count or not: without an end, cut off, or with a monstrous head.
    pub doubtful: usize,
}

#[derive(Clone, Copy)]
pub(super) enum Verdict {
    Acknowledged,
    /// The acknowledgement could not be sent, so it was none.
    TakenBack,
    Doubtful,
    Refused,
}

#[derive(Default)]
pub(super) struct Log {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
pub(super) struct State {
    pub received: Vec<Received>,
    pub paths: HashMap<String, Path>,
    pub connections: usize,
    pub tallies_only: bool,
    pub reset_connections: bool,
    rules: HashMap<String, Rule>,
}

/// What came on one path.
#[derive(Default)]
pub(super) struct Path {
    pub count: usize,
    /// How many of the tallies have an acknowledgement.
    pub acknowledged: usize,
    pub tallies: HashMap<String, Tally>,
}

struct Rule {
    used: usize,
    choose: Choose,
}

impl Log {
    pub fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.lock().unwrap())
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.lock().unwrap());
        self.changed.notify_waiters();
        changed
    }

    pub async fn until(&self, enough: impl Fn() -> bool) {
        loop {
            // Made before the look, so that a change between look and wait is not missed.
            let changed = self.changed.notified();
            if enough() {
                return;
            }
            changed.await;
        }
    }

    /// Counts a connection, and tells whether it is to be reset.
    pub fn accepted(&self) -> bool {
        self.change(|state| {
            state.connections += 1;
            state.reset_connections
        })
    }

    pub fn set_rule(&self, path: &str, choose: Choose) {
        self.change(|state| state.rules.insert(path.to_owned(), Rule { used: 0, choose }));
    }

    pub fn choose(&self, request: &Received) -> Behaviour {
        let mut state = self.state.lock().unwrap();
        let Some(rule) = state.rules.get_mut(&request.path) else { return Behaviour::Answer(204) };
        rule.used += 1;
        (rule.choose)(rule.used - 1, request.webhook_id())
    }

    /// Counts a complete request, with what is known to become of it.
    pub fn record(&self, request: &Received, verdict: Verdict) {
        self.change(|state| {
            let path = state.paths.entry(request.path.clone()).or_default();
            path.count += 1;
            path.tallies.entry(request.webhook_id().to_owned()).or_default().requests += 1;
            path.judge(request.webhook_id(), verdict);
            if !state.tallies_only {
                state.received.push(request.clone());
            }
        });
    }

    /// What becomes of a request that was counted before; what was forgotten meanwhile stays forgotten.
    pub fn judge(&self, request: &Received, verdict: Verdict) {
        self.change(|state| {
            if let Some(path) = state.paths.get_mut(&request.path) {
                path.judge(request.webhook_id(), verdict);
            }
        });
    }

    pub fn summary(&self) -> String {
        self.read(|state| {
            let counts = state.paths.iter().map(|(path, came)| format!("{path}: {} in all\n", came.count));
            let last = state.received.iter().rev().take(SUMMARY_MAX);
            let lines = last.map(|request| format!("{} {} {}\n", request.method, request.path, request.webhook_id()));
            counts.chain(lines).collect()
        })
    }
}

impl Path {
    fn judge(&mut self, webhook_id: &str, verdict: Verdict) {
        let Some(tally) = self.tallies.get_mut(webhook_id) else { return };
        let before = tally.acknowledged;
        match verdict {
            Verdict::Acknowledged => tally.acknowledged += 1,
            Verdict::TakenBack => tally.acknowledged = before.saturating_sub(1),
            Verdict::Doubtful => tally.doubtful += 1,
            Verdict::Refused => {}
        }
        self.acknowledged += usize::from(tally.acknowledged > 0);
        self.acknowledged -= usize::from(before > 0);
    }
}
