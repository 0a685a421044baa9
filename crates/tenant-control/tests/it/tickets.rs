//! `/api/psa/tickets`

pub const TICKETS: &str = "/api/psa/tickets";
