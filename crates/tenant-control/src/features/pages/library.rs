//! The pages below `/documentation/api/` and `/documentation/guides/`. All are rendered at the first request and kept,
//! because nothing in them changes while the service runs.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use kernel::base::{Code, Error, Result};
use kernel::http::{App, DocumentOnce, SharedApp};

use super::contract::Contract;
use super::page::{HtmlPage, LibraryPages};
use super::{guides, reference};

/// What the document leads to. All clones share it.
#[derive(Clone, Default)]
pub struct Library(Arc<LibraryState>);

#[derive(Default)]
struct LibraryState {
    /// HTML pages by path.
    pages: OnceLock<LibraryPages>,
    scopes: OnceLock<BTreeSet<String>>,
}

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
        if let Some(pages) = self.0.pages.get() {
            return Ok(pages);
        }
        let base_url = app.settings.base_url.as_str();
        let mut pages = LibraryPages::new();
        reference::render_reference(&mut pages, &document.get()?.json, base_url)?;
        guides::render_guides(&mut pages, base_url)?;
        Ok(self.0.pages.get_or_init(|| pages))
    }

    /// The scopes that some operation needs. Others can be granted already, for what is still to come.
    pub(super) fn used_scopes(&self, document: &DocumentOnce) -> Result<&BTreeSet<String>> {
        if let Some(scopes) = self.0.scopes.get() {
            return Ok(scopes);
        }
        let contract = Contract::parse(&document.get()?.json)?;
        let operations = contract.paths.iter_members().flat_map(|(_, methods)| methods.iter_members());
        let credentials = operations.flat_map(|(_, operation)| &operation.security);
        let scopes = credentials.flat_map(|credential| credential.values().flatten()).cloned().collect();
        Ok(self.0.scopes.get_or_init(|| scopes))
    }
}
