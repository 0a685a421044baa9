//! What the features keep and for how long, beside what the kernel keeps. The log of deliveries is removed tenant by
//! tenant, by `features/webhooks/jobs.rs`.

use kernel::jobs::Retention;

use crate::features::{api_keys, sso};

pub const RETENTION: &[Retention] = &[
    // A secret that was replaced, until its overlap ends.
    Retention { sql: api_keys::store::CLEAN_SECRETS, before: |_, now| now },
    // A sign-on that was finished, until it would have expired by the clock of any node.
    Retention { sql: sso::CLEAN_USED_STATES, before: |_, now| now.plus(-sso::FLOW_MS) },
    // A sign-on that a node of before has begun, as long as its table is there.
    Retention { sql: sso::CLEAN_FLOWS, before: |_, now| now },
];
