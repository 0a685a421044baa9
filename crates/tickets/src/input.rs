//! Parsing of request bodies: a new ticket, or a merge patch of an existing one.

use feature_kit::NullInput;
use feature_kit::custom_fields::parse_custom_fields;
use feature_kit::tags::{parse_key, parse_tags, remove_duplicates};
use fleet::devices::DeviceId;
use kernel::base::{Label, Timestamp, UserId, is_email};
use kernel::http::{BodyField, BodyFields, FromBody, PatchField};
use people::organizations::OrganizationId;
use serde_json::{Map, Value};

use super::{Priority, TicketRequester, TicketStatus, TicketType};

pub const TEXT_BYTES_MAX: usize = 64 * 1024;
pub const DEVICES_MAX: usize = 50;

/// The fields that creating and changing a ticket share.
#[derive(Clone, Debug, Default)]
pub struct TicketFields {
    pub subject: Option<String>,
    pub description: PatchField<String>,
    pub r#type: Option<TicketType>,
    pub status: Option<TicketStatus>,
    pub priority: Option<Priority>,
    pub organization_id: PatchField<OrganizationId>,
    pub requester: PatchField<RequesterPatch>,
    pub assignee_id: PatchField<UserId>,
    pub team: PatchField<String>,
    pub category: PatchField<String>,
    pub tags: PatchField<Vec<String>>,
    /// A merge patch of the stored custom fields.
    pub custom_fields: PatchField<Map<String, Value>>,
    pub device_ids: PatchField<Vec<DeviceId>>,
    pub external_id: PatchField<String>,
    pub due_at: PatchField<Timestamp>,
}

#[derive(Clone, Debug)]
pub struct RequesterPatch {
    name: PatchField<String>,
    email: PatchField<String>,
}

impl RequesterPatch {
    /// The patched requester; `None` if neither a name nor an address is left.
    pub fn apply_to(self, old: Option<TicketRequester>) -> Option<TicketRequester> {
        let mut requester = old.unwrap_or_default();
        self.name.apply_to(&mut requester.name);
        self.email.apply_to(&mut requester.email);
        (requester != TicketRequester::default()).then_some(requester)
    }
}

/// A new ticket.
#[derive(Clone, Debug)]
pub struct NewTicket(pub TicketFields);

/// A change of a ticket: a JSON merge patch, and a comment to append.
#[derive(Clone, Debug)]
pub struct TicketPatch {
    pub fields: TicketFields,
    pub comment: Option<NewComment>,
}

#[derive(Clone, Debug)]
pub struct NewComment {
    pub body: String,
    pub public: bool,
}

impl FromBody for NewTicket {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        if !fields.has_field("subject") {
            fields.report_field("subject", "required", "is required");
        }
        let common = TicketFields::parse_fields(fields, NullInput::Refused)?;
        common.subject.is_some().then_some(NewTicket(common))
    }
}

impl FromBody for TicketPatch {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let common = TicketFields::parse_fields(fields, NullInput::Clears);
        let comment = fields.read_optional("comment", |field| field.read_object(NewComment::from_fields));
        Some(TicketPatch { fields: common?, comment: comment? })
    }
}

impl FromBody for NewComment {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        let body = fields.read_required("body", parse_nonblank_text);
        let public = fields.read_optional("public", |field| field.read_boolean());
        Some(NewComment { body: body?, public: public?.unwrap_or(true) })
    }
}

impl TicketFields {
    pub fn parse_fields(fields: &mut BodyFields, null: NullInput) -> Option<Self> {
        let subject = fields.read_optional("subject", parse_subject);
        let description = fields.read_nullable("description", parse_text);
        let kind = fields.read_optional("type", |field| field.read_enum());
        let status = fields.read_optional("status", |field| parse_status(field, null));
        let priority = fields.read_optional("priority", |field| field.read_enum());
        let organization_id = fields.read_nullable("organization_id", |field| field.read_reference());
        let requester = fields.read_nullable("requester", |field| parse_requester(field, null));
        let assignee_id = fields.read_nullable("assignee_id", |field| field.read_reference());
        let team = fields.read_nullable("team", parse_label);
        let category = fields.read_nullable("category", parse_label);
        let tags = parse_defaulted(fields, "tags", null, parse_tags);
        let custom_fields = parse_defaulted(fields, "custom_fields", null, |field| parse_custom_fields(field, null));
        let device_ids = parse_defaulted(fields, "device_ids", null, parse_device_ids);
        let external_id = fields.read_nullable("external_id", |field| parse_key(field, "id"));
        let due_at = fields.read_nullable("due_at", |field| field.read_time());
        Some(TicketFields {
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
fn parse_defaulted<T>(
    fields: &mut BodyFields,
    name: &str,
    null: NullInput,
    parse: impl FnOnce(&mut BodyField<'_>) -> Option<T>,
) -> Option<PatchField<T>> {
    match null {
        NullInput::Clears => fields.read_nullable(name, parse),
        NullInput::Refused => Some(fields.read_optional(name, parse)?.map_or(PatchField::Keep, PatchField::Set)),
    }
}

/// One line of text by a person or an e-mail. It identifies nobody, so invisible characters are allowed.
fn parse_subject(field: &mut BodyField<'_>) -> Option<String> {
    field.read_parsed("invalid_text", |text| Label::parse_line(text).map(Label::into_string))
}

fn parse_label(field: &mut BodyField<'_>) -> Option<String> {
    field.read_parsed("invalid_text", |text| Label::parse(text).map(Label::into_string))
}

/// A new ticket can only be `new`; a patch may name any status.
fn parse_status(field: &mut BodyField<'_>, null: NullInput) -> Option<TicketStatus> {
    match field.read_enum()? {
        TicketStatus::New => Some(TicketStatus::New),
        _ if null == NullInput::Refused => {
            field.report_error("invalid_value", "must be new: a ticket starts there, and PATCH changes it")
        }
        status => Some(status),
    }
}

/// Multi-line text that is not blank.
fn parse_nonblank_text(field: &mut BodyField<'_>) -> Option<String> {
    let text = parse_text(field)?;
    if text.trim().is_empty() { field.report_error("invalid_text", "must not be blank") } else { Some(text) }
}

/// Multi-line text.
fn parse_text(field: &mut BodyField<'_>) -> Option<String> {
    field.read_parsed("invalid_text", |text| {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("must be at most {TEXT_BYTES_MAX} bytes"));
        }
        Ok(text.to_owned())
    })
}

fn parse_requester(field: &mut BodyField<'_>, null: NullInput) -> Option<RequesterPatch> {
    let requester = field.read_object(|fields| {
        let name = fields.read_nullable("name", parse_label);
        let email = fields.read_nullable("email", |field| {
            field.read_parsed("invalid_email", |text| {
                let text = text.trim();
                if is_email(text) { Ok(text.to_owned()) } else { Err("must be an e-mail address".to_owned()) }
            })
        });
        Some(RequesterPatch { name: name?, email: email? })
    })?;
    if null == NullInput::Refused && requester.clone().apply_to(None).is_none() {
        return field.report_error("required", "needs a name or an email");
    }
    Some(requester)
}

fn parse_device_ids(field: &mut BodyField<'_>) -> Option<Vec<DeviceId>> {
    Some(remove_duplicates(field.read_list(DEVICES_MAX, |field| field.read_reference())?))
}
