//! `admin ingest-key`, for people and for programs.

use super::*;
use crate::support::people::AUDIT;

const PATH: &str = "/internal/ingest/inventory";

fn ingest_key<'a>(verb: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    [&["admin", "ingest-key", verb, "--tenant", "acme"], flags].concat()
}

fn globex(desk: &Desk) -> Value {
    desk.json(&["admin", "organization", "create", "--tenant", "acme", "--name", "Globex", "--slug", "globex"])
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn a_key_is_an_address_to_paste() {
    let desk = Desk::new();
    acme(&desk);
    globex(&desk);
    let made = desk.run(&ingest_key("create", &["--base-url", "https://control.example"]));
    let lines: Vec<&str> = made.stdout.lines().collect();
    let [first, url, last] = lines[..] else { panic!("{made:?}") };
    let pair = url.strip_prefix("https://").and_then(|rest| rest.strip_suffix(&format!("@control.example{PATH}")));
    let (id, secret) = pair.and_then(|pair| pair.split_once(':')).unwrap_or_else(|| panic!("{url}"));
    assert!(id.starts_with("ing_") && id.len() == 30, "{id}");
    assert!(secret.len() == 40 && secret.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{secret}");
    assert_eq!(first, format!("Ingest key {id} was made for acme. Its address, which is not shown again:"));
    assert_eq!(last, "Paste it into the settings of agents as their server.");
    let bound = desk.run(&ingest_key("create", &["--organization", "globex"]));
    assert!(bound.stdout.contains(" was made for globex of acme. "), "{bound:?}");
}

#[test]
fn programs_read_keys_as_json_and_never_a_secret_twice() {
    let mut desk = Desk::new();
    desk.set("SUDO_USER", "ann");
    acme(&desk);
    let organization = globex(&desk);
    let list = || desk.json(&ingest_key("list", &[]));
    assert_eq!(list(), json!([]));
    let all = desk.json(&ingest_key("create", &[]));
    let bound = desk.json(&ingest_key("create", &["--organization", "globex"]));
    for made in [&all, &bound] {
        assert_eq!(made.as_object().expect("an object").len(), 3, "{made}");
        let (id, secret) = (text(made, "id"), text(made, "secret"));
        assert_eq!(text(made, "url"), format!("http://{id}:{secret}@127.0.0.1:8080{PATH}"));
    }
    let listed = list();
    let last_four = |made: &Value| text(made, "secret")[36..].to_owned();
    let shown = |made: &Value, organization: &Value, created_at: &Value| {
        json!({
            "id": made["id"], "organization_id": organization["id"], "organization": organization["slug"],
            "last_four": last_four(made), "created_by": {"type": "operator", "id": null, "name": "ann"},
            "created_at": created_at, "revoked_at": null,
        })
    };
    assert_eq!(listed[0], shown(&all, &json!({}), &listed[0]["created_at"]));
    assert_eq!(listed[1], shown(&bound, &organization, &listed[1]["created_at"]));

    let revoked = desk.json(&ingest_key("revoke", &["--id", text(&all, "id")]));
    assert!(revoked["id"] == all["id"] && revoked["revoked_at"].is_string(), "{revoked}");
    assert_eq!(desk.json(&ingest_key("revoke", &["--id", text(&all, "id")])), revoked, "once more changes nothing");
    assert_eq!(list(), json!([revoked, listed[1]]));
    let lines = desk.run(&ingest_key("list", &[]));
    let (first, second) = (last_four(&all), last_four(&bound));
    assert_eq!(
        lines.shown(&desk),
        format!("exit 0\nstdout:\ning_ID  (all)  …{first}  TIME  revoked TIME\ning_ID  globex  …{second}  TIME\n")
    );
    assert!(!lines.stdout.contains(text(&bound, "secret")), "{lines:?}");
}

#[test]
fn what_is_unknown_is_refused_and_the_way_out_named() {
    let desk = Desk::new();
    acme(&desk);
    desk.json(&["admin", "tenant", "create", "--name", "Other", "--slug", "other"]);
    let others = desk.json(&["admin", "ingest-key", "create", "--tenant", "other"]);
    let id = text(&others, "id");
    let organization =
        "there is no organization \"nope\" in acme; `tenant-control admin organization list --tenant acme` shows them";
    let key = |id: &str| {
        format!(
            "there is no ingest key {id:?} in acme; `tenant-control admin ingest-key list --tenant acme` shows them"
        )
    };
    let tenant = "there is no tenant \"nope\"; `tenant-control admin tenant list` shows them";
    for (arguments, wanted) in [
        (ingest_key("create", &["--organization", "nope"]), organization.to_owned()),
        (ingest_key("revoke", &["--id", id]), key(id)),
        (ingest_key("revoke", &["--id", "nope"]), key("nope")),
        (vec!["admin", "ingest-key", "create", "--tenant", "nope"], tenant.to_owned()),
        (vec!["admin", "ingest-key", "list", "--tenant", "nope"], tenant.to_owned()),
        (vec!["admin", "ingest-key", "revoke", "--tenant", "nope", "--id", id], tenant.to_owned()),
    ] {
        let ended = desk.run(&arguments);
        assert_eq!((ended.code, ended.stderr), (1, format!("error: {wanted}\n")), "{arguments:?}");
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
    assert_eq!(desk.run(&ingest_key("revoke", &[])).code, 2);
    assert_eq!(desk.json(&ingest_key("list", &[])), json!([]));
    assert_eq!(desk.json(&["admin", "ingest-key", "list", "--tenant", "other"])[0]["revoked_at"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_with_the_servers_secrets_and_address_and_audited() {
    let desk = Desk::new();
    acme(&desk);
    // Before any server has started: its secrets are made here, and it starts with them.
    desk.json(&ingest_key("create", &[]));
    let process = desk.serve(&[]);
    let made = desk.json(&ingest_key("create", &[]));
    let (id, secret) = (text(&made, "id"), text(&made, "secret"));
    assert_eq!(text(&made, "url"), format!("http://{id}:{secret}@{}{PATH}", process.address));
    let cookie = cookie(&desk);
    let (status, trail) = get(&process, &format!("{AUDIT}?action=ingest_key.create"), ("cookie", &cookie)).await;
    assert_eq!((status, &trail["data"][0]["target"]), (200, &json!({"type": "ingest_key", "id": id})));
    assert_eq!(trail["data"][0]["actor"]["type"], "operator");
    let answer = client().get(process.url(AUDIT)).basic_auth(id, Some(secret)).send().await.expect("an answer");
    assert_eq!(answer.status(), 401, "an agent's credential is none here");
    assert!(!process.log_text().contains(secret));

    std::fs::rename(desk.path("data/secrets.json"), desk.path("kept.json")).unwrap();
    let missing = desk.run(&ingest_key("create", &[]));
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("a secrets file that is not here"), "{}", missing.stderr);
    assert_eq!(desk.json(&ingest_key("list", &[])).as_array().map(Vec::len), Some(2), "and no key is made");
}
