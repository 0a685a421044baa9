//! `admin user unlink`: whoever signs on next with the address is the user.

use kernel::base::WallClock;
use reqwest::Response;

use super::admin::SEEN_MAX;
use super::*;
use crate::sso::SSO;
use crate::support::idp::{CLIENT_ID, CLIENT_SECRET, Idp, person};
use crate::support::process::until;

const UNLINK: [&str; 5] = ["admin", "user", "unlink", "--tenant", "acme"];

/// Lets the people of `acme.test` sign on at this provider, and tells its id.
fn provide(desk: &Desk, idp: &Idp) -> String {
    desk.file("secret", CLIENT_SECRET);
    let issuer = idp.issuer();
    let add = ["admin", "sso", "add", "--tenant", "acme", "--name", "Login", "--issuer", issuer.as_str()];
    let rest = ["--client-id", CLIENT_ID, "--client-secret-file", "secret", "--domain", "acme.test"];
    let made = desk.json(&[&add[..], &rest].concat());
    desk.json(&["admin", "sso", "verify-domain", "--tenant", "acme", "--domain", "acme.test", "--operator-word"]);
    made["id"].as_str().expect("an id").to_owned()
}

/// The cookie of this name that an answer sets.
fn cookie_in(answer: &Response, name: &str) -> String {
    let set = answer.headers().get_all("set-cookie").iter().filter_map(|cookie| cookie.to_str().ok());
    let mut pairs = set.filter_map(|cookie| cookie.split(';').next());
    pairs.find(|pair| pair.starts_with(name)).expect("a cookie").to_owned()
}

/// The cookie of whoever is signed in at the provider, once they have signed on.
async fn sign_on(process: &Process, idp: &Idp) -> String {
    let body = json!({"domain": "acme.test"});
    let begun = client().post(process.url(SSO)).json(&body).send().await.expect("an answer");
    assert_eq!(begun.status(), 200);
    let flow = cookie_in(&begun, "sso_flow_");
    let begun: Value = begun.json().await.expect("where to go");
    let back = idp.approve(begun["url"].as_str().expect("an address")).await;
    let ended = client().get(back).header("cookie", flow).send().await.expect("an answer");
    assert_eq!(ended.status(), 303);
    cookie_in(&ended, "session=")
}

/// What the command does beside a server, on whichever database the desk has.
pub async fn unlinks(desk: &Desk) {
    let process = desk.serve(&["--webhook-allow-cidr", "127.0.0.0/8"]);
    acme(desk);
    let idp = Idp::start(&WallClock::System).await;
    let provider = provide(desk, &idp);
    let cookie = sign_on(&process, &idp).await;
    let (status, ann) = get(&process, SESSION, ("cookie", &cookie)).await;
    assert_eq!((status, &ann["actor"]["email"]), (200, &json!("ann@acme.test")));

    let unlink = [&UNLINK[..], &["--email", "Ann@acme.test"]].concat();
    let done = "exit 0\nstdout:\nUser ann@acme.test is unlinked, and all their sessions have ended.\n";
    assert_eq!(desk.run(&unlink).shown(desk), done);
    // The server may use for half a second more what it has read.
    let refused = async || (get(&process, SESSION, ("cookie", &cookie)).await.0 == 401).then_some(());
    until("the session has ended", SEEN_MAX, refused).await;
    let nothing = "exit 0\nstdout:\nUser ann@acme.test has nothing to unlink.\n";
    assert_eq!(desk.run(&unlink).shown(desk), nothing);

    idp.person(person("subject-2", "ann@acme.test"));
    let cookie = sign_on(&process, &idp).await;
    let (_, again) = get(&process, SESSION, ("cookie", &cookie)).await;
    assert_eq!(again["actor"], ann["actor"]);
    let unlinked = desk.json(&[&unlink[..], &["--provider", provider.as_str()]].concat());
    assert_eq!(unlinked["id"], ann["actor"]["id"]);
    // Made, unlinked, linked and unlinked: to unlink nothing was no change.
    assert_eq!((&unlinked["identities"], &unlinked["version"]), (&json!([]), &json!(4)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_unlinked_beside_a_running_server() {
    unlinks(&Desk::new()).await;
}

#[test]
fn who_has_never_signed_on_has_nothing_to_unlink() {
    let desk = Desk::new();
    acme(&desk);
    cookie(&desk);
    let made = desk.json(&["admin", "user", "list", "--tenant", "acme"])[0].clone();
    let at_one = ["--provider", "sso_01jd8z6v2mfkpb7h3q9xw5t4rd"];
    for flags in [&[][..], &at_one] {
        let unlink = [&UNLINK[..], &["--email", "a@acme.test"], flags].concat();
        let nothing = "exit 0\nstdout:\nUser a@acme.test has nothing to unlink.\n";
        assert_eq!(desk.run(&unlink).shown(&desk), nothing);
        assert_eq!(desk.json(&unlink), made);
    }
    assert_eq!(desk.json(&["admin", "user", "list", "--tenant", "acme"])[0], made);
    let sessions = desk.json(&["admin", "session", "list", "--tenant", "acme"]);
    assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
}

#[test]
fn nobody_is_unlinked_who_is_not_there_or_at_what_is_no_provider() {
    let desk = Desk::new();
    acme(&desk);
    let missing = desk.run(&[&UNLINK[..], &["--email", "eve@acme.test"]].concat());
    let wanted = "error: there is no user \"eve@acme.test\" in acme; `tenant-control admin user list --tenant acme` shows them\n";
    assert_eq!((missing.code, missing.stderr.as_str()), (1, wanted));
    for wrong in ["Login", "usr_01jd8z6v2mfkpb7h3q9xw5t4rd"] {
        let ended = desk.run(&[&UNLINK[..], &["--email", "a@acme.test", "--provider", wrong]].concat());
        assert!(ended.code == 2 && ended.stderr.contains("is not the id of a provider"), "{wrong}: {}", ended.stderr);
    }
}
