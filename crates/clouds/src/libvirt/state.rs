//! States of domains, by libvirt's numbers, which no version changes.

use crate::MachineState;

/// `VIR_DOMAIN_SHUTOFF`, and the reasons of a domain that was defined and not started since: never tried, and failed.
const SHUTOFF: u32 = 5;
const SHUTOFF_UNKNOWN: i32 = 0;
const SHUTOFF_FAILED: i32 = 6;
/// `VIR_DOMAIN_PAUSED_STARTING_UP`
const PAUSED_STARTING_UP: i32 = 11;

/// The state, and libvirt's own word for it.
pub fn to_state(state: u32, reason: i32) -> (MachineState, &'static str) {
    match (state, reason) {
        (1, _) => (MachineState::Running, "running"),
        // It waits for a resource, and will go on.
        (2, _) => (MachineState::Running, "blocked"),
        (3, PAUSED_STARTING_UP) => (MachineState::Starting, "paused"),
        (3, _) => (MachineState::Suspended, "paused"),
        (4, _) => (MachineState::Stopping, "in shutdown"),
        (SHUTOFF, _) => (MachineState::Stopped, "shut off"),
        (6, _) => (MachineState::Failed, "crashed"),
        (7, _) => (MachineState::Suspended, "pmsuspended"),
        _ => (MachineState::Unknown, "no state"),
    }
}

/// Whether the domain is defined and was not started, as far as the host remembers.
pub fn is_unstarted(state: u32, reason: i32) -> bool {
    state == SHUTOFF && matches!(reason, SHUTOFF_UNKNOWN | SHUTOFF_FAILED)
}

/// Why a domain is off, where it is not by somebody's will.
pub fn find_reason(state: u32, reason: i32) -> Option<&'static str> {
    match (state, reason) {
        (SHUTOFF, 3) => Some("crashed"),
        (SHUTOFF, SHUTOFF_FAILED) => Some("failed to start"),
        (3, 5) => Some("paused after an error of its disk"),
        (6, 1) => Some("the guest's kernel panicked"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_counterpart_and_none_is_terminated() {
        let states: Vec<(MachineState, &str)> = (0..=9).map(|state| to_state(state, 0)).collect();
        assert_eq!(
            states,
            [
                (MachineState::Unknown, "no state"),
                (MachineState::Running, "running"),
                (MachineState::Running, "blocked"),
                (MachineState::Suspended, "paused"),
                (MachineState::Stopping, "in shutdown"),
                (MachineState::Stopped, "shut off"),
                (MachineState::Failed, "crashed"),
                (MachineState::Suspended, "pmsuspended"),
                (MachineState::Unknown, "no state"),
                (MachineState::Unknown, "no state"),
            ]
        );
        assert_eq!(to_state(3, 11).0, MachineState::Starting);
        assert_eq!(find_reason(5, 6), Some("failed to start"));
        assert_eq!((find_reason(5, 1), find_reason(1, 1)), (None, None));
        assert!(is_unstarted(5, 0) && is_unstarted(5, 6) && !is_unstarted(5, 2) && !is_unstarted(1, 0));
    }
}
