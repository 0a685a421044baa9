//! The row of each kind as it is read for the index, and its document.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fleet::devices::{self, Nic};
use kernel::base::{StringEnum, TenantId, Timestamp};
use search_language::QueryField;
use search_language::addresses::compact_mac;
use search_language::fold::fold_value;
use serde_json::{Map, Value};
use tickets::{self, Priority};

use super::{DocumentKind, IdentitySort, SearchDocument, compact_identifier, non_blank, truncate_text};

/// The most hardware addresses, and IP addresses, of one device: a host of many containers has hundreds, which nobody
/// searches for.
const ADDRESSES_MAX: usize = 32;
/// How much of a ticket's description is indexed. The rest is mostly quoted mail and logs.
pub const DESCRIPTION_BYTES_MAX: usize = 8 << 10;
/// How many custom fields are indexed, of the fifty that a ticket may have.
const CUSTOM_FIELDS_MAX: usize = 16;

/// The hardware address of an interface that is no card.
const NO_MAC: &str = "000000000000";

pub struct IndexedDevice {
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
    pub uuid: Option<String>,
    pub primary_ip: Option<String>,
    pub primary_mac: Option<String>,
    pub last_logged_user: Option<String>,
    pub tags: Vec<String>,
    pub nics: Vec<Nic>,
    /// Devices that were only imported never report.
    pub has_reported: bool,
    pub is_deleted: bool,
    pub updated_at: Timestamp,
}

impl IndexedDevice {
    pub fn to_document(&self) -> SearchDocument {
        let mut document = SearchDocument::new(DocumentKind::Device, self.tenant, &self.id, self.updated_at);
        document.organization_id.clone_from(&self.organization_id);
        let names = [&self.display_name, &self.hostname, &self.serial_number];
        let title = names.into_iter().find_map(|name| non_blank(name.as_deref()));
        document.set_heading(title.unwrap_or(&self.id), &self.format_subtitle());
        let is_online = devices::DeviceStatus::parse(&self.status) == Some(devices::DeviceStatus::Online);
        document.is_live = is_online || !self.has_reported;
        // The domain says little about one machine, so only the host is a name.
        let host = self.hostname.as_deref().map(|name| name.split_once('.').map_or(name, |(host, _)| host));
        let is_address = self.hostname.as_deref().is_some_and(|name| name.parse::<IpAddr>().is_ok());
        document.add_name("hostname", if is_address { self.hostname.as_deref() } else { host });
        document.add_name("display_name", self.display_name.as_deref());
        document.add_name("serial_number", self.serial_number.as_deref());
        document.add_name("asset_tag", self.asset_tag.as_deref());
        document.add_name("primary_ip", self.primary_ip.as_deref());
        document.add_name("primary_mac", self.primary_mac.as_deref());
        document.add_body("hostname", self.hostname.as_deref().filter(|name| host != Some(*name)));
        document.add_body("model", self.model.as_deref());
        document.add_body("manufacturer", self.manufacturer.as_deref());
        document.add_body("os", self.os_with_version().as_deref());
        document.add_body("last_logged_user", self.last_logged_user.as_deref());
        document.add_body("uuid", self.uuid.as_deref());
        document.add_exact(QueryField::Status, Some(&self.status));
        // Both what people call the system and its full name match.
        document.add_exact(QueryField::Os, Some(&self.platform));
        for name in [self.os_name.clone(), self.os_with_version()].into_iter().flatten() {
            document.add_exact(QueryField::Os, Some(&name));
            add_os_prefixes(&mut document, &name);
        }
        document.add_exact(QueryField::Serial, self.serial_number.as_deref());
        document.add_exact(QueryField::Host, self.hostname.as_deref());
        document.add_exact(QueryField::Host, self.hostname.as_deref().and_then(|name| name.split('.').next()));
        document.add_exact(QueryField::Platform, Some(&self.platform));
        document.add_exact(QueryField::Model, self.model.as_deref());
        add_tags(&mut document, &self.tags);
        self.add_addresses(&mut document);
        for name in [host, self.hostname.as_deref(), self.display_name.as_deref()] {
            document.add_identity(IdentitySort::Name, name);
        }
        for code in [&self.serial_number, &self.asset_tag] {
            document.add_identity(IdentitySort::Code, code.as_deref());
        }
        document.add_identity(IdentitySort::Uuid, self.uuid.as_deref());
        document.serial = Some(compact_identifier(self.serial_number.as_deref())).filter(|serial| !serial.is_empty());
        document
    }

