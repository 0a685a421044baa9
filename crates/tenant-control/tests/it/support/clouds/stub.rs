//! A cloud of the tests' own: what a test makes of it, does to it and asks it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use kernel::base::Timestamp;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::state::{Asked, CloudCall, Dialect, Fault, Rights, State, StubAnswer, StubMachine, Token};
use super::{WORK_MAX, digitalocean, hetzner, wire};
use crate::support::process::until;

/// A running stub. It ends with this value.
pub struct CloudStub {
    dialect: Dialect,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

impl CloudStub {
    async fn start(dialect: Dialect) -> CloudStub {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::new(dialect)));
        let accepting = tokio::spawn(accept(listener, state.clone()));
        CloudStub { dialect, address, state, accepting }
    }

    pub async fn start_hetzner() -> CloudStub {
        CloudStub::start(Dialect::Hetzner).await
    }

    pub async fn start_digitalocean() -> CloudStub {
        CloudStub::start(Dialect::Digitalocean).await
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap())
    }

    fn is_hetzner(&self) -> bool {
        self.dialect == Dialect::Hetzner
    }

    pub fn kind(&self) -> &'static str {
        if self.is_hetzner() { "hetzner" } else { "digitalocean" }
    }

    /// What `--cloud-endpoint` takes.
    pub fn endpoint(&self) -> String {
        let version = if self.is_hetzner() { "v1" } else { "v2" };
        format!("{}=http://{}/{version}", self.kind(), self.address)
    }

    /// A region of it, in which providers of tests are.
    pub fn region(&self) -> &'static str {
        if self.is_hetzner() { "fsn1" } else { "fra1" }
    }

    /// The state of a machine that runs.
    pub fn running(&self) -> &'static str {
        if self.is_hetzner() { "running" } else { "active" }
    }

    /// A new token of an account.
    pub fn token(&self, account: &str, rights: Rights) -> String {
        self.with(|state| {
            let token = format!("stub-token-of-{account}-{:04}", state.tokens.len() + 1);
            state.tokens.insert(token.clone(), Token { account: account.to_owned(), rights });
            token
        })
    }

    pub fn set_rights(&self, token: &str, rights: Rights) {
        self.with(|state| state.tokens.get_mut(token).expect("a token").rights = rights);
    }

    /// From now on the token is refused.
    pub fn revoke(&self, token: &str) {
        self.with(|state| state.tokens.remove(token));
    }

    /// A machine that somebody has made in the cloud's own console, and its id.
    pub fn add(&self, account: &str, name: &str) -> u64 {
        let tags = if self.is_hetzner() { json!({}) } else { json!([]) };
        self.with(|state| {
            let machine = StubMachine {
                id: 0,
                account: account.to_owned(),
                name: name.to_owned(),
                region: self.region().to_owned(),
                zone: String::new(),
                size: self.size().to_owned(),
                image: self.image().to_owned(),
                state: self.running().to_owned(),
                tags,
                ip: String::new(),
                is_hidden: false,
            };
            state.insert(machine).id
        })
    }

    pub fn size(&self) -> &'static str {
        if self.is_hetzner() { "cx22" } else { "s-1vcpu-1gb" }
    }

    pub fn image(&self) -> &'static str {
        if self.is_hetzner() { "debian-13" } else { "debian-13-x64" }
    }

    pub fn change(&self, id: u64, change: impl FnOnce(&mut StubMachine)) {
        self.with(|state| change(state.machines.iter_mut().find(|machine| machine.id == id).expect("a machine")));
    }

    pub fn remove(&self, id: u64) {
        self.with(|state| state.machines.retain(|machine| machine.id != id));
    }

    pub fn machines(&self) -> Vec<StubMachine> {
        self.with(|state| state.machines.clone())
    }

    /// What goes wrong with the next requests of a kind, one after the other; those after them are as ever.
    pub fn on(&self, asked: Asked, script: impl IntoIterator<Item = Fault>) {
        self.with(|state| state.scripts.insert(asked, script.into_iter().collect()));
    }

    /// What goes wrong with every request of a kind, until it is [`Fault::None`].
    pub fn always(&self, asked: Asked, fault: Fault) {
        self.with(|state| state.standing.insert(asked, fault));
    }

    /// Breaks every connection, or none any more.
    pub fn set_away(&self, is_away: bool) {
        self.with(|state| state.is_away = is_away);
    }

    /// So many machines are on a page at most. With none, a list goes on for ever.
    pub fn set_page_max(&self, page_max: usize) {
        self.with(|state| state.page_max = page_max);
    }

    /// Whether tags are there later than their machines.
    pub fn set_hides_tags(&self, hides_tags: bool) {
        self.with(|state| state.hides_tags = hides_tags);
    }

    /// Whether new machines do not come to run.
    pub fn set_keeps_booting(&self, keeps_booting: bool) {
        self.with(|state| state.keeps_booting = keeps_booting);
    }

    /// An error in the cloud's own words.
    pub fn refusal(&self, status: u16, code: &str, message: &str) -> Fault {
        Fault::Refused(self.refuse(status, code, message))
    }

    fn refuse(&self, status: u16, code: &str, message: &str) -> StubAnswer {
        if self.is_hetzner() {
            hetzner::refuse(status, code, message)
        } else {
            digitalocean::refuse(status, code, message)
        }
    }

    /// Too many requests, until this moment.
    pub fn rate_limited(&self, reset: Timestamp) -> Fault {
        let code = if self.is_hetzner() { "rate_limit_exceeded" } else { "too_many_requests" };
        let mut answer = self.refuse(429, code, "API rate limit exceeded");
        answer.headers.push(("ratelimit-reset", (reset.as_millis() / 1_000).to_string()));
        Fault::Refused(answer)
    }

    /// The requests of a kind so far.
    pub fn calls(&self, asked: Asked) -> Vec<CloudCall> {
        self.with(|state| {
            let of_kind = state.calls.iter().filter(|(kind, _)| *kind == asked);
            of_kind.map(|(_, call)| call.clone()).collect()
        })
    }

    pub fn count(&self, asked: Asked) -> usize {
        self.calls(asked).len()
    }

    /// How many requests came in all.
    pub fn total(&self) -> usize {
        self.with(|state| state.calls.len())
    }

    pub async fn wait_for(&self, asked: Asked, count: usize) {
        let what = format!("{count} requests for {asked:?}");
        until(&what, WORK_MAX, async || (self.count(asked) >= count).then_some(())).await;
    }

    /// Waits until every request that came is done with.
    pub async fn wait_until_idle(&self) {
        let is_idle = || self.with(|state| state.finished == state.calls.len());
        until("no request is under way", WORK_MAX, async || is_idle().then_some(())).await;
    }
}

impl Drop for CloudStub {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The connections are in a set of this task, so that they end with it.
async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                let state = state.clone();
                connections.spawn(async move { drop(wire::serve(stream, state).await) });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
