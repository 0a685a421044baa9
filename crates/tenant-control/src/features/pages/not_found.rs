//! What a browser is shown where there is nothing.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::page::Page;

#[derive(Template)]
#[template(path = "not_found.html")]
struct NotFound {
    here: &'static str,
}

pub fn not_found() -> Response {
    Page::new(&NotFound { here: "" }).map(|page| page.status(StatusCode::NOT_FOUND)).into_response()
}
