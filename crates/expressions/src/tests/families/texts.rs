//! Functions on texts, which count characters.

use serde_json::json;

use super::{Fails, Gives, assert_rows, assert_true};

#[test]
fn parts_are_found_from_both_ends() {
    assert_rows(&[
        Gives("'añob'.indexOf('ob') + 'añob'.indexOf('x')", json!(1)),
        Gives("'ababab'.indexOf('ab', 1)", json!(2)),
        Gives("'ababab'.lastIndexOf('ab')", json!(4)),
        Gives("'ababab'.lastIndexOf('ab', 3)", json!(2)),
        Gives("'xyxyxy'.lastIndexOf('yx', 3)", json!(3)),
        Gives("'aéaé'.lastIndexOf('é', 2)", json!(1)),
        Gives("'aéaé'.lastIndexOf('aé', 1)", json!(0)),
        Gives("'abc'.lastIndexOf('') + 'abc'.lastIndexOf('', 1)", json!(4)),
        Gives("''.lastIndexOf('a') + 'a'.lastIndexOf('abc')", json!(-2)),
        Gives("'abc'.indexOf('', 2)", json!(2)),
        Fails("'abc'.indexOf('a', -1)", "beyond the text"),
        Fails("'abc'.lastIndexOf('a', -1)", "beyond the text"),
        Fails("'abc'.lastIndexOf('a', 9)", "beyond the text"),
        Fails("'abc'.indexOf(1)", "indexOf cannot take (string, int)"),
        Fails("1.indexOf('a')", "indexOf cannot take (int, string)"),
    ]);
}

#[test]
fn characters_are_taken_turned_and_quoted() {
    assert_rows(&[
        Gives("'aéc'.charAt(1) + 'aéc'.charAt(3)", json!("é")),
        Gives("'aéc'.reverse() + ''.reverse()", json!("céa")),
        Gives("'héllo'.substring(1, 2) + 'héllo'.substring(5)", json!("é")),
        Gives(r#"strings.quote("a\"b\\c\n\té\a\b\f\r\v")"#, json!(r#""a\"b\\c\n\té\a\b\f\r\v""#)),
        Gives("strings.quote('')", json!("\"\"")),
        Gives(r"'\u2003\u0085a\u00a0'.trim()", json!("a")),
        Gives(r"'\u200ba'.trim().size()", json!(2)),
        Fails("'abc'.charAt(4)", "beyond the text"),
        Fails("'abc'.charAt(-1)", "beyond the text"),
        Fails("'abc'.charAt('a')", "charAt cannot take (string, string)"),
        Fails("'abc'.substring(2, 1)", "beyond the text"),
        Fails("strings.quote(1)", "strings.quote cannot take (int)"),
    ]);
}

#[test]
fn texts_are_split_joined_and_replaced() {
    assert_rows(&[
        Gives("'a-b-c'.split('-', 2)", json!(["a", "b-c"])),
        Gives("'aé'.split('')", json!(["a", "é"])),
        Gives("['a', 'b'].join('; ') + [].join()", json!("a; b")),
        Gives("'aaa'.replace('a', 'b', 2) + 'aaa'.replace('a', 'b', -1)", json!("bbabbb")),
        Fails("[1].join()", "a list of texts"),
        Fails("'a'.split(1)", "split cannot take (string, int)"),
    ]);
    assert_true(&[
        "'Straße'.contains('aß') && 'Straße'.startsWith('Str') && 'Straße'.endsWith('ße')",
        "''.contains('') && !''.contains('a')",
        "'AbÇ'.lowerAscii() == 'abÇ' && 'abç'.upperAscii() == 'ABç'",
        "size('πέντε') == 5 && '😀'.size() == 1",
    ]);
}

#[test]
fn patterns_are_found_anywhere_in_a_text() {
    assert_true(&[
        "'banana'.matches('nan') && 'banana'.matches('^b.*a$') && !'banana'.matches('^an')",
        "'mañana'.matches('a+ñ') && '😀😀'.matches('^(a|😀){2}$')",
        "'x'.matches('') && ''.matches('') && !''.matches('a|b')",
        r"'a1 '.matches(r'^\w\d\s$') && !'é'.matches(r'\w') && 'é a'.matches(r'\ba\b')",
        "'ABC'.matches('(?i)abc') && 'a\\nb'.matches('(?s)a.b') && 'a\\nb'.matches('(?m)a$')",
    ]);
}
