//! Turns a hit of the index into one of the API.

use std::collections::HashMap;

use super::documents::DocumentKind;
use super::{SearchHit, index};

/// Adds to software on how many devices it is installed.
pub fn to_search_hit(base_url: &str, found: index::IndexHit, installed: &HashMap<String, i64>) -> SearchHit {
    let subtitle = match (found.kind, installed.get(&found.id)) {
        (DocumentKind::Software, Some(1)) => "on 1 device".to_owned(),
        (DocumentKind::Software, devices) => format!("on {} devices", devices.copied().unwrap_or_default()),
        _ => found.subtitle,
    };
    SearchHit {
        r#type: found.kind,
        id: found.id,
        title: found.title,
        subtitle,
        organization_id: found.organization_id,
        score: found.position.points(),
        highlights: found.highlights,
        url: format!("{base_url}{}", found.url),
    }
}
