//! The row of each kind as it is read for the index, and its document.

use std::net::IpAddr;

use kernel::base::{TenantId, Timestamp, Word};
use serde_json::{Map, Value};

use super::{Document, Kind, cut, said};
use fleet::devices::{self, Nic};
use search_language::Field;
use search_language::fold::{compact_mac, fold_value};
use tickets::{self, Priority};

/// The most hardware addresses, and IP addresses, of one device: a host of many containers has hundreds, which nobody
/// searches for.
const ADDRESSES_MAX: usize = 32;
/// How much of a ticket's description is indexed. The rest is mostly quoted mail and logs.
pub const DESCRIPTION_BYTES_MAX: usize = 8 << 10;
/// How many custom fields are indexed, of the fifty that a ticket may have.
const CUSTOM_FIELDS_MAX: usize = 16;

/// The hardware address of an interface that is no card.
const NO_MAC: &str = "000000000000";

pub struct DeviceRow {
    pub tenant: TenantId,
    pub id: String,
    pub hostname: Option<String>,
    pub display_name: Option<String>,
    pub r#type: String,
    pub platform: String,
    pub os_name: Option<String>,
    pub os_version: Option<String>,
    pub status: String,
    pub organization_id: Option<String>,
    pub manufacturer: Option<String>,
    pub model: Option<String>,
    pub serial_number: Option<String>,
    pub asset_tag: Option<String>,
    pub primary_ip: Option<String>,
    pub primary_mac: Option<String>,
    pub last_logged_user: Option<String>,
    pub tags: Vec<String>,
    pub nics: Vec<Nic>,
    pub is_deleted: bool,
    pub updated_at: Timestamp,
}

impl DeviceRow {
    pub fn document(&self) -> Document {
        let mut document = Document::new(Kind::Device, self.tenant, &self.id, self.updated_at);
        document.organization_id.clone_from(&self.organization_id);
        let names = [&self.display_name, &self.hostname, &self.serial_number];
        let title = names.into_iter().find_map(|name| said(name.as_deref()));
        document.show(title.unwrap_or(&self.id), &self.subtitle());
        document.is_live = devices::Status::parse(&self.status) == Some(devices::Status::Online);
        // The domain says little about one machine, so only the host is a name.
        let host = self.hostname.as_deref().map(|name| name.split_once('.').map_or(name, |(host, _)| host));
        let is_address = self.hostname.as_deref().is_some_and(|name| name.parse::<IpAddr>().is_ok());
        document.call("hostname", if is_address { self.hostname.as_deref() } else { host });
        document.call("display_name", self.display_name.as_deref());
        document.call("serial_number", self.serial_number.as_deref());
        document.call("asset_tag", self.asset_tag.as_deref());
        document.call("primary_ip", self.primary_ip.as_deref());
        document.call("primary_mac", self.primary_mac.as_deref());
        document.say("hostname", self.hostname.as_deref().filter(|name| host != Some(*name)));
        document.say("model", self.model.as_deref());
        document.say("manufacturer", self.manufacturer.as_deref());
        document.say("os", self.os().as_deref());
        document.say("last_logged_user", self.last_logged_user.as_deref());
        document.compare(Field::Status, Some(&self.status));
        // Both what people call the system and its full name match.
        document.compare(Field::Os, Some(&self.platform));
        for name in [self.os_name.clone(), self.os()].into_iter().flatten() {
            document.compare(Field::Os, Some(&name));
            add_beginnings(&mut document, &name);
        }
        document.compare(Field::Serial, self.serial_number.as_deref());
        document.compare(Field::Host, self.hostname.as_deref());
        document.compare(Field::Host, self.hostname.as_deref().and_then(|name| name.split('.').next()));
        document.compare(Field::Platform, Some(&self.platform));
        document.compare(Field::Model, self.model.as_deref());
        add_tags(&mut document, &self.tags);
        self.add_addresses(&mut document);
        document
    }

