//! Receivers that do everything wrong, a hundred of them at once: late, twice, but never lost, and in bounded memory.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use kernel::base::{Actor, TenantId, sha256};
use kernel::events::{self, EventKind};

use super::*;
use crate::support::process::{say, until};
use crate::support::receiver::Behaviour;

const ENDPOINTS_PER_TENANT: usize = 50;
const WAIT_MAX: Duration = Duration::from_mins(30);
/// What the sender may add to the process, whatever waits: attempts under way, not the backlog.
const GROWTH_MAX: u64 = 300 << 20;

/// More than the default is for a long run by hand.
fn deliveries() -> usize {
    std::env::var("TENANT_CONTROL_TEST_DELIVERIES").map_or(1_000, |text| text.parse().expect("a number"))
}

const LOAD: EventKind<Value> = EventKind::new("custom.load", "Made to be sent.");

/// What a request gets: different for each event and each repetition, the same in every run.
fn behaviour(path: &str, nth: usize, id: &str) -> Behaviour {
    let lot = sha256(format!("{path} {nth} {id}").as_bytes())[0];
    match lot {
        0..20 => Behaviour::Answer(500),
        20..40 => Behaviour::Reset,
        40..44 => Behaviour::Hang,
        44..48 => Behaviour::DripBody,
        48..52 => Behaviour::DripHead,
        52..60 => Behaviour::EndlessBody,
        60..70 => Behaviour::Redirect("http://127.0.0.1:1/elsewhere".to_owned()),
        70..80 => Behaviour::RetryAfter { status: 429, seconds: 1 },
        80..90 => Behaviour::Garbage,
        90..100 => Behaviour::Truncated,
        100..105 => Behaviour::HugeHeaders,
        _ => Behaviour::Answer(200),
    }
}

async fn publish(server: &Server, tenant: TenantId, count: usize) {
    let db = server.app.store.tenant_for_test(tenant, Actor::for_system());
    for start in (0..count).step_by(10) {
        db.write(async move |tx| {
            for number in start..(start + 10).min(count) {
                events::publish(tx, &LOAD, number, &json!({"id": number, "text": "x".repeat(500)})).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

over_http! {
    async fn nothing_is_lost_whatever_receivers_do(setup: Setup) {
        let mut setup = setup.in_real_time();
        setup.sending.schedule_ms = vec![100; 60];
        setup.sending.timeout = Duration::from_millis(800);
        let server = open(setup).await;
        let receiver = Receiver::start().await;
        receiver.keep_tallies_only();
        let tenancies = [server.tenant("acme").await, server.tenant("globex").await];
        let mut hooks = Vec::new();
        for (number, tenancy) in tenancies.iter().enumerate() {
            for place in 0..ENDPOINTS_PER_TENANT {
                let path = format!("/{number}/{place}");
                let own = path.clone();
                receiver.on_each(&path, move |nth, id| behaviour(&own, nth, id));
                let hook = endpoint(&server, tenancy, &receiver.url(&path), &["*"]).await;
                hooks.push((number, path, hook["id"].as_str().unwrap().to_owned()));
            }
        }
        // One says once that it is gone, and one is addressed by https where there is none; both are mended below.
        let (gone, wrong_tls) = (&hooks[0], &hooks[1]);
        let own = gone.1.clone();
        receiver.on_each(&gone.1, move |nth, id| if nth == 5 { Behaviour::Answer(410) } else { behaviour(&own, nth, id) });
        let admin = &tenancies[0].admin;
        let put = async |hook: &(usize, String, String), url: String| {
            let body = json!({"name": "Hook", "url": url, "events": ["*"]});
            server.put(format!("{WEBHOOKS}?id={}", hook.2)).cookie(admin).json(&body).await.is(200);
        };
        put(wrong_tls, receiver.url(&wrong_tls.1).replace("http://", "https://")).await;
        let since = server.now();
        let sending = tokio::spawn(server.sender.clone().run(std::future::pending()));
        let before = resident_bytes();
        let events = deliveries() / hooks.len();
        let started = Instant::now();
        tokio::join!(publish(&server, tenancies[0].tenant.id, events), publish(&server, tenancies[1].tenant.id, events));
        until("the endpoint that said it is gone is switched off", WAIT_MAX, async || {
            let record = server.get(format!("{WEBHOOKS}?id={}", gone.2)).cookie(admin).await.ok(200);
            (record["status"] == "auto_disabled").then_some(())
        })
        .await;
        put(gone, receiver.url(&gone.1)).await;
        until("the endpoint without TLS has failed", WAIT_MAX, async || {
            let record = server.get(format!("{WEBHOOKS}?id={}", wrong_tls.2)).cookie(admin).await.ok(200);
            (record["consecutive_failures"].as_i64() > Some(0)).then_some(())
        })
        .await;
        put(wrong_tls, receiver.url(&wrong_tls.1)).await;
        for hook in [gone, wrong_tls] {
            let body = json!({"action": "recover", "webhook_id": hook.2, "since": since.to_string()});
            server.post(DELIVERIES).cookie(admin).json(&body).await.is(202);
        }
        let mut most = 0;
        let unfinished = "SELECT COUNT(*) FROM (SELECT 1 AS one FROM deliveries WHERE status IN ('pending', 'delivering') LIMIT 100000) AS left_over";
        let recovering = "SELECT COUNT(*) FROM webhook_recoveries WHERE finished_at IS NULL";
        until("everything is sent", WAIT_MAX, async || {
            most = most.max(resident_bytes());
            let count: i64 = server.app.store.system(kernel::store::Purpose::Cli).get_one(unfinished, kernel::args![]).await.unwrap();
            let recovering: i64 = server.app.store.system(kernel::store::Purpose::Cli).get_one(recovering, kernel::args![]).await.unwrap();
            let count = count + recovering;
            if count > 100 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            (count == 0).then_some(())
        })
        .await;
        let took = started.elapsed();
        sending.abort();
        let (mut requests, mut delivered) = (0, 0);
        for (number, path, id) in &hooks {
            let tallies = receiver.tallies(path);
            let mut logged = HashSet::new();
            let mut cursor = String::new();
            loop {
                let page = format!("{DELIVERIES}?webhook_id={id}&event_type=custom.load&limit=200{cursor}");
                let page = server.get(page).cookie(&tenancies[*number].admin).await.ok(200);
                for one in page["data"].as_array().unwrap() {
                    let event = one["event_id"].as_str().unwrap();
                    assert_eq!(one["status"], "succeeded", "{one:#}");
                    let tally = &tallies[event];
                    assert!(tally.acknowledged + tally.doubtful > 0, "{event} was not acknowledged on {path}");
                    assert!(logged.insert(event.to_owned()));
                    requests += tally.requests;
                }
                match page["next_cursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
            assert_eq!(logged.len(), events, "{path}");
            delivered += logged.len();
        }
        let growth = most.saturating_sub(before);
        say(&format!(
            "{delivered} deliveries in {requests} requests, none lost, in {took:?}; resident memory grew by {} MiB",
            growth >> 20
        ));
        assert!(growth < GROWTH_MAX, "resident memory grew by {growth} bytes");
    }
}
