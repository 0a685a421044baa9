//! Header values are secrets: they are stored apart from the definition, in which they are masked.
//!
//! A stored value is bound to the origin it was given for: scheme, host and port of its step's `url`, which must be literal
//! in a step with headers. So a stored value is never sent to an origin that its saver did not name.

use std::collections::BTreeMap;

use feature_kit::request_headers::{MASK, merge_headers};
use kernel::base::FieldError;
use kernel::outbound::{BadTarget, Target};
use serde_json::{Map, Value};

use super::actions::HTTP_REQUEST;
use super::{Definition, WorkflowStep};

/// Header values by step id and header name.
pub type StepHeaders = BTreeMap<String, BTreeMap<String, String>>;

/// The start of an expression in a text.
const TEMPLATE_START: &str = "${{";

/// Replaces the header values of a definition with the mask, and returns them.
pub fn take_header_values(definition: &mut Definition) -> StepHeaders {
    let mut taken = StepHeaders::new();
    for step in &mut definition.steps {
        let id = step.id.clone();
        for (name, value) in headers_of(step).into_iter().flatten() {
            if let Value::String(text) = value {
                let value = std::mem::replace(text, MASK.to_owned());
                taken.entry(id.clone()).or_default().insert(name.clone(), value);
            }
        }
    }
    taken
}

/// Puts header values back into a masked definition.
pub fn restore_header_values(definition: &mut Definition, values: &StepHeaders) {
    for step in &mut definition.steps {
        let Some(values) = values.get(&step.id) else { continue };
        for (name, value) in headers_of(step).into_iter().flatten() {
            if let Some(stored) = values.get(name) {
                *value = stored.as_str().into();
            }
        }
    }
}

/// Replaces masks in a new definition with the stored values, and reports masks that have none.
pub fn fill_masked_values(definition: &mut Definition, old: &Definition, stored: &StepHeaders) -> Vec<FieldError> {
    let (mut errors, nothing) = (Vec::new(), BTreeMap::new());
    for (at, step) in definition.steps.iter_mut().enumerate() {
        let before = old.steps.iter().find(|before| before.id == step.id);
        let same_origin = before.is_some_and(|before| has_same_origin(before, step));
        let stored = stored.get(&step.id).unwrap_or(&nothing);
        let Some(headers) = headers_of(step) else { continue };
        let texts = headers.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        match merge_headers(stored, same_origin, texts.collect(), &format!("/steps/{at}/with/headers")) {
            Ok(merged) => headers.extend(merged.into_iter().map(|(name, value)| (name, value.into()))),
            Err(wrong) => errors.extend(wrong),
        }
    }
    errors
}

fn headers_of(step: &mut WorkflowStep) -> Option<&mut Map<String, Value>> {
    if step.uses != HTTP_REQUEST {
        return None;
    }
    step.with.get_mut("headers")?.as_object_mut()
}

/// Whether the requests of two steps go to the same origin.
fn has_same_origin(one: &WorkflowStep, other: &WorkflowStep) -> bool {
    match (request_origin(one), request_origin(other)) {
        (Some(Ok(one)), Some(Ok(other))) => one.has_same_origin(&other),
        _ => false,
    }
}

/// The origin of a step's requests, if it is literal; none if it depends on an expression.
pub fn request_origin(step: &WorkflowStep) -> Option<Result<Target, BadTarget>> {
    if step.uses != HTTP_REQUEST {
        return None;
    }
    let url = step.with.get("url")?.as_str()?;
    let Some((literal, _)) = url.split_once(TEMPLATE_START) else { return Some(Target::parse(url)) };
    let (scheme, rest) = literal.split_once("://")?;
    let authority = &rest[..rest.find(['/', '?'])?];
    Some(Target::parse(&format!("{scheme}://{authority}/")))
}
