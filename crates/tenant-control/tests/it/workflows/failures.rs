//! What a run can tell of a step that failed, and when a request is worth another attempt.

use serde_json::{Value, json};

use crate::support::over_http;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{
    Step, assert_ended, failing, get, manual, open, step, step_of, ticket, ticket_once, time,
};
use crate::tickets;

fn answer(status: u16, body: &str) -> Behaviour {
    let headers =
        vec![("content-type".to_owned(), "application/json".to_owned()), ("x-trace".to_owned(), "7".to_owned())];
    Behaviour::AnswerWith { status, headers, body: body.as_bytes().to_vec() }
}

/// Emits what an expression sees of a step.
fn tell(id: &str, needs: &str) -> Step {
    let data = json!({"seen": format!("${{{{ steps.{needs} }}}}")});
    step(id, "event.emit", json!({"name": "told", "data": data})).needs(&[needs])
}

fn seen(run: &Value, id: &str) -> Value {
    step_of(run, id)["input"]["data"]["seen"].clone()
}

over_http! {
    async fn expressions_see_why_a_step_failed_and_what_the_server_answered(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/taken", [answer(422, r#"{"field":"name"}"#)]);
        receiver.on("/fine", [answer(200, "[1]")]);
        receiver.on("/broken", [Behaviour::Reset]);
        let steps = [
            get("taken", &receiver.url("/taken")).or_continue(),
            get("fine", &receiver.url("/fine")),
            get("broken", &receiver.url("/broken")).or_continue(),
            failing("inside").or_continue(),
            tell("a", "taken"),
            tell("b", "fine"),
            tell("c", "broken"),
            tell("d", "inside"),
        ];
        let run = server.run(&acme, &manual(steps)).await;
        assert_eq!(run["status"], "succeeded", "{run:#}");
        let taken = seen(&run, "a");
        assert_eq!(taken["status"], "failed");
        let error = json!({"code": "http_status", "detail": "The server answered 422.", "status": 422});
        assert_eq!((&taken["error"], &step_of(&run, "taken")["error"]), (&error, &error));
        for output in [&taken["output"], &step_of(&run, "taken")["output"]] {
            assert_eq!((&output["status"], &output["body"]), (&json!(422), &json!({"field": "name"})));
            assert_eq!(output["headers"]["x-trace"], "7");
        }
        let fine = seen(&run, "b");
        assert_eq!((&fine["error"], &fine["output"]["body"]), (&Value::Null, &json!([1])));
        let broken = seen(&run, "c");
        assert_eq!((&broken["output"], &broken["error"]["status"]), (&Value::Null, &Value::Null));
        assert!(broken["error"]["code"].is_string(), "{broken}");
        let inside = seen(&run, "d");
        assert_eq!((&inside["error"]["code"], &inside["error"]["status"]), (&json!("not_found"), &Value::Null));
    }

    async fn what_a_server_finds_wrong_is_not_sent_again_unless_asked(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        for path in ["/400", "/404", "/422", "/408", "/409", "/425", "/429", "/500", "/304", "/asked"] {
            let status = path[1..].parse().unwrap_or(404);
            receiver.on(path, [Behaviour::Answer(status)]);
        }
        let names = ["400", "404", "422", "408", "409", "425", "429", "500", "304"];
        let mut steps: Vec<Step> =
            names.iter().map(|name| get(&format!("s{name}"), &receiver.url(&format!("/{name}"))).retry(1, 1)).collect();
        let asked = json!({"max": 1, "backoff_seconds": 1, "on_status": [404]});
        steps.push(get("asked", &receiver.url("/asked")).set("retry", asked));
        let run = server.run(&acme, &manual(steps)).await;
        server.work_for(10_000).await;
        assert_eq!(server.read_run(&acme, &run).await["status"], "failed");
        for (path, count) in [("/400", 1), ("/404", 1), ("/422", 1), ("/408", 2), ("/409", 2), ("/425", 2), ("/429", 2),
            ("/500", 2), ("/304", 2), ("/asked", 2)] {
            assert_eq!(receiver.count_on(path), count, "{path}");
        }
    }

    async fn a_server_that_says_when_to_come_back_is_waited_for(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let busy = Behaviour::RetryAfter { status: 429, seconds: 300 };
        receiver.on("/busy", [busy.clone(), Behaviour::Answer(204)]);
        let long = Behaviour::RetryAfter { status: 503, seconds: 10_000_000 };
        receiver.on("/long", [long, Behaviour::Answer(204)]);
        receiver.on("/late", [busy]);
        let steps = [
            get("busy", &receiver.url("/busy")).retry(1, 1),
            get("long", &receiver.url("/long")).retry(1, 1),
            get("late", &receiver.url("/late")).retry(1, 1).timeout(60).or_continue(),
        ];
        let run = server.run(&acme, &manual(steps)).await;
        let next = |run: &Value, id: &str| time(&step_of(run, id)["next_attempt_at"]).as_millis() - server.now().as_millis();
        assert_eq!((next(&run, "busy") + 999) / 1_000, 300, "{run:#}");
        assert_eq!((next(&run, "long") + 999) / 1_000, 86_400, "a day at most");
        server.work_for(299_000).await;
        assert_eq!((receiver.count_on("/busy"), receiver.count_on("/late")), (1, 1));
        assert_eq!(step_of(&server.read_run(&acme, &run).await, "late")["status"], "timed_out");
        server.work_for(86_200_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: busy succeeded, long succeeded, late timed_out");
    }

    async fn branches_join_although_one_of_them_was_skipped(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let join = |id: &str| ticket(id, id).needs(&["yes", "no"]).set("on_skipped", json!("continue"));
        let steps = [
            ticket("yes", "Yes").when("true"),
            ticket("no", "No").when("false"),
            join("joined"),
            ticket("strict", "Strict").needs(&["yes", "no"]),
            ticket("after", "After").needs(&["strict"]),
            ticket("told", "${{ steps.strict.status }} ${{ steps.strict.error.?code.orValue('') }}")
                .needs(&["strict"])
                .set("on_skipped", json!("continue")),
            ticket("last", "${{ steps.no.output == null ? 'nothing' : 'something' }}").needs(&["no"]).set("on_skipped", json!("continue")),
        ];
        let definition = manual(steps);
        let run = server.run(&acme, &definition).await;
        assert_ended(
            &run,
            "succeeded: yes succeeded, no skipped, joined succeeded, strict skipped, after skipped, \
            told succeeded, last succeeded",
        );
        assert_eq!(step_of(&run, "last")["input"]["subject"], "nothing");
        assert_eq!(step_of(&run, "told")["input"]["subject"], "skipped ");
        let workflow = server.workflow(&acme, &definition).await;
        let joining = |at: usize| workflow["steps"][at]["on_skipped"].clone();
        assert_eq!((joining(2), joining(3)), (json!("continue"), json!("skip")));
        let dry = server.post_run(&acme, &workflow, &json!({"dry_run": true})).await.ok(202);
        assert_ended(
            &dry,
            "succeeded: yes succeeded, no skipped, joined succeeded, strict skipped, after skipped, \
            told succeeded, last succeeded",
        );
    }

    async fn a_step_that_failed_is_not_one_that_was_skipped(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let steps = [
            failing("bad"),
            ticket("after", "After").needs(&["bad"]).set("on_skipped", json!("continue")),
            ticket("behind", "Behind").needs(&["after"]).set("on_skipped", json!("continue")),
        ];
        let run = server.run(&acme, &manual(steps)).await;
        assert_ended(&run, "failed: bad failed, after skipped, behind succeeded");
    }

    async fn a_retry_waits_for_what_a_joining_step_needs(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let mut holders = Vec::new();
        for taken in ["E-1", "E-2"] {
            holders.push(tickets::make(&server, &acme, &json!({"external_id": taken})).await);
        }
        let steps = [
            ticket_once("first", "E-1"),
            ticket("between", "between").needs(&["first"]),
            ticket_once("joined", "E-2").needs(&["between"]).set("on_skipped", json!("continue")),
        ];
        let run = server.run(&acme, &manual(steps)).await;
        assert_ended(&run, "failed: first failed, between skipped, joined failed");
        for holder in &holders {
            tickets::changed(&server, &acme, holder, &json!({"external_id": null})).await;
        }
        server.tell_run(&acme, &run, "retry").await.is(200);
        server.work_for(5_000).await;
        assert_ended(
            &server.read_run(&acme, &run).await,
            "succeeded: first succeeded, between succeeded, joined succeeded",
        );
        let made = tickets::list(&server, &acme, "sort=created_at").await;
        let subjects: Vec<&Value> = made.iter().skip(2).map(|ticket| &ticket["subject"]).collect();
        assert_eq!(subjects, ["first", "between", "joined"]);
    }
}
