//! What `read` is measured against: an axum route that knows nobody, counts nothing and logs nothing.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::harness::{Outcome, runtime};

pub const PATH: &str = "/api/auth/session";

/// Serves a JSON text of that many bytes until the process is ended. The first line printed is the address.
pub fn run(bytes: usize) -> Outcome {
    let body: &'static str = format!("\"{}\"", "x".repeat(bytes.saturating_sub(2))).leak();
    runtime()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let answer = async move || ([(CONTENT_TYPE, "application/json")], body).into_response();
        let router: Router = Router::new().route(PATH, get(answer));
        Ok(axum::serve(listener, router).await?)
    })
}
