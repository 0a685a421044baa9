//! `/documentation/`: the first calls, and links to all documentation.

use askama::Template;
use axum::extract::State;
use kernel::base::Result;
use kernel::http::SharedApp;

use super::guides::{GUIDES, Guide};
use super::page::HtmlPage;

#[derive(Template)]
#[template(path = "documentation.html")]
struct Documentation<'a> {
    here: &'static str,
    base_url: &'a str,
    guides: &'static [Guide],
}

pub async fn show_documentation(State(app): State<SharedApp>) -> Result<HtmlPage> {
    let base_url = app.settings.base_url.as_str();
    HtmlPage::new(&Documentation { here: "/documentation/", base_url, guides: GUIDES })
}
