//! Compression of bodies, detected by the first bytes: agents' Content-Type headers contradict each other.

use std::borrow::Cow;
use std::io::Write;

use flate2::write::{GzEncoder, ZlibEncoder};
use flate2::{Compression, Decompress, FlushDecompress, Status};

use super::refusal::ReportRefusal;
use super::text;

/// Two hundred times a usual report, and small enough that a small machine can hold a few at a time. A stream is refused at
/// the first byte beyond, so a decompression bomb costs no more memory than this.
pub const INFLATED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Least growth of the output buffer: a usual report takes a handful of steps.
const GROWTH_BYTES_MIN: usize = 64 * 1024;

/// The largest window of deflate, 32 KiB: any gzip stream can be inflated with it.
const WINDOW_BITS: u8 = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    Zlib,
    Gzip,
    Plain,
}

/// Detects the codec by the first bytes.
pub fn detect_codec(body: &[u8]) -> Result<Codec, ReportRefusal> {
    if body.starts_with(&[0x1f, 0x8b]) {
        return Ok(Codec::Gzip);
    }
    if is_zlib(body) {
        return Ok(Codec::Zlib);
    }
    match text::first_byte(text::without_byte_order_mark(body)) {
        Some(b'<' | b'{') => Ok(Codec::Plain),
        None => Err(ReportRefusal::malformed("The body is empty.")),
        Some(_) => Err(ReportRefusal::unsupported("The body is not zlib, gzip, XML or JSON.")),
    }
}

/// The header of RFC 1950: deflate, a window of at most 32 KiB, a check over both bytes, no preset dictionary.
fn is_zlib(body: &[u8]) -> bool {
    let [method, flags, ..] = *body else { return false };
    let check = u16::from(method) << 8 | u16::from(flags);
    method & 0x0f == 8 && method >> 4 <= 7 && check.is_multiple_of(31) && flags & 0x20 == 0
}

/// Inflates a whole body and verifies its checksum, or refuses it.
pub fn inflate_body(body: &[u8], codec: Codec) -> Result<Cow<'_, [u8]>, ReportRefusal> {
    inflate_with_limit(body, codec, INFLATED_BYTES_MAX)
}

/// The limit is a parameter, so that tests need not reach the real one.
pub fn inflate_with_limit(body: &[u8], codec: Codec, bytes_max: usize) -> Result<Cow<'_, [u8]>, ReportRefusal> {
    let stream = match codec {
        Codec::Plain if body.len() > bytes_max => return Err(too_large_refusal(bytes_max)),
        Codec::Plain => return Ok(Cow::Borrowed(body)),
        Codec::Zlib => Decompress::new(true),
        Codec::Gzip => Decompress::new_gzip(WINDOW_BITS),
    };
    inflate_stream(stream, body, bytes_max).map(Cow::Owned)
}

/// Not with the readers of the crate, which treat a truncated zlib stream as complete.
fn inflate_stream(mut stream: Decompress, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, ReportRefusal> {
    let mut inflated = Vec::new();
    loop {
        let consumed = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = body.get(consumed..).unwrap_or_default();
        reserve_output(&mut inflated, bytes_max)?;
        let length_before = inflated.len();
        let status = stream
            .decompress_vec(rest, &mut inflated, FlushDecompress::None)
            .map_err(|_| ReportRefusal::malformed("The compressed stream is damaged."))?;
        let consumed_now = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        if inflated.len() > bytes_max {
            return Err(too_large_refusal(bytes_max));
        }
        if status == Status::StreamEnd && consumed_now < body.len() {
            return Err(ReportRefusal::malformed("There are more bytes after the end of the compressed stream."));
        }
        if status == Status::StreamEnd {
            return Ok(inflated);
        }
        if consumed_now == consumed && inflated.len() == length_before {
            return Err(ReportRefusal::malformed("The compressed stream is cut off before its end."));
        }
    }
}

/// Reserves room when the buffer is full: it doubles, but never beyond the limit and the one byte that shows that the limit
/// was exceeded.
fn reserve_output(inflated: &mut Vec<u8>, bytes_max: usize) -> Result<(), ReportRefusal> {
    if inflated.len() < inflated.capacity() {
        return Ok(());
    }
    let room = (bytes_max + 1).saturating_sub(inflated.len());
    let step = inflated.len().max(GROWTH_BYTES_MIN).min(room);
    inflated.try_reserve_exact(step).map_err(|_| too_large_refusal(bytes_max))
}

fn too_large_refusal(bytes_max: usize) -> ReportRefusal {
    ReportRefusal::too_large(format!("The body is larger than {} MiB once inflated.", bytes_max / (1024 * 1024)))
}

/// Compresses an answer with the codec of the request: the OCS agent reads nothing else. The level is the default, because
/// FusionInventory recognizes zlib by the bytes 78 9C, and other levels start differently.
pub fn encode_answer(codec: Codec, answer: &[u8]) -> Vec<u8> {
    let packed = match codec {
        Codec::Plain => return answer.to_vec(),
        Codec::Zlib => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(answer).and_then(|()| encoder.finish())
        }
        Codec::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(answer).and_then(|()| encoder.finish())
        }
    };
    // Writing to memory does not fail.
    packed.unwrap_or_default()
}
