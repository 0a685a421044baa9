//! `format=csv|ndjson`: the whole list as a file.

use serde_json::{Value, json};
use tenant_control::features::devices::Software;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{INVENTORY, add, add_all, bulk, chosen, csv, named, remove, software, text, walk, with};
use crate::support::{Answer, Server, Tenancy, over_http};
use crate::tickets::generous;

const COLUMNS: &str = "id,hostname,display_name,type,platform,os.name,os.version,os.build,os.kernel,os.arch,status,health,\
    organization_id,manufacturer,model,serial_number,asset_tag,uuid,cpu.model,cpu.sockets,cpu.cores,memory_bytes,firmware,\
    page_count,primary_ip,primary_mac,last_logged_user,last_boot_at,needs_reboot,patch.pending,patch.failed,patch.last_installed_at,\
    warranty.start_date,warranty.end_date,warranty.status,agent.name,agent.version,agent.device_id,agent.tag,tags,custom_fields,\
    possible_duplicate_of,first_seen_at,last_seen_at,inventory_at,deleted_at,version,created_at,updated_at";

async fn file(server: &Server, tenancy: &Tenancy, query: &str) -> Answer {
    server.get(format!("{INVENTORY}?{query}")).cookie(&tenancy.admin).await
}

fn body(answer: &Answer) -> String {
    String::from_utf8(answer.is(200).body.clone()).expect("UTF-8")
}

