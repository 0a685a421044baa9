//! Signatures as Standard Webhooks says: an HMAC over id, time and body, one for each secret that is in force.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::base::hmac_sha256;

/// A secret's bytes, from the text that its owner has.
pub fn decode(secret: &str) -> Option<Vec<u8>> {
    BASE64.decode(secret.strip_prefix("whsec_")?).ok()
}

/// The value of `webhook-signature`.
pub fn signature<'a>(id: &str, timestamp: i64, body: &str, secrets: impl Iterator<Item = &'a [u8]>) -> String {
    let content = format!("{id}.{timestamp}.{body}");
    let sign = |secret: &[u8]| format!("v1,{}", BASE64.encode(hmac_sha256(secret, content.as_bytes())));
    secrets.map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification's own libraries.
    #[test]
    fn the_signature_is_that_of_the_specification() {
        let secret = decode("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap_or_default();
        let body = "{\"test\": 2432232314}";
        let signed = signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body, [secret.as_slice()].into_iter());
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
