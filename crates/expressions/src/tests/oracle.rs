//! Random expressions give the same result as with the evaluator of the crate `cel`, or fail in both.

use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::parser::PrattParser;
use cel::{Context, Env, extensions};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::{Value, json};

use super::super::ExpressionError;
use super::{eval_source_in, test_meter};

const SEED: [u8; 32] = *b"expressions are what cel makes.!";
const CASES: u32 = 1_500;
/// At least this many cases must end in a value, and as many in an error: otherwise the grammar covers too little.
const EACH_MIN: usize = 300;

/// The evaluator of `cel` appends a map's keys to a list, which CEL does not specify.
const KNOWN_DIFFERENCE: &str = "+ cannot take list and map";

/// Random bytes that make the choices; when none are left, the first choice is taken.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn pick_row<'t>(&mut self, rows: &[&'t str]) -> &'t str {
        rows[self.pick_below(rows.len())]
    }

    fn pick_below(&mut self, end: usize) -> usize {
        self.0.next().map_or(0, |choice| usize::from(*choice) % end)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum ExpressionKind {
    Bool,
    Number,
    Double,
    Text,
    Numbers,
    Texts,
    Map,
}

use ExpressionKind::{Bool, Double, Map as Object, Number, Numbers, Text, Texts};

const KINDS: [ExpressionKind; 7] = [Bool, Number, Double, Text, Numbers, Texts, Object];

fn leaf_expressions(kind: ExpressionKind) -> &'static [&'static str] {
    match kind {
        Bool => &["true", "false", "input.yes", "has(input.n)", "has(input.none)", "null", "input.missing"],
        Number => &[
            "1",
            "0",
            "2",
            "-3",
            "9223372036854775807",
            "input.n",
            "input.map.a",
            "2u",
            "0u",
            "1u",
            "input.big",
            "input.none",
        ],
        Double => &["1.5", "2.0", "-0.5", "0.0", "input.half", "input.whole", "1"],
        Text => &["'a'", "''", "'ab'", "'é,b'", "' a '", "input.text", "input.names[0]", "input.missing"],
        Numbers => &["[]", "[1, 2]", "[0, 1u, 2.0]", "input.list", "input.nothing", "[1, 'a', null]"],
        Texts => &["[]", "['a', 'b']", "input.names", "['é']", "['a', null]"],
        Object => &["{}", "input.map", "input.map.b", "{'a': 1}", "{1: 'a', true: 2}", "input", "input.people[1]"],
    }
}

struct Grammar<'a> {
    choices: Choices<'a>,
    names: Vec<(&'static str, ExpressionKind)>,
}

