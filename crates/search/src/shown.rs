//! Turns a hit of the index into one of the API.

use std::collections::HashMap;

use super::documents::DocumentKind;
use super::{SearchHit, index};

/// Adds to software on how many devices it is installed.
pub fn to_search_hit(base_url: &str, hit: index::IndexHit, installed: &HashMap<String, i64>) -> SearchHit {
    let subtitle = match (hit.kind, installed.get(&hit.id)) {
        (DocumentKind::Software, Some(1)) => "on 1 device".to_owned(),
        (DocumentKind::Software, devices) => format!("on {} devices", devices.copied().unwrap_or_default()),
        _ => hit.subtitle,
    };
    SearchHit {
        r#type: hit.kind,
        id: hit.id,
        title: hit.title,
        subtitle,
        organization_id: hit.organization_id,
        score: hit.position.points(),
        highlights: hit.highlights,
        url: format!("{base_url}{}", hit.url),
    }
}
