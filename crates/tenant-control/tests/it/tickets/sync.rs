//! A reader that keeps a copy by asking for what has changed, while others write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::process::say;
use crate::support::{Server, Setup, over_http};
use crate::tickets::TICKETS;
use crate::tickets::model::generous;

const WRITERS: usize = 32;
/// Requests of one writer.
const WRITES: usize = 8;

/// Before anything that is written.
const LONG_AGO: &str = "2000-01-01T00:00:00.000Z";

/// Tickets of which a reader of a tag sees few.
const OTHERS: usize = 256;
/// How many of them each writer gives the tag.
const TAGGED: usize = 2;

const PRIORITIES: [&str; 4] = ["low", "medium", "high", "critical"];

over_http! {
    async fn a_reader_that_goes_on_from_what_it_has_seen_ends_with_what_was_written(setup: Setup) {
        sync(vec![generous(setup.in_real_time()).await], 7).await;
    }

    /// Each begins at another moment, when many more tickets have changed than have the tag, and goes on when all is
    /// written.
    async fn so_do_readers_of_what_has_a_tag(setup: Setup) {
        let desk = Desk::open(vec![generous(setup.in_real_time()).await]).await;
        let mut others = Vec::new();
        for number in 0..OTHERS {
            let body = json!({"subject": format!("Other {number}")});
            let made = desk.node(0).post(TICKETS).key(&desk.key).json(&body).await.ok(201);
            others.push(text(&made, "id").to_owned());
        }
        let writers = desk.clone().start(|desk, writer| {
            let own: Vec<String> = others.iter().skip(writer).step_by(WRITERS).take(TAGGED).cloned().collect();
            async move {
                for id in own {
                    desk.change(writer, &id, &json!({"tags": ["busy"]})).await;
                    desk.change(writer, &desk.hot, &json!({"team": id})).await;
                }
            }
        });
        let mut copies = Vec::new();
        while desk.writing() {
            let mut copy = Copy::new("tag=busy&", 90);
            copy.poll(&desk).await;
            copies.push(copy);
        }
        writers.join_all().await;
        let rows = desk.walk("tag=busy").await;
        assert_eq!(rows.len(), 1 + TAGGED * WRITERS);
        let expected: BTreeMap<String, Value> = rows.into_iter().map(|row| (text(&row, "id").to_owned(), row)).collect();
        for copy in &mut copies {
            copy.poll(&desk).await;
            copy.check(&expected);
        }
        say(&format!("{} readers", copies.len()));
        assert!(copies.len() > 1, "the reader only came when all was done: the test shows nothing");
    }

    async fn a_row_that_nobody_changes_appears_once_while_others_write(setup: Setup) {
        let desk = Desk::open(vec![generous(setup.in_real_time()).await]).await;
        let mut still = Vec::new();
        for number in 0..40 {
            let body = json!({
                "subject": "Still", "priority": (PRIORITIES[number % 4]), "tags": ["still"],
                "due_at": if number % 3 == 0 { Value::Null } else { json!(format!("2026-02-0{}T00:00:00Z", number % 7 + 1)) },
            });
            still.push(desk.node(0).post(TICKETS).key(&desk.key).json(&body).await.ok(201));
        }
        let writers = desk.clone().write();
        let mut walks = 0;
        while desk.writing() || walks < QUERIES.len() {
            let query = QUERIES[walks % QUERIES.len()];
            let before = desk.versions().await;
            let seen = desk.walk(query).await;
            let found: Vec<&Value> = seen.iter().filter(|row| row["subject"] == "Still").collect();
            let mut expected: Vec<&Value> = still.iter().collect();
            expected.sort_by_key(|row| place(row, query));
            assert_eq!(found, expected, "{query}: each row that did not change, once and in order");
            let mut once = BTreeSet::new();
            for row in &seen {
                let changed = before.get(text(row, "id")) != Some(&version(row));
                assert!(once.insert(text(row, "id")) || changed, "{query}: a row comes twice that did not change: {row}");
            }
            walks += 1;
        }
        writers.join_all().await;
        say(&format!("{walks} walks"));
    }
}

