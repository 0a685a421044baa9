//! `admin device`, for people and for programs.

use super::*;
use crate::support::people::AUDIT;

const DEVICES: &str = "/api/rmm/reports/asset-inventory";

fn device<'a>(verb: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    [&["admin", "device", verb, "--tenant", "acme"], flags].concat()
}

fn globex(desk: &Desk) {
    desk.json(&["admin", "organization", "create", "--tenant", "acme", "--name", "Globex", "--slug", "globex"]);
}

fn import(desk: &Desk, name: &str, text: &str, flags: &[&str]) -> Value {
    let path = desk.file(name, text);
    let path = path.to_str().unwrap();
    desk.json(&device("import", &[&["--file", path], flags].concat()))
}

async fn list(process: &Process, cookie: &str, query: &str) -> Vec<Value> {
    let (status, page) = get(process, &format!("{DEVICES}?{query}"), ("cookie", cookie)).await;
    assert_eq!(status, 200, "{page}");
    page["data"].as_array().expect("a list").clone()
}

const FILE: &str = "\
hostname,type,platform,organization,serial_number,manufacturer,warranty.end_date,tags,custom.room,needs_reboot,cpu.cores
prn1,printer,,globex,X123456,HP,2020-01-01,\"a,b\",7,,
\"web, 01\",server,linux,,,,,,,true,8
";