async fn lines(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<Vec<String>> {
    let answer = file(server, tenancy, &format!("format=csv&{query}")).await;
    assert_eq!(answer.is(200).header("content-type"), "text/csv; charset=utf-8");
    csv::parse(&body(&answer))
}

async fn objects(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<Value> {
    let answer = file(server, tenancy, &format!("format=ndjson&{query}")).await;
    assert_eq!(answer.is(200).header("content-type"), "application/x-ndjson");
    let body = body(&answer);
    assert!(body.is_empty() || body.ends_with('\n'));
    body.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// A text with an apostrophe before what would be a formula: at its beginning, and where some spreadsheets see the next field.
fn guarded(text: &str) -> String {
    let mut written = if text.starts_with(['\t', '\r', '\n']) { "'".to_owned() } else { String::new() };
    let mut begins = true;
    for letter in text.chars() {
        if begins && matches!(letter, '=' | '+' | '-' | '@') {
            written.push('\'');
        }
        begins = matches!(letter, ';' | '\t' | '\r' | '\n');
        written.push(letter);
    }
    written
}

/// What stands in a field for a value; texts are not formulas.
fn cell(column: &str, row: &Value) -> String {
    let value = row.pointer(&format!("/{}", column.replace('.', "/"))).unwrap_or_else(|| panic!("{column} in {row}"));
    match value {
        Value::Null => String::new(),
        Value::String(text) => guarded(text),
        Value::Array(tags) if column == "tags" => {
            guarded(&tags.iter().map(|tag| tag.as_str().unwrap()).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// A tenant with devices that are hard to write down.
async fn odd(server: &Server) -> Tenancy {
    let acme = server.tenant("acme").await;
    let some = |text: &str| Some(text.to_owned());
    let now = server.now();
    let mut devices = vec![
        chosen::full("plain"),
        named("bare"),
        with("=cmd|' /C calc'!A0", |full| {
            full.device.display_name = some("+1");
            full.device.model = some("-2+3");
            full.device.manufacturer = some("@SUM(A1)");
            full.device.serial_number = some("\t=1");
            full.device.asset_tag = some("\r\n=1");
            full.device.os.name = some("=\"a\",b");
            full.device.tags = vec!["=x".to_owned(), "y".to_owned()];
        }),
        with("a\"b,c", |full| {
            full.device.display_name = some("two\r\nlines");
            full.device.os.version = some("\"");
            full.device.os.build = some(",");
            full.device.model = some("one\nline feed");
            full.device.last_logged_user = some(" kept ");
            full.device.tags = vec!["a".to_owned(), "b c".to_owned(), "\"q\"".to_owned()];
            full.device.custom_fields = json!({"rack": "B,7", "say": "\"hi\"\r\n", "list": [1, null, {"a": "=1"}]})
                .as_object()
                .cloned()
                .unwrap();
        }),
        with("Größe 火事 🖨", |full| full.device.uuid = some("4c4c4544-0058-4b10-8032-b7c04f503133")),
        with("x;=cmd|' /C calc'!A0;y", |full| {
            full.device.display_name = some("a;b;-1");
            full.device.model = some("tab\t+1");
            full.device.os.name = some("two\r\n@SUM(A1)");
            full.device.tags = vec!["t;=1".to_owned()];
            full.device.custom_fields = json!({"note": "v;=1;w"}).as_object().cloned().unwrap();
            full.parts.software = vec![Software { publisher: some("p;=1"), ..software("s;-1", "1") }];
        }),
    ];
    let all = &mut devices[4].device;
    all.os.kernel = some("6.1.0");
    all.os.arch = some("x86_64");
    (all.cpu.model, all.cpu.sockets, all.cpu.cores) = (some("Xeon"), Some(2), Some(20));
    (all.memory_bytes, all.needs_reboot, all.last_boot_at) = (Some(68_719_476_736), Some(true), Some(now));
    (all.firmware, all.page_count) = (some("=1.2"), Some(94_344));
    (all.patch.pending, all.patch.failed, all.patch.last_installed_at) = (Some(0), Some(3), Some(now));
    (all.warranty.start_date, all.warranty.end_date) = (some("2020-01-01"), some("2021-01-01"));
    (all.agent.name, all.agent.version, all.agent.device_id) = (some("Agent"), some("2.6"), some("web01-2026"));
    all.agent.tag = some("globex");
    (all.first_seen_at, all.last_seen_at, all.inventory_at) = (Some(now), Some(now), Some(now));
    (all.primary_ip, all.primary_mac) = (some("192.0.2.1"), some("02:fc:00:00:00:01"));
    add_all(server, &acme, devices).await;
    acme
}

over_http! {
    async fn every_field_stands_in_its_column(server: Server) {
        let acme = odd(&server).await;
        let (rows, _) = walk(&server, &acme, "").await;
        let lines = lines(&server, &acme, "").await;
        let columns: Vec<&str> = COLUMNS.split(',').collect();
        assert_eq!(lines[0], columns);
        assert_eq!(lines.len(), rows.len() + 1);
        for (line, row) in lines[1..].iter().zip(&rows) {
            assert_eq!(line.len(), columns.len());
            for (column, field) in columns.iter().zip(line) {
                if *column == "custom_fields" {
                    assert_eq!(serde_json::from_str::<Value>(field).unwrap(), row[*column]);
                } else {
                    assert_eq!(field, &cell(column, row), "{column} of {}", row["hostname"]);
                }
            }
        }
        // Nothing that a spreadsheet would calculate, however its fields are quoted.
        for field in lines[1..].iter().flatten() {
            let first = field.chars().next();
            assert!(!matches!(first, Some('=' | '+' | '-' | '@' | '\t' | '\r' | '\n')), "{field:?}");
        }
        // Nor where a semicolon separates them, and a quote within a field is nothing special.
        let whole = body(&file(&server, &acme, "format=csv&include=software").await);
        for piece in whole.split([';', '\t', '\r', '\n']) {
            let first = piece.trim_start_matches('"').chars().next();
            assert!(!matches!(first, Some('=' | '+' | '-' | '@')), "{piece:?}");
        }
        assert!(columns.iter().enumerate().all(|(at, column)| {
            ["deleted_at", "organization_id", "possible_duplicate_of"].contains(column) || lines[1..].iter().any(|line| !line[at].is_empty())
        }), "each is tried with something in it");
    }

    async fn each_line_is_a_device_as_the_list_shows_it(server: Server) {
        let acme = odd(&server).await;
        for query in ["", "include=software,disks,volumes,nics,ports,supplies", "fields=hostname,os&include=nics", "fields=tags", "type=server&q=plain"] {
            let (rows, _) = walk(&server, &acme, &format!("limit=2&{query}")).await;
            assert!(!rows.is_empty());
            assert_eq!(objects(&server, &acme, query).await, rows, "{query}");
        }
    }

    async fn fields_and_lists_are_chosen_in_a_file_as_well(server: Server) {
        let acme = odd(&server).await;
        let chosen = lines(&server, &acme, "fields=tags,os,hostname").await;
        assert_eq!(chosen[0], ["id", "hostname", "os.name", "os.version", "os.build", "os.kernel", "os.arch", "tags"]);
        assert_eq!(lines(&server, &acme, "fields=id").await[0], ["id"]);
        let include = "include=software,disks,volumes,nics,ports,supplies";
        let (rows, _) = walk(&server, &acme, include).await;
        let all = lines(&server, &acme, include).await;
        let first = COLUMNS.split(',').count();
        let mut lists: Vec<&str> = all[0][first..].iter().map(String::as_str).collect();
        assert_eq!(all[0].len(), first + chosen::LISTS.len());
        for (line, row) in all[1..].iter().zip(&rows) {
            for (list, field) in lists.iter().zip(&line[first..]) {
                let read: Value = serde_json::from_str(field).unwrap_or_else(|error| panic!("{error}: {field}"));
                assert_eq!(read, row[*list], "{list} of {}", row["hostname"]);
            }
        }
        lists.sort_unstable();
        assert_eq!(lists, ["disks", "nics", "ports", "software", "supplies", "volumes"]);
        let plain = lines(&server, &acme, "q=plain&fields=hostname&include=disks").await;
        assert_eq!((plain.len(), plain[0].join(" ")), (2, "id hostname disks".to_owned()));
    }

    async fn filters_apply_to_files(setup: Setup) {
        let server = generous(setup).await;
        let acme = odd(&server).await;
        let gone = add(&server, &acme, named("gone")).await;
        remove(&server, &acme, &gone).await;
        for query in ["type=server", "type=laptop", "q=plain", "tag==x,y", "software=openssl", "software=openssl@9", "status=online",
            "health=needs_attention,unhealthy", "organization_id=none", "platform=linux&tag=a", "updated_since=2026-01-01T00:00:00Z",
            "updated_since=2026-01-01T00:00:00Z&q=gone", "updated_since=9999-01-01T00:00:00Z"] {
            let (rows, _) = walk(&server, &acme, query).await;
            let ids: Vec<&str> = rows.iter().map(|row| text(row, "id")).collect();
            let lines = lines(&server, &acme, query).await;
            assert_eq!(lines[1..].iter().map(|line| line[0].as_str()).collect::<Vec<_>>(), ids, "{query}");
            assert_eq!(objects(&server, &acme, query).await, rows, "{query}");
            let deleted = lines[0].iter().position(|column| column == "deleted_at").unwrap();
            for line in &lines[1..] {
                assert_eq!(!line[deleted].is_empty(), line[0] == gone, "{query}");
            }
        }
        // Where there is nothing, there is still the line of names.
        let other = server.tenant("other").await;
        assert_eq!(body(&file(&server, &other, "format=csv").await), format!("{COLUMNS}\r\n"));
        assert_eq!(body(&file(&server, &other, "format=ndjson").await), "");
    }

    async fn files_are_counted_as_exports(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        add(&server, &acme, named("web-1")).await;
        let formats = ["csv", "ndjson"];
        for turn in 0..30_usize {
            let answer = file(&server, &acme, &format!("format={}", formats[turn % 2])).await;
            assert_eq!(answer.is(200).header("ratelimit-policy"), "\"export\";q=30;w=60");
            assert_eq!(answer.remaining(), ("export".to_owned(), 29 - turn as u64));
            assert_eq!(answer.header("cache-control"), "no-store");
        }
        for format in formats {
            let refused = file(&server, &acme, &format!("format={format}")).await;
            refused.problem("rate_limited");
            assert!(refused.header("ratelimit-policy").starts_with("\"export\""));
        }
        for query in ["", "format=json", "view=summary"] {
            assert_eq!(file(&server, &acme, query).await.remaining().0, "read", "{query}");
        }
        file(&server, &globex, "format=csv").await.is(200);
        server.advance(60_000);
        file(&server, &acme, "format=csv").await.is(200);
    }

    async fn a_file_says_what_it_is_called(server: Server) {
        let acme = server.tenant("acme").await;
        add(&server, &acme, named("web-1")).await;
        for format in ["csv", "ndjson"] {
            let answer = file(&server, &acme, &format!("format={format}")).await;
            assert_eq!(answer.is(200).header("content-disposition"), format!("attachment; filename=\"devices.{format}\""));
        }
        for query in ["", "format=json", "view=summary"] {
            assert!(!file(&server, &acme, query).await.headers.contains_key("content-disposition"), "{query} is no file");
        }
    }

    /// There is room for three on a page. The others are found and judged when it is their turn.
    async fn where_a_page_has_room_for_few_no_more_are_read(server: Server) {
        let acme = server.tenant("acme").await;
        let long = |at: usize| Software { publisher: Some("x".repeat(30_000)), ..software(&format!("package-{at}"), "1") };
        let device = |n: usize| with(&format!("h{n}"), |full| {
            full.device.tags = vec!["t".to_owned()];
            full.parts.software = (0..10).map(long).collect();
        });
        add_all(&server, &acme, (0..20).map(device).collect()).await;
        // What is asked from here on is known.
        server.app.store.executed_lists();
        let query = "tag=t&include=software&fields=hostname";
        let (rows, pages) = walk(&server, &acme, &format!("{query}&limit=200")).await;
        let expected: Vec<String> = (0..20).rev().map(|n| format!("h{n}")).collect();
        assert_eq!(rows.iter().map(|row| text(row, "hostname")).collect::<Vec<_>>(), expected);
        assert_eq!(pages, [3, 3, 3, 3, 3, 3, 2]);
        assert_eq!(objects(&server, &acme, query).await, rows);
        let asked = server.app.store.executed_lists();
        let looks = asked.iter().filter(|text| text.contains(" FROM devices LEFT JOIN "));
        let most = looks.map(|text| text.matches(" UNION ALL ").count() + 1).max().expect("devices are read");
        assert!(most <= 16, "{most} devices are read together");
    }

    async fn where_the_end_of_a_file_cannot_be_told_there_is_none(server: Server) {
        let acme = server.tenant("acme").await;
        add(&server, &acme, named("web-1")).await;
        for (format, status) in [("csv", "400"), ("ndjson", "400"), ("json", "200")] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let head = format!("GET {INVENTORY}?format={format} HTTP/1.0\r\nHost: a\r\nCookie: {}\r\n\r\n", acme.admin);
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.lines().next().unwrap().contains(status), "{format}: {answer}");
            assert!(status == "200" || answer.contains("\"invalid_parameter\""), "{format}: {answer}");
        }
    }

    async fn a_file_has_more_than_a_page(server: Server) {
        let acme = server.tenant("acme").await;
        bulk::load(&server, &acme, 1_300, 10).await;
        for (query, wanted) in [
            ("", (1..=1_300).rev().collect::<Vec<i64>>()),
            ("updated_since=2000-01-01T00:00:00Z", (1..=1_300).collect()),
            ("health=healthy", (1..=1_300).rev().filter(|n| n % 2 == 0).collect()),
            ("health=healthy&status=offline", vec![2]),
        ] {
            let rows = objects(&server, &acme, &format!("fields=hostname&{query}")).await;
            assert_eq!(rows.iter().map(bulk::number).collect::<Vec<_>>(), wanted, "{query}");
        }
    }
}
