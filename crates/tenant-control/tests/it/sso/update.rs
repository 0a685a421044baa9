//! A provider that the operator changes: its people stay who they are, and nobody is let in by half of the old and half of the new.

use kernel::auth::Role;
use kernel::base::{Code, MINUTE_MS};
use serde_json::json;
use tenant_control::features::sso::{DOMAINS_MAX, ProviderChange, RoleRule};
use tokio::sync::watch;

use super::{
    CALLBACK, DOMAIN, Flow, PROVIDER_NAME, Scene, Told, add, begin, disable, finish, provide, reason, scene,
    session_of, update, verify,
};
use crate::support::idp::{CLIENT_ID, CLIENT_SECRET, DISCOVERY, Idp, Says, TOKEN, person};
use crate::support::over_http;
use crate::support::people::SESSION;

const NEXT_ID: &str = "next client";
const NEXT_SECRET: &str = "of the next client";

/// Another registration at the same provider.
fn next_client(scene: &Scene) -> ProviderChange {
    scene.idp.register(NEXT_ID, NEXT_SECRET);
    let client_secret = Some((NEXT_SECRET.to_owned(), scene.server.app.secrets.clone()));
    ProviderChange { client_id: Some(NEXT_ID.to_owned()), client_secret, ..ProviderChange::default() }
}

