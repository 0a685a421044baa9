//! The day of docs/analytics.md, line by line.

use kernel::auth::open_as_operator;
use tenant_control::features::tickets::Priority;
use tenant_control::features::tickets::sla::{self, PriorityPolicy, SlaPolicy};

use super::*;
use crate::tickets::{changed, make};

const GUIDE: &str = include_str!("../../../../../docs/analytics.md");

/// The lines of the table: the time, the ticket, and what happens.
fn lines() -> Vec<(Timestamp, usize, String)> {
    let (_, table) = GUIDE.split_once("| time | ticket | what happens |\n").expect("the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| (at(&format!("2026-11-16T{}:00Z", cells[0])), cells[1].parse().unwrap(), cells[2].to_owned()))
        .collect()
}

/// The first JSON of the guide.
fn told() -> Value {
    let (_, json) = GUIDE.split_once("```json\n").expect("an answer");
    serde_json::from_str(json.split_once("```").expect("its end").0).expect("JSON")
}

over_http! {
    async fn the_day_of_the_guide_has_the_figures_that_it_tells(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let policy = SlaPolicy { first_response_minutes: 60, resolution_minutes: 240, hours: None, timezone: None };
        let db = open_as_operator(&server.app.store, &acme.tenant);
        sla::store::set_policy(&db, PriorityPolicy { priority: Priority::High, policy }).await.unwrap();
        let mut tickets: Vec<Value> = Vec::new();
        for (moment, number, what) in lines() {
            server.go_to(moment);
            if let Some(priority) = what.strip_prefix("created, ") {
                tickets.push(make(&server, &acme, &json!({"priority": priority})).await);
                assert_eq!(tickets.len(), number);
                continue;
            }
            let change = match what.as_str() {
                "answered" => json!({"comment": {"body": "We are on it.", "public": true}}),
                status => json!({"status": status}),
            };
            tickets[number - 1] = changed(&server, &acme, &tickets[number - 1], &change).await;
            server.fold().await;
        }
        let query = "since=2026-11-16T00:00:00Z&until=2026-11-17T00:00:00Z&include=tickets";
        let figures = server.figures(&acme, query).await;
        assert_eq!(figures["tickets"]["totals"], told());
        // By hour the same, and the backlog of the evening before the ticket was cancelled.
        let hourly = server.figures(&acme, &format!("{query}&interval=hour")).await;
        assert_eq!(sum(&hourly["tickets"], "/created"), 4);
        let backlog = column(&hourly["tickets"], "/backlog");
        assert_eq!(backlog[7..17], [0, 2, 3, 2, 2, 1, 2, 3, 2, 1].map(Value::from));
    }
}
