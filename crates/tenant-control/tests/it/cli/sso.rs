//! `admin sso`: a provider is set up, changed and brought back.

use super::*;
use crate::support::people::AUDIT;

/// A provider that nobody asks, and its id.
fn provider(desk: &Desk, flags: &[&str]) -> String {
    desk.file("secret", "first\n");
    let issuer = "https://192.0.2.7";
    let add = ["admin", "sso", "add", "--tenant", "acme", "--name", "Login", "--issuer", issuer, "--client-id", "one"];
    let rest = ["--client-secret-file", "secret", "--domain", "acme.test", "--base-url", "https://tc.acme.test"];
    let made = desk.json(&[&add[..], &rest, flags].concat());
    made["id"].as_str().expect("an id").to_owned()
}

fn update<'a>(id: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    [&["admin", "sso", "update", "--tenant", "acme", "--id", id], flags].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_changed_in_place() {
    let desk = Desk::new();
    acme(&desk);
    let id = provider(&desk, &["--role-map", "groups=it:admin"]);
    desk.file("next", "second\n");
    let all = "--name Next --client-id two --client-secret-file next --default-role technician --role-map roles=a:viewer \
               --role-map roles=b:admin --trust-email true --domain other.test --sign-out-at-provider true";
    let changed = desk.json(&update(&id, &all.split(' ').collect::<Vec<_>>()));
    assert_eq!((&changed["id"], &changed["version"]), (&json!(id), &json!(2)));
    assert_eq!((&changed["name"], &changed["client_id"]), (&json!("Next"), &json!("two")));
    assert_eq!((&changed["issuer"], &changed["default_role"]), (&json!("https://192.0.2.7"), &json!("technician")));
    let rules = json!([
        {"claim": "roles", "value": "a", "role": "viewer"},
        {"claim": "roles", "value": "b", "role": "admin"},
    ]);
    assert_eq!(changed["role_map"], rules);
    assert_eq!((&changed["trust_email"], &changed["sign_out_at_provider"]), (&json!(true), &json!(true)));
    let domains: Vec<&Value> = changed["domains"].as_array().unwrap().iter().map(|one| &one["domain"]).collect();
    assert_eq!(domains, ["acme.test", "other.test"]);
    assert!(!changed.to_string().contains("second"));
    // The same once more is no change, whichever command says it.
    let again = desk.json(&update(&id, &["--name", "Next", "--client-secret-file", "next"]));
    assert_eq!(again["version"], 2);
    let set = ["admin", "sso", "set-secret", "--tenant", "acme", "--client-secret-file"];
    assert_eq!(desk.json(&[&set[..], &["next"]].concat())["version"], 2);
    assert_eq!(desk.json(&[&set[..], &["secret"]].concat())["version"], 3);
    assert_eq!(desk.json(&update(&id, &["--no-role-map", "--trust-email", "false"]))["role_map"], json!([]));
    let asked = ["--scope", "openid email groups"];
    assert_eq!(desk.json(&update(&id, &asked))["scope"], "openid email groups");
    assert_eq!(desk.json(&update(&id, &["--no-scope"]))["scope"], Value::Null);
    assert_eq!(desk.json(&["admin", "sso", "list", "--tenant", "acme"])[0]["version"], 6);

    let (process, cookie) = (desk.serve(&[]), cookie(&desk));
    let (_, trail) = get(&process, &format!("{AUDIT}?action=sso.update"), ("cookie", &cookie)).await;
    let entries = trail["data"].as_array().expect("entries");
    assert_eq!(entries.len(), 5, "{trail}");
    assert_eq!(entries[3]["changes"], json!({"client_secret": {"from": null, "to": "(new)"}}));
    assert!(!trail.to_string().contains("second"), "{trail}");
}

