//! What a cloud refuses, in plain words, and what is only put off.

use kernel::base::HOUR_MS;

use super::*;

over_http! {
    async fn a_refusal_ends_the_order_and_says_why(setup: Setup) {
        let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await;
        let (hetzner, digitalocean) = (&clouds.hetzner, &clouds.digitalocean);
        for (nth, (stub, status, code, message, kind, words)) in [
            (hetzner, 403, "resource_limit_exceeded", "server limit reached", "quota", "limit"),
            (hetzner, 422, "resource_unavailable", "cx22 is not available", "capacity", "at the moment"),
            (hetzner, 412, "placement_error", "no host found", "capacity", "at the moment"),
            (hetzner, 422, "invalid_input", "unknown image", "invalid", "unknown image"),
            (hetzner, 403, "forbidden", "not for you", "permission", "may not"),
            (digitalocean, 422, "unprocessable_entity", "creating this droplet will exceed your droplet limit", "quota", "limit"),
            (digitalocean, 422, "unprocessable_entity", "Size is currently unavailable in this region", "capacity", "at the moment"),
            (digitalocean, 422, "unprocessable_entity", "You specified an invalid image", "invalid", "invalid image"),
            (digitalocean, 403, "forbidden", "You are not authorized", "permission", "may not"),
        ]
        .into_iter()
        .enumerate()
        {
            let acme = server.tenant(&format!("acme-{nth}")).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let asked = stub.count(Asked::Create);
            stub.on(Asked::Create, [stub.refusal(status, code, message)]);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(HOUR_MS).await;
            let ended = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&ended), &ended["state"]), ("failed", &json!("failed")), "{message}: {ended:#}");
            let error = &ended["operation"]["error"];
            assert_eq!(error["code"], kind, "{message}: {error}");
            let detail = error["detail"].as_str().unwrap();
            assert!(detail.contains(words) && detail.contains(message), "{detail}");
            assert_eq!(stub.count(Asked::Create), asked + 1, "it is not asked for again");
            let events = server.events_of(&acme, "vm.failed").await;
            assert_eq!((events.len(), &events[0]["data"]["operation"]["error"]), (1, error), "{message}");
            assert!(stub.machines().is_empty());
        }
    }

    async fn a_cloud_that_accepts_no_more_requests_is_asked_when_it_says(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.on(Asked::Create, [stub.rate_limited(server.now().plus_ms(2 * MINUTE_MS))]);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(MINUTE_MS).await;
            let waiting = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&waiting), &waiting["state"]), ("accepted", &json!("provisioning")), "{waiting:#}");
            assert_eq!(waiting["operation"]["error"]["code"], "rate_limited");
            assert_eq!(stub.count(Asked::Create), 1, "not before the time that it said");
            server.cloud_work_for(2 * MINUTE_MS).await;
            let made = assert_made_once(&server, &acme, stub, &vm, "after a wait").await;
            assert_eq!((&made["operation"]["error"], stub.count(Asked::Create)), (&json!(null), 2));
        }
    }

    async fn a_cloud_that_refuses_for_an_hour_is_given_up(setup: Setup) {
        let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.always(Asked::Create, stub.rate_limited(server.now()));
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(50 * MINUTE_MS).await;
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "accepted");
            server.cloud_work_for(30 * MINUTE_MS).await;
            let ended = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&ended), &ended["operation"]["error"]["code"]), ("failed", &json!("rate_limited")), "{ended:#}");
            stub.always(Asked::Create, Fault::None);
            server.cloud_work_for(HOUR_MS).await;
            assert!(stub.machines().is_empty(), "given up is given up");
        }
    }

    async fn a_machine_that_was_asked_for_late_has_its_whole_time_to_start(setup: Setup) {
        let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.always(Asked::Create, stub.rate_limited(server.now()));
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(45 * MINUTE_MS).await;
            stub.always(Asked::Create, Fault::None);
            stub.set_keeps_booting(true);
            server.cloud_work_for(5 * MINUTE_MS).await;
            let starting = server.read_vm(&acme, &vm).await;
            assert_eq!(operation_status(&starting), "waiting", "it is minutes old: {starting:#}");
        }
    }

    async fn a_token_that_is_refused_fails_the_order_and_is_verified_at_once(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let token = stub.token("acme", Rights::All);
            let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
            stub.revoke(&token);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work().await;
            let ended = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&ended), &ended["operation"]["error"]["code"]), ("failed", &json!("auth")), "{ended:#}");
            let now = server.read_provider(&acme, &provider).await;
            assert_eq!(now["status"], "invalid", "{now:#}");
            server.post_order(&acme, &order_body(stub, &provider)).await.problem("conflict");
        }
    }

    async fn a_token_that_may_only_read_makes_no_machine(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let token = stub.token("acme", Rights::ReadOnly);
            let provider = server.post(PROVIDERS).cookie(&acme.admin).json(&provider_body(stub, &token)).await.ok(201);
            server.cloud_work().await;
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(MINUTE_MS).await;
            let ended = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&ended), &ended["operation"]["error"]["code"]), ("failed", &json!("permission")), "{ended:#}");
        }
    }
}