const QUERIES: &[&str] = &[
    "sort=created_at&limit=9",
    "sort=-created_at&limit=9",
    "sort=updated_at&limit=9",
    "sort=-updated_at&limit=9",
    "sort=priority&limit=9",
    "sort=-priority&limit=9",
    "sort=due_at&limit=9",
    "sort=-due_at&limit=9",
    "tag=still,busy&limit=9",
    "q=s&limit=9",
    "tag=still,busy&sort=-priority&limit=9",
    "updated_since=2000-01-01T00:00:00Z&limit=9",
];

/// Where a row stands in the order of a query: missing dates last, ties by number.
fn place(row: &Value, query: &str) -> (bool, i64, i64) {
    let sort = query.split('&').find_map(|part| part.strip_prefix("sort="));
    let sort = sort.unwrap_or(if query.starts_with("updated_since") { "updated_at" } else { "-created_at" });
    let (field, sign) = sort.strip_prefix('-').map_or((sort, 1), |field| (field, -1));
    let number = row["number"].as_i64().unwrap();
    let value = match field {
        "priority" => PRIORITIES.iter().position(|word| row["priority"] == *word),
        "due_at" => row["due_at"].as_str().map(|date| date[8..10].parse().unwrap()),
        // Nobody changes them: they were created and updated in the order of their numbers.
        _ => Some(0),
    };
    (value.is_none(), sign * i64::try_from(value.unwrap_or_default()).unwrap(), sign * number)
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("{field} in {row}"))
}

fn version(row: &Value) -> i64 {
    row["version"].as_i64().expect("a version")
}

/// Each node has a clock and a queue of its own; what they write must still come in one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn so_it_does_over_two_nodes() {
    let server = generous(Setup::postgres().await.in_real_time()).await;
    let second = server.second_node().await;
    sync(vec![server, second], 200).await;
}

async fn sync(nodes: Vec<Server>, limit: usize) {
    let desk = Desk::open(nodes).await;
    let writers = desk.clone().write();
    let mut copy = Copy::new("", limit);
    while desk.writing() {
        copy.poll(&desk).await;
    }
    let mut made: Vec<String> = writers.join_all().await.into_iter().flatten().collect();
    made.push(desk.hot.clone());
    copy.poll(&desk).await;
    let mut expected = BTreeMap::new();
    for id in made {
        let mut now = desk.node(0).get(format!("{TICKETS}?id={id}")).key(&desk.key).await.ok(200);
        let fields = now.as_object_mut().unwrap();
        fields.remove("comments");
        fields.remove("history");
        expected.insert(id, now);
    }
    copy.check(&expected);
    say(&format!("{} polls, {} changes seen of {} tickets", copy.polls, copy.changes, copy.rows.len()));
    assert!(copy.changes > copy.rows.len(), "the reader only came when all was done: the test shows nothing");
}

/// What a reader keeps.
struct Copy {
    /// The filters, each with `&` behind it.
    filters: &'static str,
    rows: BTreeMap<String, Value>,
    /// The last row's `updated_at`.
    since: String,
    limit: usize,
    polls: usize,
    changes: usize,
}

impl Copy {
    fn new(filters: &'static str, limit: usize) -> Copy {
        Copy { filters, rows: BTreeMap::new(), since: LONG_AGO.to_owned(), limit, polls: 0, changes: 0 }
    }

    #[track_caller]
    fn check(&self, expected: &BTreeMap<String, Value>) {
        let up_to = format!("after {} polls, up to {}", self.polls, self.since);
        for (id, now) in expected {
            assert_eq!(self.rows.get(id), Some(now), "the copy of a ticket {up_to}");
        }
        assert_eq!(self.rows.len(), expected.len(), "{up_to} there are tickets that nobody made");
    }

