//! Many creators at once, whose connections break: one ticket for each intent, and numbers without gaps.
//!
//! They run in the time of the machine, so that the order of times means something.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::call::Call;
use crate::support::process::say;
use crate::support::{Answer, Server, Setup, over_http};
use crate::tickets::TICKETS;
use crate::tickets::model::generous;

const CREATORS: usize = 64;
/// What each creator wants to make, one after the other.
const INTENTS: usize = 2;
/// How often a client gives up on an intent before it waits for the answer.
const IMPATIENT: usize = 3;
/// A client that gives up does so within this time.
const PATIENCE_MICROS: usize = 20_000;
/// More repeats than any intent needs.
const REPEATS_MAX: usize = 10_000;

/// What the clients have seen.
#[derive(Debug, Default)]
struct Seen {
    abandoned: AtomicUsize,
    running: AtomicUsize,
    replayed: AtomicUsize,
    refused: AtomicUsize,
}

struct Creators {
    nodes: Vec<Server>,
    key: String,
    seen: Seen,
}

over_http! {
    async fn sixty_four_creators_with_broken_connections_make_one_ticket_for_each_intent(setup: Setup) {
        race(vec![generous(setup.in_real_time()).await]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_creators_on_two_nodes_make_one_ticket_for_each_intent() {
    let server = generous(Setup::postgres().await.in_real_time()).await;
    let second = server.second_node().await;
    race(vec![server, second]).await;
}

async fn race(nodes: Vec<Server>) {
    let acme = nodes[0].tenant("acme").await;
    let key = nodes[0].key(&acme, &["tickets:*"]).await.plain;
    let all = Arc::new(Creators { nodes, key, seen: Seen::default() });
    let taken = json!({"subject": "The one that has it", "external_id": "taken"});
    all.create(0, "taken", &taken).await.is(201);
    let mut creators = JoinSet::new();
    for creator in 0..CREATORS {
        creators.spawn(work(all.clone(), creator));
    }
    let made: Vec<Value> = creators.join_all().await.into_iter().flatten().collect();
    let rows = all.rows().await;

    let expected: Vec<i64> = (1..).take(1 + CREATORS * INTENTS).collect();
    let numbers: Vec<i64> = rows.iter().map(|row| row["number"].as_i64().unwrap()).collect();
    assert_eq!(numbers, expected, "one number after the other, without a gap");
    assert!(rows.is_sorted_by_key(|row| row["created_at"].as_str().unwrap()), "a later number is no earlier");
    assert!(rows.is_sorted_by_key(|row| row["id"].as_str().unwrap()), "ids rise with the numbers");
    let by_subject: BTreeMap<&str, &Value> = rows.iter().map(|row| (row["subject"].as_str().unwrap(), row)).collect();
    assert_eq!(by_subject.len(), rows.len(), "no intent has made two tickets");
    for record in &made {
        assert_eq!(by_subject[record["subject"].as_str().unwrap()], record, "what was answered is what is there");
    }
    assert_eq!(made.len() + 1, rows.len());
    say(&format!("{:?}", all.seen));
    assert!(all.seen.abandoned.load(Ordering::Relaxed) > CREATORS, "hardly a client gave up: the test shows nothing");
    assert!(
        all.seen.replayed.load(Ordering::Relaxed) > CREATORS / 4,
        "hardly an answer was lost: the test shows nothing"
    );
    assert_eq!(all.seen.refused.load(Ordering::Relaxed), 2 * CREATORS * INTENTS);
}

/// All that one creator wants, with what is refused in between.
async fn work(all: Arc<Creators>, creator: usize) -> Vec<Value> {
    let mut made = Vec::new();
    for intent in 0..INTENTS {
        let name = format!("creator-{creator}-{intent}");
        let unknown = json!({"subject": "x", "organization_id": "org_00000000000000000000000000"});
        let taken = json!({"subject": "x", "external_id": "taken"});
        for (why, body, status) in [("unknown", unknown, 422), ("taken", taken, 409)] {
            let refused = all.create(creator + intent, &format!("{name}-{why}"), &body).await;
            assert_eq!((refused.status, &refused.json()["code"] == "idempotency_in_progress"), (status, false));
            all.seen.refused.fetch_add(1, Ordering::Relaxed);
        }
        let answer = all.create(creator + intent, &name, &json!({"subject": name})).await;
        let replayed = answer.header("idempotency-replayed") == "true";
        all.seen.replayed.fetch_add(usize::from(replayed), Ordering::Relaxed);
        made.push(answer.ok(201));
    }
    made
}

impl Creators {
    /// Asks until there is an answer, under one key: at first without the patience to wait for it.
    async fn create(&self, lot: usize, name: &str, body: &Value) -> Answer {
        for attempt in 0..REPEATS_MAX {
            // Each attempt may meet another node.
            let node = &self.nodes[(lot + attempt) % self.nodes.len()];
            let call = node.post(TICKETS).key(&self.key).idempotency_key(name).json(body);
            let Some(answer) = give_up(call, lot + attempt, attempt < IMPATIENT).await else {
                self.seen.abandoned.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let code = if answer.status < 400 { Value::Null } else { answer.json()["code"].clone() };
            match code.as_str() {
                Some("idempotency_in_progress") => drop(self.seen.running.fetch_add(1, Ordering::Relaxed)),
                Some("unavailable") => {}
                _ => return answer,
            }
            tokio::task::yield_now().await;
        }
        panic!("no answer to {name} after {REPEATS_MAX} attempts")
    }

    /// Every ticket, in the order of numbers.
    async fn rows(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        let mut more = String::new();
        loop {
            let target = format!("{TICKETS}?sort=created_at&limit=100{more}");
            let page = self.nodes[0].get(target).key(&self.key).await.ok(200);
            rows.extend(page["data"].as_array().unwrap().iter().cloned());
            let Some(cursor) = page["next_cursor"].as_str() else { return rows };
            more = format!("&cursor={cursor}");
        }
    }
}

/// The answer, unless the client is impatient and leaves first: after a few steps of its own, so that the request is on
/// its way or not; after a moment, so that it is being carried out or not; or when the answer is there, and gets lost.
async fn give_up(call: Call<'_>, lot: usize, impatient: bool) -> Option<Answer> {
    let call = call.into_future();
    match (impatient, lot % 4) {
        (false, _) => Some(call.await),
        (true, 0 | 2) => within_steps(call, 1 + lot % 5).await,
        (true, 1) => {
            let micros = u64::try_from(lot * 613 % PATIENCE_MICROS).unwrap();
            tokio::time::timeout(Duration::from_micros(micros), call).await.ok()
        }
        (true, _) => {
            call.await;
            None
        }
    }
}

/// The result of a future if it comes within so many polls.
async fn within_steps<T>(future: impl Future<Output = T>, steps: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut left = steps;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}
