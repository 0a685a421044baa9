//! The pages below `/documentation/api/` and `/documentation/guides/`. All are rendered at the first request and kept,
//! because nothing in them changes while the service runs.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use kernel::base::{Code, Error, Result};
use kernel::http::{App, DocumentOnce, Shared};

use super::page::Page;
use super::{guides, reference};

/// HTML pages by path. All clones share them.
#[derive(Clone, Default)]
pub struct Library(Arc<OnceLock<Pages>>);

pub type Pages = BTreeMap<String, String>;

pub async fn library(
    State(app): State<Shared>,
    Extension(document): Extension<DocumentOnce>,
    uri: Uri,
) -> Result<Page> {
    let library: Library = app.settings.of_feature();
    let nothing = || Error::new(Code::NotFound, "There is no such page. All are listed at /documentation/.");
    let html = library.pages(&app, &document)?.get(uri.path()).ok_or_else(nothing)?;
    Ok(Page::rendered(html.clone()))
}

impl Library {
    fn pages(&self, app: &App, document: &DocumentOnce) -> Result<&Pages> {
        if let Some(pages) = self.0.get() {
            return Ok(pages);
        }
        let base_url = app.settings.base_url.as_str();
        let mut pages = Pages::new();
        reference::write(&mut pages, &document.get()?.json, base_url)?;
        guides::write(&mut pages, base_url)?;
        Ok(self.0.get_or_init(|| pages))
    }
}
