//! Parsing of request bodies: a new ticket, or a merge patch of an existing one.

use feature_kit::NullField;
use feature_kit::custom_fields::parse_custom_fields;
use feature_kit::tags::{parse_key, parse_tags, remove_duplicates};
use fleet::devices::DeviceId;
use kernel::base::{Label, Timestamp, UserId, is_email};
use kernel::http::{Field, Fields, FromBody, Patch};
use people::organizations::OrganizationId;
use serde_json::{Map, Value};

use super::{Priority, Requester, Status, Type};

pub const TEXT_BYTES_MAX: usize = 64 * 1024;
pub const DEVICES_MAX: usize = 50;

/// The fields that creating and changing a ticket share.
#[derive(Clone, Debug, Default)]
pub struct Common {
    pub subject: Option<String>,
    pub description: Patch<String>,
    pub r#type: Option<Type>,
    pub status: Option<Status>,
    pub priority: Option<Priority>,
    pub organization_id: Patch<OrganizationId>,
    pub requester: Patch<RequesterPatch>,
    pub assignee_id: Patch<UserId>,
    pub team: Patch<String>,
    pub category: Patch<String>,
    pub tags: Patch<Vec<String>>,
    /// A merge patch of the stored custom fields.
    pub custom_fields: Patch<Map<String, Value>>,
    pub device_ids: Patch<Vec<DeviceId>>,
    pub external_id: Patch<String>,
    pub due_at: Patch<Timestamp>,
}

#[derive(Clone, Debug)]
pub struct RequesterPatch {
    name: Patch<String>,
    email: Patch<String>,
}

impl RequesterPatch {
    /// The patched requester; `None` if neither a name nor an address is left.
    pub fn merge(self, old: Option<Requester>) -> Option<Requester> {
        let mut requester = old.unwrap_or_default();
        self.name.apply(&mut requester.name);
        self.email.apply(&mut requester.email);
        (requester != Requester::default()).then_some(requester)
    }
}

/// A new ticket.
#[derive(Clone, Debug)]
pub struct NewTicket(pub Common);

/// A change of a ticket: a JSON merge patch, and a comment to append.
#[derive(Clone, Debug)]
pub struct TicketPatch {
    pub fields: Common,
    pub comment: Option<NewComment>,
}

#[derive(Clone, Debug)]
pub struct NewComment {
    pub body: String,
    pub public: bool,
}

impl FromBody for NewTicket {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        if !fields.has("subject") {
            fields.report("subject", "required", "is required");
        }
        let common = Common::take(fields, NullField::IsLeftOut)?;
        common.subject.is_some().then_some(NewTicket(common))
    }
}

impl FromBody for TicketPatch {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let common = Common::take(fields, NullField::Clears);
        let comment = fields.optional("comment", |field| field.object(NewComment::from_fields));
        Some(TicketPatch { fields: common?, comment: comment? })
    }
}

impl FromBody for NewComment {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let body = fields.required("body", spoken);
        let public = fields.optional("public", |field| field.boolean());
        Some(NewComment { body: body?, public: public?.unwrap_or(true) })
    }
}

impl Common {
    pub fn take(fields: &mut Fields, null: NullField) -> Option<Self> {
        let subject = fields.optional("subject", subject);
        let description = fields.nullable("description", text);
        let kind = fields.optional("type", |field| field.word());
        let status = fields.optional("status", |field| status(field, null));
        let priority = fields.optional("priority", |field| field.word());
        let organization_id = fields.nullable("organization_id", |field| field.reference());
        let requester = fields.nullable("requester", |field| requester(field, null));
        let assignee_id = fields.nullable("assignee_id", |field| field.reference());
        let team = fields.nullable("team", label);
        let category = fields.nullable("category", label);
        let tags = defaulted(fields, "tags", null, parse_tags);
        let custom_fields = defaulted(fields, "custom_fields", null, |field| parse_custom_fields(field, null));
        let device_ids = defaulted(fields, "device_ids", null, devices);
        let external_id = fields.nullable("external_id", |field| parse_key(field, "id"));
        let due_at = fields.nullable("due_at", |field| field.time());
        Some(Common {
            subject: subject?,
            description: description?,
            r#type: kind?,
            status: status?,
            priority: priority?,
            organization_id: organization_id?,
            requester: requester?,
            assignee_id: assignee_id?,
            team: team?,
            category: category?,
            tags: tags?,
            custom_fields: custom_fields?,
            device_ids: device_ids?,
            external_id: external_id?,
            due_at: due_at?,
        })
    }
}

/// A field that is never null, but can be cleared by a merge patch.
fn defaulted<T>(
    fields: &mut Fields,
    name: &str,
    null: NullField,
    parse: impl FnOnce(&mut Field<'_>) -> Option<T>,
) -> Option<Patch<T>> {
    match null {
        NullField::Clears => fields.nullable(name, parse),
        NullField::IsLeftOut => Some(fields.optional(name, parse)?.map_or(Patch::Keep, Patch::Set)),
    }
}

/// One line of text by a person or an e-mail. It identifies nobody, so invisible characters are allowed.
fn subject(field: &mut Field<'_>) -> Option<String> {
    field.parsed("invalid_text", |text| Label::parse_line(text).map(Label::into_string))
}

fn label(field: &mut Field<'_>) -> Option<String> {
    field.parsed("invalid_text", |text| Label::parse(text).map(Label::into_string))
}

/// A new ticket can only be `new`; a patch may name any status.
fn status(field: &mut Field<'_>, null: NullField) -> Option<Status> {
    match field.word()? {
        Status::New => Some(Status::New),
        _ if null == NullField::IsLeftOut => {
            field.wrong("invalid_value", "must be new: a ticket starts there, and PATCH changes it")
        }
        status => Some(status),
    }
}

/// Multi-line text that is not blank.
fn spoken(field: &mut Field<'_>) -> Option<String> {
    let text = text(field)?;
    if text.trim().is_empty() { field.wrong("invalid_text", "must not be blank") } else { Some(text) }
}

/// Multi-line text.
fn text(field: &mut Field<'_>) -> Option<String> {
    field.parsed("invalid_text", |text| {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("must be at most {TEXT_BYTES_MAX} bytes"));
        }
        Ok(text.to_owned())
    })
}

fn requester(field: &mut Field<'_>, null: NullField) -> Option<RequesterPatch> {
    let requester = field.object(|fields| {
        let name = fields.nullable("name", label);
        let email = fields.nullable("email", |field| {
            field.parsed("invalid_email", |text| {
                let text = text.trim();
                if is_email(text) { Ok(text.to_owned()) } else { Err("must be an e-mail address".to_owned()) }
            })
        });
        Some(RequesterPatch { name: name?, email: email? })
    })?;
    if null == NullField::IsLeftOut && requester.clone().merge(None).is_none() {
        return field.wrong("required", "needs a name or an email");
    }
    Some(requester)
}

fn devices(field: &mut Field<'_>) -> Option<Vec<DeviceId>> {
    Some(remove_duplicates(field.list(DEVICES_MAX, |field| field.reference())?))
}
