//! Turns a hit of the index into one of the API.

use std::collections::HashMap;

use super::documents::Kind;
use super::{Hit, index};

/// Adds to software on how many devices it is installed.
pub fn hit(base_url: &str, found: index::Hit, installed: &HashMap<String, i64>) -> Hit {
    let subtitle = match (found.kind, installed.get(&found.id)) {
        (Kind::Software, Some(1)) => "on 1 device".to_owned(),
        (Kind::Software, devices) => format!("on {} devices", devices.copied().unwrap_or_default()),
        _ => found.subtitle,
    };
    Hit {
        r#type: found.kind,
        id: found.id,
        title: found.title,
        subtitle,
        organization_id: found.organization_id,
        score: found.place.points(),
        highlights: found.highlights,
        url: format!("{base_url}{}", found.url),
    }
}
