//! GET of the log: each filter is applied or refused, and pages are stable.

use std::collections::BTreeSet;

use kernel::base::{MINUTE_MS, Timestamp};

use super::create::{count, id_of, one};
use super::*;
use crate::support::receiver::Behaviour;

/// A log with every status but `delivering`: three endpoints, and keys that came and went a minute apart.
struct Scene {
    server: Server,
    acme: Tenancy,
    hooks: Vec<Value>,
    /// When each key was made and revoked.
    moments: Vec<Timestamp>,
    _receiver: Receiver,
}

impl Scene {
    async fn new(mut setup: Setup) -> Scene {
        // A first failure is the last one.
        setup.sending.schedule_ms = vec![];
        let server = open(setup).await;
        let (acme, receiver) = (server.tenant("acme").await, Receiver::start().await);
        receiver.on("/bad", [Behaviour::Answer(500)]);
        let good = endpoint(&server, &acme, &receiver.url("/good"), &["*"]).await;
        let bad = endpoint(&server, &acme, &receiver.url("/bad"), &["api_key.*"]).await;
        let off = endpoint(&server, &acme, &receiver.url("/off"), &["api_key.revoked"]).await;
        let body = json!({"name": "Off", "url": off["url"], "events": off["events"], "enabled": false});
        server.put(one(&off)).cookie(&acme.admin).json(&body).await.is(200);
        let mut scene = Scene { server, acme, hooks: vec![good, bad, off], moments: Vec::new(), _receiver: receiver };
        scene.come_and_go().await;
        scene.server.sender.run_due().await.unwrap();
        scene.come_and_go().await;
        scene
    }

    async fn come_and_go(&mut self) {
        self.server.advance(MINUTE_MS);
        self.moments.push(self.server.now());
        let key = self.server.key(&self.acme, &["tickets:read"]).await;
        self.server.advance(MINUTE_MS);
        self.moments.push(self.server.now());
        self.server.delete(format!("{KEYS}?id={}", key.id)).cookie(&self.acme.admin).await.is(204);
    }

    async fn page(&self, query: &str) -> Value {
        self.server.get(format!("{DELIVERIES}?{query}")).cookie(&self.acme.admin).await.ok(200)
    }

    async fn rows(&self, query: &str) -> Vec<Value> {
        let page = self.page(&format!("limit=200&{query}")).await;
        assert_eq!((&page["has_more"], &page["next_cursor"]), (&json!(false), &Value::Null));
        page["data"].as_array().unwrap().clone()
    }

    /// Asserts that a query finds what a reader of the whole log would pick, which is something and not everything.
    async fn finds(&self, query: &str, picked: impl Fn(&Value) -> bool) {
        let all = self.rows("").await;
        let wanted: Vec<&Value> = all.iter().filter(|row| picked(row)).collect();
        assert!(
            !wanted.is_empty() && wanted.len() < all.len(),
            "{query} proves nothing: {} of {}",
            wanted.len(),
            all.len()
        );
        let found = self.rows(query).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{query}");
    }

    fn hook(&self, at: usize) -> &str {
        id_of(&self.hooks[at])
    }
}

fn is(row: &Value, field: &str, any: &[&str]) -> bool {
    any.iter().any(|one| row[field] == *one)
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(id_of).collect()
}

