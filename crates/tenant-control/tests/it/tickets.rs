//! `/api/psa/tickets`

mod broad;
mod promises;

pub const TICKETS: &str = "/api/psa/tickets";
