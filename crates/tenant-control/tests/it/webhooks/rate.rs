//! `rate_limit_per_second`, counted by the clock of the test.

use kernel::base::{SECOND_MS, Timestamp};
use serde_json::json;

use super::drive::{change, hook, log, look, patient, publish_many, publish_one, remove, run, run_next};
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::{Server, over_http};

/// When each request came, by the test's clock: as often as the count has risen.
async fn arrivals(server: &Server, receiver: &Receiver, until: Timestamp) -> Vec<i64> {
    let mut arrivals = vec![server.now().as_millis(); receiver.count()];
    while server.now() < until && run_next(server).await.is_some() {
        let new = receiver.count() - arrivals.len();
        arrivals.extend(std::iter::repeat_n(server.now().as_millis(), new));
    }
    arrivals
}

/// In no second more than the rate and one that was saved up.
#[track_caller]
fn keeps(arrivals: &[i64], rate: usize) {
    let spread = rate + (rate / 10).max(1);
    for window in arrivals.windows(spread + 1) {
        assert!(window[spread] - window[0] >= SECOND_MS, "{} within a second: {window:?}", spread + 1);
    }
}

over_http! {
    async fn no_second_has_more_than_the_rate_and_all_of_it_is_used(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        for (rate, count) in [(1, 5), (7, 35), (100, 250)] {
            let receiver = Receiver::start().await;
            let more = json!({"rate_limit_per_second": rate});
            let hook = hook(&server, &acme, &receiver.url("/hook"), &more).await;
            let start = server.now();
            publish_many(&server, &acme, count).await;
            run(&server).await;
            let arrivals = arrivals(&server, &receiver, start.plus_ms(3_600 * SECOND_MS)).await;
            assert_eq!(arrivals.len(), count);
            keeps(&arrivals, rate);
            let took = arrivals[count - 1] - start.as_millis();
            let planned = (count as i64) * SECOND_MS / (rate as i64);
            assert!(took <= planned + SECOND_MS, "{took} ms for {planned}");
            remove(&server, &acme, &hook).await;
            run(&server).await;
        }
    }

    async fn what_waits_for_the_rate_says_so_and_others_do_not_wait(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let slow = hook(&server, &acme, &receiver.url("/slow"), &json!({"rate_limit_per_second": 1})).await;
        hook(&server, &acme, &receiver.url("/fast"), &json!({})).await;
        publish_many(&server, &acme, 10).await;
        run(&server).await;
        assert_eq!((receiver.count_on("/slow"), receiver.count_on("/fast")), (1, 10));
        let record = look(&server, &acme, &slow).await;
        assert_eq!(record["backlog"]["paused_reason"], "rate_limit", "{record}");
        assert_eq!(record["backlog"]["pending"], 9);
        let waiting = log(&server, &acme, &slow).await;
        let waiting: Vec<_> = waiting.iter().filter(|delivery| delivery["status"] == "pending").collect();
        assert_eq!(waiting.len(), 9);
        assert!(waiting.iter().all(|delivery| delivery["waiting_for"] == "rate_limit"), "{waiting:?}");
    }

    async fn new_events_do_not_raise_the_rate(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        hook(&server, &acme, &receiver.url("/hook"), &json!({"rate_limit_per_second": 2})).await;
        let mut arrivals = Vec::new();
        for _ in 0..40 {
            publish_one(&server, &acme, "rec_1").await;
            run(&server).await;
            arrivals.extend(std::iter::repeat_n(server.now().as_millis(), receiver.count() - arrivals.len()));
            server.advance(100);
        }
        keeps(&arrivals, 2);
        assert!((7..=10).contains(&arrivals.len()), "{} in four seconds", arrivals.len());
    }

    async fn a_changed_rate_holds_at_once_and_null_means_none(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"rate_limit_per_second": 1})).await;
        publish_many(&server, &acme, 30).await;
        run(&server).await;
        assert_eq!(receiver.count(), 1);
        change(&server, &acme, &hook, &json!({"rate_limit_per_second": null})).await;
        run(&server).await;
        assert_eq!(receiver.count(), 30);
        assert!(look(&server, &acme, &hook).await["backlog"]["paused_reason"].is_null());
    }

    async fn failures_count_too(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on_each("/hook", |nth, _| Behaviour::Answer(if nth % 2 == 0 { 500 } else { 204 }));
        hook(&server, &acme, &receiver.url("/hook"), &json!({"rate_limit_per_second": 3})).await;
        let start = server.now();
        publish_many(&server, &acme, 30).await;
        run(&server).await;
        keeps(&arrivals(&server, &receiver, start.plus_ms(30 * SECOND_MS)).await, 3);
    }
}