#[tokio::test(flavor = "multi_thread")]
async fn a_file_makes_devices_and_the_same_again_changes_nothing() {
    let desk = Desk::new();
    acme(&desk);
    globex(&desk);
    let tried = import(&desk, "devices.csv", FILE, &["--dry-run"]);
    assert_eq!((&tried["created"], &tried["dry_run"]), (&json!(2), &json!(true)));
    let made = import(&desk, "devices.csv", FILE, &[]);
    assert_eq!((&made["created"], &made["updated"], &made["unchanged"]), (&json!(2), &json!(0), &json!(0)));
    let again = import(&desk, "devices.csv", FILE, &[]);
    assert_eq!((&again["created"], &again["updated"], &again["unchanged"]), (&json!(0), &json!(0), &json!(2)));
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    let found = list(&process, &cookie, "").await;
    let [web, printer] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (&web["hostname"], &web["cpu"]["cores"], &web["needs_reboot"]),
        (&json!("web, 01"), &json!(8), &json!(true))
    );
    assert_eq!((&printer["tags"], &printer["custom_fields"]), (&json!(["a", "b"]), &json!({"room": "7"})));
    assert_eq!((&printer["status"], &printer["health"]), (&json!("stale"), &json!("unknown")));
    assert_eq!(printer["warranty"], json!({"start_date": null, "end_date": "2020-01-01", "status": "expired"}));
    assert_eq!((&printer["first_seen_at"], &printer["inventory_at"]), (&Value::Null, &Value::Null));
    assert_eq!(list(&process, &cookie, "q=web").await.len(), 1);
    assert_eq!(
        list(&process, &cookie, &format!("organization_id={}", printer["organization_id"].as_str().unwrap()))
            .await
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_file_can_be_edited_and_imported_again() {
    let desk = Desk::new();
    acme(&desk);
    globex(&desk);
    import(&desk, "devices.csv", FILE, &[]);
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    let answer =
        client().get(process.url(&format!("{DEVICES}?format=csv"))).header("cookie", &cookie).send().await.unwrap();
    let exported = answer.text().await.unwrap();
    let same = import(&desk, "exported.csv", &exported, &[]);
    assert_eq!((&same["unchanged"], &same["updated"], &same["created"]), (&json!(2), &json!(0), &json!(0)), "{same}");
    let ignored = same["ignored_columns"].as_array().unwrap();
    assert!(ignored.contains(&json!("status")) && ignored.contains(&json!("last_seen_at")), "{same}");
    let edited = import(&desk, "edited.csv", &exported.replace(",HP,", ",Brother,"), &[]);
    assert_eq!((&edited["updated"], &edited["unchanged"]), (&json!(1), &json!(1)), "{edited}");
    let found = list(&process, &cookie, "type=printer&fields=manufacturer").await;
    assert_eq!(found[0]["manufacturer"], "Brother");
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_imported_as_they_were_exported_whatever_they_are() {
    let desk = Desk::new();
    acme(&desk);
    let odd = [
        json!(["vip", "Berlin Mitte", "2nd floor"]),
        json!(["a;b", "=1", "x;=1"]),
        json!(["-1", "'quoted'", "it's"]),
        json!(["[\"a\"]"]),
        json!(["[\"a\"", "\"b\"]"]),
        json!(["[vip]", "(old)", "{x}"]),
        json!(["R|D", "\"said\""]),
    ];
    let lines = odd.iter().enumerate().map(|(n, tags)| json!({"hostname": format!("h{n}"), "tags": tags}).to_string());
    let made = import(&desk, "devices.ndjson", &lines.collect::<Vec<_>>().join("\n"), &[]);
    assert_eq!(made["created"], odd.len(), "{made}");
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    let shown = async || {
        let mut found = list(&process, &cookie, "fields=hostname,tags").await;
        found.sort_by_key(|device| device["hostname"].to_string());
        found.iter().map(|device| device["tags"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(shown().await, odd);
    let export = format!("{DEVICES}?format=csv&fields=hostname,tags");
    let answer = client().get(process.url(&export)).header("cookie", &cookie).send().await.unwrap();
    let exported = answer.text().await.unwrap();
    let same = import(&desk, "exported.csv", &exported, &[]);
    assert_eq!((&same["unchanged"], &same["updated"]), (&json!(odd.len()), &json!(0)), "{same}");
    assert_eq!(shown().await, odd);
}

#[test]
fn tags_in_another_notation_are_refused_and_not_taken_apart() {
    let desk = Desk::new();
    acme(&desk);
    import(&desk, "devices.csv", "hostname,tags\nknown,vip\n", &[]);
    let detail = "must be tags with commas between them, such as vip,berlin; this looks like a list in another notation. If \
                  the tags are meant so, import them as a list, in a file of JSON lines";
    for tags in [
        r#"["vip","berlin"]"#,
        r#"["vip"]"#,
        "[]",
        "['vip', 'berlin']",
        "[vip, berlin]",
        "{vip,berlin}",
        "(vip, berlin)",
        r#""vip","berlin""#,
        "vip;berlin",
        "vip; berlin",
        "vip|berlin",
    ] {
        for host in ["new", "known"] {
            let path = desk.file("tags.csv", format!("hostname,tags\n{host},\"{}\"\n", tags.replace('"', "\"\"")));
            let ended = desk.run(&device("import", &["--file", path.to_str().unwrap()]));
            assert_eq!((ended.code, ended.stderr.as_str()), (1, "error: nothing was imported: see the rows above\n"));
            let first = ended.stdout.lines().next().unwrap_or_default();
            assert_eq!(first, format!("row 1, tags: {detail}"), "{tags}");
        }
    }
    let fine = import(&desk, "fine.csv", "hostname,tags\nknown,\" vip , berlin,[x],(old) \"\n", &[]);
    assert_eq!(fine["updated"], 1, "{fine}");
    let meant = import(&desk, "meant.ndjson", "{\"hostname\": \"known\", \"tags\": [\"vip;berlin\", \"[]\"]}\n", &[]);
    assert_eq!(meant["updated"], 1, "{meant}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_on_lines_are_read_like_the_records_of_the_api() {
    let desk = Desk::new();
    acme(&desk);
    let lines = "{\"hostname\": \"mac1\", \"os\": {\"name\": \"macOS\", \"version\": \"15.1\"}, \"tags\": [\"desk\"], \
                 \"custom_fields\": {\"floor\": 3}, \"uuid\": \"4C4C4544-0058-4B10-8032-B7C04F503133\", \"status\": \"online\"}\n\n\
                 {\"display_name\": \"Door\", \"primary_mac\": \"00-11-22-33-44-55\"}\n";
    let made = import(&desk, "devices.ndjson", lines, &[]);
    assert_eq!((&made["created"], &made["ignored_columns"]), (&json!(2), &json!(["status"])), "{made}");
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    let found = list(&process, &cookie, "").await;
    let [door, mac] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(door["primary_mac"], "00:11:22:33:44:55");
    assert_eq!((&mac["os"]["version"], &mac["custom_fields"]), (&json!("15.1"), &json!({"floor": 3})));
    assert_eq!(mac["uuid"], "4c4c4544-0058-4b10-8032-b7c04f503133");
}

#[test]
fn rows_with_errors_are_named_and_nothing_is_imported() {
    let desk = Desk::new();
    acme(&desk);
    let rows = "hostname,type,organization,warranty.end_date,primary_ip,cpu.cores,id\n\
                good,server,,,,,\n\
                ,server,,,,,\n\
                a,toaster,,,,,\n\
                b,server,nope,31.1.2026,1.2.3,-1,\n\
                c,server,,,,,dev_01jd8z6v2mfkpb7h3q9xw5t4rd\n\
                d,server\n";
    let path = desk.file("bad.csv", rows);
    let ended = desk.run(&device("import", &["--file", path.to_str().unwrap()]));
    assert_eq!((ended.code, ended.stderr.as_str()), (1, "error: nothing was imported: see the rows above\n"));
    for wanted in [
        "row 2 needs an id, a hostname, a display_name or a serial_number",
        "row 3, type: must be server, workstation, laptop, mobile, network, printer, virtual or other",
        "row 4, warranty.end_date: must be a date such as 2026-01-31",
        "row 4, primary_ip: must be an IP address",
        "row 4, cpu.cores: must not be negative",
        "row 4, organization: there is no such organization",
        "row 5, id: there is no such device",
        "row 6 has 2 fields, and there are 7 columns",
    ] {
        assert!(ended.stdout.lines().any(|line| line == wanted), "{wanted}\n{}", ended.stdout);
    }
    let other = desk.file("other.csv", "hostname,colour\na,red\n");
    let ended = desk.run(&device("import", &["--file", other.to_str().unwrap()]));
    assert!(
        ended.code == 1 && ended.stderr.starts_with("error: there is no column \"colour\"; a file may have "),
        "{ended:?}"
    );
    let twice = desk.file("twice.csv", "hostname,hostname\na,b\n");
    let ended = desk.run(&device("import", &["--file", twice.to_str().unwrap()]));
    assert_eq!((ended.code, ended.stderr.as_str()), (1, "error: the column \"hostname\" stands there twice\n"));
    let same = desk.file("same.csv", "hostname,serial_number,manufacturer\na,N/A,HP\nb,N/A,HP\nA,,\n");
    let ended = desk.run(&device("import", &["--file", same.to_str().unwrap()]));
    assert_eq!(ended.stdout.lines().next(), Some("row 3 is of the same device as row 1"), "{ended:?}");
    let none = desk.run(&device("import", &["--file", "nowhere.csv"]));
    assert!(none.code == 1 && none.stderr.starts_with("error: nowhere.csv: "), "{none:?}");
    let unnamed = desk.file("devices", "x");
    let ended = desk.run(&device("import", &["--file", unnamed.to_str().unwrap()]));
    assert_eq!((ended.code, ended.stderr.as_str()), (1, "error: say --format csv or --format ndjson\n"));
    let ended = desk.json(&device("import", &["--file", desk.file("one.csv", "hostname\ngood\n").to_str().unwrap()]));
    assert_eq!(ended["created"], 1, "nothing was imported before: {ended}");
}

const NAMES: &str = "hostname,serial_number,manufacturer,organization,id\n";

/// Rows of machines that have nothing to do with each other. More than fifty are several transactions.
fn hosts(count: usize) -> String {
    (0..count).map(|n| format!("host-{n},,,,\n")).collect::<Vec<_>>().concat()
}

/// Imports a file that is refused, and tells the first thing that is wrong with it.
#[track_caller]
fn refused(desk: &Desk, rows: &str) -> String {
    let path = desk.file("refused.csv", format!("{NAMES}{rows}"));
    let ended = desk.run(&device("import", &["--file", path.to_str().unwrap()]));
    assert_eq!((ended.code, ended.stderr.as_str()), (1, "error: nothing was imported: see the rows above\n"));
    ended.stdout.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_at_the_end_of_a_long_file_keeps_all_of_it_from_being_imported() {
    let desk = Desk::new();
    acme(&desk);
    let hosts = hosts(120);
    let wrong = refused(&desk, &format!("{hosts}last,,,nobody,\n"));
    assert_eq!(wrong, "row 121, organization: there is no such organization");
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    assert_eq!(list(&process, &cookie, "updated_since=2020-01-01T00:00:00Z").await, Vec::<Value>::new());
    let made = import(&desk, "long.csv", &format!("{NAMES}{hosts}"), &[]);
    assert_eq!((&made["created"], &made["unchanged"]), (&json!(120), &json!(0)), "{made}");
    let again = import(&desk, "long.csv", &format!("{NAMES}{hosts}"), &[]);
    assert_eq!((&again["created"], &again["unchanged"]), (&json!(0), &json!(120)), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rows_of_one_device_are_named_wherever_they_stand() {
    let desk = Desk::new();
    acme(&desk);
    globex(&desk);
    import(&desk, "known.csv", "hostname\nweb01\n", &[]);
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    let known = list(&process, &cookie, "").await;
    let id = known[0]["id"].as_str().unwrap();
    let renamed = format!("web02,,,,{id}\n");
    let several = "several devices are known by what the row says: give the id";
    for between in [0, 60] {
        let (last, hosts) = (between + 2, hosts(between));
        let same = format!("row {last} is of the same device as row 1");
        for (first, second) in [
            // What is there already.
            (format!("web01,,,,{id}\n"), "web01,,,,\n"),
            (renamed.clone(), "web02,,,,\n"),
            ("web01,,,,\n".to_owned(), renamed.as_str()),
            // What the file makes.
            ("db01,7XK2P13,HP,,\n".to_owned(), "db01,,,,\n"),
            ("db01,7XK2P13,HP,,\n".to_owned(), "other,7xk2p13,hp,,\n"),
            ("db01,,,globex,\n".to_owned(), "DB01,,,,\n"),
        ] {
            assert_eq!(refused(&desk, &format!("{first}{hosts}{second}")), same, "{first}{second}");
        }
        let twins = format!("twin,7XK2P13,HP,,\ntwin,8XK2P14,HP,,\n{hosts}twin,,,,\n");
        assert_eq!(refused(&desk, &twins), format!("row {} {several}", last + 1));
    }
    assert_eq!(list(&process, &cookie, "").await, known);
    // A name that is given up can be another's.
    let moved = import(&desk, "moved.csv", &format!("{NAMES}{renamed}{}web01,,,,\n", hosts(60)), &[]);
    assert_eq!((&moved["created"], &moved["updated"]), (&json!(61), &json!(1)), "{moved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_tagged_merged_and_deleted_and_the_trail_says_so() {
    let desk = Desk::new();
    acme(&desk);
    import(&desk, "devices.csv", "hostname,serial_number,tags,display_name\nweb,,x,\nweb-old,A1B2C3D4,y,Front\n", &[]);
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    let found = list(&process, &cookie, "fields=hostname,serial_number").await;
    let [second, first] = found.as_slice() else { panic!("{found:?}") };
    let (second, first) = (second["id"].as_str().unwrap(), first["id"].as_str().unwrap());
    let tagged = desk.json(&device("tag", &["--id", first, "--add", "new", "--remove", "x"]));
    assert_eq!((&tagged["tags"], &tagged["version"]), (&json!(["new"]), &json!(2)));
    let merged = desk.json(&device("merge", &["--id", first, "--duplicate", second]));
    assert_eq!((&merged["id"], &merged["tags"]), (&json!(first), &json!(["new", "y"])));
    assert_eq!(merged["display_name"], "Front");
    assert_eq!(list(&process, &cookie, "").await.len(), 1);
    let changes = list(&process, &cookie, "updated_since=2020-01-01T00:00:00Z").await;
    assert!(changes.iter().any(|one| one["id"] == second && one["deleted_at"].is_string()), "{changes:?}");
    let deleted = desk.run(&device("delete", &["--id", first]));
    assert_eq!(deleted.shown(&desk), "exit 0\nstdout:\nDevice dev_ID was deleted.\n");
    let again = desk.run(&device("delete", &["--id", first]));
    assert_eq!((again.code, again.stderr), (1, format!("error: there is no device {first} in this tenant\n")));
    let nothing = desk.run(&device("delete", &["--ingest-key", "ing_01jd8z6v2mfkpb7h3q9xw5t4re"]));
    assert_eq!((nothing.code, nothing.stderr.contains("there is no ingest key")), (1, true), "{}", nothing.stderr);
    assert_eq!(desk.run(&device("delete", &[])).code, 2);
    let itself = desk.run(&device("merge", &["--id", first, "--duplicate", first]));
    assert_eq!((itself.code, itself.stderr.as_str()), (1, "error: A device cannot be merged with itself.\n"));
    assert_eq!(desk.run(&device("tag", &["--id", "nope", "--add", "x"])).code, 2);
    for (action, count) in [("device.create", 2), ("device.update", 2), ("device.merge", 1), ("device.delete", 2)] {
        let (_, trail) = get(&process, &format!("{AUDIT}?action={action}"), ("cookie", &cookie)).await;
        assert_eq!(trail["data"].as_array().map(Vec::len), Some(count), "{action}: {trail}");
    }
}

#[test]
fn hours_and_days_of_silence_must_fit_each_other() {
    let desk = Desk::new();
    for (flags, wanted) in [
        (["--device-offline-hours", "24"], "--device-offline-hours 24 is not more than --device-report-hours 24"),
        (["--device-stale-days", "1"], "--device-offline-hours 36 is not less than --device-stale-days 1"),
    ] {
        let ended = desk.run(&[&["serve"], &flags[..]].concat());
        assert!(ended.code == 2 && ended.stderr.contains(wanted), "{ended:?}");
    }
}
