//! `/`: what the service is and where to start.

use askama::Template;
use axum::extract::State;
use kernel::base::Result;
use kernel::http::SharedApp;

use super::page::HtmlPage;

#[derive(Template)]
#[template(path = "home.html")]
struct Home<'a> {
    here: &'static str,
    base_url: &'a str,
}

pub async fn show_home(State(app): State<SharedApp>) -> Result<HtmlPage> {
    HtmlPage::new(&Home { here: "/", base_url: app.settings.base_url.as_str() })
}
