//! Requests that are refused, and files.

use super::*;
use crate::tickets::make;

over_http! {
    async fn a_wrong_range_zone_or_family_is_refused(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        for query in [
            "since=2026-02-02T00:00:00Z&until=2026-02-02T00:00:00Z",
            "since=2026-02-02T00:00:00Z&until=2026-02-01T00:00:00Z",
            "since=2020-01-01T00:00:00Z&interval=hour",
            "since=1969-12-31T00:00:00Z",
            "until=3000-01-01T00:00:00Z",
            "since=yesterday",
            "timezone=Europe/Atlantis",
            "timezone=localtime",
            "interval=minute",
            "include=tickets,money",
            "format=ndjson",
        ] {
            let answer = server.ask_figures(&acme, query).await;
            assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("invalid_parameter")), "{query}");
        }
        let answer = server.ask_figures(&acme, "limit=5").await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("unknown_parameter")));
        // As many buckets as are allowed, and one more.
        for (until, status) in [("2021-02-20T16:00:00Z", 200), ("2021-02-20T16:00:00.001Z", 400)] {
            let query = format!("since=2020-01-01T00:00:00Z&until={until}&interval=hour&include=searches");
            assert_eq!(server.ask_figures(&acme, &query).await.status, status, "{until}");
        }
    }

    async fn a_file_has_a_row_for_each_bucket_and_a_column_for_each_number(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        make(&server, &acme, &json!({})).await;
        server.advance(1);
        let range = "since=2026-01-14T00:00:00Z&until=2026-01-16T00:00:00Z";
        let answer = server.ask_figures(&acme, &format!("{range}&format=csv")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.header("content-type").starts_with("text/csv"), "{}", answer.header("content-type"));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((rows.len(), &rows[0][..2]), (3, &["start", "tickets.created"][..]));
        assert_eq!([rows[1][0], rows[1][1]], ["2026-01-14T00:00:00.000Z", "0"]);
        assert_eq!([rows[2][0], rows[2][1]], ["2026-01-15T00:00:00.000Z", "1"]);
        // Every number of the JSON is a column, in whatever order.
        let figures = server.figures(&acme, range).await;
        let mut leaves: Vec<String> = Vec::new();
        for family in ["tickets", "devices", "vms", "backups", "workflows", "webhooks", "api_usage", "searches"] {
            add_leaves(&figures[family]["series"][0], family, &mut leaves);
        }
        leaves.retain(|leaf| leaf.rsplit('.').next() != Some("start") && !leaf.starts_with("vms.spend"));
        leaves.extend(["start", "vms.spend.amount", "vms.spend.currency"].map(str::to_owned));
        leaves.sort();
        let mut columns: Vec<String> = rows[0].iter().map(|column| (*column).to_owned()).collect();
        columns.sort();
        assert_eq!(columns, leaves);
        let one = server.ask_figures(&acme, &format!("{range}&format=csv&include=devices")).await;
        assert_eq!(String::from_utf8_lossy(&one.body).lines().next(), Some("start,devices.total,devices.online,devices.offline,devices.stale,devices.added,devices.removed"));
    }
}

fn add_leaves(value: &Value, path: &str, leaves: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                add_leaves(value, &format!("{path}.{name}"), leaves);
            }
        }
        _ => leaves.push(path.to_owned()),
    }
}