impl Grammar<'_> {
    /// An expression of this kind; one in sixteen is of another kind, so that type errors are covered too.
    fn expression_of(&mut self, kind: ExpressionKind, depth: usize) -> String {
        let other = if self.choices.pick_below(16) == 15 { KINDS[self.choices.pick_below(KINDS.len())] } else { kind };
        // Never a map for a list: the evaluator of `cel` iterates over keys in random order.
        let kind = if matches!(kind, Numbers | Texts) && other == Object { kind } else { other };
        let fitting: Vec<&str> = self.names.iter().filter(|(_, of)| *of == kind).map(|(name, _)| *name).collect();
        if depth == 0 {
            let leaves: Vec<&str> = leaf_expressions(kind).iter().copied().chain(fitting).collect();
            return self.choices.pick_row(&leaves).to_owned();
        }
        let depth = depth - 1;
        match (self.choices.pick_below(4), kind) {
            (0, _) => format!(
                "({} ? {} : {})",
                self.expression_of(Bool, depth),
                self.expression_of(kind, depth),
                self.expression_of(kind, depth)
            ),
            (1, _) if !fitting.is_empty() => self.choices.pick_row(&fitting).to_owned(),
            (_, Bool) => self.bool_expression(depth),
            (_, Number) => self.number_expression(depth),
            (_, Double) => {
                let form = self.choices.pick_below(4);
                match form {
                    0 => format!("double({})", self.expression_of(Number, depth)),
                    3 => format!(
                        "math.{}({})",
                        self.choices.pick_row(&["round", "ceil", "floor", "trunc", "abs", "sign", "sqrt"]),
                        self.expression_of(Double, depth)
                    ),
                    _ => self.binary_expression(&["+", "-", "*", "/"], Double, Double, depth),
                }
            }
            (_, Text) => self.text_expression(depth),
            (_, Numbers) => self.list_expression(Number, depth),
            (_, Texts) => self.list_expression(Text, depth),
            (_, Object) => {
                format!("{{'a': {}, 'b': {}}}", self.any_expression(depth), self.expression_of(Number, depth))
            }
        }
    }

    fn any_expression(&mut self, depth: usize) -> String {
        let kind = KINDS[self.choices.pick_below(KINDS.len())];
        self.expression_of(kind, depth)
    }

    fn binary_expression(&mut self, signs: &[&str], one: ExpressionKind, two: ExpressionKind, depth: usize) -> String {
        format!(
            "({} {} {})",
            self.expression_of(one, depth),
            self.choices.pick_row(signs),
            self.expression_of(two, depth)
        )
    }

    fn bool_expression(&mut self, depth: usize) -> String {
        const ORDERS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];
        let form = self.choices.pick_below(11);
        match form {
            0 => self.binary_expression(ORDERS, Number, Number, depth),
            1 => self.binary_expression(ORDERS, Number, Double, depth),
            2 => self.binary_expression(ORDERS, Text, Text, depth),
            3 => {
                let kind = KINDS[self.choices.pick_below(KINDS.len())];
                self.binary_expression(&["==", "!="], kind, kind, depth)
            }
            4 => self.binary_expression(&["&&", "||"], Bool, Bool, depth),
            5 => format!("!({})", self.expression_of(Bool, depth)),
            6 => self.binary_expression(&["in"], Number, Numbers, depth),
            7 => self.binary_expression(&["in"], Text, Object, depth),
            8 => {
                let call = self.choices.pick_row(&["contains", "startsWith", "endsWith"]);
                format!("{}.{call}({})", self.expression_of(Text, depth), self.expression_of(Text, depth))
            }
            9 => format!("has(({}).{})", self.expression_of(Object, depth), self.choices.pick_row(&["a", "b", "n"])),
            _ => {
                let call = self.choices.pick_row(&["all", "exists", "exists_one"]);
                self.loop_expression(call, Bool, depth)
            }
        }
    }

    fn number_expression(&mut self, depth: usize) -> String {
        let form = self.choices.pick_below(11);
        match form {
            0 => format!("size({})", self.any_expression(depth)),
            1 => format!("{}.indexOf({})", self.expression_of(Text, depth), self.expression_of(Text, depth)),
            2 => format!("{}({})", self.choices.pick_row(&["int", "uint", "dyn"]), self.expression_of(Double, depth)),
            3 => format!("{}[{}]", self.expression_of(Numbers, depth), self.expression_of(Number, 0)),
            4 => format!("{}.{}", self.expression_of(Object, depth), self.choices.pick_row(&["a", "b", "n"])),
            5 => format!("(-{})", self.expression_of(Number, depth)),
            8 => format!(
                "math.{}({})",
                self.choices.pick_row(&["abs", "sign", "bitNot"]),
                self.expression_of(Number, depth)
            ),
            9 => format!(
                "math.{}({}, {})",
                self.choices.pick_row(&["bitAnd", "bitOr", "bitXor", "bitShiftLeft", "bitShiftRight"]),
                self.expression_of(Number, depth),
                self.expression_of(Number, depth)
            ),
            10 => format!("{}.lastIndexOf({})", self.expression_of(Text, depth), self.expression_of(Text, depth)),
            _ => self.binary_expression(&["+", "-", "*", "/", "%"], Number, Number, depth),
        }
    }

    fn text_expression(&mut self, depth: usize) -> String {
        let form = self.choices.pick_below(11);
        match form {
            0 => format!("string({})", self.expression_of(Number, depth)),
            1 => format!(
                "{}.{}()",
                self.expression_of(Text, depth),
                self.choices.pick_row(&["lowerAscii", "upperAscii", "trim"])
            ),
            2 => format!("{}.join({})", self.expression_of(Texts, depth), self.expression_of(Text, 0)),
            3 => format!(
                "{}.replace({}, {})",
                self.expression_of(Text, depth),
                self.expression_of(Text, 0),
                self.expression_of(Text, 0)
            ),
            4 => format!(
                "{}.substring({})",
                self.expression_of(Text, depth),
                self.choices.pick_row(&["0", "1", "2", "1, 2", "2, 1"])
            ),
            5 => format!("{}[{}]", self.expression_of(Texts, depth), self.expression_of(Number, 0)),
            8 => format!("{}.reverse()", self.expression_of(Text, depth)),
            9 => format!("{}.charAt({})", self.expression_of(Text, depth), self.expression_of(Number, 0)),
            10 => format!("strings.quote({})", self.expression_of(Text, depth)),
            _ => self.binary_expression(&["+"], Text, Text, depth),
        }
    }

    fn list_expression(&mut self, of: ExpressionKind, depth: usize) -> String {
        let list = if of == Text { Texts } else { Numbers };
        let form = self.choices.pick_below(8);
        match form {
            0 => format!("[{}, {}]", self.expression_of(of, depth), self.expression_of(of, depth)),
            1 => self.binary_expression(&["+"], list, list, depth),
            2 if of == Text => {
                format!(
                    "{}.split({})",
                    self.expression_of(Text, depth),
                    self.choices.pick_row(&["','", "'a'", "''", "',', 1"])
                )
            }
            3 => self.loop_expression("filter", Bool, depth),
            5 => format!(
                "{}.{}()",
                self.expression_of(list, depth),
                self.choices.pick_row(&["reverse", "distinct", "sort"])
            ),
            6 => format!("[{}, {}].flatten()", self.expression_of(list, depth), self.expression_of(of, depth)),
            7 => format!(
                "{}.slice({})",
                self.expression_of(list, depth),
                self.choices.pick_row(&["0, 1", "1, 2", "0, 0", "1, 0", "0, 3"])
            ),
            _ => self.loop_expression("map", of, depth),
        }
    }

    fn loop_expression(&mut self, call: &str, body: ExpressionKind, depth: usize) -> String {
        let (list, element) = if self.choices.pick_below(2) == 0 { (Numbers, Number) } else { (Texts, Text) };
        let over = self.expression_of(list, depth);
        let name = ["x", "y", "z"][self.names.len() % 3];
        self.names.push((name, element));
        let body = self.expression_of(body, depth);
        self.names.pop();
        format!("{over}.{call}({name}, {body})")
    }
}

