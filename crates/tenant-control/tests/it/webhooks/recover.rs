//! Recovery: every matching event of a window without a success is sent, a few at a time.

use kernel::base::{Actor, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use kernel::events::{self, EventKind, PublishedEvent};
use serde_json::{Value, json};

use super::drive::{
    act, change, counts, hook, id, log, look, patient, publish_many, publish_one, run, run_for, run_next, tally,
};
use crate::support::receiver::{Behaviour, Gate, Receiver};
use crate::support::{Answer, Server, Tenancy, over_http};

async fn ask(server: &Server, tenancy: &Tenancy, hook: &Value, since: Timestamp, until: Option<Timestamp>) -> Answer {
    let mut body = json!({"action": "recover", "webhook_id": id(hook), "since": since.to_string()});
    if let Some(until) = until {
        body["until"] = json!(until.to_string());
    }
    act(server, tenancy, &body).await
}

fn ids(events: &[PublishedEvent]) -> Vec<String> {
    let mut ids: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    ids.sort();
    ids
}

fn came(receiver: &Receiver) -> Vec<String> {
    let mut came: Vec<String> = receiver.received().iter().map(|request| request.webhook_id().to_owned()).collect();
    came.sort();
    came
}

over_http! {
    async fn the_window_starts_with_since_and_ends_before_until(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let mut published = Vec::new();
        for _ in 0..5 {
            published.push(publish_one(&server, &acme, "rec_1").await);
            server.advance(MINUTE_MS);
        }
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        let taken = ask(&server, &acme, &hook, published[1].at, Some(published[3].at)).await.ok(202);
        assert_eq!((&taken["status"], &taken["webhook_id"]), (&json!("running"), &hook["id"]), "{taken}");
        assert_eq!((&taken["since"], &taken["until"]), (&json!(published[1].at), &json!(published[3].at)));
        run(&server).await;
        assert_eq!(came(&receiver), ids(&published[1..3]));
        let recovery = look(&server, &acme, &hook).await["recovery"].clone();
        assert_eq!(recovery["status"], "done");
        assert_eq!((&recovery["examined"], &recovery["queued"]), (&json!(2), &json!(2)));
        assert_eq!((&recovery["started_at"], &recovery["finished_at"]), (&json!(server.now()), &json!(server.now())));
        ask(&server, &acme, &hook, published[0].at, None).await.is(202);
        run(&server).await;
        assert_eq!(came(&receiver), ids(&published), "what had a success is not sent again");
    }

    async fn only_what_matches_and_has_had_no_success_is_sent(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let start = server.now();
        let before = publish_one(&server, &acme, "rec_before").await;
        let first = server.key(&acme, &["tickets:read"]).await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["api_key.*"]})).await;
        receiver.on("/hook", [Behaviour::Answer(204), Behaviour::Answer(500)]);
        server.key(&acme, &["tickets:read"]).await;
        run(&server).await;
        server.key(&acme, &["tickets:read"]).await;
        run(&server).await;
        while run_next(&server).await.is_some() {}
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("failed", 1), ("succeeded", 1)]));
        receiver.forget();
        receiver.on("/hook", [Behaviour::Answer(204)]);
        act(&server, &acme, &json!({"action": "test", "webhook_id": id(&hook)})).await.is(202);
        run(&server).await;
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        let came: Vec<Value> = receiver.received().iter().map(|request| request.json()).collect();
        assert_eq!(came.len(), 3, "the test, the failed one and the one from before there was an endpoint: {came:?}");
        assert!(came.iter().any(|body| body["data"]["id"] == first.id));
        assert!(!came.iter().any(|body| body["id"] == before.id.to_string()), "not what it does not want");
        assert_eq!(look(&server, &acme, &hook).await["recovery"]["queued"], 2);
    }

    async fn a_recovery_is_paced_and_tells_how_far_it_has_come(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let start = server.now();
        let events = publish_many(&server, &acme, 300).await;
        change(&server, &acme, &hook, &json!({"enabled": true, "rate_limit_per_second": 50})).await;
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        let mut examined = 0;
        let mut looks = 0;
        let mut refused = false;
        while run_next(&server).await.is_some() {
            looks += 1;
            if looks % 20 != 0 {
                continue;
            }
            let record = look(&server, &acme, &hook).await;
            let pending = record["backlog"]["pending"].as_i64().unwrap();
            assert!(pending <= 200, "{pending} at once");
            let now = record["recovery"]["examined"].as_i64().unwrap();
            assert!(now >= examined);
            examined = now;
            if record["recovery"]["status"] == "running" && looks == 40 {
                assert!((1..300).contains(&examined), "{record}");
                ask(&server, &acme, &hook, start, None).await.problem("conflict");
                refused = true;
            }
        }
        assert!(refused, "it was over before it could be asked for again");
        assert_eq!(came(&receiver), ids(&events), "each once");
        let recovery = look(&server, &acme, &hook).await["recovery"].clone();
        assert_eq!((&recovery["status"], &recovery["queued"]), (&json!("done"), &json!(300)));
    }

    async fn new_events_pass_beside_a_recovery(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let start = server.now();
        let mut events = publish_many(&server, &acme, 300).await;
        change(&server, &acme, &hook, &json!({"enabled": true, "rate_limit_per_second": 20})).await;
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        run_for(&server, 2_000).await;
        let new = publish_one(&server, &acme, "rec_new").await;
        run(&server).await;
        run_for(&server, 11_000).await;
        let tallies = receiver.tallies("/hook");
        assert!(tallies.len() < 301, "the recovery is still under way");
        assert!(tallies.contains_key(&new.id.to_string()), "behind those that waited already, not behind all");
        run_for(&server, MINUTE_MS).await;
        events.push(new);
        assert_eq!(came(&receiver), ids(&events));
    }

    async fn asked_twice_nothing_is_sent_twice(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on_each("/hook", |nth, _| Behaviour::Answer(if nth % 2 == 0 { 503 } else { 204 }));
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let start = server.now();
        publish_many(&server, &acme, 30).await;
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        for _ in 0..3 {
            ask(&server, &acme, &hook, start, None).await.is(202);
            run(&server).await;
        }
        run_for(&server, DAY_MS).await;
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        assert_eq!(receiver.acknowledged("/hook").len(), 30);
        assert!(receiver.acknowledged("/hook").values().all(|count| *count == 1));
        assert_eq!(look(&server, &acme, &hook).await["recovery"]["queued"], 0);
    }

    async fn a_recovery_that_fails_retries_like_any_other(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let start = server.now();
        publish_many(&server, &acme, 300).await;
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        receiver.on("/hook", [Behaviour::Answer(503)]);
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        run_for(&server, HOUR_MS).await;
        let record = look(&server, &acme, &hook).await;
        assert_eq!(record["recovery"]["status"], "running");
        assert!(record["backlog"]["pending"].as_i64().unwrap() <= 200, "{record}");
        receiver.on("/hook", [Behaviour::Answer(204)]);
        run_for(&server, DAY_MS).await;
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("succeeded", 300)]));
        assert!(receiver.acknowledged("/hook").values().all(|count| *count == 1));
    }

    async fn what_waits_for_a_retry_is_sent_now_and_has_the_whole_schedule_before_it(setup: Setup) {
        let mut setup = setup;
        setup.sending.schedule_ms = vec![SECOND_MS, HOUR_MS];
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let start = server.now();
        let events = publish_many(&server, &acme, 6).await;
        run(&server).await;
        run_for(&server, MINUTE_MS).await;
        for delivery in log(&server, &acme, &hook).await {
            assert_eq!((&delivery["status"], &delivery["waiting_for"]), (&json!("pending"), &json!("retry")));
        }
        receiver.forget();
        receiver.on("/hook", (0..3).map(|_| Behaviour::Answer(204)).chain([Behaviour::Answer(500)]));
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        assert_eq!(came(&receiver), ids(&events), "all of them at once, and each once");
        assert_eq!(look(&server, &acme, &hook).await["recovery"]["queued"], 6);
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("pending", 3), ("succeeded", 3)]));
        while run_next(&server).await.is_some() {}
        assert_eq!(receiver.count(), 6 + 2 * 3, "those that fail again are tried as often as any other");
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("failed", 3), ("succeeded", 3)]));
    }

    async fn what_waits_for_a_retry_is_paced_like_the_rest(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on_each("/hook", |nth, _| Behaviour::Answer(if nth % 2 == 0 { 500 } else { 204 }));
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        let start = server.now();
        publish_many(&server, &acme, 60).await;
        run(&server).await;
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("pending", 30), ("succeeded", 30)]));
        receiver.forget();
        receiver.on("/hook", [Behaviour::Answer(204)]);
        change(&server, &acme, &hook, &json!({"rate_limit_per_second": 10})).await;
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        run_for(&server, SECOND_MS).await;
        assert!(receiver.count() <= 12, "{} in a second", receiver.count());
        run_for(&server, 3 * SECOND_MS).await;
        assert_eq!(tally(&server, &acme, &hook).await, counts(&[("succeeded", 60)]));
        assert_eq!(receiver.count(), 30, "what had a success is not sent again");
    }

    async fn in_order_the_first_of_a_record_is_sent_now_and_the_others_after_it(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Answer(500)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"ordered": true})).await;
        let first = publish_one(&server, &acme, "rec_1").await;
        server.advance(MINUTE_MS);
        let second = publish_one(&server, &acme, "rec_1").await;
        let third = publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        run_for(&server, MINUTE_MS).await;
        receiver.forget();
        receiver.on("/hook", [Behaviour::Answer(204)]);
        ask(&server, &acme, &hook, second.at, None).await.is(202);
        run(&server).await;
        assert_eq!(receiver.count(), 0, "the first is not in the window, and no later one overtakes it");
        ask(&server, &acme, &hook, first.at, None).await.is(202);
        run(&server).await;
        let came: Vec<String> = receiver.received().iter().map(|request| request.webhook_id().to_owned()).collect();
        assert_eq!(came, [first, second, third].map(|event| event.id.to_string()));
    }

    async fn a_recovery_that_cannot_be_is_refused(setup: Setup) {
        let server = patient(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let now = server.now();
        ask(&server, &acme, &hook, now, None).await.problem("conflict");
        ask(&server, &globex, &hook, now, None).await.problem("not_found");
        assert_eq!(ask(&server, &acme, &hook, now, Some(now)).await.pointers(), ["/until"]);
        assert_eq!(ask(&server, &acme, &hook, now, Some(now.plus_ms(-1))).await.pointers(), ["/until"]);
        let nothing = json!({"action": "recover"});
        assert_eq!(act(&server, &acme, &nothing).await.pointers(), ["/webhook_id", "/since"]);
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        ask(&server, &acme, &hook, now, None).await.is(202);
        ask(&server, &acme, &hook, now, None).await.problem("conflict");
        run(&server).await;
        ask(&server, &acme, &hook, now, None).await.is(202);
    }

    async fn switching_off_ends_a_recovery_and_enabling_sends_nothing(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let start = server.now();
        let events = publish_many(&server, &acme, 500).await;
        change(&server, &acme, &hook, &json!({"enabled": true, "rate_limit_per_second": 10})).await;
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        run_for(&server, 2_000).await;
        let sent = receiver.count();
        assert!(sent < 100);
        change(&server, &acme, &hook, &json!({"enabled": false, "rate_limit_per_second": null})).await;
        run_for(&server, HOUR_MS).await;
        let off = look(&server, &acme, &hook).await;
        assert_eq!((&off["backlog"]["pending"], &off["recovery"]["status"]), (&json!(0), &json!("cancelled")), "{off}");
        assert!(off["recovery"]["finished_at"].is_string(), "{off}");
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        run_for(&server, HOUR_MS).await;
        assert_eq!(receiver.count(), sent, "enabling sends nothing");
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        assert_eq!(came(&receiver), ids(&events));
        assert_eq!(look(&server, &acme, &hook).await["recovery"]["status"], "done", "a new one is not cut short");
        change(&server, &acme, &hook, &json!({"enabled": false})).await;
        assert_eq!(look(&server, &acme, &hook).await["recovery"]["status"], "done", "what was done stays done");
    }

    async fn an_endpoint_that_is_disabled_in_the_midst_of_a_recovery_is_left_alone(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"enabled": false})).await;
        let start = server.now();
        publish_many(&server, &acme, 600).await;
        change(&server, &acme, &hook, &json!({"enabled": true})).await;
        let gate = Gate::closed();
        let held = gate.clone();
        receiver.on_each("/hook", move |nth, _| match nth {
            0..20 => Behaviour::Answer(204),
            _ => Behaviour::Hold(held.clone()),
        });
        ask(&server, &acme, &hook, start, None).await.is(202);
        let sender = server.sender.clone();
        let sending = tokio::spawn(async move { sender.run_due().await });
        receiver.wait_for(21).await;
        change(&server, &acme, &hook, &json!({"enabled": false})).await;
        gate.open();
        let sent = tokio::time::timeout(std::time::Duration::from_mins(1), sending).await;
        sent.expect("no loop without end").unwrap().unwrap();
        run(&server).await;
        let tally = tally(&server, &acme, &hook).await;
        assert!(!tally.contains_key("pending"), "{tally:?}");
        assert_eq!(tally["succeeded"] + tally["skipped disabled"], 600);
        let log = log(&server, &acme, &hook).await;
        assert_eq!(log.len(), 600);
        assert_eq!(run_next(&server).await, None);
    }

    async fn a_window_of_events_that_nobody_wants_is_passed_through(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let start = server.now();
        publish_many(&server, &acme, 450).await;
        let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
        let ticket: EventKind<Value> = EventKind::new("ticket.created", "A ticket.");
        db.write(async move |tx| events::publish(tx, &ticket, "tkt_1", &json!({"id": "tkt_1"})).await).await.unwrap();
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({"events": ["ticket.created"]})).await;
        ask(&server, &acme, &hook, start, None).await.is(202);
        run(&server).await;
        assert_eq!(receiver.count(), 1);
        let recovery = look(&server, &acme, &hook).await["recovery"].clone();
        assert_eq!((&recovery["examined"], &recovery["queued"]), (&json!(451), &json!(1)));
    }
}
