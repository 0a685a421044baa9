//! Many who write at once, while the index follows and others search: in the end it is like the records.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tenant_control::features::users::delete_user;

use super::{called, device, hits, ids, organization, total, user, workflow};
use crate::asset_inventory::{change, remove};
use crate::support::search::{Indexed, asking};
use crate::support::workflows::{approval, manual};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{changed, generous, id_of, read};

/// Half of them for each of two tenants. Each makes and changes a dozen records, which is four hundred writes in all.
const WRITERS: usize = 32;

/// A tenant, and a ticket of it that all its writers rename.
struct Desk {
    tenancy: Tenancy,
    shared: Value,
}

/// The words of one writer, and the id of the only record that has each now.
type Words = Vec<(String, Option<String>)>;

/// Found as it is written or not at all: with digits there are no typos, and of one length none is the beginning of another.
/// The writers of one tenant have words of their own, and those of the other have the same.
fn word(writer: usize, n: usize) -> String {
    format!("w{:02}{n:03}", writer / 2)
}

/// Makes a record of each kind and renames what can be renamed; every second writer removes what can be removed.
async fn write(server: &Server, desk: &Desk, writer: usize) -> Words {
    let (tenancy, word) = (&desk.tenancy, |n: usize| word(writer, n));
    let ticket = called(server, tenancy, &word(0)).await;
    changed(server, tenancy, &ticket, &json!({"subject": word(1)})).await;
    changed(server, tenancy, &ticket, &json!({"subject": word(2), "status": "open"})).await;
    let machine = device(server, tenancy, &word(3), |_| {}).await;
    let renamed = word(4);
    change(server, tenancy, &machine, move |full| full.device.hostname = Some(renamed)).await;
    let flow = workflow(server, tenancy, &word(5), manual([approval("ask")])).await;
    server.change_workflow(tenancy, &flow, &json!({"name": word(6)})).await;
    let person = user(server, tenancy, &word(7), &format!("{}@hub.test", word(7))).await;
    let customer = organization(server, tenancy, &word(8), &word(8)).await.id.to_string();
    changed(server, tenancy, &desk.shared, &json!({"subject": word(9)})).await;
    changed(server, tenancy, &ticket, &json!({"description": word(10), "organization_id": customer})).await;
    let second = called(server, tenancy, &word(11)).await;
    let stays = (writer / 2).is_multiple_of(2);
    if !stays {
        remove(server, tenancy, &machine).await;
        server.delete_workflow(tenancy, &flow).await;
        delete_user(&server.app.store, &tenancy.tenant, &person).await.expect("the user is disabled");
    }
    let now = |n: usize, id: &str| (word(n), Some(id.to_owned()));
    let then = |n: usize| (word(n), None);
    let (person, ticket) = (person.id.to_string(), id_of(&ticket));
    let removable = [(4, machine.as_str()), (6, id_of(&flow))];
    let mut words: Words = removable.map(|(n, id)| if stays { now(n, id) } else { then(n) }).into();
    words.extend([0, 1, 3, 5].map(then));
    // Whoever is disabled is there as before.
    words.extend([now(7, &person), now(2, ticket), now(10, ticket), now(8, &customer), now(11, id_of(&second))]);
    words
}

/// Searches until it is told to stop. The ids of all that was found.
async fn search(server: &Server, desk: &Desk, stop: &AtomicBool) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        for q in ["type:ticket", "w0", "w", "type:device w1", "status:open -w00002", "\"w01002\""] {
            let page = server.get(format!("{}&limit=200", asking(q))).cookie(&desk.tenancy.admin).await.ok(200);
            let found: BTreeSet<String> = ids(&page).into_iter().collect();
            assert_eq!(found.len(), hits(&page).len(), "{q}: each once");
            assert_eq!(Ok(total(&page)), u64::try_from(found.len()), "{q}: all are counted");
            seen.extend(found);
        }
    }
    seen
}

/// All that two tenants have, as searches show it.
async fn everything(server: &Server, desks: &[Desk; 2]) -> Vec<Value> {
    let mut all = Vec::new();
    for desk in desks {
        for kind in ["device", "user", "organization", "ticket", "workflow", "software"] {
            let target = format!("{}&limit=200", asking(&format!("type:{kind}")));
            let mut page = server.get(target).cookie(&desk.tenancy.admin).await.ok(200);
            page["took_ms"].take();
            all.push(page);
        }
    }
    all
}

over_http! {
    async fn after_many_writers_at_once_the_index_is_like_the_records(setup: Setup) {
        let server = generous(setup).await;
        let mut desks = Vec::new();
        for slug in ["acme", "globex"] {
            let tenancy = server.tenant(slug).await;
            let shared = called(&server, &tenancy, "Everybody's").await;
            desks.push(Desk { tenancy, shared });
        }
        let desks: [Desk; 2] = desks.try_into().unwrap_or_else(|_| panic!("two tenants"));
        let (indexed, stop) = (Indexed::of(&server).await, AtomicBool::new(false));
        let writing = async {
            let written = join_all((0..WRITERS).map(|writer| write(&server, &desks[writer % 2], writer))).await;
            stop.store(true, Ordering::Relaxed);
            written
        };
        let following = async {
            while !stop.load(Ordering::Relaxed) {
                indexed.follow().await;
                tokio::task::yield_now().await;
            }
        };
        let searching = async { tokio::join!(search(&server, &desks[0], &stop), search(&server, &desks[1], &stop)) };
        let (written, (), seen) = tokio::join!(writing, following, searching);
        assert!(!seen.0.is_empty() && !seen.1.is_empty(), "nothing was found meanwhile: the test shows nothing");
        assert!(seen.0.is_disjoint(&seen.1), "one tenant has found what the other has");

        indexed.catch_up().await;
        for (n, desk) in desks.iter().enumerate() {
            let subject = read(&server, &desk.tenancy, &desk.shared).await["subject"].clone();
            for (writer, words) in written.iter().enumerate().filter(|(writer, _)| writer % 2 == n) {
                indexed.follow().await;
                let last = word(writer, 9);
                let id = (subject == last.as_str()).then(|| id_of(&desk.shared).to_owned());
                for (word, id) in words.iter().chain(&[(last, id)]) {
                    let found = server.search(&desk.tenancy.admin, word).await;
                    let expected: Vec<String> = id.iter().cloned().collect();
                    assert_eq!(ids(&found), expected, "{word}");
                    assert_eq!(Ok(total(&found)), u64::try_from(expected.len()), "{word}");
                }
            }
        }
        let followed = everything(&server, &desks).await;
        let counts: Vec<u64> = followed.iter().map(total).collect();
        // Of sixteen writers eight have removed what they could; and the admin is a user, too.
        let expected: Vec<u64> = [[8, 17, 16, 33, 8, 0]; 2].concat();
        assert_eq!(counts, expected, "devices, people, customers, tickets, workflows and software");
        // As one that is built now.
        let _built = Indexed::of(&server).await;
        assert_eq!(everything(&server, &desks).await, followed);
    }
}
