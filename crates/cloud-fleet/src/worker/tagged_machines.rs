//! The machines of a sync that carry the tag of an order. A tag can be copied, and a copy cannot be told from the machine that
//! was ordered; so which of them is the order's is decided when all of them are known.

use std::collections::{BTreeMap, HashMap, HashSet};

use clouds::Machine;

#[derive(Default)]
pub struct TaggedMachines {
    /// The ids of the machines with each tag.
    carriers: HashMap<String, HashSet<String>>,
    /// Those that are not stored yet, by id: a list that moves while it is read may show one twice.
    new: BTreeMap<String, Machine>,
}

impl TaggedMachines {
    /// Counts the machines that carry a tag.
    pub fn count_carriers(&mut self, machines: &[Machine]) {
        for machine in machines {
            if let Some(operation) = &machine.operation_id {
                self.carriers.entry(operation.clone()).or_default().insert(machine.external_id.clone());
            }
        }
    }

    /// Takes the new machines that carry a tag, and returns the others.
    pub fn take_tagged(&mut self, new: Vec<Machine>) -> Vec<Machine> {
        let (tagged, others): (Vec<Machine>, Vec<Machine>) =
            new.into_iter().partition(|machine| machine.operation_id.is_some());
        self.new.extend(tagged.into_iter().map(|machine| (machine.external_id.clone(), machine)));
        others
    }

    /// The new machines. One that shares its tag with another is not taken for that of the order: somebody has to say which
    /// of them is.
    pub fn into_new_machines(self) -> Vec<Machine> {
        let is_shared = |operation: &String| self.carriers.get(operation).is_some_and(|ids| ids.len() > 1);
        let of_one = |mut machine: Machine| {
            machine.operation_id = machine.operation_id.filter(|operation| !is_shared(operation));
            machine
        };
        self.new.into_values().map(of_one).collect()
    }
}
