//! Tickets, measured from outside: how fast they are made, and whether finding them stays as fast when there are ten
//! million of them.
//!
//! Deliberately left out: what becomes of a ticket after it was made, and lists on PostgreSQL.

pub mod bare;
pub mod client;
pub mod create;
pub mod create_postgres;
pub mod data;
pub mod follow;
pub mod lists;
pub mod load;
pub mod new;
mod queries;
mod vocabulary;

const PATH: &str = "/api/psa/tickets";
