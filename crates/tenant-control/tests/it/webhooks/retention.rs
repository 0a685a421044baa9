//! Events are kept for 30 days and the log of deliveries for 90, and then they are gone.

use kernel::base::DAY_MS;
use kernel::store::{DatabaseEngine, Purpose};
use serde_json::json;
use tenant_control::features;
use tenant_control::features::webhooks::{deliveries, jobs};

use super::drive::{counts, delivery, hook, log, patient, publish_many, publish_one, remove, run, run_next, tally};
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::{Server, Tenancy, over_http};

const EVENTS: &str = "SELECT COUNT(*) FROM events";
const DELIVERIES: &str = "SELECT COUNT(*) FROM deliveries";
const ATTEMPTS: &str = "SELECT COUNT(*) FROM delivery_attempts";
const ENDPOINTS: &str = "SELECT COUNT(*) FROM webhooks";

async fn count(server: &Server, sql: &'static str) -> i64 {
    server.app.store.system(Purpose::Cli).get_one(sql, kernel::args![]).await.expect("a count")
}

/// As long as the log is kept where the operator says nothing.
const KEPT_MS: i64 = 90 * DAY_MS;

async fn clean(server: &Server) {
    clean_log(server, KEPT_MS).await;
}

async fn clean_log(server: &Server, kept_ms: i64) {
    kernel::jobs::delete_expired(&server.app, &features::install().retention).await.expect("cleaning");
    jobs::clean_deliveries(&server.app, kept_ms).await.expect("cleaning of deliveries");
}

/// From now on rows of this tenant cannot be deleted from a table.
async fn refuse_deletes(server: &Server, table: &str, tenancy: &Tenancy) {
    let tenant = tenancy.tenant.id;
    let statements = match server.app.store.engine() {
        DatabaseEngine::Sqlite => vec![format!(
            "CREATE TRIGGER refuse BEFORE DELETE ON {table} WHEN OLD.tenant_id = '{tenant}'
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )],
        DatabaseEngine::Postgres => vec![
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused''; END'"
                .to_owned(),
            format!(
                "CREATE TRIGGER refuse BEFORE DELETE ON {table} FOR EACH ROW
                 WHEN (OLD.tenant_id = '{tenant}') EXECUTE FUNCTION refuse()"
            ),
        ],
    };
    let db = server.app.store.system(Purpose::Cli);
    for statement in statements {
        db.write(async move |tx| tx.exec(&statement, kernel::args![]).await).await.expect("a trigger");
    }
}

