//! `/api/psa/tickets`

mod promises;

pub const TICKETS: &str = "/api/psa/tickets";
