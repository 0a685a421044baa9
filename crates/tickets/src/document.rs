//! OpenAPI schemas of the bodies that `input` parses.

use kernel::base::Word;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type as JsonType,
};
use utoipa::openapi::{KnownFormat, Ref, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use super::input::{DEVICES_MAX, NewTicket, TEXT_BYTES_MAX, TicketPatch};
use super::{Priority, Status, Type};
use feature_kit::NullField;
use feature_kit::custom_fields::CUSTOM_FIELDS_MAX;
use feature_kit::tags::TAGS_MAX;

/// The properties that both bodies have; in a patch more of them may be null.
fn properties(null: NullField) -> ObjectBuilder {
    let clears = null == NullField::Clears;
    let label = |nullable: bool| label_schema(nullable).pattern(Some("\\S"));
    let key = |nullable: bool| label_schema(nullable).pattern(Some("^[^,]*[^,\\s][^,]*$"));
    let id = || kind(JsonType::String, true);
    let time = || kind(JsonType::String, true).format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    let long =
        kind(JsonType::String, true).max_length(Some(TEXT_BYTES_MAX)).description(Some("At most 64 KiB in UTF-8."));
    let custom = kind(JsonType::Object, clears)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .max_properties((!clears).then_some(CUSTOM_FIELDS_MAX))
        .description(Some("At most 50 fields, 5 deep with itself, 16 KiB of JSON."));
    let status: RefOr<Schema> = if clears {
        Ref::from_schema_name(Status::name()).into()
    } else {
        kind(JsonType::String, false).enum_values(Some([Status::New.as_str()])).into()
    };
    ObjectBuilder::new()
        .property("subject", label(false))
        .property("description", long)
        .property("type", Ref::from_schema_name(Type::name()))
        .property("status", status)
        .property("priority", Ref::from_schema_name(Priority::name()))
        .property("organization_id", id())
        .property("requester", requester_schema())
        .property("assignee_id", id().description(Some("A user of the tenant.")))
        .property("team", label(true))
        .property("category", label(true))
        .property("tags", list(key(false), TAGS_MAX, clears))
        .property("custom_fields", custom)
        .property("device_ids", list(kind(JsonType::String, false), DEVICES_MAX, clears))
        .property("external_id", key(true).description(Some("Unique in the tenant.")))
        .property("due_at", time())
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

fn kind(kind: JsonType, nullable: bool) -> ObjectBuilder {
    let kinds = if nullable { vec![kind, JsonType::Null] } else { vec![kind] };
    ObjectBuilder::new().schema_type(match kinds.as_slice() {
        [one] => SchemaType::Type(one.clone()),
        _ => SchemaType::from_iter(kinds),
    })
}

fn label_schema(nullable: bool) -> ObjectBuilder {
    kind(JsonType::String, nullable).min_length(Some(1)).max_length(Some(200))
}

fn list(items: ObjectBuilder, max: usize, nullable: bool) -> ArrayBuilder {
    let list = ArrayBuilder::new().items(items).max_items(Some(max));
    if nullable { list.schema_type(SchemaType::from_iter([JsonType::Array, JsonType::Null])) } else { list }
}

fn requester_schema() -> ObjectBuilder {
    kind(JsonType::Object, true)
        .property("name", label_schema(true).pattern(Some("\\S")))
        .property("email", kind(JsonType::String, true).max_length(Some(254)))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .description(Some("A name, an e-mail address or both."))
}

fn parts(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.extend([
        (Type::name().into(), Type::schema()),
        (Status::name().into(), Status::schema()),
        (Priority::name().into(), Priority::schema()),
    ]);
}

impl PartialSchema for NewTicket {
    fn schema() -> RefOr<Schema> {
        let example = serde_json::json!({
            "subject": "Printer on fire", "description": "Third floor.", "priority": "high",
            "requester": {"name": "Sam", "email": "sam@acme.test"}, "tags": ["printer"],
        });
        properties(NullField::IsLeftOut).required("subject").examples([example]).into()
    }
}

impl ToSchema for NewTicket {
    fn name() -> std::borrow::Cow<'static, str> {
        "TicketInput".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        parts(schemas);
    }
}

impl PartialSchema for TicketPatch {
    fn schema() -> RefOr<Schema> {
        let comment = ObjectBuilder::new()
            .property(
                "body",
                kind(JsonType::String, false).min_length(Some(1)).max_length(Some(TEXT_BYTES_MAX)).pattern(Some("\\S")),
            )
            .property("public", kind(JsonType::Boolean, false).default(Some(true.into())))
            .required("body")
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .description(Some("Appended to the ticket's comments."));
        let example = serde_json::json!({"status": "in_progress", "comment": {"body": "On my way.", "public": true}});
        properties(NullField::Clears).property("comment", comment).examples([example]).into()
    }
}

impl ToSchema for TicketPatch {
    fn name() -> std::borrow::Cow<'static, str> {
        "TicketPatch".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        parts(schemas);
    }
}
