//! The declaration of one query parameter, for the parser and for the OpenAPI document.

use std::ops::RangeInclusive;

use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn, ParameterStyle};
use utoipa::openapi::schema::{ArrayBuilder, KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{Ref, RefOr, Required, Schema};

/// A parameter's name and its description in the document.
#[derive(Clone, Copy)]
pub struct QueryParam {
    pub(super) name: &'static str,
    /// Whether cursors are bound to its value.
    pub(super) bound: bool,
    about: &'static str,
    required: bool,
    length: Option<(usize, usize)>,
    pattern: Option<&'static str>,
    items_max: Option<usize>,
}

impl QueryParam {
    pub const fn new(name: &'static str, about: &'static str) -> Self {
        QueryParam { name, bound: true, about, required: false, length: None, pattern: None, items_max: None }
    }

    /// Cursors are not bound to it, because it only says where a page starts or how large it is.
    #[must_use]
    pub const fn unbound_from_cursor(self) -> Self {
        QueryParam { bound: false, ..self }
    }

    #[must_use]
    pub const fn required(self) -> Self {
        QueryParam { required: true, ..self }
    }

    /// For the document alone, like the pattern and `items_max`: the parser enforces its own bounds.
    #[must_use]
    pub const fn with_length(self, least: usize, most: usize) -> Self {
        QueryParam { length: Some((least, most)), ..self }
    }

    #[must_use]
    pub const fn with_pattern(self, pattern: &'static str) -> Self {
        QueryParam { pattern: Some(pattern), ..self }
    }

    #[must_use]
    pub const fn with_items_max(self, items_max: usize) -> Self {
        QueryParam { items_max: Some(items_max), ..self }
    }
}

/// A parameter that a route accepts, with its type.
pub(super) struct KnownParam {
    pub(super) param: QueryParam,
    pub(super) shape: ParamShape,
}

/// The type of a parameter's value.
pub(super) enum ParamShape {
    Text,
    Time,
    Bool,
    /// The only value.
    Word(&'static str),
    /// The document does not state a default as such: generated clients would send it with every request, even where the
    /// parameter has no meaning. The description names it.
    Number(RangeInclusive<usize>),
    /// A value of a closed set, by the reference to its schema.
    Enum(fn() -> Ref),
    Texts,
    /// Whole numbers from 1.
    Numbers,
    Words(fn() -> Ref),
}

impl KnownParam {
    pub(super) fn into_parameter(self) -> Parameter {
        let KnownParam { param, shape } = self;
        let parameter = ParameterBuilder::new()
            .name(param.name)
            .parameter_in(ParameterIn::Query)
            .required(if param.required { Required::True } else { Required::False })
            .description(Some(param.about))
            .schema(Some(param_schema(param, &shape)));
        if shape.is_list() {
            return parameter.style(Some(ParameterStyle::Form)).explode(Some(false)).build();
        }
        parameter.build()
    }
}

impl ParamShape {
    pub(super) fn is_list(&self) -> bool {
        match self {
            ParamShape::Texts | ParamShape::Numbers | ParamShape::Words(_) => true,
            ParamShape::Text
            | ParamShape::Time
            | ParamShape::Bool
            | ParamShape::Word(_)
            | ParamShape::Number(_)
            | ParamShape::Enum(_) => false,
        }
    }
}

fn param_schema(param: QueryParam, shape: &ParamShape) -> RefOr<Schema> {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let number = || ObjectBuilder::new().schema_type(Type::Integer);
    let list = |of: RefOr<Schema>| ArrayBuilder::new().items(of).max_items(param.items_max).into();
    let format = |format| Some(SchemaFormat::KnownFormat(format));
    match shape {
        ParamShape::Text => {
            let (least, most) = param.length.unzip();
            text().min_length(least).max_length(most).pattern(param.pattern).into()
        }
        ParamShape::Time => text().format(format(KnownFormat::DateTime)).into(),
        ParamShape::Bool => ObjectBuilder::new().schema_type(Type::Boolean).into(),
        ParamShape::Word(word) => text().enum_values(Some([*word])).into(),
        ParamShape::Number(range) => {
            let (least, most) = (*range.start() as u64, *range.end() as u64);
            number().minimum(Some(least)).maximum(Some(most)).into()
        }
        ParamShape::Enum(name) => name().into(),
        ParamShape::Texts => list(text().into()),
        ParamShape::Numbers => list(number().format(format(KnownFormat::Int64)).minimum(Some(1)).into()),
        ParamShape::Words(name) => list(name().into()),
    }
}
