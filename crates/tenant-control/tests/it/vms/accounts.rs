//! Credentials that change while an order is under way: it is never made in two accounts.

use super::*;

/// An order of account `first` whose fate is not known, and its provider.
async fn doubtful(server: &Server, tenancy: &Tenancy, stub: &CloudStub, fault: Fault) -> (Value, Value) {
    let provider = server.connect(tenancy, stub, "first").await;
    stub.on(Asked::Create, [fault]);
    let vm = server.order(tenancy, stub, &provider).await;
    server.cloud_work().await;
    assert_eq!(operation_status(&server.read_vm(tenancy, &vm).await), "submitting");
    (provider, vm)
}

pub(super) async fn replace(server: &Server, tenancy: &Tenancy, stub: &CloudStub, provider: &Value, token: &str) {
    server.put(one_provider(provider)).cookie(&tenancy.admin).json(&provider_body(stub, token)).await.is(200);
}

/// How often a machine was asked for with a token.
pub(super) fn asked_with(stub: &CloudStub, token: &str) -> usize {
    stub.calls(Asked::Create).iter().filter(|call| call.token == token).count()
}

over_http! {
    async fn an_order_in_doubt_is_not_sent_to_another_account(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            for (nth, fault) in [Fault::LostRequest, Fault::LostAnswer].into_iter().enumerate() {
                let acme = server.tenant(&format!("{}-{nth}", stub.kind())).await;
                let (provider, vm) = doubtful(&server, &acme, stub, fault).await;
                let second = stub.token(&format!("second-{nth}"), Rights::All);
                replace(&server, &acme, stub, &provider, &second).await;
                server.cloud_work_for(20 * MINUTE_MS).await;
                let now = server.read_vm(&acme, &vm).await;
                assert_eq!((operation_status(&now), &now["operation"]["error"]["code"]), ("needs_attention", &json!("ambiguous")), "{now:#}");
                let detail = now["operation"]["error"]["detail"].as_str().unwrap();
                assert!(detail.contains("account"), "{detail}");
                assert_eq!(asked_with(stub, &second), 0, "not in the new account");
                // Whoever has looked there sends it to the new one.
                server.post_order(&acme, &settlement(&vm, "retry")).await.is(202);
                server.cloud_work_for(MINUTE_MS).await;
                assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "succeeded");
                assert_eq!(asked_with(stub, &second), 1);
                stub.machines().iter().for_each(|machine| stub.remove(machine.id));
            }
        }
    }

    /// The new credentials could not be verified yet, so nobody knows whose they are.
    async fn nor_while_it_is_not_known_whose_the_new_credentials_are(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (provider, vm) = doubtful(&server, &acme, stub, Fault::LostAnswer).await;
            let second = stub.token("second", Rights::All);
            stub.set_away(true);
            replace(&server, &acme, stub, &provider, &second).await;
            server.cloud_work_for(MINUTE_MS).await;
            assert_eq!(server.read_provider(&acme, &provider).await["status"], "error");
            stub.set_away(false);
            // The verification fails for longer than the orders do.
            let first = if stub.kind() == "hetzner" { Asked::ListOne } else { Asked::Account };
            stub.always(first, Fault::LostRequest);
            server.cloud_work_for(5 * MINUTE_MS).await;
            assert_eq!(asked_with(stub, &second), 0, "its machine is in the other account: {:#?}", stub.machines());
            stub.always(first, Fault::None);
            server.cloud_work_for(60 * MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!(operation_status(&now), "needs_attention", "{now:#}");
            assert_eq!((stub.machines().len(), asked_with(stub, &second)), (1, 0));
        }
    }

    async fn credentials_of_another_account_take_no_machine_for_gone(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let names = [format!("{}-a", stub.kind()), format!("{}-b", stub.kind())];
            for name in &names {
                stub.add("acme", name);
            }
            stub.add("other", "stranger");
            let provider = server.connect(&acme, stub, "acme").await;
            let query = format!("provider_id={}", id_of(&provider));
            let before = server.list_vms(&acme, &query).await;
            replace(&server, &acme, stub, &provider, &stub.token("other", Rights::All)).await;
            server.cloud_work_for(10 * MINUTE_MS).await;
            let now = server.read_provider(&acme, &provider).await;
            let error = now["last_sync_error"].as_str().unwrap_or_else(|| panic!("no error in {now:#}"));
            assert!(error.contains("2 machines known here") && error.contains("create another provider"), "{error}");
            assert_eq!(server.list_vms(&acme, &query).await, before, "nothing of the other account is taken over");
            if stub.kind() == "digitalocean" {
                let refused = server.post_order(&acme, &order_body(stub, &provider)).await;
                assert!(refused.problem("conflict")["detail"].as_str().unwrap().contains("belong to the account"));
            }
            replace(&server, &acme, stub, &provider, &stub.token("acme", Rights::All)).await;
            server.cloud_work_for(10 * MINUTE_MS).await;
            assert_eq!(server.read_provider(&acme, &provider).await["last_sync_error"], json!(null));
            assert_eq!(server.vm_names(&acme, &format!("{query}&state=running")).await, names);
            assert_eq!(count(&server.kinds_of(&acme, "vm.").await, "vm.state_changed"), 0);
        }
    }

    async fn a_new_token_of_an_account_without_machines_goes_on_where_the_account_is_known(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let machine = stub.add("acme", stub.kind());
            let provider = server.connect(&acme, stub, "acme").await;
            stub.remove(machine);
            replace(&server, &acme, stub, &provider, &stub.token("acme", Rights::All)).await;
            server.cloud_work().await;
            let now = server.read_provider(&acme, &provider).await;
            let states = server.list_vms(&acme, &format!("provider_id={}", id_of(&provider))).await;
            if stub.kind() == "digitalocean" {
                assert_eq!((&now["last_sync_error"], &states[0]["state"]), (&json!(null), &json!("terminated")), "{now:#}");
            } else {
                let error = now["last_sync_error"].as_str().unwrap_or_default();
                assert!(error.contains("force=true") && states[0]["state"] == "running", "it says what to do: {now:#}");
            }
        }
    }

    async fn a_new_token_of_the_same_account_goes_on(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        // Hetzner does not tell of which project a token is.
        let stub = &clouds.digitalocean;
        let (provider, vm) = doubtful(&server, &acme, stub, Fault::LostAnswer).await;
        let next = stub.token("first", Rights::All);
        replace(&server, &acme, stub, &provider, &next).await;
        server.cloud_work_for(MINUTE_MS).await;
        assert_made_once(&server, &acme, stub, &vm, "by the next token").await;
        assert_eq!(asked_with(stub, &next), 0);
    }

    async fn an_order_that_was_not_sent_yet_goes_to_the_new_account(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "first").await;
            let vm = server.order(&acme, stub, &provider).await;
            let second = stub.token("second", Rights::All);
            replace(&server, &acme, stub, &provider, &second).await;
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "not sent before").await;
            assert_eq!(asked_with(stub, &second), 1);
        }
    }

    async fn orders_wait_while_the_credentials_are_refused(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (provider, vm) = doubtful(&server, &acme, stub, Fault::LostAnswer).await;
            let token = stub.calls(Asked::Create)[0].token.clone();
            replace(&server, &acme, stub, &provider, "a-token-that-is-refused").await;
            server.cloud_work_for(20 * MINUTE_MS).await;
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "submitting", "nobody can look");
            replace(&server, &acme, stub, &provider, &token).await;
            server.cloud_work_for(20 * MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "with the first token again").await;
            assert_eq!(stub.count(Asked::Create), 1);
        }
    }
}
