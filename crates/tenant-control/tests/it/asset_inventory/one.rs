//! One device: with its history, under its version, or not there.

use std::sync::{Arc, Mutex};

use kernel::base::{FaultPoints, InjectedFault};
use serde_json::{Value, json};
use tenant_control::features::devices::{DeviceId, DeviceStatus, Type};

use super::{
    INVENTORY, NOTHING, add, change, database, delete, edit, hear, list, named, one, read, remove, software, text,
    walk, with,
};
use crate::support::{Server, Setup, Tenancy, over_http};

/// A device with many changes, each a minute after the one before.
async fn busy(server: &Server, tenancy: &Tenancy, changes: usize) -> String {
    let id = add(server, tenancy, named("busy")).await;
    for n in 0..changes {
        server.advance(60_000);
        change(server, tenancy, &id, move |full| full.device.model = Some(format!("Model {n}"))).await;
    }
    id
}

/// Something that is done while a device is being read.
type Deed = Box<dyn FnOnce() + Send>;

/// A server that does each of these once, the last first, between reading a device and reading what belongs to it.
async fn interrupted(setup: Setup) -> (Server, Arc<Mutex<Vec<Deed>>>) {
    let deeds: Arc<Mutex<Vec<Deed>>> = Arc::default();
    let due = deeds.clone();
    let faults = FaultPoints::new(move |place| {
        let deed = if place == "asset_inventory.get.found" { due.lock().unwrap().pop() } else { None };
        if let Some(deed) = deed {
            deed();
        }
        InjectedFault::None
    });
    (setup.with_faults(faults).start().await, deeds)
}

/// Does it now, while whoever asked waits.
fn meanwhile(work: impl Future<Output = ()>) {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work));
}

