//! Hostile and broken bodies.

use super::super::xml::parse_with_limit;
use super::super::{
    AgentMessage, Codec, ReportRefusalKind, encode_answer, extract_facts, fingerprint_parts, parse_message,
};
use super::{FUSION, GLPI, OCS, json_inventory, parse_refusal, parse_report, read_body, xml_inventory};

#[test]
fn document_types_and_entities_are_refused() {
    let laughs = br#"<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;&lol;">]>
        <REQUEST><QUERY>&lol2;</QUERY></REQUEST>"#;
    let outside =
        br#"<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><REQUEST><DEVICEID>&x;</DEVICEID></REQUEST>"#;
    for body in [
        &laughs[..],
        outside,
        &xml_inventory("<HARDWARE><NAME>&other;</NAME></HARDWARE>"),
        &xml_inventory("<ENVS><KEY>&other;</KEY></ENVS>"),
    ] {
        assert_eq!(parse_refusal(body).detail, "The XML may have no document types or entities.");
    }
}

#[test]
fn deep_documents_are_refused_or_passed_over() {
    let deep = xml_inventory(&format!("{}{}", "<A>".repeat(10_000), "</A>".repeat(10_000)));
    assert_eq!(parse_refusal(&deep).detail, "The XML is nested deeper than 32 levels.");
    let deep = xml_inventory(&format!("<BIOS><SSN>{}{}</SSN></BIOS>", "<A>".repeat(10_000), "</A>".repeat(10_000)));
    assert_eq!(parse_refusal(&deep).detail, "The XML is nested deeper than 32 levels.");
    let lists = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(parse_report(&json_inventory(&format!("{{\"unknown\":{lists}}}"))).hardware.is_none());
    assert_eq!(
        parse_refusal(&json_inventory(&format!("{{\"bios\":{{\"ssn\":{lists}}}}}"))).kind,
        ReportRefusalKind::Malformed
    );
    assert_eq!(parse_refusal(&json_inventory(&lists)).detail, "The inventory has no content.");
}

#[test]
fn too_many_entries_are_refused() {
    for (section, entries_max, what) in [
        ("SOFTWARES", 10_000, "software"),
        ("STORAGES", 500, "disks"),
        ("DRIVES", 1_000, "volumes"),
        ("NETWORKS", 1_000, "network cards"),
        ("CPUS", 1_000, "processors"),
    ] {
        let lower = section.to_lowercase();
        // Different names, so that no entries are merged.
        let in_xml = |count: usize| -> Vec<u8> {
            let entries = (0..count).map(|n| format!("<{section}><NAME>{n}</NAME><TYPE>t</TYPE></{section}>"));
            xml_inventory(&entries.collect::<String>())
        };
        let in_json = |count: usize| -> Vec<u8> {
            let entries: Vec<_> = (0..count).map(|n| format!("{{\"name\":\"{n}\"}}")).collect();
            json_inventory(&format!("{{\"{lower}\":[{}]}}", entries.join(",")))
        };
        let expected = format!("The report has more than {entries_max} entries of {what}.");
        for body in [in_xml(entries_max + 1), in_json(entries_max + 1), in_json(100_000)] {
            let refusal = parse_refusal(&body);
            assert_eq!((refusal.kind, refusal.detail.as_str()), (ReportRefusalKind::TooMany, expected.as_str()));
        }
        parse_report(&in_xml(entries_max));
        parse_report(&in_json(entries_max));
    }
}

#[test]
fn a_document_of_nothing_but_tags_is_given_up() {
    let refusal = parse_with_limit(&xml_inventory(&"<A/>".repeat(1_000)), 1_000).unwrap_err();
    assert_eq!(refusal.kind, ReportRefusalKind::TooMany);
    assert_eq!(refusal.detail, "The XML has more tags and texts than a report needs.");
}

#[test]
fn too_many_addresses_are_refused() {
    let addresses: Vec<_> = (0..101).map(|n| format!("\"10.0.0.{n}\"")).collect();
    let in_one = format!("{{\"networks\":{{\"description\":\"e\",\"ipaddress\":[{}]}}}}", addresses.join(","));
    let entries = addresses.iter().map(|ip| format!("{{\"description\":\"e\",\"ipaddress\":{ip}}}"));
    let in_many = format!("{{\"networks\":[{}]}}", entries.collect::<Vec<_>>().join(","));
    for content in [in_one, in_many] {
        let detail = parse_refusal(&json_inventory(&content)).detail;
        assert_eq!(detail, "The report has more than 100 entries of addresses of one network card.");
    }
}

