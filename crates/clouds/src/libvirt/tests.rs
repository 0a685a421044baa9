//! The whole life of machines on libvirt's test driver, which simulates a host within this process.

use std::sync::Arc;

use serde_json::json;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::storage_pool::StoragePool;
use virt::storage_vol::StorageVol;

use super::catalog::IMAGE_POOL;
use super::create::MACHINES_MAX;
use super::description::{DISK_POOL, name_domain};
use super::metadata::machine_uuid;
use super::xml::read_element;
use crate::test_support::{ScriptedTransport, failure, now, spec};
use crate::{
    AccessResult, CatalogKind, CloudAdapter, CloudCredentials, CloudEndpoints, CloudErrorKind, CloudKind, Machine,
    MachineSpec, MachineState, OPERATION_TAG, open_cloud,
};

const URI: &str = "test:///default";

fn open(owner: &str, uri: &str) -> Arc<dyn CloudAdapter> {
    let credentials = CloudCredentials::parse(CloudKind::Libvirt, &json!({})).unwrap().with_owner(owner);
    let endpoints = CloudEndpoints::parse([format!("libvirt={uri}").as_str()]).unwrap();
    open_cloud(credentials, &endpoints, ScriptedTransport::in_order([])).into()
}

fn order(operation_id: &str, image: &str) -> MachineSpec {
    let plain = spec("default", "2cpu-2048mb", image);
    MachineSpec { operation_id: operation_id.to_owned(), user_data: None, ssh_keys: Vec::new(), ..plain }
}

async fn list(cloud: &dyn CloudAdapter) -> Vec<Machine> {
    let page = cloud.list_machines(Some("default"), None, now()).await.unwrap();
    assert_eq!(page.next_cursor, None);
    page.machines
}

async fn find(cloud: &dyn CloudAdapter, operation_id: &str) -> Vec<Machine> {
    cloud.find_by_operation("default", operation_id, now()).await.unwrap()
}

/// Another connection of this process, as an operator's tool would have one.
fn connect() -> Connect {
    Connect::open(Some(URI)).unwrap()
}

#[tokio::test]
async fn a_host_is_verified_without_its_address_being_shown() {
    let verified = open("ten_verify", URI).verify(&["default".to_owned(), "moon".to_owned()], now()).await;
    let results: Vec<AccessResult> = verified.checks.iter().map(|check| check.result).collect();
    let allowed = AccessResult::Allowed;
    assert_eq!(results, [allowed, allowed, allowed, allowed, AccessResult::Denied], "{:?}", verified.checks);
    assert!(verified.identity.unwrap().principal.contains("TEST"));
    for uri in ["qemu+unix:///system?socket=/nonexistent/canary-sock", "nothing://canary-host/x"] {
        let verified = open("ten_verify", uri).verify(&["default".to_owned()], now()).await;
        let error = verified.failure.unwrap();
        assert_eq!((verified.identity, error.kind), (None, CloudErrorKind::Unavailable), "{error:?}");
        let told = error.detail.strip_prefix("libvirt cannot be reached or failed: the error is ");
        assert!(told.is_some_and(|told| !told.contains("canary")), "{error:?}");
        assert_eq!(verified.checks[0].result, AccessResult::Error);
    }
}

