//! Random sources are refused or evaluated, and never panic. The parser of the crate `cel` agrees on which are refused.

use super::syntax::assert_same_syntax;
use super::{CostMeter, eval_source_in, on_a_small_stack, test_values};

/// In a debug build some thousands take a second.
const ROUNDS: usize = 3_000;

const TOKENS: &[&str] = &[
    "input",
    "event",
    "steps",
    "run",
    "now",
    "x",
    "y",
    ".",
    ".",
    ".",
    "(",
    ")",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ",",
    ":",
    "?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    " in ",
    "1",
    "0",
    "2u",
    "1.5",
    "'a'",
    "\"é\"",
    "null",
    "true",
    "size",
    "map",
    "filter",
    "all",
    "exists",
    "exists_one",
    "has",
    "matches",
    "'[a-z]+'",
    "split",
    "join",
    "replace",
    "substring",
    "int",
    "string",
    "duration",
    "timestamp",
    "'1h'",
    "getHours",
    "list",
    "n",
    "text",
    " ",
    "\n",
    "//",
    "b'x'",
    "r'\\'",
    "'''",
    "`a`",
    ".?",
    "@",
    "\\",
    "}}",
    "${{",
    "9223372036854775808",
    "-9223372036854775808",
    "0x",
    "1e999",
    "\\u",
    "'\\ud800'",
    "'\\777'",
    "cel.bind(",
    "optional.of",
    "optional.none()",
    "orValue",
    "optMap",
    "transformMap",
    "transformList",
    "sortBy",
    "sort()",
    "flatten",
    "format",
    "'%s'",
    "math.greatest",
    "lists.range",
    "ip",
    "'10.0.0.1'",
    "base64.encode",
    "bytes",
    "item",
    "index",
];

/// A generator with a fixed seed, so that a failure can be repeated.
pub struct FuzzRandom(pub u64);

impl FuzzRandom {
    pub fn next_below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

fn try_all(seed: u64, make: fn(&mut FuzzRandom) -> String) {
    on_a_small_stack(move || {
        let (values, mut random) = (test_values(), FuzzRandom(seed));
        for _ in 0..ROUNDS {
            let source = make(&mut random);
            let _ = eval_source_in(&source, &values, &mut CostMeter::new(2_000, 50_000));
            assert_same_syntax(&source);
        }
    });
}

#[test]
fn random_tokens_never_panic() {
    try_all(0x9E37_79B9_7F4A_7C15, |random| {
        let length = 1 + random.next_below(24);
        (0..length).map(|_| TOKENS[random.next_below(TOKENS.len())]).collect()
    });
}

#[test]
fn random_letters_never_panic() {
    const LETTERS: &[char] = &[
        '\0', '\n', ' ', '!', '"', '#', '$', '%', '&', '\'', '(', ')', '*', '+', ',', '-', '.', '/', '0', '1', '9',
        ':', ';', '<', '=', '>', '?', '@', 'A', 'L', 'b', 'e', 'r', 'u', 'x', '[', '\\', ']', '^', '_', '`', '{', '|',
        '}', '~', '\u{7f}', 'é', '\u{2028}', '😀',
    ];
    try_all(0xD1B5_4A32_D192_ED03, |random| {
        let length = random.next_below(40);
        (0..length).map(|_| LETTERS[random.next_below(LETTERS.len())]).collect()
    });
}

/// Valid expressions with a few changes get further than random text.
#[test]
fn right_expressions_with_a_change_never_panic() {
    const RIGHT: &[&str] = &[
        "cel.bind(x, input.list, x.transformMap(i, v, v > 1, [i, v]).?key.optMap(y, y.size()).orValue(0))",
        "'%s %.2f %x'.format([input.names.sort().reverse(), math.round(input.half), b'\\xff']).urlEncode()",
        "cidr('10.0.0.0/8').containsIP(input.?address.orValue('10.1.2.3')) ? [?input.?a].first() : optional.none()",
        "[[3], [1, 2]].flatten().sortBy(x, -x).transformList(i, x, lists.range(x).distinct()).slice(0, 1)",
        "input.list.map(x, x * 2).filter(y, y > 2).exists(z, z == 4) ? input.map['odd key'] : -1",
        "event.type.startsWith('ticket.') && 'vip' in event.data.tags || has(input.map.b.c)",
        "input.text.split(' ').map(w, w.substring(0, 1).upperAscii() + w.substring(1)).join(' ')",
        "now + duration('1h30m') > timestamp('2026-01-02T03:04:05Z') && now.getHours('Europe/Berlin') < 9",
        "{'a': [1, 2.5, 3u], 'b': {'c': null}}.a[0] + int('4') - size(input.names)",
        "input.text.matches(r'^h\\w+ [^x]*$') && steps.fetch.output.body.items.all(i, i.id != '')",
    ];
    try_all(0x2545_F491_4F6C_DD1D, |random| {
        let right = RIGHT[random.next_below(RIGHT.len())];
        change_letters(right, random)
    });
}

pub fn change_letters(source: &str, random: &mut FuzzRandom) -> String {
    let mut letters: Vec<char> = source.chars().collect();
    for _ in 0..=random.next_below(3) {
        if letters.is_empty() {
            break;
        }
        let (from, to) = (random.next_below(letters.len()), random.next_below(letters.len()));
        match random.next_below(4) {
            0 => drop(letters.remove(from)),
            1 => letters.swap(from, to),
            2 => letters.insert(from, letters[to]),
            _ => letters.extend_from_within(from.min(to)..from.max(to)),
        }
    }
    letters.into_iter().collect()
}
