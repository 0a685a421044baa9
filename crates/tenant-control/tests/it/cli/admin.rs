//! `admin tenant|user|session`, for people and for programs.

use std::time::Duration;

use super::*;
use crate::support::process::until;

/// The names of the fields of an object.
fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn tenants_are_made_and_listed() {
    let desk = Desk::with_store();
    let create = |name, slug| desk.run(&["admin", "tenant", "create", "--name", name, "--slug", slug]).shown(&desk);
    assert_eq!(desk.run(&["admin", "tenant", "list"]).shown(&desk), "exit 0\nstdout:\n\n");
    assert_eq!(create(" Acme & Söhne ", "acme"), "exit 0\nstdout:\nTenant acme (ten_ID) was made.\n");
    assert_eq!(create("Acme", "acme"), "exit 1\nstderr:\nerror: A tenant with the slug \"acme\" exists already.\n");
    assert_eq!(create("Globex", "globex"), "exit 0\nstdout:\nTenant globex (ten_ID) was made.\n");
    let list = desk.run(&["admin", "tenant", "list"]);
    assert_eq!(list.shown(&desk), "exit 0\nstdout:\nten_ID  acme  Acme & Söhne\nten_ID  globex  Globex\n");
    let made = desk.json(&["admin", "tenant", "create", "--name", "Initech", "--slug", "initech"]);
    assert_eq!(fields(&made), ["id", "name", "slug"]);
    let list = desk.json(&["admin", "tenant", "list"]);
    assert_eq!(list.as_array().unwrap().len(), 3);
    assert_eq!(list[2], made);
}

#[test]
fn a_bad_name_or_slug_is_named_like_its_flag() {
    let desk = Desk::with_store();
    let slug = "error: --slug: must be 1 to 63 of a-z, 0-9 and -, not starting or ending with -\n";
    let long = "a".repeat(64);
    for (name, bad, wanted) in [
        ("Acme", "Acme", slug),
        ("Acme", "", slug),
        ("Acme", "a_b", slug),
        ("Acme", "-a", slug),
        ("Acme", "a-", slug),
        ("Acme", &long, slug),
        (" ", "acme", "error: --name: must be 1 to 200 characters after trimming\n"),
        ("a\nb", "acme", "error: --name: must not contain control characters\n"),
    ] {
        let slug = format!("--slug={bad}");
        let ended = desk.run(&["admin", "tenant", "create", "--name", name, &slug]);
        assert_eq!((ended.code, ended.stderr.as_str()), (1, wanted), "{name:?} {bad:?}");
    }
}

#[test]
fn users_are_made_changed_listed_and_disabled() {
    let desk = Desk::with_store();
    desk.json(&["admin", "tenant", "create", "--name", "Acme", "--slug", "acme"]);
    let user = |verb: &str, email: &str, flags: &[&str]| {
        let arguments = [&["admin", "user", verb, "--tenant", "acme", "--email", email], flags].concat();
        desk.run(&arguments).shown(&desk)
    };
    assert_eq!(
        user("create", "Ann@Acme.test", &["--role", "admin"]),
        "exit 0\nstdout:\nUser ann@acme.test (usr_ID) was made.\n"
    );
    let again = "exit 1\nstderr:\nerror: A user with the e-mail \"ann@acme.test\" exists already in this tenant.\n";
    assert_eq!(user("create", "ann@acme.TEST", &["--role", "viewer"]), again);
    assert_eq!(
        user("create", "ann", &["--role", "viewer"]),
        "exit 1\nstderr:\nerror: --email: must be an e-mail address\n"
    );
    user("create", "bob@acme.test", &["--role", "viewer"]);
    let list = || desk.run(&["admin", "user", "list", "--tenant", "acme"]).shown(&desk);
    assert_eq!(list(), "exit 0\nstdout:\nusr_ID  admin  ann@acme.test\nusr_ID  viewer  bob@acme.test\n");
    assert_eq!(
        user("update", "Bob@acme.test", &["--role", "technician"]),
        "exit 0\nstdout:\nUser bob@acme.test is technician.\n"
    );
    for _ in 0..2 {
        assert_eq!(user("delete", "bob@acme.test", &[]), "exit 0\nstdout:\nUser bob@acme.test is disabled.\n");
    }
    let everybody = "exit 0\nstdout:\nusr_ID  admin  ann@acme.test\nusr_ID  technician (disabled)  bob@acme.test\n";
    assert_eq!(list(), everybody);
    let taken = "exit 1\nstderr:\nerror: A user with the e-mail \"bob@acme.test\" exists already in this tenant.\n";
    assert_eq!(user("create", "bob@acme.test", &["--role", "viewer"]), taken);
    assert_eq!(
        user("update", "bob@acme.test", &["--status", "active", "--name", "Bob"]),
        "exit 0\nstdout:\nUser bob@acme.test is technician.\n"
    );
    let missing = "exit 1\nstderr:\nerror: there is no user \"eve@acme.test\" in acme; `tenant-control admin user list --tenant acme` shows them\n";
    for verb in ["update", "delete", "unlink"] {
        assert_eq!(user(verb, "eve@acme.test", &[]), missing);
    }
}

