//! Analytics: how long the figures of a large tenant and of the platform take, and what keeping them costs requests and tickets.
//!
//! `load` fills a tenant and `fleet` a platform with sums as the product would have made them: `bodies` makes what a row holds,
//! `facts` what is not summed yet, `rows` writes both. `latency` asks.
//!
//! Deliberately left out: files (`format=csv`), adding up again (`admin analytics rebuild`), other time zones, and PostgreSQL.

mod bodies;
mod facts;
mod fleet;
mod grain;
mod latency;
mod load;
mod members;
pub mod metering;
pub mod platform;
mod rows;
pub mod tenant;
pub mod tickets;
