//! As much of EC2 and STS as the service asks for, over their Query API. It knows who asks, and in which region, from the
//! signature's scope, and notes during which moments an answer was pending.
//!
//! Deliberately left out: checking signatures, and looking for single machines, which no sync here has to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::serve::ListenerExt;
use kernel::base::lock_unpoisoned;
use tokio::net::TcpListener;

use super::fleet::{Fleet, INSTANCE_TYPES, REGIONS};
use crate::harness::Outcome;

/// How long EC2 takes for a page of some hundred machines. It takes longer for a full one of a thousand, so that what is told of
/// those is worse than it would be there.
const PAGE_DELAY: Duration = Duration::from_millis(400);
/// How long EC2 and STS take for anything small.
const SMALL_DELAY: Duration = Duration::from_millis(100);
/// Machines that a verification asks for at most; a sync asks for as many as it can get.
const VERIFICATION_RESULTS: usize = 5;
const CONTENT: &str = "text/xml;charset=UTF-8";

/// The access keys of the two accounts: of the fleet that is measured, and of the small one that it is compared with.
pub const LARGE_KEY: &str = "AKIABENCHLARGE000000";
pub const SMALL_KEY: &str = "AKIABENCHSMALL000000";

pub struct StubAccount {
    pub access_key_id: &'static str,
    /// Twelve digits.
    pub account_id: &'static str,
    pub fleet: Fleet,
}

/// Serves until the runtime ends.
pub struct CloudStub {
    address: SocketAddr,
    state: Arc<Mutex<StubState>>,
}

struct StubState {
    accounts: Vec<StubAccount>,
    /// Machines on a page at most.
    page_max: usize,
    given: Vec<GivenAnswer>,
}

/// An answer, pending for its delay and no longer: what the stub or the network takes beyond that is not the provider's.
struct GivenAnswer {
    region: String,
    is_page: bool,
    from: Instant,
    until: Instant,
}

/// The answers that were pending during some time.
pub struct PendingAnswers {
    pub count: usize,
    /// How long at least one was.
    pub time: Duration,
    /// Those of one region, one after the other, where that took longest.
    pub longest_chain: Duration,
}

impl CloudStub {
    pub async fn start(accounts: Vec<StubAccount>) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(StubState { accounts, page_max: usize::MAX, given: Vec::new() }));
        let router: Router = Router::new().route("/", post(answer_call)).with_state(state.clone());
        let listener = listener.tap_io(|stream| {
            // Without it the end of a large answer may wait for the other side's acknowledgement.
            let _ = stream.set_nodelay(true);
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(CloudStub { address, state })
    }

    /// What `--cloud-endpoint` takes.
    pub fn endpoint(&self) -> String {
        format!("aws=http://{}", self.address)
    }

    pub fn set_page_max(&self, page_max: usize) {
        lock_unpoisoned(&self.state).page_max = page_max;
    }

    /// Changes the state of one machine in a hundred of every account. Returns how many are of this account.
    pub fn change_one_percent(&self, access_key_id: &str, round: usize) -> usize {
        let mut changed = 0;
        for account in &mut lock_unpoisoned(&self.state).accounts {
            let count = account.fleet.change_one_percent(round);
            changed += if account.access_key_id == access_key_id { count } else { 0 };
        }
        changed
    }

    pub fn count_stopped(&self, access_key_id: &str) -> usize {
        let state = lock_unpoisoned(&self.state);
        let account = state.accounts.iter().find(|account| account.access_key_id == access_key_id);
        account.map_or(0, |account| account.fleet.count_stopped())
    }

    /// When the last answer was given before the first page after `since` was asked for: the end of the verification.
    pub fn find_verification_end(&self, since: Instant) -> Option<Instant> {
        let state = lock_unpoisoned(&self.state);
        let given = || state.given.iter().filter(move |answer| answer.from >= since);
        let first_page = given().filter(|answer| answer.is_page).map(|answer| answer.from).min()?;
        given().filter(|answer| answer.from < first_page).map(|answer| answer.until).max()
    }

    pub fn measure_pending(&self, from: Instant, until: Instant) -> PendingAnswers {
        let state = lock_unpoisoned(&self.state);
        let mut spans: Vec<(Instant, Instant)> = Vec::new();
        let mut chains: BTreeMap<&str, Duration> = BTreeMap::new();
        for answer in state.given.iter().filter(|answer| answer.from >= from && answer.until <= until) {
            spans.push((answer.from, answer.until));
            *chains.entry(&answer.region).or_default() += answer.until - answer.from;
        }
        spans.sort_unstable();
        let (mut time, mut covered) = (Duration::ZERO, from);
        for (begin, end) in &spans {
            time += end.saturating_duration_since(covered.max(*begin));
            covered = covered.max(*end);
        }
        PendingAnswers { count: spans.len(), time, longest_chain: chains.into_values().max().unwrap_or_default() }
    }
}

struct StubAnswer {
    status: StatusCode,
    body: String,
    /// When it is sent.
    at: Instant,
}

