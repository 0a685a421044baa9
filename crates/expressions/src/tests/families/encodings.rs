//! Base64 and percent-encoding.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows, assert_true};

#[test]
fn base64_goes_both_ways() {
    assert_rows(&[
        Gives("base64.encode(b'hé?')", json!("aMOpPw==")),
        Gives("string(base64.decode('aMOpPw=='))", json!("hé?")),
        Gives("string(base64.decode('aMOpPw'))", json!("hé?")),
        Gives("base64.decode('')", json!("")),
        Refused("base64.decode('a')", "not base64"),
        Refused("base64.decode('a-_=')", "not base64"),
        Fails("base64.decode(input.text)", "not base64"),
        Fails("base64.encode('a')", "base64.encode cannot take (string)"),
    ]);
    assert_true(&[r"base64.decode(base64.encode(b'\x00\xff')) == b'\x00\xff'"]);
}

#[test]
fn url_encode_leaves_what_an_address_can_hold() {
    assert_rows(&[
        Gives("'AZaz09-._~'.urlEncode()", json!("AZaz09-._~")),
        Gives("'a b&c=d/é?#%+'.urlEncode()", json!("a%20b%26c%3Dd%2F%C3%A9%3F%23%25%2B")),
        Gives("''.urlEncode()", json!("")),
        Fails("input.n.urlEncode()", "urlEncode cannot take (int)"),
    ]);
}
