//! What credentials may do, found out when somebody asks and in the background.

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};

use super::*;
use crate::support::clouds::{Fault, open_with, operation_status};

/// One check of a verification.
#[track_caller]
fn check<'a>(report: &'a Value, capability: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    checks
        .iter()
        .find(|check| check["capability"] == capability)
        .unwrap_or_else(|| panic!("no {capability}: {report:#}"))
}

/// The results of all checks, each once.
fn results(report: &Value) -> Vec<&str> {
    let mut results: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["result"].as_str().unwrap()).collect();
    results.sort_unstable();
    results.dedup();
    results
}

over_http! {
    async fn a_token_that_may_do_all_is_active(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let (made, _) = make(&server, &acme, stub).await;
            let report = server.tell_provider(&acme, &made, "verify").await.ok(200);
            assert_eq!((&report["status"], results(&report)), (&json!("active"), vec!["allowed"]), "{report:#}");
            assert_eq!((&report["checked_at"], &report["error"]), (&json!(server.now().to_string()), &json!(null)));
            assert!(report["duration_ms"].is_i64(), "{report}");
            for field in ["account_id", "principal"] {
                assert!(report["identity"][field].as_str().is_some_and(|text| !text.is_empty()), "{report}");
            }
            for field in ["capability", "action", "region", "required", "result", "method", "code", "remediation"] {
                assert!(report["checks"][0].get(field).is_some(), "{field} in {report}");
            }
            let of_region = report["checks"].as_array().unwrap().iter().filter(|check| check["region"] == stub.region());
            assert_eq!(of_region.count(), 1, "{report:#}");
            let record = server.read_provider(&acme, &made).await;
            assert_eq!((&record["status"], &record["verification"]), (&json!("active"), &report));
            assert_eq!((&record["last_verified_at"], &record["version"]), (&report["checked_at"], &json!(1)));
            assert_eq!(record["updated_at"], made["updated_at"], "what is found out is no change of the record");
            assert!(stub.machines().is_empty(), "looking has made nothing");
        }
    }

    async fn a_token_that_may_only_read_is_degraded_and_told_what_to_grant(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let token = stub.token("acme", Rights::ReadOnly);
            let made = post(&server, &acme, &provider_body(stub, &token)).await.ok(201);
            let report = server.tell_provider(&acme, &made, "verify").await.ok(200);
            assert_eq!(report["status"], "degraded", "{report:#}");
            assert!(report["identity"].is_object());
            let (list, create) = (check(&report, "list_machines"), check(&report, "create_machines"));
            assert_eq!((&list["result"], &list["remediation"]), (&json!("allowed"), &json!(null)));
            assert_eq!((&create["result"], &create["required"]), (&json!("denied"), &json!(true)));
            assert!(create["code"].is_string() && create["remediation"].as_str().is_some_and(|text| text.len() > 20));
            // It is synced all the same.
            stub.add("acme", "web-1");
            server.cloud_work().await;
            let query = format!("provider_id={}", id_of(&made));
            assert_eq!(server.vm_names(&acme, &query).await, ["web-1"]);
        }
    }

    async fn a_region_that_the_cloud_does_not_have_is_told(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let token = stub.token("acme", Rights::All);
            let body = with(&provider_body(stub, &token), &json!({"regions": [stub.region(), "mars-1"]}));
            let made = post(&server, &acme, &body).await.ok(201);
            let report = server.tell_provider(&acme, &made, "verify").await.ok(200);
            assert_eq!(report["status"], "degraded");
            let denied = report["checks"].as_array().unwrap().iter().find(|check| check["result"] == "denied").unwrap();
            assert_eq!(denied["region"], "mars-1");
            assert!(denied["remediation"].as_str().unwrap().contains(stub.region()), "{denied}");
        }
    }

    /// As one region of AWS that is down: the others have machines and take orders.
    async fn what_could_not_be_asked_keeps_nothing_else_waiting(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            stub.add("acme", stub.kind());
            stub.always(Asked::CheckCreate, Fault::LostRequest);
            let (made, _) = make(&server, &acme, stub).await;
            let vm = server.order(&acme, stub, &made).await;
            server.cloud_work_for(MINUTE_MS).await;
            let now = server.read_provider(&acme, &made).await;
            assert_eq!((&now["status"], now["verification"]["identity"].is_object()), (&json!("error"), true), "{now:#}");
            assert!(now["last_sync_at"].is_string(), "{now:#}");
            let query = format!("provider_id={}", id_of(&made));
            assert_eq!(server.vm_names(&acme, &query).await, [stub.kind(), "web-1"]);
            assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "succeeded");
        }
    }

    async fn a_new_provider_whose_account_is_not_known_is_not_synced(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            stub.set_away(true);
            let (made, _) = make(&server, &acme, stub).await;
            server.cloud_work().await;
            assert_eq!(server.read_provider(&acme, &made).await["status"], "error");
            // Not even when somebody asks for it.
            stub.set_away(false);
            server.sync(&acme, &made).await;
            let now = server.read_provider(&acme, &made).await;
            assert!(now["last_sync_error"].as_str().unwrap().contains("not known yet whose"), "{now:#}");
            assert_eq!(stub.count(Asked::List), 0);
            server.cloud_work_for(2 * MINUTE_MS).await;
            let now = server.read_provider(&acme, &made).await;
            assert_eq!((&now["status"], &now["last_sync_error"]), (&json!("active"), &json!(null)), "{now:#}");
        }
    }

    async fn a_token_that_is_refused_is_invalid(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let made = post(&server, &acme, &provider_body(stub, "a-token-of-nobody-at-all")).await.ok(201);
            let report = server.tell_provider(&acme, &made, "verify").await.ok(200);
            assert_eq!((&report["status"], &report["identity"]), (&json!("invalid"), &json!(null)), "{report:#}");
            assert_eq!((&report["error"]["code"], results(&report)), (&json!("auth"), vec!["denied", "skipped"]));
            assert_eq!(check(&report, "identity")["result"], "denied");
            server.tell_provider(&acme, &made, "sync").await.problem("conflict");
            server.cloud_work_for(HOUR_MS).await;
            assert_eq!((stub.count(Asked::List), stub.count(Asked::Create)), (0, 0));
        }
    }

    /// A key that was made a moment ago is not known everywhere at AWS, and any cloud may err once.
    async fn credentials_that_were_refused_once_are_tried_again_soon(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (stub, acme) = (&clouds.hetzner, server.tenant("acme").await);
        stub.on(Asked::ListOne, [stub.refusal(401, "unauthorized", "unable to authenticate")]);
        let (made, _) = make(&server, &acme, stub).await;
        server.cloud_work().await;
        assert_eq!(server.read_provider(&acme, &made).await["status"], "invalid");
        server.cloud_work_for(20_000).await;
        let now = server.read_provider(&acme, &made).await;
        assert_eq!((&now["status"], now["last_sync_at"].is_string()), (&json!("active"), true), "{now:#}");
    }

    async fn a_cloud_that_is_away_is_an_error_and_asked_again_soon(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let (made, _) = make(&server, &acme, stub).await;
            for fault in [Fault::LostRequest, Fault::Truncated, stub.refusal(503, "unavailable", "down")] {
                let first = if stub.kind() == "hetzner" { Asked::ListOne } else { Asked::Account };
                stub.on(first, [fault]);
                let report = server.tell_provider(&acme, &made, "verify").await.ok(200);
                assert_eq!((&report["status"], &report["identity"]), (&json!("error"), &json!(null)), "{report:#}");
                assert_eq!((&report["error"]["code"], results(&report)), (&json!("unavailable"), vec!["error", "skipped"]));
            }
            stub.set_away(true);
            server.cloud_work_for(10 * MINUTE_MS).await;
            assert_eq!(server.read_provider(&acme, &made).await["status"], "error");
            stub.set_away(false);
            server.cloud_work_for(20 * MINUTE_MS).await;
            let now = server.read_provider(&acme, &made).await;
            assert_eq!(now["status"], "active", "{now:#}");
            assert!(now["last_sync_at"].is_string(), "it is synced after the first success: {now:#}");
        }
    }

    async fn a_new_provider_is_verified_in_the_background_and_then_synced(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            stub.add("acme", "web-1");
            let (made, _) = make(&server, &acme, stub).await;
            server.tell_provider(&acme, &made, "sync").await.problem("conflict");
            server.cloud_work().await;
            let now = server.read_provider(&acme, &made).await;
            assert_eq!((&now["status"], &now["last_sync_error"]), (&json!("active"), &json!(null)));
            assert_eq!((&now["last_verified_at"], &now["last_sync_at"]), (&json!(server.now().to_string()), &json!(server.now().to_string())));
            let told = server.events_of(&acme, "cloud.").await;
            let told: Vec<&Value> = told.iter().filter(|event| event["data"]["id"] == made["id"]).collect();
            assert_eq!((told.len(), &told[0]["type"]), (1, &json!("cloud.provider.verified")), "{told:#?}");
            assert_eq!(told[0]["data"]["verification"], now["verification"]);
        }
    }

    async fn an_event_tells_each_change_of_the_status_once(setup: Setup) {
        let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = DAY_MS).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let (made, token) = make(&server, &acme, stub).await;
            let verify = async || server.tell_provider(&acme, &made, "verify").await.ok(200)["status"].clone();
            server.cloud_work().await;
            assert_eq!((verify().await, verify().await), (json!("active"), json!("active")));
            stub.set_rights(&token, Rights::ReadOnly);
            // Every few hours, without anybody who asks.
            server.cloud_work_for(8 * HOUR_MS).await;
            assert_eq!(server.read_provider(&acme, &made).await["status"], "degraded");
            assert_eq!(verify().await, "degraded");
            stub.set_away(true);
            assert_eq!((verify().await, verify().await), (json!("error"), json!("error")));
            stub.set_away(false);
            stub.revoke(&token);
            assert_eq!((verify().await, verify().await), (json!("invalid"), json!("invalid")));
            let events = server.events_of(&acme, "cloud.").await;
            let told: Vec<(&str, &str)> = events
                .iter()
                .filter(|event| event["data"]["id"] == made["id"])
                .map(|event| (event["type"].as_str().unwrap(), event["data"]["status"].as_str().unwrap()))
                .collect();
            let failed = "cloud.provider.failed";
            assert_eq!(
                told,
                [("cloud.provider.verified", "active"), (failed, "degraded"), (failed, "error"), (failed, "invalid")]
            );
        }
    }

    async fn a_token_that_is_refused_during_a_sync_stops_it_and_says_so(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            stub.add("acme", "web-1");
            let token = stub.token("acme", Rights::All);
            let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
            stub.revoke(&token);
            server.cloud_work_for(10 * MINUTE_MS).await;
            let now = server.read_provider(&acme, &provider).await;
            assert_eq!(now["status"], "invalid", "{now:#}");
            assert!(now["last_sync_error"].as_str().is_some_and(|error| error.contains(stub.region())), "{now:#}");
            assert_eq!(now["last_sync_at"], provider["last_sync_at"], "the last that ended");
            let asked = stub.count(Asked::List);
            server.cloud_work_for(2 * HOUR_MS).await;
            assert_eq!(stub.count(Asked::List), asked, "no further sync");
            let query = format!("provider_id={}", id_of(&provider));
            assert_eq!(server.list_vms(&acme, &query).await[0]["state"], "running", "nothing is taken for gone");
            // With good ones it goes on at once.
            let next = stub.token("acme", Rights::All);
            put(&server, &acme, &provider, &provider_body(stub, &next)).await.is(200);
            server.cloud_work().await;
            let now = server.read_provider(&acme, &provider).await;
            assert_eq!((&now["status"], &now["last_sync_error"]), (&json!("active"), &json!(null)));
        }
    }
}
