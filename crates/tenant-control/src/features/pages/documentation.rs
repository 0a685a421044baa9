//! `/documentation/`: the first calls, and links to all documentation.

use askama::Template;
use axum::extract::State;
use kernel::base::Result;
use kernel::http::Shared;

use super::guides::{GUIDES, Guide};
use super::page::Page;

#[derive(Template)]
#[template(path = "documentation.html")]
struct Documentation<'a> {
    here: &'static str,
    base_url: &'a str,
    guides: &'static [Guide],
}

pub async fn documentation(State(app): State<Shared>) -> Result<Page> {
    let base_url = app.settings.base_url.as_str();
    Page::new(&Documentation { here: "/documentation/", base_url, guides: GUIDES })
}
