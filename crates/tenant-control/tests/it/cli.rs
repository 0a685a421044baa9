//! The command line: what each command prints, where, and how it ends.

mod admin;
mod backup;
mod clock;
mod devices;
mod doctor;
mod hints;
mod hold;
mod ingest_keys;
mod keyring;
mod missing;
mod operator;
mod organizations;
mod pooler;
mod postgres;
mod secrets;
mod serve;
mod settings;
mod sso;
mod unlink;
mod usage;
mod waits;

use serde_json::{Value, json};

use crate::support::command::{Desk, Process};
use crate::support::people::{KEYS, SESSION};

/// A tenant `acme` with an admin `a@acme.test`, in a store that is made if there is none.
fn acme(desk: &Desk) {
    desk.json(&["migrate"]);
    desk.json(&["admin", "tenant", "create", "--name", "Acme", "--slug", "acme"]);
    desk.json(&["admin", "user", "create", "--tenant", "acme", "--email", "a@acme.test", "--role", "admin"]);
}

/// The cookie of a new session of that admin.
fn cookie(desk: &Desk) -> String {
    let made = desk.json(&["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test"]);
    made["cookie"].as_str().expect("a cookie").to_owned()
}

fn client() -> reqwest::Client {
    let patience = std::time::Duration::from_secs(30);
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().timeout(patience).build().unwrap()
}

/// The status and the JSON of a GET with this header.
async fn get(process: &Process, path: &str, (name, value): (&str, &str)) -> (u16, Value) {
    let answer = client().get(process.url(path)).header(name, value).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

/// A new key, made by cookie.
async fn create_key(process: &Process, cookie: &str) -> String {
    let body = json!({"name": "Key", "scopes": ["*"]});
    let answer = client().post(process.url(KEYS)).header("cookie", cookie).json(&body).send().await.expect("an answer");
    assert_eq!(answer.status(), 201);
    answer.json::<Value>().await.unwrap()["key"].as_str().expect("a key").to_owned()
}

async fn accepts_key(process: &Process, key: &str) -> bool {
    get(process, SESSION, ("x-api-key", key)).await.0 == 200
}
