//! Readers that keep a copy by asking for what has changed, while others write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel::base::Actor;
use serde_json::Value;
use tenant_control::features::devices::{self, ChangeOrigin, DeviceId, ReportRowUpdate, Type};
use tokio::task::JoinSet;

use super::{INVENTORY, add_all, text, with};
use crate::support::process::say;
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::tickets::{generous, organization};

const WRITERS: usize = 8;
/// Writes of one writer.
const WRITES: usize = 12;

over_http! {
    async fn readers_that_go_on_from_what_they_have_seen_end_with_what_was_written(setup: Setup) {
        sync(vec![generous(setup.in_real_time()).await]).await;
    }
}

/// Each node has a clock and a queue of its own; what they write must still come in one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn so_they_do_over_two_nodes() {
    let server = generous(Setup::postgres().await.in_real_time()).await;
    let second = server.second_node().await;
    sync(vec![server, second]).await;
}

async fn sync(nodes: Vec<Server>) {
    let house = House::open(nodes).await;
    let writers = house.clone().write();
    let of_place = format!("organization_id={}&", house.place);
    let of_both = format!("organization_id=none,{}&", house.place);
    let queries =
        [(String::new(), 1), (String::new(), 7), (of_place, 3), (of_both, 5), ("type=laptop&q=busy&".to_owned(), 2)];
    let mut readers = JoinSet::new();
    for (filters, limit) in queries {
        let house = house.clone();
        readers.spawn(async move {
            let mut copy = Copy::new(filters, limit);
            while house.writing() {
                copy.poll(&house).await;
            }
            copy
        });
    }
    let copies = readers.join_all().await;
    writers.join_all().await;
    let mut seen = 0;
    for mut copy in copies {
        copy.poll(&house).await;
        copy.check(&house).await;
        seen += copy.changes.saturating_sub(copy.rows.len());
        say(&format!(
            "{:60} {} polls, {} changes of {} devices",
            copy.filters,
            copy.polls,
            copy.changes,
            copy.rows.len()
        ));
    }
    assert!(seen > 0, "the readers only came when all was done: the test shows nothing");
}

/// What a reader keeps.
struct Copy {
    /// Each with `&` behind it.
    filters: String,
    limit: usize,
    rows: BTreeMap<String, Value>,
    /// The last row's `updated_at`.
    since: String,
    polls: usize,
    changes: usize,
}

impl Copy {
    fn new(filters: String, limit: usize) -> Copy {
        let since = "2000-01-01T00:00:00.000Z".to_owned();
        Copy { filters, limit, rows: BTreeMap::new(), since, polls: 0, changes: 0 }
    }

    /// Takes over everything from where it left off, page by page.
    async fn poll(&mut self, house: &House) {
        let query = format!("{}updated_since={}&limit={}", self.filters, self.since, self.limit);
        for row in house.walk(&query).await {
            let version = row["version"].as_i64().expect("a version");
            assert!(text(&row, "updated_at") >= self.since.as_str(), "{row} came after {}", self.since);
            text(&row, "updated_at").clone_into(&mut self.since);
            let old = self.rows.get(text(&row, "id")).map_or(0, |row| row["version"].as_i64().expect("a version"));
            assert!(version >= old, "version {version} of a device came after {old}: {row}");
            self.changes += usize::from(version > old);
            self.rows.insert(text(&row, "id").to_owned(), row);
        }
        self.polls += 1;
    }

    /// What is left without the tombstones is the list, and each tombstone is of a device that is gone.
    async fn check(&self, house: &House) {
        let up_to = format!("{}: after {} polls, up to {}", self.filters, self.polls, self.since);
        let list = house.walk(&format!("{}limit=200", self.filters)).await;
        let expected: BTreeMap<String, Value> =
            list.into_iter().map(|row| (text(&row, "id").to_owned(), row)).collect();
        let (live, gone): (Vec<_>, Vec<_>) = self.rows.iter().partition(|(_, row)| row["deleted_at"].is_null());
        for (id, now) in &expected {
            assert_eq!(self.rows.get(id), Some(now), "the copy of a device, {up_to}");
        }
        assert_eq!(live.len(), expected.len(), "{up_to}");
        for (id, _) in &gone {
            house.node(0).get(super::one(id)).key(&house.key).await.problem("not_found");
        }
        assert!(!live.is_empty() && !gone.is_empty(), "{up_to}: nothing to show");
    }
}