over_http! {
    async fn a_delivery_is_shown_with_every_documented_field(setup: Setup) {
        let scene = Scene::new(setup).await;
        let all = scene.rows("").await;
        let statuses: BTreeSet<&str> = all.iter().map(|row| row["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, BTreeSet::from(["failed", "pending", "skipped", "succeeded"]));
        for row in &all {
            for field in [
                "id",
                "webhook_id",
                "event_id",
                "event_type",
                "status",
                "skipped_reason",
                "next_attempt_at",
                "attempts",
            ] {
                assert!(row.get(field).is_some(), "{field} in {row}");
            }
            assert!(id_of(row).starts_with("dlv_"), "{row}");
            assert_eq!(row["skipped_reason"].is_string(), row["status"] == "skipped", "{row}");
            assert_eq!(row["next_attempt_at"].is_string(), row["status"] == "pending", "{row}");
            let attempts = row["attempts"].as_array().unwrap();
            assert_eq!(attempts.len(), usize::from(is(row, "status", &["succeeded", "failed"])), "{row}");
            for attempt in attempts {
                for field in ["at", "status_code", "error", "response_body", "address", "duration_ms", "timings"] {
                    assert!(attempt.get(field).is_some(), "{field} in {row}");
                }
            }
            let single = scene.page(&format!("id={}", id_of(row))).await;
            assert_eq!(single, *row, "by its id");
        }
        // Newest first, which their ids tell.
        assert!(all.windows(2).all(|pair| id_of(&pair[0]) > id_of(&pair[1])), "{:?}", ids(&all));
    }

    async fn each_filter_is_applied(setup: Setup) {
        let scene = Scene::new(setup).await;
        for status in ["pending", "succeeded", "failed", "skipped"] {
            scene.finds(&format!("status={status}"), |row| is(row, "status", &[status])).await;
        }
        scene.finds("status=failed,skipped", |row| is(row, "status", &["failed", "skipped"])).await;
        scene.finds("status=pending,succeeded,pending", |row| is(row, "status", &["pending", "succeeded"])).await;
        assert_eq!(scene.rows("status=delivering").await.len(), 0);
        for at in 0..3 {
            scene
                .finds(&format!("webhook_id={}", scene.hook(at)), |row| is(row, "webhook_id", &[scene.hook(at)]))
                .await;
        }
        let two = [scene.hook(2), scene.hook(0)];
        scene.finds(&format!("webhook_id={}", two.join(",")), |row| is(row, "webhook_id", &two)).await;
        for kind in ["api_key.created", "api_key.revoked"] {
            scene.finds(&format!("event_type={kind}"), |row| is(row, "event_type", &[kind])).await;
        }
        assert_eq!(scene.rows("event_type=api_key.created,api_key.revoked").await, scene.rows("").await);
        assert_eq!(scene.rows("event_type=ticket.created,ticket.updated").await.len(), 0);
        let all = scene.rows("").await;
        let events: BTreeSet<&str> = all.iter().map(|row| row["event_id"].as_str().unwrap()).collect();
        let events: Vec<&str> = events.into_iter().collect();
        assert_eq!(events.len(), 4);
        for event in &events {
            scene.finds(&format!("event_id={event}"), |row| is(row, "event_id", &[event])).await;
        }
        let outer = [events[3], events[0]];
        scene.finds(&format!("event_id={}", outer.join(",")), |row| is(row, "event_id", &outer)).await;
    }

    async fn since_is_inclusive_and_until_is_not(setup: Setup) {
        let scene = Scene::new(setup).await;
        let created = |row: &Value| Timestamp::parse(row["created_at"].as_str().unwrap()).unwrap();
        for moment in &scene.moments[1..] {
            scene.finds(&format!("since={moment}"), |row| created(row) >= *moment).await;
            scene.finds(&format!("until={moment}"), |row| created(row) < *moment).await;
            scene.finds(&format!("until={}", moment.plus_ms(-1)), |row| created(row) < *moment).await;
        }
        scene.finds(&format!("since={}", scene.moments[2].plus_ms(1)), |row| created(row) > scene.moments[2]).await;
        let (from, to) = (scene.moments[1], scene.moments[3]);
        scene.finds(&format!("since={from}&until={to}"), |row| created(row) >= from && created(row) < to).await;
        // Any offset means the same moment.
        let zoned = scene.moments[1].plus_ms(60 * MINUTE_MS).to_string().replace('Z', "%2B01:00");
        scene.finds(&format!("since={zoned}"), |row| created(row) >= scene.moments[1]).await;
        assert_eq!(scene.rows("since=2026-02-01T00:00:00Z").await.len(), 0);
        assert_eq!(scene.rows("until=2026-01-01T00:00:00Z").await.len(), 0);
        // Moments before and after everything.
        let all = scene.rows("").await;
        for early in ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z"] {
            assert_eq!(scene.rows(&format!("since={early}")).await, all, "since {early}");
            assert_eq!(scene.rows(&format!("until={early}")).await.len(), 0, "until {early}");
        }
        assert_eq!(scene.rows("since=9999-12-30T00:00:00Z").await.len(), 0);
        assert_eq!(scene.rows("until=9999-12-30T00:00:00Z").await, all);
    }

    async fn filters_are_all_applied_together(setup: Setup) {
        let scene = Scene::new(setup).await;
        let (good, moment) = (scene.hook(0), scene.moments[1]);
        let query = format!(
            "webhook_id={good},{}&event_type=api_key.revoked&status=succeeded,skipped&since={moment}",
            scene.hook(2)
        );
        let picked = |row: &Value| {
            is(row, "webhook_id", &[good, scene.hook(2)])
                && is(row, "event_type", &["api_key.revoked"])
                && is(row, "status", &["succeeded", "skipped"])
        };
        scene.finds(&query, picked).await;
        assert_eq!(scene.rows(&format!("webhook_id={good}&status=failed")).await.len(), 0);
        let event = scene.rows("event_type=api_key.created").await[0]["event_id"].as_str().unwrap().to_owned();
        assert_eq!(scene.rows(&format!("event_id={event}&event_type=api_key.revoked")).await.len(), 0);
        scene
            .finds(&format!("event_id={event}&webhook_id={good}"), |row| {
                is(row, "event_id", &[&event]) && is(row, "webhook_id", &[good])
            })
            .await;
    }

    async fn a_bad_value_is_refused(setup: Setup) {
        let scene = Scene::new(setup).await;
        let hook = scene.hook(0);
        for query in [
            "status=",
            "status=nonsense",
            "status=Pending",
            "status=pending,",
            "status=pending,nonsense",
            "status=pending%20",
            "webhook_id=",
            "webhook_id=nonsense",
            "webhook_id=,",
            "event_id=",
            "event_id=nonsense",
            "event_type=",
            "event_type=a%20b",
            "event_type=api_key.created,",
            "event_type=new",
            "event_type=api_key.created,new",
            "event_type=api_key.",
            "event_type=.created",
            "event_type=api_key..created",
            "since=",
            "since=yesterday",
            "since=2026-01-15",
            "since=2026-01-15T10:00:00",
            "until=1768471200",
            "until=2026-13-01T00:00:00Z",
            "limit=0",
            "limit=201",
            "limit=x",
            "status=pending&status=gone",
            "since=2026-01-15T10:00:00+01:00",
        ] {
            let answer = scene.server.get(format!("{DELIVERIES}?{query}")).cookie(&scene.acme.admin).await;
            assert_eq!(answer.status, 400, "{query}");
            answer.problem("invalid_parameter");
        }
        let all = scene.rows("").await;
        let ask = |query: String| scene.server.get(format!("{DELIVERIES}?{query}")).cookie(&scene.acme.admin);
        // An id of another kind of record is no id of these.
        ask(format!("event_id={hook}")).await.problem("invalid_parameter");
        ask(format!("webhook_id={hook},{}", id_of(&all[0]))).await.problem("invalid_parameter");
        for query in ["nonsense=1", "state=pending", "type=api_key.created", "q=x"] {
            ask(query.to_owned()).await.problem("unknown_parameter");
        }
        for more in ["status=pending", "limit=0", "cursor=x", &format!("webhook_id={hook}")] {
            ask(format!("id={}&{more}", id_of(&all[0]))).await.problem("invalid_parameter");
        }
        for id in ["nonsense", "", "dlv_00000000000000000000000000", hook] {
            ask(format!("id={id}")).await.problem("not_found");
        }
    }

    async fn pages_are_stable_while_the_log_grows(setup: Setup) {
        let mut scene = Scene::new(setup).await;
        for query in ["", "status=pending,succeeded&", "event_type=api_key.revoked&", "since=2026-01-15T10:00:00Z&"] {
            let whole: Vec<String> = scene.rows(query).await.iter().map(|row| id_of(row).to_owned()).collect();
            assert!(whole.len() > 2, "{query}");
            for limit in [1, 3, 2] {
                let (mut seen, mut cursor) = (Vec::new(), String::new());
                loop {
                    let answer = scene
                        .server
                        .get(format!("{DELIVERIES}?{query}limit={limit}{cursor}"))
                        .cookie(&scene.acme.admin)
                        .await;
                    let page = answer.ok(200);
                    seen.extend(page["data"].as_array().unwrap().iter().map(|row| id_of(row).to_owned()));
                    assert_eq!(page["has_more"], page["next_cursor"].is_string());
                    let Some(next) = page["next_cursor"].as_str() else { break };
                    cursor = format!("&cursor={next}");
                    let link = answer.header("link");
                    let target =
                        link.strip_prefix('<').and_then(|rest| rest.strip_suffix(">; rel=\"next\"")).expect("a link");
                    let linked = scene
                        .server
                        .get(target.strip_prefix(scene.server.base_url()).unwrap())
                        .cookie(&scene.acme.admin)
                        .await
                        .ok(200);
                    let same = scene.page(&format!("{query}limit={limit}{cursor}")).await;
                    assert_eq!(linked, same, "the link repeats the cursor");
                    if limit == 2 && seen.len() == 2 {
                        scene.come_and_go().await;
                    }
                }
                assert_eq!(seen, whole, "{query} in pages of {limit}");
            }
        }
    }

    async fn a_cursor_belongs_to_its_filters(setup: Setup) {
        let scene = Scene::new(setup).await;
        let (good, bad) = (scene.hook(0), scene.hook(1));
        let filters = [
            String::new(),
            "status=pending&".to_owned(),
            "status=pending,succeeded&".to_owned(),
            format!("webhook_id={good}&"),
            format!("webhook_id={bad}&"),
            "event_type=api_key.revoked&".to_owned(),
            "since=2026-01-15T10:00:00Z&".to_owned(),
            "until=2026-01-15T12:00:00Z&".to_owned(),
        ];
        for made_for in &filters {
            let cursor = scene.page(&format!("{made_for}limit=1")).await["next_cursor"].as_str().unwrap().to_owned();
            for used_with in &filters {
                let answer = scene
                    .server
                    .get(format!("{DELIVERIES}?{used_with}cursor={cursor}"))
                    .cookie(&scene.acme.admin)
                    .await;
                if made_for == used_with {
                    answer.is(200);
                } else {
                    assert_eq!(answer.status, 400, "{made_for} {used_with}");
                    answer.problem("invalid_cursor");
                }
            }
        }
    }

    async fn nothing_of_another_tenant_is_found(setup: Setup) {
        let scene = Scene::new(setup).await;
        let other = scene.server.tenant("other").await;
        assert_eq!(count(&scene.server, &other).await, 0);
        let all = scene.rows("").await;
        let cursor = scene.page("limit=1").await["next_cursor"].as_str().unwrap().to_owned();
        let ask = |query: String| scene.server.get(format!("{DELIVERIES}?{query}")).cookie(&other.admin);
        let empty = json!({"data": [], "has_more": false, "next_cursor": null});
        for query in [
            "",
            "status=succeeded",
            &format!("webhook_id={}", scene.hook(0)),
            &format!("event_id={}", all[0]["event_id"].as_str().unwrap()),
        ] {
            assert_eq!(ask(query.to_owned()).await.ok(200), empty, "{query}");
        }
        let (foreign, unknown) =
            (ask(format!("id={}", id_of(&all[0]))).await, ask("id=dlv_00000000000000000000000000".to_owned()).await);
        foreign.problem("not_found");
        assert_eq!(foreign.body_but_request_id(), unknown.body_but_request_id());
        ask(format!("limit=1&cursor={cursor}")).await.problem("invalid_cursor");
    }

    async fn the_log_outlives_its_endpoint(setup: Setup) {
        let scene = Scene::new(setup).await;
        let before = scene.rows(&format!("webhook_id={}", scene.hook(0))).await;
        scene.server.delete(one(&scene.hooks[0])).cookie(&scene.acme.admin).await.is(204);
        scene.server.sender.run_due().await.unwrap();
        let after = scene.rows(&format!("webhook_id={}", scene.hook(0))).await;
        assert_eq!(ids(&after), ids(&before));
        for (now, then) in after.iter().zip(&before) {
            let wanted = if then["status"] == "pending" { "skipped" } else { then["status"].as_str().unwrap() };
            assert_eq!(now["status"], wanted, "{now}");
        }
    }
}
