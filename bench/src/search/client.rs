//! The searched server, and a search as it is sent to it.

use std::fmt::Write;
use std::path::Path;

use crate::harness::Outcome;
use crate::server::Server;

const PATH: &str = "/api/search";
/// A budget that no load here can use up; those of the other policies are lifted already.
const NO_LIMIT: [&str; 2] = ["--rate-limit", "search=1000000000000"];

/// The release binary, which may be searched without a limit.
pub fn start(folder: &Path) -> Outcome<Server> {
    Server::start_with(folder, &NO_LIMIT)
}

/// A search as it is sent over a connection that is kept.
pub fn request(key: &str, q: &str) -> String {
    format!("GET {} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n", path(q))
}

pub fn path(q: &str) -> String {
    let mut path = format!("{PATH}?q=");
    for byte in q.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}
