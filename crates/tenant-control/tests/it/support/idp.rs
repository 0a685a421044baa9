//! An OpenID provider that does to its clients whatever a test asks for, in this process, on a port of its own.
//!
//! Left alone it is an honest one, and as strict as any: who asks without PKCE, with another secret, with a code a second
//! time or from another redirect address gets nothing. Its only user is signed in already, so that its page redirects at
//! once. It speaks HTTP/1.1 by hand, one request on each connection, because a library would refuse to misbehave.

mod endpoints;
mod keys;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use kernel::base::{RandomSource, SECOND_MS, WallClock};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub use keys::{Draft, Key, Signer};

pub const DISCOVERY: &str = "/.well-known/openid-configuration";
pub const AUTHORIZE: &str = "/authorize";
pub const TOKEN: &str = "/token";
pub const JWKS: &str = "/jwks";
pub const USERINFO: &str = "/userinfo";
pub const END_SESSION: &str = "/end-session";

pub const CLIENT_ID: &str = "tenant-control";
/// With everything in it that means something in a header or a form.
pub const CLIENT_SECRET: &str = "s3:cr+t/%41&=? ~x";

type Alter = Arc<dyn Fn(&mut Value) + Send + Sync>;
type Spoil = Arc<dyn Fn(&mut Draft) + Send + Sync>;

/// A running provider. It ends with this value.
pub struct Idp {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    address: SocketAddr,
    clock: WallClock,
    dials: Mutex<Dials>,
    asked: Notify,
}

/// What the provider knows and was told.
struct Dials {
    /// Who may ask: id and secret.
    clients: HashMap<String, String>,
    keys: Vec<Key>,
    /// What it says of its user.
    person: Value,
    /// The claims of the user that are in the ID token; all when there are none here.
    in_token: Option<Vec<&'static str>>,
    spoil: Option<Spoil>,
    alter: HashMap<String, Alter>,
    says: HashMap<String, Says>,
    grants: HashMap<String, Grant>,
    tokens: HashMap<String, Value>,
    /// Method and path of every request.
    asked: Vec<String>,
    secrets: Vec<String>,
    authenticated_by: Vec<&'static str>,
}

/// What a path does instead of what it should.
#[derive(Clone)]
pub enum Says {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// What it should, when the test says so.
    Hold(watch::Receiver<bool>),
    /// 200 and a body without end.
    Endless,
    /// Closes the connection without a word.
    HangsUp,
}

impl Says {
    pub fn status(status: u16) -> Says {
        Says::Answer { status, headers: Vec::new(), body: Vec::new() }
    }

    pub fn json(status: u16, body: &Value) -> Says {
        let headers = vec![("content-type", "application/json".to_owned())];
        Says::Answer { status, headers, body: body.to_string().into_bytes() }
    }

    pub fn text(body: impl Into<Vec<u8>>) -> Says {
        Says::Answer { status: 200, headers: vec![("content-type", "application/json".to_owned())], body: body.into() }
    }

    pub fn redirect(to: &str) -> Says {
        Says::Answer { status: 302, headers: vec![("location", to.to_owned())], body: Vec::new() }
    }
}

/// What a code stands for.
struct Grant {
    client_id: String,
    redirect_uri: String,
    challenge: String,
    nonce: String,
    person: Value,
}

impl Idp {
    /// Tokens are of this clock's time.
    pub async fn start(clock: &WallClock) -> Idp {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().unwrap();
        let dials = Dials {
            clients: HashMap::from([(CLIENT_ID.to_owned(), CLIENT_SECRET.to_owned())]),
            keys: vec![Key::ec("first")],
            person: person("subject-1", "ann@acme.test"),
            in_token: None,
            spoil: None,
            alter: HashMap::new(),
            says: HashMap::new(),
            grants: HashMap::new(),
            tokens: HashMap::new(),
            asked: Vec::new(),
            secrets: Vec::new(),
            authenticated_by: Vec::new(),
        };
        let state = State { address, clock: clock.clone(), dials: Mutex::new(dials), asked: Notify::new() };
        let state = Arc::new(state);
        let accepting = tokio::spawn(wire::accept(listener, state.clone()));
        Idp { address, state, accepting }
    }

    pub fn issuer(&self) -> String {
        issuer(self.address)
    }

    pub fn url(&self, path: &str) -> String {
        self.issuer() + path
    }

