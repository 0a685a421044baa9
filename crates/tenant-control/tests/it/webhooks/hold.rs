//! A server that holds outgoing traffic sends nothing, and nothing is lost by that.

use kernel::base::{DAY_MS, HOUR_MS};
use kernel::store::Purpose;
use serde_json::json;

use super::drive::{act, counts, hook, id, look, patient, publish_many, publish_one, run, tally};
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::{Server, over_http};

async fn count_wakes(server: &Server) -> i64 {
    let sql = "SELECT COUNT(*) FROM lane_wakes WHERE kind = 'webhook'";
    server.app.store.system(Purpose::Cli).get_one(sql, kernel::args![]).await.expect("a count")
}

over_http! {
    async fn wakes_do_not_accumulate_while_deliveries_are_held(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.hold = true;
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        hook(&server, &acme, &receiver.url("/other"), &json!({"name": "Other"})).await;
        publish_many(&server, &acme, 3).await;
        assert_eq!(count_wakes(&server).await, 6, "one for each event and endpoint");
        run(&server).await;
        assert_eq!(count_wakes(&server).await, 0);
        publish_many(&server, &acme, 2).await;
        // The loop of the server, stopped at once: it applies wakes before it waits.
        server.sender.clone().run(async {}).await;
        assert_eq!((count_wakes(&server).await, receiver.count()), (0, 0));
        let sending = server.sending_node().await;
        run(&sending).await;
        assert_eq!((receiver.count_on("/hook"), receiver.count_on("/other")), (5, 5));
    }

    async fn what_is_held_goes_out_after_a_start_without_holding(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.hold = true;
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_many(&server, &acme, 3).await;
        for _ in 0..12 {
            run(&server).await;
            server.advance(12 * HOUR_MS);
        }
        act(&server, &acme, &json!({"action": "test", "webhook_id": id(&hook)})).await.is(202);
        run(&server).await;
        assert_eq!(receiver.count(), 0);
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("pending", 4)]), "neither given up nor skipped");
        assert_eq!(look(&server, &acme, &hook).await["status"], "enabled");
        let sending = server.sending_node().await;
        run(&sending).await;
        assert_eq!(receiver.count(), 4);
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("succeeded", 4)]));
    }

    async fn a_recovery_waits_and_a_retry_has_its_whole_schedule(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.hold = true;
        setup.sending.schedule_ms = vec![HOUR_MS, HOUR_MS];
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500), Behaviour::Answer(500), Behaviour::Answer(204)]);
        let before = server.now();
        publish_one(&server, &acme, "rec_before").await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let body = json!({"action": "recover", "webhook_id": id(&hook), "since": before.to_string()});
        act(&server, &acme, &body).await.is(202);
        run(&server).await;
        server.advance(3 * DAY_MS);
        run(&server).await;
        assert_eq!(look(&server, &acme, &hook).await["recovery"]["status"], "running");
        let sending = server.sending_node().await;
        run(&sending).await;
        assert_eq!(look(&server, &acme, &hook).await["recovery"]["status"], "done");
        // One attempt, then held again, and then the rest of the schedule.
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("pending", 1)]));
        server.advance(3 * DAY_MS);
        run(&server).await;
        assert_eq!((receiver.count(), tally(&server, &acme, &hook).await), (1, counts(&[("pending", 1)])));
        for _ in 0..2 {
            run(&sending).await;
            server.advance(2 * HOUR_MS);
        }
        assert_eq!((receiver.count(), tally(&server, &acme, &hook).await), (3, counts(&[("succeeded", 1)])));
    }
}
