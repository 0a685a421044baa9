//! What a provider says of itself: a document that is not what it should be begins nothing, and leads nowhere inside.

use futures_util::FutureExt;
use kernel::base::{HOUR_MS, MINUTE_MS, SECOND_MS};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{DOMAIN, Flow, Scene, Told, assert_not_begun, assert_turned_away, begin, finish, open, provide, scene};
use crate::support::idp::{DISCOVERY, Idp, JWKS, Key, Says, TOKEN, USERINFO, person};
use crate::support::over_http;
use crate::support::receiver::{Behaviour, Receiver};

/// A megabyte is far more than any provider has to say.
const HUGE: usize = 1024 * 1024;

/// Another provider of the tenant, whose document nobody has read yet.
async fn another(scene: &Scene, domain: &str) -> Idp {
    let idp = Idp::start(&scene.server.app.env.clock).await;
    idp.person(person("subject-1", &format!("ann@{domain}")));
    provide(&scene.server, &scene.acme, Told::of(&idp, domain)).await;
    idp
}

/// Asserts that nobody signs on at this provider: it does not begin, or it ends with a page.
async fn comes_to_nothing(scene: &Scene, idp: &Idp, domain: &str, about: &str) {
    let users = scene.users().await;
    let answer = begin(&scene.server, domain).await;
    if answer.status == 200 {
        let flow = Flow::of(&answer);
        let back = idp.approve(&flow.url).await;
        assert_turned_away(&finish(&scene.server, &flow, &back).await, about);
    } else {
        assert_not_begun(&answer, about);
    }
    assert_eq!(scene.users().await, users, "{about}");
}

/// What is done to a document.
type Dial = Box<dyn Fn(&mut Value) + Send + Sync>;

/// A document in which one thing is another.
fn set(name: &'static str, value: Value) -> (String, Dial) {
    (format!("{name}: {value}"), Box::new(move |document| document[name] = value.clone()))
}

