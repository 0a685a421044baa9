//! `/api/search`
//!
//! What is asked and how it is answered (`asked`, `shown`), by whom (`seen`), what must come first (`relevance`, `named`, and
//! what people type all day, `help_desk`), what nobody would type (`fuzz`), and that the index is like the records (`kept`,
//! `together`). What becomes of it in processes that are killed stands in `faults_search.rs`. Here is what there is to find: a
//! service desk with three customers.

mod asked;
mod feed;
mod fuzz;
mod guarded;
mod help_desk;
mod kept;
mod named;
mod relevance;
mod seen;
mod shown;
mod together;

use std::collections::BTreeSet;

use kernel::auth::{Role, create_tenant, open_as_operator};
use kernel::base::SECOND_MS;
use serde_json::{Value, json};
use tenant_control::features::devices::{DeviceStatus, FullDevice, Nic, Platform, Type, software as installed};
use tenant_control::features::organizations::{self, Organization};
use tenant_control::features::users::{NewUser, User, create_user};

use crate::asset_inventory::{add, software, with};
use crate::support::people::SESSION;
use crate::support::workflows::{approval, manual, on_event};
use crate::support::{Server, Tenancy};
use crate::tickets::{changed, id_of, make};

#[expect(clippy::unnecessary_wraps, reason = "most of what a device has may be missing")]
fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn text<'a>(hit: &'a Value, field: &str) -> &'a str {
    hit[field].as_str().unwrap_or_else(|| panic!("{field} in {hit}"))
}

fn hits(found: &Value) -> &[Value] {
    found["data"].as_array().unwrap_or_else(|| panic!("data in {found}"))
}

fn ids(found: &Value) -> Vec<String> {
    hits(found).iter().map(|hit| text(hit, "id").to_owned()).collect()
}

/// How many there are in all, of whichever type.
fn total(found: &Value) -> u64 {
    let counts = found["counts"].as_object().unwrap_or_else(|| panic!("counts in {found}"));
    counts.values().map(|count| count.as_u64().expect("a number")).sum()
}

/// Software comes into the figures after the device.
async fn count_software(server: &Server) {
    installed::store::index_tenants(&server.app).await.expect("software is counted");
}

async fn organization(server: &Server, tenancy: &Tenancy, name: &str, slug: &str) -> Organization {
    server.advance(SECOND_MS);
    let db = open_as_operator(&server.app.store, &tenancy.tenant);
    organizations::create_named_organization(&db, name, slug).await.expect("an organization")
}

async fn user(server: &Server, tenancy: &Tenancy, name: &str, email: &str) -> User {
    server.advance(SECOND_MS);
    let new = NewUser { email: email.to_owned(), name: some(name), role: Role::Technician, platform_operator: false };
    create_user(&server.app.store, &tenancy.tenant, new).await.expect("a user")
}

async fn device(server: &Server, tenancy: &Tenancy, hostname: &str, say: impl FnOnce(&mut FullDevice)) -> String {
    device_and_software(server, tenancy, hostname, say).await.pop().expect("its own id is the last")
}

/// The ids of what is installed on a new device, which are the names in small letters, and then its own.
async fn device_and_software(
    server: &Server,
    tenancy: &Tenancy,
    hostname: &str,
    say: impl FnOnce(&mut FullDevice),
) -> Vec<String> {
    server.advance(SECOND_MS);
    let full = with(hostname, |full| {
        full.device.first_seen_at = Some(server.now());
        say(full);
    });
    let mut ids: Vec<String> = full.parts.software.iter().map(|one| one.name.to_lowercase()).collect();
    ids.push(add(server, tenancy, full).await);
    ids
}

/// A new ticket that goes through these states.
async fn ticket(server: &Server, tenancy: &Tenancy, fields: &Value, states: &[&str]) -> Value {
    server.advance(SECOND_MS);
    let mut made = make(server, tenancy, fields).await;
    for status in states {
        made = changed(server, tenancy, &made, &json!({"status": status})).await;
    }
    made
}

/// One of which nothing is known but the subject.
async fn called(server: &Server, tenancy: &Tenancy, subject: &str) -> Value {
    ticket(server, tenancy, &json!({"subject": subject}), &[]).await
}

async fn workflow(server: &Server, tenancy: &Tenancy, name: &str, mut definition: Value) -> Value {
    server.advance(SECOND_MS);
    definition["name"] = json!(name);
    server.workflow(tenancy, &definition).await
}

