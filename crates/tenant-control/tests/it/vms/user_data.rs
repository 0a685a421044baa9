//! What a machine runs at its first start, which may hold passwords: a cloud that repeats it tells nobody.

use super::*;

const USER_DATA: &str =
    "#!/bin/bash\nexport  DB_PASSWORD=hunter2-correct-horse\n\tprintf \"%s\\n\" \"s3cr3t-battery-staple\"\n";
/// What must be shown nowhere.
const SECRETS: &[&str] = &["hunter2", "correct-horse", "s3cr3t", "battery-staple", "0017x0018x", "0040x0041x"];

/// A line that is longer than any message that is kept.
fn long_line() -> String {
    let key: Vec<String> = (0..200).map(|nth| format!("{nth:04}x")).collect();
    format!("key={}", key.concat())
}

/// All that a tenant is shown of its machines, as text.
async fn all_shown(server: &Server, tenancy: &Tenancy) -> String {
    let vms = server.list_vms(tenancy, "updated_since=2000-01-01T00:00:00Z").await;
    let events = server.events_of(tenancy, "").await;
    let trail = server.get(AUDIT).cookie(&tenancy.admin).await.ok(200);
    format!("{vms:?} {events:?} {trail}")
}

over_http! {
    async fn a_cloud_that_repeats_it_in_an_error_tells_nobody(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let cut = format!("{USER_DATA}{}", long_line());
            let echoes = [
                (USER_DATA, USER_DATA.to_owned()),
                (USER_DATA, json!(USER_DATA).to_string()),
                (USER_DATA, "line 2: DB_PASSWORD=hunter2-correct-horse is not understood".to_owned()),
                (USER_DATA, "\"s3cr3t-battery-staple\" is not understood".to_owned()),
                (cut.as_str(), long_line()),
                (cut.as_str(), json!(cut).to_string()),
                ("hunter2", "hunter2 is not understood".to_owned()),
            ];
            for (nth, (user_data, echo)) in echoes.into_iter().enumerate() {
                let acme = server.tenant(&format!("{}-{nth}", stub.kind())).await;
                let provider = server.connect(&acme, stub, &acme.tenant.slug).await;
                let order = with(&order_body(stub, &provider), &json!({"user_data": user_data}));
                // A refusal ends the order; after an error it is not known, and its reason is shown until it is.
                for (status, expected) in [(422, "failed"), (500, "submitting")] {
                    stub.on(Asked::Create, [stub.refusal(status, "something_new", &format!("cannot parse it: {echo}"))]);
                    let vm = server.post_order(&acme, &order).await.ok(202);
                    server.cloud_work().await;
                    let now = server.read_vm(&acme, &vm).await;
                    assert_eq!(operation_status(&now), expected, "{now:#}");
                    let detail = now["operation"]["error"]["detail"].as_str().unwrap();
                    assert!(detail.contains("cannot parse it: ") && detail.contains('…'), "the rest is told: {detail}");
                    let sent = &stub.calls(Asked::Create).pop().expect("a request").body["user_data"];
                    assert_eq!(sent, user_data, "the cloud has got it as it is");
                }
                let shown = all_shown(&server, &acme).await;
                for secret in SECRETS {
                    assert!(!shown.contains(secret), "{secret} of {echo:?} is in {shown}");
                }
            }
        }
    }

    async fn an_error_that_repeats_nothing_of_it_is_told_as_it_is(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let order = with(&order_body(stub, &provider), &json!({"user_data": USER_DATA}));
            let message = "the printf of your script has no password, and exports nothing";
            stub.on(Asked::Create, [stub.refusal(422, "something_new", message)]);
            let vm = server.post_order(&acme, &order).await.ok(202);
            server.cloud_work().await;
            let now = server.read_vm(&acme, &vm).await;
            assert!(now["operation"]["error"]["detail"].as_str().is_some_and(|detail| detail.ends_with(message)), "{now:#}");
        }
    }
}
