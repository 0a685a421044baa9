//! Names of endpoints are looked up a few at a time; who has to wait for that loses nothing by it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use kernel::base::SECOND_MS;
use kernel::outbound::NameSource;
use serde_json::{Value, json};

use super::drive::{hook, log, look, patient, publish_many, publish_one, run};
use crate::support::over_http;
use crate::support::process::until;
use crate::support::receiver::Receiver;
use crate::support::{Setup, Tenancy};
use crate::tickets::TICKETS;

/// Of one tenant at once.
const AT_ONCE: usize = 8;
/// What a name server takes for an answer.
const DNS: Duration = Duration::from_millis(30);
/// Sooner than a turn that is waited for in vain is given up.
const PROMPT: Duration = Duration::from_secs(9);
const PATIENCE: Duration = Duration::from_secs(30);

/// A name server that counts what it is asked, and can be silent.
#[derive(Clone, Default)]
struct Server(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    asked: BTreeMap<String, usize>,
    under_way: usize,
    under_way_max: usize,
    takes: Duration,
    speaks: bool,
}

impl Server {
    /// Every name is this machine; those that begin with `silent` are answered when the test says so.
    fn answer(&self, name: &str) -> Vec<IpAddr> {
        self.change(|state| {
            *state.asked.entry(name.to_owned()).or_default() += 1;
            state.under_way += 1;
            state.under_way_max = state.under_way_max.max(state.under_way);
        });
        let takes = self.change(|state| state.takes);
        if name.starts_with("silent") {
            let (state, told) = &*self.0;
            drop(told.wait_while(state.lock().unwrap(), |state| !state.speaks).unwrap());
        } else {
            std::thread::sleep(takes);
        }
        self.change(|state| state.under_way -= 1);
        vec![IpAddr::from([127, 0, 0, 1])]
    }

    fn speak(&self) {
        self.change(|state| state.speaks = true);
        self.0.1.notify_all();
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.0.lock().unwrap())
    }

    fn serve(&self, setup: &mut Setup) {
        let server = self.clone();
        setup.settings.outbound.names = NameSource::Table(Arc::new(move |name| server.answer(name)));
    }

    /// Endpoints are saved without waiting; what counts comes after.
    fn begin(&self) {
        self.change(|state| {
            state.takes = DNS;
            state.asked.clear();
            state.under_way_max = 0;
        });
    }
}

fn at(receiver: &Receiver, name: &str, path: &str) -> String {
    format!("http://{name}.example:{}{path}", receiver.address().port())
}

fn attempts(delivery: &Value) -> usize {
    delivery["attempts"].as_array().unwrap().len()
}

