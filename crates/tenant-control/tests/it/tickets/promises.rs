//! What is promised for tickets: due times in business hours, pauses, reopenings and how a ticket stands.

use kernel::auth::{Role, open_as_operator};
use kernel::base::{MINUTE_MS, Timestamp};
use serde_json::{Value, json};
use tenant_control::features::tickets::Priority;
use tenant_control::features::tickets::sla::{self, PriorityPolicy, SlaPolicy};

use super::TICKETS;
use crate::support::{Server, Tenancy, over_http};

const OFFICE: (&str, &str) = ("mon-fri@09:00-17:00", "Europe/Berlin");

/// A tenant at a moment, with a cookie that works then.
struct Desk<'a> {
    server: &'a Server,
    acme: Tenancy,
}

impl<'a> Desk<'a> {
    async fn open(server: &'a Server, at: &str) -> Desk<'a> {
        let mut desk = Desk { server, acme: server.tenant("acme").await };
        desk.go_to(at).await;
        desk
    }

    async fn go_to(&mut self, at: &str) {
        let at = Timestamp::parse(at).unwrap();
        assert!(at >= self.server.now(), "time does not go back to {at}");
        self.server.advance(at.as_millis() - self.server.now().as_millis());
        self.acme.admin = self.server.user(&self.acme.tenant, Role::Admin).await;
    }

    async fn promise(&self, priority: Priority, minutes: (i64, i64), hours: Option<(&str, &str)>) {
        let policy = SlaPolicy {
            first_response_minutes: minutes.0,
            resolution_minutes: minutes.1,
            hours: hours.map(|(hours, _)| hours.to_owned()),
            timezone: hours.map(|(_, zone)| zone.to_owned()),
        };
        let db = open_as_operator(&self.server.app.store, &self.acme.tenant);
        sla::store::set_policy(&db, PriorityPolicy { priority, policy }).await.unwrap();
    }

    async fn ticket(&self, priority: &str) -> Value {
        let body = json!({"subject": "Printer", "priority": priority});
        self.server.post(TICKETS).cookie(&self.acme.admin).json(&body).await.ok(201)
    }

    async fn change(&self, ticket: &Value, body: Value) -> Value {
        let target = format!("{TICKETS}?id={}", ticket["id"].as_str().unwrap());
        self.server.patch(target).cookie(&self.acme.admin).json(&body).await.ok(200)
    }

    async fn look(&self, ticket: &Value) -> Value {
        let target = format!("{TICKETS}?id={}", ticket["id"].as_str().unwrap());
        self.server.get(target).cookie(&self.acme.admin).await.ok(200)
    }

    async fn state(&self, ticket: &Value) -> String {
        self.look(ticket).await["sla_state"].as_str().unwrap().to_owned()
    }
}

fn dues(ticket: &Value) -> (&str, &str) {
    let text = |name: &str| ticket[name].as_str().unwrap_or("null");
    (text("first_response_due_at"), text("resolution_due_at"))
}

over_http! {
    async fn without_a_promise_nothing_is_due(server: Server) {
        let desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), None).await;
        let ticket = desk.ticket("low").await;
        assert_eq!((dues(&ticket), &ticket["sla_state"]), (("null", "null"), &json!("none")));
    }

    async fn a_promise_around_the_clock_counts_every_minute(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-06T22:00:00Z").await;
        desk.promise(Priority::Critical, (30, 240), None).await;
        let ticket = desk.ticket("critical").await;
        assert_eq!(dues(&ticket), ("2026-02-06T22:30:00.000Z", "2026-02-07T02:00:00.000Z"));
        for (at, state) in [
            ("2026-02-06T22:24:00Z", "ok"),
            ("2026-02-06T22:24:00.001Z", "at_risk"),
            ("2026-02-06T22:30:00Z", "at_risk"),
            ("2026-02-06T22:30:00.001Z", "breached"),
        ] {
            desk.go_to(at).await;
            assert_eq!(desk.state(&ticket).await, state, "at {at}");
        }
    }

    async fn business_hours_skip_nights_and_weekends(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-06T15:00:00Z").await;
        desk.promise(Priority::High, (30, 480), Some(OFFICE)).await;
        // Friday, 16:00 in Berlin: one hour is left of the day.
        let ticket = desk.ticket("high").await;
        assert_eq!(dues(&ticket), ("2026-02-06T15:30:00.000Z", "2026-02-09T15:00:00.000Z"));
        desk.change(&ticket, json!({"comment": {"body": "Seen."}})).await;
        for (at, state) in [
            ("2026-02-08T12:00:00Z", "ok"),
            // 384 of the 480 minutes have passed at 14:24 in Berlin on Monday.
            ("2026-02-09T13:24:00Z", "ok"),
            ("2026-02-09T13:24:00.001Z", "at_risk"),
            ("2026-02-09T15:00:00.001Z", "breached"),
        ] {
            desk.go_to(at).await;
            assert_eq!(desk.state(&ticket).await, state, "at {at}");
        }
    }

    async fn office_hours_keep_their_local_time_when_the_clocks_change(server: Server) {
        let mut desk = Desk::open(&server, "2026-03-27T15:00:00Z").await;
        desk.promise(Priority::High, (60, 120), Some(OFFICE)).await;
        // Friday 16:00 in winter; on Monday nine o'clock is an hour earlier in UTC.
        assert_eq!(dues(&desk.ticket("high").await), ("2026-03-27T16:00:00.000Z", "2026-03-30T08:00:00.000Z"));
        desk.go_to("2026-10-23T14:00:00Z").await;
        assert_eq!(dues(&desk.ticket("high").await), ("2026-10-23T15:00:00.000Z", "2026-10-26T09:00:00.000Z"));
    }

    async fn a_day_of_23_hours_has_23(server: Server) {
        let mut desk = Desk::open(&server, "2026-03-28T23:00:00Z").await;
        desk.promise(Priority::Low, (60, 24 * 60), Some(("mon-sun@00:00-24:00", "Europe/Berlin"))).await;
        assert_eq!(dues(&desk.ticket("low").await).1, "2026-03-29T23:00:00.000Z");
        // On windows of local time the hour that is skipped counts for nobody.
        desk.promise(Priority::Low, (60, 120), Some(("sun@01:00-04:00", "Europe/Berlin"))).await;
        assert_eq!(dues(&desk.ticket("low").await).1, "2026-03-29T02:00:00.000Z");
        desk.go_to("2026-10-24T22:00:00Z").await;
        desk.promise(Priority::Low, (60, 240), Some(("sun@01:00-04:00", "Europe/Berlin"))).await;
        // Four hours from 1:00 to 4:00, because one of them comes twice.
        assert_eq!(dues(&desk.ticket("low").await).1, "2026-10-25T03:00:00.000Z");
    }

    async fn a_pause_moves_what_is_due_by_the_hours_it_took(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), Some(OFFICE)).await;
        let ticket = desk.ticket("high").await;
        desk.go_to("2026-02-02T08:30:00Z").await;
        let paused = desk.change(&ticket, json!({"status": "pending"})).await;
        assert_eq!(paused["sla_state"], "paused");
        // Two nights later, outside the hours.
        desk.go_to("2026-02-04T20:00:00Z").await;
        assert_eq!(desk.state(&ticket).await, "paused", "however long it takes");
        let held = desk.change(&ticket, json!({"status": "on_hold"})).await;
        assert_eq!((&held["sla_state"], dues(&held)), (&json!("paused"), dues(&ticket)));
        let open = desk.change(&ticket, json!({"status": "in_progress"})).await;
        assert_eq!(open["sla_state"], "ok");
        // Half an hour and seven and a half are left, from nine o'clock on Thursday.
        assert_eq!(dues(&open), ("2026-02-05T08:30:00.000Z", "2026-02-05T15:30:00.000Z"));
    }

    async fn what_was_late_before_a_pause_stays_late(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), None).await;
        let ticket = desk.ticket("high").await;
        desk.go_to("2026-02-02T09:30:00Z").await;
        let paused = desk.change(&ticket, json!({"status": "pending"})).await;
        assert_eq!(paused["sla_state"], "breached");
        desk.go_to("2026-02-02T10:30:00Z").await;
        let open = desk.change(&ticket, json!({"status": "open"})).await;
        assert_eq!(dues(&open), ("2026-02-02T09:00:00.000Z", "2026-02-02T17:00:00.000Z"));
        assert_eq!(open["sla_state"], "breached");
    }

    async fn the_first_public_comment_is_the_first_response(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), None).await;
        let (early, late) = (desk.ticket("high").await, desk.ticket("high").await);
        desk.go_to("2026-02-02T08:55:00Z").await;
        let noted = desk.change(&early, json!({"comment": {"body": "Among us.", "public": false}})).await;
        assert_eq!((&noted["first_responded_at"], &noted["sla_state"]), (&Value::Null, &json!("at_risk")));
        let answered = desk.change(&early, json!({"comment": {"body": "Hello."}})).await;
        assert_eq!(answered["first_responded_at"], "2026-02-02T08:55:00.000Z");
        assert_eq!(answered["sla_state"], "ok");
        desk.go_to("2026-02-02T09:05:00Z").await;
        assert_eq!(desk.state(&early).await, "ok");
        let again = desk.change(&early, json!({"comment": {"body": "Still here."}})).await;
        assert_eq!(again["first_responded_at"], "2026-02-02T08:55:00.000Z", "the first stays the first");
        let answered = desk.change(&late, json!({"comment": {"body": "Sorry."}})).await;
        assert_eq!(answered["sla_state"], "breached");
    }

    async fn an_answer_during_a_pause_is_in_time(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), None).await;
        let ticket = desk.ticket("high").await;
        desk.go_to("2026-02-02T08:30:00Z").await;
        desk.change(&ticket, json!({"status": "pending"})).await;
        desk.go_to("2026-02-02T12:00:00Z").await;
        let answered = desk.change(&ticket, json!({"comment": {"body": "Hello."}})).await;
        assert_eq!(answered["sla_state"], "paused");
        desk.go_to("2026-02-02T13:00:00Z").await;
        let open = desk.change(&ticket, json!({"status": "open"})).await;
        assert_eq!((&open["sla_state"], dues(&open).1), (&json!("ok"), "2026-02-02T20:30:00.000Z"));
    }

    async fn a_resolved_ticket_stands_as_it_was_resolved(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), None).await;
        let (good, bad) = (desk.ticket("high").await, desk.ticket("high").await);
        desk.go_to("2026-02-02T08:30:00Z").await;
        let resolved = desk.change(&good, json!({"status": "resolved"})).await;
        assert_eq!((&resolved["sla_state"], &resolved["resolved_at"]), (&json!("ok"), &json!("2026-02-02T08:30:00.000Z")));
        desk.go_to("2026-02-03T08:30:00Z").await;
        assert_eq!(desk.state(&good).await, "ok");
        let closed = desk.change(&good, json!({"status": "closed"})).await;
        assert_eq!((&closed["sla_state"], &closed["closed_at"]), (&json!("ok"), &json!("2026-02-03T08:30:00.000Z")));
        assert_eq!(desk.change(&bad, json!({"status": "resolved"})).await["sla_state"], "breached");
    }

    async fn a_reopened_ticket_goes_on_where_it_stopped(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), None).await;
        let ticket = desk.ticket("high").await;
        desk.change(&ticket, json!({"comment": {"body": "Hello."}})).await;
        desk.go_to("2026-02-02T14:00:00Z").await;
        desk.change(&ticket, json!({"status": "resolved"})).await;
        desk.go_to("2026-02-12T14:00:00Z").await;
        let open = desk.change(&ticket, json!({"status": "open"})).await;
        assert_eq!((&open["resolved_at"], &open["closed_at"]), (&Value::Null, &Value::Null));
        assert_eq!((dues(&open).1, &open["sla_state"]), ("2026-02-12T16:00:00.000Z", &json!("ok")));
        desk.go_to("2026-02-12T14:30:00Z").await;
        assert_eq!(desk.state(&ticket).await, "at_risk");
        desk.change(&ticket, json!({"status": "cancelled"})).await;
        desk.go_to("2026-02-20T14:30:00Z").await;
        assert_eq!(desk.state(&ticket).await, "ok");
        let open = desk.change(&ticket, json!({"status": "open"})).await;
        assert_eq!((dues(&open).1, &open["sla_state"]), ("2026-02-20T16:00:00.000Z", &json!("at_risk")));
    }

    async fn another_priority_brings_its_own_promise(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::Medium, (120, 960), Some(OFFICE)).await;
        desk.promise(Priority::High, (60, 240), Some(OFFICE)).await;
        let ticket = desk.ticket("medium").await;
        desk.go_to("2026-02-02T09:00:00Z").await;
        desk.change(&ticket, json!({"status": "pending"})).await;
        desk.go_to("2026-02-02T11:00:00Z").await;
        desk.change(&ticket, json!({"status": "open"})).await;
        desk.go_to("2026-02-02T12:00:00Z").await;
        // Two of the four hours since have counted.
        let high = desk.change(&ticket, json!({"priority": "high"})).await;
        // An hour was over when the pause began, so the first response was due then.
        assert_eq!(dues(&high), ("2026-02-02T09:00:00.000Z", "2026-02-02T14:00:00.000Z"));
        assert_eq!(high["sla_state"], "breached");
        let medium = desk.change(&ticket, json!({"priority": "medium"})).await;
        assert_eq!(dues(&medium), ("2026-02-02T12:00:00.000Z", "2026-02-04T10:00:00.000Z"));
        let low = desk.change(&ticket, json!({"priority": "low"})).await;
        assert_eq!((dues(&low), &low["sla_state"]), (("null", "null"), &json!("none")));
        // With no promise before, it counts from the beginning, and the pause is not forgotten.
        let again = desk.change(&ticket, json!({"priority": "high"})).await;
        assert_eq!(dues(&again), ("2026-02-02T09:00:00.000Z", "2026-02-02T14:00:00.000Z"));
    }

    async fn a_pause_without_a_promise_counts_when_there_is_one(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::Medium, (60, 240), None).await;
        let ticket = desk.ticket("high").await;
        desk.go_to("2026-02-02T08:30:00Z").await;
        desk.change(&ticket, json!({"status": "pending"})).await;
        desk.go_to("2026-02-05T08:30:00Z").await;
        assert_eq!(desk.change(&ticket, json!({"status": "open"})).await["sla_state"], "none");
        let medium = desk.change(&ticket, json!({"priority": "medium"})).await;
        assert_eq!(dues(&medium), ("2026-02-05T09:00:00.000Z", "2026-02-05T12:00:00.000Z"));
        assert_eq!(medium["sla_state"], "ok");
    }

    async fn nothing_is_promised_any_more_for_an_answered_ticket_either(server: Server) {
        let desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::Medium, (60, 240), None).await;
        let ticket = desk.ticket("medium").await;
        desk.change(&ticket, json!({"comment": {"body": "Hello."}})).await;
        let high = desk.change(&ticket, json!({"priority": "high"})).await;
        assert_eq!((dues(&high), &high["sla_state"]), (("null", "null"), &json!("none")));
        assert_eq!(high["first_responded_at"], "2026-02-02T08:00:00.000Z");
    }

    async fn many_pauses_are_added_up_in_business_hours(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        // Eight hours a day: the resolution is ten days away, the first response two.
        desk.promise(Priority::High, (960, 4_800), Some(OFFICE)).await;
        let ticket = desk.ticket("high").await;
        // A pause lasts no time at all, or a night, in which nothing counts anyway: the due times never move.
        for day in ["2026-02-02", "2026-02-03", "2026-02-04", "2026-02-05", "2026-02-06"] {
            desk.go_to(&format!("{day}T15:00:00Z")).await;
            for _ in 0..45 {
                desk.change(&ticket, json!({"status": "pending"})).await;
                desk.change(&ticket, json!({"status": "open"})).await;
                server.advance(MINUTE_MS);
            }
            desk.go_to(&format!("{day}T16:00:00Z")).await;
            desk.change(&ticket, json!({"status": "pending"})).await;
            let night = Timestamp::parse(&format!("{day}T16:00:00Z")).unwrap().plus_ms(16 * 60 * MINUTE_MS);
            desk.go_to(&night.to_string()).await;
            let open = desk.change(&ticket, json!({"status": "open"})).await;
            assert_eq!(dues(&open), dues(&ticket), "{day}");
        }
        // After 230 pauses half an hour is still half an hour.
        desk.go_to("2026-02-09T09:00:00Z").await;
        desk.change(&ticket, json!({"status": "on_hold"})).await;
        desk.go_to("2026-02-09T09:30:00Z").await;
        let held = desk.change(&ticket, json!({"status": "open"})).await;
        assert_eq!(dues(&ticket).1, "2026-02-13T16:00:00.000Z");
        assert_eq!(dues(&held).1, "2026-02-16T08:30:00.000Z");
        assert_eq!(dues(&held).0, dues(&ticket).0, "it was due long before, and stays so");
        assert_eq!(desk.state(&ticket).await, "breached", "nobody answered");
    }

    async fn many_pauses_are_added_up(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (600, 6_000), None).await;
        let ticket = desk.ticket("high").await;
        let mut open = ticket.clone();
        for _ in 0..150 {
            desk.change(&ticket, json!({"status": "pending"})).await;
            server.advance(MINUTE_MS);
            open = desk.change(&ticket, json!({"status": "open"})).await;
        }
        // 100 hours and 150 minutes.
        assert_eq!(dues(&open).1, "2026-02-06T14:30:00.000Z");
        desk.go_to("2026-02-06T14:00:00Z").await;
        assert_eq!(desk.state(&ticket).await, "breached", "nobody answered");
    }

    async fn a_new_promise_holds_for_new_tickets(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), None).await;
        let old = desk.ticket("high").await;
        desk.promise(Priority::High, (10, 20), None).await;
        assert_eq!(dues(&desk.look(&old).await), dues(&old));
        assert_eq!(dues(&desk.ticket("high").await).1, "2026-02-02T08:20:00.000Z");
        let db = open_as_operator(&server.app.store, &desk.acme.tenant);
        sla::store::delete_policy(&db, Priority::High).await.unwrap();
        assert_eq!(desk.ticket("high").await["sla_state"], "none");
        // What was promised counts on, also over a pause.
        desk.change(&old, json!({"status": "pending"})).await;
        desk.go_to("2026-02-02T10:00:00Z").await;
        assert_eq!(dues(&desk.change(&old, json!({"status": "open"})).await).1, "2026-02-02T18:00:00.000Z");
    }

    async fn how_a_ticket_stands_moves_neither_version_nor_update(server: Server) {
        let mut desk = Desk::open(&server, "2026-02-02T08:00:00Z").await;
        desk.promise(Priority::High, (60, 480), None).await;
        let ticket = desk.ticket("high").await;
        desk.go_to("2026-02-05T08:00:00Z").await;
        let late = desk.look(&ticket).await;
        assert_eq!(late["sla_state"], "breached");
        assert_eq!((&late["version"], &late["updated_at"]), (&ticket["version"], &ticket["updated_at"]));
        let list = server.get(TICKETS).cookie(&desk.acme.admin).await.ok(200);
        assert_eq!(list["data"][0]["sla_state"], "breached");
    }
}
