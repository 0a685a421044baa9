//! `cel.bind` names a value.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows};

#[test]
fn a_value_is_named_for_one_expression() {
    assert_rows(&[
        Gives("cel.bind(x, input.n + 1, x * x)", json!(9)),
        Gives("cel.bind(a, 'a', cel.bind(b, a + 'b', b + a))", json!("aba")),
        Gives("cel.bind(x, [1, 2], [2, 3].filter(y, y in x))", json!([2])),
        Gives("[1, 2].map(x, cel.bind(y, x * 10, y + x))", json!([11, 22])),
        Gives("cel.bind(x, 1, cel.bind(x, x + 1, x + 1))", json!(3)),
        Gives("cel.bind(x, [1, 2].map(y, y * 2), [10].map(y, x[0] + y)[0])", json!(12)),
        Gives("[5].map(y, cel.bind(x, [1].map(z, z + y), [7].map(z, x[0] + z)))", json!([[13]])),
        Refused("cel.bind(x, 1, x) + x", "There is no x"),
        Refused("cel.bind(x.y, 1, 2)", "simple name"),
    ]);
}

/// As in `cel-go`, where a value that is not read is not missed.
#[test]
fn a_value_is_evaluated_when_it_is_read_and_once() {
    assert_rows(&[
        Gives("cel.bind(x, 1 / 0, 2)", json!(2)),
        Gives("cel.bind(x, 1 / 0, x == 1 || true)", json!(true)),
        Gives("cel.bind(x, input.missing, has(input.missing) ? x : 'none')", json!("none")),
        Fails("cel.bind(x, 1 / 0, x)", "divided by zero"),
        Fails("cel.bind(x, 1 / 0, [1].map(y, x))", "divided by zero"),
    ]);
    let values = super::super::test_values();
    let steps = |source: &str| {
        (1_u32..1_000).find(|steps| {
            let mut meter = super::super::CostMeter::new(*steps, 1 << 20);
            super::super::eval_source_in(source, &values, &mut meter).is_ok()
        })
    };
    let (once, five_times) = (steps("cel.bind(x, 1 + 2 + 3, x)"), steps("cel.bind(x, 1 + 2 + 3, [x, x, x, x, x])"));
    assert_eq!(five_times.unwrap() - once.unwrap(), 5, "a step for the list, and one for each further x");
}
