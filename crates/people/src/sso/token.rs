//! Verification of ID tokens against the provider's keys and the expected claims. Pure.
//!
//! A library checks the signature; the claims are checked here, by the clock of the service. Only algorithms with a public
//! key are accepted, and each only with a key of its type: a token cannot claim to be unsigned, nor use a public key as an
//! HMAC secret.

use std::collections::HashSet;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use kernel::base::{SECOND_MS, Timestamp, constant_time_eq};
use serde_json::{Map, Value};

/// Longer than a token with a hundred groups.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
/// Keys of a provider that are read: more than are ever in use at a time.
const KEYS_MAX: usize = 100;
/// The largest clock difference between healthy machines.
pub const LEEWAY_MS: i64 = 60 * SECOND_MS;
/// The limit of OpenID Connect.
const SUBJECT_BYTES_MAX: usize = 255;

const RSA: &[Algorithm] =
    &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];

/// A key that a provider signs with.
pub struct ProviderKey {
    id: Option<String>,
    /// The only permitted algorithm, if the provider names one.
    algorithm: Option<KeyAlgorithm>,
    /// The algorithms of the key's type.
    algorithms: &'static [Algorithm],
    public: DecodingKey,
}

/// The usable keys of a JWK set; others are skipped.
pub fn parse_keys(set: &Value) -> Vec<ProviderKey> {
    let keys = set.get("keys").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    keys.iter().filter_map(parse_key).take(KEYS_MAX).collect()
}

fn parse_key(value: &Value) -> Option<ProviderKey> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    let algorithms: &'static [Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => RSA,
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(pair) => match pair.curve {
            EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
            _ => return None,
        },
        _ => return None,
    };
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
        && jwk.common.key_operations.as_ref().is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    let public = DecodingKey::from_jwk(&jwk).ok().filter(|_| signs)?;
    Some(ProviderKey { id: jwk.common.key_id, algorithm: jwk.common.key_algorithm, algorithms, public })
}

impl ProviderKey {
    /// A token without a `kid` may be signed with any key.
    fn matches_header(&self, header: &Header) -> bool {
        header.kid.is_none() || header.kid == self.id
    }

    fn supports_algorithm(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm) && self.algorithm.is_none_or(|only| only == KeyAlgorithm::from(algorithm))
    }
}

/// What the claims must match, and the time of the check.
pub struct ExpectedClaims<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
    pub now: Timestamp,
}

/// Why a token is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// The token names an unknown key: the provider may have a new one.
    UnknownKey,
    /// The signature fits none of the keys with this id: the provider may have reused the id for a new key.
    BadSignature,
    /// The token is invalid for this reason.
    Invalid(&'static str),
}

/// Why the keys of a provider are reread. Each reason has its own interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RereadReason {
    UnknownKey,
    BadSignature,
}

impl TokenFault {
    /// The reason to reread the keys, if newer ones could verify the token.
    pub fn reread_reason(&self) -> Option<RereadReason> {
        match self {
            TokenFault::UnknownKey => Some(RereadReason::UnknownKey),
            TokenFault::BadSignature => Some(RereadReason::BadSignature),
            TokenFault::Invalid(_) => None,
        }
    }

    pub fn detail(&self) -> &'static str {
        match self {
            TokenFault::UnknownKey => "it names none of the provider's keys",
            TokenFault::BadSignature => "its signature is of none of the provider's keys",
            TokenFault::Invalid(detail) => detail,
        }
    }
}

/// Verifies that the token is signed by the provider, for this client and this sign-on, and returns its claims.
pub fn verify_token(
    token: &str,
    keys: &[ProviderKey],
    expected: &ExpectedClaims<'_>,
) -> Result<Map<String, Value>, TokenFault> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenFault::Invalid("it is too long"));
    }
    let header = decode_header(token).map_err(|_| TokenFault::Invalid("its header cannot be read"))?;
    // A critical header extension must be understood, and none is supported.
    if header.crit.is_some() {
        return Err(TokenFault::Invalid("its header asks for more than we know"));
    }
    let claims = verify_signature(token, &header, keys)?;
    check_claims(&claims, expected).map_err(TokenFault::Invalid)?;
    Ok(claims)
}

