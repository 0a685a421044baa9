//! Many who wait for the events of one tenant: one reads for all.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tenant_control::features::webhooks::events::reader::FeedReaders;

use super::drive::publish_one;
use super::{EVENTS, open};
use crate::support::people::KEYS;
use crate::support::process::until;
use crate::support::{Key, Server, Setup, Tenancy, over_http};
use crate::tickets::TICKETS;

const WAITERS: usize = 64;
/// As many as may read that often within a minute.
const FOLLOWERS: usize = 16;
const WRITES: usize = 20;
/// Of one round: how far it has come, what is new, who may read. Beside it each poll asks how far it has come.
const ROUND_STATEMENTS: u64 = 4;

/// A server on which one credential may wait as often as a tenant.
async fn crowded(mut setup: Setup) -> Server {
    setup.settings.waits_per_credential_max = WAITERS;
    open(setup).await
}

/// Returns when so many wait for the tenant's events.
pub async fn until_waiting(server: &Server, tenancy: &Tenancy, count: usize) {
    let readers: FeedReaders = server.app.settings.feature_settings();
    let wait = std::time::Duration::from_secs(30);
    until("all wait", wait, async || (readers.count_waiters(tenancy.tenant.id) == count).then_some(())).await;
}

async fn ticket(server: &Server, tenancy: &Tenancy) -> Value {
    server.post(TICKETS).cookie(&tenancy.admin).json(&json!({"subject": "Printer"})).await.ok(201)
}

