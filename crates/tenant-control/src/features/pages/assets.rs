//! The stylesheet, the icon and the one script. Their URLs contain a hash of their bytes, so that browsers cache them
//! forever and never mix an old asset with a new page.

use std::sync::LazyLock;

use axum::http::{Uri, header};
use axum::response::IntoResponse;
use kernel::base::sha256;

/// A file that is embedded in the program.
pub struct Asset {
    /// The URL with the hash.
    pub url: String,
    version: String,
    content_type: &'static str,
    text: &'static str,
}

pub static STYLESHEET: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("/assets/style.css", "text/css; charset=utf-8", include_str!("assets/style.css")));
pub static OVERVIEW_SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("/assets/overview.js", "text/javascript; charset=utf-8", include_str!("assets/overview.js"))
});
pub static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("/assets/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")));

pub async fn serve_stylesheet(uri: Uri) -> impl IntoResponse {
    STYLESHEET.to_response(&uri)
}

pub async fn serve_overview_script(uri: Uri) -> impl IntoResponse {
    OVERVIEW_SCRIPT.to_response(&uri)
}

pub async fn serve_icon(uri: Uri) -> impl IntoResponse {
    ICON.to_response(&uri)
}

impl Asset {
    fn new(path: &str, content_type: &'static str, text: &'static str) -> Self {
        let hash = sha256(text.as_bytes()).first_chunk().map_or(0, |start| u64::from_be_bytes(*start));
        let version = format!("{hash:016x}");
        Asset { url: format!("{path}?v={version}"), version, content_type, text }
    }

    /// Cached forever only under its own hash: during a rolling upgrade, a new page may request an asset from an old node.
    fn to_response(&self, uri: &Uri) -> impl IntoResponse + use<> {
        let requested_version = uri.query().and_then(|query| query.strip_prefix("v="));
        let caching =
            if requested_version == Some(&self.version) { "public, max-age=31536000, immutable" } else { "no-cache" };
        ([(header::CONTENT_TYPE, self.content_type), (header::CACHE_CONTROL, caching)], self.text)
    }
}
