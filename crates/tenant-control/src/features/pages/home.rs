//! `/`: what the service is and where to start.

use askama::Template;
use axum::extract::State;
use kernel::base::Result;
use kernel::http::Shared;

use super::page::Page;

#[derive(Template)]
#[template(path = "home.html")]
struct Home<'a> {
    here: &'static str,
    base_url: &'a str,
}

pub async fn home(State(app): State<Shared>) -> Result<Page> {
    Page::new(&Home { here: "/", base_url: app.settings.base_url.as_str() })
}