fn into_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(yes) => cel::Value::Bool(*yes),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => cel::Value::Int(int),
            (_, Some(uint)) => cel::Value::UInt(uint),
            _ => cel::Value::Float(number.as_f64().unwrap()),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(into_cel).collect())),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| (Key::String(Arc::new(key.clone())), into_cel(value)));
            cel::Value::Map(Map { map: Arc::new(entries.collect()) })
        }
    }
}

fn from_cel(value: &cel::Value) -> Option<Value> {
    Some(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(yes) => json!(yes),
        cel::Value::Int(int) => json!(int),
        cel::Value::UInt(uint) => json!(uint),
        cel::Value::Float(double) => Value::Number(serde_json::Number::from_f64(*double)?),
        cel::Value::String(text) => json!(**text),
        cel::Value::List(items) => Value::Array(items.iter().map(from_cel).collect::<Option<_>>()?),
        cel::Value::Map(map) => {
            let entries = map.map.iter().map(|(key, value)| Some((key.to_string(), from_cel(value)?)));
            Value::Object(entries.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

#[test]
fn random_expressions_mean_what_they_mean_to_cel() {
    // The evaluator of `cel` does not bound its use of the stack.
    std::thread::Builder::new().stack_size(64 << 20).spawn(compare_all).unwrap().join().unwrap();
}

fn compare_all() {
    let mut env = Env::stdlib();
    for extension in [extensions::strings, extensions::lists, extensions::math] {
        env.add_extension(extension).unwrap();
    }
    let env = Arc::new(env);
    let values = super::test_values();
    let mut shown = [0_usize; 2];
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &SEED));
    let tally = std::cell::RefCell::new(&mut shown);
    let result = runner.run(&vec(any::<u8>(), 60), |numbers| {
        let mut grammar = Grammar { choices: Choices(numbers.iter()), names: Vec::new() };
        let depth = 1 + grammar.choices.pick_below(4);
        let source = grammar.any_expression(depth);
        let ours = match eval_source_in(&source, &values, &mut test_meter()) {
            // The expression is longer than allowed, or exceeds the budget.
            Err(ExpressionError::Invalid { detail, .. }) if detail.contains("at most") => return Ok(()),
            Err(ExpressionError::Invalid { detail, .. }) => {
                return Err(TestCaseError::fail(format!("{source}: {detail}")));
            }
            Err(ExpressionError::BudgetExceeded) => return Ok(()),
            Err(ExpressionError::Failed { detail }) if detail.contains(KNOWN_DIFFERENCE) => return Ok(()),
            Err(ExpressionError::Failed { .. }) => None,
            Ok(value) => Some(value),
        };
        let parsed = PrattParser::new().parse(&source).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut context = Context::with_env(env.clone());
        context.add_variable_from_value("input", into_cel(&values["input"]));
        let theirs = cel::Value::resolve(&parsed, &context).ok().as_ref().and_then(from_cel);
        // `cel` sorts numbers of one type alone; those of JSON are of several.
        if theirs.is_none() && source.contains(".sort()") {
            return Ok(());
        }
        // Null has no fields in Go's implementation, and is an error to `cel`.
        if theirs.is_none() && source.contains("has(") {
            return Ok(());
        }
        tally.borrow_mut()[usize::from(ours.is_some())] += 1;
        if ours == theirs { Ok(()) } else { Err(TestCaseError::fail(format!("{source}: {ours:?}, cel {theirs:?}"))) }
    });
    match result {
        Ok(()) => {}
        Err(TestError::Abort(reason) | TestError::Fail(reason, _)) => panic!("{reason}"),
    }
    assert!(shown.iter().all(|count| *count >= EACH_MIN), "faults and values: {shown:?}");
}
