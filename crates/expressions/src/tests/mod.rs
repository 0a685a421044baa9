mod bombs;
mod corpus;
mod faults;
mod fuzz;
mod oracle;

use kernel::base::Timestamp;
use serde_json::{Value, json};

use super::{Expression, Fault, Meter, Scope};

/// The budget of a step's `with`.
fn meter() -> Meter {
    Meter::new(100_000, 1 << 20)
}

/// The values that all expressions here read.
fn world() -> Value {
    json!({
        "input": {
            "n": 2, "big": 18_446_744_073_709_551_615_u64, "half": 0.5, "whole": 3.0, "text": "héllo wörld", "yes": true,
            "none": null, "list": [1, 2, 3], "names": ["ada", "bob", "eve"], "empty": {}, "nothing": [],
            "map": {"a": 1, "b": {"c": [true, "x"]}, "odd key": 7},
            "people": [{"name": "ada", "age": 36}, {"name": "bob"}],
            "template": "${{ input.n }}"
        },
        "event": {"type": "ticket.created", "data": {"priority": "high", "tags": ["vip", "disk"]}},
        "steps": {"fetch": {"output": {"status": 200, "body": {"items": [{"id": "a"}, {"id": "b"}]}}, "status": "succeeded"}},
        "run": {"id": "run_1", "depth": 1},
    })
}

fn eval_in(source: &str, world: &Value, meter: &mut Meter) -> Result<Value, Fault> {
    let scope = Scope {
        input: &world["input"],
        event: &world["event"],
        steps: &world["steps"],
        run: &world["run"],
        // A Friday.
        now: Timestamp::from_millis(1_772_182_923_456),
    };
    Expression::parse(source)?.eval(&scope, meter)
}

fn eval(source: &str) -> Result<Value, Fault> {
    eval_in(source, &world(), &mut meter())
}

/// Runs on a stack smaller than that of any thread in the server: a quarter of a worker's.
fn on_a_small_stack<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(512 << 10).spawn(what).unwrap().join().unwrap()
}
