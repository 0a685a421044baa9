mod bombs;
mod cel_parser;
mod corpus;
mod documented;
mod families;
mod faults;
mod function_bombs;
mod fuzz;
mod oracle;
mod patterns;
mod syntax;

use kernel::base::Timestamp;
use serde_json::{Value, json};

use super::{CostMeter, Expression, ExpressionError, ExpressionScope, SOURCE_BYTES_MAX};

/// The budget of a step's `with`.
fn test_meter() -> CostMeter {
    CostMeter::new(100_000, 1 << 20)
}

/// The values that all expressions here read.
fn test_values() -> Value {
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

fn eval_source_in(source: &str, values: &Value, meter: &mut CostMeter) -> Result<Value, ExpressionError> {
    let scope = ExpressionScope {
        input: &values["input"],
        event: &values["event"],
        steps: &values["steps"],
        run: &values["run"],
        // A Friday.
        now: Timestamp::from_millis(1_772_182_923_456),
        item: None,
    };
    Expression::parse(source)?.eval_to_json(&scope, meter)
}

fn eval_source(source: &str) -> Result<Value, ExpressionError> {
    eval_source_in(source, &test_values(), &mut test_meter())
}

/// Runs on a stack smaller than that of any thread in the server: a quarter of a worker's.
fn on_a_small_stack<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(512 << 10).spawn(what).unwrap().join().unwrap()
}
