//! Schemas as tables: a row for each field, with nested fields indented below it.

use serde_json::{Number, Value};

use super::contract::{ApiMedia, ApiParameter, ApiSchema, Contract, SchemaTypes};
use super::markdown;

/// A row of a table of fields.
pub struct FieldRow {
    /// The level of nesting.
    pub depth: usize,
    pub name: String,
    /// The field that contains this one.
    pub parent: String,
    /// The type, in words.
    pub kind: String,
    pub need: &'static str,
    pub notes: Vec<FieldNote>,
    /// As HTML.
    pub description: String,
}

/// A bound, or the allowed values.
pub struct FieldNote {
    pub words: String,
    pub codes: Vec<String>,
}

/// One form of a request or response body.
pub struct BodyShape {
    /// Unique on its page.
    pub anchor: String,
    /// Empty if it is the only form.
    pub title: String,
    pub fields: Vec<FieldRow>,
    pub example: Option<String>,
}

/// Deeper than any record of the API. Deeper fields are described by their type alone.
const DEPTH_MAX: usize = 5;

/// How deep types and bounds of lists and variants are followed.
const WITHIN_MAX: usize = 4;

/// The forms of a request or response body, each with its example if there is one.
pub fn body_shapes(contract: &Contract, media: &ApiMedia, anchor: &str) -> Vec<BodyShape> {
    let body_schema = contract.resolve_schema(&media.schema);
    let mut forms: Vec<&ApiSchema> = body_schema.variants().collect();
    if forms.is_empty() {
        forms.push(&media.schema);
    }
    let is_alone = forms.len() == 1;
    let mut given = media.example.as_ref();
    let mut shapes = Vec::new();
    for (number, form) in forms.into_iter().enumerate() {
        let found = contract.resolve_schema(form);
        let example = given.take().or(found.example.as_ref()).or(found.examples.first());
        shapes.push(BodyShape {
            anchor: format!("{anchor}-{}", number + 1),
            title: form.reference_name().filter(|_| !is_alone).unwrap_or_default().to_owned(),
            fields: schema_rows(contract, form),
            example: example.map(format_example),
        });
    }
    shapes
}

/// Formats an example: a string as plain text, anything else as JSON.
pub fn format_example(example: &Value) -> String {
    match example {
        Value::String(text) => text.clone(),
        // `#` indents, and a JSON value can always be formatted.
        other => format!("{other:#}"),
    }
}

pub fn parameter_row(contract: &Contract, parameter: &ApiParameter) -> FieldRow {
    let walk = FieldWalk { contract, within: Vec::new(), fields: Vec::new() };
    let field =
        walk.field_row(&parameter.name, &parameter.schema, need_word(parameter.required), FieldPosition::default());
    FieldRow { description: markdown::to_html(&parameter.description), ..field }
}

fn schema_rows(contract: &Contract, schema: &ApiSchema) -> Vec<FieldRow> {
    let mut walk = FieldWalk { contract, within: Vec::new(), fields: Vec::new() };
    walk.add_members(schema, FieldPosition::default(), false);
    walk.fields
}

fn need_word(is_required: bool) -> &'static str {
    if is_required { "required" } else { "optional" }
}

struct FieldWalk<'a> {
    contract: &'a Contract,
    /// The schemas that are being shown, so that a recursive one is not shown again.
    within: Vec<&'a str>,
    fields: Vec<FieldRow>,
}

#[derive(Clone, Copy, Default)]
struct FieldPosition<'a> {
    depth: usize,
    parent: &'a str,
}

impl<'a> FieldWalk<'a> {
    /// Adds the fields of an object with all its parts and variants, or of the items of a list.
    fn add_members(&mut self, schema: &'a ApiSchema, position: FieldPosition<'a>, is_choice: bool) {
        let name = schema.reference_name();
        if position.depth > DEPTH_MAX || name.is_some_and(|name| self.within.contains(&name)) {
            return;
        }
        self.within.extend(name);
        let found = self.contract.resolve_schema(schema);
        for part in &found.all_of {
            self.add_members(part, position, is_choice);
        }
        let is_one_of_many = found.variants().filter(|variant| !variant.is_null()).count() > 1;
        for variant in found.variants() {
            self.add_members(variant, position, is_choice || is_one_of_many);
        }
        for (name, field) in found.properties.iter_members() {
            let is_required = found.required.iter().any(|required| required == name);
            let need = if is_required && is_choice { "one of these" } else { need_word(is_required) };
            self.add_field(name, field, need, position);
        }
        if let Some(each) = &found.additional_properties {
            self.add_field("any other name", each, "optional", position);
        }
        if let Some(items) = &found.items {
            self.add_members(items, position, is_choice);
        }
        if name.is_some() {
            self.within.pop();
        }
    }

    fn add_field(&mut self, name: &'a str, schema: &'a ApiSchema, need: &'static str, position: FieldPosition<'a>) {
        let row = self.field_row(name, schema, need, position);
        self.fields.push(row);
        self.add_members(schema, FieldPosition { depth: position.depth + 1, parent: name }, false);
    }

    fn field_row(&self, name: &str, schema: &ApiSchema, need: &'static str, position: FieldPosition<'_>) -> FieldRow {
        let found = self.contract.resolve_schema(schema);
        let description =
            [schema, found].into_iter().chain(found.variants()).find_map(|schema| schema.description.as_deref());
        let mut notes = Vec::new();
        self.add_notes(schema, "", WITHIN_MAX, &mut notes);
        FieldRow {
            depth: position.depth,
            name: name.to_owned(),
            parent: position.parent.to_owned(),
            kind: self.type_words(schema, WITHIN_MAX),
            need,
            notes,
            description: description.map(markdown::to_html).unwrap_or_default(),
        }
    }

