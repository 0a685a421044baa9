//! The rules of runs written a second time, as plainly as they can be: every step in the order of the definition, which
//! is one in which nothing is needed before it is there.

use super::graph::{Condition, Does, Graph, Node};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    #[default]
    Skipped,
    Succeeded,
    Failed,
}

/// What became of a node, and what it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub end: End,
    /// Those that act; a fault of an expression is none.
    pub attempts: usize,
}

pub fn execute(graph: &Graph, retries_by_hand: usize) -> (&'static str, Vec<Outcome>) {
    let mut done = vec![Outcome::default(); graph.nodes.len()];
    visit(graph, &mut done, |_| true);
    for _ in 0..retries_by_hand {
        let before = done.clone();
        // What worked, and what was allowed to fail, stays as it is; what was skipped is judged anew.
        visit(graph, &mut done, |at| match before[at].end {
            End::Succeeded => false,
            End::Failed => !graph.nodes[at].may_fail,
            End::Skipped => true,
        });
    }
    (status(graph, &done), done)
}

fn visit(graph: &Graph, done: &mut [Outcome], wanted: impl Fn(usize) -> bool) {
    for (at, node) in graph.nodes.iter().enumerate() {
        if wanted(at) {
            let blocked = node.needs.iter().any(|need| match done[*need].end {
                End::Skipped => true,
                End::Failed => !graph.nodes[*need].may_fail,
                End::Succeeded => false,
            });
            done[at] = if blocked { Outcome { end: End::Skipped, ..done[at] } } else { run(node, done[at].attempts) };
        }
    }
}

/// `before` is how many attempts were made before somebody told it to try again.
fn run(node: &Node, before: usize) -> Outcome {
    match node.condition {
        Condition::False => return Outcome { end: End::Skipped, attempts: before },
        Condition::Fault => return Outcome { end: End::Failed, attempts: before },
        Condition::None | Condition::True => {}
    }
    let works = |attempt: usize| match &node.does {
        Does::Ticket | Does::Wait(_) => true,
        Does::Refused | Does::Fault => false,
        Does::Call(answers) => answers[attempt.min(answers.len() - 1)],
    };
    if node.does == Does::Fault {
        return Outcome { end: End::Failed, attempts: before };
    }
    for attempt in before..=before + node.retries {
        if works(attempt) {
            return Outcome { end: End::Succeeded, attempts: attempt + 1 };
        }
    }
    Outcome { end: End::Failed, attempts: before + node.retries + 1 }
}

fn status(graph: &Graph, done: &[Outcome]) -> &'static str {
    let failed = graph.nodes.iter().zip(done).any(|(node, outcome)| outcome.end == End::Failed && !node.may_fail);
    if failed {
        "failed"
    } else if done.iter().all(|outcome| outcome.end == End::Skipped) {
        "skipped"
    } else {
        "succeeded"
    }
}
