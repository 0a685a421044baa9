//! For whom a provider vouches: people of the domains that lead to it, and nobody else of the tenant.

use kernel::auth::{Role, open_as_operator};
use kernel::base::MINUTE_MS;
use kernel::store::Purpose;
use serde_json::{Value, json};
use tenant_control::features::sso::{self, ProviderChange};

use super::{
    DOMAIN, Flow, Scene, Told, USERS, add, assert_turned_away, begin, disable, finish, provide, reason, scene,
    session_of, update, verify,
};
use crate::support::idp::{Idp, person};
use crate::support::{Answer, over_http};

const CONTRACTORS: &str = "contractors.test";
const BOSS: &str = "boss@acme.test";

/// Another provider of the tenant, as one has for contractors. Everybody there is an admin, as it says itself.
struct Contractors {
    idp: Idp,
    provider: String,
}

async fn contractors(scene: &Scene) -> Contractors {
    let idp = Idp::start(&scene.server.app.env.clock).await;
    idp.person(person("mallory", &format!("mallory@{CONTRACTORS}")));
    let told = Told { default_role: Some(Role::Admin), trust_email: true, ..Told::of(&idp, CONTRACTORS) };
    let provider = provide(&scene.server, &scene.acme, told).await;
    Contractors { idp, provider }
}

async fn sign_on_at(scene: &Scene, idp: &Idp, domain: &str) -> Answer {
    let flow = Flow::of(&begin(&scene.server, domain).await);
    let back = idp.approve(&flow.url).await;
    finish(&scene.server, &flow, &back).await
}

/// Who is signed on at the contractors' provider.
async fn contractor(scene: &Scene, of: &Contractors) -> Value {
    let session = session_of(sign_on_at(scene, &of.idp, CONTRACTORS).await.is(303)).expect("a session");
    scene.session(&session).await
}

/// Asserts that a sign-on at the contractors' provider comes to nothing, and returns why.
async fn refused(scene: &Scene, of: &Contractors, about: &str) -> Value {
    // So that the newest entry of the trail is the newest.
    scene.server.advance(1_000);
    let users = scene.users().await;
    assert_turned_away(&sign_on_at(scene, &of.idp, CONTRACTORS).await, about);
    assert_eq!(scene.users().await, users, "{about}");
    let entry = scene.trail("sso.refused").await.swap_remove(0);
    assert_eq!(entry["target"]["id"], of.provider, "{about}: {entry}");
    entry["changes"].clone()
}

async fn make(scene: &Scene, email: &str, role: &str) -> Value {
    let body = json!({"email": email, "name": "By hand", "role": role});
    scene.server.post(USERS).cookie(&scene.acme.admin).json(&body).await.ok(201)
}

/// As an admin does.
async fn rename(scene: &Scene, id: &Value, email: &str) {
    let target = format!("{USERS}?id={}", id.as_str().unwrap());
    let mut user = scene.server.get(&target).cookie(&scene.acme.admin).await.ok(200);
    user["email"] = json!(email);
    let body = json!({"email": email, "name": user["name"], "role": user["role"]});
    scene.server.put(&target).cookie(&scene.acme.admin).json(&body).await.is(200);
}

