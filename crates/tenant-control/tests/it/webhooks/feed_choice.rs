//! One event by its id, and which events of the feed a reader wants.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::drive::{act, hook, id, publish_many, publish_one};
use super::{EVENTS, open};
use crate::support::receiver::Receiver;
use crate::support::{Answer, Server, Tenancy, over_http};
use crate::tickets::TICKETS;

async fn feed(server: &Server, cookie: &str, more: &str) -> Answer {
    server.get(format!("{EVENTS}?view=feed{more}")).cookie(cookie).await
}

fn kinds(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// A key, a ticket and a test: one event of each of three families.
async fn three(server: &Server, acme: &Tenancy) -> Value {
    let receiver = Receiver::start().await;
    let hook = hook(server, acme, &receiver.url("/hook"), &json!({"events": ["ticket.created"]})).await;
    server.key(acme, &["tickets:read"]).await;
    let ticket = server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "Printer"})).await.ok(201);
    act(server, acme, &json!({"action": "test", "webhook_id": id(&hook)})).await.is(202);
    ticket
}

over_http! {
    async fn one_event_is_shown_as_it_was_delivered(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["ticket.*"]})).await;
        let ticket = server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "Printer"})).await.ok(201);
        server.sender.run_due().await.unwrap();
        let delivered = receiver.received().remove(0);
        let answer = server.get(format!("{EVENTS}?id={}", delivered.webhook_id())).cookie(&acme.admin).await;
        assert_eq!(answer.ok(200)["data"], ticket);
        assert_eq!(answer.body, delivered.body, "byte for byte");
        assert_eq!(answer.header("cache-control"), "no-store");
    }

    async fn an_event_that_is_not_there_or_not_to_be_read_is_one_and_the_same_404(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let event = publish_one(&server, &acme, "rec_1").await;
        let narrow = server.key(&acme, &["webhooks:read", "tickets:read"]).await;
        let none = server.key(&acme, &["tickets:read"]).await;
        let one = format!("{EVENTS}?id={}", event.id);
        server.get(&one).cookie(&acme.admin).await.is(200);
        server.get(&one).key(&none.plain).await.problem("insufficient_scope");
        let without_request = |answer: Answer| {
            let mut problem = answer.problem("not_found");
            problem.as_object_mut().unwrap().remove("request_id");
            problem
        };
        let unknown = server.get(format!("{EVENTS}?id=evt_01jd8z6v2mfkpb7h3q9xw5t4rc")).cookie(&acme.admin).await;
        let unknown = without_request(unknown);
        for answer in [
            server.get(&one).key(&narrow.plain).await,
            server.get(&one).cookie(&globex.admin).await,
            server.get(format!("{EVENTS}?id=nonsense")).cookie(&acme.admin).await,
            server.get(format!("{EVENTS}?id=")).cookie(&acme.admin).await,
        ] {
            assert_eq!(without_request(answer), unknown);
        }
        for more in ["&view=feed", "&limit=0", "&types=*", "&start=now"] {
            server.get(format!("{one}{more}")).cookie(&acme.admin).await.problem("invalid_parameter");
        }
    }

    async fn the_feed_can_start_now(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let old = publish_many(&server, &acme, 5).await;
        let told = AtomicBool::new(false);
        let reading = async {
            let page = feed(&server, &acme.admin, "&start=now&limit=1").await.ok(200);
            told.store(true, Ordering::SeqCst);
            page
        };
        // What is written before the reader has begun is old to it, so it is written until the reader has heard of it.
        let writing = async {
            let mut published = Vec::new();
            while !told.load(Ordering::SeqCst) {
                publish_one(&server, &globex, "rec_foreign").await;
                published.push(publish_one(&server, &acme, "rec_new").await.id.to_string());
            }
            published.push(publish_one(&server, &acme, "rec_last").await.id.to_string());
            published
        };
        let (page, published) = tokio::join!(reading, writing);
        let first = page["data"][0]["id"].as_str().unwrap();
        assert!(old.iter().all(|event| event.id.to_string() != first), "{page}");
        let at = published.iter().position(|id| id == first).expect("one of the new");
        let cursor = page["next_cursor"].as_str().unwrap();
        let page = feed(&server, &acme.admin, &format!("&limit=200&cursor={cursor}")).await.ok(200);
        let rest: Vec<&str> = page["data"].as_array().unwrap().iter().map(id).collect();
        assert_eq!(rest, published[at + 1..], "and from there on as ever");
        feed(&server, &acme.admin, &format!("&start=now&cursor={cursor}")).await.problem("invalid_parameter");
        for wrong in ["&start=then", "&start="] {
            feed(&server, &acme.admin, wrong).await.problem("invalid_parameter");
        }
        server.get(format!("{EVENTS}?start=now")).cookie(&acme.admin).await.problem("invalid_parameter");
    }

    async fn types_choose_as_a_subscription_does(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        three(&server, &acme).await;
        for (types, told) in [
            ("ticket.created", vec!["ticket.created"]),
            ("api_key.*", vec!["api_key.created"]),
            ("api_key.created,ticket.*", vec!["api_key.created", "ticket.created"]),
            ("*", vec!["api_key.created", "ticket.created"]),
            ("*,webhook.test", vec!["api_key.created", "ticket.created", "webhook.test"]),
            ("webhook.*", vec!["webhook.test"]),
        ] {
            let page = feed(&server, &acme.admin, &format!("&types={types}")).await.ok(200);
            assert_eq!(kinds(&page), told, "{types}");
        }
        for wrong in ["ticket", "ticket.deleted", "nothing.*", "", "*.*", "ticket.created,"] {
            feed(&server, &acme.admin, &format!("&types={wrong}")).await.problem("invalid_parameter");
        }
        server.get(format!("{EVENTS}?types=*")).cookie(&acme.admin).await.problem("invalid_parameter");
        let narrow = server.key(&acme, &["webhooks:read", "tickets:read"]).await;
        let page = server.get(format!("{EVENTS}?view=feed&types=ticket.*,api_key.*")).key(&narrow.plain).await.ok(200);
        assert_eq!(kinds(&page), ["ticket.created"], "and only what the caller may read");
    }

    async fn a_cursor_belongs_to_its_types(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        for _ in 0..3 {
            server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "Printer"})).await.is(201);
            server.key(&acme, &["tickets:read"]).await;
        }
        let first = feed(&server, &acme.admin, "&types=ticket.*,webhook.*&limit=2").await.ok(200);
        assert_eq!((kinds(&first), &first["has_more"]), (vec!["ticket.created"; 2], &json!(true)));
        let cursor = first["next_cursor"].as_str().unwrap();
        let second = feed(&server, &acme.admin, &format!("&types=webhook.*,ticket.*&cursor={cursor}")).await.ok(200);
        assert_eq!((kinds(&second), &second["has_more"]), (vec!["ticket.created"], &json!(false)));
        for other in ["", "&types=ticket.*", "&types=*"] {
            feed(&server, &acme.admin, &format!("{other}&cursor={cursor}")).await.problem("invalid_cursor");
        }
        let link = feed(&server, &acme.admin, "&types=ticket.*&limit=2").await;
        assert!(link.header("link").contains("types=ticket"), "{}", link.header("link"));
    }
}
