//! Every figure that is kept, with the number under which it is stored. A number is never given to another figure: old rows
//! would be read as the new one.

use super::{Cell, Dimension};

macro_rules! cells {
    ($($(#[$about:meta])* $name:ident = $number:literal;)*) => {
        $($(#[$about])* pub const $name: Cell = Cell($number);)*
        #[cfg(test)]
        const ALL: &[(&str, u8)] = &[$((stringify!($name), $number)),*];
    };
}

cells! {
    /// Requests to the API, with those that were refused.
    REQUESTS = 1;
    /// Answers with 4xx and 5xx but 429.
    ERRORS = 2;
    /// Answers with 429.
    THROTTLED = 3;
    LATENCY_US = 4;

    TICKETS_CREATED = 10;
    TICKETS_RESOLVED = 11;
    /// A level: tickets that are not resolved, closed or cancelled.
    TICKETS_OPEN = 12;
    FIRST_RESPONSE_MS = 13;
    RESOLUTION_MS = 14;
    SLA_MET = 15;
    SLA_MISSED = 16;
    /// Of a cohort: the tickets that were created then.
    BORN = 17;
    /// Of a cohort: those of them that are open.
    BORN_OPEN = 18;

    /// Levels: live devices, and those of each status.
    DEVICES = 30;
    DEVICES_ONLINE = 31;
    DEVICES_OFFLINE = 32;
    DEVICES_STALE = 33;
    DEVICES_ADDED = 34;
    DEVICES_REMOVED = 35;

    /// A level: machines that are not terminated.
    VMS = 40;
    // Levels by state.
    VMS_PROVISIONING = 41;
    VMS_STARTING = 42;
    VMS_RUNNING = 43;
    VMS_STOPPING = 44;
    VMS_STOPPED = 45;
    VMS_SUSPENDED = 46;
    VMS_REBOOTING = 47;
    VMS_TERMINATING = 48;
    VMS_FAILED = 49;
    VMS_UNKNOWN = 50;
    /// A level, by currency: what the machines cost in an hour, in millionths.
    SPEND_RATE = 52;
    /// What a rate that began or ended within a row would have cost from the start of the row to then, in seconds of the rate.
    SPEND_BEFORE_CHANGE = 53;

    BACKUPS_SUCCEEDED = 60;
    BACKUPS_WARNING = 61;
    BACKUPS_FAILED = 62;
    BACKUPS_MISSED = 63;
    /// Levels: devices whose backups are judged, and those of them that are protected.
    DEVICES_IN_SCOPE = 64;
    DEVICES_PROTECTED = 65;

    RUNS = 70;
    RUNS_SUCCEEDED = 71;
    RUNS_FAILED = 72;
    RUNS_CANCELLED = 73;
    RUN_DURATION_MS = 74;

    DELIVERED = 80;
    DELIVERIES_FAILED = 81;
    DELIVERY_LAG_MS = 82;

    SEARCHES = 90;
    SEARCHES_WITHOUT_RESULT = 91;
    SEARCH_LATENCY_US = 92;
}

/// Levels: the sum of all their changes is how things stand.
pub const LEVELS: [Cell; 18] = [
    TICKETS_OPEN,
    DEVICES,
    DEVICES_ONLINE,
    DEVICES_OFFLINE,
    DEVICES_STALE,
    VMS,
    VMS_PROVISIONING,
    VMS_STARTING,
    VMS_RUNNING,
    VMS_STOPPING,
    VMS_STOPPED,
    VMS_SUSPENDED,
    VMS_REBOOTING,
    VMS_TERMINATING,
    VMS_FAILED,
    VMS_UNKNOWN,
    DEVICES_IN_SCOPE,
    DEVICES_PROTECTED,
];

/// What is metered, and whose facts are kept for a short time only.
pub const METERED: [Cell; 7] =
    [REQUESTS, ERRORS, THROTTLED, LATENCY_US, SEARCHES, SEARCHES_WITHOUT_RESULT, SEARCH_LATENCY_US];

/// By API key; the empty member is that of sessions.
pub const KEY: Dimension = Dimension(1);
/// By method and path.
pub const ROUTE: Dimension = Dimension(2);
/// By tenant; of the platform alone.
pub const TENANT: Dimension = Dimension(3);
pub const CURRENCY: Dimension = Dimension(4);

/// The dimensions of cohorts are numbered from here.
const FIRST_OF_COHORTS: u8 = 64;
pub const STATUS: Dimension = Dimension(64);
pub const PRIORITY: Dimension = Dimension(65);
/// The empty member is that of tickets without an organization.
pub const ORGANIZATION: Dimension = Dimension(66);

impl Dimension {
    /// Whether records are counted by when they were created, and not by when something happened.
    pub const fn is_of_cohorts(self) -> bool {
        self.0 >= FIRST_OF_COHORTS
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn no_two_figures_have_one_number() {
        let numbers: BTreeMap<u8, &str> = ALL.iter().map(|(name, number)| (*number, *name)).collect();
        assert_eq!(numbers.len(), ALL.len(), "{ALL:?}");
    }
}
