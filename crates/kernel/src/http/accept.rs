//! Content negotiation by `Accept`, for routes that can answer in two media types.

use axum::http::{HeaderMap, header};

/// Whether the client prefers `one` over `other`: false if both have the same quality, or there is no `Accept`.
pub fn prefers_media_type(headers: &HeaderMap, one: &str, other: &str) -> bool {
    media_type_quality(headers, one) > media_type_quality(headers, other)
}

/// From 0 to 1, by the most specific range that covers the type (RFC 9110, 12.5.1).
fn media_type_quality(headers: &HeaderMap, media_type: &str) -> f32 {
    let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let covering = lines.flat_map(|line| line.split(',')).filter_map(|range| match_range(range, media_type));
    covering.max_by_key(|(specific, _)| *specific).map_or(0.0, |(_, quality)| quality)
}

/// The specificity and quality of a media range, if it covers the type.
fn match_range(range: &str, media_type: &str) -> Option<(u8, f32)> {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next()?;
    let family = media_type.split('/').next().unwrap_or_default();
    let specific = if name.eq_ignore_ascii_case(media_type) {
        2
    } else if name.strip_suffix("/*").is_some_and(|start| start.eq_ignore_ascii_case(family)) {
        1
    } else if name == "*/*" {
        0
    } else {
        return None;
    };
    let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    Some((specific, quality.map_or(1.0, |text| text.parse().unwrap_or(0.0))))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn accepting(text: &'static str) -> HeaderMap {
        [(header::ACCEPT, HeaderValue::from_static(text))].into_iter().collect()
    }

    #[test]
    fn a_browser_would_rather_have_a_page_and_a_program_what_it_names() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        for text in [browser, "text/html", "TEXT/HTML", "text/*", "application/json;q=0.5, text/html;q=0.6"] {
            assert!(prefers_media_type(&accepting(text), "text/html", "application/json"), "{text}");
            assert!(!prefers_media_type(&accepting(text), "application/json", "text/html"), "{text}");
        }
        for text in ["application/json", "application/json, text/html;q=0.9", "application/*, text/html;q=0"] {
            assert!(prefers_media_type(&accepting(text), "application/json", "text/html"), "{text}");
            assert!(!prefers_media_type(&accepting(text), "text/html", "application/json"), "{text}");
        }
    }

    #[test]
    fn who_does_not_say_prefers_neither() {
        for text in
            ["", "*/*", "text/html, application/json", "image/png", ";;,=", "text/html;q=x, application/json;q=x"]
        {
            assert!(!prefers_media_type(&accepting(text), "text/html", "application/json"), "{text}");
            assert!(!prefers_media_type(&accepting(text), "application/json", "text/html"), "{text}");
        }
        assert!(!prefers_media_type(&HeaderMap::new(), "text/html", "application/json"));
    }
}
