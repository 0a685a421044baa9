//! `/api/rmm/reports/asset-inventory`

pub mod bulk;
mod chosen;
mod csv;
mod files;
mod filters;
mod follow;
mod installed;
mod large;
mod model;
mod one;
mod pages;
mod refused;
mod sorts;
mod summary;
mod sync;
mod words;

use kernel::base::{Actor, Timestamp};
use kernel::store::Db;
use serde_json::Value;
use tenant_control::features::devices::{
    self, ChangeOrigin, DeviceId, DeviceStatus, FullDevice, Platform, ReportRowUpdate, Software, Type,
};
use tenant_control::features::inventory::blank_device;

use crate::support::{Server, Tenancy};

pub const INVENTORY: &str = "/api/rmm/reports/asset-inventory";

/// Ids that are well formed and name nothing.
const NOTHING: &str = "dev_01jd8z6v2mfkpb7h3q9xw5t4ra";
const NOWHERE: &str = "org_01jd8z6v2mfkpb7h3q9xw5t4ra";

/// A device of which nothing is known but what it is called.
pub fn named(hostname: &str) -> FullDevice {
    let mut full = blank_device(Timestamp::from_millis(0));
    full.device.hostname = Some(hostname.to_owned());
    (full.device.r#type, full.device.platform, full.device.status) =
        (Type::Server, Platform::Linux, DeviceStatus::Online);
    full
}

/// The same, with something said of it.
pub fn with(hostname: &str, say: impl FnOnce(&mut FullDevice)) -> FullDevice {
    let mut full = named(hostname);
    say(&mut full);
    full
}

pub fn software(name: &str, version: &str) -> Software {
    Software {
        name: name.to_owned(),
        version: Some(version.to_owned()).filter(|version| !version.is_empty()),
        publisher: None,
        arch: None,
        source: None,
        installed_at: None,
    }
}

pub fn database(server: &Server, tenancy: &Tenancy) -> Db {
    server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system())
}

/// Makes these devices, in one write and in this order. Their ids.
pub async fn add_all(server: &Server, tenancy: &Tenancy, all: Vec<FullDevice>) -> Vec<String> {
    let db = database(server, tenancy);
    let made = db.write(async move |tx| {
        let mut ids = Vec::new();
        for full in all {
            let kept =
                devices::create_device(tx, full, ReportRowUpdate::CheckAt(None), ChangeOrigin::Automatic).await?;
            ids.push(kept.full.device.id.to_string());
        }
        Ok(ids)
    });
    made.await.expect("devices are made")
}

pub async fn add(server: &Server, tenancy: &Tenancy, full: FullDevice) -> String {
    add_all(server, tenancy, vec![full]).await.remove(0)
}

/// Changes a device, as somebody may.
pub async fn change(
    server: &Server,
    tenancy: &Tenancy,
    id: &str,
    change: impl FnOnce(&mut FullDevice) + Send + 'static,
) {
    edit(database(server, tenancy), id.parse().expect("an id"), change).await;
}

async fn edit(db: Db, id: DeviceId, change: impl FnOnce(&mut FullDevice) + Send + 'static) {
    let changed = db.write(async move |tx| {
        let change = |full: &mut FullDevice| {
            change(full);
            Ok(())
        };
        devices::edit_device(tx, id, change).await
    });
    changed.await.expect("the device is changed");
}

pub async fn remove(server: &Server, tenancy: &Tenancy, id: &str) {
    delete(database(server, tenancy), id.parse().expect("an id")).await;
}

async fn delete(db: Db, id: DeviceId) {
    let deleted = db.write(async move |tx| devices::delete_device(tx, id, ChangeOrigin::Deliberate).await);
    deleted.await.expect("the device is deleted");
}

/// Notes that a device was heard of, which is no change of it.
pub async fn hear(server: &Server, tenancy: &Tenancy, id: &str, at: Timestamp) {
    let id: DeviceId = id.parse().expect("an id");
    let db = database(server, tenancy);
    let heard = db.write(async move |tx| {
        let kept = devices::find_device(tx, id).await?.expect("the device");
        let mut after = kept.full.clone();
        after.device.last_seen_at = Some(at);
        let noted = ReportRowUpdate::Report { digest: None, check_at: None };
        devices::save_device(tx, &kept, after, noted, ChangeOrigin::Automatic).await
    });
    heard.await.expect("it is noted");
}

/// Where a device is.
pub fn one(id: &str) -> String {
    format!("{INVENTORY}?id={id}")
}

pub async fn read(server: &Server, tenancy: &Tenancy, id: &str) -> Value {
    server.get(one(id)).cookie(&tenancy.admin).await.ok(200)
}

/// One page of a query.
pub async fn list(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<Value> {
    let answer = server.get(format!("{INVENTORY}?{query}")).cookie(&tenancy.admin).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.json());
    answer.json()["data"].as_array().expect("data").clone()
}

/// Every row of a query, and how many each page had.
pub async fn walk(server: &Server, tenancy: &Tenancy, query: &str) -> (Vec<Value>, Vec<usize>) {
    let (mut rows, mut pages, mut more) = (Vec::new(), Vec::new(), String::new());
    loop {
        let answer = server.get(format!("{INVENTORY}?{query}{more}")).cookie(&tenancy.admin).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.json());
        let page = answer.json();
        let data = page["data"].as_array().expect("data");
        rows.extend(data.iter().cloned());
        pages.push(data.len());
        assert_eq!(page["has_more"].as_bool().expect("a word"), page["next_cursor"].is_string(), "{query}");
        let Some(cursor) = page["next_cursor"].as_str() else { return (rows, pages) };
        more = format!("&cursor={cursor}");
    }
}

pub fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("{field} in {row}"))
}

/// What the devices of a query are called, in its order.
pub async fn names(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<String> {
    list(server, tenancy, query).await.iter().map(|row| text(row, "hostname").to_owned()).collect()
}
