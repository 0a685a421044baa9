//! ID tokens that are not what they should be: each is refused, and nobody is made or let in.

use jsonwebtoken::Algorithm;
use kernel::base::{MINUTE_MS, SECOND_MS};
use serde_json::{Value, json};

use super::{Scene, scene};
use crate::support::idp::{CLIENT_ID, CLIENT_SECRET, Draft, JWKS, Key, Signer, TOKEN, person};
use crate::support::over_http;

/// What is wrong with a token, and what makes it so.
type Attack = (&'static str, fn(&mut Draft));

/// Seconds that clocks may differ by, and as much again.
const AHEAD: i64 = 2 * MINUTE_MS / SECOND_MS;

/// When the token was issued, in seconds.
fn now(draft: &Draft) -> i64 {
    draft.claims["iat"].as_i64().expect("a time")
}

fn remove(value: &mut Value, name: &str) {
    value.as_object_mut().expect("an object").remove(name);
}

fn unsigned(draft: &mut Draft, algorithm: &str) {
    draft.header["alg"] = json!(algorithm);
    draft.signer = Signer::Nobody;
}

/// Signed with a key of the attacker's own, which goes by the name of the provider's.
fn forge(draft: &mut Draft) -> Key {
    let key = Key::ec("first");
    draft.sign_with(key.clone());
    key
}

const SIGNATURES: &[Attack] = &[
    ("none", |draft| unsigned(draft, "none")),
    ("none in capitals", |draft| unsigned(draft, "NONE")),
    ("none in both", |draft| unsigned(draft, "nOnE")),
    ("no algorithm", |draft| {
        unsigned(draft, "");
        remove(&mut draft.header, "alg");
    }),
    ("no signature", |draft| unsigned(draft, "ES256")),
    ("claims that were changed", |draft| {
        let mut claims = draft.claims.clone();
        claims["sub"] = json!("somebody-else");
        draft.swapped = Some(claims);
    }),
    ("an unknown key", |draft| draft.sign_with(Key::ec("stranger"))),
    ("another key by the known name", |draft| drop(forge(draft))),
    ("another key without a name", |draft| {
        forge(draft);
        remove(&mut draft.header, "kid");
    }),
    ("a key in the header", |draft| {
        let key = forge(draft);
        draft.header["jwk"] = key.jwk();
    }),
    ("the address of a key in the header", |draft| {
        forge(draft);
        draft.header["jku"] = json!("http://127.0.0.1:9/jwks");
        draft.header["x5u"] = json!("http://127.0.0.1:9/certificate");
    }),
    ("a key of another kind by the known name", |draft| draft.sign_with(Key::rsa("first"))),
    ("another algorithm than the one that signed", |draft| draft.header["alg"] = json!("RS256")),
    ("a secret that everybody has", |draft| {
        draft.header["alg"] = json!("HS256");
        draft.signer = Signer::Secret(Vec::new());
    }),
    ("the client's secret", |draft| {
        draft.header["alg"] = json!("HS256");
        draft.signer = Signer::Secret(CLIENT_SECRET.as_bytes().to_vec());
    }),
];

const TIMES: &[Attack] = &[
    ("expired", |draft| draft.claims["exp"] = json!(now(draft) - AHEAD)),
    ("without an end", |draft| remove(&mut draft.claims, "exp")),
    ("an end that is no time", |draft| draft.claims["exp"] = json!("never")),
    ("an end of null", |draft| draft.claims["exp"] = json!(null)),
    ("issued at no time", |draft| remove(&mut draft.claims, "iat")),
    ("issued tomorrow", |draft| draft.claims["iat"] = json!(now(draft) + AHEAD)),
    ("good from tomorrow on", |draft| draft.claims["nbf"] = json!(now(draft) + AHEAD)),
];

const CLAIMS: &[Attack] = &[
    ("of nobody", |draft| remove(&mut draft.claims, "iss")),
    ("of another issuer", |draft| draft.claims["iss"] = json!("https://evil.test")),
    ("of an issuer that is spelt otherwise", |draft| {
        draft.claims["iss"] = json!(format!("{}/", draft.claims["iss"].as_str().unwrap_or_default()));
    }),
    ("of several issuers", |draft| draft.claims["iss"] = json!([draft.claims["iss"], "https://evil.test"])),
    ("for nobody", |draft| remove(&mut draft.claims, "aud")),
    ("for somebody else", |draft| draft.claims["aud"] = json!("another-client")),
    ("for some others", |draft| draft.claims["aud"] = json!(["another-client", "a-third"])),
    ("for an empty list", |draft| draft.claims["aud"] = json!([])),
    ("for several, and who asked is not said", |draft| draft.claims["aud"] = json!([CLIENT_ID, "another-client"])),
    ("for several, asked for by another", |draft| {
        draft.claims["aud"] = json!([CLIENT_ID, "another-client"]);
        draft.claims["azp"] = json!("another-client");
    }),
    ("of no flow", |draft| remove(&mut draft.claims, "nonce")),
    ("of another flow", |draft| draft.claims["nonce"] = json!("another-nonce-of-another-flow-altogether")),
    ("of a flow of null", |draft| draft.claims["nonce"] = json!(null)),
    ("of a flow of no name", |draft| draft.claims["nonce"] = json!("")),
    ("without a subject", |draft| remove(&mut draft.claims, "sub")),
    ("with an empty subject", |draft| draft.claims["sub"] = json!("")),
    ("with a subject that is no text", |draft| draft.claims["sub"] = json!(7)),
    ("with a subject without end", |draft| draft.claims["sub"] = json!("s".repeat(256))),
    ("larger than any", |draft| draft.claims["padding"] = json!("x".repeat(70_000))),
];

async fn refuses_all(scene: &Scene, attacks: &[Attack]) {
    for (about, attack) in attacks {
        scene.idp.spoil(*attack);
        scene.refuses(about, scene.sign_on()).await;
    }
    scene.idp.behave();
    scene.signed_on().await;
}

over_http! {
    async fn what_the_provider_has_not_signed_is_refused(setup: Setup) {
        let scene = scene(setup).await;
        refuses_all(&scene, SIGNATURES).await;
    }

    async fn what_is_not_of_this_moment_is_refused(setup: Setup) {
        let scene = scene(setup).await;
        refuses_all(&scene, TIMES).await;
    }

    async fn what_was_said_to_somebody_else_is_refused(setup: Setup) {
        let scene = scene(setup).await;
        refuses_all(&scene, CLAIMS).await;
    }

    async fn a_public_key_is_no_secret(setup: Setup) {
        let scene = scene(setup).await;
        for key in [scene.idp.key(), Key::rsa("second")] {
            scene.server.advance(31 * SECOND_MS);
            scene.idp.behave();
            scene.idp.keys(vec![key.clone()]);
            scene.signed_on().await;
            for secret in key.public {
                scene.idp.spoil(move |draft| {
                    draft.header["alg"] = json!("HS256");
                    draft.signer = Signer::Secret(secret.clone());
                });
                scene.refuses("HS256 with a public key", scene.sign_on()).await;
            }
        }
    }

    async fn a_secret_that_the_provider_publishes_is_none(setup: Setup) {
        let scene = scene(setup).await;
        // The base64 of `secret`.
        let shared = json!({"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256", "use": "sig"});
        scene.idp.alter(JWKS, move |keys| keys["keys"] = json!([shared, keys["keys"][0]]));
        scene.signed_on().await;
        scene.idp.spoil(|draft| {
            draft.header = json!({"alg": "HS256", "kid": "shared"});
            draft.signer = Signer::Secret(b"secret".to_vec());
        });
        scene.refuses("HS256 with a published secret", scene.sign_on()).await;
    }

    async fn a_key_signs_by_its_own_algorithm_alone(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.keys(vec![Key::rsa("rsa")]);
        scene.signed_on().await;
        for algorithm in [Algorithm::PS256, Algorithm::RS512] {
            scene.idp.spoil(move |draft| draft.sign_with(Key::rsa("rsa").signing_by(algorithm)));
            scene.refuses(&format!("{algorithm:?} with a key of RS256"), scene.sign_on()).await;
        }
    }

    async fn a_key_for_encryption_signs_nothing(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.alter(JWKS, |keys| keys["keys"][0]["use"] = json!("enc"));
        scene.refuses("a key of another use", scene.sign_on()).await;
    }

    async fn what_is_right_in_other_words_is_accepted(setup: Setup) {
        let scene = scene(setup).await;
        let fine: &[Attack] = &[
            ("a list of one", |draft| draft.claims["aud"] = json!([CLIENT_ID])),
            ("for several, asked for by us", |draft| {
                draft.claims["aud"] = json!(["another-client", CLIENT_ID]);
                draft.claims["azp"] = json!(CLIENT_ID);
            }),
            ("a clock that is ahead", |draft| {
                draft.claims["iat"] = json!(now(draft) + 30);
                draft.claims["nbf"] = draft.claims["iat"].clone();
            }),
            ("a clock that is behind", |draft| draft.claims["exp"] = json!(now(draft) - 30)),
        ];
        for (about, change) in fine {
            scene.idp.spoil(*change);
            let answer = scene.sign_on().await;
            assert_eq!(answer.status, 303, "{about}: {}", String::from_utf8_lossy(&answer.body));
        }
        scene.idp.behave();
        scene.idp.person(person(&"s".repeat(255), "long@acme.test"));
        scene.signed_on().await;
    }

    async fn what_is_no_token_is_refused(setup: Setup) {
        let scene = scene(setup).await;
        let long = "x".repeat(100_000);
        for token in [json!(null), json!(7), json!(""), json!("a.b"), json!("a.b.c"), json!("..."), json!([]), json!(long)] {
            let about: String = token.to_string().chars().take(20).collect();
            scene.idp.alter(TOKEN, move |answer| answer["id_token"] = token.clone());
            scene.refuses(&about, scene.sign_on()).await;
        }
        scene.idp.alter(TOKEN, |answer| remove(answer, "id_token"));
        scene.refuses("none at all", scene.sign_on()).await;
    }

    async fn a_token_of_another_sign_on_is_refused(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        // Signed, of the right issuer and for the right client; only of a flow that is over.
        let old = scene.idp.secrets().into_iter().find(|secret| secret.contains('.')).expect("a token");
        scene.idp.alter(TOKEN, move |answer| answer["id_token"] = json!(old));
        scene.refuses("a token of before", scene.sign_on()).await;
    }
}