over_http! {
    async fn another_client_id_counts_at_once_and_everybody_stays_known(setup: Setup) {
        let scene = scene(setup).await;
        let other = scene.server.second_node().await;
        let old = scene.signed_on().await;
        let ann = scene.session(&old).await;
        assert_eq!(scene.begin().await.asks("client_id"), CLIENT_ID);
        let change = next_client(&scene);
        update(&scene.server, &scene.acme, &scene.provider, change).await.expect("it is changed");
        for node in [&scene.server, &other] {
            let flow = Flow::of(&begin(node, DOMAIN).await);
            assert_eq!(flow.asks("client_id"), NEXT_ID);
            let back = scene.approve(&flow).await;
            let session = session_of(finish(node, &flow, &back).await.is(303)).expect("a session");
            assert_eq!(scene.session(&session).await["actor"], ann["actor"]);
        }
        scene.server.get(SESSION).cookie(&old).await.is(200);
    }

    async fn a_code_for_one_client_is_not_shown_by_another(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        let change = next_client(&scene);
        update(&scene.server, &scene.acme, &scene.provider, change).await.expect("it is changed");
        scene.refuses("a sign-on of before", finish(&scene.server, &flow, &back)).await;
        assert_eq!(reason(&scene.trail("sso.refused").await[0]), "provider_changed");
        assert_eq!(scene.idp.asked(TOKEN), 0);
        scene.signed_on().await;
    }

    async fn what_is_asked_for_is_what_the_rules_need_or_the_operator_says(setup: Setup) {
        let scene = scene(setup).await;
        scene.idp.alter(DISCOVERY, |document| document["scopes_supported"] = json!(["openid", "groups"]));
        let rule = |claim: &str| RoleRule { claim: claim.to_owned(), value: "it".to_owned(), role: Role::Admin };
        let change = |scope: Option<Option<&str>>, claim: &str| ProviderChange {
            scope: scope.map(|scope| scope.map(str::to_owned)),
            role_map: Some(vec![rule(claim)]),
            ..ProviderChange::default()
        };
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        update(&scene.server, &scene.acme, &scene.provider, change(None, "groups")).await.expect("it is changed");
        scene.refuses("a sign-on of before", finish(&scene.server, &flow, &back)).await;
        assert_eq!(reason(&scene.trail("sso.refused").await[0]), "provider_changed");
        assert_eq!(scene.idp.asked(TOKEN), 0);
        assert_eq!(scene.begin().await.asks("scope"), "openid email profile groups");
        // The operator's word is the last.
        scene.server.advance(1_000);
        let said = change(Some(Some(" openid  email profile custom openid")), "groups");
        let told = update(&scene.server, &scene.acme, &scene.provider, said).await.expect("it is changed");
        assert_eq!(told.scope.as_deref(), Some("openid email profile custom"));
        let entry = &scene.trail("sso.update").await[0]["changes"];
        assert_eq!(entry["scope"], json!({"from": null, "to": "openid email profile custom"}));
        assert_eq!(scene.begin().await.asks("scope"), "openid email profile custom");
        scene.signed_on().await;
        update(&scene.server, &scene.acme, &scene.provider, change(Some(None), "groups")).await.expect("it is changed");
        assert_eq!(scene.begin().await.asks("scope"), "openid email profile groups");
        let wrong = update(&scene.server, &scene.acme, &scene.provider, change(Some(Some("email")), "groups")).await;
        assert_eq!(wrong.expect_err("nobody would be signed in").code(), Code::InvalidFields);
    }

    async fn nobody_is_let_in_by_rules_that_were_changed_meanwhile(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        let (gate, held) = watch::channel(false);
        scene.idp.say(TOKEN, Says::Hold(held));
        let attempt = async {
            let meanwhile = async {
                scene.idp.wait_for(TOKEN).await;
                let change = ProviderChange { default_role: Some(Some(Role::Technician)), ..ProviderChange::default() };
                update(&scene.server, &scene.acme, &scene.provider, change).await.expect("it is changed");
                gate.send_replace(true);
            };
            let (answer, ()) = tokio::join!(finish(&scene.server, &flow, &back), meanwhile);
            answer
        };
        scene.refuses("by the rules of before", attempt).await;
        assert_eq!(reason(&scene.trail("sso.refused").await[0]), "provider_changed");
        assert_eq!(scene.session(&scene.signed_on().await).await["role"], "technician");
    }

    async fn what_is_changed_is_in_the_trail_and_the_secret_is_not(setup: Setup) {
        let scene = scene(setup).await;
        let same = ProviderChange {
            name: Some(format!(" {PROVIDER_NAME} ")),
            client_id: Some(CLIENT_ID.to_owned()),
            client_secret: Some((CLIENT_SECRET.to_owned(), scene.server.app.secrets.clone())),
            scope: Some(None),
            default_role: Some(Some(Role::Viewer)),
            role_map: Some(Vec::new()),
            trust_email: Some(false),
            sign_out_at_provider: Some(false),
            domains: vec![DOMAIN.to_uppercase()],
            enable: true,
        };
        for change in [ProviderChange::default(), same] {
            let kept = update(&scene.server, &scene.acme, &scene.provider, change).await.expect("nothing to change");
            assert_eq!((kept.version, kept.updated_at), (1, kept.created_at));
        }
        assert!(scene.trail("sso.update").await.is_empty());

        scene.server.advance(MINUTE_MS);
        let rule = RoleRule { claim: "groups".to_owned(), value: "it".to_owned(), role: Role::Admin };
        let change = ProviderChange {
            name: Some("Next".to_owned()),
            default_role: Some(Some(Role::Technician)),
            role_map: Some(vec![rule.clone()]),
            trust_email: Some(true),
            sign_out_at_provider: Some(true),
            domains: vec!["other.test".to_owned()],
            ..next_client(&scene)
        };
        let changed = update(&scene.server, &scene.acme, &scene.provider, change).await.expect("it is changed");
        assert_eq!((changed.version, changed.updated_at, changed.role_map), (2, scene.server.now(), vec![rule]));
        assert_eq!((changed.name.as_str(), changed.client_id.as_str()), ("Next", NEXT_ID));
        assert!(changed.trust_email && changed.sign_out_at_provider && changed.enabled);
        let entries = scene.trail("sso.update").await;
        assert_eq!((entries.len(), &entries[0]["target"]["id"]), (1, &json!(scene.provider)));
        let wanted = json!({
            "name": {"from": PROVIDER_NAME, "to": "Next"},
            "client_id": {"from": CLIENT_ID, "to": NEXT_ID},
            "client_secret": {"from": null, "to": "(new)"},
            "default_role": {"from": "viewer", "to": "technician"},
            "role_map": {"from": [], "to": ["groups=it:admin"]},
            "trust_email": {"from": false, "to": true},
            "sign_out_at_provider": {"from": false, "to": true},
            "added_domains": {"from": null, "to": ["other.test"]},
        });
        assert_eq!(entries[0]["changes"], wanted);
        // No rules are rules, too.
        let change = ProviderChange { role_map: Some(Vec::new()), ..ProviderChange::default() };
        let changed = update(&scene.server, &scene.acme, &scene.provider, change).await.expect("it is changed");
        assert_eq!((changed.version, changed.role_map), (3, Vec::new()));
    }

    async fn one_that_was_disabled_comes_back_with_the_domains_it_still_has(setup: Setup) {
        let scene = scene(setup).await;
        let more = ProviderChange { domains: vec!["other.test".to_owned()], ..ProviderChange::default() };
        update(&scene.server, &scene.acme, &scene.provider, more).await.expect("it is changed");
        verify(&scene.server, &scene.acme, "other.test").await.expect("it is theirs");
        let ann = scene.session(&scene.signed_on().await).await;
        disable(&scene.server, &scene.acme, &scene.provider).await;
        let second = Idp::start(&scene.server.app.env.clock).await;
        add(&scene.server, &scene.acme, Told::of(&second, DOMAIN)).await;
        assert!(scene.begin().await.url.starts_with(&second.issuer()), "a domain of a disabled one moves, and stays verified");

        scene.server.advance(MINUTE_MS);
        for _ in 0..2 {
            let enable = ProviderChange { enable: true, ..ProviderChange::default() };
            let back = update(&scene.server, &scene.acme, &scene.provider, enable).await.expect("it is enabled");
            let domains: Vec<&str> = back.domains.iter().map(|one| one.domain.as_str()).collect();
            assert_eq!((back.enabled, domains), (true, vec!["other.test"]));
        }
        let entries = scene.trail("sso.update").await;
        assert_eq!((entries.len(), &entries[0]["changes"]), (2, &json!({"enabled": {"from": false, "to": true}})));
        assert!(scene.begin().await.url.starts_with(&second.issuer()), "it stays where it is");
        let flow = Flow::of(&begin(&scene.server, "other.test").await);
        assert!(flow.url.starts_with(&scene.idp.issuer()));
        let back = scene.approve(&flow).await;
        scene.refuses("an address of the domain that has moved", finish(&scene.server, &flow, &back)).await;
        scene.idp.person(person("subject-1", "ann@other.test"));
        let flow = Flow::of(&begin(&scene.server, "other.test").await);
        let back = scene.approve(&flow).await;
        let session = session_of(finish(&scene.server, &flow, &back).await.is(303)).expect("a session");
        assert_eq!(scene.session(&session).await["actor"], ann["actor"], "the same person as before");
    }

    async fn who_began_before_it_was_disabled_begins_again(setup: Setup) {
        let scene = scene(setup).await;
        let flow = scene.begin().await;
        let back = scene.approve(&flow).await;
        disable(&scene.server, &scene.acme, &scene.provider).await;
        let enable = ProviderChange { enable: true, ..ProviderChange::default() };
        update(&scene.server, &scene.acme, &scene.provider, enable).await.expect("it is enabled");
        scene.refuses("begun before", finish(&scene.server, &flow, &back)).await;
        assert_eq!(scene.idp.asked(TOKEN), 0);
        scene.signed_on().await;
    }

    async fn a_domain_is_added_if_it_leads_nowhere_else(setup: Setup) {
        let scene = scene(setup).await;
        let second = Idp::start(&scene.server.app.env.clock).await;
        provide(&scene.server, &scene.acme, Told::of(&second, "taken.test")).await;
        let adding = |domain: &str| ProviderChange { domains: vec![domain.to_owned()], ..ProviderChange::default() };
        let refused = update(&scene.server, &scene.acme, &scene.provider, adding("taken.test")).await;
        assert_eq!(refused.expect_err("it leads elsewhere").code(), Code::Conflict);
        update(&scene.server, &scene.acme, &scene.provider, adding("new.test")).await.expect("it is added");
        begin(&scene.server, "new.test").await.problem("sso_not_available");
        verify(&scene.server, &scene.acme, "new.test").await.expect("it is theirs");
        let flow = Flow::of(&begin(&scene.server, "new.test").await);
        assert!(flow.url.starts_with(&scene.idp.issuer()) && flow.asks("redirect_uri").ends_with(CALLBACK));
        scene.idp.person(person("subject-1", "ann@new.test"));
        scene.signed_on().await;

        let many = (0..DOMAINS_MAX - 1).map(|at| format!("d{at}.test")).collect();
        let change = ProviderChange { domains: many, ..ProviderChange::default() };
        let refused = update(&scene.server, &scene.acme, &scene.provider, change).await;
        assert_eq!(refused.expect_err("too many").code(), Code::InvalidFields);
    }

    async fn what_cannot_be_is_refused_and_changes_nothing(setup: Setup) {
        let scene = scene(setup).await;
        let secrets = || scene.server.app.secrets.clone();
        let rule = RoleRule { claim: "groups".to_owned(), value: "it".to_owned(), role: Role::Admin };
        for change in [
            ProviderChange { name: Some(String::new()), ..ProviderChange::default() },
            ProviderChange { client_id: Some("ä".to_owned()), ..ProviderChange::default() },
            ProviderChange { client_secret: Some((String::new(), secrets())), ..ProviderChange::default() },
            ProviderChange { domains: vec!["acme".to_owned()], ..ProviderChange::default() },
            ProviderChange { role_map: Some(vec![rule; 101]), ..ProviderChange::default() },
        ] {
            let change = ProviderChange { trust_email: Some(true), ..change };
            let refused = update(&scene.server, &scene.acme, &scene.provider, change).await;
            assert_eq!(refused.expect_err("it cannot be").code(), Code::InvalidFields);
        }
        let kept = update(&scene.server, &scene.acme, &scene.provider, ProviderChange::default()).await;
        assert_eq!(kept.expect("a provider").version, 1);
        let globex = scene.server.tenant("globex").await;
        let change = ProviderChange { trust_email: Some(true), ..ProviderChange::default() };
        let refused = update(&scene.server, &globex, &scene.provider, change).await;
        assert_eq!(refused.expect_err("it is another tenant's").code(), Code::NotFound);
    }
}
