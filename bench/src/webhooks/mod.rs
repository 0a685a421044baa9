//! Sending webhooks, measured from outside: the release binary on an embedded store, receivers that this program
//! serves, and causes that come over HTTP as a client's would.
//!
//! Deliberately left out: TLS and names, which cost the same with any sender; and mostly PostgreSQL, where the disk is another
//! process's: it is measured where transactions wait for each other.

pub mod backlog;
mod bare;
pub mod causes;
pub mod hanging;
pub mod latency;
pub mod neighbours;
pub mod publish;
pub mod rate;
pub mod receipts;
pub mod sink;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kernel::outbound::{Outbound, OutboundSettings};
use rusqlite::Connection;
use serde_json::json;

use crate::harness::Outcome;
use crate::server::{Server, make_key_of, make_tenant, post};

/// The receivers are on this host, which the guard refuses otherwise.
const ALLOWED: &str = "127.0.0.0/8";

/// The release binary, allowed to call this host.
pub fn start(data: &Path, more: &[&str]) -> Outcome<Server> {
    Server::start_with(data, &[&["--webhook-allow-cidr", ALLOWED], more].concat())
}

/// A tenant with a key that may do everything.
pub struct Tenant {
    slug: String,
    pub key: String,
}

impl Tenant {
    pub fn make(server: &Server, data: &Path, slug: &str) -> Outcome<Self> {
        Ok(Tenant { slug: slug.to_owned(), key: make_key_of(server, data, slug)? })
    }

    /// The same where the records are not in the data folder, as `store` says.
    fn make_in(server: &Server, data: &Path, store: &[&str], slug: &str) -> Outcome<Self> {
        Ok(Tenant { slug: slug.to_owned(), key: make_tenant(server, data, store, slug)?.1 })
    }

    /// An endpoint for these kinds of events.
    fn subscribe(&self, server: &Server, events: &str, receiver: SocketAddr, path: &str) -> Outcome {
        let body = json!({"name": path, "url": format!("http://{receiver}/{path}"), "events": [events]});
        let made = post(server.address, "/api/admin/webhooks", &self.key, &body.to_string())?;
        if made.status == 201 { Ok(()) } else { Err(format!("no endpoint was made: {}", made.body).into()) }
    }

    /// Its id, from the database: no answer of the API tells it.
    fn id(&self, data: &Path) -> Outcome<String> {
        let id = "SELECT id FROM tenants WHERE slug = ?1";
        Ok(Connection::open(database(data))?.query_row(id, [&self.slug], |row| row.get(0))?)
    }
}

pub fn database(data: &Path) -> PathBuf {
    data.join("tenant-control.db")
}

/// The service's own client, allowed to call this host.
fn client() -> Outcome<Outbound> {
    Ok(Outbound::new(OutboundSettings { allow: vec![ALLOWED.parse()?], ..OutboundSettings::default() })?)
}
