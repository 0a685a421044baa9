//! The pages below `/documentation/api/` and `/documentation/guides/`. All are rendered at the first request and kept,
//! because nothing in them changes while the service runs.

use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use kernel::base::{Code, Error, Result};
use kernel::http::{App, DocumentOnce, SharedApp};

use super::page::{HtmlPage, LibraryPages};
use super::{guides, reference};

/// HTML pages by path. All clones share them.
#[derive(Clone, Default)]
pub struct Library(Arc<OnceLock<LibraryPages>>);

pub async fn show_library_page(
    State(app): State<SharedApp>,
    Extension(document): Extension<DocumentOnce>,
    uri: Uri,
) -> Result<HtmlPage> {
    let library: Library = app.settings.feature_settings();
    let nothing = || Error::new(Code::NotFound, "There is no such page. All are listed at /documentation/.");
    let html = library.get_or_render(&app, &document)?.get(uri.path()).ok_or_else(nothing)?;
    Ok(HtmlPage::from_html(html.clone()))
}

impl Library {
    fn get_or_render(&self, app: &App, document: &DocumentOnce) -> Result<&LibraryPages> {
        if let Some(pages) = self.0.get() {
            return Ok(pages);
        }
        let base_url = app.settings.base_url.as_str();
        let mut pages = LibraryPages::new();
        reference::render_reference(&mut pages, &document.get()?.json, base_url)?;
        guides::render_guides(&mut pages, base_url)?;
        Ok(self.0.get_or_init(|| pages))
    }
}