    fn format_subtitle(&self) -> String {
        let sort = Some(self.r#type.as_str()).filter(|sort| *sort != devices::Type::Other.as_str());
        // The title is the display name then.
        let host = self.display_name.as_deref().and(self.hostname.as_deref());
        join_parts(&[
            non_blank(host),
            sort,
            non_blank(self.os_name.as_deref()),
            self.maker_and_model().as_deref(),
            non_blank(self.primary_ip.as_deref()),
        ])
    }

    /// The operating system with its version, which some names include already.
    fn os_with_version(&self) -> Option<String> {
        let name = non_blank(self.os_name.as_deref())?;
        let version = non_blank(self.os_version.as_deref()).filter(|version| !name.contains(*version));
        Some(version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}")))
    }

    /// The manufacturer and model. Some models begin with the manufacturer.
    fn maker_and_model(&self) -> Option<String> {
        let (maker, model) = (non_blank(self.manufacturer.as_deref()), non_blank(self.model.as_deref()));
        match (maker, model) {
            (Some(maker), Some(model)) if !model.starts_with(maker) => Some(format!("{maker} {model}")),
            _ => model.or(maker).map(str::to_owned),
        }
    }

    /// Adds the addresses of all cards, without those that every machine has. They are bodies and not names, because they
    /// are many.
    fn add_addresses(&self, document: &mut SearchDocument) {
        let of_nics = self.nics.iter().filter_map(|nic| nic.mac.as_ref());
        for mac in self.primary_mac.iter().chain(of_nics).take(ADDRESSES_MAX) {
            if let Some(mac) = compact_mac(&fold_value(mac)).filter(|mac| mac != NO_MAC) {
                document.add_exact(QueryField::Mac, Some(&mac));
            }
        }
        let of_nics = self.nics.iter().flat_map(|nic| &nic.ips);
        let own = self.primary_ip.iter().chain(of_nics).filter(|ip| !is_loopback(ip)).take(ADDRESSES_MAX);
        for ip in own {
            document.add_exact(QueryField::Ip, Some(ip));
            if self.primary_ip.as_ref() != Some(ip) {
                document.add_body("nics", Some(ip));
            }
        }
    }
}

fn is_loopback(ip: &str) -> bool {
    ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

pub struct IndexedTicket {
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

impl IndexedTicket {
    pub fn to_document(&self) -> SearchDocument {
        let mut document = SearchDocument::new(DocumentKind::Ticket, self.tenant, &self.id, self.updated_at);
        document.organization_id.clone_from(&self.organization_id);
        let number = self.number.to_string();
        let priority = Priority::from_rank(self.priority).ok().map(StringEnum::as_str);
        let shown = format!("#{number}");
        document.set_heading(&self.subject, &join_parts(&[Some(shown.as_str()), Some(self.status.as_str()), priority]));
        document.is_live = tickets::TicketStatus::parse(&self.status).is_some_and(|status| !status.is_done());
        document.add_name("subject", Some(&self.subject));
        document.add_name("external_id", self.external_id.as_deref());
        document.add_body("requester.name", self.requester_name.as_deref());
        document.add_body("requester.email", self.requester_email.as_deref());
        document.add_body("category", self.category.as_deref());
        document.add_body("team", self.team.as_deref());
        document.add_body(
            "description",
            self.description.as_deref().map(|text| truncate_text(text, DESCRIPTION_BYTES_MAX)),
        );
        document.add_exact(QueryField::Status, Some(&self.status));
        document.add_exact(QueryField::Priority, priority);
        document.add_exact(QueryField::Email, self.requester_email.as_deref());
        document.add_exact(QueryField::Assignee, self.assignee_id.as_deref());
        document.add_exact(QueryField::Number, Some(&number));
        add_tags(&mut document, &self.tags);
        document.add_identity(IdentitySort::Code, self.external_id.as_deref());
        for text in self.custom_fields.values().filter_map(Value::as_str).take(CUSTOM_FIELDS_MAX) {
            document.add_body("custom_fields", Some(text));
        }
        document
    }
}

pub struct IndexedUser {
    pub tenant: TenantId,
    pub id: String,
    pub email: String,
    pub name: String,
    pub role: String,
    pub is_active: bool,
    pub updated_at: Timestamp,
}

impl IndexedUser {
    pub fn to_document(&self) -> SearchDocument {
        let mut document = SearchDocument::new(DocumentKind::User, self.tenant, &self.id, self.updated_at);
        let title = non_blank(Some(&self.name)).unwrap_or(&self.email);
        document.set_heading(title, &join_parts(&[Some(self.email.as_str()), Some(self.role.as_str())]));
        document.is_live = self.is_active;
        document.add_name("name", Some(&self.name));
        document.add_name("email", Some(&self.email));
        document.add_exact(QueryField::Status, Some(if self.is_active { "active" } else { "disabled" }));
        document.add_exact(QueryField::Email, Some(&self.email));
        // `assignee:` finds the user by name or e-mail address, and then tickets by the user's id.
        document.add_exact(QueryField::Assignee, Some(&self.name));
        document.add_exact(QueryField::Assignee, Some(&self.email));
        document.add_identity(IdentitySort::Name, Some(&self.name));
        document.add_identity(IdentitySort::Name, Some(&self.email));
        document
    }
}

pub struct IndexedOrganization {
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

impl IndexedOrganization {
    /// The document belongs to itself, so that `org:` finds the organization with all its records.
    pub fn to_document(&self) -> SearchDocument {
        let mut document = SearchDocument::new(DocumentKind::Organization, self.tenant, &self.id, self.updated_at);
        document.organization_id = Some(self.id.clone());
        document.set_heading(&self.name, &self.slug);
        document.is_live = !self.is_archived;
        document.add_name("name", Some(&self.name));
        document.add_name("slug", Some(&self.slug));
        document.add_body("external_id", self.external_id.as_deref());
        for domain in &self.domains {
            document.add_body("domains", Some(domain));
        }
        add_tags(&mut document, &self.tags);
        document.add_exact(QueryField::Org, Some(&self.name));
        document.add_exact(QueryField::Org, Some(&self.slug));
        for name in [&self.name, &self.slug].into_iter().chain(&self.domains) {
            document.add_identity(IdentitySort::Name, Some(name));
        }
        document.add_identity(IdentitySort::Code, self.external_id.as_deref());
        document
    }
}

pub struct IndexedWorkflow {
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

impl IndexedWorkflow {
    pub fn to_document(&self) -> SearchDocument {
        let mut document = SearchDocument::new(DocumentKind::Workflow, self.tenant, &self.id, self.updated_at);
        let status = if self.is_enabled { "enabled" } else { "disabled" };
        document.set_heading(&self.name, &join_parts(&[Some(status), self.describe_trigger().as_deref()]));
        document.is_live = self.is_enabled;
        document.add_name("name", Some(&self.name));
        document.add_identity(IdentitySort::Name, Some(&self.name));
        document.add_exact(QueryField::Status, Some(status));
        document
    }

    fn describe_trigger(&self) -> Option<String> {
        match &self.first_event {
            Some(event) if self.last_event.as_ref() == Some(event) => Some(format!("on event {event}")),
            Some(event) => Some(format!("on event {event} and others")),
            None => self.next_run_at.map(|_| "on schedule".to_owned()),
        }
    }
}

pub struct IndexedSoftware {
    pub tenant: TenantId,
    /// In lower case.
    pub name: String,
    /// The name as it is shown.
    pub label: String,
}

impl IndexedSoftware {
    /// Software has no time of change and ranks after all other documents that match equally well.
    pub fn to_document(&self) -> SearchDocument {
        let mut document =
            SearchDocument::new(DocumentKind::Software, self.tenant, &self.name, Timestamp::from_millis(0));
        document.is_live = false;
        document.set_heading(&self.label, "");
        document.add_name("name", Some(&self.label));
        document.add_identity(IdentitySort::Name, Some(&self.label));
        document
    }
}

/// A machine in a cloud.
pub struct IndexedVm {
    pub tenant: TenantId,
    pub id: String,
    pub name: String,
    pub external_id: Option<String>,
    pub region: String,
    pub size: String,
    pub state: String,
    pub organization_id: Option<String>,
    pub public_ips: Vec<String>,
    pub private_ips: Vec<String>,
    pub tags: BTreeMap<String, String>,
    pub is_deleted: bool,
    pub updated_at: Timestamp,
}

impl IndexedVm {
    pub fn to_document(&self) -> SearchDocument {
        let mut document = SearchDocument::new(DocumentKind::Vm, self.tenant, &self.id, self.updated_at);
        document.organization_id.clone_from(&self.organization_id);
        let address = self.public_ips.first().or(self.private_ips.first()).map(String::as_str);
        let parts = [Some(self.state.as_str()), Some(self.size.as_str()), Some(self.region.as_str()), address];
        document.set_heading(&self.name, &join_parts(&parts));
        document.is_live = !matches!(self.state.as_str(), "terminated" | "failed");
        document.add_name("name", Some(&self.name));
        document.add_name("external_id", self.external_id.as_deref());
        document.add_body("region", Some(&self.region));
        document.add_body("size", Some(&self.size));
        document.add_exact(QueryField::Status, Some(&self.state));
        document.add_exact(QueryField::Host, Some(&self.name));
        for ip in self.public_ips.iter().chain(&self.private_ips).take(ADDRESSES_MAX) {
            document.add_exact(QueryField::Ip, Some(ip));
            document.add_body("ips", Some(ip));
            document.add_identity(IdentitySort::Name, Some(ip));
        }
        let is_own = |key: &str| !key.starts_with("tenant-control:") && key != "Name";
        for (key, value) in self.tags.iter().filter(|(key, _)| is_own(key)) {
            document.add_body("tags", Some(&format!("{key} {value}")));
            document.add_exact(QueryField::Tag, Some(key));
            document.add_exact(QueryField::Tag, Some(&format!("{key}:{value}")));
        }
        document.add_identity(IdentitySort::Name, Some(&self.name));
        document.add_identity(IdentitySort::Code, self.external_id.as_deref());
        document
    }
}

/// How many words of an operating system's name are indexed as prefixes.
const OS_WORDS_MAX: usize = 6;

/// People call `Microsoft Windows 11 Pro` `windows`, `windows 11` and `windows 11 pro`, and `Debian GNU/Linux 12 (bookworm)`
/// `debian`.
fn add_os_prefixes(document: &mut SearchDocument, name: &str) {
    let plain = name.split('(').next().unwrap_or(name);
    let plain = plain.strip_prefix("Microsoft ").unwrap_or(plain);
    let words: Vec<&str> = plain.split_whitespace().take(OS_WORDS_MAX).collect();
    for count in 1..=words.len() {
        document.add_exact(QueryField::Os, Some(&words.get(..count).unwrap_or_default().join(" ")));
    }
}

fn add_tags(document: &mut SearchDocument, tags: &[String]) {
    for tag in tags {
        document.add_body("tags", Some(tag));
        document.add_exact(QueryField::Tag, Some(tag));
    }
}

/// Joins the known parts to one line.
fn join_parts(parts: &[Option<&str>]) -> String {
    let present: Vec<&str> = parts.iter().copied().flatten().collect();
    present.join(" · ")
}

#[cfg(test)]
mod tests;