async fn answer_call(
    State(state): State<Arc<Mutex<StubState>>>,
    headers: HeaderMap,
    form: String,
) -> (StatusCode, [(HeaderName, &'static str); 1], String) {
    let from = Instant::now();
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let answer = lock_unpoisoned(&state).answer_call(from, authorization, &form);
    tokio::time::sleep_until(answer.at.into()).await;
    (answer.status, [(CONTENT_TYPE, CONTENT)], answer.body)
}

impl StubState {
    /// `from` is when the call came.
    fn answer_call(&mut self, from: Instant, authorization: &str, form: &str) -> StubAnswer {
        let call = StubCall::parse(authorization, form);
        let is_caller = |account: &&StubAccount| call.as_ref().is_some_and(|call| call.key == account.access_key_id);
        let (Some(call), Some(account)) = (&call, self.accounts.iter().find(is_caller)) else {
            let body = render_error("AuthFailure", "AWS was not able to validate the provided access credentials");
            return StubAnswer { status: StatusCode::UNAUTHORIZED, body, at: from };
        };
        let (status, body) = account.answer_call(call, self.page_max);
        let is_page = call.max_results.is_some_and(|count| count > VERIFICATION_RESULTS);
        let is_page = is_page && call.action == "DescribeInstances";
        let at = from + if is_page { PAGE_DELAY } else { SMALL_DELAY };
        self.given.push(GivenAnswer { region: call.region.to_owned(), is_page, from, until: at });
        StubAnswer { status, body, at }
    }
}

/// A call, as far as the stub looks at it.
struct StubCall<'a> {
    key: &'a str,
    region: &'a str,
    action: &'a str,
    max_results: Option<usize>,
    /// Where the page begins.
    position: usize,
    is_dry_run: bool,
}

impl<'a> StubCall<'a> {
    /// `AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/SERVICE/aws4_request, …`
    fn parse(authorization: &'a str, form: &'a str) -> Option<Self> {
        let (_, scope) = authorization.split_once("Credential=")?;
        let mut parts = scope.split('/');
        let (key, _, region) = (parts.next()?, parts.next()?, parts.next()?);
        let find = |name: &str| {
            let mut pairs = form.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let position = find("NextToken").and_then(|token| token.strip_prefix("from-"));
        Some(StubCall {
            key,
            region,
            action: find("Action")?,
            max_results: find("MaxResults").and_then(|count| count.parse().ok()),
            position: position.and_then(|position| position.parse().ok()).unwrap_or(0),
            is_dry_run: find("DryRun") == Some("true"),
        })
    }
}

impl StubAccount {
    fn answer_call(&self, call: &StubCall<'_>, page_max: usize) -> (StatusCode, String) {
        let content = match (call.action, call.max_results) {
            ("GetCallerIdentity", _) => self.render_identity(),
            ("DescribeRegions", _) => render_regions(),
            ("DescribeInstances", Some(count)) => {
                let (items, next) = self.fleet.list_page(call.region, call.position, count.min(page_max));
                let token = next.map_or_else(String::new, |next| format!("<nextToken>from-{next}</nextToken>"));
                format!("<reservationSet>{items}</reservationSet>{token}")
            }
            ("DescribeInstanceTypes", _) => render_types(),
            ("DescribeImages", _) => render_images(),
            ("RunInstances", _) if call.is_dry_run => {
                let message = "Request would have succeeded, but DryRun flag is set.";
                return (StatusCode::PRECONDITION_FAILED, render_error("DryRunOperation", message));
            }
            _ => return (StatusCode::BAD_REQUEST, render_error("InvalidAction", "The stub does not know this call.")),
        };
        (StatusCode::OK, render_answer(call.action, &content))
    }

    fn render_identity(&self) -> String {
        let id = self.account_id;
        format!(
            "<GetCallerIdentityResult><Arn>arn:aws:iam::{id}:user/bench</Arn><UserId>AIDA0123456789ABCDEFG</UserId>\
             <Account>{id}</Account></GetCallerIdentityResult>"
        )
    }
}

fn render_regions() -> String {
    let item = |name: &str| {
        format!("<item><regionName>{name}</regionName><optInStatus>opt-in-not-required</optInStatus></item>")
    };
    format!("<regionInfo>{}</regionInfo>", REGIONS.map(item).concat())
}

fn render_types() -> String {
    let items = INSTANCE_TYPES.map(|(name, vcpus, mib)| {
        format!(
            "<item><instanceType>{name}</instanceType><vCpuInfo><defaultVCpus>{vcpus}</defaultVCpus></vCpuInfo>\
             <memoryInfo><sizeInMiB>{mib}</sizeInMiB></memoryInfo></item>"
        )
    });
    format!("<instanceTypeSet>{}</instanceTypeSet>", items.concat())
}

fn render_images() -> String {
    "<imagesSet><item><imageId>ami-0c55b159cbfafe1f0</imageId><name>al2023-ami-2023.9.20260101.0-kernel-6.1-x86_64</name>\
     <creationDate>2026-01-01T00:00:00.000Z</creationDate></item></imagesSet>"
        .to_owned()
}

fn render_answer(action: &str, content: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
         <requestId>00000000-0000-0000-0000-000000000000</requestId>{content}</{action}Response>"
    )
}

fn render_error(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message>\
         </Error></Errors><RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>"
    )
}
