//! A lane with much to do: what is due is looked up some at a time, and what came back is noted meanwhile.

use std::time::Duration;

use serde_json::json;

use super::drive::{counts, hook, open_in_real_time, publish_many, tally};
use crate::support::over_http;
use crate::support::process::until;
use crate::support::receiver::{Behaviour, Receiver};

over_http! {
    async fn what_came_back_is_noted_while_another_attempt_hangs(setup: Setup) {
        let server = open_in_real_time(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/hook", [Behaviour::Hang, Behaviour::Answer(204)]);
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_many(&server, &acme, 5).await;
        let sending = tokio::spawn(server.sender.clone().run(std::future::pending()));
        until("all but one are noted", Duration::from_secs(10), async || {
            let noted = tally(&server, &acme, &hook).await;
            (noted.get("succeeded") == Some(&4)).then_some(())
        })
        .await;
        // Its attempt has the whole time that an attempt has.
        let left = tally(&server, &acme, &hook).await;
        assert!([counts(&[("pending", 1), ("succeeded", 4)]), counts(&[("delivering", 1), ("succeeded", 4)])].contains(&left));
        sending.abort();
    }

    async fn a_backlog_of_several_looks_is_sent_once_each_beside_what_comes_meanwhile(setup: Setup) {
        let server = open_in_real_time(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let hook = hook(&server, &acme, &receiver.url("/hook"), &json!({})).await;
        publish_many(&server, &acme, 300).await;
        let sending = tokio::spawn(server.sender.clone().run(std::future::pending()));
        receiver.wait_for(100).await;
        publish_many(&server, &acme, 50).await;
        until("all are noted", Duration::from_secs(20), async || {
            let noted = tally(&server, &acme, &hook).await;
            (noted == counts(&[("succeeded", 350)])).then_some(())
        })
        .await;
        assert_eq!(receiver.tallies("/hook").len(), 350);
        assert!(receiver.tallies("/hook").values().all(|tally| tally.requests == 1));
        sending.abort();
    }
}