over_http! {
    async fn nobody_is_taken_over_by_another_provider_of_the_tenant(setup: Setup) {
        let scene = scene(setup).await;
        let boss = make(&scene, BOSS, "admin").await;
        let others = contractors(&scene).await;
        others.idp.person(person("mallory", BOSS));
        let why = refused(&scene, &others, "an unlinked admin").await;
        assert_eq!(why["reason"]["to"], "domain_of_other_provider");
        assert_eq!((&why["email"]["to"], &why["subject"]["to"]), (&json!(BOSS), &json!("mallory")), "it names whom");
        // Nor is anybody made there.
        others.idp.person(person("mallory", "new@acme.test"));
        refused(&scene, &others, "provisioning").await;
        assert_eq!(scene.user(BOSS).await["version"], boss["version"]);

        // The domain's own provider still links.
        scene.idp.person(person("the-boss", BOSS));
        assert_eq!(scene.session(&scene.signed_on().await).await["actor"]["id"], boss["id"]);
    }

    async fn nobody_renames_themselves_into_another_providers_domain(setup: Setup) {
        let scene = scene(setup).await;
        let boss = make(&scene, BOSS, "admin").await;
        let others = contractors(&scene).await;
        let mallory = contractor(&scene, &others).await;
        for email in [BOSS, "nobody@acme.test", "Nobody@ACME.test"] {
            others.idp.person(person("mallory", email));
            let why = refused(&scene, &others, email).await;
            assert_eq!(why["reason"]["to"], "domain_of_other_provider");
        }
        assert_eq!(scene.user(BOSS).await["version"], boss["version"]);
        // Within the provider's own domain an address may change.
        others.idp.person(person("mallory", "mal@contractors.test"));
        let renamed = contractor(&scene, &others).await;
        assert_eq!((&renamed["actor"]["id"], &renamed["actor"]["email"]), (&mallory["actor"]["id"], &json!("mal@contractors.test")));
    }

    async fn an_address_that_another_provider_vouches_for_stays(setup: Setup) {
        let scene = scene(setup).await;
        let others = contractors(&scene).await;
        let mallory = contractor(&scene, &others).await;
        assert_eq!(scene.trail("sso.sign_in").await[0]["changes"], json!(null));
        rename(&scene, &mallory["actor"]["id"], "mallory@acme.test").await;
        scene.server.advance(MINUTE_MS);
        // They are who they are, and keep the address that an admin gave them.
        let again = contractor(&scene, &others).await;
        assert_eq!((&again["actor"]["id"], &again["actor"]["email"]), (&mallory["actor"]["id"], &json!("mallory@acme.test")));
        let ignored = json!({"ignored_email": {"from": null, "to": "mallory@contractors.test"}});
        assert_eq!(scene.trail("sso.sign_in").await[0]["changes"], ignored);
        // The operator is told of it.
        let all = scene.server.app.store.system(Purpose::Cli);
        let told = sso::list_vouched_elsewhere(&all, 10).await.expect("a list");
        assert_eq!(told, [("acme".to_owned(), "mallory@acme.test".to_owned())]);
        // So it is while the other provider is disabled: the domain is still its own.
        disable(&scene.server, &scene.acme, &scene.provider).await;
        assert_eq!(contractor(&scene, &others).await["actor"]["email"], "mallory@acme.test");
        // An address of a domain that is nobody's any more is like any other.
        sso::release_domain(&open_as_operator(&scene.server.app.store, &scene.acme.tenant), DOMAIN).await.expect("it is given up");
        assert_eq!(contractor(&scene, &others).await["actor"]["email"], "mallory@contractors.test");
        assert_eq!(sso::list_vouched_elsewhere(&all, 10).await.expect("a list"), []);
    }

    async fn an_address_that_somebody_else_has_is_told_in_the_trail(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        make(&scene, "bob@acme.test", "admin").await;
        scene.idp.person(person("subject-1", "bob@acme.test"));
        scene.server.advance(1_000);
        scene.signed_on().await;
        let ignored = json!({"ignored_email": {"from": null, "to": "bob@acme.test"}});
        assert_eq!(scene.trail("sso.sign_in").await[0]["changes"], ignored);
    }

    async fn a_domain_that_moves_is_the_next_providers_alone(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        make(&scene, BOSS, "admin").await;
        let others = contractors(&scene).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        // A domain of a provider that is enabled stays with it.
        let move_it = || ProviderChange { domains: vec![DOMAIN.to_owned()], ..ProviderChange::default() };
        assert!(update(&scene.server, &scene.acme, &others.provider, move_it()).await.is_err());
        disable(&scene.server, &scene.acme, &scene.provider).await;
        others.idp.person(person("mallory", BOSS));
        let why = refused(&scene, &others, "the other is only disabled").await;
        assert_eq!(why["reason"]["to"], "domain_of_other_provider");

        update(&scene.server, &scene.acme, &others.provider, move_it()).await.expect("it is moved");
        let enable = ProviderChange { enable: true, ..ProviderChange::default() };
        update(&scene.server, &scene.acme, &scene.provider, enable).await.expect("it is back");
        // What began before, at the provider that the domain led to then, is over; and so is every later one.
        scene.server.advance(1_000);
        scene.refuses("begun before it moved", finish(&scene.server, &flow, &back)).await;
        assert!(Flow::of(&begin(&scene.server, DOMAIN).await).url.starts_with(&others.idp.issuer()));
        // Those who signed on at the old one are somebody else at the new one, until the operator unlinks them.
        others.idp.person(person("ann-at-the-new-one", "ann@acme.test"));
        assert_eq!(refused(&scene, &others, "linked at the old one").await["reason"]["to"], "other_identity");
        others.idp.person(person("the-boss", BOSS));
        let told = contractor(&scene, &others).await;
        assert_eq!(told["actor"]["email"], BOSS, "the domain is its own now");
    }

    async fn the_old_provider_of_a_moved_domain_vouches_for_nobody_in_it(setup: Setup) {
        let scene = scene(setup).await;
        scene.signed_on().await;
        let db = open_as_operator(&scene.server.app.store, &scene.acme.tenant);
        // The provider has a second domain, so that people still begin there.
        let change = ProviderChange { domains: vec!["acme.example".to_owned()], ..ProviderChange::default() };
        update(&scene.server, &scene.acme, &scene.provider, change).await.expect("another domain");
        verify(&scene.server, &scene.acme, "acme.example").await.expect("it is theirs");
        disable(&scene.server, &scene.acme, &scene.provider).await;
        let next = Idp::start(&scene.server.app.env.clock).await;
        add(&scene.server, &scene.acme, Told::of(&next, DOMAIN)).await;
        let enable = ProviderChange { enable: true, ..ProviderChange::default() };
        update(&scene.server, &scene.acme, &scene.provider, enable).await.expect("it is back");
        assert!(sso::find_domain(&db, DOMAIN).await.unwrap().is_some_and(|domain| domain.verified_at.is_some()));

        // Ann is linked there and known, but her address is the next provider's to vouch for.
        let answer = sign_on_at(&scene, &scene.idp, "acme.example").await;
        assert_turned_away(&answer, "linked, in a domain that has moved");
        let entry = &scene.trail("sso.refused").await[0];
        assert_eq!((reason(entry), &entry["changes"]["email"]["to"]), ("domain_of_other_provider", &json!("ann@acme.test")));
        // By an address of the domain that is left, she is herself; the old address stays until its provider changes it.
        scene.idp.person(person("subject-1", "ann@acme.example"));
        let session = session_of(sign_on_at(&scene, &scene.idp, "acme.example").await.is(303)).expect("a session");
        assert_eq!(scene.session(&session).await["actor"]["email"], "ann@acme.test");
    }

    async fn who_is_refused_is_named_as_far_as_the_provider_has_said(setup: Setup) {
        let scene = scene(setup).await;
        let named = |entry: &Value| (entry["changes"]["subject"]["to"].clone(), entry["changes"]["email"]["to"].clone());
        let last = async || scene.trail("sso.refused").await.swap_remove(0);
        let cases = [
            (json!({"sub": "s-1", "email": "ann@evil.test", "email_verified": true}), "foreign_domain", json!("ann@evil.test")),
            (json!({"sub": "s-1", "email": "Ann@acme.test", "email_verified": false}), "email_not_verified", json!("ann@acme.test")),
            (json!({"sub": "s-1", "email": "<b>\u{202e}@", "email_verified": true}), "no_email", Value::Null),
            (json!({"sub": "s-1"}), "no_email", Value::Null),
        ];
        for (claims, why, email) in cases {
            scene.server.advance(1_000);
            scene.idp.person(claims.clone());
            scene.refuses(why, scene.sign_on()).await;
            let entry = last().await;
            assert_eq!((reason(&entry), named(&entry)), (why, (json!("s-1"), email)), "{claims}");
        }
        // A token that is not believed names nobody.
        scene.server.advance(1_000);
        scene.idp.spoil(|draft| draft.claims["nonce"] = json!("another"));
        scene.refuses("a token of another sign-on", scene.sign_on()).await;
        assert_eq!(named(&last().await), (Value::Null, Value::Null));
    }
}
