//! Many tenants whose receivers take a request and never answer: nobody else waits for them.

use std::time::Duration;

use serde_json::json;

use super::drive::{hook, open_in_real_time, publish_many, publish_one, tally};
use crate::support::over_http;
use crate::support::process::until;
use crate::support::receiver::{Behaviour, Receiver};

/// Fewer than the tenants whose lanes hang, and half as many more for lanes that only wait: all but these few are taken.
const LANES_MAX: usize = 16;
const HOSTILE: usize = 20;
const ENDPOINTS: usize = 3;
/// Attempts that hang outlast the test: what waits for their end waits for ever.
const TIMEOUT: Duration = Duration::from_mins(30);
const WAIT_MAX: Duration = Duration::from_mins(1);

over_http! {
    async fn receivers_that_hang_keep_no_other_tenant_waiting(setup: Setup) {
        let mut setup = setup;
        setup.sending.lanes_max = LANES_MAX;
        setup.sending.timeout = TIMEOUT;
        let server = open_in_real_time(setup).await;
        let healthy = server.tenant("healthy").await;
        let (receiver, hanging) = (Receiver::start().await, Receiver::start().await);
        let good = hook(&server, &healthy, &receiver.url("/good"), &json!({})).await;
        for number in 0..HOSTILE {
            let hostile = server.tenant(&format!("hostile{number}")).await;
            for place in 0..ENDPOINTS {
                let path = format!("/{number}/{place}");
                hanging.on(&path, [Behaviour::Hang]);
                hook(&server, &hostile, &hanging.url(&path), &json!({})).await;
            }
            publish_many(&server, &hostile, 3).await;
        }
        let sending = tokio::spawn(server.sender.clone().run(std::future::pending()));
        // One lane of each hangs, which is more than a node works on: those that came first hold no such permit any more.
        let hangs = |number: usize| (0..ENDPOINTS).any(|place| hanging.count_on(&format!("/{number}/{place}")) > 0);
        until("every hostile tenant has a request under way", WAIT_MAX, async || (0..HOSTILE).all(hangs).then_some(())).await;
        for count in 1..=3 {
            publish_one(&server, &healthy, "rec_1").await;
            receiver.wait_for_acknowledged("/good", count).await;
        }
        until("what was taken is noted", WAIT_MAX, async || {
            (tally(&server, &healthy, &good).await.get("succeeded") == Some(&3)).then_some(())
        })
        .await;
        let lanes = HOSTILE * ENDPOINTS;
        let asked = (0..HOSTILE).flat_map(|number| (0..ENDPOINTS).map(move |place| format!("/{number}/{place}")));
        let asked = asked.filter(|path| hanging.count_on(path) > 0).count();
        assert!(asked < lanes, "lanes that hang have a share, and no more: {asked} of {lanes}");
        sending.abort();
    }
}
