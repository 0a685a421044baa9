//! Seals a small value that leaves the server and comes back, such as the cookie that a browser keeps during a sign-on.
//!
//! The key of a value is derived from its purpose and its context, so the value opens only for those two. Anonymous clients
//! can have any number of values sealed; that does not wear out the keys that seal stored secrets.
//!
//! Layout, in base64url: nonce (12) · ciphertext (n + 16).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use super::seal::{decrypt_bytes, encrypt_bytes};
use super::{RandomSource, Result, Secrets};

/// A purpose for which values are sealed. Each purpose has its own name.
///
/// ```
/// # use kernel::base::TokenSeal;
/// const SIGN_ON_FLOW: TokenSeal = TokenSeal::new("sign-on flow");
/// ```
pub struct TokenSeal {
    purpose: &'static str,
}

impl TokenSeal {
    pub const fn new(purpose: &'static str) -> Self {
        TokenSeal { purpose }
    }

    /// Returns a text that a cookie can hold. It opens only with the same context, on every node that has the same secrets.
    pub fn seal_token(&self, secrets: &Secrets, random: &RandomSource, context: &str, value: &[u8]) -> Result<String> {
        let mut sealed = Vec::new();
        encrypt_bytes(&self.derive_key(secrets, context), random, &[], value, &mut sealed)?;
        Ok(BASE64.encode(sealed))
    }

    /// Returns `None` if the text was changed, or sealed for another purpose or context.
    pub fn open_token(&self, secrets: &Secrets, context: &str, text: &str) -> Option<Vec<u8>> {
        let sealed = BASE64.decode(text).ok()?;
        decrypt_bytes(&self.derive_key(secrets, context), &[], &sealed).ok()
    }

    /// A purpose contains no zero byte, so no two pairs of purpose and context give the same key.
    fn derive_key(&self, secrets: &Secrets, context: &str) -> [u8; 32] {
        secrets.token_key().sign_parts(&[self.purpose.as_bytes(), &[0], context.as_bytes()])
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const FLOW: TokenSeal = TokenSeal::new("flow");
    const OTHER: TokenSeal = TokenSeal::new("other");

    #[test]
    fn a_token_opens_for_its_purpose_and_context_alone() {
        let random = RandomSource::System;
        let text = Secrets::generate_text(&random).unwrap();
        let (secrets, same) = (Secrets::parse(&text).unwrap(), Secrets::parse(&text).unwrap());
        let sealed = FLOW.seal_token(&secrets, &random, "state", b"value").unwrap();
        assert_eq!(FLOW.open_token(&same, "state", &sealed).unwrap(), b"value", "another node has the same secrets");
        assert_eq!(FLOW.open_token(&secrets, "other state", &sealed), None);
        assert_eq!(OTHER.open_token(&secrets, "state", &sealed), None);
        let others = Secrets::parse(&Secrets::generate_text(&random).unwrap()).unwrap();
        assert_eq!(FLOW.open_token(&others, "state", &sealed), None);
        assert_ne!(FLOW.seal_token(&secrets, &random, "state", b"value").unwrap(), sealed);
        for at in 0..sealed.len() {
            let mut altered = sealed.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(FLOW.open_token(&secrets, "state", str::from_utf8(&altered).unwrap()), None, "character {at}");
        }
        for broken in ["", "A", "AAAA", "not base64", &sealed[..sealed.len() - 1]] {
            assert_eq!(FLOW.open_token(&secrets, "state", broken), None, "{broken}");
        }
    }
}
