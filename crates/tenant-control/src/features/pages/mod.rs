//! Pages for people.
use axum::response::Html;
pub async fn home() -> Html<&'static str> { Html("") }
pub async fn rate_limits() -> Html<&'static str> { Html("") }
pub async fn errors() -> Html<&'static str> { Html("") }
pub async fn signin() -> Html<&'static str> { Html("") }
pub async fn overview() -> Html<&'static str> { Html("") }
pub async fn stylesheet() -> Html<&'static str> { Html("") }
