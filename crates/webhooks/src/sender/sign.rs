//! Signatures by Standard Webhooks: an HMAC over id, time and body, one for each secret in force.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::base::HmacKey;

/// The signing key of a secret in its `whsec_` text form.
pub fn decode_secret(secret: &str) -> Option<HmacKey> {
    BASE64.decode(secret.strip_prefix("whsec_")?).ok().map(|key| HmacKey::new(&key))
}

/// The value of `webhook-signature`.
pub fn signature_header<'a>(
    id: &str,
    timestamp: i64,
    body: &[u8],
    secrets: impl Iterator<Item = &'a HmacKey>,
) -> String {
    let head = format!("{id}.{timestamp}.");
    let mut signatures = String::new();
    for secret in secrets {
        signatures.push_str(if signatures.is_empty() { "v1," } else { " v1," });
        BASE64.encode_string(secret.sign_parts(&[head.as_bytes(), body]), &mut signatures);
    }
    signatures
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification's own libraries.
    #[test]
    fn the_signature_is_that_of_the_specification() {
        let secret = decode_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let body = b"{\"test\": 2432232314}";
        let sign = |secrets: &[&HmacKey]| {
            signature_header("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body, secrets.iter().copied())
        };
        let one = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(secret.as_ref().map(|secret| sign(&[secret])).as_deref(), Some(one));
        let two = secret.as_ref().map(|secret| sign(&[secret, secret]));
        assert_eq!(two, Some(format!("{one} {one}")), "while a secret is rotated");
    }
}
