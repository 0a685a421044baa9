//! Compressed bodies, valid and broken.

use super::super::codec::inflate_at_most;
use super::super::{Codec, RefusalKind, detect, encode, inflate, read};
use super::FUSION;

/// Small, so that the test is fast; the real limit only has another value.
const BYTES_MAX: usize = 1024 * 1024;

#[test]
fn the_bytes_tell_the_codec() {
    assert_eq!(detect(&encode(Codec::Zlib, FUSION)), Ok(Codec::Zlib));
    assert_eq!(detect(&encode(Codec::Gzip, FUSION)), Ok(Codec::Gzip));
    assert_eq!(detect(b"\xef\xbb\xbf \n<REQUEST/>"), Ok(Codec::Plain));
    assert_eq!(detect(b"{}"), Ok(Codec::Plain));
    for other in [&b"PK\x03\x04"[..], b"hello", b"\x78\x9d\x00", b"\x78\xbb", b"BZh9", b"x"] {
        assert_eq!(detect(other).unwrap_err().kind, RefusalKind::Unsupported);
    }
    assert_eq!(detect(b"  ").unwrap_err().kind, RefusalKind::Malformed);
}

#[test]
fn answers_begin_as_agents_expect() {
    assert!(encode(Codec::Zlib, b"<REPLY></REPLY>").starts_with(&[0x78, 0x9c]));
    assert!(encode(Codec::Gzip, b"<REPLY></REPLY>").starts_with(&[0x1f, 0x8b, 0x08]));
    assert_eq!(encode(Codec::Plain, b"<REPLY></REPLY>"), b"<REPLY></REPLY>");
}

#[test]
fn a_bomb_is_given_up_at_the_bound() {
    for codec in [Codec::Zlib, Codec::Gzip, Codec::Plain] {
        let whole = encode(codec, &vec![0; BYTES_MAX]);
        assert_eq!(inflate_at_most(&whole, codec, BYTES_MAX).unwrap().len(), BYTES_MAX);
        let bomb = encode(codec, &vec![0; BYTES_MAX + 1]);
        let refusal = inflate_at_most(&bomb, codec, BYTES_MAX).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::TooLarge);
        assert_eq!(refusal.detail, "The body is larger than 1 MiB once inflated.");
    }
}

#[test]
fn memory_is_taken_as_bytes_come() {
    let body = encode(Codec::Zlib, FUSION);
    let inflated = inflate(&body, Codec::Zlib).unwrap().into_owned();
    assert!(inflated.capacity() <= 64 * 1024);
}

#[test]
fn a_stream_cut_anywhere_is_refused() {
    for codec in [Codec::Zlib, Codec::Gzip] {
        let body = encode(codec, FUSION);
        for end in (2..body.len()).step_by(64).chain(body.len() - 9..body.len()) {
            let refusal = read(&body[..end]).unwrap_err();
            assert_eq!(refusal.kind, RefusalKind::Malformed, "at {end}");
        }
        let mut longer = body.clone();
        longer.push(b'x');
        assert_eq!(read(&longer).unwrap_err().detail, "There are more bytes after the end of the compressed stream.");
        let mut damaged = body.clone();
        let last = damaged.len() - if codec == Codec::Gzip { 8 } else { 1 };
        damaged[last] ^= 1;
        assert_eq!(read(&damaged).unwrap_err().kind, RefusalKind::Malformed);
    }
}
