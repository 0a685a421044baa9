//! A fleet of machines whose truth is known: clones, docks, reinstallations, new mainboards and two customers.

use std::collections::HashMap;

use serde_json::Value;

use crate::support::devices::{Agent, IngestKey, reported};
use crate::support::{Server, over_http};

use super::all;

const DOCKS: [&str; 2] = ["00:50:b6:00:00:01", "00:50:b6:00:00:02"];
const HOSTNAMES: [&str; 3] = ["DC01", "LAPTOP", "WEB01"];
const STEPS: usize = 120;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("it fits") % end
    }
}

/// A real machine.
#[derive(Clone)]
struct Machine {
    customer: usize,
    agent: Agent,
    /// Its own card, without docks.
    mac: String,
    /// Whether it shares its agent's id with another.
    is_clone: bool,
}

fn unique_mac(n: usize) -> String {
    format!("ac:1f:6b:{:02x}:{:02x}:{:02x}", n >> 16 & 255, n >> 8 & 255, n & 255)
}

fn unique_uuid(n: usize) -> String {
    format!("4c4c4544-0042-3310-8051-{:012x}", 0xb4c0_4f4e_0000_u64 + n as u64)
}

/// The memory tells which machine a device was last reported by: no two have the same.
fn build(dice: &mut Dice, n: usize, customer: usize) -> Machine {
    let hostname = HOSTNAMES[dice.below(3)];
    let mac = unique_mac(n);
    let mut agent = Agent::named(hostname).device_id(&format!("{hostname}-{n}")).macs(&[&mac]);
    agent = agent.uuid(&unique_uuid(n)).serial(&format!("SRL{n:04}X"));
    agent.memory_mib = 1_000 + n as i64;
    Machine { customer, agent, mac, is_clone: false }
}

fn build_anywhere(dice: &mut Dice, n: usize) -> Machine {
    let customer = dice.below(2);
    build(dice, n, customer)
}

/// Something happens to a machine, or a new one comes. The machine that must report before anything else happens to it.
fn change(dice: &mut Dice, machines: &mut Vec<Machine>, next: &mut usize) -> Option<usize> {
    *next += 1;
    let n = *next;
    let at = dice.below(machines.len());
    match dice.below(7) {
        0 => {
            let made = build_anywhere(dice, n);
            machines.push(made);
        }
        // The image of a machine, agent and all, on other hardware; for the other customer, too.
        1 => {
            let of = machines[at].clone();
            let mut made = build_anywhere(dice, n);
            made.agent.device_id.clone_from(&of.agent.device_id);
            made.agent.hostname.clone_from(&of.agent.hostname);
            made.is_clone = true;
            machines[at].is_clone = true;
            machines.push(made);
        }
        // Docked, or not.
        2 => {
            let (mac, dock) = (machines[at].mac.clone(), DOCKS[dice.below(2)]);
            let agent = machines[at].agent.clone();
            machines[at].agent = if dice.below(2) == 0 { agent.macs(&[&mac, dock]) } else { agent.macs(&[&mac]) };
        }
        // Another installation of the agent.
        3 => {
            machines[at].agent.device_id = format!("reinstalled-{n}");
            machines[at].is_clone = false;
        }
        // A new mainboard: other UUID and card, the same serial number. A clone's would be nobody's any more.
        4 if !machines[at].is_clone
            && machines[at].agent.serial.as_deref().is_some_and(|text| text.starts_with("SRL")) =>
        {
            let mac = unique_mac(n);
            machines[at].agent = machines[at].agent.clone().macs(&[&mac]).uuid(&unique_uuid(n));
            machines[at].mac = mac;
            return Some(at);
        }
        // What its maker left in the place of a serial number is in every machine.
        5 => {
            let serial = ["To Be Filled By O.E.M.", "12345", "$(DEFAULT_STRING)"][dice.below(3)];
            let mut made = build_anywhere(dice, n);
            made.agent.serial = Some(serial.to_owned());
            machines.push(made);
        }
        _ => {
            HOSTNAMES[dice.below(3)].clone_into(&mut machines[at].agent.hostname);
        }
    }
    None
}

async fn play(server: &Server, slug: &str, seed: u64) {
    let acme = server.tenant(slug).await;
    let mut keys: Vec<IngestKey> = Vec::new();
    for customer in ["globex", "initech"] {
        keys.push(server.bound_ingest_key(&acme, customer).await.1);
    }
    let mut dice = Dice(seed);
    let (mut machines, mut next) = (vec![build(&mut dice, 0, 0)], 0);
    // Which machine each device has been, by their ids and memories.
    let mut owners: HashMap<String, i64> = HashMap::new();
    let mut homes: HashMap<i64, String> = HashMap::new();
    for step in 0..STEPS {
        let urgent = if dice.below(2) == 0 { change(&mut dice, &mut machines, &mut next) } else { None };
        let machine = machines[urgent.unwrap_or_else(|| dice.below(machines.len()))].clone();
        reported(server, &keys[machine.customer], &machine.agent.fusion()).await;
        let memory = machine.agent.memory_mib;
        let devices = all(server, &acme).await;
        let own: Vec<&Value> = devices.iter().filter(|one| one["memory_bytes"] == memory << 20).collect();
        let about = format!("seed {seed}, step {step}: {:?}", machine.agent);
        assert_eq!(own.len(), 1, "a machine is one device; {about}\n{own:#?}");
        let id = own[0]["id"].as_str().expect("an id").to_owned();
        let owner = *owners.entry(id.clone()).or_insert(memory);
        assert_eq!(owner, memory, "two machines became one device; {about}");
        let home = homes.entry(memory).or_insert_with(|| id.clone());
        assert_eq!(*home, id, "a machine moved to another device; {about}");
        assert_eq!(
            own[0]["serial_number"].is_string(),
            machine.agent.serial.as_deref().is_none_or(|text| text.starts_with("SRL"))
        );
    }
    assert_eq!(owners.len(), homes.len());
}

over_http! {
    async fn no_two_machines_become_one_and_no_machine_becomes_two(server: Server) {
        for seed in 1..=3 {
            play(&server, &format!("fleet-{seed}"), seed).await;
        }
    }
}
