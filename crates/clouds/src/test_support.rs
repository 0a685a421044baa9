//! A transport that answers as a test says, and remembers what was sent.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use kernel::base::Timestamp;
use serde_json::{Value, json};

use crate::{
    CloudAdapter, CloudCredentials, CloudEndpoints, CloudKind, CloudRequest, CloudResponse, MachineSpec, Transport,
    TransportFailure, TransportFuture, open_cloud,
};

/// What every secret of these tests has in it, and nothing else may.
pub const CANARY: &str = "canary";
pub const TOKEN: &str = "canary-token-of-the-tests-0123456789abcdef";

pub type Answer = Result<CloudResponse, TransportFailure>;

/// A request as it was sent.
#[derive(Clone)]
pub struct SentRequest {
    pub method: &'static str,
    pub url: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl SentRequest {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// `GET /servers?per_page=1`, without the host and the version of the API.
    pub fn line(&self) -> String {
        let path = self.url.splitn(4, '/').nth(3).unwrap_or_default();
        let path = path.split_once('/').map_or(path, |(_, path)| path);
        format!("{} /{path}", self.method)
    }

    /// The value of a field of a form.
    pub fn field(&self, name: &str) -> Option<String> {
        let pairs = self.body.split('&').filter_map(|pair| pair.split_once('='));
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        pairs.into_iter().find(|(key, _)| decode(key) == name).map(|(_, value)| decode(value))
    }
}

type Script = Box<dyn Fn(&SentRequest) -> Answer + Send + Sync>;

pub struct ScriptedTransport {
    script: Script,
    sent: Mutex<Vec<SentRequest>>,
}

impl ScriptedTransport {
    pub fn answering(script: impl Fn(&SentRequest) -> Answer + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(ScriptedTransport { script: Box::new(script), sent: Mutex::new(Vec::new()) })
    }

    pub fn in_order(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        let answers: Mutex<VecDeque<Answer>> = Mutex::new(answers.into_iter().collect());
        ScriptedTransport::answering(move |request| match answers.lock().unwrap().pop_front() {
            Some(answer) => answer,
            None => panic!("no answer is left for {} {}", request.method, request.url),
        })
    }

    /// What was sent since the last call. No URL has a secret in it.
    #[track_caller]
    pub fn take_sent(&self) -> Vec<SentRequest> {
        let sent = std::mem::take(&mut *self.sent.lock().unwrap());
        assert!(sent.iter().all(|request| !request.url.contains(CANARY)));
        sent
    }
}

impl Transport for ScriptedTransport {
    fn send(&self, request: CloudRequest) -> TransportFuture<'_> {
        assert!(!format!("{request:?}").contains(CANARY));
        let sent = SentRequest {
            method: request.method,
            url: request.url,
            headers: request.headers.into_iter().collect(),
            body: String::from_utf8(request.body).unwrap(),
        };
        let answer = (self.script)(&sent);
        self.sent.lock().unwrap().push(sent);
        Box::pin(std::future::ready(answer))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a script holds failures as well")]
pub fn answer(status: u16, body: impl Into<Vec<u8>>) -> Answer {
    Ok(CloudResponse { status, headers: Vec::new(), body: body.into() })
}

pub fn json_answer(status: u16, body: &Value) -> Answer {
    answer(status, body.to_string())
}

#[expect(clippy::unnecessary_wraps, reason = "a script holds failures as well")]
pub fn limited_answer(body: &Value, name: &str, value: &str) -> Answer {
    let headers = vec![(name.to_owned(), value.to_owned())];
    Ok(CloudResponse { status: 429, headers, body: body.to_string().into_bytes() })
}

pub fn lost(may_have_arrived: bool) -> Answer {
    Err(TransportFailure { may_have_arrived, detail: "connection reset".to_owned() })
}

pub fn open(kind: CloudKind, credentials: &Value, transport: &Arc<ScriptedTransport>) -> Box<dyn CloudAdapter> {
    let credentials = CloudCredentials::parse(kind, credentials).unwrap();
    open_cloud(credentials, &CloudEndpoints::default(), transport.clone())
}

pub fn open_with_token(kind: CloudKind, transport: &Arc<ScriptedTransport>) -> Box<dyn CloudAdapter> {
    open(kind, &json!({ "token": TOKEN }), transport)
}

/// Runs a future whose answers are all there at once.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits for something that no test provides"),
    }
}

/// The error of a call, which shows no secret in any form.
#[track_caller]
pub fn failure<T: Debug>(result: Result<T, crate::CloudError>) -> crate::CloudError {
    let error = result.unwrap_err();
    assert!(!format!("{error:?} {error}").contains(CANARY), "{error:?}");
    error
}

pub fn now() -> Timestamp {
    Timestamp::parse("2026-01-02T03:04:05Z").unwrap()
}

/// The moment of `now` in seconds, and some later.
pub fn seconds_after_now(seconds: i64) -> String {
    (now().as_millis() / 1_000 + seconds).to_string()
}

pub fn spec(region: &str, size: &str, image: &str) -> MachineSpec {
    MachineSpec {
        operation_id: "op_0123456789abcdefghjkmnpqrs".to_owned(),
        name: "web-1".to_owned(),
        region: region.to_owned(),
        size: size.to_owned(),
        image: image.to_owned(),
        tags: BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
        user_data: Some("#cloud-config\npassword: canary".to_owned()),
        ssh_keys: vec!["ops".to_owned()],
    }
}