/// Who the things of a scene belong to.
struct Customers {
    zurich: Organization,
    muller: Organization,
    northwind: Organization,
    anna: User,
}

/// A tenant with what there is to find, and the ids of all of it, as they were told when it was made.
struct Scene {
    tenancy: Tenancy,
    owned: BTreeSet<String>,
}

async fn scene(server: &Server, slug: &str) -> Tenancy {
    make_scene(server, slug).await.tenancy
}

/// Each thing is a second younger than the one before: customers, people, devices with their software, tickets, workflows.
async fn make_scene(server: &Server, slug: &str) -> Scene {
    let (tenancy, admin) = desk(server, slug).await;
    let customers = Customers {
        zurich: organization(server, &tenancy, "Zürich Logistics AG", "zurich-logistics").await,
        muller: organization(server, &tenancy, "Bäckerei Müller", "muller").await,
        northwind: organization(server, &tenancy, "Northwind Traders", "northwind").await,
        anna: user(server, &tenancy, "Anna Keller", "anna.keller@northwind.test").await,
    };
    let soren = user(server, &tenancy, "Søren Ørsted", "soren@hub.test").await;
    let bob = user(server, &tenancy, "Bob Stone", "bob.stone@muller.test").await;
    let mut owned = BTreeSet::from([admin]);
    owned.extend([&customers.zurich, &customers.muller, &customers.northwind].map(|one| one.id.to_string()));
    owned.extend([&customers.anna, &soren, &bob].map(|one| one.id.to_string()));
    owned.extend(servers(server, &tenancy, &customers).await);
    owned.extend(others(server, &tenancy).await);
    count_software(server).await;
    let mut records = incidents(server, &tenancy, &customers).await;
    records.extend(requests(server, &tenancy, &customers).await);
    records.extend(workflows(server, &tenancy).await);
    owned.extend(records.iter().map(|record| id_of(record).to_owned()));
    Scene { tenancy, owned }
}

/// A tenant and the id of its admin, who has an address that no query begins like by chance.
async fn desk(server: &Server, slug: &str) -> (Tenancy, String) {
    let tenant = create_tenant(&server.app.store, &slug.to_uppercase(), slug).await.expect("a tenant");
    let (email, name) = (format!("chief@{slug}.test"), some("The admin"));
    let admin = server.session(&tenant, NewUser { email, name, role: Role::Admin, platform_operator: false }).await;
    let session = server.get(SESSION).cookie(&admin).await.ok(200);
    (Tenancy { tenant, admin }, text(&session["actor"], "id").to_owned())
}

