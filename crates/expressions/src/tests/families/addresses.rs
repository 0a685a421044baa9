//! Addresses and ranges of them.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows, assert_true};

#[test]
fn addresses_are_read_strictly_and_written_the_usual_way() {
    assert_rows(&[
        Gives("ip('2001:DB8:0:0::1')", json!("2001:db8::1")),
        Gives("[ip('10.0.0.1').family(), ip('::1').family()]", json!([4, 6])),
        Gives("ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')", json!(true)),
        Fails("ip(input.text)", "not an IPv4 or IPv6 address"),
        Refused("ip('10.0.0')", "not an IPv4 or IPv6 address"),
        Refused("ip('fe80::1%eth0')", "not an IPv4 or IPv6 address"),
        Refused("ip('::ffff:10.0.0.1')", "not an IPv4 or IPv6 address"),
        Refused("ip.isCanonical('10.0.0.1.2')", "not an IPv4 or IPv6 address"),
    ]);
    assert_true(&[
        "isIP('10.0.0.1') && isIP('::') && !isIP('10.0.0.01') && !isIP('10.0.0.0/8') && !isIP('')",
        "isCIDR('10.0.0.0/8') && isCIDR('::/0') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
        "!isCIDR('10.0.0.0/+8') && !isCIDR('::ffff:10.0.0.1/120') && !isCIDR('10.0.0.0/')",
        "ip('::ffff:a00:1') == ip('10.0.0.1') && ip('10.0.0.1') != ip('10.0.0.2') && ip('10.0.0.1') != '10.0.0.1'",
    ]);
}

#[test]
fn addresses_say_what_they_are_for() {
    assert_true(&[
        "ip('127.1.2.3').isLoopback() && ip('::1').isLoopback() && !ip('10.0.0.1').isLoopback()",
        "ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified() && !ip('::1').isUnspecified()",
        "ip('169.254.1.1').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast() && !ip('fd00::1').isLinkLocalUnicast()",
        "ip('224.0.0.9').isLinkLocalMulticast() && ip('ff12::1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
        "ip('10.0.0.1').isGlobalUnicast() && ip('2001:db8::1').isGlobalUnicast()",
        "['127.0.0.1', '0.0.0.0', '169.254.0.1', '224.0.0.1', '255.255.255.255', 'ff02::1'].all(x, !ip(x).isGlobalUnicast())",
    ]);
    assert_rows(&[Fails("'10.0.0.1'.isLoopback()", "isLoopback cannot take (string)")]);
}

#[test]
fn ranges_hold_addresses_and_ranges() {
    assert_rows(&[
        Gives("cidr('10.1.2.3/8').masked()", json!("10.0.0.0/8")),
        Gives("cidr('2001:db8:ffff::/33').masked()", json!("2001:db8:8000::/33")),
        Gives("[cidr('10.1.2.3/0').masked(), cidr('::1/128').masked()]", json!(["0.0.0.0/0", "::1/128"])),
        Gives("[cidr('10.1.2.3/8').ip(), cidr('10.1.2.3/8').prefixLength()]", json!(["10.1.2.3", 8])),
        Fails("cidr('10.0.0.0/8').containsIP(input.text)", "not an IPv4 or IPv6 address"),
        Fails("cidr('10.0.0.0/8').containsIP(1)", "containsIP cannot take (cidr, int)"),
        Fails("isIP(cidr('10.0.0.0/8'))", "isIP cannot take (cidr)"),
        Refused("cidr('10.0.0.0/8').containsCIDR('10.0.0.0')", "not a range"),
        Refused("'10.0.0.1'.cidr()", "not called on anything"),
    ]);
    assert_true(&[
        "cidr('10.0.0.0/8').containsIP('10.255.0.1') && cidr('10.0.0.0/8').containsIP(ip('10.0.0.0'))",
        "!cidr('10.0.0.0/8').containsIP('11.0.0.0') && !cidr('10.0.0.0/8').containsIP('::1') && !cidr('::/0').containsIP('10.0.0.1')",
        "cidr('0.0.0.0/0').containsIP('8.8.8.8') && cidr('::1/128').containsIP('::1')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/8'))",
        "!cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8') && !cidr('10.0.0.0/8').containsCIDR('11.0.0.0/16')",
        "cidr('10.1.0.0/8') != cidr('10.0.0.0/8') && cidr('10.0.0.0/8') == cidr('10.0.0.0/8')",
    ]);
}
