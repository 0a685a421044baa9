//! Readers that follow the changes while 32 writers make them: none is missed, at any page size, whether a millisecond
//! has one change or hundreds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::process::say;
use crate::support::{Server, over_http};
use crate::tickets::TICKETS;
use crate::tickets::model::generous;

const WRITERS: usize = 32;
/// Each changes once in a round, and a reader that has missed that finds it out: no later change makes it good.
const RECORDS: usize = 64;
const LIMITS: [usize; 4] = [1, 3, 50, 200];
/// Changes after which a clock that stands moves on by a millisecond.
const STANDS_FOR: usize = 24;
/// Before anything that is written.
const LONG_AGO: &str = "2000-01-01T00:00:00.000Z";

/// How many changes are made. A longer run: `TENANT_CONTROL_TEST_CHANGES=1000000 ./test follow`.
fn changes() -> usize {
    std::env::var("TENANT_CONTROL_TEST_CHANGES").map_or(2 * RECORDS, |text| text.parse().expect("a number of changes"))
}

over_http! {
    async fn no_change_is_missed(setup: Setup) {
        follow(generous(setup.in_real_time()).await).await;
    }

    async fn no_change_is_missed_while_the_clock_stands_and_moves_on(setup: Setup) {
        follow(generous(setup).await).await;
    }
}

struct Desk {
    server: Server,
    key: String,
    /// In the order of their numbers.
    ids: Vec<String>,
    /// How many changes there have been.
    made: watch::Sender<usize>,
    /// How many of this round have been taken up by a writer.
    taken: AtomicUsize,
    writing: AtomicBool,
}

async fn follow(server: Server) {
    let acme = server.tenant("acme").await;
    let key = server.key(&acme, &["tickets:*"]).await.plain;
    let mut ids = Vec::new();
    for number in 0..RECORDS {
        let body = json!({"subject": format!("Ticket {number}")});
        let made = server.post(TICKETS).key(&key).json(&body).await.ok(201);
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let (made, taken) = (watch::Sender::new(0), AtomicUsize::new(0));
    let desk = Arc::new(Desk { server, key, ids, made, taken, writing: AtomicBool::new(true) });
    let mut readers: Vec<Reader> =
        LIMITS.iter().flat_map(|limit| [true, false].map(|by_cursor| Reader::new(*limit, by_cursor))).collect();
    for round in 0..changes().div_ceil(RECORDS) {
        desk.taken.store(0, Ordering::SeqCst);
        desk.writing.store(true, Ordering::SeqCst);
        let mut reading = JoinSet::new();
        for mut reader in readers.drain(..) {
            let desk = desk.clone();
            let mut news = desk.made.subscribe();
            reading.spawn(async move {
                while desk.writing.load(Ordering::SeqCst) {
                    if !reader.turn(&desk).await {
                        news.changed().await.unwrap();
                    }
                }
                // All is written: from where it is now to the end.
                while reader.turn(&desk).await {}
                reader
            });
        }
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            writers.spawn(desk.clone().write(round));
        }
        writers.join_all().await;
        desk.writing.store(false, Ordering::SeqCst);
        desk.made.send_modify(|_| {});
        readers = reading.join_all().await;
        for reader in &readers {
            reader.check(&desk, round);
        }
    }
    let (made, asked): (usize, usize) = (*desk.made.borrow(), readers.iter().map(|reader| reader.turns).sum());
    say(&format!("{made} changes, followed by {} readers with {asked} requests; none was missed", readers.len()));
}

impl Desk {
    /// Changes what no other writer has taken, those of high numbers and of low ones by turns.
    async fn write(self: Arc<Self>, round: usize) {
        loop {
            let turn = self.taken.fetch_add(1, Ordering::SeqCst);
            if turn >= RECORDS {
                return;
            }
            let at = if turn.is_multiple_of(2) { RECORDS - 1 - turn / 2 } else { turn / 2 };
            let target = format!("{TICKETS}?id={}", self.ids[at]);
            let body = json!({"team": format!("Round {round}")});
            // A busy database lets some wait too long; what is said again changes nothing again.
            loop {
                let answer = self.server.patch(&target).key(&self.key).json(&body).await;
                if answer.status != 503 {
                    answer.is(200);
                    break;
                }
            }
            self.made.send_modify(|made| {
                *made += 1;
                if made.is_multiple_of(STANDS_FOR) {
                    self.server.advance(1);
                }
            });
        }
    }
}

/// Keeps a copy of every version.
struct Reader {
    limit: usize,
    /// Whether it goes on by the last cursor it was given, or from the last `updated_at` whenever that has moved.
    by_cursor: bool,
    since: String,
    cursor: Option<String>,
    versions: BTreeMap<String, i64>,
    turns: usize,
}

impl Reader {
    fn new(limit: usize, by_cursor: bool) -> Reader {
        let since = LONG_AGO.to_owned();
        Reader { limit, by_cursor, since, cursor: None, versions: BTreeMap::new(), turns: 0 }
    }

    /// Reads one page; whether there is another.
    async fn turn(&mut self, desk: &Desk) -> bool {
        let more = self.cursor.as_ref().map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
        let target = format!("{TICKETS}?updated_since={}&limit={}{more}", self.since, self.limit);
        let answer = desk.server.get(target).key(&desk.key).await;
        if answer.status == 503 {
            return true;
        }
        let page = answer.ok(200);
        let rows = page["data"].as_array().unwrap();
        for row in rows {
            let version = row["version"].as_i64().unwrap();
            let old = self.versions.insert(row["id"].as_str().unwrap().to_owned(), version).unwrap_or_default();
            assert!(version >= old, "version {version} came after {old}: {row}");
        }
        self.turns += 1;
        let next = page["next_cursor"].as_str().map(str::to_owned);
        let goes_on = next.is_some();
        let last = rows.last().map_or(Value::Null, |row| row["updated_at"].clone());
        if self.by_cursor {
            self.cursor = next.or(self.cursor.take());
        } else if last.is_string() && last != self.since.as_str() {
            last.as_str().unwrap().clone_into(&mut self.since);
            self.cursor = None;
        } else {
            self.cursor = next;
        }
        goes_on
    }

    #[track_caller]
    fn check(&self, desk: &Desk, round: usize) {
        let expected = i64::try_from(round).unwrap() + 2;
        for (at, id) in desk.ids.iter().enumerate() {
            let way = if self.by_cursor { "by cursor" } else { "by updated_at" };
            let number = at + 1;
            assert_eq!(self.versions[id], expected, "ticket {number}, followed {way} in pages of {}", self.limit);
        }
    }
}
