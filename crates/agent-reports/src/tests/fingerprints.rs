//! Which reports have the same fingerprint.

use super::super::fingerprint_parts;
use super::{FUSION, GLPI, OCS};

/// The fingerprint of a body without the version of the parser.
fn fingerprint_of(body: &[u8]) -> Vec<u8> {
    fingerprint_parts(body).skip(1).collect::<Vec<_>>().concat()
}

fn replace_once(body: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = std::str::from_utf8(body).unwrap();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1).into_bytes()
}

#[test]
fn what_moves_at_every_run_does_not_count() {
    for (body, from, to) in [
        (FUSION, "12:37:21</LOGDATE>", "18:00:00</LOGDATE>"),
        (FUSION, "\n      <ETIME>1</ETIME>", ""),
        (FUSION, "<CHECKSUM>131071<", "<CHECKSUM>1<"),
        (FUSION, "hunter2</VAL>", "other</VAL>"),
        (FUSION, "<PID>4711<", "<PID>1<"),
        (FUSION, "13:53:05</BOOT_TIME>", "13:53:06</BOOT_TIME>"),
        (OCS, "22:44:18</DESCRIPTION>", "22:45:01</DESCRIPTION>"),
        (OCS, "<CHECKSUM>1572863<", "<CHECKSUM>513<"),
        (GLPI, "\"logdate\": \"2026-11-15 00:21:54\"", "\"logdate\": \"2026 \\\" }, [\""),
        (GLPI, "\"etime\": 0", "\"etime\": 17"),
        (GLPI, "23:57:31", "23:57:30"),
    ] {
        assert_eq!(fingerprint_of(body), fingerprint_of(&replace_once(body, from, to)), "{from}");
    }
}

#[test]
fn everything_else_counts() {
    for (body, from, to) in [
        (FUSION, "<FREE>49191", "<FREE>49192"),
        (FUSION, "<NAME>db01", "<NAME>db02"),
        (FUSION, "<VERSION>3.134", "<VERSION>3.135"),
        (FUSION, "13:53:05</BOOT_TIME>", "14:53:05</BOOT_TIME>"),
        (FUSION, "<DESCRIPTION>eno2<", "<DESCRIPTION>eno3<"),
        (FUSION, "<QUERY>INVENTORY", "<QUERY>PROLOG"),
        (OCS, "<DESCRIPTION>x86_64/00-00-00 22:44:18<", "<DESCRIPTION>other<"),
        (GLPI, "\"version\": \"3.134\"", "\"version\": \"3.135\""),
        (GLPI, "\"deviceid\": \"web01", "\"deviceid\": \"web02"),
        (GLPI, "\"tag\": \"CUST-42\"", "\"tag\": \"etime\""),
        (GLPI, "23:57:31", "22:57:31"),
    ] {
        assert_ne!(fingerprint_of(body), fingerprint_of(&replace_once(body, from, to)), "{from}");
    }
}

#[test]
fn a_body_without_ends_is_one_part() {
    for body in
        ["<ENVS>".repeat(100_000), "{\"users\":[".repeat(100_000), "{\"etime\":\"".repeat(3), "<BOOT_TIME>".into()]
    {
        assert_eq!(fingerprint_of(body.as_bytes()), body.as_bytes());
    }
    assert_eq!(fingerprint_of(b""), b"");
}

#[test]
fn the_version_of_the_reader_comes_first_whatever_the_body() {
    let version = |body: &[u8]| fingerprint_parts(body).next().map(<[u8]>::to_vec);
    assert_eq!(version(b""), Some(b"3\n".to_vec()));
    for body in [FUSION, OCS, GLPI] {
        assert_eq!(version(body), version(b""));
    }
}