fn kinds(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// What so many writes ask by themselves.
async fn write(server: &Server, tenancy: &Tenancy) -> u64 {
    let before = server.statements();
    for number in 0..WRITES {
        publish_one(server, tenancy, &format!("rec_{number}")).await;
    }
    server.statements() - before
}

over_http! {
    async fn a_write_is_read_once_however_many_wait(setup: Setup) {
        let server = crowded(setup).await;
        let acme = server.tenant("acme").await;
        ticket(&server, &acme).await;
        let alone = write(&server, &acme).await;
        let path = format!("{EVENTS}?view=feed&start=now&types=ticket.*");
        let waiting = join_all((0..WAITERS).map(|_| async { server.get(path.clone()).cookie(&acme.admin).await.ok(200) }));
        let writing = async {
            until_waiting(&server, &acme, WAITERS).await;
            // None of these is wanted: all go on to wait.
            let beside = write(&server, &acme).await;
            until_waiting(&server, &acme, WAITERS).await;
            let before = server.statements();
            let made = ticket(&server, &acme).await;
            (beside, before, made)
        };
        let (pages, (beside, before, made)) = tokio::join!(waiting, writing);
        // Sixty-four readers of their own would be thousands. What is left over is some polls.
        let most = alone + (WRITES as u64) * (ROUND_STATEMENTS + 2);
        assert!(beside <= most, "{beside} statements beside {WAITERS} who wait, {alone} without");
        for page in &pages {
            assert_eq!(kinds(page), ["ticket.created"]);
            assert_eq!(page["data"][0]["data"]["id"], made["id"]);
        }
        let told = server.statements() - before;
        assert!(told < WAITERS as u64, "{told} statements to tell {WAITERS} of a ticket");
    }

    async fn those_who_follow_beside_a_writer_miss_nothing_and_see_nothing_twice(setup: Setup) {
        let server = crowded(setup).await;
        let acme = server.tenant("acme").await;
        ticket(&server, &acme).await;
        let follow = |number: usize| {
            let (server, acme) = (&server, &acme);
            async move {
                let mut page = server.get(format!("{EVENTS}?view=feed&start=now")).cookie(&acme.admin).await.ok(200);
                let mut told: Vec<Value> = page["data"].as_array().unwrap().clone();
                while told.len() < WRITES {
                    let cursor = page["next_cursor"].as_str().unwrap();
                    // Some take them one by one.
                    let path = format!("{EVENTS}?view=feed&limit={}&cursor={cursor}", if number.is_multiple_of(3) { 1 } else { 50 });
                    page = server.get(path).cookie(&acme.admin).await.ok(200);
                    told.extend(page["data"].as_array().unwrap().clone());
                }
                told
            }
        };
        let followers = join_all((0..FOLLOWERS).map(follow));
        let writing = async {
            until_waiting(&server, &acme, FOLLOWERS).await;
            let mut published = Vec::new();
            for number in 0..WRITES {
                published.push(publish_one(&server, &acme, &format!("rec_{number}")).await.id.to_string());
            }
            published
        };
        let (told, published) = tokio::join!(followers, writing);
        for told in told {
            let ids: Vec<&str> = told.iter().map(|event| event["id"].as_str().unwrap()).collect();
            assert_eq!(ids, published, "nothing is lost, doubled or out of order");
        }
    }

    async fn each_is_told_what_they_want_and_may_read(setup: Setup) {
        let server = crowded(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let keys = server.key(&acme, &["webhooks:read", "api_keys:read"]).await;
        let tickets = server.key(&acme, &["webhooks:read", "tickets:read"]).await;
        let wait = |key: &Key, more: &str| {
            let (server, plain, path) = (&server, key.plain.clone(), format!("{EVENTS}?view=feed&start=now{more}"));
            async move { server.get(path).key(&plain).await.ok(200) }
        };
        let foreign = async { server.get(format!("{EVENTS}?view=feed&start=now")).cookie(&globex.admin).await.ok(200) };
        let waiting = async {
            tokio::join!(
                wait(&keys, ""), wait(&tickets, ""), wait(&tickets, "&types=ticket.updated"), wait(&keys, "&types=ticket.*,api_key.revoked"), foreign
            )
        };
        let writing = async {
            until_waiting(&server, &acme, 4).await;
            until_waiting(&server, &globex, 1).await;
            let made = ticket(&server, &acme).await;
            let key = server.key(&acme, &["tickets:read"]).await;
            let path = format!("{TICKETS}?id={}", made["id"].as_str().unwrap());
            server.patch(path).cookie(&acme.admin).json(&json!({"status": "open"})).await.is(200);
            server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
            ticket(&server, &globex).await
        };
        let ((of_keys, of_tickets, updated, revoked, foreign), made) = tokio::join!(waiting, writing);
        assert_eq!(kinds(&of_keys)[0], "api_key.created");
        assert_eq!(kinds(&of_tickets)[0], "ticket.created");
        assert_eq!(kinds(&updated), ["ticket.updated"]);
        assert_eq!(kinds(&revoked), ["api_key.revoked"], "of what it may read");
        assert_eq!((kinds(&foreign), &foreign["data"][0]["data"]["id"]), (vec!["ticket.created"], &made["id"]));
    }

    async fn a_key_narrowed_while_it_waits_is_told_no_more_than_it_may_read(setup: Setup) {
        let server = crowded(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["webhooks:read", "tickets:read", "api_keys:read"]).await;
        let other = server.key(&acme, &["webhooks:read", "tickets:read"]).await;
        let wait = |plain: String| {
            let server = &server;
            async move { server.get(format!("{EVENTS}?view=feed&start=now")).key(&plain).await }
        };
        let writing = async {
            until_waiting(&server, &acme, 2).await;
            let one = |key: &Key| format!("{KEYS}?id={}", key.id);
            let less = json!({"name": "Less", "scopes": ["webhooks:read", "api_keys:read"]});
            server.put(one(&key)).cookie(&acme.admin).json(&less).await.is(200);
            let none = json!({"name": "None", "scopes": ["tickets:read"]});
            server.put(one(&other)).cookie(&acme.admin).json(&none).await.is(200);
            ticket(&server, &acme).await;
            server.key(&acme, &["tickets:read"]).await
        };
        let (told, refused, _) = tokio::join!(wait(key.plain.clone()), wait(other.plain.clone()), writing);
        assert_eq!(kinds(&told.ok(200)), ["api_key.created"], "and no ticket");
        refused.problem("insufficient_scope");
    }

    async fn a_key_widened_while_it_waits_is_told_what_it_may_read_now(setup: Setup) {
        let server = crowded(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["webhooks:read"]).await;
        let writing = async {
            until_waiting(&server, &acme, 1).await;
            let more = json!({"name": "More", "scopes": ["webhooks:read", "tickets:read"]});
            server.put(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).json(&more).await.is(200);
            ticket(&server, &acme).await
        };
        let waiting = server.get(format!("{EVENTS}?view=feed&start=now")).key(&key.plain);
        let (told, _) = tokio::join!(waiting, writing);
        assert_eq!(kinds(&told.ok(200)), ["ticket.created"]);
    }

    async fn whoever_goes_away_leaves_nothing_behind(setup: Setup) {
        let server = crowded(setup).await;
        let acme = server.tenant("acme").await;
        for _ in 0..3 {
            let waiting = async { server.get(format!("{EVENTS}?view=feed&start=now")).cookie(&acme.admin).await };
            tokio::select! {
                _ = waiting => panic!("there is nothing to tell"),
                () = until_waiting(&server, &acme, 1) => {}
            }
            until_waiting(&server, &acme, 0).await;
        }
        let page = async { server.get(format!("{EVENTS}?view=feed&start=now")).cookie(&acme.admin).await.ok(200) };
        let write = async {
            until_waiting(&server, &acme, 1).await;
            publish_one(&server, &acme, "rec_1").await
        };
        let (page, _) = tokio::join!(page, write);
        let ids: HashSet<&str> = page["data"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 1);
    }
}
