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
mod null_input;
pub mod request_headers;
pub mod schedule;
mod shared_codes;
pub mod subscription;
pub mod tags;
mod target_url;
mod terms;

pub use action::{Action, ActionEffect, Lookup, LookupFn, STEP_BYTES_MAX, TransactionFn};
pub use custom_event::{CUSTOM_KIND_BYTES_MAX, CUSTOM_KINDS, CUSTOM_NAME_BYTES_MAX, CUSTOM_PREFIX, is_custom_kind};
pub use feature::{EventFamily, Feature, Registry, install, registry};
pub use null_input::NullInput;
pub use shared_codes::{INVALID_TRANSITION, QUERY_TOO_BROAD};
pub use target_url::parse_target_url;
pub use terms::{
    IdOrNone, NO_ID, Q_CHARS_MAX, Q_WORDS_MAX, StoredWord, parse_q, parse_stored_q, split_words, stored_words,
};
