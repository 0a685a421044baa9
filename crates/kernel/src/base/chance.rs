//! Randomness, replaceable in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sha256;

/// Where random bytes come from.
#[derive(Clone, Debug, Default)]
pub enum Chance {
    #[default]
    System,
    /// The same sequence in every run: for tests alone.
    Seeded(Arc<AtomicU64>),
}

impl Chance {
    pub fn seeded(seed: u64) -> Self {
        Chance::Seeded(Arc::new(AtomicU64::new(seed << 32)))
    }

    /// Random bytes fit for keys and tokens.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    pub fn fill(&self, bytes: &mut [u8]) {
        match self {
            Chance::System => {
                // The system's generator does not fail on any platform we build for; if it ever did, going on
                // with predictable keys would be worse than stopping.
                if aws_lc_rs::rand::fill(bytes).is_err() {
                    std::process::abort();
                }
            }
            Chance::Seeded(counter) => {
                for chunk in bytes.chunks_mut(32) {
                    let n = counter.fetch_add(1, Ordering::Relaxed);
                    chunk.copy_from_slice(&sha256(&n.to_be_bytes())[..chunk.len()]);
                }
            }
        }
    }

    /// `len` characters of `0-9A-Za-z`, each equally likely.
    pub fn base62(&self, len: usize) -> String {
        let mut text = String::with_capacity(len);
        let mut pool = [0u8; 64];
        while text.len() < len {
            self.fill(&mut pool);
            // 248 is the largest multiple of 62 in a byte: above it a character would be more likely than others.
            let fair = pool.iter().filter(|byte| **byte < 248).map(|byte| BASE62[usize::from(byte % 62)] as char);
            text.extend(fair.take(len - text.len()));
        }
        text
    }
}

pub(crate) const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
