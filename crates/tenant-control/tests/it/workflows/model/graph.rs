//! Random graphs, and the definitions they stand for.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy};
use proptest::sample::select;
use proptest::{option, prop_oneof};
use serde_json::{Value, json};

use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::workflows::{Step, get, manual, step, ticket, wait};

/// As many as one lane has under way at once, and more.
const GRAPHS: std::ops::Range<usize> = 1..17;
const STEPS: std::ops::Range<usize> = 1..9;

#[derive(Clone, Debug)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub then: Then,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub does: Does,
    pub condition: Condition,
    /// Places of earlier nodes.
    pub needs: Vec<usize>,
    pub retries: usize,
    pub may_fail: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    Ticket,
    /// A comment on a ticket that is not there.
    Refused,
    /// Whether each attempt is answered well; the last counts for all that follow.
    Call(Vec<bool>),
    Wait(i64),
    /// An expression in it fails.
    Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    True,
    False,
    Fault,
}

/// What somebody does to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Nothing,
    /// While the request of this node is under way, if it ever is.
    CancelAt(usize),
    /// Each time that it has failed, up to so often.
    Retry(usize),
}

pub fn batch() -> impl Strategy<Value = Vec<Graph>> {
    vec(graph(), GRAPHS)
}

fn graph() -> impl Strategy<Value = Graph> {
    let then = prop_oneof![3 => Just(None), 2 => Just(Some(false)), 2 => Just(Some(true))];
    (vec((node(), vec(0..8_usize, 0..3)), STEPS), then, 0..8_usize).prop_map(|(drawn, then, place)| {
        let place = place % drawn.len();
        let mut nodes = Vec::with_capacity(drawn.len());
        for (at, (mut node, needs)) in drawn.into_iter().enumerate() {
            node.needs = needs.into_iter().filter(|need| *need < at).collect();
            node.needs.sort_unstable();
            node.needs.dedup();
            nodes.push(node);
        }
        let then = match then {
            None => Then::Nothing,
            Some(false) => {
                nodes.iter_mut().for_each(Node::end_well);
                Then::Retry(1 + place % 2)
            }
            Some(true) => {
                nodes[place].does = Does::Call(vec![true]);
                if matches!(nodes[place].condition, Condition::False | Condition::Fault) {
                    nodes[place].condition = Condition::None;
                }
                Then::CancelAt(place)
            }
        };
        Graph { nodes, then }
    })
}

fn node() -> impl Strategy<Value = Node> {
    let does = prop_oneof![
        5 => Just(Does::Ticket),
        2 => Just(Does::Refused),
        5 => vec(select(vec![false, false, true]), 1..5).prop_map(Does::Call),
        2 => (1..5_i64).prop_map(Does::Wait),
        1 => Just(Does::Fault),
    ];
    let condition =
        option::weighted(0.3, select(vec![Condition::True, Condition::False, Condition::False, Condition::Fault]));
    (does, condition, 0..3_usize, select(vec![false, false, true])).prop_map(|(does, condition, retries, may_fail)| {
        let condition = condition.unwrap_or(Condition::None);
        Node { does, condition, needs: Vec::new(), retries, may_fail }
    })
}

impl Graph {
    /// `name` is the graph's own, so that its tickets and requests are known.
    pub fn definition(&self, receiver: &Receiver, name: &str) -> Value {
        manual(self.nodes.iter().enumerate().map(|(at, node)| node.step(at, receiver, name)))
    }

    /// Tells the receiver what to do, and hands over the gate at which a request is held.
    pub fn prepare(&self, receiver: &Receiver, name: &str) -> Option<Gate> {
        let mut gate = None;
        for (at, node) in self.nodes.iter().enumerate() {
            let Does::Call(answers) = &node.does else { continue };
            let path = path(name, at);
            if self.then == Then::CancelAt(at) {
                let held = gate.insert(Gate::closed());
                receiver.on(&path, [Behaviour::Hold(held.clone())]);
            } else {
                receiver.on(&path, answers.iter().map(|good| Behaviour::Answer(if *good { 204 } else { 500 })));
            }
        }
        gate
    }
}

impl Node {
    /// What fails does so for some time: to try again is of use.
    fn end_well(&mut self) {
        match &mut self.does {
            Does::Refused => self.does = Does::Call(vec![false, false, true]),
            Does::Call(answers) => answers.push(true),
            Does::Ticket | Does::Wait(_) | Does::Fault => {}
        }
    }

    fn step(&self, at: usize, receiver: &Receiver, name: &str) -> Step {
        let id = id(at);
        let refused =
            json!({"ticket_id": "${{ 'tkt_01jd8z6v2mfkpb7h3q9xw5t4ra' }}", "body": "Hello.", "public": false});
        let mut step = match &self.does {
            Does::Ticket => ticket(&id, &subject(name, at)),
            Does::Refused => step(&id, "ticket.comment", refused),
            Does::Call(_) => get(&id, &receiver.url(&path(name, at))),
            Does::Wait(seconds) => wait(&id, *seconds),
            Does::Fault => ticket(&id, "${{ input.nothing }}"),
        };
        step = match self.condition {
            Condition::None => step,
            Condition::True => step.when("input.size() == 0"),
            Condition::False => step.when("input.size() > 0"),
            Condition::Fault => step.when("input.nothing == 1"),
        };
        if self.may_fail {
            step = step.or_continue();
        }
        let needs: Vec<String> = self.needs.iter().map(|need| self::id(*need)).collect();
        let retries = i64::try_from(self.retries).unwrap();
        step.needs(&needs.iter().map(String::as_str).collect::<Vec<_>>()).retry(retries, 1)
    }
}

pub fn id(at: usize) -> String {
    format!("s{at}")
}

pub fn subject(name: &str, at: usize) -> String {
    format!("{name} {at}")
}

pub fn path(name: &str, at: usize) -> String {
    format!("/{name}/{at}")
}