    fn type_words(&self, schema: &ApiSchema, left: usize) -> String {
        let found = self.contract.resolve_schema(schema);
        let named: &[String] = match &found.kinds {
            Some(SchemaTypes::One(kind)) => std::slice::from_ref(kind),
            Some(SchemaTypes::Any(kinds)) => kinds,
            None => &[],
        };
        let mut kinds: Vec<String> = Vec::new();
        for kind in named {
            kinds.push(match (kind.as_str(), &found.items, &found.format) {
                ("array", Some(items), _) if left > 0 => format!("array of {}", self.type_words(items, left - 1)),
                ("string", _, Some(format)) => format!("string ({format})"),
                (kind, _, _) => kind.to_owned(),
            });
        }
        if kinds.is_empty() && left > 0 {
            kinds.extend(found.variants().map(|variant| self.type_words(variant, left - 1)));
        }
        if kinds.is_empty() {
            let is_object = !found.all_of.is_empty() || found.properties.iter_members().next().is_some();
            let kind = if is_object { "object" } else { "any JSON" };
            kinds.push(kind.to_owned());
        }
        let mut distinct: Vec<String> = Vec::new();
        for kind in kinds {
            if !distinct.contains(&kind) {
                distinct.push(kind);
            }
        }
        distinct.join(" or ")
    }

    /// Adds the notes of the schema, of its variants, and of its items.
    fn add_notes(&self, schema: &ApiSchema, prefix: &str, left: usize, notes: &mut Vec<FieldNote>) {
        let found = self.contract.resolve_schema(schema);
        let bounds = [
            format_range(found.min_length.as_ref(), found.max_length.as_ref(), " characters"),
            format_range(found.minimum.as_ref(), found.maximum.as_ref(), ""),
            format_range(found.min_items.as_ref(), found.max_items.as_ref(), " items"),
            format_range(None, found.max_properties.as_ref(), " fields"),
        ];
        for words in bounds.into_iter().flatten() {
            notes.push(FieldNote { words: format!("{prefix}{words}"), codes: Vec::new() });
        }
        let written = |values: &[Value]| -> Vec<String> { values.iter().map(format_value).collect() };
        if !found.values.is_empty() {
            notes.push(FieldNote { words: format!("{prefix}one of"), codes: written(&found.values) });
        }
        if let Some(pattern) = &found.pattern {
            notes.push(FieldNote { words: format!("{prefix}matches"), codes: vec![pattern.clone()] });
        }
        if let Some(default) = &found.default {
            notes.push(FieldNote { words: format!("{prefix}default"), codes: written(std::slice::from_ref(default)) });
        }
        if left > 0 {
            for variant in found.variants() {
                self.add_notes(variant, prefix, left - 1, notes);
            }
            if let Some(items) = &found.items {
                self.add_notes(items, "each ", left - 1, notes);
            }
        }
    }
}

/// Formats a value on one line.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn format_range(least: Option<&Number>, most: Option<&Number>, unit: &str) -> Option<String> {
    match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const SAMPLE: &str = r##"{
        "info": {"description": "", "version": "1"}, "tags": [], "paths": {}, "webhooks": {},
        "components": {"responses": {}, "schemas": {
            "Node": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 9},
                "children": {"type": "array", "maxItems": 3, "items": {"$ref": "#/components/schemas/Node"}},
                "at": {"oneOf": [{"$ref": "#/components/schemas/At", "description": "When."}, {"type": "null"}]}}},
            "At": {"type": "string", "format": "date-time"},
            "Circle": {"$ref": "#/components/schemas/Circle"},
            "Either": {"oneOf": [
                {"type": "object", "required": ["b"], "properties": {"b": {"type": "integer", "default": 4}}},
                {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "enum": ["x", "y"]}}}]}}}
    }"##;

    fn row_texts(contract: &Contract, name: &str) -> Vec<String> {
        let schema = ApiSchema { reference: Some(format!("#/components/schemas/{name}")), ..ApiSchema::default() };
        let shown = |field: FieldRow| {
            let notes = field.notes.iter().map(|note| format!("{} {}", note.words, note.codes.join(" ")));
            let notes: Vec<String> = notes.map(|note| note.trim_end().to_owned()).collect();
            format!("{} {} {} {} [{}]", field.depth, field.name, field.kind, field.need, notes.join("; "))
        };
        schema_rows(contract, &schema).into_iter().map(shown).collect()
    }

    #[test]
    fn a_schema_within_itself_is_shown_once() {
        let contract = Contract::parse(SAMPLE).unwrap();
        assert_eq!(
            row_texts(&contract, "Node"),
            [
                "0 name string required [1 to 9 characters]",
                "0 children array of object optional [at most 3 items]",
                "0 at string (date-time) or null optional []",
            ]
        );
        assert!(row_texts(&contract, "Circle").is_empty());
    }

    #[test]
    fn fields_of_a_choice_stand_in_the_order_of_the_document() {
        let contract = Contract::parse(SAMPLE).unwrap();
        let expected = ["0 b integer one of these [default 4]", "0 a string one of these [one of x y]"];
        assert_eq!(row_texts(&contract, "Either"), expected);
    }
}