over_http! {
    async fn fifty_healthy_endpoints_with_names_of_their_own_are_sent_to_at_once(setup: Setup) {
        let mut setup = setup;
        let names = Server::default();
        names.serve(&mut setup);
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let mut hooks = Vec::new();
        for number in 0..50 {
            hooks.push(hook(&server, &acme, &at(&receiver, &format!("h{number}"), "/hook"), &json!({})).await);
        }
        names.begin();
        let start = Instant::now();
        publish_one(&server, &acme, "rec_1").await;
        run(&server).await;
        assert_eq!(receiver.count(), 50);
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
        for hook in &hooks {
            let delivery = log(&server, &acme, hook).await.remove(0);
            assert_eq!((&delivery["status"], attempts(&delivery)), (&json!("succeeded"), 1), "{delivery}");
        }
        names.change(|state| {
            assert_eq!(state.asked.len(), 50);
            assert!((2..=AT_ONCE).contains(&state.under_way_max), "{} at once", state.under_way_max);
        });
    }

    async fn a_name_that_many_wait_for_is_asked_for_once(setup: Setup) {
        let mut setup = setup;
        let names = Server::default();
        names.serve(&mut setup);
        let server = patient(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        for number in 0..30 {
            hook(&server, &acme, &at(&receiver, "shared", &format!("/{number}")), &json!({})).await;
        }
        hook(&server, &globex, &at(&receiver, "shared", "/globex"), &json!({})).await;
        names.begin();
        // So long that on a busy machine, too, most come while it is asked.
        names.change(|state| state.takes = 10 * DNS);
        publish_many(&server, &acme, 2).await;
        publish_one(&server, &globex, "rec_1").await;
        run(&server).await;
        assert_eq!(receiver.count(), 61);
        let asked = names.change(|state| state.asked["shared.example"]);
        assert!(asked <= 10, "{asked} lookups of one name for 61 requests");
    }

    async fn who_is_held_back_by_silent_names_loses_no_attempt_and_others_notice_nothing(setup: Setup) {
        let mut setup = setup;
        setup.sending.timeout = Duration::from_millis(900);
        let silence = Silence::begin(setup).await;
        let Silence { names, server, acme, globex, receiver, healthy } = &silence;
        publish_one(server, globex, "rec_1").await;
        receiver.wait_for_on("/other", 1).await;
        // Longer than an attempt may take: the wait for a turn is not counted in.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(receiver.count_on("/healthy"), 0, "all turns of its tenant are taken");
        names.speak();
        receiver.wait_for_acknowledged("/healthy", 1).await;
        let noted = async || log(server, acme, healthy).await.remove(0);
        while noted().await["status"] != "succeeded" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(attempts(&noted().await), 1, "being held back costs no attempt");
        assert_eq!(look(server, acme, healthy).await["consecutive_failures"], 0);
    }

    async fn who_is_held_back_for_too_long_is_tried_again_without_having_been_tried(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.lookup_wait_max = Duration::from_millis(200);
        let silence = Silence::begin(setup).await;
        let Silence { names, server, acme, receiver, healthy, .. } = &silence;
        let noted = async || log(server, acme, healthy).await.remove(0);
        while noted().await["waiting_for"] != "retry" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(attempts(&noted().await), 0);
        assert_eq!(look(server, acme, healthy).await["consecutive_failures"], 0);
        names.speak();
        // On a busy machine it can be held back for too long once more.
        until("it is sent", PATIENCE, async || {
            if noted().await["waiting_for"] == "retry" {
                server.advance(5 * SECOND_MS);
            }
            receiver.acknowledged("/healthy").values().next().copied()
        })
        .await;
    }
}

/// A tenant whose turns are all taken by names that nobody answers for, with a delivery to a healthy endpoint.
struct Silence {
    names: Server,
    server: crate::support::Server,
    acme: Tenancy,
    globex: Tenancy,
    receiver: Receiver,
    healthy: Value,
}

impl Silence {
    async fn begin(mut setup: Setup) -> Silence {
        let names = Server::default();
        names.serve(&mut setup);
        names.change(|state| state.speaks = true);
        let server = patient(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let receiver = Receiver::start().await;
        for number in 0..AT_ONCE {
            hook(&server, &acme, &at(&receiver, &format!("silent{number}"), "/silent"), &json!({})).await;
        }
        let tickets = json!({"events": ["ticket.created"]});
        let healthy = hook(&server, &acme, &at(&receiver, "healthy", "/healthy"), &tickets).await;
        hook(&server, &globex, &at(&receiver, "other", "/other"), &json!({})).await;
        names.begin();
        names.change(|state| state.speaks = false);
        publish_one(&server, &acme, "rec_1").await;
        tokio::spawn(server.sender.clone().run(std::future::pending()));
        while names.change(|state| state.asked.len()) < AT_ONCE {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": "Printer"})).await.is(201);
        Silence { names, server, acme, globex, receiver, healthy }
    }
}

/// A silent server speaks when the test ends, however it ends: a thread that waits would keep the process.
impl Drop for Silence {
    fn drop(&mut self) {
        self.names.speak();
    }
}
