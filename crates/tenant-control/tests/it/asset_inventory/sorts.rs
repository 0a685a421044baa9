//! Sort orders, and the filters that people ask for by name.

use std::cmp::Ordering;

use kernel::base::{HOUR_MS, Timestamp};
use serde_json::{Value, json};
use tenant_control::features::devices::FullDevice;

use super::{INVENTORY, add_all, change, hear, list, text, walk, with};
use crate::support::{Server, Tenancy, over_http};

const COUNT: usize = 40;
const SYSTEMS: [&str; 4] = ["Microsoft Windows 11 Pro", "Microsoft Windows Server 2022", "Debian GNU/Linux 12", ""];

fn device(now: Timestamp, n: usize) -> FullDevice {
    with(&format!("{}-{:02}", ["web", "DB", "Print"][n % 3], n * 7 % COUNT), |full| {
        let device = &mut full.device;
        if n.is_multiple_of(9) {
            device.hostname = None;
            device.display_name = Some(format!("Router {n}"));
        }
        device.serial_number = Some(format!("CZC{n:04}"));
        device.os.name = Some(SYSTEMS[n % 4].to_owned()).filter(|name| !name.is_empty());
        device.last_seen_at = (!n.is_multiple_of(5)).then(|| now.plus_ms(-HOUR_MS * (n as i64 * 3 % 11)));
        device.needs_reboot = [None, Some(false), Some(true)][n % 3];
        device.warranty.end_date = [None, Some("2020-01-31"), Some("2999-12-31")][n / 2 % 3].map(str::to_owned);
    })
}

struct Scene<'a> {
    server: &'a Server,
    acme: Tenancy,
    all: Vec<Value>,
}

impl Scene<'_> {
    async fn set(server: &Server) -> Scene<'_> {
        let acme = server.tenant("acme").await;
        let now = server.now();
        let ids = add_all(server, &acme, (0..COUNT).map(|n| device(now, n)).collect()).await;
        let first: tenant_control::features::devices::DeviceId = ids[0].parse().unwrap();
        for id in &ids[3..6] {
            change(server, &acme, id, move |full| full.device.possible_duplicate_of = Some(first)).await;
        }
        let all = list(server, &acme, "limit=200").await;
        assert_eq!(all.len(), COUNT);
        Scene { server, acme, all }
    }

    /// Asserts that a query finds what is wanted, in pages of every size.
    async fn finds(
        &self,
        query: &str,
        wanted: impl Fn(&Value) -> bool,
        order: impl Fn(&Value, &Value) -> Ordering,
    ) -> usize {
        let mut expected: Vec<&Value> = self.all.iter().filter(|row| wanted(row)).collect();
        expected.sort_by(|a, b| order(a, b));
        for limit in [3, 200] {
            let (found, _) = walk(self.server, &self.acme, &format!("limit={limit}&{query}")).await;
            let ids = |rows: &[&Value]| rows.iter().map(|row| text(row, "id").to_owned()).collect::<Vec<_>>();
            assert_eq!(ids(&found.iter().collect::<Vec<_>>()), ids(&expected), "{query} by {limit}");
        }
        expected.len()
    }
}

fn keep(_: &Value, _: &Value) -> Ordering {
    Ordering::Equal
}

/// Missing values last, equal ones by when they were made.
fn by(field: &'static str, descending: bool) -> impl Fn(&Value, &Value) -> Ordering {
    move |a, b| {
        let fold = |row: &Value| row[field].as_str().map(str::to_ascii_lowercase);
        let (a_value, b_value) = (fold(a), fold(b));
        let ordering = a_value.cmp(&b_value).then(text(a, "id").cmp(text(b, "id")));
        a_value.is_none().cmp(&b_value.is_none()).then(if descending { ordering.reverse() } else { ordering })
    }
}

