//! A server that holds outgoing traffic sends no request of a workflow; the rest of its runs goes on.

use kernel::base::{HOUR_MS, MINUTE_MS, SECOND_MS};

use crate::support::over_http;
use crate::support::receiver::{Behaviour, Receiver};
use crate::support::workflows::{assert_ended, attempt_codes, get, manual, open, step_of, summary, ticket, wait};

over_http! {
    async fn requests_wait_without_running_out_of_time_and_the_rest_goes_on(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.hold = true;
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let steps = [
            get("call", &receiver.url("/")).timeout(10).retry(1, 5),
            get("skipped", &receiver.url("/skipped")).when("false"),
            ticket("made", "Made"),
            wait("waited", 60).needs(&["made"]),
            ticket("after", "After").needs(&["call"]),
        ];
        let run = server.run(&acme, &manual(steps)).await;
        server.work_for(2 * HOUR_MS).await;
        let held = server.read_run(&acme, &run).await;
        assert_ended(&held, "running: call running, skipped skipped, made succeeded, waited succeeded, after pending");
        assert_eq!((receiver.count(), attempt_codes(step_of(&held, "call")).len()), (0, 0), "{held:#}");

        // The server is away for longer than the step may take, as at a restart.
        server.advance(HOUR_MS);
        let sending = server.sending_node().await;
        sending.work_for(MINUTE_MS).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: call succeeded, skipped skipped, made succeeded, waited succeeded, after succeeded");
        assert_eq!(receiver.count(), 1);
    }

    async fn once_it_is_sent_the_time_of_a_request_counts_again(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.hold = true;
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/", [Behaviour::Answer(500)]);
        let steps = [get("call", &receiver.url("/")).timeout(60).retry(10, 25)];
        let run = server.run(&acme, &manual(steps)).await;
        server.work_for(HOUR_MS).await;
        let sending = server.sending_node().await;
        sending.work_for(MINUTE_MS).await;
        let tried = server.read_run(&acme, &run).await;
        assert!(summary(&tried).ends_with(": call pending"), "{tried:#}");
        sending.work_for(MINUTE_MS).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "timed_out: call timed_out");
        let attempts = step_of(&run, "call")["attempts"].as_array().unwrap().len();
        assert_eq!(attempts, receiver.count());
        assert!((2..=3).contains(&attempts), "within a minute: {run:#}");
    }

    /// What had been sent before waits for its next attempt as it would have, and then is held.
    async fn a_retry_is_held_too(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.hold = true;
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/", [Behaviour::Answer(500), Behaviour::Answer(200)]);
        let sending = server.sending_node().await;
        let steps = [get("call", &receiver.url("/")).timeout(100).retry(1, 30)];
        let run = sending.run(&acme, &manual(steps)).await;
        assert_eq!(receiver.count(), 1);
        server.work_for(HOUR_MS).await;
        let held = server.read_run(&acme, &run).await;
        assert!(summary(&held).ends_with(": call running"), "{held:#}");
        sending.work_for(30 * SECOND_MS).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: call succeeded");
        assert_eq!(attempt_codes(step_of(&run, "call")), ["http_status", ""]);
        assert_eq!(receiver.count(), 2);
    }
}