fn verify_signature(token: &str, header: &Header, keys: &[ProviderKey]) -> Result<Map<String, Value>, TokenFault> {
    let candidates: Vec<&ProviderKey> = keys.iter().filter(|key| key.matches_header(header)).collect();
    if candidates.is_empty() {
        return Err(TokenFault::UnknownKey);
    }
    let mut usable = candidates.into_iter().filter(|key| key.supports_algorithm(header.alg)).peekable();
    if usable.peek().is_none() {
        return Err(TokenFault::Invalid("its algorithm does not fit the provider's key"));
    }
    let validation = signature_only(header.alg);
    let verified = usable.find_map(|key| decode::<Map<String, Value>>(token, &key.public, &validation).ok());
    verified.map(|data| data.claims).ok_or(TokenFault::BadSignature)
}

/// Checks the signature only: the library would check times by the clock of the machine.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims = HashSet::new();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

fn check_claims(claims: &Map<String, Value>, expected: &ExpectedClaims<'_>) -> Result<(), &'static str> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return Err("it is of another issuer");
    }
    if !is_for_client(claims, expected.client_id) {
        return Err("it is for somebody else");
    }
    let (latest, earliest) = (expected.now.plus_ms(LEEWAY_MS), expected.now.plus_ms(-LEEWAY_MS));
    if find_time(claims, "exp").is_none_or(|end| end <= earliest) {
        return Err("it has expired, or does not say when it does");
    }
    if find_time(claims, "iat").is_none_or(|made| made > latest) {
        return Err("it is of the future, or does not say when it was made");
    }
    if claims.contains_key("nbf") && find_time(claims, "nbf").is_none_or(|start| start > latest) {
        return Err("it is not valid yet");
    }
    if !text("nonce").is_some_and(|nonce| constant_time_eq(nonce.as_bytes(), expected.nonce.as_bytes())) {
        return Err("it is not about this sign-on");
    }
    let is_subject = |text: &str| (1..=SUBJECT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if !text("sub").is_some_and(is_subject) {
        return Err("it does not say who it is about");
    }
    Ok(())
}

/// Whether this client is the audience. With several audiences, `azp` must name this client.
fn is_for_client(claims: &Map<String, Value>, client_id: &str) -> bool {
    let (is_among, is_alone) = match claims.get("aud") {
        Some(Value::String(one)) => (one == client_id, true),
        Some(Value::Array(all)) => (all.iter().any(|one| one.as_str() == Some(client_id)), all.len() == 1),
        _ => (false, false),
    };
    match claims.get("azp") {
        None | Some(Value::Null) => is_among && is_alone,
        Some(party) => is_among && party.as_str() == Some(client_id),
    }
}