#[tokio::test]
async fn a_machine_lives_from_its_order_to_its_end() {
    let (cloud, order) = (open("ten_life", URI), order("op_life", "none"));
    assert_eq!(list(&*cloud).await, []);
    assert_eq!(find(&*cloud, "op_life").await, []);
    let made = cloud.create_machine(&order, now()).await.unwrap().machine;
    assert_eq!((made.state, made.raw_state.as_str()), (MachineState::Running, "running"));
    assert_eq!(made.external_id, machine_uuid("ten_life", "op_life"));
    assert_eq!((made.name.as_deref(), made.image.as_deref()), (Some("web-1"), Some("none")));
    assert_eq!((made.size.id.as_str(), made.size.memory_bytes), ("2cpu-2048mb", Some(2 << 30)));
    assert_eq!(made.tags["env"], "prod");
    assert_eq!(made.tags[OPERATION_TAG], "op_life");
    assert_eq!(list(&*cloud).await, std::slice::from_ref(&made));
    assert_eq!(find(&*cloud, "op_life").await, std::slice::from_ref(&made));

    // The same order again is the same machine, and nobody else sees it.
    let again = cloud.create_machine(&order, now()).await.unwrap().machine;
    assert_eq!((again, list(&*cloud).await.len()), (made.clone(), 1));
    let other = open("ten_other", URI);
    assert_eq!(list(&*other).await, []);
    assert_eq!(other.find_machine("default", &made.external_id, now()).await.unwrap(), None);

    let domain = Domain::lookup_by_uuid_string(&connect(), &made.external_id).unwrap();
    domain.suspend().unwrap();
    let found = cloud.find_machine("default", &made.external_id, now()).await.unwrap().unwrap();
    assert_eq!((found.state, found.raw_state.as_str()), (MachineState::Suspended, "paused"));
    domain.destroy().unwrap();
    let found = cloud.find_machine("default", &made.external_id, now()).await.unwrap().unwrap();
    assert_eq!((found.state, found.raw_state.as_str()), (MachineState::Stopped, "shut off"));
    domain.undefine().unwrap();
    assert_eq!(cloud.find_machine("default", &made.external_id, now()).await.unwrap(), None);
    assert_eq!((list(&*cloud).await, find(&*cloud, "op_life").await), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn an_order_that_broke_off_before_the_start_goes_on() {
    let (cloud, order) = (open("ten_half", URI), order("op_half", "none"));
    let made = cloud.create_machine(&order, now()).await.unwrap().machine;
    let domain = Domain::lookup_by_uuid_string(&connect(), &made.external_id).unwrap();
    let description = domain.get_xml_desc(0).unwrap();
    domain.destroy().unwrap();
    domain.undefine().unwrap();
    Domain::define_xml(&connect(), &description).unwrap();
    assert_eq!(find(&*cloud, "op_half").await, [], "it is not made yet");
    let again = cloud.create_machine(&order, now()).await.unwrap().machine;
    assert_eq!((again.external_id, again.state), (made.external_id, MachineState::Running));
    assert_eq!(list(&*cloud).await.len(), 1);
}

#[tokio::test]
async fn the_operator_gives_a_domain_to_an_owner() {
    let cloud = open("ten_given", URI);
    cloud.verify(&[], now()).await;
    let name = "given-by-hand";
    let owner = "<x:machine xmlns:x='urn:tenant-control:machine:1' owner='ten_given' operation='op_of_another'/>";
    let description = format!(
        "<domain type='test'><name>{name}</name><memory unit='MiB'>512</memory><metadata>{owner}</metadata>\
         <os><type>hvm</type></os></domain>"
    );
    Domain::define_xml(&connect(), &description).unwrap();
    let machines = list(&*cloud).await;
    assert_eq!(machines.len(), 1, "{machines:?}");
    assert_eq!((machines[0].name.as_deref(), machines[0].size.id.as_str()), (Some(name), "1cpu-512mb"));
    assert_eq!(machines[0].operation_id, None, "its id is not the one of that order");
}

/// A domain that an operator has given to an owner.
fn define_given(name: &str, owner: &str) {
    let given = format!("<x:machine xmlns:x='urn:tenant-control:machine:1' owner='{owner}'/>");
    let description = format!(
        "<domain type='test'><name>{name}</name><memory unit='MiB'>1</memory><metadata>{given}</metadata>\
         <os><type>hvm</type></os></domain>"
    );
    Domain::define_xml(&connect(), &description).unwrap();
}

#[tokio::test]
async fn an_owner_has_so_many_machines_and_no_more() {
    let cloud = open("ten_many", URI);
    cloud.verify(&[], now()).await;
    for number in 1..MACHINES_MAX {
        define_given(&format!("many-{number}"), "ten_many");
    }
    let (last, more) = (order("op_last", "none"), order("op_more", "none"));
    cloud.create_machine(&last, now()).await.unwrap();
    let refused = failure(cloud.create_machine(&more, now()).await);
    assert_eq!(refused.kind, CloudErrorKind::Quota);
    assert!(refused.detail.contains("You have 50 machines"), "{}", refused.detail);
    // A repeated order makes none, and others have their own.
    cloud.create_machine(&last, now()).await.unwrap();
    open("ten_few", URI).create_machine(&more, now()).await.unwrap();
}

#[tokio::test]
async fn what_an_order_says_is_text_and_gives_no_machine_to_others() {
    let (cloud, mut order) = (open("ten_hostile", URI), order("op_hostile", "none"));
    let devices = "</tc:machine></metadata><devices><disk type='file'><source file='/etc/shadow'/></disk></devices>";
    for (key, value) in [
        ("owner", "<tc:machine owner='ten_victim'/>"),
        ("\" owner=\"ten_victim\" x=\"", "\"/><tc:machine owner=\"ten_victim\"/>"),
        ("<![CDATA[", "]]>&owner;<!--"),
        ("devices", devices),
    ] {
        order.tags.insert(key.to_owned(), value.to_owned());
    }
    let made = cloud.create_machine(&order, now()).await.unwrap().machine;
    let mut tags = made.tags.clone();
    tags.remove(OPERATION_TAG);
    assert_eq!(tags, order.tags);
    let victim = open("ten_victim", URI);
    assert_eq!((list(&*victim).await, find(&*victim, "op_hostile").await), (Vec::new(), Vec::new()));
    assert_eq!(victim.find_machine("default", &made.external_id, now()).await.unwrap(), None);
    let domain = Domain::lookup_by_uuid_string(&connect(), &made.external_id).unwrap();
    let root = read_element(&domain.get_xml_desc(0).unwrap()).unwrap();
    assert_eq!((root.list("metadata").count(), root.list("devices").count()), (1, 1));
    assert_eq!(root.find(&["metadata"]).unwrap().children.len(), 1);
    assert_eq!(root.find(&["devices", "disk"]), None);
}

#[tokio::test]
async fn a_machine_of_another_with_the_id_of_an_order_is_not_touched() {
    let cloud = open("ten_clash", URI);
    cloud.verify(&[], now()).await;
    let uuid = machine_uuid("ten_clash", "op_clash");
    let description = format!(
        "<domain type='test'><name>of-another</name><uuid>{uuid}</uuid><memory unit='MiB'>1</memory><os><type>hvm</type></os></domain>"
    );
    let domain = Domain::define_xml(&connect(), &description).unwrap();
    let refused = failure(cloud.create_machine(&order("op_clash", "none"), now()).await);
    assert_eq!(refused.kind, CloudErrorKind::Conflict, "{refused:?}");
    assert!(!domain.is_active().unwrap(), "it was not started");
    assert_eq!(find(&*cloud, "op_clash").await, []);
}

/// Names of domains are unique on a host, and the error says what the other one is.
#[tokio::test]
async fn what_libvirt_says_is_not_shown() {
    let cloud = open("ten_words", URI);
    cloud.verify(&[], now()).await;
    let name = name_domain("web-1", &machine_uuid("ten_words", "op_words"));
    define_given(&name, "ten_another");
    let other = Domain::lookup_by_name(&connect(), &name).unwrap().get_uuid_string().unwrap();
    let failed = failure(cloud.create_machine(&order("op_words", "none"), now()).await);
    assert!(failed.detail.ends_with("and the log of this server has the reason."), "{failed:?}");
    assert!(!failed.detail.contains(&other) && !failed.detail.contains(&name), "{failed:?}");
}

#[tokio::test]
async fn images_are_volumes_of_one_pool_and_are_copied() {
    let cloud = open("ten_disk", URI);
    let images = || async { cloud.list_catalog(CatalogKind::Images, None, now()).await.unwrap() };
    let ids: Vec<String> = images().await.into_iter().map(|image| image.id).collect();
    assert_eq!(ids, ["none"]);
    let refused = failure(cloud.create_machine(&order("op_disk", "debian"), now()).await);
    assert_eq!(refused.kind, CloudErrorKind::Invalid);
    assert!(refused.detail.contains("no pool tenant-control-images"), "{}", refused.detail);

    let connection = connect();
    for pool in [IMAGE_POOL, DISK_POOL] {
        let description = format!("<pool type='dir'><name>{pool}</name><target><path>/{pool}</path></target></pool>");
        let pool = StoragePool::define_xml(&connection, &description, 0).unwrap();
        pool.create(0).unwrap();
    }
    // Unlike real ones, the test driver looks for the source of a copy in the pool of the copy, by its name.
    for pool in [IMAGE_POOL, DISK_POOL] {
        let pool = StoragePool::lookup_by_name(&connection, pool).unwrap();
        let volume = "<volume><name>debian</name><capacity>1048576</capacity></volume>";
        StorageVol::create_xml(&pool, volume, 0).unwrap();
    }
    let ids: Vec<String> = images().await.into_iter().map(|image| image.id).collect();
    assert_eq!(ids, ["none", "debian"]);
    let unknown = failure(cloud.create_machine(&order("op_disk", "ubuntu"), now()).await);
    assert!(unknown.detail.contains("There is no image \"ubuntu\""), "{}", unknown.detail);
    let made = cloud.create_machine(&order("op_disk", "debian"), now()).await.unwrap().machine;
    assert_eq!(made.image.as_deref(), Some("debian"));
    let disks = StoragePool::lookup_by_name(&connection, DISK_POOL).unwrap().list_volumes().unwrap();
    assert!(disks.len() == 2 && disks.contains(&made.external_id), "{disks:?}");
}

#[tokio::test]
async fn what_a_host_has_not_is_refused() {
    let cloud = open("ten_refused", URI);
    let sizes = cloud.list_catalog(CatalogKind::Sizes, Some("default"), now()).await.unwrap();
    assert_eq!((sizes[2].id.as_str(), sizes[2].vcpus), ("2cpu-2048mb", Some(2)));
    for refused in [
        failure(cloud.list_machines(None, None, now()).await),
        failure(cloud.list_machines(Some("moon"), None, now()).await),
        failure(cloud.find_machine("default", "canary?", now()).await),
        failure(cloud.find_by_operation("default", "*", now()).await),
        failure(cloud.create_machine(&spec("default", "2cpu-2048mb", "none"), now()).await),
    ] {
        assert_eq!(refused.kind, CloudErrorKind::Invalid, "{refused:?}");
    }
}
