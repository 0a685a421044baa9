//! Compression of answers for clients that accept it. Small answers are not compressed.

use std::convert::Infallible;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::ACCEPT_ENCODING;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

/// Below this size gzip costs more than it saves.
const COMPRESS_BYTES_MIN: u64 = 1024;

/// The `Accept-Encoding` headers of a request.
pub(super) struct AcceptedEncodings(Vec<HeaderValue>);

impl AcceptedEncodings {
    pub fn from_headers(headers: &HeaderMap) -> Self {
        AcceptedEncodings(headers.get_all(ACCEPT_ENCODING).iter().cloned().collect())
    }

    pub fn none() -> Self {
        AcceptedEncodings(Vec::new())
    }
}

/// Compresses the answer if it is large enough and the client accepts an encoding.
pub(super) async fn compress_response(response: Response, encodings: AcceptedEncodings) -> Response {
    if response.body().size_hint().upper().is_some_and(|bytes| bytes < COMPRESS_BYTES_MIN) {
        return response;
    }
    let mut request = Request::new(Body::empty());
    for encoding in encodings.0 {
        request.headers_mut().append(ACCEPT_ENCODING, encoding);
    }
    // A client that accepts neither gzip nor identity gets the uncompressed answer with its own status.
    let status = response.status();
    let mut answer = Some(response);
    let service = service_fn(move |_| std::future::ready(Ok::<_, Infallible>(answer.take().unwrap_or_default())));
    let layer =
        CompressionLayer::new().compress_when(SizeAbove::new(COMPRESS_BYTES_MIN).and(NotForContentType::IMAGES));
    match layer.layer(service).oneshot(request).await {
        Ok(mut response) => {
            *response.status_mut() = status;
            response.into_response()
        }
        Err(never) => match never {},
    }
}
