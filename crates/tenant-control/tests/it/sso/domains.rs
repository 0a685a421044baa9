//! Whose a domain is: one tenant's, and nobody's before it is shown.

use kernel::auth::open_as_operator;
use kernel::base::Code;
use tenant_control::features::sso;

use super::{DOMAIN, Told, add, begin, finish, open, scene, verify};
use crate::support::idp::Idp;
use crate::support::over_http;

over_http! {
    async fn a_domain_has_one_verified_owner(setup: Setup) {
        let scene = scene(setup).await;
        let globex = scene.server.tenant("globex").await;
        let evil = Idp::start(&scene.server.app.env.clock).await;
        add(&scene.server, &globex, Told::of(&evil, DOMAIN)).await;
        for _ in 0..2 {
            let refused = verify(&scene.server, &globex, DOMAIN).await.expect_err("it is another's");
            assert_eq!(refused.code(), Code::Conflict, "{refused}");
        }
        // Who claims it gets nobody of those who have it.
        assert!(scene.begin().await.url.starts_with(&scene.idp.issuer()));
        scene.signed_on().await;
        assert_eq!(evil.asked_in_all(), 0);
    }

    async fn a_domain_that_is_given_up_is_for_whoever_shows_that_it_is_theirs(setup: Setup) {
        let scene = scene(setup).await;
        let globex = scene.server.tenant("globex").await;
        let theirs = Idp::start(&scene.server.app.env.clock).await;
        add(&scene.server, &globex, Told::of(&theirs, DOMAIN)).await;
        let (flow, acme) = (scene.begin().await, open_as_operator(&scene.server.app.store, &scene.acme.tenant));
        for _ in 0..2 {
            let released = sso::release_domain(&acme, DOMAIN).await.expect("it is given up");
            assert_eq!(released.verified_at, None);
        }
        begin(&scene.server, DOMAIN).await.problem("sso_not_available");
        let back = scene.approve(&flow).await;
        scene.refuses("a domain that was given up meanwhile", finish(&scene.server, &flow, &back)).await;
        verify(&scene.server, &globex, DOMAIN).await.expect("it is theirs now");
        assert!(scene.begin().await.url.starts_with(&theirs.issuer()));
        assert_eq!(scene.trail("sso.release_domain").await.len(), 1, "once");
        let unknown = sso::release_domain(&acme, "unknown.test").await.expect_err("nobody knows it");
        assert_eq!(unknown.code(), Code::NotFound);
    }

    async fn of_two_who_verify_at_once_one_has_it(setup: Setup) {
        let server = open(setup).await;
        let other = server.second_node().await;
        for round in 0..5 {
            let domain = format!("round-{round}.test");
            let (one, two) = (server.tenant(&format!("one-{round}")).await, server.tenant(&format!("two-{round}")).await);
            let idp = Idp::start(&server.app.env.clock).await;
            for tenancy in [&one, &two] {
                add(&server, tenancy, Told::of(&idp, &domain)).await;
            }
            let (first, second) = tokio::join!(verify(&server, &one, &domain), verify(&other, &two, &domain));
            assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
            begin(&server, &domain).await.is(200);
        }
    }

    async fn what_is_verified_leads_there_at_once(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let idp = Idp::start(&server.app.env.clock).await;
        add(&server, &acme, Told::of(&idp, DOMAIN)).await;
        begin(&server, DOMAIN).await.problem("sso_not_available");
        verify(&server, &acme, DOMAIN).await.expect("it is theirs");
        begin(&server, DOMAIN).await.is(200);
        verify(&server, &acme, DOMAIN).await.expect("it still is");
        for near in ["sub.acme.test", "acme.test.evil.test", "xacme.test", "test"] {
            assert!([404, 422].contains(&begin(&server, near).await.status), "{near}");
        }
    }
}
