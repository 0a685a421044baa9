//! Clients that write all the time and keep a ledger of what the server has acknowledged.
//!
//! Each write is an API key of its own name, made and then revoked; the name is also the `Idempotency-Key`, so that
//! what was not answered can be asked again, and a duplicate would show as two keys of one name.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::process::until;

const KEYS: &str = "/api/admin/api-keys";

/// Longer than the server's own limit of 30 s: a client that gives up first would hide a hang.
const CLIENT_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a client waits before it repeats a refused request. The server asks for seconds; tests are less patient.
const REPEAT_AFTER: Duration = Duration::from_millis(20);

/// How long repeating what was not answered may take.
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// One client of one running server.
#[derive(Clone)]
pub struct Api {
    client: Client,
    url: String,
    cookie: String,
}

pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Reply {
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn text(&self, field: &str) -> String {
        self.body[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.body)).to_owned()
    }
}

impl Api {
    pub fn new(url: String, cookie: &str) -> Api {
        let client = Client::builder().no_proxy().timeout(CLIENT_TIMEOUT).build().unwrap();
        Api { client, url, cookie: cookie.to_owned() }
    }

    /// An error is the absence of an answer.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        more: &[(&str, &str)],
        body: Option<&Value>,
    ) -> reqwest::Result<Reply> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if !self.cookie.is_empty() {
            request = request.header("cookie", &self.cookie);
        }
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?;
        Ok(Reply { status, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
    }

    pub async fn get(&self, path: &str) -> reqwest::Result<Reply> {
        self.ask(Method::GET, path, &[], None).await
    }

    /// The list of keys as the bearer of this key gets it.
    pub async fn list_with_key(&self, key: &str) -> reqwest::Result<Reply> {
        self.ask(Method::GET, KEYS, &[("x-api-key", key)], None).await
    }

    pub async fn status(&self, path: &str) -> Option<u16> {
        self.get(path).await.ok().map(|reply| reply.status)
    }

    /// Makes a key; its name is also the `Idempotency-Key`.
    pub async fn create_key(&self, name: &str) -> reqwest::Result<Reply> {
        let body = json!({"name": name, "scopes": ["api_keys:read"]});
        self.ask(Method::POST, KEYS, &[("idempotency-key", name)], Some(&body)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> reqwest::Result<Reply> {
        self.ask(Method::POST, path, &[], Some(body)).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> reqwest::Result<Reply> {
        self.ask(Method::PATCH, path, &[], Some(body)).await
    }

    pub async fn revoke_key(&self, id: &str) -> reqwest::Result<Reply> {
        self.ask(Method::DELETE, &format!("{KEYS}?id={id}"), &[], None).await
    }

    /// Every key whose name begins so, as (name, id, status). They must be the newest ones.
    pub async fn keys(&self, prefix: &str) -> Vec<(String, String, String)> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("{KEYS}?status=active,expired,revoked&limit=200{cursor}");
            let page = self.get(&path).await.expect("a list");
            assert_eq!(page.status, 200, "{}", page.body);
            let before = found.len();
            for key in page.body["data"].as_array().expect("rows") {
                let text = |field: &str| key[field].as_str().expect("a text").to_owned();
                if text("name").starts_with(prefix) {
                    found.push((text("name"), text("id"), text("status")));
                }
            }
            match page.body["next_cursor"].as_str() {
                Some(next) if found.len() > before => cursor = format!("&cursor={next}"),
                _ => return found,
            }
        }
    }
}

/// What a client knows of one key.
#[derive(Clone, Debug)]
pub struct Note {
    pub name: String,
    /// Known when the making was acknowledged.
    pub id: Option<String>,
    pub revocation: Revocation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    NotAsked,
    Unanswered,
    Acknowledged,
}

/// What the clients have seen of the server.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub statuses: BTreeMap<u16, usize>,
    /// Requests that got no answer at all.
    pub unanswered: usize,
    /// Answers that nobody should get, whatever fails.
    pub wrong: Vec<String>,
    pub slowest: Duration,
}

/// Clients at work.
pub struct Load {
    shared: Arc<Shared>,
    writers: JoinSet<()>,
}