#[test]
fn the_operator_cannot_take_the_last_admin_either() {
    let desk = Desk::new();
    acme(&desk);
    let whom = ["--tenant", "acme", "--email", "a@acme.test"];
    let refused = "exit 1\nstderr:\nerror: A tenant keeps at least one active admin, and this is the last one. Make another one first.\n";
    let demote = [&["admin", "user", "update"], &whom[..], &["--role", "viewer"]].concat();
    let disable = [&["admin", "user", "update"], &whom[..], &["--status", "disabled"]].concat();
    let delete = [&["admin", "user", "delete"], &whom[..]].concat();
    for arguments in [&demote, &disable, &delete] {
        assert_eq!(desk.run(arguments).shown(&desk), refused, "{arguments:?}");
    }
    desk.json(&["admin", "user", "create", "--tenant", "acme", "--email", "b@acme.test", "--role", "admin"]);
    assert_eq!(desk.json(&disable)["status"], "disabled");
    let session = desk.run(&[&["admin", "session", "create"], &whom[..]].concat());
    assert_eq!(session.code, 1);
    assert!(
        session.stderr.contains("a@acme.test is disabled; `tenant-control admin user update"),
        "{}",
        session.stderr
    );
}

#[test]
fn sessions_are_listed_and_revoked() {
    let desk = Desk::new();
    acme(&desk);
    desk.json(&["admin", "user", "create", "--tenant", "acme", "--email", "b@acme.test", "--role", "viewer"]);
    let create = |email: &str| desk.json(&["admin", "session", "create", "--tenant", "acme", "--email", email]);
    let list = |flags: &[&str]| desk.json(&[&["admin", "session", "list", "--tenant", "acme"], flags].concat());
    let revoke = |flags: &[&str]| desk.run(&[&["admin", "session", "revoke", "--tenant", "acme"], flags].concat());
    assert_eq!(list(&[]), json!([]));
    for email in ["a@acme.test", "b@acme.test", "b@acme.test"] {
        create(email);
    }
    let all = list(&[]);
    assert_eq!(all.as_array().unwrap().len(), 3);
    assert_eq!(fields(&all[0]), ["created_at", "email", "expires_at", "id", "last_seen_at"]);
    let of_b = list(&["--email", "B@acme.test"]);
    assert_eq!((of_b.as_array().unwrap().len(), &of_b[0]["email"]), (2, &json!("b@acme.test")));
    let shown = desk.run(&["admin", "session", "list", "--tenant", "acme", "--email", "a@acme.test"]).shown(&desk);
    assert_eq!(shown, "exit 0\nstdout:\nses_ID  a@acme.test  made TIME  seen TIME  until TIME\n");
    let id = of_b[0]["id"].as_str().unwrap();
    assert_eq!(revoke(&["--id", id]).shown(&desk), "exit 0\nstdout:\nSession ses_ID has ended.\n");
    for unknown in [id, "nonsense"] {
        let refused = revoke(&["--id", unknown]);
        assert!(refused.code == 1 && refused.stderr.contains("there is no session"), "{}", refused.stderr);
    }
    assert_eq!(
        revoke(&["--email", "b@acme.test"]).shown(&desk),
        "exit 0\nstdout:\nAll sessions of b@acme.test have ended: 1.\n"
    );
    let left = list(&[]);
    assert_eq!((left.as_array().unwrap().len(), &left[0]["email"]), (1, &json!("a@acme.test")));
    for wrong in [&[][..], &["--id", id, "--email", "b@acme.test"]] {
        assert_eq!(revoke(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn programs_read_users_as_json() {
    let desk = Desk::new();
    acme(&desk);
    let whom = ["--tenant", "acme", "--email", "op@acme.test"];
    let create =
        [&["admin", "user", "create"], &whom[..], &["--role", "viewer", "--platform-operator", "--name", "Op Erator"]]
            .concat();
    let made = desk.json(&create);
    let all = [
        "created_at",
        "email",
        "id",
        "identities",
        "last_signed_in_at",
        "name",
        "platform_operator",
        "role",
        "status",
        "updated_at",
        "version",
    ];
    assert_eq!(fields(&made), all);
    assert_eq!(
        (&made["name"], &made["role"], &made["platform_operator"]),
        (&json!("Op Erator"), &json!("viewer"), &json!(true))
    );
    let update =
        [&["admin", "user", "update"], &whom[..], &["--role", "admin", "--platform-operator", "false"]].concat();
    let changed = desk.json(&update);
    assert_eq!(
        (&changed["id"], &changed["role"], &changed["platform_operator"]),
        (&made["id"], &json!("admin"), &json!(false))
    );
    let list = desk.json(&["admin", "user", "list", "--tenant", "acme"]);
    assert_eq!((&list[0]["email"], &list[0]["name"], &list[1]), (&json!("a@acme.test"), &json!("a"), &changed));
    let disabled = desk.json(&[&["admin", "user", "delete"], &whom[..]].concat());
    assert_eq!((&disabled["id"], &disabled["status"]), (&made["id"], &json!("disabled")));
}

#[test]
fn an_unknown_tenant_is_refused_by_every_command() {
    let desk = Desk::with_store();
    let wanted = "exit 1\nstderr:\nerror: there is no tenant \"nope\"; `tenant-control admin tenant list` shows them\n";
    let whom = ["--tenant", "nope", "--email", "a@acme.test"];
    for arguments in [
        [&["admin", "user", "create"], &whom[..], &["--role", "admin"]].concat(),
        [&["admin", "user", "update"], &whom[..]].concat(),
        [&["admin", "user", "delete"], &whom[..]].concat(),
        [&["admin", "user", "unlink"], &whom[..]].concat(),
        vec!["admin", "user", "list", "--tenant", "nope"],
        [&["admin", "session", "create"], &whom[..]].concat(),
        [&["admin", "session", "create", "--link"], &whom[..]].concat(),
        vec!["admin", "session", "list", "--tenant", "nope"],
        [&["admin", "session", "revoke"], &whom[..]].concat(),
    ] {
        assert_eq!(desk.run(&arguments).shown(&desk), wanted, "{arguments:?}");
    }
}

#[test]
fn a_session_is_a_cookie_named_after_the_base_url() {
    let desk = Desk::new();
    acme(&desk);
    let create = ["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test"];
    let shown = |flags: &[&str]| desk.run(&[&create[..], flags].concat()).shown(&desk);
    assert_eq!(shown(&[]), "exit 0\nstdout:\nCookie: session=TOKEN\nUntil TIME if unused.\n");
    let made = desk.json(&create);
    assert_eq!(fields(&made), ["cookie", "expires_at"]);
    let https = desk.json(&[&create[..], &["--base-url", "https://tc.acme.test"]].concat());
    assert!(https["cookie"].as_str().unwrap().starts_with("__Host-session="), "{https}");
    assert_eq!(
        shown(&["--link"]),
        "exit 0\nstdout:\nhttp://127.0.0.1:8080/signin?token=TOKEN\nGood once, until TIME.\n"
    );
    let link = desk.json(&[&create[..], &["--link", "--base-url", "https://tc.acme.test"]].concat());
    assert_eq!(fields(&link), ["expires_at", "url"]);
    assert!(link["url"].as_str().unwrap().starts_with("https://tc.acme.test/signin?token="), "{link}");
    let missing = desk.run(&["admin", "session", "create", "--tenant", "acme", "--email", "b@acme.test"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("there is no user \"b@acme.test\" in acme"), "{}", missing.stderr);
}

/// What a command changes, a running server knows within a second; an answer may have been on its way for longer.
pub const SEEN_MAX: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn commands_work_beside_a_running_server_and_take_effect() {
    let desk = Desk::new();
    let process = desk.serve(&[]);
    acme(&desk);
    let cookie = cookie(&desk);
    let (status, session) = get(&process, SESSION, ("cookie", &cookie)).await;
    assert_eq!((status, &session["role"], &session["tenant"]["slug"]), (200, &json!("admin"), &json!("acme")));
    let whom = ["--tenant", "acme", "--email", "a@acme.test"];
    desk.json(&["admin", "user", "create", "--tenant", "acme", "--email", "b@acme.test", "--role", "admin"]);
    desk.json(
        &[&["admin", "user", "update"], &whom[..], &["--role", "viewer", "--platform-operator", "true"]].concat(),
    );
    // The server may use for half a second more what it has read.
    until("the role is seen", SEEN_MAX, async || {
        let (_, session) = get(&process, SESSION, ("cookie", &cookie)).await;
        (session["role"] == "viewer" && session["platform_operator"] == true).then_some(())
    })
    .await;
    desk.json(&[&["admin", "user", "delete"], &whom[..]].concat());
    let refused = async || (get(&process, SESSION, ("cookie", &cookie)).await.0 == 401).then_some(());
    until("the user is disabled", SEEN_MAX, refused).await;
    let whom = ["--tenant", "acme", "--email", "b@acme.test"];
    let made = desk.json(&[&["admin", "session", "create"], &whom[..]].concat());
    let cookie = made["cookie"].as_str().expect("a cookie");
    assert_eq!(get(&process, SESSION, ("cookie", cookie)).await.0, 200);
    assert_eq!(desk.json(&[&["admin", "session", "revoke"], &whom[..]].concat()), json!({"revoked": 1}));
    let refused = async || (get(&process, SESSION, ("cookie", cookie)).await.0 == 401).then_some(());
    until("the session has ended", SEEN_MAX, refused).await;
}

/// Where a link for the admin leads that a command makes with these flags beside its own.
fn link_to(desk: &Desk, flags: &[&str]) -> String {
    let create = ["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test", "--link"];
    let made = desk.json(&[&create[..], flags].concat());
    made["url"].as_str().expect("a link").split("/signin?token=").next().expect("its beginning").to_owned()
}

#[test]
fn a_link_leads_to_the_server_that_runs_on_the_store() {
    let desk = Desk::new();
    acme(&desk);
    assert_eq!(link_to(&desk, &[]), "http://127.0.0.1:8080", "no server was ever started");
    let process = desk.serve(&[]);
    assert_eq!(link_to(&desk, &[]), process.base_url);
    assert_ne!(process.base_url, "http://127.0.0.1:8080");
    assert_eq!(link_to(&desk, &["--base-url", "https://told.test"]), "https://told.test", "what is said counts");
    assert_eq!(link_to(&desk, &["--listen", "127.0.0.1:9999"]), "http://127.0.0.1:9999", "and where it listens, too");
    assert_eq!(link_to(&desk, &["--listen", "127.0.0.1:0"]), process.base_url, "any port is none that can be reached");
    process.stop();
    let process = desk.serve(&["--base-url", "https://tc.acme.test"]);
    assert_eq!(link_to(&desk, &[]), "https://tc.acme.test");
    let cookie = cookie(&desk);
    assert!(cookie.starts_with("__Host-"), "a cookie is named after the same URL: {cookie}");
    process.stop();
    assert_eq!(link_to(&desk, &[]), "https://tc.acme.test", "it stays while the server is down");
}
