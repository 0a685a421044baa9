//! `format`.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows};

#[test]
fn each_letter_writes_a_value_its_way() {
    assert_rows(&[
        Gives("'%s, %s and %s'.format(['a', 1, true])", json!("a, 1 and true")),
        Gives("'%d %d %d'.format([-1, 2u, 2.5])", json!("-1 2 2.5")),
        Gives("'%f %.0f %.2f %.3f'.format([1.5, 2.5, 2.345, -1])", json!("1.500000 2 2.35 -1.000")),
        Gives("'%e %.2e %e'.format([1234.5, 0.00012, 0])", json!("1.234500e+03 1.20e-04 0.000000e+00")),
        Gives("'%b %b %b'.format([5, -5, true])", json!("101 -101 1")),
        Gives("'%o %x %X %x'.format([8, 255, 255u, -255])", json!("10 ff FF -ff")),
        Gives(r"'%x %X'.format(['aé', b'\xff\x00'])", json!("61c3a9 FF00")),
        Gives("'%% %s%%'.format([9])", json!("% 9%")),
        Gives("'é %s é'.format(['ü'])", json!("é ü é")),
        Gives("'none'.format([])", json!("none")),
        Gives("input.template.replace('$', '%s').format(['a'])", json!("a{{ input.n }}")),
    ]);
}

#[test]
fn what_is_no_number_has_a_name() {
    assert_rows(&[
        Gives(
            "'%d %f %e %s'.format([double('NaN'), double('Infinity'), double('-Infinity'), double('inf')])",
            json!("NaN Infinity -Infinity Infinity"),
        ),
        Fails("'%x'.format([double('NaN')])", "%x of a format cannot take double"),
    ]);
}

#[test]
fn any_value_is_a_text() {
    assert_rows(&[
        Gives("'%s'.format([null])", json!("null")),
        Gives("'%s'.format([[1, 'a', [null, 2.50]]])", json!("[1, a, [null, 2.5]]")),
        Gives("'%s'.format([{'b': 1, 'a': [true], 3: b'xy'}])", json!("{3: xy, a: [true], b: 1}")),
        Gives("'%s %s'.format([input.map.b, input.list])", json!("{c: [true, x]} [1, 2, 3]")),
        Gives("'%s'.format([timestamp('2026-01-02T03:04:05.5Z')])", json!("2026-01-02T03:04:05.5Z")),
        Gives("'%s'.format([duration('90m')])", json!("5400s")),
        Gives("'%s %s'.format([type(1), ip('::1')])", json!("int ::1")),
        Refused(r"'%s'.format([b'\xff'])", "not UTF-8"),
        Fails(r"'%s'.format([b'\xff' + b'a'])", "not UTF-8"),
        Fails("'%s'.format([optional.none()])", "cannot take optional"),
    ]);
}

#[test]
fn what_does_not_fit_is_refused_where_it_is_known() {
    assert_rows(&[
        Refused("'%d %d'.format([1])", "more than the 1 values"),
        Refused("'%d'.format([1, 2])", "places for 1 values, and is given 2"),
        Refused("'%y'.format([1])", "There is no %y"),
        Refused("'%E'.format([1.5])", "There is no %E"),
        Refused("'%.f'.format([1.5])", "a number of digits"),
        Refused("'%'.format([])", "ends with %"),
        Refused("'%b'.format(['a'])", "%b of a format cannot take string"),
        Refused("'%f'.format([null])", "%f of a format cannot take null"),
        Fails("'%d'.format([input.text])", "%d of a format cannot take string"),
        Fails("'%d %d %d %d'.format(input.list)", "more than the 3 values"),
        Fails("input.text.replace(' ', '%').format([])", "There is no %w"),
        Fails("input.n.format([])", "format cannot take (int, list)"),
    ]);
}
