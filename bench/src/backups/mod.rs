//! Backups: what the report of a job costs, how quickly the customers of a large tenant are listed, and what the clock alone
//! costs an idle server.
//!
//! `data` has customers whose devices back up every night, `rows` their rows as the server writes them, `load` fills a store with
//! them.
//!
//! Deliberately left out: borg and other tools, whose reports are judged in the same way; reports that fail, and the events that
//! they publish; changes of policies; and PostgreSQL.

pub mod aggregate;
mod bare;
pub mod clock;
mod data;
pub mod ingest;
mod load;
mod report;
mod rows;
