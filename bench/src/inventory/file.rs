//! A file as it is read from a socket: how much, how fast, and whether two are the same.

use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

use crate::harness::Outcome;

/// What was read of a file.
pub struct File {
    pub rows: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// Of everything but the first line, if it was looked at.
    pub digest: u64,
}

impl File {
    fn per_second(&self, count: u64) -> f64 {
        f64::from(u32::try_from(count / 1_000).unwrap_or(u32::MAX)) * 1e3 / self.seconds
    }

    pub fn spell(&self) -> String {
        format!(
            "{} lines, {:.0} MB in {:.1} s, {:.0} MB/s",
            self.rows,
            self.per_second(self.bytes) * self.seconds / 1e6,
            self.seconds,
            self.per_second(self.bytes) / 1e6
        )
    }
}

/// How a file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// As fast as possible.
    Count,
    /// All of it, to compare it; with the chunks of HTTP around it, or not. The first line of such a file is its head.
    Check { chunked: bool },
}

impl Reader {
    pub fn drain(self, stream: &mut TcpStream, started: Instant) -> Outcome<File> {
        let mut buffer = vec![0; 1 << 18];
        let (mut rows, mut bytes, mut all) = (0, 0, Vec::new());
        loop {
            let got = stream.read(&mut buffer)?;
            if got == 0 {
                break;
            }
            let some = &buffer[..got];
            bytes += got as u64;
            match self {
                Reader::Count => rows += lines(some),
                Reader::Check { .. } => all.extend_from_slice(some),
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let mut hasher = DefaultHasher::new();
        if let Reader::Check { chunked } = self {
            let text = if chunked { unchunked(&all)? } else { all };
            rows = lines(&text);
            let head = if chunked { text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1) } else { 0 };
            hasher.write(&text[head..]);
        }
        Ok(File { rows, bytes, seconds, digest: hasher.finish() })
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// What is in the chunks of an answer.
fn unchunked(answer: &[u8]) -> Outcome<Vec<u8>> {
    let end = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|some| some == what);
    let head = end(answer, b"\r\n\r\n").ok_or("no head")? + 4;
    let (mut rest, mut all) = (&answer[head..], Vec::with_capacity(answer.len()));
    loop {
        let line = end(rest, b"\r\n").ok_or("an answer that breaks off")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line])?, 16)?;
        if size == 0 {
            return Ok(all);
        }
        all.extend_from_slice(rest.get(line + 2..line + 2 + size).ok_or("an answer that breaks off")?);
        rest = rest.get(line + 4 + size..).ok_or("an answer that breaks off")?;
    }
}