over_http! {
    async fn a_device_that_changes_while_it_is_read_is_shown_in_one_state(setup: Setup) {
        let (server, deeds) = interrupted(setup).await;
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, with("web-1", |full| full.parts.software = vec![software("bash", "5.1")])).await;
        let (db, device): (_, DeviceId) = (database(&server, &acme), id.parse().unwrap());
        deeds.lock().unwrap().push(Box::new(move || meanwhile(edit(db, device, |full| {
            full.device.model = Some("New".to_owned());
            full.parts.software = vec![software("bash", "5.2")];
        }))));
        let target = format!("{}&include=software", one(&id));
        let answer = server.get(&target).cookie(&acme.admin).await;
        let shown = answer.ok(200);
        assert!(deeds.lock().unwrap().is_empty(), "it was changed meanwhile");
        assert_eq!((answer.header("etag"), &shown["version"], &shown["model"]), ("\"2\"", &json!(2), &json!("New")));
        assert_eq!(shown["software"][0]["version"], "5.2");
        assert_eq!(shown["history"].as_array().unwrap().len(), 2);
        assert_eq!(server.get(&target).cookie(&acme.admin).await.ok(200), shown, "as it is read when nothing happens");
        let db = database(&server, &acme);
        deeds.lock().unwrap().push(Box::new(move || meanwhile(delete(db, device))));
        server.get(&target).cookie(&acme.admin).await.problem("not_found");
        assert!(deeds.lock().unwrap().is_empty(), "it was deleted meanwhile");
    }

    async fn one_device_has_its_history_oldest_first(server: Server) {
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, with("web-1", |full| full.parts.software = vec![software("bash", "5.1"), software("git", "2")])).await;
        let made = server.now();
        server.advance(1_000);
        change(&server, &acme, &id, |full| {
            full.device.r#type = Type::Laptop;
            full.device.tags = vec!["new".to_owned()];
        }).await;
        server.advance(1_000);
        change(&server, &acme, &id, |full| full.parts.software = vec![software("bash", "5.2"), software("git", "2")]).await;
        // None of these is worth telling: what is no change at all, and what changes every day.
        change(&server, &acme, &id, |_| {}).await;
        hear(&server, &acme, &id, server.now()).await;
        change(&server, &acme, &id, |full| full.device.last_logged_user = Some("ada".to_owned())).await;
        server.advance(1_000);
        change(&server, &acme, &id, |full| full.device.status = DeviceStatus::Offline).await;
        let device = read(&server, &acme, &id).await;
        let actor = json!({"type": "system", "id": null, "name": "System"});
        let history = device["history"].as_array().unwrap();
        assert!(history.iter().all(|change| change["actor"]["type"] == actor["type"]), "{history:#?}");
        let at = |seconds: i64| made.plus_ms(1_000 * seconds).to_string();
        let bash = |version: &str| {
            json!([{"name": "bash", "version": version, "publisher": null, "arch": null, "source": null, "installed_at": null}])
        };
        let told: Vec<Value> = history.iter().map(|change| json!([change["at"], change["changes"]])).collect();
        assert_eq!(told, [
            json!([at(0), {"status": {"from": null, "to": "online"}}]),
            json!([at(1), {"type": {"from": "server", "to": "laptop"}, "tags": {"from": [], "to": ["new"]}}]),
            json!([at(2), {"software": {"from": bash("5.1"), "to": bash("5.2")}}]),
            json!([at(3), {"status": {"from": "online", "to": "offline"}}]),
        ]);
        let viewed = list(&server, &acme, &format!("id={id}&view=history")).await;
        assert!(viewed.iter().rev().eq(history), "the same, newest first");
        // In a list there is none.
        assert!(list(&server, &acme, "").await[0].get("history").is_none());
        assert!(server.get(format!("{}&fields=hostname", one(&id))).cookie(&acme.admin).await.ok(200).get("history").is_none());
    }

    async fn a_long_history_comes_in_pages(server: Server) {
        let acme = server.tenant("acme").await;
        let id = busy(&server, &acme, 30).await;
        let whole: Vec<Value> = read(&server, &acme, &id).await["history"].as_array().unwrap().iter().rev().cloned().collect();
        assert_eq!((whole.len(), &whole[0]["changes"]["model"]["to"]), (31, &json!("Model 29")));
        for limit in [1, 7, 30, 31, 200] {
            let (rows, pages) = walk(&server, &acme, &format!("id={id}&view=history&limit={limit}")).await;
            assert_eq!(rows, whole, "{limit}");
            assert_eq!(pages.len(), 31_usize.div_ceil(limit));
        }
        // What comes meanwhile is not among what is older.
        let first = server.get(format!("{}&view=history&limit=5", one(&id))).cookie(&acme.admin).await.ok(200);
        let cursor = text(&first, "next_cursor");
        change(&server, &acme, &id, |full| full.device.model = Some("Newest".to_owned())).await;
        let second = list(&server, &acme, &format!("id={id}&view=history&limit=5&cursor={cursor}")).await;
        assert_eq!(second, whole[5..10]);
        let other = busy(&server, &acme, 2).await;
        for bad in [
            format!("id={other}&view=history&cursor={cursor}"),
            format!("cursor={cursor}"),
            format!("id={id}&view=history&cursor=x{cursor}"),
        ] {
            server.get(format!("{INVENTORY}?{bad}")).cookie(&acme.admin).await.problem("invalid_cursor");
        }
    }

    async fn a_page_of_long_changes_ends_before_its_limit(server: Server) {
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, named("busy")).await;
        for n in 0..8 {
            change(&server, &acme, &id, move |full| {
                let text = format!("{n}{}", "x".repeat(100_000));
                full.device.custom_fields = [("text".to_owned(), text.into())].into_iter().collect();
            }).await;
        }
        let first = server.get(format!("{}&view=history&limit=200", one(&id))).cookie(&acme.admin).await;
        assert!((500_000..1_200_000).contains(&first.body.len()), "{}", first.body.len());
        let (rows, pages) = walk(&server, &acme, &format!("id={id}&view=history&limit=200")).await;
        assert_eq!(rows.len(), 9);
        assert!(pages.len() >= 2 && pages.iter().all(|page| *page > 0), "{pages:?}");
    }

    async fn the_version_is_its_etag_and_moves_with_changes_alone(server: Server) {
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, named("web-1")).await;
        let tags = async |server: &Server| {
            let (get, head) = (server.get(one(&id)).cookie(&acme.admin).await, server.head(one(&id)).cookie(&acme.admin).await);
            let few = server.get(format!("{}&fields=hostname", one(&id))).cookie(&acme.admin).await;
            assert_eq!((get.header("etag"), head.is(200).body.len()), (head.header("etag"), 0));
            assert_eq!(few.is(200).header("etag"), get.header("etag"), "with some of its fields, too");
            let device = get.ok(200);
            assert_eq!(get.header("etag"), format!("\"{}\"", device["version"]));
            (device["version"].as_i64().unwrap(), text(&device, "updated_at").to_owned())
        };
        let made = tags(&server).await;
        assert_eq!((made.0, &made.1), (1, &server.now().to_string()));
        server.advance(60_000);
        hear(&server, &acme, &id, server.now()).await;
        change(&server, &acme, &id, |_| {}).await;
        assert_eq!(tags(&server).await, made, "neither is a change");
        assert_eq!(read(&server, &acme, &id).await["last_seen_at"], server.now().to_string());
        // Not told, but a change: a copy would be wrong without it.
        change(&server, &acme, &id, |full| full.device.last_logged_user = Some("ada".to_owned())).await;
        assert_eq!(tags(&server).await, (2, server.now().to_string()));
        let list = server.get(INVENTORY).cookie(&acme.admin).await;
        assert!(!list.headers.contains_key("etag") && list.header("cache-control") == "no-store");
    }

    async fn a_device_that_is_not_there_looks_the_same_for_whatever_reason(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let own = add(&server, &acme, named("own")).await;
        let gone = add(&server, &acme, named("gone")).await;
        remove(&server, &acme, &gone).await;
        let foreign = add(&server, &globex, named("foreign")).await;
        let upper = own.to_uppercase();
        let ticket = own.replace("dev_", "tkt_");
        let mut seen = Vec::new();
        for id in [NOTHING, &foreign, &gone, "nonsense", "", "1", &upper, &ticket, "dev_", "*"] {
            for more in ["", "&view=history", "&fields=hostname", "&include=disks", "&view=history&limit=1"] {
                let answer = server.get(format!("{INVENTORY}?id={id}{more}")).cookie(&acme.admin).await;
                assert_eq!(answer.status, 404, "{id:?}{more}: {}", answer.json());
                answer.problem("not_found");
                seen.push(answer.body_but_request_id());
            }
        }
        assert!(seen.iter().all(|body| *body == seen[0]), "{seen:#?}");
        read(&server, &acme, &own).await;
        read(&server, &globex, &foreign).await;
    }
}