async fn servers(server: &Server, tenancy: &Tenancy, customers: &Customers) -> Vec<String> {
    let northwind = customers.northwind.id;
    let machine = |full: &mut FullDevice, serial: &str, ip: &str, mac: &str| {
        full.device.organization_id = Some(northwind);
        (full.device.os.name, full.device.os.version) = (some("Debian GNU/Linux 12 (bookworm)"), some("12.11"));
        (full.device.manufacturer, full.device.model) = (some("Dell Inc."), some("PowerEdge R640"));
        full.device.serial_number = some(serial);
        (full.device.primary_ip, full.device.primary_mac) = (some(ip), some(mac));
    };
    let web = |full: &mut FullDevice| {
        machine(full, "7XK2P13", "192.0.2.10", "02:fc:00:00:00:01");
        full.device.tags = vec!["Rack 7".to_owned()];
        full.parts.software = vec![software("nginx", "1.24"), software("OpenSSL", "3.0")];
    };
    let mut ids = device_and_software(server, tenancy, "web01.northwind.test", web).await;
    let db = |full: &mut FullDevice| {
        machine(full, "7XK2P14", "192.0.2.11", "02:fc:00:00:00:02");
        full.device.status = DeviceStatus::Offline;
        let ips = vec!["10.20.30.40".to_owned(), "fe80::2a".to_owned()];
        let second = Nic { name: some("eno2"), mac: some("02:fc:00:00:00:a2"), r#type: None, status: None, ips };
        full.parts.nics = vec![second];
        full.parts.software = vec![software("OpenSSL", "3.0"), software("PostgreSQL", "17")];
    };
    ids.extend(device_and_software(server, tenancy, "db01.northwind.test", db).await);
    ids
}

async fn others(server: &Server, tenancy: &Tenancy) -> Vec<String> {
    let laptop = |full: &mut FullDevice| {
        full.device.display_name = some("Anna's laptop");
        (full.device.r#type, full.device.platform) = (Type::Laptop, Platform::Windows);
        (full.device.os.name, full.device.os.version) = (some("Microsoft Windows 11 Pro"), some("23H2"));
        (full.device.manufacturer, full.device.model) = (some("Lenovo"), some("ThinkPad X1"));
        (full.device.serial_number, full.device.asset_tag) = (some("PF3ABC9Z"), some("A-1007"));
        (full.device.primary_ip, full.device.primary_mac) = (some("10.0.0.5"), some("02:fc:00:00:00:03"));
        full.device.last_logged_user = some("akeller");
        let names = ["Mozilla Firefox", "Toner Monitor", "Visual Studio Code"];
        full.parts.software = names.map(|name| software(name, "1.99")).into();
    };
    let mut ids = device_and_software(server, tenancy, "LT-ANNA", laptop).await;
    let printer = |full: &mut FullDevice| {
        (full.device.r#type, full.device.platform) = (Type::Printer, Platform::Other);
        (full.device.manufacturer, full.device.model) = (some("HP"), some("LaserJet M404"));
        (full.device.primary_ip, full.device.primary_mac) = (some("10.0.0.50"), some("3c:52:82:aa:bb:cc"));
    };
    ids.extend(device_and_software(server, tenancy, "printer-floor3", printer).await);
    let silent = |full: &mut FullDevice| {
        (full.device.r#type, full.device.platform) = (Type::Printer, Platform::Other);
        full.device.status = DeviceStatus::Stale;
    };
    ids.extend(device_and_software(server, tenancy, "old-printer", silent).await);
    ids
}

/// The tickets 1 to 7.
async fn incidents(server: &Server, tenancy: &Tenancy, customers: &Customers) -> Vec<Value> {
    let jammed = json!({
        "subject": "Printer on floor 3 is jammed", "description": "Paper tray two.", "priority": "high",
        "organization_id": customers.muller.id.to_string(), "tags": ["printer"],
        "requester": {"name": "Bob Stone", "email": "bob.stone@muller.test"},
    });
    let laptop = json!({
        "subject": "Laptop does not start", "description": "The printer works, the screen stays black.",
        "assignee_id": customers.anna.id.to_string(),
    });
    let vpn = json!({"subject": "VPN drops every hour", "description": "Since version 42 of the client."});
    let blue = json!({"subject": "Blue screen after update", "description": "Screen went blue; stop code 0x7E."});
    let zurich = customers.zurich.id.to_string();
    let disk = json!({"subject": "Größere Festplatte für Søren", "organization_id": zurich});
    vec![
        ticket(server, tenancy, &jammed, &["open"]).await,
        ticket(server, tenancy, &json!({"subject": "Printer toner is low"}), &["resolved"]).await,
        ticket(server, tenancy, &laptop, &[]).await,
        ticket(server, tenancy, &vpn, &[]).await,
        ticket(server, tenancy, &blue, &[]).await,
        called(server, tenancy, "Screen has a blue tint").await,
        ticket(server, tenancy, &disk, &[]).await,
    ]
}

/// The tickets 8 to 15.
async fn requests(server: &Server, tenancy: &Tenancy, customers: &Customers) -> Vec<Value> {
    let certificate = json!({
        "subject": "Renew the certificate", "description": "For web01.northwind.test, before Friday.",
        "external_id": "JIRA-77", "organization_id": customers.northwind.id.to_string(),
    });
    let display = json!({"subject": "Display is dark", "description": "The cable of 02:fc:00:00:00:a2 is loose."});
    vec![
        ticket(server, tenancy, &certificate, &[]).await,
        called(server, tenancy, "東京オフィスのサーバー").await,
        ticket(server, tenancy, &json!({"subject": "Password reset for Anna"}), &["resolved", "closed"]).await,
        ticket(server, tenancy, &json!({"subject": "Password expired on the VPN gateway"}), &["open"]).await,
        called(server, tenancy, "Mail is late").await,
        called(server, tenancy, "Mailbox is full").await,
        called(server, tenancy, "Main office has no power").await,
        ticket(server, tenancy, &display, &[]).await,
    ]
}

/// One that waits for tickets, and one that is disabled.
async fn workflows(server: &Server, tenancy: &Tenancy) -> Vec<Value> {
    let escalation = on_event(&["ticket.created"], [approval("ask")]);
    let mut report = manual([approval("ask")]);
    report["enabled"] = json!(false);
    vec![
        workflow(server, tenancy, "Escalate critical tickets", escalation).await,
        workflow(server, tenancy, "Nightly backup report", report).await,
    ]
}
