//! Compressed bodies, valid and broken.

use super::super::codec::inflate_with_limit;
use super::super::{Codec, ReportRefusalKind, detect_codec, encode_answer, inflate_body};
use super::{FUSION, read_body};

/// Small, so that the test is fast; the real limit only has another value.
const BYTES_MAX: usize = 1024 * 1024;

#[test]
fn the_bytes_tell_the_codec() {
    assert_eq!(detect_codec(&encode_answer(Codec::Zlib, FUSION)), Ok(Codec::Zlib));
    assert_eq!(detect_codec(&encode_answer(Codec::Gzip, FUSION)), Ok(Codec::Gzip));
    assert_eq!(detect_codec(b"\xef\xbb\xbf \n<REQUEST/>"), Ok(Codec::Plain));
    assert_eq!(detect_codec(b"{}"), Ok(Codec::Plain));
    for other in [&b"PK\x03\x04"[..], b"hello", b"\x78\x9d\x00", b"\x78\xbb", b"BZh9", b"x"] {
        assert_eq!(detect_codec(other).unwrap_err().kind, ReportRefusalKind::Unsupported);
    }
    assert_eq!(detect_codec(b"  ").unwrap_err().kind, ReportRefusalKind::Malformed);
}

#[test]
fn answers_begin_as_agents_expect() {
    assert!(encode_answer(Codec::Zlib, b"<REPLY></REPLY>").starts_with(&[0x78, 0x9c]));
    assert!(encode_answer(Codec::Gzip, b"<REPLY></REPLY>").starts_with(&[0x1f, 0x8b, 0x08]));
    assert_eq!(encode_answer(Codec::Plain, b"<REPLY></REPLY>"), b"<REPLY></REPLY>");
}

#[test]
fn a_bomb_is_given_up_at_the_bound() {
    for codec in [Codec::Zlib, Codec::Gzip, Codec::Plain] {
        let whole = encode_answer(codec, &vec![0; BYTES_MAX]);
        assert_eq!(inflate_with_limit(&whole, codec, BYTES_MAX).unwrap().len(), BYTES_MAX);
        let bomb = encode_answer(codec, &vec![0; BYTES_MAX + 1]);
        let refusal = inflate_with_limit(&bomb, codec, BYTES_MAX).unwrap_err();
        assert_eq!(refusal.kind, ReportRefusalKind::TooLarge);
        assert_eq!(refusal.detail, "The body is larger than 1 MiB once inflated.");
    }
}

#[test]
fn memory_is_taken_as_bytes_come() {
    let body = encode_answer(Codec::Zlib, FUSION);
    let inflated = inflate_body(&body, Codec::Zlib).unwrap().into_owned();
    assert!(inflated.capacity() <= 64 * 1024);
}

#[test]
fn a_stream_cut_anywhere_is_refused() {
    for codec in [Codec::Zlib, Codec::Gzip] {
        let body = encode_answer(codec, FUSION);
        for end in (2..body.len()).step_by(64).chain(body.len() - 9..body.len()) {
            let refusal = read_body(&body[..end]).unwrap_err();
            assert_eq!(refusal.kind, ReportRefusalKind::Malformed, "at {end}");
        }
        let mut longer = body.clone();
        longer.push(b'x');
        assert_eq!(
            read_body(&longer).unwrap_err().detail,
            "There are more bytes after the end of the compressed stream."
        );
        let mut damaged = body.clone();
        let last = damaged.len() - if codec == Codec::Gzip { 8 } else { 1 };
        damaged[last] ^= 1;
        assert_eq!(read_body(&damaged).unwrap_err().kind, ReportRefusalKind::Malformed);
    }
}
