//! Events that tenants name themselves: endpoints subscribe to them, and the feed tells of them.

use std::time::Duration;

use kernel::base::Actor;
use kernel::events;

use super::*;
use crate::support::over_http;
use crate::support::receiver::Receiver;
use crate::webhooks::{EVENTS, WEBHOOKS, endpoint, open};

async fn emit(server: &Server, tenancy: &Tenancy, kind: &'static str) {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let told = db.write(async move |tx| events::publish_named(tx, kind, "run_x", &json!({"kind": kind})).await);
    told.await.unwrap();
}

over_http! {
    async fn they_come_to_whoever_subscribed_by_name_by_family_or_to_all(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for (path, events) in [("/name", "custom.deploy.finished"), ("/family", "custom.*"), ("/all", "*"), ("/none", "ticket.*")] {
            endpoint(&server, &acme, &receiver.url(path), &[events]).await;
        }
        for kind in ["custom.deploy.finished", "custom.deploy", "custom.other"] {
            emit(&server, &acme, kind).await;
        }
        server.sender.run_due().await.unwrap();
        let got = |path: &str| {
            let mut kinds: Vec<String> = receiver.received_on(path).iter().map(|got| got.json()["type"].as_str().unwrap().to_owned()).collect();
            kinds.sort_unstable();
            kinds
        };
        let all = ["custom.deploy", "custom.deploy.finished", "custom.other"];
        assert_eq!((got("/name"), got("/family"), got("/all"), got("/none")), (vec![all[1].to_owned()], all.map(str::to_owned).into(), all.map(str::to_owned).into(), vec![]));
    }

    async fn the_feed_tells_of_those_that_are_asked_for(setup: Setup) {
        let mut setup = setup;
        setup.settings.news_wait_max = Duration::ZERO;
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        server.key(&acme, &["*"]).await;
        for kind in ["custom.deploy.finished", "custom.other"] {
            emit(&server, &acme, kind).await;
        }
        for (types, expected) in [
            ("custom.*", &["custom.deploy.finished", "custom.other"][..]),
            ("custom.other", &["custom.other"]),
            ("custom.*,api_key.created", &["api_key.created", "custom.deploy.finished", "custom.other"]),
            ("custom.nobody", &[]),
            ("*", &["api_key.created", "custom.deploy.finished", "custom.other"]),
        ] {
            let feed = server.get(format!("{EVENTS}?view=feed&types={types}")).cookie(&acme.admin).await.ok(200);
            let kinds: Vec<&str> = feed["data"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
            assert_eq!(kinds, expected, "{types}");
        }
        // Reading them is reading workflows.
        let key = server.key(&acme, &["webhooks:read", "api_keys:read"]).await.plain;
        let feed = server.get(format!("{EVENTS}?view=feed")).key(&key).await.ok(200);
        assert!(feed["data"].as_array().unwrap().iter().all(|event| event["type"] == "api_key.created"), "{feed}");
        for name in ["custom", "custom.", "custom.A", "custom.a..b", "custom.a.*", "custom.1a"] {
            let body = json!({"name": "Hook", "url": "https://hooks.example.org/", "events": [name]});
            assert_eq!(server.post(WEBHOOKS).cookie(&acme.admin).json(&body).await.pointers(), ["/events/0"], "{name}");
        }
    }
}
