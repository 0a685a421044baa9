//! Error codes that several features use.

use kernel::base::Code;

pub const QUERY_TOO_BROAD: Code = Code::new(
    400,
    "query_too_broad",
    "No index can answer this combination of filters and order",
    "Too many records would have to be checked one by one. The detail names a filter to add.",
    "More than 10000 tickets would have to be checked one by one. Add a filter: organization_id.",
);
pub const INVALID_TRANSITION: Code = Code::new(
    409,
    "invalid_transition",
    "The record cannot go from its status to that one",
    "The detail names the statuses that can follow. Nothing of the request was applied.",
    "A ticket that is closed cannot become pending. It can become: open.",
);

pub const SHARED_CODES: &[Code] = &[QUERY_TOO_BROAD, INVALID_TRANSITION];
