//! A request, written as a sentence: `server.put(KEYS).cookie(&admin).json(&body).await`.
//!
//! Every answer is held against the OpenAPI document before the test sees it; see `contract.rs`.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::answer::Answer;
use super::server::Server;

pub struct Call<'a> {
    server: &'a Server,
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

impl Server {
    pub fn get(&self, target: impl Into<String>) -> Call<'_> {
        self.call(Method::GET, target)
    }

    pub fn head(&self, target: impl Into<String>) -> Call<'_> {
        self.call(Method::HEAD, target)
    }

    pub fn post(&self, target: impl Into<String>) -> Call<'_> {
        self.call(Method::POST, target)
    }

    pub fn put(&self, target: impl Into<String>) -> Call<'_> {
        self.call(Method::PUT, target)
    }

    pub fn patch(&self, target: impl Into<String>) -> Call<'_> {
        self.call(Method::PATCH, target)
    }

    pub fn delete(&self, target: impl Into<String>) -> Call<'_> {
        self.call(Method::DELETE, target)
    }

    /// `target` is the path with its query.
    pub fn call(&self, method: Method, target: impl Into<String>) -> Call<'_> {
        Call { server: self, method, target: target.into(), headers: HeaderMap::new(), body: None }
    }
}

impl Call<'_> {
    /// A header; given twice it is sent twice.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name: HeaderName = name.parse().expect("a header name");
        self.headers.append(name, HeaderValue::from_bytes(value.as_ref()).expect("a header value"));
        self
    }

    pub fn key(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    pub fn cookie(self, cookie: &str) -> Self {
        self.header("cookie", cookie)
    }

    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// A body as it is, without a type.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    async fn send(self) -> Answer {
        let url = format!("http://{}{}", self.server.address, self.target);
        let mut request = self.server.client.request(self.method.clone(), url).headers(self.headers);
        if let Some(body) = self.body {
            request = request.body(body);
        }
        let response =
            request.send().await.unwrap_or_else(|error| panic!("{} {}: {error:?}", self.method, self.target));
        let path = self.target.split(['?', '#']).next().unwrap_or_default().to_owned();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.expect("the whole answer").to_vec();
        let base_url = self.server.base_url().to_owned();
        let answer = Answer { method: self.method, path, status, headers, body, base_url };
        self.server.contract.check(&answer);
        answer
    }
}

impl<'a> IntoFuture for Call<'a> {
    type Output = Answer;
    type IntoFuture = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
