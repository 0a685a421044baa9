//! Credentials of another account than that of the machines known here: nothing is taken for gone, and nothing is made there.

use super::accounts::{asked_with, replace};
use super::*;

const USER_DATA: &str = "#!/bin/sh\necho hunter2";

/// A region that stands before that of the provider.
fn earlier_region(stub: &CloudStub) -> &'static str {
    if stub.kind() == "hetzner" { "ash" } else { "ams3" }
}

/// Two machines of an account, and the provider of it.
async fn two(server: &Server, tenancy: &Tenancy, stub: &CloudStub) -> (Value, [String; 2]) {
    let names = ["a", "b"].map(str::to_owned);
    for name in &names {
        stub.add(&tenancy.tenant.slug, name);
    }
    (server.connect(tenancy, stub, &tenancy.tenant.slug).await, names)
}

async fn order_with_user_data(server: &Server, tenancy: &Tenancy, stub: &CloudStub, provider: &Value) -> Value {
    let order = with(&order_body(stub, provider), &json!({"user_data": USER_DATA}));
    server.post_order(tenancy, &order).await.ok(202)
}

/// Whether a token was used to send what only its own account may know.
fn has_sent_user_data(stub: &CloudStub, token: &str) -> bool {
    stub.calls(Asked::Create).iter().any(|call| call.token == token && call.body["user_data"] == USER_DATA)
}

over_http! {
    async fn a_region_that_is_added_does_not_hide_that_the_account_is_another(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            for at_once in [false, true] {
                let acme = server.tenant(&format!("{}-{at_once}", stub.kind())).await;
                let (provider, names) = two(&server, &acme, stub).await;
                let wrong = stub.token(&format!("other-{at_once}"), Rights::All);
                if !at_once {
                    replace(&server, &acme, stub, &provider, &wrong).await;
                    server.cloud_work_for(MINUTE_MS).await;
                }
                let both = json!({"regions": [earlier_region(stub), stub.region()]});
                let widened = with(&provider_body(stub, &wrong), &both);
                server.put(one_provider(&provider)).cookie(&acme.admin).json(&widened).await.is(200);
                server.cloud_work_for(30 * MINUTE_MS).await;
                let now = server.read_provider(&acme, &provider).await;
                let error = now["last_sync_error"].as_str().unwrap_or_default();
                assert!(error.contains("2 machines known here") && error.contains("create another provider"), "{now:#}");
                assert_eq!(server.vm_names(&acme, "state=running").await, names, "{} {at_once}", stub.kind());
                // The right token is not the one that is locked out.
                let right = with(&provider_body(stub, &stub.token(&acme.tenant.slug, Rights::All)), &both);
                server.put(one_provider(&provider)).cookie(&acme.admin).json(&right).await.is(200);
                server.cloud_work_for(10 * MINUTE_MS).await;
                assert_eq!(server.read_provider(&acme, &provider).await["last_sync_error"], json!(null));
                assert_eq!(server.vm_names(&acme, "state=running").await, names);
                assert!(server.events_of(&acme, "vm.").await.is_empty());
            }
        }
    }

    /// Both were accepted when nobody could know it.
    async fn orders_wait_until_the_credentials_are_of_the_right_account_again(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (provider, names) = two(&server, &acme, stub).await;
            let named = |name: &str| with(&order_body(stub, &provider), &json!({"name": name}));
            let before = server.post_order(&acme, &named("before")).await.ok(202);
            let wrong = stub.token("other", Rights::All);
            replace(&server, &acme, stub, &provider, &wrong).await;
            let after = server.post_order(&acme, &named("after")).await.ok(202);
            server.cloud_work_for(20 * MINUTE_MS).await;
            for vm in [&before, &after] {
                let now = server.read_vm(&acme, vm).await;
                assert_eq!((operation_status(&now), &now["operation"]["error"]["code"]), ("accepted", &json!("conflict")), "{now:#}");
            }
            assert_eq!((asked_with(stub, &wrong), stub.count(Asked::Create)), (0, 0), "nothing is made there");
            replace(&server, &acme, stub, &provider, &stub.token(&acme.tenant.slug, Rights::All)).await;
            server.cloud_work_for(20 * MINUTE_MS).await;
            for vm in [&before, &after] {
                let now = server.read_vm(&acme, vm).await;
                assert_eq!((operation_status(&now), &now["operation"]["error"]), ("succeeded", &json!(null)), "{now:#}");
            }
            let [a, b] = &names;
            assert_eq!(server.vm_names(&acme, "state=running").await, [a, "after", b, "before"]);
            assert_eq!((stub.machines().len(), stub.count(Asked::Create)), (4, 2));
        }
    }

    async fn what_may_be_a_secret_goes_to_no_account_that_was_not_known_when_it_was_given(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let own = provider_body(stub, &stub.token("own", Rights::All));
            let provider = server.post(PROVIDERS).cookie(&acme.admin).json(&own).await.ok(201);
            assert_eq!(provider["status"], "unverified");
            let vm = order_with_user_data(&server, &acme, stub, &provider).await;
            let second = stub.token("second", Rights::All);
            replace(&server, &acme, stub, &provider, &second).await;
            server.cloud_work_for(20 * MINUTE_MS).await;
            assert!(!has_sent_user_data(stub, &second));
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), &now["operation"]["error"]["code"]), ("failed", &json!("conflict")), "{now:#}");
            let detail = now["operation"]["error"]["detail"].as_str().unwrap();
            assert!(detail.contains("Order again"), "{detail}");
        }
    }

    async fn what_may_be_a_secret_goes_to_no_other_account_than_it_was_given_for(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "own").await;
            let vm = order_with_user_data(&server, &acme, stub, &provider).await;
            let second = stub.token("second", Rights::All);
            replace(&server, &acme, stub, &provider, &second).await;
            server.cloud_work_for(20 * MINUTE_MS).await;
            assert!(!has_sent_user_data(stub, &second));
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), &now["operation"]["error"]["code"]), ("failed", &json!("conflict")), "{now:#}");
        }
    }

    async fn credentials_that_stay_until_they_are_verified_are_sent_what_was_given_for_them(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let token = stub.token("own", Rights::All);
            let provider = server.post(PROVIDERS).cookie(&acme.admin).json(&provider_body(stub, &token)).await.ok(201);
            let vm = order_with_user_data(&server, &acme, stub, &provider).await;
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "before the first verification").await;
            assert!(has_sent_user_data(stub, &token));
        }
    }
}
