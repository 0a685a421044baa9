//! Tests of which texts are valid targets.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::{BadTarget, Target};

fn why(text: &str) -> String {
    match Target::parse(text) {
        Ok(target) => format!("{target:?} is a target"),
        Err(BadTarget::NotAUrl(detail)) => detail,
        Err(BadTarget::NotAllowed(refused)) => format!("not allowed: {refused}"),
    }
}

#[test]
fn a_target_keeps_its_text_and_knows_its_host() {
    for (text, host, https) in [
        ("https://example.org", "example.org", true),
        ("http://example.org/", "example.org", false),
        ("HTTPS://Example.ORG/Path?q=1", "Example.ORG", true),
        ("https://example.org?q=a@b", "example.org", true),
        ("https://example.org/@user/a:b", "example.org", true),
        ("https://example.org.:8443/a//b/../c;d?x=%20&y=[1]", "example.org.", true),
        ("http://_dmarc.a-b.example.org:65535/", "_dmarc.a-b.example.org", false),
        ("http://8.8.8.8:1/", "8.8.8.8", false),
        ("http://[2606:4700::1111]/x", "2606:4700::1111", false),
        ("http://[::ffff:8.8.8.8]:80/x", "::ffff:8.8.8.8", false),
        ("http://127.0.0.1/", "127.0.0.1", false),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", true),
        ("https://1.example.org/", "1.example.org", true),
        ("https://0x7f.example/", "0x7f.example", true),
    ] {
        let target = Target::parse(text).unwrap();
        assert_eq!((target.as_str(), target.host(), target.is_https()), (text, host, https));
        assert_eq!(target.to_string(), text);
    }
}

#[test]
fn what_is_wrong_with_a_text_is_said() {
    let long = format!("https://example.org/{}", "a".repeat(2_048));
    let long_label = format!("https://{}.org/", "a".repeat(64));
    let long_name = format!("https://{}a.org/", "a.".repeat(125));
    for (text, expected) in [
        ("", "absolute URL"),
        ("example.org", "absolute URL"),
        ("//example.org/", "absolute URL"),
        ("/path", "absolute URL"),
        ("https:/example.org", "absolute URL"),
        ("https:example.org", "absolute URL"),
        ("ftp://example.org/", "absolute URL"),
        ("file:///etc/passwd", "absolute URL"),
        ("gopher://example.org/", "absolute URL"),
        ("javascript://example.org/", "absolute URL"),
        (" https://example.org/", "in ASCII without spaces"),
        ("https://example.org/\n", "in ASCII without spaces"),
        ("https://example.org/a b", "in ASCII without spaces"),
        ("https://exam\tple.org/", "in ASCII without spaces"),
        ("https://example.org/\0", "in ASCII without spaces"),
        ("https://b\u{fc}cher.example/", "in ASCII without spaces"),
        ("https://127\u{3002}0\u{3002}0\u{3002}1/", "in ASCII without spaces"),
        ("https://\u{2460}27.0.0.1/", "in ASCII without spaces"),
        ("https://example.org\\@evil.example/", "instead of \\"),
        ("https:\\\\example.org/", "instead of \\"),
        ("https://example.org/#top", "Leave out the #"),
        ("https://example.org#@evil.example/", "Leave out the #"),
        ("https://user@example.org/", "user name"),
        ("https://user:secret@example.org/", "user name"),
        ("https://example.org@127.0.0.1/", "user name"),
        ("https://@example.org/", "user name"),
        ("https://example.org:0/", "port"),
        ("https://example.org:/", "port"),
        ("https://example.org:080/", "port"),
        ("https://example.org:+80/", "port"),
        ("https://example.org:65536/", "port"),
        ("https://example.org:80:80/", "port"),
        ("https://example.org:http/", "port"),
        ("https:///path", "as a name"),
        ("https://?q", "as a name"),
        ("https://./", "as a name"),
        ("https://.example.org/", "as a name"),
        ("https://example..org/", "as a name"),
        ("https://example.org../", "as a name"),
        ("https://exa%6dple.org/", "as a name"),
        ("https://exa*mple.org/", "as a name"),
        ("https://a,b.example/", "as a name"),
        ("https://[::1%25eth0]/", "without a zone"),
        ("https://[fe80::1%eth0]/", "without a zone"),
        ("https://[::1", "without a zone"),
        ("https://[]/", "without a zone"),
        ("https://[127.0.0.1]/", "without a zone"),
        ("https://[v1.fe]/", "without a zone"),
        ("https://[::1]x/", "in brackets"),
        ("https://::1/", "port"),
        ("https://8.8.8.8.8/", "four decimal numbers"),
        ("https://8.8.2056/", "four decimal numbers"),
        ("https://134744072/", "four decimal numbers"),
        ("https://0x8080808/", "four decimal numbers"),
        ("https://010.8.8.8/", "four decimal numbers"),
        ("https://8.8.8.8./", "four decimal numbers"),
        ("https://8.8.8.08/", "four decimal numbers"),
        ("https://256.8.8.8/", "four decimal numbers"),
        ("https://8.8.8.256/", "four decimal numbers"),
        ("https://99999999999/", "four decimal numbers"),
        ("https://example.1/", "four decimal numbers"),
        (&long, "2048 bytes"),
        (&long_label, "as a name"),
        (&long_name, "as a name"),
    ] {
        let detail = why(text);
        assert!(detail.contains(expected) && !detail.starts_with("not allowed"), "{text}: {detail}");
    }
}

#[test]
fn an_inside_address_in_disguise_is_not_allowed() {
    for (text, expected) in [
        ("http://127.1/", "127.0.0.1 is inside this host (127.0.0.0/8)"),
        ("http://127.0.1/", "127.0.0.1"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://0X7F000001/", "127.0.0.1"),
        ("http://0177.0.0.01/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://017700000001/", "127.0.0.1"),
        ("http://127.0.0.1./", "127.0.0.1"),
        ("http://127.0.0.0x1/", "127.0.0.1"),
        ("http://127.0.0.01/", "127.0.0.1"),
        ("http://10.7/", "10.0.0.7 is inside a private network (10.0.0.0/8)"),
        ("http://0/", "0.0.0.0"),
        ("http://0x/", "0.0.0.0"),
        ("http://0xa9fea9fe/", "169.254.169.254"),
        ("http://4294967295/", "255.255.255.255"),
    ] {
        let detail = why(text);
        assert!(detail.starts_with("not allowed: ") && detail.contains(expected), "{text}: {detail}");
    }
}