    /// Who is signed in at the provider from now on: the claims it has of them.
    pub fn person(&self, claims: Value) {
        self.state.dials().person = claims;
    }

    /// Another client may ask from now on.
    pub fn register(&self, client_id: &str, secret: &str) {
        self.state.dials().clients.insert(client_id.to_owned(), secret.to_owned());
    }

    /// Which claims of the user are in the ID token; the others userinfo alone tells.
    pub fn tell_in_token(&self, claims: &[&'static str]) {
        self.state.dials().in_token = Some(claims.to_vec());
    }

    /// What is done to every ID token from now on, before it is signed.
    pub fn spoil(&self, spoil: impl Fn(&mut Draft) + Send + Sync + 'static) {
        self.state.dials().spoil = Some(Arc::new(spoil));
    }

    /// What is done to the JSON that a path answers from now on.
    pub fn alter(&self, path: &str, alter: impl Fn(&mut Value) + Send + Sync + 'static) {
        self.state.dials().alter.insert(path.to_owned(), Arc::new(alter));
    }

    /// What a path does from now on instead of what it should.
    pub fn say(&self, path: &str, says: Says) {
        self.state.dials().says.insert(path.to_owned(), says);
    }

    /// Honest again.
    pub fn behave(&self) {
        let mut dials = self.state.dials();
        dials.spoil = None;
        dials.alter.clear();
        dials.says.clear();
    }

    /// The keys that are published from now on. The first signs.
    pub fn keys(&self, keys: Vec<Key>) {
        self.state.dials().keys = keys;
    }

    /// The key that signs.
    pub fn key(&self) -> Key {
        self.state.dials().keys.first().expect("a key").clone()
    }

    /// The ID token that was given last.
    pub fn last_id_token(&self) -> String {
        let dials = self.state.dials();
        dials.secrets.iter().rev().find(|secret| secret.split('.').count() == 3).expect("a token").clone()
    }

    /// How many requests came on a path.
    pub fn asked(&self, path: &str) -> usize {
        let of_path = |asked: &&String| asked.split(' ').nth(1) == Some(path);
        self.state.dials().asked.iter().filter(of_path).count()
    }

    pub fn asked_in_all(&self) -> usize {
        self.state.dials().asked.len()
    }

    /// Waits for the first request on a path.
    pub async fn wait_for(&self, path: &str) {
        self.wait_for_many(path, 1).await;
    }

    /// Waits for so many of them.
    pub async fn wait_for_many(&self, path: &str, count: usize) {
        loop {
            // Made before the look, so that a request between look and wait is not missed.
            let asked = self.state.asked.notified();
            if self.asked(path) >= count {
                return;
            }
            asked.await;
        }
    }

    /// Codes and tokens so far: what nobody should find in a log.
    pub fn secrets(&self) -> Vec<String> {
        self.state.dials().secrets.clone()
    }

    /// How clients have shown who they are.
    pub fn authenticated_by(&self) -> Vec<&'static str> {
        self.state.dials().authenticated_by.clone()
    }

    /// Where a browser is sent back to that follows this address and is signed in at the provider.
    pub async fn approve(&self, url: &str) -> Url {
        let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
        let answer = browser.build().unwrap().get(url).send().await.expect("the provider answers");
        let (status, headers) = (answer.status(), answer.headers().clone());
        let said = answer.text().await.unwrap_or_default();
        assert_eq!(status, 303, "{said}");
        Url::parse(headers["location"].to_str().unwrap()).expect("an address to go back to")
    }

    /// From now on nobody listens.
    pub async fn stop(&mut self) {
        self.accepting.abort();
        drop((&mut self.accepting).await);
    }
}

impl Drop for Idp {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Somebody whose address the provider has verified.
pub fn person(subject: &str, email: &str) -> Value {
    json!({"sub": subject, "email": email, "email_verified": true, "name": "Ann Acme"})
}

fn issuer(address: SocketAddr) -> String {
    format!("http://{address}")
}

impl State {
    fn dials(&self) -> MutexGuard<'_, Dials> {
        self.dials.lock().unwrap()
    }

    fn now_seconds(&self) -> i64 {
        self.clock.now().as_millis() / SECOND_MS
    }

    fn secret(&self) -> String {
        let secret = RandomSource::System.base62_text(32);
        self.dials().secrets.push(secret.clone());
        secret
    }
}
