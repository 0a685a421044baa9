//! What a feature of Tenant Control declares of itself ([`Feature`]), and what features share: parts of records, the words of
//! `q`, event subscriptions, headers of outbound requests.
//!
//! Features depend on this crate and on the kernel; neither knows any feature. The product installs the list of its features
//! once, at the start ([`install`]). The [`Registry`] holds what all of them declare.

mod action;
mod custom_event;
pub mod custom_fields;
mod event_catalogue;
mod feature;
pub mod request_headers;
pub mod subscription;
pub mod tags;
mod target_url;
mod terms;

use kernel::base::Code;

pub use action::{Action, ActionEffect, Lookup, LookupFn, STEP_BYTES_MAX, TransactionFn};
pub use custom_event::{CUSTOM_KIND_BYTES_MAX, CUSTOM_KINDS, CUSTOM_NAME_BYTES_MAX, CUSTOM_PREFIX, is_custom_kind};
pub use feature::{EventFamily, Feature, Registry, install, registry};
pub use target_url::parse_target_url;
pub use terms::{IdOrNone, NO_ID, Q_CHARS_MAX, Q_WORDS_MAX, is_word_prefix, parse_q, split_words, word_set};

/// How a body treats null in a field with a default. `IsLeftOut` (create): null is refused unless the field is nullable.
/// `Clears` (patch): null restores the default.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NullField {
    IsLeftOut,
    Clears,
}

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
/// Error codes that several features use.
const SHARED_CODES: &[Code] = &[QUERY_TOO_BROAD, INVALID_TRANSITION];