over_http! {
    async fn a_document_must_be_of_the_issuer_and_name_what_is_needed(setup: Setup) {
        let scene = scene(setup).await;
        let honest = scene.idp.issuer();
        let cases = [
            set("issuer", json!("https://evil.test")),
            set("issuer", json!(honest)),
            set("issuer", json!(null)),
            set("issuer", json!([honest])),
            set("authorization_endpoint", json!(null)),
            set("authorization_endpoint", json!("javascript:alert(1)")),
            set("authorization_endpoint", json!("data:text/html,hello")),
            set("authorization_endpoint", json!("ftp://127.0.0.1/authorize")),
            set("authorization_endpoint", json!("/authorize")),
            set("authorization_endpoint", json!("//evil.test/authorize")),
            set("authorization_endpoint", json!("")),
            set("token_endpoint", json!(null)),
            set("token_endpoint", json!("file:///etc/passwd")),
            set("token_endpoint", json!("unix:/run/control")),
            set("jwks_uri", json!(null)),
            set("jwks_uri", json!("file:///etc/passwd")),
            set("jwks_uri", json!(7)),
        ];
        for (at, (about, alter)) in cases.into_iter().enumerate() {
            let domain = format!("case-{at}.test");
            let idp = another(&scene, &domain).await;
            idp.alter(DISCOVERY, alter);
            comes_to_nothing(&scene, &idp, &domain, &about).await;
        }
    }

    async fn the_issuer_is_compared_to_the_letter(setup: Setup) {
        let scene = scene(setup).await;
        let idp = another(&scene, "slash.test").await;
        idp.alter(DISCOVERY, |document| {
            document["issuer"] = json!(format!("{}/", document["issuer"].as_str().unwrap_or_default()));
        });
        comes_to_nothing(&scene, &idp, "slash.test", "a slash at the end").await;
    }

    async fn a_document_that_cannot_be_read_begins_nothing(setup: Setup) {
        let scene = scene(setup).await;
        let honest = scene.idp.url(DISCOVERY);
        let cases = [
            ("an error", Says::status(500)),
            ("nothing there", Says::status(404)),
            ("no content", Says::status(204)),
            ("a redirect to an honest one", Says::redirect(&honest)),
            ("no JSON", Says::text("<html>Sign in</html>")),
            ("no object", Says::text("[]")),
            ("an empty object", Says::json(200, &json!({}))),
            ("no text", Says::text(vec![0xff_u8, 0xfe])),
            ("deeply nested", Says::text("[".repeat(100_000))),
            ("huge", Says::text(" ".repeat(HUGE) + "{}")),
            ("without end", Says::Endless),
            ("a closed door", Says::HangsUp),
        ];
        for (at, (about, says)) in cases.into_iter().enumerate() {
            let domain = format!("case-{at}.test");
            let idp = another(&scene, &domain).await;
            idp.say(DISCOVERY, says);
            assert_not_begun(&begin(&scene.server, &domain).await, about);
        }
        assert_eq!(scene.idp.asked_in_all(), 0, "no redirect was followed");
        scene.signed_on().await;
    }

    async fn endpoints_inside_our_own_network_are_not_called(setup: Setup) {
        let scene = scene(setup).await;
        let inside = ["http://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "http://[::1]:9/", "http://localhost:9/"];
        for (at, (endpoint, url)) in ["token_endpoint", "jwks_uri", "userinfo_endpoint"]
            .into_iter()
            .flat_map(|endpoint| inside.map(|url| (endpoint, url)))
            .enumerate()
        {
            let domain = format!("case-{at}.test");
            let idp = another(&scene, &domain).await;
            idp.tell_in_token(&[]);
            idp.alter(DISCOVERY, move |document| document[endpoint] = json!(url));
            comes_to_nothing(&scene, &idp, &domain, &format!("{endpoint} at {url}")).await;
        }
    }

    async fn nor_is_what_listens_there_by_https(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.allow = vec!["127.0.0.1/32".parse().unwrap()];
        let scene = scene(setup).await;
        let inside = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let url = format!("https://{}/", inside.local_addr().unwrap());
        for (at, endpoint) in ["token_endpoint", "jwks_uri", "userinfo_endpoint"].into_iter().enumerate() {
            let domain = format!("case-{at}.test");
            let (idp, url) = (another(&scene, &domain).await, url.clone());
            idp.tell_in_token(&[]);
            idp.alter(DISCOVERY, move |document| document[endpoint] = json!(url));
            comes_to_nothing(&scene, &idp, &domain, endpoint).await;
            assert!(inside.accept().now_or_never().is_none(), "{endpoint}");
        }
    }

    async fn by_https_every_endpoint_is_by_https(setup: Setup) {
        let mut setup = setup;
        let folder = TempDir::new().unwrap();
        let (receiver, authority) = Receiver::start_tls().await;
        std::fs::write(folder.path().join("authority.pem"), authority).unwrap();
        setup.settings.outbound.extra_roots = Some(folder.path().join("authority.pem"));
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        for plain in ["", "authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"] {
            let (path, domain) = (format!("/of-{plain}"), format!("of-{}.test", plain.replace('_', "-") + "x"));
            let mut document = json!({"issuer": receiver.url(&path)});
            for endpoint in ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"] {
                document[endpoint] = json!(receiver.url(&format!("{path}/{endpoint}")));
            }
            if !plain.is_empty() {
                document[plain] = json!(receiver.url(&path).replace("https:", "http:"));
            }
            let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
            let says = Behaviour::AnswerWith { status: 200, headers, body: document.to_string().into_bytes() };
            receiver.on(&format!("{path}{DISCOVERY}"), [says]);
            let (issuer, domain) = (receiver.url(&path), domain.as_str());
            provide(&server, &acme, Told::at(issuer, domain)).await;
            let answer = begin(&server, domain).await;
            if plain.is_empty() {
                assert!(Flow::of(&answer).url.starts_with("https://"));
            } else {
                assert_not_begun(&answer, plain);
            }
        }
    }

    async fn keys_that_are_no_keys_sign_nothing(setup: Setup) {
        let scene = scene(setup).await;
        let cases = [
            ("none", Says::json(200, &json!({"keys": []}))),
            ("no list", Says::json(200, &json!({"keys": {}}))),
            ("no keys", Says::json(200, &json!({}))),
            ("nonsense", Says::json(200, &json!({"keys": [null, 7, "key", [], {}, {"kty": "EC"}, {"kty": "unknown", "kid": "first"}]}))),
            ("no JSON", Says::text("no JSON")),
            ("an error", Says::status(500)),
            ("a redirect", Says::redirect(&scene.idp.url(JWKS))),
            ("huge", Says::text(" ".repeat(HUGE) + "{\"keys\": []}")),
            ("without end", Says::Endless),
            ("a point that is on no curve", Says::json(200, &json!({"keys": [
                {"kty": "EC", "crv": "P-256", "kid": "first", "alg": "ES256", "x": "AAAA", "y": "AAAA"},
            ]}))),
        ];
        for (about, says) in cases {
            // What could not be read may be read again.
            scene.server.advance(MINUTE_MS);
            scene.idp.say(JWKS, says);
            scene.refuses(about, scene.sign_on()).await;
        }
        // The last of them has the right name, and is believed for as long as any.
        scene.server.advance(HOUR_MS);
        scene.idp.behave();
        scene.signed_on().await;
    }

    async fn a_thousand_keys_are_no_hindrance(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.alter(JWKS, |keys| {
            let right = keys["keys"][0].clone();
            let others = (0..1_000).map(|at| {
                let mut other = right.clone();
                other["kid"] = json!(format!("other-{at}"));
                other["use"] = json!("enc");
                other
            });
            keys["keys"] = others.clone().take(500).chain([right.clone()]).chain(others.skip(500)).collect();
        });
        // Those for encryption cannot be used and count for nothing.
        scene.signed_on().await;
    }

    async fn a_key_that_comes_in_the_middle_of_a_flow_is_found(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        assert_eq!((scene.idp.asked(DISCOVERY), scene.idp.asked(JWKS)), (1, 1));
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        scene.server.advance(31 * SECOND_MS);
        scene.idp.keys(vec![Key::ec("next"), scene.idp.key()]);
        finish(&scene.server, &flow, &back).await.is(303);
        assert_eq!(scene.idp.asked(JWKS), 2);
        scene.signed_on().await;
        assert_eq!(scene.idp.asked(JWKS), 2, "what is known is not asked for again");

        // Names that nobody knows do not make us ask the provider again and again.
        scene.server.advance(31 * SECOND_MS);
        for at in 0..5 {
            scene.idp.spoil(move |draft| draft.sign_with(Key::ec(&format!("stranger-{at}"))));
            scene.refuses("an unknown key", scene.sign_on()).await;
        }
        assert!(scene.idp.asked(JWKS) <= 3, "{}", scene.idp.asked(JWKS));
    }

    async fn another_key_by_the_name_of_the_old_one_is_found(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        // As a provider has it that was set up anew.
        scene.idp.keys(vec![Key::ec("first")]);
        scene.signed_on().await;
        assert_eq!(scene.idp.asked(JWKS), 2);
        for _ in 0..3 {
            let forged = Key::ec("first");
            scene.idp.spoil(move |draft| draft.sign_with(forged.clone()));
            scene.refuses("a signature of nobody's", scene.sign_on()).await;
        }
        assert_eq!(scene.idp.asked(JWKS), 2, "and not for everybody who is refused");
    }

    async fn bad_signatures_keep_no_new_key_from_being_found(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        let forged = Key::ec("first");
        scene.idp.spoil(move |draft| draft.sign_with(forged.clone()));
        for _ in 0..2 {
            scene.refuses("a signature of nobody's", scene.sign_on()).await;
        }
        assert_eq!(scene.idp.asked(JWKS), 2);
        scene.idp.behave();
        scene.idp.keys(vec![Key::ec("next")]);
        scene.signed_on().await;
        assert_eq!(scene.idp.asked(JWKS), 3, "in the same half minute");
    }

    async fn unknown_keys_keep_no_new_key_of_an_old_name_from_being_found(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        scene.idp.spoil(|draft| draft.sign_with(Key::ec("stranger")));
        for _ in 0..2 {
            scene.refuses("an unknown key", scene.sign_on()).await;
        }
        assert_eq!(scene.idp.asked(JWKS), 2);
        scene.idp.behave();
        scene.idp.keys(vec![Key::ec("first")]);
        scene.signed_on().await;
        assert_eq!(scene.idp.asked(JWKS), 3, "in the same half minute");
    }

    async fn a_key_that_was_withdrawn_signs_nothing_an_hour_later(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        let old = scene.idp.key();
        scene.idp.keys(vec![Key::ec("next")]);
        scene.idp.spoil(move |draft| draft.sign_with(old.clone()));
        scene.server.advance(HOUR_MS + MINUTE_MS);
        scene.refuses("a withdrawn key", scene.sign_on()).await;
    }

    async fn many_who_begin_at_once_ask_the_provider_once(setup: Setup) {
        let scene = scene(setup).await;
        let all = (0..20).map(|_| async { begin(&scene.server, DOMAIN).await });
        for answer in futures_util::future::join_all(all).await {
            answer.is(200);
        }
        assert_eq!(scene.idp.asked(DISCOVERY), 1);
        assert_eq!((scene.idp.asked(TOKEN), scene.idp.asked(USERINFO)), (0, 0));
    }
}
