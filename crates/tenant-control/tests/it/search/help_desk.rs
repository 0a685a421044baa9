//! What people at a help desk type, and what must come first: a table to read and to extend. To add a case is to add a line to
//! `help_desk/queries.txt`; what there is to find stands in `help_desk/company.toml`.

use std::collections::HashMap;

use kernel::base::StringEnum as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tenant_control::features::devices::{DeviceStatus, FullDevice, Nic, Platform, Type};

use super::{count_software, desk, device, hits, organization, text, ticket, user, workflow};
use crate::asset_inventory::software;
use crate::support::search::{Indexed, asking};
use crate::support::workflows::{approval, manual};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::generous;

const COMPANY: &str = include_str!("help_desk/company.toml");
const QUERIES: &str = include_str!("help_desk/queries.txt");
/// The table is worth something only if it has many lines.
const QUERIES_MIN: usize = 150;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Company {
    organization: Vec<Customer>,
    user: Vec<Person>,
    device: Vec<Machine>,
    ticket: Vec<Case>,
    workflow: Vec<Automation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Customer {
    name: String,
    slug: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Person {
    name: String,
    email: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    hostname: String,
    display_name: Option<String>,
    organization: Option<String>,
    platform: Option<String>,
    r#type: Option<String>,
    status: Option<String>,
    os: Option<String>,
    manufacturer: Option<String>,
    model: Option<String>,
    serial: Option<String>,
    asset_tag: Option<String>,
    uuid: Option<String>,
    ip: Option<String>,
    mac: Option<String>,
    last_logged_user: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    /// The hardware address and the IP address of each further interface.
    #[serde(default)]
    nics: Vec<(String, String)>,
    #[serde(default)]
    software: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    subject: String,
    description: Option<String>,
    organization: Option<String>,
    external_id: Option<String>,
    assignee: Option<String>,
    /// Name and address.
    requester: Option<(String, String)>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    states: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Automation {
    name: String,
}

impl Machine {
    /// What the device is known by, beside its host name and its customer.
    fn describe(self, full: &mut FullDevice) {
        let device = &mut full.device;
        device.display_name = self.display_name;
        (device.os.name, device.manufacturer, device.model) = (self.os, self.manufacturer, self.model);
        (device.serial_number, device.asset_tag, device.uuid) = (self.serial, self.asset_tag, self.uuid);
        (device.primary_ip, device.primary_mac) = (self.ip, self.mac);
        (device.last_logged_user, device.tags) = (self.last_logged_user, self.tags);
        if let Some(platform) = self.platform {
            device.platform = Platform::parse(&platform).expect("a platform");
        }
        if let Some(kind) = self.r#type {
            device.r#type = Type::parse(&kind).expect("a type");
        }
        if let Some(status) = self.status {
            device.status = DeviceStatus::parse(&status).expect("a status");
        }
        let nic = |(mac, ip)| Nic { mac: Some(mac), ips: vec![ip], ..Nic::default() };
        full.parts.nics = self.nics.into_iter().map(nic).collect();
        full.parts.software = self.software.iter().map(|name| software(name, "1")).collect();
    }
}

/// Makes the company.
async fn found_company(server: &Server) -> Tenancy {
    let (tenancy, _) = desk(server, "hub").await;
    let company: Company = toml::from_str(COMPANY).expect("the company can be read");
    let (mut customers, mut people) = (HashMap::new(), HashMap::new());
    for one in company.organization {
        let made = organization(server, &tenancy, &one.name, &one.slug).await;
        customers.insert(one.slug, made.id);
    }
    for one in company.user {
        let made = user(server, &tenancy, &one.name, &one.email).await;
        people.insert(one.email, made.id);
    }
    for one in company.device {
        let (hostname, customer) = (one.hostname.clone(), one.organization.as_ref().map(|slug| customers[slug]));
        device(server, &tenancy, &hostname, |full| {
            full.device.organization_id = customer;
            one.describe(full);
        })
        .await;
    }
    count_software(server).await;
    for one in company.ticket {
        let mut fields = json!({"subject": one.subject, "description": one.description, "tags": one.tags});
        let said = [
            ("external_id", one.external_id.map(Value::from)),
            ("organization_id", one.organization.map(|slug| customers[&slug].to_string().into())),
            ("assignee_id", one.assignee.map(|email| people[&email].to_string().into())),
            ("requester", one.requester.map(|(name, email)| json!({"name": name, "email": email}))),
        ];
        for (field, value) in said {
            fields[field] = value.unwrap_or_default();
        }
        let states: Vec<&str> = one.states.iter().map(String::as_str).collect();
        ticket(server, &tenancy, &fields, &states).await;
    }
    for one in company.workflow {
        workflow(server, &tenancy, &one.name, manual([approval("ask")])).await;
    }
    tenancy
}

/// A line of the table.
struct Line<'a> {
    q: &'a str,
    /// The kind and title of each.
    first: Vec<&'a str>,
    is_any_order: bool,
    is_all: bool,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Line<'a> {
        let (q, expected) = line.rsplit_once("  =>  ").unwrap_or_else(|| panic!("an arrow in {line}"));
        let mut read = Line { q: q.trim_end(), first: Vec::new(), is_any_order: false, is_all: false };
        for part in expected.split(" ; ").map(str::trim) {
            match part {
                "(any order)" => read.is_any_order = true,
                "only" | "nothing" => read.is_all = true,
                hit => read.first.push(hit),
            }
        }
        assert!(read.is_all || !read.first.is_empty(), "something is expected in {line}");
        read
    }

    fn is_met(&self, found: &[String]) -> bool {
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let Some(first) = found.get(..self.first.len()) else { return false };
        let is_first =
            if self.is_any_order { self.first.iter().all(|hit| first.contains(hit)) } else { self.first == first };
        is_first && (!self.is_all || found.len() == first.len())
    }
}

/// The lines of the table, without what explains them.
fn lines() -> Vec<Line<'static>> {
    let is_query = |line: &&str| !line.trim().is_empty() && !line.starts_with("# ") && *line != "#";
    QUERIES.lines().filter(is_query).map(Line::parse).collect()
}

over_http! {
    async fn what_a_help_desk_types_finds_what_is_meant_first(setup: Setup) {
        let server = generous(setup).await;
        let hub = found_company(&server).await;
        let indexed = Indexed::of(&server).await;
        let lines = lines();
        assert!(lines.len() >= QUERIES_MIN, "{} queries", lines.len());
        let mut wrong = Vec::new();
        for line in &lines {
            indexed.follow().await;
            let answer = server.get(asking(line.q)).cookie(&hub.admin).await;
            if answer.status != 200 {
                wrong.push(format!("{}\n    is refused: {}", line.q, answer.json()));
                continue;
            }
            let found = answer.json();
            let show = |hit: &Value| format!("{} {}", text(hit, "type"), text(hit, "title"));
            let shown: Vec<String> = hits(&found).iter().map(show).collect();
            if !line.is_met(&shown) {
                let shown = &shown[..shown.len().min(line.first.len() + 3)];
                wrong.push(format!("{}\n    must find first {:?}\n    and has found   {shown:?}", line.q, line.first));
            }
        }
        assert!(wrong.is_empty(), "{} of {} queries:\n{}", wrong.len(), lines.len(), wrong.join("\n"));
    }
}
