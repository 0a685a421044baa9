//! Hours and days of time zones, through both changes of the clocks.

use super::*;
use crate::tickets::make;

/// A ticket at each of these moments.
async fn with_tickets(setup: Setup, moments: &[&str]) -> (Server, Tenancy) {
    let server = open(setup).await;
    let acme = server.tenant("acme").await;
    for moment in moments {
        server.go_to(at(moment));
        make(&server, &acme, &json!({})).await;
    }
    server.advance(1);
    (server, acme)
}

async fn created(server: &Server, acme: &Tenancy, query: &str) -> Vec<(String, i64)> {
    let figures = server.figures(acme, &format!("{query}&include=tickets")).await;
    let series = figures["tickets"]["series"].as_array().unwrap().clone();
    let pair = |bucket: &Value| (bucket["start"].as_str().unwrap().to_owned(), bucket["created"].as_i64().unwrap());
    series.iter().map(pair).collect()
}

fn pairs(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    expected.iter().map(|(start, count)| (start.replace('Z', ":00.000Z"), *count)).collect()
}

over_http! {
    async fn days_are_those_of_the_zone_when_clocks_change(setup: Setup) {
        let moments = [
            "2026-03-28T22:59:00Z", "2026-03-28T23:00:00Z", "2026-03-29T21:59:00Z", "2026-03-29T22:00:00Z",
            "2026-10-24T21:59:00Z", "2026-10-24T22:00:00Z", "2026-10-25T22:59:00Z", "2026-10-25T23:00:00Z",
        ];
        let (server, acme) = with_tickets(setup, &moments).await;
        let spring = "since=2026-03-27T23:00:00Z&until=2026-03-30T22:00:00Z&timezone=Europe/Berlin";
        let expected = [("2026-03-27T23:00Z", 1), ("2026-03-28T23:00Z", 2), ("2026-03-29T22:00Z", 1)];
        assert_eq!(created(&server, &acme, spring).await, pairs(&expected));
        let autumn = "since=2026-10-23T22:00:00Z&until=2026-10-26T23:00:00Z&timezone=Europe/Berlin";
        let expected = [("2026-10-23T22:00Z", 1), ("2026-10-24T22:00Z", 2), ("2026-10-25T23:00Z", 1)];
        assert_eq!(created(&server, &acme, autumn).await, pairs(&expected));
        let hours = created(&server, &acme, &format!("{autumn}&interval=hour")).await;
        assert_eq!((hours.len(), hours.iter().map(|(_, count)| count).sum::<i64>()), (73, 4));
        let weeks = created(&server, &acme, &format!("{autumn}&interval=week")).await;
        assert_eq!(weeks, pairs(&[("2026-10-18T22:00Z", 3), ("2026-10-25T23:00Z", 1)]));
    }

    async fn zones_ahead_by_parts_of_an_hour_have_their_own_hours(setup: Setup) {
        let moments = ["2026-02-02T11:29:00Z", "2026-02-02T11:31:00Z", "2026-02-02T12:14:00Z", "2026-02-02T12:16:00Z"];
        let (server, acme) = with_tickets(setup, &moments).await;
        let range = "since=2026-02-02T11:00:00Z&until=2026-02-02T12:30:00Z&interval=hour";
        let kolkata = created(&server, &acme, &format!("{range}&timezone=Asia/Kolkata")).await;
        assert_eq!(kolkata, pairs(&[("2026-02-02T10:30Z", 1), ("2026-02-02T11:30Z", 3)]));
        let kathmandu = created(&server, &acme, &format!("{range}&timezone=Asia/Kathmandu")).await;
        assert_eq!(kathmandu, pairs(&[("2026-02-02T10:15Z", 0), ("2026-02-02T11:15Z", 3), ("2026-02-02T12:15Z", 1)]));
        let utc = created(&server, &acme, range).await;
        assert_eq!(utc, pairs(&[("2026-02-02T11:00Z", 2), ("2026-02-02T12:00Z", 2)]));
    }
}
