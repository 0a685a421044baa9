//! Single sign-on: `/api/auth/sso` and its callback, against a provider of the tests' own.

mod begin;
mod budgets;
mod crowds;
mod documents;
mod domains;
mod flows;
mod identity;
mod logged;
mod provider;
mod roles;
mod sign_on;
mod sign_out;
mod tokens;
mod update;
mod vouching;

use kernel::auth::{Role, open_as_operator};
use kernel::base::Result;
use kernel::http::RatePolicy;
use reqwest::Url;
use serde_json::{Value, json};
use tenant_control::features::sso::{self, NewProvider, Provider, ProviderChange, RoleRule};

use crate::support::idp::{CLIENT_ID, CLIENT_SECRET, Idp};
use crate::support::people::{AUDIT, SESSION};
use crate::support::{Answer, Server, Setup, Tenancy};

pub const SSO: &str = "/api/auth/sso";
const CALLBACK: &str = "/internal/auth/sso/callback";
const USERS: &str = "/api/admin/users";
const DOMAIN: &str = "acme.test";
const PROVIDER_NAME: &str = "Acme ID";

/// A tenant whose people sign on at a provider of the test's own.
struct Scene {
    server: Server,
    acme: Tenancy,
    idp: Idp,
    /// The provider's id.
    provider: String,
}

/// What the operator says about a provider.
struct Told<'a> {
    issuer: String,
    domain: &'a str,
    default_role: Option<Role>,
    role_map: &'a [(&'a str, &'a str, Role)],
    trust_email: bool,
    sign_out_at_provider: bool,
}

impl<'a> Told<'a> {
    fn of(idp: &Idp, domain: &'a str) -> Told<'a> {
        Told::at(idp.issuer(), domain)
    }

    fn at(issuer: String, domain: &'a str) -> Told<'a> {
        Told {
            issuer,
            domain,
            default_role: Some(Role::Viewer),
            role_map: &[],
            trust_email: false,
            sign_out_at_provider: false,
        }
    }
}

/// A server that may call this machine, and on which an address may sign on as often as a test has to.
async fn open(mut setup: Setup) -> Server {
    if setup.settings.outbound.allow.is_empty() {
        setup.settings.outbound.allow = vec!["127.0.0.0/8".parse().unwrap()];
    }
    for policy in [RatePolicy::Auth, RatePolicy::AuthFailures, RatePolicy::Public] {
        setup.settings.rate_table.set(policy, 100_000);
    }
    setup.start().await
}

/// Makes a provider as the command line does. Its domain is not verified yet.
async fn add(server: &Server, tenancy: &Tenancy, told: Told<'_>) -> String {
    let rule = |(claim, value, role): &(&str, &str, Role)| RoleRule {
        claim: (*claim).to_owned(),
        value: (*value).to_owned(),
        role: *role,
    };
    let new = NewProvider {
        name: PROVIDER_NAME.to_owned(),
        issuer: told.issuer,
        client_id: CLIENT_ID.to_owned(),
        client_secret: CLIENT_SECRET.to_owned(),
        scope: None,
        domains: vec![told.domain.to_owned()],
        default_role: told.default_role,
        role_map: told.role_map.iter().map(rule).collect(),
        trust_email: told.trust_email,
        sign_out_at_provider: told.sign_out_at_provider,
    };
    let db = open_as_operator(&server.app.store, &tenancy.tenant);
    sso::add_provider(&db, new, &server.app.secrets).await.expect("a provider").id.to_string()
}

/// Takes the operator's word for whose a domain is.
async fn verify(server: &Server, tenancy: &Tenancy, domain: &str) -> Result<()> {
    sso::verify_domain(&open_as_operator(&server.app.store, &tenancy.tenant), domain).await.map(drop)
}

/// Changes a provider as the command line does.
async fn update(server: &Server, tenancy: &Tenancy, provider: &str, change: ProviderChange) -> Result<Provider> {
    let id = provider.parse().expect("an id");
    sso::update_provider(&open_as_operator(&server.app.store, &tenancy.tenant), id, change).await
}

async fn disable(server: &Server, tenancy: &Tenancy, provider: &str) {
    let id = provider.parse().expect("an id");
    sso::disable_provider(&open_as_operator(&server.app.store, &tenancy.tenant), id).await.expect("it is disabled");
}

/// A provider whose domain is verified, and its id.
async fn provide(server: &Server, tenancy: &Tenancy, told: Told<'_>) -> String {
    let domain = told.domain;
    let id = add(server, tenancy, told).await;
    verify(server, tenancy, domain).await.expect("nobody else has the domain");
    id
}

async fn scene(setup: Setup) -> Scene {
    scene_with(setup, |_| ()).await
}

async fn scene_with(setup: Setup, change: impl FnOnce(&mut Told<'_>)) -> Scene {
    let server = open(setup).await;
    let acme = server.tenant("acme").await;
    let idp = Idp::start(&server.app.env.clock).await;
    let mut told = Told::of(&idp, DOMAIN);
    change(&mut told);
    let provider = provide(&server, &acme, told).await;
    Scene { server, acme, idp, provider }
}

/// A sign-on under way, as the browser has it.
struct Flow {
    cookie: String,
    url: String,
}

impl Flow {
    #[track_caller]
    fn of(answer: &Answer) -> Flow {
        let url = answer.ok(200)["url"].as_str().expect("an address").to_owned();
        let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
        assert!(cookie.contains("sso_flow_"), "{cookie}");
        Flow { cookie, url }
    }

    /// The name of its cookie.
    fn cookie_name(&self) -> &str {
        self.cookie.split('=').next().unwrap_or_default()
    }

    /// What the provider is asked, by name.
    fn asks(&self, name: &str) -> String {
        let url = Url::parse(&self.url).expect("an address");
        url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
    }
}

async fn begin(server: &Server, domain: &str) -> Answer {
    server.post(SSO).json(&json!({"domain": domain})).await
}

/// The browser comes back from the provider with this.
async fn finish(server: &Server, flow: &Flow, back: &Url) -> Answer {
    server.get(target(back)).cookie(&flow.cookie).await
}

/// The path and the query of an address of ours.
fn target(back: &Url) -> String {
    assert_eq!(back.path(), CALLBACK);
    format!("{}?{}", back.path(), back.query().unwrap_or_default())
}

/// The same address with another value under this name, or without it.
fn replaced(back: &Url, name: &str, value: Option<&str>) -> Url {
    let kept = back.query_pairs().filter(|(known, _)| known != name);
    let mut pairs: Vec<(String, String)> = kept.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    pairs.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    let mut changed = back.clone();
    changed.query_pairs_mut().clear().extend_pairs(pairs);
    changed
}

fn value_of(back: &Url, name: &str) -> String {
    let found = back.query_pairs().find(|(known, _)| known == name);
    found.map(|(_, value)| value.into_owned()).expect("a value")
}

fn set_cookies(answer: &Answer) -> Vec<&str> {
    answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().expect("visible characters")).collect()
}

/// The cookie of the session that an answer has begun.
fn session_of(answer: &Answer) -> Option<String> {
    let pairs = set_cookies(answer).into_iter().filter_map(|cookie| cookie.split(';').next());
    let mut sessions = pairs.filter(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or_default();
        name.trim_start_matches("__Host-") == "session" && !value.is_empty()
    });
    sessions.next().map(str::to_owned)
}

/// Asserts that this is a page for people which lets nobody in.
#[track_caller]
fn assert_turned_away(answer: &Answer, about: &str) {
    let body = String::from_utf8_lossy(&answer.body);
    assert!((400..500).contains(&answer.status) && answer.status != 429, "{about}: {} {body}", answer.status);
    assert_eq!(session_of(answer), None, "{about}");
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8", "{about}");
    assert_eq!(answer.header("cache-control"), "no-store", "{about}");
    assert_eq!(answer.header("referrer-policy"), "no-referrer", "{about}");
}

/// Asserts that a sign-on did not even begin: the provider is not there, or not one to be trusted.
#[track_caller]
fn assert_not_begun(answer: &Answer, about: &str) {
    let body = String::from_utf8_lossy(&answer.body);
    assert!([404, 503].contains(&answer.status), "{about}: {} {body}", answer.status);
    assert_eq!(set_cookies(answer), [""; 0], "{about}");
}

/// Why somebody was refused, as the trail has it.
fn reason(entry: &Value) -> &str {
    entry["changes"]["reason"]["to"].as_str().unwrap_or_default()
}

impl Scene {
    async fn begin(&self) -> Flow {
        Flow::of(&begin(&self.server, DOMAIN).await)
    }

