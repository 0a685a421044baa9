//! What a change of a machine contributes to figures: pure, of how it is counted before and after.

use clouds::MachineState;
use figures::cells::{
    CURRENCY, SPEND_RATE, VMS, VMS_FAILED, VMS_PROVISIONING, VMS_REBOOTING, VMS_RUNNING, VMS_STARTING, VMS_STOPPED,
    VMS_STOPPING, VMS_SUSPENDED, VMS_TERMINATING, VMS_UNKNOWN,
};
use figures::{Cell, Fact, Group};
use kernel::base::Timestamp;

use super::VmCost;

/// How a machine is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedVm {
    pub state: MachineState,
    /// Whether it is in the list and not terminated.
    is_live: bool,
    /// The currency, and millionths of it for an hour.
    rate: Option<(String, i64)>,
}

impl CountedVm {
    /// One that has left the list counts nothing.
    pub fn new(state: MachineState, cost: Option<&VmCost>, is_listed: bool) -> Self {
        let is_live = is_listed && state != MachineState::Terminated;
        CountedVm { state, is_live, rate: cost.filter(|_| is_live).and_then(hourly_rate) }
    }
}

/// The hours of a month by which clouds compute their prices.
const MONTH_HOURS: f64 = 730.0;
const MILLIONTHS: f64 = 1_000_000.0;

fn hourly_rate(cost: &VmCost) -> Option<(String, i64)> {
    let hours = match cost.period.as_str() {
        "hour" => 1.0,
        "month" => MONTH_HOURS,
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, reason = "a cost is kept within bounds when it is read")]
    let rate = (cost.amount / hours * MILLIONTHS).round() as i64;
    (rate != 0).then(|| (cost.currency.clone(), rate))
}

/// The fact of a change; empty if no figure changes. `old` is none when the machine is new.
pub fn vm_fact(old: Option<&CountedVm>, new: &CountedVm, at: Timestamp) -> Fact {
    let mut fact = Fact::new(at.as_millis());
    for (counted, by) in old.map(|old| (old, -1)).into_iter().chain([(new, 1)]) {
        if counted.is_live {
            fact.add_count(VMS, by);
            fact.add_count(state_cell(counted.state), by);
        }
        if let Some((currency, rate)) = &counted.rate {
            fact.group_mut(Group::new(CURRENCY, currency.as_str())).add_count(SPEND_RATE, by * rate);
        }
    }
    fact
}

fn state_cell(state: MachineState) -> Cell {
    match state {
        MachineState::Provisioning => VMS_PROVISIONING,
        MachineState::Starting => VMS_STARTING,
        MachineState::Running => VMS_RUNNING,
        MachineState::Stopping => VMS_STOPPING,
        MachineState::Stopped => VMS_STOPPED,
        MachineState::Suspended => VMS_SUSPENDED,
        MachineState::Rebooting => VMS_REBOOTING,
        MachineState::Terminating => VMS_TERMINATING,
        MachineState::Failed => VMS_FAILED,
        // One that is terminated is not live.
        MachineState::Terminated | MachineState::Unknown => VMS_UNKNOWN,
    }
}
