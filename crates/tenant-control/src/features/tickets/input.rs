//! What a request may say of a ticket: all of a new one, or what shall change of one that exists.

use kernel::base::{Label, Timestamp, UserId, is_email};
use kernel::http::{Field, Fields, FromBody, Patch};
use serde_json::{Map, Value};

use super::{Priority, Requester, Status, Type};
use crate::features::devices::DeviceId;
use crate::features::organizations::OrganizationId;

pub const TEXT_BYTES_MAX: usize = 64 * 1024;
pub const TAGS_MAX: usize = 50;
pub const DEVICES_MAX: usize = 50;
pub const CUSTOM_FIELDS_MAX: usize = 50;
pub const CUSTOM_DEPTH_MAX: usize = 5;
pub const CUSTOM_BYTES_MAX: usize = 16 * 1024;

/// The fields that can be given at any time.
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
    /// To be merged into what there is.
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
    /// Nobody with neither name nor address.
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
        let common = Common::take(fields, Null::IsLeftOut)?;
        common.subject.is_some().then_some(NewTicket(common))
    }
}

impl FromBody for TicketPatch {
    fn from_fields(fields: &mut Fields) -> Option<Self> {
        let common = Common::take(fields, Null::Clears);
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

/// What null means for a field that has a value without it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Null {
    /// In a new ticket: only where null is a value.
    IsLeftOut,
    /// In a merge patch: back to what it is without.
    Clears,
}

impl Common {
    pub fn take(fields: &mut Fields, null: Null) -> Option<Self> {
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
        let tags = defaulted(fields, "tags", null, tags);
        let custom_fields = defaulted(fields, "custom_fields", null, |field| custom_fields(field, null));
        let device_ids = defaulted(fields, "device_ids", null, devices);
        let external_id = fields.nullable("external_id", |field| key(field, "id"));
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
    null: Null,
    parse: impl FnOnce(&mut Field<'_>) -> Option<T>,
) -> Option<Patch<T>> {
    match null {
        Null::Clears => fields.nullable(name, parse),
        Null::IsLeftOut => Some(fields.optional(name, parse)?.map_or(Patch::Keep, Patch::Set)),
    }
}

/// What people write or a mail brings: nobody is taken for somebody else by it.
fn subject(field: &mut Field<'_>) -> Option<String> {
    field.parsed("invalid_text", |text| Label::parse_line(text).map(Label::into_string))
}

fn label(field: &mut Field<'_>) -> Option<String> {
    field.parsed("invalid_text", |text| Label::parse(text).map(Label::into_string))
}

/// A label that can stand in a comma list of a filter.
fn key(field: &mut Field<'_>, noun: &str) -> Option<String> {
    field.parsed("invalid_text", |text| {
        let label = Label::parse(text)?.into_string();
        if label.contains(',') {
            return Err(format!("must not contain a comma, which separates one {noun} from the next in filters"));
        }
        Ok(label)
    })
}

/// A ticket starts as new; any other status it can only be given.
fn status(field: &mut Field<'_>, null: Null) -> Option<Status> {
    match field.word()? {
        Status::New => Some(Status::New),
        _ if null == Null::IsLeftOut => {
            field.wrong("invalid_value", "must be new: a ticket starts there, and PATCH changes it")
        }
        status => Some(status),
    }
}

/// Text that is not blank.
fn spoken(field: &mut Field<'_>) -> Option<String> {
    let text = text(field)?;
    if text.trim().is_empty() { field.wrong("invalid_text", "must not be blank") } else { Some(text) }
}

/// Text of several lines.
fn text(field: &mut Field<'_>) -> Option<String> {
    field.parsed("invalid_text", |text| {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("must be at most {TEXT_BYTES_MAX} bytes"));
        }
        Ok(text.to_owned())
    })
}

fn requester(field: &mut Field<'_>, null: Null) -> Option<RequesterPatch> {
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
    if null == Null::IsLeftOut && requester.clone().merge(None).is_none() {
        return field.wrong("required", "needs a name or an email");
    }
    Some(requester)
}

pub fn tags(field: &mut Field<'_>) -> Option<Vec<String>> {
    Some(distinct(field.list(TAGS_MAX, |field| key(field, "tag"))?))
}

fn devices(field: &mut Field<'_>) -> Option<Vec<DeviceId>> {
    Some(distinct(field.list(DEVICES_MAX, |field| field.reference())?))
}

/// Each value once, where it first stands.
pub fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    values.into_iter().fold(Vec::new(), |mut kept, value| {
        if !kept.contains(&value) {
            kept.push(value);
        }
        kept
    })
}

pub fn custom_fields(field: &mut Field<'_>, null: Null) -> Option<Map<String, Value>> {
    let Value::Object(object) = field.take() else {
        return field.wrong("wrong_type", "must be an object");
    };
    // A patch takes away as well as it adds. What it adds is in the outcome, which is judged again.
    let mut added = object.clone();
    if null == Null::Clears {
        added.clear();
        merge(&mut added, object.clone());
    }
    match check_custom_fields(&added) {
        Ok(()) => Some(object),
        Err((code, detail)) => field.wrong(code, detail),
    }
}

/// What is wrong with custom fields, as a code and a detail.
pub fn check_custom_fields(object: &Map<String, Value>) -> Result<(), (&'static str, String)> {
    if object.len() > CUSTOM_FIELDS_MAX {
        return Err(("too_many", format!("must have at most {CUSTOM_FIELDS_MAX} fields")));
    }
    let depth = 1 + object.values().map(depth).max().unwrap_or(0);
    if depth > CUSTOM_DEPTH_MAX {
        return Err(("too_deep", format!("must be at most {CUSTOM_DEPTH_MAX} deep, itself included")));
    }
    let bytes = serde_json::to_string(object).map_or(usize::MAX, |text| text.len());
    if bytes > CUSTOM_BYTES_MAX {
        return Err(("too_long", format!("must be at most {CUSTOM_BYTES_MAX} bytes of JSON, not {bytes}")));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// RFC 7396.
pub fn merge(old: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match (value, old.get_mut(&name)) {
            (Value::Null, _) => drop(old.remove(&name)),
            (Value::Object(inner), Some(Value::Object(kept))) => merge(kept, inner),
            (Value::Object(inner), _) => {
                let mut made = Map::new();
                merge(&mut made, inner);
                old.insert(name, Value::Object(made));
            }
            (value, _) => drop(old.insert(name, value)),
        }
    }
}