over_http! {
    async fn every_order_goes_with_every_filter(server: Server) {
        let scene = Scene::set(&server).await;
        for field in ["hostname", "last_seen_at", "created_at"] {
            for (sign, descending) in [("", false), ("-", true)] {
                let sort = format!("sort={sign}{field}");
                assert_eq!(scene.finds(&sort, |_| true, by(field, descending)).await, COUNT);
                let windows = |row: &Value| row["os"]["name"].as_str().is_some_and(|name| name.contains("Windows"));
                scene.finds(&format!("{sort}&os=microsoft%20windows"), windows, by(field, descending)).await;
                scene.finds(&format!("{sort}&q=web"), |row| row["hostname"].as_str().is_some_and(|name| name.starts_with("web")), by(field, descending)).await;
            }
        }
        for sign in ["", "-"] {
            let (found, _) = walk(&server, &scene.acme, &format!("limit=7&sort={sign}updated_at")).await;
            let mut times: Vec<&str> = found.iter().map(|row| text(row, "updated_at")).collect();
            assert_eq!(times.len(), COUNT);
            if sign == "-" {
                times.reverse();
            }
            assert!(times.is_sorted());
        }
    }

    async fn devices_are_found_by_what_people_know_of_them(server: Server) {
        let scene = Scene::set(&server).await;
        let is = |field: &'static str, value: Value| move |row: &Value| row[field] == value;
        for row in scene.all.iter().filter(|row| row["hostname"].is_string()).take(4) {
            let name = text(row, "hostname");
            assert_eq!(scene.finds(&format!("hostname={}", name.to_uppercase()), is("hostname", json!(name)), keep).await, 1);
            let serial = text(row, "serial_number");
            assert_eq!(scene.finds(&format!("serial_number={}", serial.to_lowercase()), is("serial_number", json!(serial)), keep).await, 1);
        }
        assert_eq!(scene.finds("hostname=web", |_| false, keep).await, 0, "the whole name");
        let two = [text(&scene.all[1], "serial_number"), text(&scene.all[9], "serial_number")];
        assert_eq!(scene.finds(&format!("serial_number={}", two.join(",")), |row| two.contains(&text(row, "serial_number")), keep).await, 2);
        let reboot = scene.finds("needs_reboot=true", is("needs_reboot", json!(true)), keep).await;
        assert_eq!(reboot + scene.finds("needs_reboot=false", |row| row["needs_reboot"] != true, keep).await, COUNT);
        for status in ["active", "expired", "unknown"] {
            assert!(scene.finds(&format!("warranty={status}"), |row| row["warranty"]["status"] == status, keep).await > 0);
        }
        assert_eq!(scene.finds("possible_duplicate=true", |row| row["possible_duplicate_of"].is_string(), keep).await, 3);
        assert_eq!(scene.finds("possible_duplicate=false", |row| row["possible_duplicate_of"].is_null(), keep).await, COUNT - 3);
        let before = server.now().plus_ms(-5 * HOUR_MS).to_string();
        let seen = |row: &Value| row["last_seen_at"].as_str().is_some_and(|at| at < before.as_str());
        assert!(scene.finds(&format!("last_seen_before={before}"), seen, keep).await > 0);
        scene.finds(&format!("last_seen_before={before}&sort=last_seen_at"), seen, by("last_seen_at", false)).await;
        scene.finds("os=debian,microsoft%20windows%2011", |row| row["os"]["name"].as_str().is_some_and(|name| !name.contains("Server")), keep).await;
    }

    async fn what_is_not_known_is_refused_with_what_is(server: Server) {
        let acme = server.tenant("acme").await;
        let refused = async |query: &str| server.get(format!("{INVENTORY}?{query}")).cookie(&acme.admin).await;
        let unknown = refused("host=web01").await.problem("unknown_parameter");
        let detail = unknown["detail"].as_str().unwrap();
        for name in ["hostname", "serial_number", "last_seen_before", "possible_duplicate", "sort", "cursor"] {
            assert!(detail.contains(name), "{name}: {detail}");
        }
        for query in ["needs_reboot=yes", "warranty=soon", "possible_duplicate=1", "last_seen_before=yesterday", "sort=model", "sort=--hostname"] {
            refused(query).await.problem("invalid_parameter");
        }
        let since = server.now();
        refused(&format!("updated_since={since}&sort=hostname")).await.problem("invalid_parameter");
        refused("view=summary&needs_reboot=true").await.problem("invalid_parameter");
    }

    async fn a_row_is_shown_once_while_others_are_heard_of(server: Server) {
        let scene = Scene::set(&server).await;
        let (mut seen, mut target) = (Vec::new(), format!("{INVENTORY}?limit=5&sort=last_seen_at"));
        let newest = text(&scene.all[1], "id").to_owned();
        loop {
            let page = server.get(&target).cookie(&scene.acme.admin).await.ok(200);
            seen.extend(page["data"].as_array().unwrap().iter().map(|row| text(row, "id").to_owned()));
            hear(&server, &scene.acme, &newest, server.now()).await;
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            target = format!("{INVENTORY}?limit=5&sort=last_seen_at&cursor={cursor}");
        }
        for row in scene.all.iter().filter(|row| text(row, "id") != newest) {
            assert_eq!(seen.iter().filter(|id| *id == text(row, "id")).count(), 1);
        }
    }
}