    fn subtitle(&self) -> String {
        let sort = Some(self.r#type.as_str()).filter(|sort| *sort != devices::Type::Other.as_str());
        line(&[sort, said(self.os_name.as_deref()), self.machine().as_deref(), said(self.primary_ip.as_deref())])
    }

    /// The operating system with its version, which some names include already.
    fn os(&self) -> Option<String> {
        let name = said(self.os_name.as_deref())?;
        let version = said(self.os_version.as_deref()).filter(|version| !name.contains(*version));
        Some(version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}")))
    }

    /// The manufacturer and model. Some models begin with the manufacturer.
    fn machine(&self) -> Option<String> {
        let (maker, model) = (said(self.manufacturer.as_deref()), said(self.model.as_deref()));
        match (maker, model) {
            (Some(maker), Some(model)) if !model.starts_with(maker) => Some(format!("{maker} {model}")),
            _ => model.or(maker).map(str::to_owned),
        }
    }

    /// Adds the addresses of all cards, without those that every machine has. They are bodies and not names, because they
    /// are many.
    fn add_addresses(&self, document: &mut Document) {
        let of_nics = self.nics.iter().filter_map(|nic| nic.mac.as_ref());
        for mac in self.primary_mac.iter().chain(of_nics).take(ADDRESSES_MAX) {
            if let Some(mac) = compact_mac(&fold_value(mac)).filter(|mac| mac != NO_MAC) {
                document.compare(Field::Mac, Some(&mac));
            }
        }
        let of_nics = self.nics.iter().flat_map(|nic| &nic.ips);
        let own = self.primary_ip.iter().chain(of_nics).filter(|ip| !is_loopback(ip)).take(ADDRESSES_MAX);
        for ip in own {
            document.compare(Field::Ip, Some(ip));
            if self.primary_ip.as_ref() != Some(ip) {
                document.say("nics", Some(ip));
            }
        }
    }
}

fn is_loopback(ip: &str) -> bool {
    ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

pub struct TicketRow {
    pub tenant: TenantId,
    pub id: String,
    pub number: i64,
    pub subject: String,
    pub status: String,
    /// The stored rank.
    pub priority: i64,
    pub organization_id: Option<String>,
    pub requester_name: Option<String>,
    pub requester_email: Option<String>,
    pub assignee_id: Option<String>,
    pub team: Option<String>,
    pub category: Option<String>,
    pub tags: Vec<String>,
    pub external_id: Option<String>,
    pub custom_fields: Map<String, Value>,
    /// At least as much as is indexed.
    pub description: Option<String>,
    pub updated_at: Timestamp,
}

impl TicketRow {
    pub fn document(&self) -> Document {
        let mut document = Document::new(Kind::Ticket, self.tenant, &self.id, self.updated_at);
        document.organization_id.clone_from(&self.organization_id);
        let number = self.number.to_string();
        let priority = Priority::from_rank(self.priority).ok().map(Word::as_str);
        let shown = format!("#{number}");
        document.show(&self.subject, &line(&[Some(shown.as_str()), Some(self.status.as_str()), priority]));
        document.is_live = tickets::Status::parse(&self.status).is_some_and(|status| !status.is_done());
        document.call("subject", Some(&self.subject));
        document.call("external_id", self.external_id.as_deref());
        document.say("requester.name", self.requester_name.as_deref());
        document.say("requester.email", self.requester_email.as_deref());
        document.say("category", self.category.as_deref());
        document.say("team", self.team.as_deref());
        document.say("description", self.description.as_deref().map(|text| cut(text, DESCRIPTION_BYTES_MAX)));
        document.compare(Field::Status, Some(&self.status));
        document.compare(Field::Priority, priority);
        document.compare(Field::Email, self.requester_email.as_deref());
        document.compare(Field::Assignee, self.assignee_id.as_deref());
        document.compare(Field::Number, Some(&number));
        add_tags(&mut document, &self.tags);
        for text in self.custom_fields.values().filter_map(Value::as_str).take(CUSTOM_FIELDS_MAX) {
            document.say("custom_fields", Some(text));
        }
        document
    }
}

pub struct UserRow {
    pub tenant: TenantId,
    pub id: String,
    pub email: String,
    pub name: String,
    pub role: String,
    pub is_active: bool,
    pub updated_at: Timestamp,
}

impl UserRow {
    pub fn document(&self) -> Document {
        let mut document = Document::new(Kind::User, self.tenant, &self.id, self.updated_at);
        let title = said(Some(&self.name)).unwrap_or(&self.email);
        document.show(title, &line(&[Some(self.email.as_str()), Some(self.role.as_str())]));
        document.is_live = self.is_active;
        document.call("name", Some(&self.name));
        document.call("email", Some(&self.email));
        document.compare(Field::Status, Some(if self.is_active { "active" } else { "disabled" }));
        document.compare(Field::Email, Some(&self.email));
        // `assignee:` finds the user by name or e-mail address, and then tickets by the user's id.
        document.compare(Field::Assignee, Some(&self.name));
        document.compare(Field::Assignee, Some(&self.email));
        document
    }
}

pub struct OrganizationRow {
    pub tenant: TenantId,
    pub id: String,
    pub slug: String,
    pub name: String,
    pub external_id: Option<String>,
    pub domains: Vec<String>,
    pub tags: Vec<String>,
    pub is_archived: bool,
    pub updated_at: Timestamp,
}

impl OrganizationRow {
    /// The document belongs to itself, so that `org:` finds the organization with all its records.
    pub fn document(&self) -> Document {
        let mut document = Document::new(Kind::Organization, self.tenant, &self.id, self.updated_at);
        document.organization_id = Some(self.id.clone());
        document.show(&self.name, &self.slug);
        document.is_live = !self.is_archived;
        document.call("name", Some(&self.name));
        document.call("slug", Some(&self.slug));
        document.say("external_id", self.external_id.as_deref());
        for domain in &self.domains {
            document.say("domains", Some(domain));
        }
        add_tags(&mut document, &self.tags);
        document.compare(Field::Org, Some(&self.name));
        document.compare(Field::Org, Some(&self.slug));
        document
    }
}

pub struct WorkflowRow {
    pub tenant: TenantId,
    pub id: String,
    pub name: String,
    pub is_enabled: bool,
    /// When the schedule fires next, if the workflow is enabled and has one.
    pub next_run_at: Option<Timestamp>,
    /// The first and the last of the events that start the workflow, if it is enabled and has any.
    pub first_event: Option<String>,
    pub last_event: Option<String>,
    pub is_deleted: bool,
    pub updated_at: Timestamp,
}

impl WorkflowRow {
    pub fn document(&self) -> Document {
        let mut document = Document::new(Kind::Workflow, self.tenant, &self.id, self.updated_at);
        let status = if self.is_enabled { "enabled" } else { "disabled" };
        document.show(&self.name, &line(&[Some(status), self.starts_on().as_deref()]));
        document.is_live = self.is_enabled;
        document.call("name", Some(&self.name));
        document.compare(Field::Status, Some(status));
        document
    }

    fn starts_on(&self) -> Option<String> {
        match &self.first_event {
            Some(event) if self.last_event.as_ref() == Some(event) => Some(format!("on event {event}")),
            Some(event) => Some(format!("on event {event} and others")),
            None => self.next_run_at.map(|_| "on schedule".to_owned()),
        }
    }
}

pub struct SoftwareRow {
    pub tenant: TenantId,
    /// In lower case.
    pub name: String,
    /// The name as it is shown.
    pub label: String,
}

impl SoftwareRow {
    /// Software has no time of change and ranks after all other documents that match equally well.
    pub fn document(&self) -> Document {
        let mut document = Document::new(Kind::Software, self.tenant, &self.name, Timestamp::from_millis(0));
        document.is_live = false;
        document.show(&self.label, "");
        document.call("name", Some(&self.label));
        document
    }
}

/// How many words of an operating system's name are indexed as prefixes.
const OS_WORDS_MAX: usize = 6;

/// People call `Microsoft Windows 11 Pro` `windows`, `windows 11` and `windows 11 pro`, and `Debian GNU/Linux 12 (bookworm)`
/// `debian`.
fn add_beginnings(document: &mut Document, name: &str) {
    let plain = name.split('(').next().unwrap_or(name);
    let plain = plain.strip_prefix("Microsoft ").unwrap_or(plain);
    let words: Vec<&str> = plain.split_whitespace().take(OS_WORDS_MAX).collect();
    for count in 1..=words.len() {
        document.compare(Field::Os, Some(&words.get(..count).unwrap_or_default().join(" ")));
    }
}

fn add_tags(document: &mut Document, tags: &[String]) {
    for tag in tags {
        document.say("tags", Some(tag));
        document.compare(Field::Tag, Some(tag));
    }
}

/// Joins the known parts to one line.
fn line(parts: &[Option<&str>]) -> String {
    let known: Vec<&str> = parts.iter().copied().flatten().collect();
    known.join(" · ")
}

#[cfg(test)]
mod tests;
