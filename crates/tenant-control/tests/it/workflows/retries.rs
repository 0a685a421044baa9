//! Attempts: how many, how long apart, and which failures are worth another.

use serde_json::{Value, json};

use crate::support::over_http;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{
    assert_ended, attempt_codes, failing, get, manual, on_event, open, step, step_of, ticket, ticket_once, time,
};
use crate::tickets;

/// The milliseconds between one attempt and the next.
fn gaps(step: &Value) -> Vec<i64> {
    let attempts = step["attempts"].as_array().expect("attempts");
    let at: Vec<i64> = attempts.iter().map(|attempt| time(&attempt["at"]).as_millis()).collect();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

over_http! {
    async fn retries_count_after_the_first_attempt(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for path in ["/never", "/thrice", "/none"] {
            receiver.on(path, [Behaviour::Answer(500)]);
        }
        receiver.on("/third", [Behaviour::Answer(500), Behaviour::Answer(429), Behaviour::Answer(204)]);
        let run = server
            .run(
                &acme,
                &manual([
                    get("none", &receiver.url("/none")),
                    get("never", &receiver.url("/never")).retry(0, 1),
                    get("thrice", &receiver.url("/thrice")).retry(2, 1),
                    get("third", &receiver.url("/third")).retry(5, 1),
                ]),
            )
            .await;
        assert_ended(&run, "waiting: none failed, never failed, thrice pending, third pending");
        server.work_for(60_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: none failed, never failed, thrice failed, third succeeded");
        for (id, count) in [("none", 1), ("never", 1), ("thrice", 3), ("third", 3)] {
            assert_eq!(receiver.count_on(&format!("/{id}")), count, "{id}");
            let attempts = step_of(&run, id)["attempts"].as_array().unwrap();
            let numbers: Vec<i64> = attempts.iter().map(|attempt| attempt["number"].as_i64().unwrap()).collect();
            assert_eq!(numbers, (1..=i64::try_from(count).unwrap()).collect::<Vec<_>>(), "{id}");
        }
        assert_eq!(attempt_codes(step_of(&run, "third")), ["http_status", "http_status", ""]);
        let statuses: Vec<&Value> = step_of(&run, "third")["attempts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|attempt| &attempt["status_code"])
            .collect();
        assert_eq!(statuses, [500, 429, 204]);
        assert_eq!(
            (&step_of(&run, "third")["error"], &step_of(&run, "third")["next_attempt_at"]),
            (&json!(null), &json!(null))
        );
        assert_eq!(run["error"]["step_id"], "none");
    }

    async fn each_wait_is_twice_the_one_before_and_up_to_a_fifth_longer(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let run = server.run(&acme, &manual([failing("bad").retry(4, 10), failing("usual").retry(1, 10)])).await;
        let between = step_of(&run, "bad");
        let wait = time(&between["next_attempt_at"]).as_millis() - server.now().as_millis();
        assert!((10_000..=12_000).contains(&wait), "{between:#}");
        assert_eq!((&between["status"], &run["status"]), (&json!("pending"), &json!("waiting")));
        server.work_for(10_000 - 1).await;
        assert_eq!(step_of(&server.read_run(&acme, &run).await, "bad")["attempts"].as_array().unwrap().len(), 1);
        server.work_for(200_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: bad failed, usual failed");
        let gaps = gaps(step_of(&run, "bad"));
        assert_eq!(gaps.len(), 4, "{gaps:?}");
        for (place, gap) in gaps.iter().enumerate() {
            let least = 10_000 << place;
            assert!((least..=least + least / 5).contains(gap), "{gaps:?}");
        }
    }

    async fn a_wait_between_attempts_is_ten_seconds_where_nothing_is_said(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let mut definition = manual([failing("bad")]);
        definition["steps"][0]["retry"] = json!({"max": 1});
        let run = server.run(&acme, &definition).await;
        server.work_for(13_000).await;
        let gaps = gaps(step_of(&server.read_run(&acme, &run).await, "bad"));
        assert!(matches!(gaps[..], [10_000..=12_000]), "{gaps:?}");
    }

    async fn an_attempt_inside_the_platform_is_made_again_and_works_once_its_hindrance_is_gone(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let holder = tickets::make(&server, &acme, &json!({"external_id": "E-1"})).await;
        let run = server
            .run(&acme, &manual([ticket_once("make", "E-1").retry(3, 10), ticket("after", "After").needs(&["make"])]))
            .await;
        assert_ended(&run, "waiting: make pending, after pending");
        assert_eq!(attempt_codes(step_of(&run, "make")), ["conflict"]);
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1], "an attempt that failed leaves nothing behind");
        tickets::changed(&server, &acme, &holder, &json!({"external_id": null})).await;
        server.work_for(12_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: make succeeded, after succeeded");
        assert_eq!(attempt_codes(step_of(&run, "make")), ["conflict", ""]);
        let subjects: Vec<Value> =
            tickets::list(&server, &acme, "sort=created_at").await.iter().map(|made| made["subject"].clone()).collect();
        assert_eq!(subjects, ["Printer on fire", "make", "After"]);
        let told: Vec<Value> =
            tickets::events(&server, &acme).await.iter().map(|event| event["type"].clone()).collect();
        assert_eq!(told, ["ticket.created", "ticket.updated", "ticket.created", "ticket.created"]);
    }

    async fn what_the_ticket_route_refuses_is_worth_another_attempt(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let done = tickets::make(&server, &acme, &json!({})).await;
        tickets::changed(&server, &acme, &done, &json!({"status": "resolved"})).await;
        let ids = json!({"ticket": done["id"], "nowhere": "org_01jd8z6v2mfkpb7h3q9xw5t4ra"});
        let definition = manual([
            failing("not_found").retry(1, 1),
            step("transition", "ticket.update", json!({"ticket_id": "${{ input.ticket }}", "status": "pending"}))
                .retry(1, 1),
            step("reference", "ticket.create", json!({"subject": "A", "organization_id": "${{ input.nowhere }}"}))
                .retry(1, 1),
        ]);
        let run = server.run_with(&acme, &definition, &ids).await;
        server.work_for(10_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: not_found failed, transition failed, reference failed");
        for (id, code) in
            [("not_found", "not_found"), ("transition", "invalid_transition"), ("reference", "invalid_fields")]
        {
            assert_eq!(attempt_codes(step_of(&run, id)), [code, code], "{id}");
            assert_eq!(step_of(&run, id)["error"]["code"], code);
        }
        let detail = step_of(&run, "reference")["error"]["detail"].as_str().unwrap();
        assert!(detail.contains("organization_id"), "it says which field: {detail}");
    }

    async fn a_fault_of_an_expression_is_final(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let definition = manual([
            ticket("missing", "${{ input.nothing.at_all }}").retry(5, 1),
            ticket("divided", "${{ 1 / input.zero }}").retry(5, 1),
            ticket("condition", "A").when("input.nothing == 1").retry(5, 1),
            ticket("no_bool", "A").when("input.zero").retry(5, 1),
            step("wrong_type", "ticket.create", json!({"subject": "${{ input.zero }}"})).retry(5, 1),
            ticket("too_long", "${{ input.text }}").retry(5, 1),
        ]);
        let run = server.run_with(&acme, &definition, &json!({"zero": 0, "text": "x".repeat(201)})).await;
        assert_ended(
            &run,
            "failed: missing failed, divided failed, condition failed, no_bool failed, wrong_type failed, too_long failed",
        );
        for id in ["missing", "divided", "condition", "no_bool"] {
            assert_eq!(step_of(&run, id)["error"]["code"], "expression_failed", "{id}");
        }
        for id in ["wrong_type", "too_long"] {
            assert_eq!(step_of(&run, id)["error"]["code"], "invalid_fields", "{id}");
            assert!(step_of(&run, id)["error"]["detail"].as_str().unwrap().contains("subject"), "{run:#}");
        }
        for step in run["steps"].as_array().unwrap() {
            assert!(step["attempts"].as_array().unwrap().len() <= 1, "{step:#}");
            assert_eq!(step["next_attempt_at"], json!(null));
        }
        assert_eq!(tickets::numbers(&server, &acme, "").await, [0_i64; 0]);
    }

    async fn an_expression_sees_the_same_moment_in_every_attempt(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/a", [Behaviour::Answer(500), Behaviour::Answer(500), Behaviour::Answer(204)]);
        let body = json!({"now": "${{ now }}", "run": "${{ run.id }}", "text": "at ${{ string(now) }}"});
        let call = step("call", "http.request", json!({"method": "POST", "url": receiver.url("/a"), "body": body}));
        let run = server.run(&acme, &manual([call.retry(2, 30)])).await;
        let began = server.now().to_string();
        server.work_for(200_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: call succeeded");
        let received = receiver.received();
        assert_eq!(received.len(), 3);
        assert!(received.iter().all(|request| request.body == received[0].body), "the same bytes each time");
        assert_eq!(received[0].json()["now"], json!(began));
        assert_eq!(received[0].json()["run"], run["id"]);
        let keys: Vec<&String> = received.iter().map(|request| &request.headers["idempotency-key"]).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    async fn a_failed_attempt_tells_nobody_and_starts_nothing(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        tickets::make(&server, &acme, &json!({"external_id": "E-1"})).await;
        let follower = server.workflow(&acme, &on_event(&["ticket.created"], [ticket("seen", "Seen")])).await;
        let run = server.run(&acme, &manual([ticket_once("make", "E-1").retry(2, 1)])).await;
        server.work_for(60_000).await;
        assert_ended(&server.read_run(&acme, &run).await, "failed: make failed");
        assert_eq!(server.runs_of(&acme, &follower).await.len(), 0);
    }
}
