//! Literals: texts and bytes with their escapes, and numbers.

use serde_json::json;

use super::{Gives, Refused, assert_rows, assert_true};

#[test]
fn an_escape_is_a_code_point_in_a_text_and_a_byte_in_bytes() {
    assert_rows(&[
        Gives(r"'\x41\101\u0041\U00000041'", json!("AAAA")),
        Gives(r"'\xff' + '\377'", json!("ÿÿ")),
        Gives(r"b'\xff\377\x00'", json!("//8A")),
        Gives(r"b'ÿ'", json!("w78=")),
        Gives(r"B'\X4d\a\b\f\n\r\t\v\\\'\?\`'", json!("TQcIDAoNCQtcJz9g")),
        Gives(r"br'\x41'", json!("XHg0MQ==")),
        Gives("b'''a'b'''", json!("YSdi")),
        Gives(r"'\U0001F600'", json!("😀")),
        Refused(r"b'\u0041'", "escape"),
        Refused(r"'\ud800'", "escape"),
        Refused(r"'\400'", "escape"),
    ]);
}

#[test]
fn lines_end_the_same_way_wherever_a_text_was_written() {
    assert_rows(&[
        Gives("'''a\r\nb\rc'''", json!("a\nb\nc")),
        Gives("r'''a\r\nb'''", json!("a\nb")),
        Gives("b'''a\r\nb'''", json!("YQpi")),
        Gives(r"'a\r\nb'", json!("a\r\nb")),
    ]);
}

#[test]
fn numbers_have_three_types() {
    assert_rows(&[
        Gives("0xFF", json!(255)),
        Gives("-0x10", json!(-16)),
        Gives("0xFFu", json!(255)),
        Gives("12U", json!(12)),
        Gives("1e2", json!(100.0)),
        Gives(".5", json!(0.5)),
        Gives("-2.5E-1", json!(-0.25)),
        Gives("18446744073709551615u", json!(u64::MAX)),
        Refused("18446744073709551616u", "out of range"),
        Refused("9223372036854775808", "out of range"),
        Refused("1e999", "out of range"),
    ]);
    assert_true(&["type(1) == int", "type(1u) == uint", "type(1.0) == double", "-9223372036854775808 < 0"]);
}

#[test]
fn words_that_cel_keeps_can_name_fields() {
    for word in ["as", "break", "else", "for", "if", "import", "let", "package", "return", "var", "while", "in"] {
        if word != "in" {
            assert_true(&[&format!("{{'{word}': true}}.{word}")]);
        }
        assert_true(&[&format!("{{'{word}': true}}.`{word}`")]);
    }
}

#[test]
fn brackets_can_be_32_deep() {
    let nested = |open: &str, close: &str, depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
    assert!(super::eval_source(&nested("(", ")", 32)).is_ok());
    assert!(super::eval_source(&nested("(", ")", 33)).is_err());
    assert!(super::eval_source(&nested("[", "]", 32)).is_ok());
}