/// What a client asks for.
#[derive(Clone, Copy)]
enum Wish<'a> {
    Make(&'a str),
    Revoke(&'a str),
}

struct Shared {
    api: Api,
    label: String,
    stop: AtomicBool,
    acknowledged: AtomicUsize,
    notes: Mutex<Vec<Note>>,
    seen: Mutex<Seen>,
}

impl Load {
    /// `label` begins the names of all keys of this load.
    pub fn start(api: &Api, label: &str, writers: usize) -> Load {
        let shared = Arc::new(Shared {
            api: api.clone(),
            label: label.to_owned(),
            stop: AtomicBool::new(false),
            acknowledged: AtomicUsize::new(0),
            notes: Mutex::default(),
            seen: Mutex::default(),
        });
        let tasks = (0..writers).map(|writer| shared.clone().write(writer));
        Load { writers: tasks.collect(), shared }
    }

    pub fn acknowledged(&self) -> usize {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    pub fn seen(&self) -> Seen {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Waits for this many more acknowledged writes.
    pub async fn progress(&self, count: usize, limit: Duration) {
        let goal = self.acknowledged() + count;
        until("the clients' writes are acknowledged", limit, async || (self.acknowledged() >= goal).then_some(()))
            .await;
    }

    /// Lets the clients end what they have begun, and hands over their ledger.
    pub async fn finish(self) -> (Vec<Note>, Seen) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.writers.join_all().await;
        let notes = std::mem::take(&mut *self.shared.notes.lock().unwrap());
        let seen = self.shared.seen.lock().unwrap().clone();
        (notes, seen)
    }
}

impl Shared {
    /// One key after the other, until told to stop or the server is gone.
    async fn write(self: Arc<Self>, writer: usize) {
        for number in 0.. {
            let name = format!("{}-{writer}-{number}", self.label);
            let mut note = Note { name, id: None, revocation: Revocation::NotAsked };
            let done = self.make_and_revoke(&mut note).await;
            self.notes.lock().unwrap().push(note);
            if done.is_none() || self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    async fn make_and_revoke(&self, note: &mut Note) -> Option<()> {
        let id = self.repeat(Wish::Make(&note.name)).await?.text("id");
        note.id = Some(id.clone());
        note.revocation = Revocation::Unanswered;
        self.repeat(Wish::Revoke(&id)).await?;
        note.revocation = Revocation::Acknowledged;
        Some(())
    }

    /// Asks as a good client does: what is refused for now is asked again. None when there is no answer to be had.
    async fn repeat(&self, wish: Wish<'_>) -> Option<Reply> {
        let mut in_doubt = false;
        loop {
            let started = Instant::now();
            let answer = match wish {
                Wish::Make(name) => self.api.create_key(name).await,
                Wish::Revoke(id) => self.api.revoke_key(id).await,
            };
            if let ControlFlow::Break(end) = self.judge(wish, in_doubt, answer, started.elapsed()) {
                return end;
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            in_doubt = true;
            tokio::time::sleep(REPEAT_AFTER).await;
        }
    }

    /// Notes what was seen, and decides whether to ask again. `in_doubt`: the server has refused this request before,
    /// which may mean that it was done and only the word of it was lost.
    fn judge(
        &self,
        wish: Wish<'_>,
        in_doubt: bool,
        answer: reqwest::Result<Reply>,
        took: Duration,
    ) -> ControlFlow<Option<Reply>> {
        let mut seen = self.seen.lock().unwrap();
        seen.slowest = seen.slowest.max(took);
        let Ok(reply) = answer else {
            seen.unanswered += 1;
            return ControlFlow::Break(None);
        };
        *seen.statuses.entry(reply.status).or_default() += 1;
        match (wish, reply.status, reply.code()) {
            (Wish::Make(_), 201, _) | (Wish::Revoke(_), 204, _) => {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                ControlFlow::Break(Some(reply))
            }
            (Wish::Revoke(_), 409, "conflict") if in_doubt => ControlFlow::Break(Some(reply)),
            (Wish::Make(_), 409, "idempotency_in_progress") if in_doubt => ControlFlow::Continue(()),
            (_, 503, "unavailable") if reply.header("retry-after").is_some() => ControlFlow::Continue(()),
            (_, status, _) => {
                seen.wrong.push(format!("{status} {}", reply.body));
                ControlFlow::Break(None)
            }
        }
    }
}

/// How the server's records differ from what it has acknowledged.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub lost: Vec<String>,
    pub doubled: Vec<String>,
}

/// Compares the ledger with the server's records. `prefix` begins the names of the ledger's keys and of no older ones.
pub async fn verify(api: &Api, prefix: &str, notes: &[Note]) -> Verdict {
    let mut rows: HashMap<String, Vec<(String, String)>> = HashMap::new();
    for (name, id, status) in api.keys(prefix).await {
        rows.entry(name).or_default().push((id, status));
    }
    let mut verdict = Verdict::default();
    for note in notes {
        let found = rows.get(&note.name).map_or(&[][..], Vec::as_slice);
        if found.len() > 1 {
            verdict.doubled.push(format!("{note:?}: {found:?}"));
        }
        let Some(id) = &note.id else { continue };
        let kept = found
            .iter()
            .any(|(known, status)| known == id && (note.revocation != Revocation::Acknowledged || status == "revoked"));
        if !kept {
            verdict.lost.push(format!("{note:?}: {found:?}"));
        }
    }
    verdict
}

/// Asks again what was not answered, until everything is. Returns how many keys of the unanswered requests had been
/// made after all.
pub async fn settle(api: &Api, notes: &mut [Note]) -> usize {
    let mut replayed = 0;
    for note in notes.iter_mut().filter(|note| note.revocation != Revocation::Acknowledged) {
        let id = if let Some(id) = note.id.clone() {
            id
        } else {
            let send = async || api.create_key(&note.name).await.ok().filter(|reply| reply.status == 201);
            let reply = until("the repeated request is answered", SETTLE_MAX, send).await;
            replayed += usize::from(reply.header("idempotency-replayed").is_some());
            reply.text("id")
        };
        let send = async || api.revoke_key(&id).await.ok().filter(|reply| [204, 409].contains(&reply.status));
        until("the key is revoked", SETTLE_MAX, send).await;
        note.id = Some(id);
        note.revocation = Revocation::Acknowledged;
    }
    replayed
}