    /// Takes over everything from where it left off, page by page.
    async fn poll(&mut self, desk: &Desk) {
        let query = format!("{}updated_since={}&limit={}", self.filters, self.since, self.limit);
        for row in desk.walk(&query).await {
            text(&row, "updated_at").clone_into(&mut self.since);
            let old = self.rows.get(text(&row, "id")).map_or(0, version);
            assert!(version(&row) >= old, "version {} of a ticket came after {old}: {row}", version(&row));
            self.changes += usize::from(version(&row) > old);
            self.rows.insert(text(&row, "id").to_owned(), row);
        }
        self.polls += 1;
    }
}

/// A tenant in which writers are at work.
struct Desk {
    nodes: Vec<Server>,
    key: String,
    /// The ticket that every writer changes.
    hot: String,
    left: AtomicUsize,
}

impl Desk {
    async fn open(nodes: Vec<Server>) -> Arc<Desk> {
        let server = &nodes[0];
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["tickets:*"]).await.plain;
        let body = json!({"subject": "Hot", "tags": ["busy"]});
        let hot = text(&server.post(TICKETS).key(&key).json(&body).await.ok(201), "id").to_owned();
        Arc::new(Desk { nodes, key, hot, left: AtomicUsize::new(WRITERS) })
    }

    /// The node that a client happens to meet.
    fn node(&self, client: usize) -> &Server {
        &self.nodes[client % self.nodes.len()]
    }

    fn writing(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    /// Every row of a list.
    async fn walk(&self, query: &str) -> Vec<Value> {
        let mut rows = Vec::new();
        let mut more = String::new();
        loop {
            let page = self.node(rows.len()).get(format!("{TICKETS}?{query}{more}")).key(&self.key).await.ok(200);
            rows.extend(page["data"].as_array().unwrap().iter().cloned());
            let Some(cursor) = page["next_cursor"].as_str() else { return rows };
            more = format!("&cursor={cursor}");
        }
    }

    /// Starts the writers; each gives the ids of what it has made.
    fn write(self: Arc<Self>) -> JoinSet<Vec<String>> {
        self.start(|desk, writer| async move { desk.write_as(writer).await })
    }

    fn start<T, F>(self: Arc<Self>, mut work: impl FnMut(Arc<Desk>, usize) -> F) -> JoinSet<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (desk, working) = (self.clone(), work(self.clone(), writer));
            writers.spawn(async move {
                let done = working.await;
                desk.left.fetch_sub(1, Ordering::SeqCst);
                done
            });
        }
        writers
    }

    async fn change(&self, writer: usize, id: &str, body: &Value) {
        self.node(writer).patch(format!("{TICKETS}?id={id}")).key(&self.key).json(body).await.is(200);
    }

    /// Every ticket and its version.
    async fn versions(&self) -> BTreeMap<String, i64> {
        let rows = self.walk("sort=created_at&limit=200").await;
        rows.iter().map(|row| (text(row, "id").to_owned(), version(row))).collect()
    }

    /// Makes tickets, changes each once or twice and never again, and in between the one that everybody changes: what a
    /// reader misses then is not made good by a later change.
    async fn write_as(&self, writer: usize) -> Vec<String> {
        let mut made: Vec<String> = Vec::new();
        for step in 0..WRITES {
            let body = match step % 4 {
                0 => json!({"comment": {"body": format!("Step {step}")}, "subject": format!("Busy {writer}")}),
                1 => json!({"priority": (PRIORITIES[(step + writer) % 4]), "team": format!("{writer} {step}")}),
                2 => {
                    json!({"due_at": format!("2026-02-{:02}T00:00:00Z", step + 1), "tags": ["busy", format!("t{step}")]})
                }
                _ => json!({"subject": format!("Still busy {step}"), "custom_fields": {"step": step}}),
            };
            let id = match (step % 3, made.last()) {
                (0, _) => {
                    let body = json!({"subject": format!("Busy {writer}"), "tags": ["busy"]});
                    let record = self.node(writer).post(TICKETS).key(&self.key).json(&body).await.ok(201);
                    made.push(text(&record, "id").to_owned());
                    continue;
                }
                (1, Some(newest)) => newest,
                _ => &self.hot,
            };
            self.change(writer, id, &body).await;
        }
        made
    }
}