#[test]
fn a_domain_without_a_provider_is_refused_with_the_line_that_sets_one_up() {
    let desk = Desk::new();
    acme(&desk);
    desk.file("secret", "first\n");
    let refused = desk.run(&["admin", "sso", "verify-domain", "--tenant", "acme", "--domain", "acme.test"]);
    assert_eq!(refused.code, 1);
    let add = "tenant-control admin sso add --tenant acme --domain acme.test --name NAME --issuer URL --client-id ID \
               --client-secret-file PATH";
    let wanted = format!("acme has no provider for acme.test; `{add}` sets one up");
    assert!(refused.stderr.contains(&wanted), "{}", refused.stderr);
    // Nothing else is missing from it.
    let filled = [("NAME", "Login"), ("URL", "https://192.0.2.7"), ("ID", "one"), ("PATH", "secret")];
    let line = filled.iter().fold(add.to_owned(), |line, (placeholder, value)| line.replace(placeholder, value));
    let arguments: Vec<&str> = line.split(' ').skip(1).collect();
    let made = desk.json(&[&arguments[..], &["--base-url", "https://tc.acme.test"]].concat());
    assert_eq!(made["domains"][0]["domain"], "acme.test");
}

#[test]
fn one_that_was_disabled_is_brought_back() {
    let desk = Desk::new();
    acme(&desk);
    let id = provider(&desk, &[]);
    assert_eq!(desk.json(&["admin", "sso", "disable", "--tenant", "acme"])["enabled"], false);
    let enabled = desk.json(&update(&id, &["--enable"]));
    assert_eq!((&enabled["enabled"], &enabled["version"]), (&json!(true), &json!(3)));
    assert_eq!(enabled["domains"][0]["domain"], "acme.test");
}

#[test]
fn what_to_register_is_told_where_it_is_wanted() {
    let desk = Desk::new();
    acme(&desk);
    let id = provider(&desk, &[]);
    let line = "Register this post-logout redirect URI there:\n  https://tc.acme.test/signin\n";
    let url = ["--base-url", "https://tc.acme.test"];
    let changed = desk.run(&update(&id, &[&["--sign-out-at-provider", "true"][..], &url].concat()));
    assert!(changed.code == 0 && changed.stdout.ends_with(line), "{}", changed.stdout);
    let again = desk.json(&update(&id, &[&["--sign-out-at-provider", "true"][..], &url].concat()));
    assert_eq!(again["post_logout_redirect_uri"], "https://tc.acme.test/signin");
    let changed = desk.run(&update(&id, &[&["--name", "Next"][..], &url].concat()));
    assert!(changed.code == 0 && !changed.stdout.contains("post-logout"), "{}", changed.stdout);
    desk.json(&["admin", "tenant", "create", "--name", "Other", "--slug", "other"]);
    let issuer = "https://192.0.2.8";
    let add = ["admin", "sso", "add", "--tenant", "other", "--name", "Login", "--issuer", issuer, "--client-id", "one"];
    let rest = ["--client-secret-file", "secret", "--domain", "other.test", "--sign-out-at-provider"];
    let made = desk.json(&[&add[..], &rest, &url].concat());
    assert_eq!(made["post_logout_redirect_uri"], "https://tc.acme.test/signin");
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let desk = Desk::new();
    acme(&desk);
    let id = provider(&desk, &[]);
    for (flags, wanted) in [
        (&["--issuer", "https://192.0.2.8"][..], "unexpected argument '--issuer' found"),
        (&["--no-role-map", "--role-map", "a=b:admin"], "cannot be used with"),
        (&["--no-scope", "--scope", "openid"], "cannot be used with"),
        (&["--scope", "email profile"], "must have openid among its words"),
        (&["--trust-email", "maybe"], "--trust-email"),
        (&["--default-role", "root"], "must be one of admin, technician, viewer"),
        (&["--domain", "acme"], "must be a domain such as acme.example"),
        (&["--name", " "], "--name"),
        (&["--client-secret-file", "missing"], "missing"),
    ] {
        let ended = desk.run(&update(&id, flags));
        assert!(ended.code != 0 && ended.stderr.contains(wanted), "{flags:?}: {}", ended.stderr);
    }
    let unknown = "sso_01jd8z6v2mfkpb7h3q9xw5t4rd";
    let ended = desk.run(&update(unknown, &["--name", "Next"]));
    assert!(ended.code == 1 && ended.stderr.contains("there is no provider sso_"), "{}", ended.stderr);
    assert_eq!(desk.json(&["admin", "sso", "list", "--tenant", "acme"])[0]["version"], 1);
}
