//! The keys of an OpenID provider, and the tokens that are signed with them, rightly or not.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use rcgen::{KeyPair, PKCS_RSA_SHA256};
use serde_json::{Value, json};

/// What stands before the key itself in PKCS #8, for an RSA key of 2048 bits.
const PKCS8_HEAD_BYTES: usize = 26;

/// A key that signs ID tokens.
#[derive(Clone)]
pub struct Key {
    pub id: String,
    algorithm: Algorithm,
    private: EncodingKey,
    /// The public half as verifiers have it in memory, and as files have it: what a careless one takes for a secret.
    pub public: [Vec<u8>; 2],
}

impl Key {
    /// On P-256, which takes no time to make.
    pub fn ec(id: &str) -> Key {
        let (private, public) = halves(&KeyPair::generate().unwrap());
        Key { id: id.to_owned(), algorithm: Algorithm::ES256, private: EncodingKey::from_ec_der(&private), public }
    }

    /// Of 2048 bits: always the same one, for they take long to make.
    pub fn rsa(id: &str) -> Key {
        static MADE: OnceLock<(Vec<u8>, [Vec<u8>; 2])> = OnceLock::new();
        let (private, public) = MADE.get_or_init(|| halves(&KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap()));
        let private = EncodingKey::from_rsa_der(&private[PKCS8_HEAD_BYTES..]);
        Key { id: id.to_owned(), algorithm: Algorithm::RS256, private, public: public.clone() }
    }

    /// The same key with another algorithm of its kind.
    #[must_use]
    pub fn signing_by(mut self, algorithm: Algorithm) -> Key {
        self.algorithm = algorithm;
        self
    }

    /// The public half as the provider publishes it.
    pub fn jwk(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.private, self.algorithm).expect("a public half");
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = json!(self.id);
        jwk["use"] = json!("sig");
        jwk
    }

    pub fn algorithm(&self) -> Value {
        serde_json::to_value(self.algorithm).unwrap()
    }
}

fn halves(pair: &KeyPair) -> (Vec<u8>, [Vec<u8>; 2]) {
    (pair.serialize_der(), [pair.public_key_raw().to_vec(), pair.public_key_pem().into_bytes()])
}

/// An ID token before it is signed, for a test to spoil.
pub struct Draft {
    pub header: Value,
    pub claims: Value,
    pub signer: Signer,
    /// Takes the place of the claims when they are signed.
    pub swapped: Option<Value>,
}

/// Who signs. The header says what it says, whoever it is.
pub enum Signer {
    Key(Box<Key>),
    /// HS256 with this secret.
    Secret(Vec<u8>),
    Nobody,
}

impl Draft {
    pub fn new(key: &Key, claims: Value) -> Draft {
        let header = json!({"alg": key.algorithm(), "kid": key.id, "typ": "JWT"});
        Draft { header, claims, signer: Signer::Key(Box::new(key.clone())), swapped: None }
    }

    /// Signs with this key and says so.
    pub fn sign_with(&mut self, key: Key) {
        self.header["alg"] = key.algorithm();
        self.header["kid"] = json!(key.id);
        self.signer = Signer::Key(Box::new(key));
    }

    pub fn signed(&self) -> String {
        let part = |value: &Value| BASE64.encode(value.to_string());
        let header = part(&self.header);
        let message = format!("{header}.{}", part(&self.claims));
        let signature = match &self.signer {
            Signer::Key(key) => crypto::sign(message.as_bytes(), &key.private, key.algorithm).expect("a signature"),
            Signer::Secret(secret) => {
                let key = EncodingKey::from_secret(secret);
                crypto::sign(message.as_bytes(), &key, Algorithm::HS256).expect("a signature")
            }
            Signer::Nobody => String::new(),
        };
        format!("{header}.{}.{signature}", part(self.swapped.as_ref().unwrap_or(&self.claims)))
    }
}