/// A tenant in which writers are at work.
struct House {
    nodes: Vec<Server>,
    acme: Tenancy,
    key: String,
    place: String,
    /// The device that every writer changes.
    hot: String,
    left: AtomicUsize,
}

impl House {
    async fn open(nodes: Vec<Server>) -> Arc<House> {
        let server = &nodes[0];
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["inventory:read"]).await.plain;
        let place = organization(server, &acme, "initech").await;
        let of_place = place.parse().expect("an id");
        let hot =
            add_all(server, &acme, vec![with("busy hot", |full| full.device.organization_id = Some(of_place))]).await;
        Arc::new(House { key, place, hot: hot[0].clone(), left: AtomicUsize::new(WRITERS), acme, nodes })
    }

    /// The node that a client happens to meet.
    fn node(&self, client: usize) -> &Server {
        &self.nodes[client % self.nodes.len()]
    }

    fn writing(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    async fn walk(&self, query: &str) -> Vec<Value> {
        let (mut rows, mut more) = (Vec::new(), String::new());
        loop {
            let page = self.node(rows.len()).get(format!("{INVENTORY}?{query}{more}")).key(&self.key).await.ok(200);
            rows.extend(page["data"].as_array().unwrap().iter().cloned());
            let Some(cursor) = page["next_cursor"].as_str() else { return rows };
            more = format!("&cursor={cursor}");
        }
    }

    fn write(self: Arc<Self>) -> JoinSet<()> {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let house = self.clone();
            writers.spawn(async move {
                house.write_as(writer).await;
                house.left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        writers
    }

    /// Makes devices, two at once, changes some of them once and never again, deletes others, and in between changes the one
    /// that everybody changes: what a reader misses then is not made good by a later change.
    async fn write_as(&self, writer: usize) {
        let db = self.node(writer).app.store.tenant_for_test(self.acme.tenant.id, Actor::for_system());
        let (place, hot): (_, DeviceId) = (self.place.parse().expect("an id"), self.hot.parse().expect("an id"));
        let mut made: Vec<DeviceId> = Vec::new();
        for step in 0..WRITES {
            // Of the last two the one that is deleted is not always the one that was changed.
            let back = if step % 6 == 5 { (step / 6 + writer) % 2 } else { 0 };
            let own = made.iter().rev().nth(back).copied();
            let wrote = db.write(async move |tx| match (step % 6, own) {
                (0 | 3, _) | (_, None) => {
                    let mut ids = Vec::new();
                    for which in 0..2 {
                        let new = with(&format!("busy {writer} {step} {which}"), |full| {
                            full.device.organization_id = (which == 0).then_some(place);
                            full.device.r#type = [Type::Laptop, Type::Server][(writer + step) % 2];
                        });
                        ids.push(
                            devices::create_device(tx, new, ReportRowUpdate::CheckAt(None), ChangeOrigin::Automatic)
                                .await?
                                .full
                                .device
                                .id,
                        );
                    }
                    Ok(ids)
                }
                (1 | 4, Some(id)) => {
                    let tags = vec![format!("w{writer}"), format!("s{step}")];
                    devices::edit_device(tx, id, |full| {
                        full.device.tags = tags;
                        Ok(())
                    })
                    .await?;
                    Ok(Vec::new())
                }
                (5, Some(id)) => devices::delete_device(tx, id, ChangeOrigin::Deliberate).await.map(|_| Vec::new()),
                (_, Some(_)) => {
                    devices::edit_device(tx, hot, |full| {
                        full.device.model = Some(format!("{writer} {step}"));
                        Ok(())
                    })
                    .await?;
                    Ok(Vec::new())
                }
            });
            made.extend(wrote.await.expect("it is written"));
        }
    }
}
