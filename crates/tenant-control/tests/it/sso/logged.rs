//! What the real server writes down of a sign-on: that it was, and nothing that would let anybody in.

use kernel::base::WallClock;
use serde_json::{Value, json};

use super::{CALLBACK, DOMAIN, SSO, replaced};
use crate::support::command::{Desk, Process};
use crate::support::idp::{CLIENT_ID, CLIENT_SECRET, Idp, person};

fn client() -> reqwest::Client {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build().unwrap()
}

/// The first of the cookies that an answer sets.
fn cookie(answer: &reqwest::Response) -> String {
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    cookie.split(';').next().unwrap_or_default().to_owned()
}

/// Begins a sign-on: the flow's cookie, and where the provider leads back to.
async fn begun(process: &Process, idp: &Idp) -> (String, reqwest::Url, Value) {
    let answer = client().post(process.url(SSO)).json(&json!({"domain": DOMAIN})).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let cookie = cookie(&answer);
    let body: Value = answer.json().await.unwrap();
    let back = idp.approve(body["url"].as_str().unwrap()).await;
    (cookie, back, body)
}

/// Signs on, and fails to in some ways. All that a log must not have.
async fn drive(process: &Process, idp: &Idp) -> Vec<String> {
    let mut secrets = vec![CLIENT_SECRET.to_owned()];
    for attempt in 0..4 {
        if attempt == 3 {
            idp.person(person("subject-9", "mallory@evil.test"));
        }
        let (flow, back, body) = begun(process, idp).await;
        let back = match attempt {
            1 => replaced(&back, "code", Some("wrong-code-hunter2")),
            2 => replaced(&back, "iss", Some("https://evil.test")),
            _ => back,
        };
        secrets.push(flow.split_once('=').unwrap().1.to_owned());
        for name in ["state", "nonce", "code_challenge"] {
            let url = reqwest::Url::parse(body["url"].as_str().unwrap()).unwrap();
            secrets.extend(url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned()));
        }
        let path = format!("{CALLBACK}?{}", back.query().unwrap_or_default());
        for _ in 0..2 {
            let answer = client().get(process.url(&path)).header("cookie", &flow).send().await.unwrap();
            if answer.status() == 303 {
                let mut set = answer.headers().get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
                let session = set.find(|cookie| cookie.starts_with("session=")).expect("a session");
                secrets.push(session["session=".len()..].split(';').next().unwrap_or_default().to_owned());
            }
        }
    }
    client().get(process.url(&format!("{CALLBACK}?state=hunter2&code=hunter2"))).send().await.unwrap();
    secrets.extend(idp.secrets());
    secrets.push("hunter2".to_owned());
    secrets
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_code_state_nor_token_reaches_the_log_at_any_level() {
    for flags in [&["--log-format", "json"][..], &["--log-format", "text", "--log-level", "trace"]] {
        let mut desk = Desk::new();
        desk.set("TENANT_CONTROL_WEBHOOK_ALLOW_CIDR", "127.0.0.0/8");
        desk.set("TENANT_CONTROL_RATE_LIMIT", "auth=1000");
        let process = desk.serve(flags);
        let idp = Idp::start(&WallClock::default()).await;
        let file = desk.file("client-secret", CLIENT_SECRET);
        let (issuer, file) = (idp.issuer(), file.display().to_string());
        desk.json(&[
            "admin",
            "sso",
            "add",
            "--tenant",
            "default",
            "--name",
            "Acme ID",
            "--issuer",
            &issuer,
            "--client-id",
            CLIENT_ID,
            "--client-secret-file",
            &file,
            "--domain",
            DOMAIN,
        ]);
        let verify = ["admin", "sso", "verify-domain", "--tenant", "default", "--domain", DOMAIN, "--operator-word"];
        desk.json(&verify);
        let secrets = drive(&process, &idp).await;
        let ended = process.stop();
        assert!(ended.stderr.contains(CALLBACK) && ended.stderr.contains(SSO), "the log tells of the requests");
        for secret in secrets {
            let line = ended.stderr.lines().find(|line| line.contains(&secret));
            assert_eq!(line, None, "holds {secret}");
        }
    }
}
