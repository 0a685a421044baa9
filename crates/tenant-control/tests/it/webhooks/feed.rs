//! The feed: a tenant's events for those who would rather ask than be told.

use std::time::{Duration, Instant};

use kernel::base::{DAY_MS, Timestamp};
use serde_json::{Value, json};
use tenant_control::features;

use super::drive::{act, hook, id, patient, publish, publish_many, publish_one};
use super::feed_crowd::until_waiting;
use super::{EVENTS, open};
use crate::support::people::KEYS;
use crate::support::receiver::Receiver;
use crate::support::{Answer, Server, Setup, Tenancy, over_http};

/// Long before the 25 s for which a reader waits.
const PROMPT: Duration = Duration::from_secs(9);

async fn read(server: &Server, cookie: &str, limit: usize, cursor: Option<&str>) -> Answer {
    let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
    server.get(format!("{EVENTS}?view=feed&limit={limit}{cursor}")).cookie(cookie).await
}

fn cursor(page: &Value) -> &str {
    page["next_cursor"].as_str().expect("a cursor, always")
}

fn events(page: &Value) -> &[Value] {
    page["data"].as_array().expect("events")
}

fn ids(events: &[Value]) -> Vec<&str> {
    events.iter().map(id).collect()
}

over_http! {
    async fn the_feed_is_oldest_first_and_goes_on_from_its_cursor(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let published = publish(&server, &acme, &["a", "b", "c", "d", "e"]).await;
        let first = read(&server, &acme.admin, 3, None).await.ok(200);
        assert_eq!(ids(events(&first)), published[..3].iter().map(|event| event.id.to_string()).collect::<Vec<_>>());
        assert_eq!(first["has_more"], true);
        let second = read(&server, &acme.admin, 3, Some(cursor(&first))).await.ok(200);
        assert_eq!((events(&second).len(), &second["has_more"]), (2, &json!(false)));
        let later = publish_one(&server, &acme, "f").await;
        let third = read(&server, &acme.admin, 3, Some(cursor(&second))).await.ok(200);
        assert_eq!(ids(events(&third)), [later.id.to_string()]);
        let again = read(&server, &acme.admin, 3, Some(cursor(&second))).await.ok(200);
        assert_eq!(events(&again), events(&third), "a cursor can be used again");
        server.sender.run_due().await.unwrap();
        let mut delivered: Vec<Value> = receiver.received().iter().map(|request| request.json()).collect();
        delivered.sort_by_key(|body| body["sequence"].as_i64());
        let told: Vec<Value> = [events(&first), events(&second), events(&third)].concat();
        assert_eq!(told, delivered, "what is told is what is delivered");
    }

    async fn a_reader_beside_many_writers_misses_nothing_and_sees_nothing_twice(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let write = async |count: usize, tenancy: &Tenancy| {
            let mut published = Vec::new();
            for size in [1, 2, 7].into_iter().cycle().take(count) {
                published.extend(publish_many(&server, tenancy, size).await);
            }
            published
        };
        // 51 writes of 1, 2 and 7 events are 170 events.
        let reader = async {
            let mut page = read(&server, &acme.admin, 7, None).await.ok(200);
            let mut told: Vec<Value> = events(&page).to_vec();
            while told.len() < 3 * 170 {
                page = read(&server, &acme.admin, 7, Some(cursor(&page))).await.ok(200);
                told.extend_from_slice(events(&page));
            }
            told
        };
        let (told, a, b, c, _) =
            tokio::join!(reader, write(51, &acme), write(51, &acme), write(51, &acme), write(20, &globex));
        let sequences: Vec<i64> = told.iter().map(|event| event["sequence"].as_i64().unwrap()).collect();
        assert!(sequences.is_sorted_by(|one, next| one < next), "strictly rising");
        let mut published: Vec<i64> = [a, b, c].concat().iter().map(|event| event.sequence).collect();
        published.sort_unstable();
        assert_eq!(sequences, published);
    }

    async fn only_what_the_caller_may_read_is_told(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        publish_one(&server, &globex, "foreign").await;
        publish_one(&server, &acme, "rec_1").await;
        let narrow = server.key(&acme, &["webhooks:read"]).await;
        let keys = server.key(&acme, &["webhooks:read", "api_keys:read"]).await;
        let none = server.key(&acme, &["api_keys:read"]).await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        act(&server, &acme, &json!({"action": "test", "webhook_id": id(&hook)})).await.is(202);
        let kinds = async |key: &str| {
            let page = server.get(format!("{EVENTS}?view=feed")).key(key).await.ok(200);
            events(&page).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&narrow.plain).await, ["webhook.test"]);
        assert_eq!(kinds(&keys.plain).await, ["api_key.created", "api_key.created", "api_key.created", "webhook.test"]);
        server.get(format!("{EVENTS}?view=feed")).key(&none.plain).await.problem("insufficient_scope");
        let all = read(&server, &acme.admin, 50, None).await.ok(200);
        assert_eq!(events(&all).len(), 5);
        assert!(events(&all).iter().all(|event| event["tenant_id"] == json!(acme.tenant.id)));
    }

    async fn a_reader_waits_for_news_and_is_told_at_once(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        publish_one(&server, &acme, "rec_1").await;
        let page = read(&server, &acme.admin, 50, None).await.ok(200);
        let waiting = async {
            let page = read(&server, &acme.admin, 50, Some(cursor(&page))).await.ok(200);
            (page, Instant::now())
        };
        let writing = async {
            // A write without an event, and an event of another tenant, are no news.
            hook(&server, &acme, "http://127.0.0.1:9/", &json!({})).await;
            publish_many(&server, &globex, 30).await;
            let at = Instant::now();
            (publish_one(&server, &acme, "rec_2").await, at)
        };
        let ((page, told_at), (published, published_at)) = tokio::join!(waiting, writing);
        assert_eq!(ids(events(&page)), [published.id.to_string()]);
        assert!(told_at > published_at && told_at - published_at < PROMPT, "{:?}", told_at - published_at);
    }

    async fn a_cursor_of_another_tenant_list_or_hand_is_refused(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        publish_many(&server, &acme, 5).await;
        publish_many(&server, &globex, 5).await;
        let own = read(&server, &acme.admin, 2, None).await.ok(200);
        let foreign = read(&server, &globex.admin, 2, None).await.ok(200);
        read(&server, &acme.admin, 2, Some(cursor(&foreign))).await.problem("invalid_cursor");
        let catalogue = server.get(format!("{EVENTS}?limit=1")).cookie(&acme.admin).await.ok(200);
        read(&server, &acme.admin, 2, Some(cursor(&catalogue))).await.problem("invalid_cursor");
        server.get(format!("{EVENTS}?cursor={}", cursor(&own))).cookie(&acme.admin).await.problem("invalid_cursor");
        let good = cursor(&own);
        for at in [0, good.len() / 2, good.len() - 2] {
            let other = if &good[at..=at] == "A" { "B" } else { "A" };
            let altered = format!("{}{other}{}", &good[..at], &good[at + 1..]);
            read(&server, &acme.admin, 2, Some(&altered)).await.problem("invalid_cursor");
        }
        server.get(format!("{EVENTS}?view=river")).cookie(&acme.admin).await.problem("invalid_parameter");
        read(&server, &acme.admin, 2, Some(good)).await.is(200);
    }

    async fn a_cursor_older_than_what_is_kept_is_refused(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        publish_one(&server, &acme, "rec_1").await;
        let page = read(&server, &acme.admin, 50, None).await.ok(200);
        publish_one(&server, &acme, "rec_2").await;
        server.advance(30 * DAY_MS);
        publish_one(&server, &acme, "rec_3").await;
        let next = read(&server, &acme.admin, 50, Some(cursor(&page))).await.ok(200);
        assert_eq!(events(&next).len(), 2);
        server.advance(1);
        kernel::jobs::delete_expired(&server.app, &features::install().retention).await.unwrap();
        let refused = read(&server, &acme.admin, 50, Some(cursor(&page))).await.problem("invalid_cursor");
        assert!(refused["detail"].as_str().unwrap().contains("kept"), "{refused}");
        let anew = read(&server, &acme.admin, 50, None).await.ok(200);
        assert_eq!(ids(events(&anew)), ids(&events(&next)[1..]));
    }

    async fn a_reader_that_starts_with_the_oldest_goes_on_while_they_are_there(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        publish_many(&server, &acme, 10).await;
        server.advance(30 * DAY_MS + 1);
        // Cleaning has not come round yet.
        let first = read(&server, &acme.admin, 4, None).await.ok(200);
        let second = read(&server, &acme.admin, 50, Some(cursor(&first))).await.ok(200);
        assert_eq!((events(&first).len(), events(&second).len()), (4, 6));
    }

    async fn a_reader_that_lags_is_told_when_events_were_removed_before_it_saw_them(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let start = server.now();
        publish_many(&server, &acme, 10).await;
        server.advance(10 * DAY_MS);
        publish_many(&server, &acme, 10).await;
        server.advance(19 * DAY_MS);
        let behind = read(&server, &acme.admin, 5, None).await.ok(200);
        let ahead = read(&server, &acme.admin, 15, None).await.ok(200);
        server.advance(DAY_MS + 1);
        kernel::jobs::delete_expired(&server.app, &features::install().retention).await.unwrap();
        read(&server, &acme.admin, 5, Some(cursor(&behind))).await.problem("invalid_cursor");
        let rest = read(&server, &acme.admin, 50, Some(cursor(&ahead))).await.ok(200);
        assert_eq!(events(&rest).len(), 5, "this one has missed nothing");
        let first = events(&rest)[0]["timestamp"].as_str().and_then(Timestamp::parse);
        assert_eq!(first, Some(start.plus_ms(10 * DAY_MS)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_is_told_of_what_another_node_publishes() {
    let server = open(Setup::postgres().await).await;
    let acme = server.tenant("acme").await;
    let other = server.second_node().await;
    publish_one(&server, &acme, "rec_1").await;
    let page = read(&server, &acme.admin, 50, None).await.ok(200);
    let waiting = async {
        let page = read(&server, &acme.admin, 50, Some(cursor(&page))).await.ok(200);
        (page, Instant::now())
    };
    let writing = async {
        hook(&other, &acme, "http://127.0.0.1:9/", &json!({})).await;
        let at = Instant::now();
        (publish_one(&other, &acme, "rec_2").await, at)
    };
    let ((page, told_at), (published, published_at)) = tokio::join!(waiting, writing);
    assert_eq!(ids(events(&page)), [published.id.to_string()]);
    assert!(told_at - published_at < PROMPT, "{:?}", told_at - published_at);
}

over_http! {
    async fn a_key_revoked_while_it_waits_learns_nothing_more(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["webhooks:read", "api_keys:read"]).await;
        let page = server.get(format!("{EVENTS}?view=feed")).key(&key.plain).await.ok(200);
        let next = format!("{EVENTS}?view=feed&cursor={}", page["next_cursor"].as_str().unwrap());
        let (waiting, revoked) = tokio::join!(
            async { server.get(next).key(&key.plain).await },
            async {
                until_waiting(&server, &acme, 1).await;
                // The event that wakes it is that of its own revocation.
                server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await
            },
        );
        revoked.is(204);
        waiting.problem("unauthenticated");
    }
}

over_http! {
    async fn a_page_of_large_events_is_cut_and_goes_on(server: Server) {
        let acme = server.tenant("acme").await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, kernel::base::Actor::for_system());
        db.write(async |tx| {
            for number in 0..40 {
                let data = json!({"id": number, "text": "x".repeat(200 << 10)});
                kernel::events::publish(tx, &crate::webhooks::drive::LOAD, number, &data).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
        let (mut seen, mut next) = (0, None);
        while seen < 40 {
            let answer = read(&server, &acme.admin, 200, next.as_deref()).await;
            assert!(answer.body.len() < 5 << 20, "{} bytes", answer.body.len());
            let page = answer.ok(200);
            assert!(answer.header("link").contains(cursor(&page)), "{}", answer.header("link"));
            seen += events(&page).len();
            assert_eq!(page["has_more"], seen < 40);
            next = Some(cursor(&page).to_owned());
        }
        assert_eq!(seen, 40);
    }

    async fn long_and_short_events_come_in_their_order_and_whole(server: Server) {
        let acme = server.tenant("acme").await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, kernel::base::Actor::for_system());
        let sizes: Vec<usize> = [1, 4_000, 5_000, 100_000, 10, 250_000].into_iter().cycle().take(30).collect();
        let written = sizes.clone();
        db.write(async move |tx| {
            for (number, size) in written.iter().enumerate() {
                let data = json!({"id": number, "text": "ü".repeat(size / 2)});
                kernel::events::publish(tx, &crate::webhooks::drive::LOAD, number, &data).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
        let (mut told, mut next) = (Vec::new(), None);
        while told.len() < sizes.len() {
            let page = read(&server, &acme.admin, 7, next.as_deref()).await.ok(200);
            told.extend(events(&page).iter().map(|event| event["data"]["text"].as_str().unwrap().len()));
            next = Some(cursor(&page).to_owned());
        }
        assert_eq!(told, sizes.iter().map(|size| size / 2 * 2).collect::<Vec<_>>());
    }
}
