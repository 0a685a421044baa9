//! How long an order waits: until it is sent, while it is refused for now, and while nobody can find out what became of it.

use kernel::args;
use kernel::base::{DAY_MS, HOUR_MS};
use kernel::store::Purpose;

use super::accounts::replace;
use super::*;

/// Why a provider cannot be worked with.
#[derive(Clone, Copy, Debug)]
enum Hindrance {
    Disabled,
    Refused,
    /// New credentials that could not be verified, because the cloud is away.
    Unverified,
    /// Stored credentials that do not open.
    Unopened,
}

const HINDRANCES: [Hindrance; 4] =
    [Hindrance::Disabled, Hindrance::Refused, Hindrance::Unverified, Hindrance::Unopened];

impl Hindrance {
    async fn apply(self, server: &Server, tenancy: &Tenancy, stub: &CloudStub, provider: &Value) {
        match self {
            Hindrance::Disabled => set_enabled(server, tenancy, stub, provider, false).await,
            Hindrance::Refused => replace(server, tenancy, stub, provider, "a-token-that-is-refused").await,
            Hindrance::Unverified => {
                stub.set_away(true);
                replace(server, tenancy, stub, provider, &stub.token("unknown", Rights::All)).await;
            }
            Hindrance::Unopened => break_credentials(server, provider).await,
        }
    }
}

/// Cuts off the last byte of the sealed credentials, as a damaged database might.
async fn break_credentials(server: &Server, provider: &Value) {
    let id = id_of(provider).to_owned();
    let sql = "UPDATE cloud_providers SET credentials = substr(credentials, 1, length(credentials) - 1) WHERE id = $1";
    let db = server.app.store.system(Purpose::Cli);
    db.write(async move |tx| tx.exec(sql, args![id]).await).await.expect("the update works");
}

async fn set_enabled(server: &Server, tenancy: &Tenancy, stub: &CloudStub, provider: &Value, enabled: bool) {
    let body = json!({"name": "Production", "kind": stub.kind(), "enabled": enabled});
    server.put(one_provider(provider)).cookie(&tenancy.admin).json(&body).await.is(200);
}

fn without_syncs(settings: &mut cloud_fleet::settings::CloudSettings) {
    settings.sync_every_ms = 100 * HOUR_MS;
}

over_http! {
    async fn an_order_in_doubt_that_nobody_can_look_for_needs_attention_after_hours(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            for hindrance in HINDRANCES {
                let acme = server.tenant(&format!("{}-{hindrance:?}", stub.kind()).to_lowercase()).await;
                let provider = server.connect(&acme, stub, &acme.tenant.slug).await;
                stub.on(Asked::Create, [Fault::LostAnswer]);
                let vm = server.order(&acme, stub, &provider).await;
                server.cloud_work().await;
                hindrance.apply(&server, &acme, stub, &provider).await;
                server.cloud_work_for(5 * HOUR_MS).await;
                let now = server.read_vm(&acme, &vm).await;
                assert_eq!(operation_status(&now), "submitting", "{hindrance:?}: {now:#}");
                server.cloud_work_for(2 * HOUR_MS).await;
                let now = server.read_vm(&acme, &vm).await;
                assert_eq!((operation_status(&now), &now["state"]), ("needs_attention", &json!("unknown")), "{hindrance:?}: {now:#}");
                assert_eq!(now["operation"]["error"]["code"], "ambiguous", "{now:#}");
                assert_eq!(kinds_of(&server, &acme, &vm).await.iter().filter(|kind| *kind == "vm.failed").count(), 1);
                server.post_order(&acme, &settlement(&vm, "abandon")).await.is(202);
                stub.set_away(false);
            }
        }
    }

    async fn an_order_that_was_tried_before_waits_no_longer_than_a_day(setup: Setup) {
        let (server, clouds) = open_with(setup, without_syncs).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            stub.on(Asked::Create, [stub.rate_limited(server.now())]);
            stub.always(Asked::Find, stub.refusal(503, "unavailable", "lists are closed today"));
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(10 * MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            let error = &now["operation"]["error"];
            assert_eq!((operation_status(&now), &error["code"]), ("accepted", &json!("unavailable")), "{now:#}");
            assert!(error["detail"].as_str().unwrap().contains("lists are closed today"), "it says what hinders it now: {error}");
            server.advance(DAY_MS);
            server.cloud_work_for(2 * MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), &now["operation"]["error"]["code"]), ("failed", &json!("timeout")), "{now:#}");
            assert_eq!(count(&kinds_of(&server, &acme, &vm).await, "vm.failed"), 1);
            assert_eq!(stub.count(Asked::Create), 1);
        }
    }

    async fn an_order_that_waited_for_hours_is_tried_for_an_hour(setup: Setup) {
        let (server, clouds) = open_with(setup, without_syncs).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let vm = server.order(&acme, stub, &provider).await;
            set_enabled(&server, &acme, stub, &provider, false).await;
            server.cloud_work_for(3 * HOUR_MS).await;
            stub.on(Asked::Create, [stub.rate_limited(server.now())]);
            set_enabled(&server, &acme, stub, &provider, true).await;
            server.cloud_work().await;
            assert_eq!((operation_status(&server.read_vm(&acme, &vm).await), stub.count(Asked::Create)), ("accepted", 1));
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, "after hours").await;
        }
    }

    async fn an_order_that_is_sent_again_after_days_has_its_whole_time(setup: Setup) {
        let (server, clouds) = open_with(setup, without_syncs).await;
        let (stub, acme) = (&clouds.digitalocean, server.tenant("acme").await);
        let provider = server.connect(&acme, stub, "acme").await;
        stub.on(Asked::Create, [Fault::LostRequest]);
        let vm = server.order(&acme, stub, &provider).await;
        server.cloud_work_for(12 * MINUTE_MS).await;
        assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "needs_attention");
        server.advance(3 * DAY_MS);
        stub.on(Asked::Create, [stub.rate_limited(server.now())]);
        server.post_order(&acme, &settlement(&vm, "retry")).await.is(202);
        server.cloud_work().await;
        assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "accepted", "too many requests are not for ever");
        server.cloud_work_for(2 * MINUTE_MS).await;
        let now = server.read_vm(&acme, &vm).await;
        assert_eq!((operation_status(&now), stub.machines().len()), ("succeeded", 1), "{now:#}");
    }
}