/// A time claim in whole seconds; a fraction is cut off.
fn find_time(claims: &Map<String, Value>, name: &str) -> Option<Timestamp> {
    let number = claims.get(name)?.as_number()?.to_string();
    // Written with an exponent, the number is too large for a real time.
    if number.contains(['e', 'E']) {
        return None;
    }
    let seconds: i64 = number.split('.').next()?.parse().ok()?;
    Some(Timestamp::from_millis(seconds.saturating_mul(SECOND_MS)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use jsonwebtoken::{EncodingKey, encode};
    use rcgen::KeyPair;
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_768_471_200_000);
    const NOW_S: i64 = 1_768_471_200;

    const EXPECTED: ExpectedClaims<'static> =
        ExpectedClaims { issuer: "https://idp.acme.test", client_id: "control", nonce: "n-1", now: NOW };

    struct Signer {
        private: EncodingKey,
        public: Value,
    }

    fn new_signer(kid: Option<&str>) -> Signer {
        let private = EncodingKey::from_ec_der(KeyPair::generate().unwrap().serialized_der());
        let mut jwk = Jwk::from_encoding_key(&private, Algorithm::ES256).unwrap();
        jwk.common.key_id = kid.map(str::to_owned);
        Signer { private, public: serde_json::to_value(jwk).unwrap() }
    }

    impl Signer {
        fn sign_claims(&self, kid: Option<&str>, claims: &Value) -> String {
            let mut header = Header::new(Algorithm::ES256);
            header.kid = kid.map(str::to_owned);
            encode(&header, claims, &self.private).unwrap()
        }
    }

    fn valid_claims() -> Value {
        json!({
            "iss": "https://idp.acme.test", "aud": "control", "sub": "u-1", "nonce": "n-1", "exp": NOW_S + 300,
            "iat": NOW_S, "email": "a@acme.test"
        })
    }

    /// The valid claims with some of them replaced; null removes one.
    fn claims_with(changed: &Value) -> Value {
        let mut claims = valid_claims();
        for (name, value) in changed.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        claims
    }

    #[test]
    fn a_good_token_is_believed() {
        let signer = new_signer(Some("k1"));
        let keys = parse_keys(&json!({"keys": [signer.public]}));
        for changed in [
            json!({}),
            json!({"aud": ["control"]}),
            json!({"aud": ["control", "other"], "azp": "control"}),
            json!({"exp": NOW_S - 59, "iat": NOW_S + 60, "nbf": NOW_S + 60}),
            json!({"exp": 1_768_471_500.25}),
        ] {
            let token = signer.sign_claims(Some("k1"), &claims_with(&changed));
            assert_eq!(verify_token(&token, &keys, &EXPECTED).unwrap()["sub"], "u-1", "{changed}");
            let unnamed = signer.sign_claims(None, &claims_with(&changed));
            assert!(verify_token(&unnamed, &keys, &EXPECTED).is_ok(), "{changed}");
        }
    }

    #[test]
    fn what_is_not_about_this_sign_on_is_not_believed() {
        let signer = new_signer(Some("k1"));
        let keys = parse_keys(&json!({"keys": [signer.public]}));
        for changed in [
            json!({"iss": "https://idp.acme.test/"}),
            json!({"iss": null}),
            json!({"aud": "other"}),
            json!({"aud": null}),
            json!({"aud": ["control", "other"]}),
            json!({"aud": ["control", "other"], "azp": "other"}),
            json!({"azp": "other"}),
            json!({"exp": NOW_S - 60}),
            json!({"exp": null}),
            json!({"exp": "9999999999"}),
            json!({"iat": NOW_S + 61}),
            json!({"iat": 1.7e19}),
            json!({"nbf": 18_446_744_073_709_551_615_u64}),
            json!({"nbf": 1.7e19}),
            json!({"iat": null}),
            json!({"nbf": NOW_S + 61}),
            json!({"nonce": "n-2"}),
            json!({"nonce": null}),
            json!({"sub": ""}),
            json!({"sub": "a\u{0}b"}),
            json!({"sub": null}),
            json!({"sub": "x".repeat(256)}),
        ] {
            let verified = verify_token(&signer.sign_claims(Some("k1"), &claims_with(&changed)), &keys, &EXPECTED);
            assert!(matches!(verified, Err(TokenFault::Invalid(_))), "{changed}: {verified:?}");
        }
    }

    #[test]
    fn only_the_providers_own_keys_count() {
        let (known, other) = (new_signer(Some("k1")), new_signer(Some("k1")));
        let keys = parse_keys(&json!({"keys": [known.public]}));
        let forged = other.sign_claims(Some("k1"), &valid_claims());
        assert_eq!(verify_token(&forged, &keys, &EXPECTED), Err(TokenFault::BadSignature));
        assert_eq!(
            verify_token(&other.sign_claims(Some("k2"), &valid_claims()), &keys, &EXPECTED),
            Err(TokenFault::UnknownKey)
        );
        assert_eq!(
            verify_token(&other.sign_claims(None, &valid_claims()), &keys, &EXPECTED),
            Err(TokenFault::BadSignature)
        );
        assert_eq!(
            verify_token(&known.sign_claims(Some("k1"), &valid_claims()), &[], &EXPECTED),
            Err(TokenFault::UnknownKey)
        );

        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("k1".to_owned());
        let secret = serde_json::to_vec(&known.public).unwrap();
        let confused = encode(&header, &valid_claims(), &EncodingKey::from_secret(&secret)).unwrap();
        assert!(matches!(verify_token(&confused, &keys, &EXPECTED), Err(TokenFault::Invalid(_))));
        // {"alg":"none"}
        let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", forged.split('.').nth(1).unwrap());
        assert!(matches!(verify_token(&unsigned, &keys, &EXPECTED), Err(TokenFault::Invalid(_))));
        for broken in ["", "a.b", "a.b.c", "..", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(matches!(verify_token(broken, &keys, &EXPECTED), Err(TokenFault::Invalid(_))));
        }
    }

    #[test]
    fn keys_that_cannot_sign_are_passed_over() {
        let good = new_signer(Some("k1")).public;
        let change = |name: &str, value: Value| {
            let mut key = good.clone();
            key[name] = value;
            key
        };
        let set = json!({"keys": [
            "x", {}, {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "RSA"}, change("use", json!("enc")),
            change("key_ops", json!(["encrypt"])), change("crv", json!("P-521")), change("use", json!("sig")), good,
        ]});
        assert_eq!(parse_keys(&set).len(), 2);
        assert_eq!(parse_keys(&json!({"keys": vec![good; 1_000]})).len(), KEYS_MAX);
        assert!(parse_keys(&json!([])).is_empty());
    }
}
