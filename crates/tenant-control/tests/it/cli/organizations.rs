//! `admin organization` and `admin sla`, for people and for programs.

use super::*;
use crate::support::people::AUDIT;
use crate::tickets::TICKETS;

fn sla(verb: &str, flags: &[&str]) -> Vec<String> {
    [&["admin", "sla", verb, "--tenant", "acme"], flags].concat().iter().map(|&word| word.to_owned()).collect()
}

fn run(desk: &Desk, arguments: &[String]) -> String {
    desk.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).shown(desk)
}

fn json_of(desk: &Desk, arguments: &[String]) -> Value {
    desk.json(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn organizations_are_made_and_listed_in_their_tenant() {
    let desk = Desk::new();
    acme(&desk);
    desk.json(&["admin", "tenant", "create", "--name", "Other", "--slug", "other"]);
    let create = |tenant, name, slug| {
        desk.run(&["admin", "organization", "create", "--tenant", tenant, "--name", name, "--slug", slug]).shown(&desk)
    };
    let list = |tenant| desk.run(&["admin", "organization", "list", "--tenant", tenant]).shown(&desk);
    assert_eq!(list("acme"), "exit 0\nstdout:\n\n");
    assert_eq!(
        create("acme", " Globex & Söhne ", "globex"),
        "exit 0\nstdout:\nOrganization globex (org_ID) was made.\n"
    );
    let again = "exit 1\nstderr:\nerror: An organization with the slug \"globex\" exists already in this tenant.\n";
    assert_eq!(create("acme", "Globex", "globex"), again);
    assert_eq!(create("other", "Globex", "globex"), "exit 0\nstdout:\nOrganization globex (org_ID) was made.\n");
    // Human names need not be unique.
    create("acme", "Globex & Söhne", "a-globex");
    assert_eq!(list("acme"), "exit 0\nstdout:\norg_ID  a-globex  Globex & Söhne\norg_ID  globex  Globex & Söhne\n");
    assert_eq!(list("other"), "exit 0\nstdout:\norg_ID  globex  Globex\n");
}

#[test]
fn programs_read_organizations_as_json() {
    let desk = Desk::new();
    acme(&desk);
    let made =
        desk.json(&["admin", "organization", "create", "--tenant", "acme", "--name", "Globex", "--slug", "globex"]);
    let id = made["id"].as_str().expect("an id");
    assert!(id.starts_with("org_") && id.len() == 30, "{made}");
    assert_eq!((&made["name"], &made["slug"], &made["version"]), (&json!("Globex"), &json!("globex"), &json!(1)));
    assert_eq!(made["created_at"], made["updated_at"]);
    assert_eq!(desk.json(&["admin", "organization", "list", "--tenant", "acme"]), json!([made]));
}

#[test]
fn a_bad_organization_is_refused_and_its_flag_named() {
    let desk = Desk::new();
    acme(&desk);
    let slug = "error: --slug: must be 1 to 63 of a-z, 0-9 and -, not starting or ending with -\n";
    let long = "a".repeat(64);
    for (name, bad, wanted) in [
        ("Globex", "Globex", slug),
        ("Globex", "", slug),
        ("Globex", "a_b", slug),
        ("Globex", "-a", slug),
        ("Globex", &long, slug),
        (" ", "globex", "error: --name: must be 1 to 200 characters after trimming\n"),
        ("a\nb", "globex", "error: --name: must not contain control characters\n"),
    ] {
        let slug = format!("--slug={bad}");
        let ended = desk.run(&["admin", "organization", "create", "--tenant", "acme", "--name", name, &slug]);
        assert_eq!((ended.code, ended.stderr.as_str()), (1, wanted), "{name:?} {bad:?}");
    }
    let missing = desk.run(&["admin", "organization", "create", "--tenant", "acme", "--slug", "globex"]);
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    assert_eq!(desk.json(&["admin", "organization", "list", "--tenant", "acme"]), json!([]));
}

#[test]
fn an_unknown_tenant_is_refused() {
    let desk = Desk::with_store();
    let wanted = "exit 1\nstderr:\nerror: there is no tenant \"nope\"; `tenant-control admin tenant list` shows them\n";
    let minutes = ["--first-response-minutes", "30", "--resolution-minutes", "240"];
    for arguments in [
        vec!["admin", "organization", "create", "--tenant", "nope", "--name", "Globex", "--slug", "globex"],
        vec!["admin", "organization", "list", "--tenant", "nope"],
        vec!["admin", "sla", "list", "--tenant", "nope"],
        vec!["admin", "sla", "delete", "--tenant", "nope", "--priority", "high"],
        [&["admin", "sla", "set", "--tenant", "nope", "--priority", "high"], &minutes[..]].concat(),
    ] {
        assert_eq!(desk.run(&arguments).shown(&desk), wanted, "{arguments:?}");
    }
}

#[test]
fn promises_are_set_replaced_listed_and_taken_back() {
    let desk = Desk::new();
    acme(&desk);
    let set = |priority: &str, first: &str, resolution: &str, more: &[&str]| {
        let flags = ["--priority", priority, "--first-response-minutes", first, "--resolution-minutes", resolution];
        sla("set", &[&flags[..], more].concat())
    };
    assert_eq!(run(&desk, &sla("list", &[])), "exit 0\nstdout:\n\n");
    let high = json!({"priority": "high", "first_response_minutes": 30, "resolution_minutes": 240, "hours": null, "timezone": null});
    assert_eq!(json_of(&desk, &set("high", "60", "600", &[]))["first_response_minutes"], 60);
    assert_eq!(json_of(&desk, &set("high", "30", "240", &[])), high, "the last word holds");
    let hours = ["--hours", "mon-fri@09:00-17:00,sat@10:00-12:00", "--timezone", "Europe/Berlin"];
    let low = json_of(&desk, &set("low", "480", "2400", &hours));
    assert_eq!((&low["hours"], &low["timezone"]), (&json!(hours[1]), &json!("Europe/Berlin")));
    let critical = json_of(&desk, &set("critical", "1", "527040", &["--hours", "sun@00:00-24:00"]));
    assert_eq!(json_of(&desk, &sla("list", &[])), json!([low, high, critical]), "in rising order");
    let shown = run(&desk, &sla("list", &[]));
    for text in ["low  first response 480 min  resolution 2400 min", "Europe/Berlin", "high  first response 30 min"] {
        assert!(shown.contains(text), "{text:?} in {shown}");
    }
    assert!(run(&desk, &sla("delete", &["--priority", "high"])).starts_with("exit 0\nstdout:\n"));
    assert_eq!(json_of(&desk, &sla("list", &[])), json!([low, critical]));
    let again = run(&desk, &sla("delete", &["--priority", "high"]));
    assert!(again.starts_with("exit 1\nstderr:\nerror: "), "{again}");
    desk.json(&["admin", "tenant", "create", "--name", "Other", "--slug", "other"]);
    assert_eq!(desk.json(&["admin", "sla", "list", "--tenant", "other"]), json!([]), "of its own tenant alone");
}

#[test]
fn a_bad_promise_is_refused_and_its_flag_named() {
    let desk = Desk::new();
    acme(&desk);
    for (code, flag, changes) in [
        (1, "--first-response-minutes", &["--first-response-minutes=0"][..]),
        (1, "--first-response-minutes", &["--first-response-minutes=-5"]),
        (1, "--resolution-minutes", &["--resolution-minutes=0"]),
        (1, "--resolution-minutes", &["--resolution-minutes=9223372036854775807"]),
        (2, "--resolution-minutes", &["--resolution-minutes=ten"]),
        (2, "--resolution-minutes", &["--resolution-minutes=1.5"]),
        (2, "--priority", &["--priority=urgent"]),
        (2, "--priority", &["--priority=High"]),
        (1, "--hours", &["--hours=nine to five"]),
        (1, "--hours", &["--hours="]),
        (1, "--hours", &["--hours=mon-fri@17:00-09:00"]),
        (1, "--hours", &["--hours=mon-fri@09:00-09:00"]),
        (1, "--hours", &["--hours=mon-fri@09:00-25:00"]),
        (1, "--hours", &["--hours=mon-fri@9-17:60"]),
        (1, "--hours", &["--hours=mon-funday@09:00-17:00"]),
        (1, "--hours", &["--hours=mon-fri@09:00-17:00,"]),
        (1, "Mars/Olympus", &["--hours=mon@09:00-17:00", "--timezone=Mars/Olympus"]),
        (2, "--hours", &["--timezone=Europe/Berlin"]),
    ] {
        let good = ["--priority=high", "--first-response-minutes=30", "--resolution-minutes=240"];
        let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
        let kept = good.iter().filter(|good| !changes.iter().any(|change| name(change) == name(good)));
        let flags: Vec<&str> = kept.chain(changes).copied().collect();
        let ended = desk.run(&[&["admin", "sla", "set", "--tenant", "acme"], &flags[..]].concat());
        assert_eq!(ended.code, code, "{changes:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(flag) && ended.stdout.is_empty(), "{changes:?}: {}", ended.stderr);
    }
    assert_eq!(json_of(&desk, &sla("list", &[])), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn both_take_effect_beside_a_running_server_and_are_audited() {
    let desk = Desk::new();
    let process = desk.serve(&[]);
    acme(&desk);
    let cookie = cookie(&desk);
    let post = async |body: Value| {
        let call = client().post(process.url(TICKETS)).header("cookie", &cookie).json(&body);
        let answer = call.send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let (_, before) = post(json!({"subject": "A", "priority": "high"})).await;
    assert_eq!((&before["sla_state"], &before["resolution_due_at"]), (&json!("none"), &Value::Null));
    let made =
        desk.json(&["admin", "organization", "create", "--tenant", "acme", "--name", "Globex", "--slug", "globex"]);
    let minutes = ["--priority", "high", "--first-response-minutes", "30", "--resolution-minutes", "240"];
    json_of(&desk, &sla("set", &minutes));
    let (status, ticket) = post(json!({"subject": "A", "priority": "high", "organization_id": made["id"]})).await;
    assert_eq!((status, &ticket["organization_id"], &ticket["sla_state"]), (201, &made["id"], &json!("ok")));
    assert!(ticket["first_response_due_at"].is_string() && ticket["resolution_due_at"].is_string(), "{ticket}");
    let (_, other) = post(json!({"subject": "A", "priority": "low"})).await;
    assert_eq!(other["sla_state"], "none", "nothing is promised for another priority");
    json_of(&desk, &sla("delete", &["--priority", "high"]));
    let (_, after) = post(json!({"subject": "A", "priority": "high"})).await;
    assert_eq!(after["sla_state"], "none");
    let (_, kept) = get(&process, &format!("{TICKETS}?number={}", ticket["number"]), ("cookie", &cookie)).await;
    assert_eq!(kept["data"][0]["resolution_due_at"], ticket["resolution_due_at"], "what was promised stays promised");
    for action in ["organization.create", "sla.set", "sla.delete"] {
        let (_, trail) = get(&process, &format!("{AUDIT}?action={action}"), ("cookie", &cookie)).await;
        assert_eq!(trail["data"].as_array().map(Vec::len), Some(1), "{action}: {trail}");
        assert_eq!(trail["data"][0]["actor"]["type"], "operator", "{action}");
    }
}