over_http! {
    async fn events_are_kept_for_30_days_and_deliveries_for_90(setup: Setup) {
        let server = patient(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        hook(&server, &globex, &receiver.url("/hook"), &json!({})).await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_many(&server, &acme, 3).await;
        publish_many(&server, &globex, 2).await;
        run(&server).await;
        server.advance(1);
        let younger = publish_one(&server, &acme, "rec_young").await;
        run(&server).await;
        server.advance(30 * DAY_MS - 1);
        clean(&server).await;
        assert_eq!(count(&server, EVENTS).await, 6, "to the millisecond");
        server.advance(1);
        clean(&server).await;
        assert_eq!(count(&server, EVENTS).await, 1, "the young one stays");
        assert_eq!((count(&server, DELIVERIES).await, count(&server, ATTEMPTS).await), (6, 6));
        server.advance(60 * DAY_MS - 1);
        clean(&server).await;
        assert_eq!((count(&server, DELIVERIES).await, count(&server, ATTEMPTS).await), (6, 6));
        server.advance(1);
        clean(&server).await;
        assert_eq!((count(&server, DELIVERIES).await, count(&server, ATTEMPTS).await), (1, 1));
        assert_eq!(delivery(&server, &acme, &hook, &younger).await["status"], "succeeded");
        server.advance(1);
        clean(&server).await;
        assert_eq!((count(&server, EVENTS).await, count(&server, DELIVERIES).await), (0, 0));
        assert_eq!(count(&server, ENDPOINTS).await, 2, "endpoints are no log");
        publish_one(&server, &acme, "rec_new").await;
        run(&server).await;
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("succeeded", 1)]));
    }

    async fn how_long_both_are_kept_are_settings(setup: Setup) {
        let mut setup = setup;
        setup.settings.event_retention_ms = DAY_MS;
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        server.advance(DAY_MS + 1);
        clean_log(&server, 2 * DAY_MS).await;
        assert_eq!((count(&server, EVENTS).await, count(&server, DELIVERIES).await), (0, 1));
        server.advance(DAY_MS);
        clean_log(&server, 2 * DAY_MS).await;
        assert_eq!(count(&server, DELIVERIES).await, 0);
    }

    async fn what_waits_is_counted_up_to_a_bound(setup: Setup) {
        let server = patient(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        for tenancy in [&acme, &globex] {
            hook(&server, tenancy, &receiver.url("/hook"), &json!({})).await;
            publish_many(&server, tenancy, 5).await;
        }
        let waiting = async |max: i64| deliveries::store::count_waiting(&server.app.store.system(Purpose::Jobs), max).await.unwrap();
        assert_eq!((waiting(20).await, waiting(7).await), (10, 7));
        jobs::measure_queue(&server.app).await.unwrap();
        run(&server).await;
        assert_eq!(waiting(20).await, 0);
    }

    async fn a_tenant_that_cannot_be_cleaned_keeps_no_other_from_it(setup: Setup) {
        let server = patient(setup).await;
        let mut tenants = [server.tenant("acme").await, server.tenant("globex").await, server.tenant("initech").await];
        tenants.sort_by_key(|tenancy| tenancy.tenant.id.to_string());
        let receiver = Receiver::start().await;
        for tenancy in &tenants {
            hook(&server, tenancy, &receiver.url("/hook"), &json!({})).await;
            publish_one(&server, tenancy, "rec_1").await;
        }
        run(&server).await;
        server.advance(91 * DAY_MS);
        refuse_deletes(&server, "deliveries", &tenants[0]).await;
        let failed = jobs::clean_deliveries(&server.app, KEPT_MS).await;
        assert!(failed.is_err(), "it is reported");
        assert_eq!(count(&server, DELIVERIES).await, 1, "the others are cleaned");
    }

    async fn what_cannot_be_cleaned_keeps_nothing_else_from_it(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        publish_one(&server, &acme, "rec_1").await;
        refuse_deletes(&server, "sessions", &acme).await;
        // Longer than the sessions of these tests last.
        server.advance(1_002 * DAY_MS);
        assert!(kernel::jobs::delete_expired(&server.app, &features::install().retention).await.is_err(), "it is reported");
        assert_eq!(count(&server, EVENTS).await, 0);
    }

    async fn more_than_one_step_is_taken_where_needed(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        publish_many(&server, &acme, 1_200).await;
        server.advance(91 * DAY_MS);
        publish_many(&server, &acme, 3).await;
        clean(&server).await;
        assert_eq!((count(&server, EVENTS).await, count(&server, DELIVERIES).await), (3, 3));
    }

    async fn a_deleted_endpoint_goes_with_the_last_of_its_log(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        publish_many(&server, &acme, 600).await;
        remove(&server, &acme, &hook).await;
        run(&server).await;
        assert_eq!(log(&server, &acme, &hook).await.len(), 600);
        server.advance(90 * DAY_MS + 1);
        // A round that is interrupted after its first step.
        let before = server.now().plus_ms(-90 * DAY_MS);
        let db = server.app.store.tenant_for_test(acme.tenant.id, kernel::base::Actor::for_system());
        let more = db.write(async move |tx| deliveries::store::clean_deliveries(tx, before).await).await.unwrap();
        assert!(more, "600 are more than a step");
        clean(&server).await;
        assert_eq!((count(&server, DELIVERIES).await, count(&server, ENDPOINTS).await), (0, 0));
    }

    async fn what_is_still_to_be_sent_when_its_payload_goes_is_skipped_as_expired(setup: Setup) {
        let mut setup = setup;
        setup.sending.schedule_ms = vec![40 * DAY_MS];
        setup.sending.auto_disable_ms = 400 * DAY_MS;
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true})).await;
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        server.advance(31 * DAY_MS);
        let second = publish_one(&server, &acme, "rec_1").await;
        clean(&server).await;
        receiver.on("/hook", [Behaviour::Answer(204)]);
        while run_next(&server).await.is_some() {}
        assert_eq!(receiver.count(), 2);
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("skipped expired", 1), ("succeeded", 1)]));
        assert_eq!(delivery(&server, &acme, &hook, &second).await["status"], "succeeded", "held no longer");
    }
}
