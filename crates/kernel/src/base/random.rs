//! Randomness, replaceable in tests.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sha256;

/// A source of random bytes.
#[derive(Clone, Debug, Default)]
pub enum RandomSource {
    #[default]
    System,
    /// The same sequence in every run: for tests only.
    Seeded(Arc<AtomicU64>),
}

impl RandomSource {
    pub fn with_seed(seed: u64) -> Self {
        RandomSource::Seeded(Arc::new(AtomicU64::new(seed << 32)))
    }

    /// Random bytes fit for keys and tokens.
    pub fn secret_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill_bytes(&mut bytes);
        bytes
    }

    pub fn fill_bytes(&self, bytes: &mut [u8]) {
        match self {
            RandomSource::System => {
                // The generator does not fail on any platform we build for. If it ever did, aborting would be better than
                // going on with predictable keys.
                if aws_lc_rs::rand::fill(bytes).is_err() {
                    std::process::abort();
                }
            }
            RandomSource::Seeded(counter) => {
                for chunk in bytes.chunks_mut(32) {
                    let n = counter.fetch_add(1, Ordering::Relaxed);
                    chunk.copy_from_slice(&sha256(&n.to_be_bytes())[..chunk.len()]);
                }
            }
        }
    }

    /// Random bytes for ids and other values that are not secret. They come from the same generator, drawn 512 bytes at a
    /// time, because a call for a few bytes takes about as long as one for hundreds.
    pub fn public_bytes<const N: usize>(&self) -> [u8; N] {
        const { assert!(N <= STOCK_BYTES, "more than the stock holds") };
        let RandomSource::System = self else { return self.secret_bytes() };
        let mut bytes = [0; N];
        STOCK.with_borrow_mut(|stock| {
            if stock.left < N {
                self.fill_bytes(&mut stock.bytes);
                stock.left = STOCK_BYTES;
            }
            stock.left -= N;
            bytes.copy_from_slice(&stock.bytes[stock.left..stock.left + N]);
        });
        bytes
    }

    /// `len` characters of `0-9A-Za-z`, each equally likely.
    pub fn base62_text(&self, len: usize) -> String {
        let mut text = String::with_capacity(len);
        push_base62(&mut text, len, || self.secret_bytes());
        text
    }

    /// Appends `len` such characters from [`RandomSource::public_bytes`] to the text.
    pub fn push_public_base62(&self, text: &mut String, len: usize) {
        push_base62(text, len, || self.public_bytes());
    }
}

const STOCK_BYTES: usize = 512;

/// Random bytes that were drawn and not used yet.
struct RandomStock {
    bytes: [u8; STOCK_BYTES],
    left: usize,
}

thread_local! {
    static STOCK: RefCell<RandomStock> = const { RefCell::new(RandomStock { bytes: [0; STOCK_BYTES], left: 0 }) };
}

fn push_base62(text: &mut String, len: usize, mut draw: impl FnMut() -> [u8; 24]) {
    let end = text.len() + len;
    while text.len() < end {
        // 248 is the largest multiple of 62 in a byte. Larger bytes would make some characters more likely than others.
        let drawn = draw();
        let fair = drawn.iter().filter(|byte| **byte < 248).map(|byte| BASE62[usize::from(byte % 62)] as char);
        text.extend(fair.take(end - text.len()));
    }
}

pub(crate) const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
