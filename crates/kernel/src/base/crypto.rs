//! The cryptographic primitives of aws-lc-rs that the service uses.

use std::sync::Arc;

use aws_lc_rs::{constant_time, digest, hmac};

pub fn sha256(data: &[u8]) -> [u8; 32] {
    to_array(digest::digest(&digest::SHA256, data).as_ref())
}

/// The hash of the concatenated parts.
pub fn sha256_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    to_array(context.finish().as_ref())
}

pub fn hmac_sha256(key: &[u8], data: &[u8]) -> [u8; 32] {
    HmacKey::new(key).sign(data)
}

/// A prepared key. Preparing it takes longer than signing a short text, so a key that signs often is kept.
#[derive(Clone)]
pub struct HmacKey(Arc<hmac::Key>);

impl HmacKey {
    pub fn new(key: &[u8]) -> Self {
        HmacKey(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key)))
    }

    pub fn sign(&self, data: &[u8]) -> [u8; 32] {
        to_array(hmac::sign(&self.0, data).as_ref())
    }

    /// The signature of the concatenated parts.
    pub fn sign_parts(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        to_array(context.sign().as_ref())
    }
}

/// Compares secrets in constant time.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(a, b).is_ok()
}

fn to_array(bytes: &[u8]) -> [u8; 32] {
    let mut array = [0; 32];
    array.copy_from_slice(bytes);
    array
}