#[test]
fn broken_documents_are_refused_with_a_sentence() {
    for (body, detail) in [
        (&b"<REQUEST><QUERY>PROLOG</QUERY>"[..], "The XML ends before its root element does."),
        (b"<REQUEST><QUERY>PROLOG</REQUEST>", "The XML is not well formed near byte"),
        (b"<REQUEST/><REQUEST/>", "The message does not say what it is"),
        (b"<REQUEST></REQUEST><REQUEST></REQUEST>", "The XML has more than one root."),
        (b"<REQUEST></REQUEST>text", "The XML has text outside its root."),
        (b"<html></html>", "The XML is not a REQUEST of an inventory agent."),
        (b"<REQUEST><QUERY>INVENTORY</QUERY></REQUEST>", "The message has no device id."),
        (b"<REQUEST><QUERY>INVENTORY</QUERY><DEVICEID>d</DEVICEID></REQUEST>", "The inventory has no content."),
        (b"<?xml version=\"1.0\" encoding=\"UTF-16\"?><REQUEST/>", "The XML is in an encoding other than"),
        (b"{\"action\":\"inventory\"", "The JSON is not well formed at line 1, column 21."),
        (b"{\"action\":\"contact\"} x", "The JSON is not well formed at line 1"),
        (b"{\"deviceid\":\"d\"}", "The message does not say what it is"),
        (b"{\"action\":\"contact\"}", "The message has no device id."),
        (b"{\"content\":{\"softwares\":\"secret\"}}", "The section softwares is neither an object nor"),
        (b"{\"content\":{\"softwares\":[[]]}}", "The section softwares is neither an object nor"),
        (b"{\"content\":{\"bios\":[7]}}", "The section bios is neither an object nor"),
        (b"hello", "The body is not XML or JSON."),
    ] {
        let refusal = parse_refusal(body);
        assert!(refusal.detail.starts_with(detail), "{}: {}", body.escape_ascii(), refusal.detail);
        assert!(!refusal.detail.contains("secret"));
    }
}

#[test]
fn broken_names_are_mended() {
    let mut body = xml_inventory("<HARDWARE><NAME>caf\u{7f}e?</NAME></HARDWARE>");
    let mark = body.iter().position(|&byte| byte == b'?').unwrap();
    body[mark] = 0xe9;
    assert_eq!(parse_report(&body).hardware.unwrap().hostname.as_deref(), Some("cafe\u{fffd}"));
    let mut latin = b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>".to_vec();
    latin.extend(body);
    assert_eq!(parse_report(&latin).hardware.unwrap().hostname.as_deref(), Some("cafe\u{e9}"));
    let references =
        "<HARDWARE><NAME>&#x41;&#66;&#0;&#xFFFF;&#99999999999;&lt;<![CDATA[<&x;>]]><!-- no --></NAME></HARDWARE>";
    assert_eq!(parse_report(&xml_inventory(references)).hardware.unwrap().hostname.as_deref(), Some("AB<<&x;>"));
}

#[test]
fn long_values_are_cut() {
    let long = "é".repeat(100_000);
    let content = format!("<HARDWARE><NAME>{long}</NAME><OSNAME>&amp;{long}&amp;{long}</OSNAME></HARDWARE>");
    let hardware = parse_report(&xml_inventory(&content)).hardware.unwrap();
    assert_eq!(hardware.hostname.unwrap().chars().count(), 500);
    assert_eq!(hardware.os_name.unwrap().chars().count(), 500);
    let hardware =
        parse_report(&json_inventory(&format!("{{\"hardware\":{{\"name\":\"{long}\"}}}}"))).hardware.unwrap();
    assert_eq!(hardware.hostname.unwrap().chars().count(), 500);
    let tags = format!("<{long}/>", long = "A".repeat(1_000_000));
    parse_report(&xml_inventory(&tags));
}

/// A sequence of numbers that is the same in every run.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}

#[test]
fn no_mutation_panics() {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    let pieces: [&[u8]; 12] =
        [b"<", b">", b"</", b"&", b"]]>", b"<![CDATA[", b"\"", b"{", b"[", b"\\u0000", b"\xff", b"&#xD800;"];
    let packed = [encode_answer(Codec::Zlib, FUSION), encode_answer(Codec::Gzip, OCS)];
    let scans = [&include_bytes!("../testdata/scans/stack.xml")[..], include_bytes!("../testdata/scans/switch.json")];
    for original in [FUSION, OCS, GLPI, &packed[0], &packed[1], scans[0], scans[1]] {
        for _ in 0..150 {
            let mut body = original.to_vec();
            for _ in 0..=random.next(4) {
                let at = random.next(body.len());
                match random.next(4) {
                    0 => body[at] = u8::try_from(random.next(256)).unwrap(),
                    1 => body.truncate(at.max(1)),
                    2 => drop(body.drain(at..(at + random.next(40)).min(body.len()))),
                    _ => drop(body.splice(at..at, pieces[random.next(pieces.len())].iter().copied())),
                }
                if body.is_empty() {
                    body.push(b'<');
                }
            }
            let kept = fingerprint_parts(&body).skip(1).map(<[u8]>::len).sum::<usize>();
            assert!(kept <= body.len());
            drop(read_body(&body));
            match parse_message(&body) {
                Ok((_, AgentMessage::Inventory(mut report))) => drop(extract_facts(&mut report)),
                Ok((_, AgentMessage::Scan(reports))) => {
                    for mut report in reports {
                        extract_facts(&mut report);
                    }
                }
                _ => {}
            }
        }
    }
}
