//! OpenAPI schemas of the bodies that `input` parses.

use feature_kit::NullInput;
use feature_kit::custom_fields::CUSTOM_FIELDS_MAX;
use feature_kit::tags::TAGS_MAX;
use kernel::base::StringEnum;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type as JsonType,
};
use utoipa::openapi::{KnownFormat, Ref, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use super::input::{DEVICES_MAX, NewTicket, TEXT_BYTES_MAX, TicketPatch};
use super::{Priority, TicketStatus, TicketType};

/// The properties that both bodies have; in a patch more of them may be null.
fn body_properties(null: NullInput) -> ObjectBuilder {
    let clears = null == NullInput::Clears;
    let label = |nullable: bool| label_schema(nullable).pattern(Some("\\S"));
    let key = |nullable: bool| label_schema(nullable).pattern(Some("^[^,]*[^,\\s][^,]*$"));
    let id = || typed_schema(JsonType::String, true);
    let time = || typed_schema(JsonType::String, true).format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    let long = typed_schema(JsonType::String, true)
        .max_length(Some(TEXT_BYTES_MAX))
        .description(Some("At most 64 KiB in UTF-8."));
    let custom = typed_schema(JsonType::Object, clears)
        .additional_properties(Some(AdditionalProperties::FreeForm(true)))
        .max_properties((!clears).then_some(CUSTOM_FIELDS_MAX))
        .description(Some("At most 50 fields, 5 deep with itself, 16 KiB of JSON."));
    let status: RefOr<Schema> = if clears {
        Ref::from_schema_name(TicketStatus::name()).into()
    } else {
        typed_schema(JsonType::String, false).enum_values(Some([TicketStatus::New.as_str()])).into()
    };
    ObjectBuilder::new()
        .property("subject", label(false))
        .property("description", long)
        .property("type", Ref::from_schema_name(TicketType::name()))
        .property("status", status)
        .property("priority", Ref::from_schema_name(Priority::name()))
        .property("organization_id", id())
        .property("requester", requester_schema())
        .property("assignee_id", id().description(Some("A user of the tenant.")))
        .property("team", label(true))
        .property("category", label(true))
        .property("tags", list_schema(key(false), TAGS_MAX, clears))
        .property("custom_fields", custom)
        .property("device_ids", list_schema(typed_schema(JsonType::String, false), DEVICES_MAX, clears))
        .property("external_id", key(true).description(Some("Unique in the tenant.")))
        .property("due_at", time())
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

fn typed_schema(kind: JsonType, nullable: bool) -> ObjectBuilder {
    let kinds = if nullable { vec![kind, JsonType::Null] } else { vec![kind] };
    ObjectBuilder::new().schema_type(match kinds.as_slice() {
        [one] => SchemaType::Type(one.clone()),
        _ => SchemaType::from_iter(kinds),
    })
}

fn label_schema(nullable: bool) -> ObjectBuilder {
    typed_schema(JsonType::String, nullable).min_length(Some(1)).max_length(Some(200))
}

fn list_schema(items: ObjectBuilder, max: usize, nullable: bool) -> ArrayBuilder {
    let list = ArrayBuilder::new().items(items).max_items(Some(max));
    if nullable { list.schema_type(SchemaType::from_iter([JsonType::Array, JsonType::Null])) } else { list }
}

fn requester_schema() -> ObjectBuilder {
    typed_schema(JsonType::Object, true)
        .property("name", label_schema(true).pattern(Some("\\S")))
        .property("email", typed_schema(JsonType::String, true).max_length(Some(254)))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .description(Some("A name, an e-mail address or both."))
}

fn add_enum_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.extend([
        (TicketType::name().into(), TicketType::schema()),
        (TicketStatus::name().into(), TicketStatus::schema()),
        (Priority::name().into(), Priority::schema()),
    ]);
}

impl PartialSchema for NewTicket {
    fn schema() -> RefOr<Schema> {
        let example = serde_json::json!({
            "subject": "Printer on fire", "description": "Third floor.", "priority": "high",
            "requester": {"name": "Sam", "email": "sam@acme.test"}, "tags": ["printer"],
        });
        body_properties(NullInput::Refused).required("subject").examples([example]).into()
    }
}

impl ToSchema for NewTicket {
    fn name() -> std::borrow::Cow<'static, str> {
        "TicketInput".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        add_enum_schemas(schemas);
    }
}

impl PartialSchema for TicketPatch {
    fn schema() -> RefOr<Schema> {
        let comment = ObjectBuilder::new()
            .property(
                "body",
                typed_schema(JsonType::String, false)
                    .min_length(Some(1))
                    .max_length(Some(TEXT_BYTES_MAX))
                    .pattern(Some("\\S")),
            )
            .property("public", typed_schema(JsonType::Boolean, false).description(Some("`true` when omitted.")))
            .required("body")
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .description(Some("Appended to the ticket's comments."));
        let example = serde_json::json!({"status": "in_progress", "comment": {"body": "On my way.", "public": true}});
        body_properties(NullInput::Clears).property("comment", comment).examples([example]).into()
    }
}

impl ToSchema for TicketPatch {
    fn name() -> std::borrow::Cow<'static, str> {
        "TicketPatch".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        add_enum_schemas(schemas);
    }
}