    async fn approve(&self, flow: &Flow) -> Url {
        let back = self.idp.approve(&flow.url).await;
        assert!(back.as_str().starts_with(self.server.base_url()), "{back}");
        back
    }

    /// All of a sign-on.
    async fn sign_on(&self) -> Answer {
        let flow = self.begin().await;
        let back = self.approve(&flow).await;
        finish(&self.server, &flow, &back).await
    }

    /// The cookie of somebody who has signed on.
    async fn signed_on(&self) -> String {
        let answer = self.sign_on().await;
        session_of(answer.is(303)).expect("a session")
    }

    async fn session(&self, cookie: &str) -> Value {
        self.server.get(SESSION).cookie(cookie).await.ok(200)
    }

    async fn users(&self) -> Vec<Value> {
        let page = self.server.get(format!("{USERS}?limit=200")).cookie(&self.acme.admin).await.ok(200);
        page["data"].as_array().expect("users").clone()
    }

    async fn user(&self, email: &str) -> Value {
        let found: Vec<Value> = self.users().await.into_iter().filter(|user| user["email"] == email).collect();
        assert_eq!(found.len(), 1, "{email}: {found:?}");
        found.into_iter().next().unwrap_or_default()
    }

    /// Entries of the trail, newest first.
    async fn trail(&self, action: &str) -> Vec<Value> {
        let target = format!("{AUDIT}?action={action}&limit=200");
        let page = self.server.get(target).cookie(&self.acme.admin).await.ok(200);
        page["data"].as_array().expect("entries").clone()
    }

    /// Asserts that an attempt comes to nothing: a page, no session, nobody made or changed, and an entry that says why.
    async fn refuses(&self, about: &str, attempt: impl Future<Output = Answer>) {
        let (users, before) = (self.users().await, self.trail("sso.refused").await.len());
        let answer = attempt.await;
        assert_turned_away(&answer, about);
        assert_eq!(self.users().await, users, "{about}");
        let entries = self.trail("sso.refused").await;
        assert_eq!(entries.len(), before + 1, "{about}");
        let entry = &entries[0];
        assert_eq!(entry["target"]["id"], self.provider, "{about}: {entry}");
        assert!(!reason(entry).is_empty(), "{about}: {entry}");
        let written = entry.to_string();
        for secret in self.idp.secrets() {
            assert!(!written.contains(&secret), "{about}: {entry}");
        }
    }
}
