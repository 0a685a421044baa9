//! Requests to a cloud, as adapters describe them. The service sends them.

use std::fmt;
use std::pin::Pin;

/// One request. `Debug` shows neither headers nor body, which may hold credentials.
///
/// The transport adds `host` and `content-length`. `host` is signed for AWS: it must be the URL's, with the port only if
/// that is not the scheme's own.
pub struct CloudRequest {
    pub method: &'static str,
    /// Absolute; query included. Never has a secret in it.
    pub url: String,
    /// Lower-case names.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A body that was cut off may be given as it is: adapters notice. One page of machines of AWS can have 4 MB.
pub struct CloudResponse {
    pub status: u16,
    /// Lower-case names.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl CloudResponse {
    /// The value of a header, by its lower-case name.
    pub(crate) fn find_header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl fmt::Debug for CloudRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloudRequest({} {}, [redacted])", self.method, self.url)
    }
}

/// Answers may hold credentials, too: those of an assumed role, or the first password of a machine.
impl fmt::Debug for CloudResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloudResponse({}, {} bytes, [redacted])", self.status, self.body.len())
    }
}

/// Why there is no whole answer.
#[derive(Clone, Debug)]
pub struct TransportFailure {
    /// Whether the cloud may have received the request.
    pub may_have_arrived: bool,
    pub detail: String,
}

pub type TransportFuture<'a> = Pin<Box<dyn Future<Output = Result<CloudResponse, TransportFailure>> + Send + 'a>>;

/// Sends requests. Implemented by the service over its guarded client, and by tests.
pub trait Transport: Send + Sync {
    fn send(&self, request: CloudRequest) -> TransportFuture<'_>;
}
