//! A worker that dies or fails right before or after it asks the cloud for a machine.

use std::sync::{Arc, Mutex};

use cloud_fleet::CLOUD_LANE;
use kernel::base::{FaultPoints, InjectedFault};
use kernel::jobs::lanes::{self, LEASE_MS};
use tokio::sync::Notify;

use super::*;

const BEFORE: &str = "cloud.submit.before";
const AFTER: &str = "cloud.submit.after";

/// Something that happens at one place, the next time that a worker comes there.
#[derive(Clone, Default)]
struct Trap(Arc<TrapState>);

#[derive(Default)]
struct TrapState {
    planned: Mutex<Option<(&'static str, InjectedFault)>>,
    died: Notify,
}

impl Trap {
    fn faults(&self) -> FaultPoints {
        let trap = self.clone();
        FaultPoints::new(move |place| trap.spring(place))
    }

    fn set(&self, place: &'static str, fault: InjectedFault) {
        *self.0.planned.lock().unwrap() = Some((place, fault));
    }

    fn spring(&self, place: &'static str) -> InjectedFault {
        let mut planned = self.0.planned.lock().unwrap();
        let Some((_, fault)) = planned.take_if(|(at, _)| *at == place) else { return InjectedFault::None };
        if fault == InjectedFault::Die {
            self.0.died.notify_one();
        }
        fault
    }

    fn is_sprung(&self) -> bool {
        self.0.planned.lock().unwrap().is_none()
    }

    /// Works as a process does, until it is done or dies; then another has to wait until the lease has ended.
    async fn work(&self, server: &Server) {
        let worker = server.cloud_worker();
        let mut working = tokio::spawn(async move { worker.run_due().await });
        tokio::select! {
            worked = &mut working => drop(worked.expect("no panic")),
            () = self.0.died.notified() => {
                working.abort();
                drop(working.await);
                server.advance(LEASE_MS);
            }
        }
        assert!(self.is_sprung(), "it never came there");
    }
}

/// A server in which something can happen, and what makes it happen.
async fn trapped(setup: crate::support::Setup) -> (Server, crate::support::clouds::Clouds, Trap) {
    let trap = Trap::default();
    let setup = setup.with_faults(trap.faults());
    let (server, clouds) = open_with(setup, |settings| settings.sync_every_ms = 600 * MINUTE_MS).await;
    (server, clouds, trap)
}

const FAULTS: [InjectedFault; 2] = [InjectedFault::Die, InjectedFault::Error];

over_http! {
    async fn a_worker_that_ends_after_it_asked_makes_no_second_machine(setup: Setup) {
        let (server, clouds, trap) = trapped(setup).await;
        for stub in clouds.both() {
            for (nth, fault) in FAULTS.into_iter().enumerate() {
                let acme = server.tenant(&format!("{}-{nth}", stub.kind())).await;
                let provider = server.connect(&acme, stub, &acme.tenant.slug).await;
                trap.set(AFTER, fault);
                let vm = server.order(&acme, stub, &provider).await;
                trap.work(&server).await;
                assert_eq!(operation_status(&server.read_vm(&acme, &vm).await), "submitting", "the cloud has answered nobody");
                server.cloud_work_for(MINUTE_MS).await;
                assert_made_once(&server, &acme, stub, &vm, &format!("{fault:?} after")).await;
                assert_eq!(stub.count(Asked::Create), nth + 1);
                stub.machines().iter().for_each(|machine| stub.remove(machine.id));
            }
        }
    }

    async fn a_worker_that_ends_before_it_asks_is_followed_where_names_are_unique(setup: Setup) {
        let (server, clouds, trap) = trapped(setup).await;
        let stub = &clouds.hetzner;
        for (nth, fault) in FAULTS.into_iter().enumerate() {
            let acme = server.tenant(&format!("acme-{nth}")).await;
            let provider = server.connect(&acme, stub, &acme.tenant.slug).await;
            trap.set(BEFORE, fault);
            let vm = server.order(&acme, stub, &provider).await;
            trap.work(&server).await;
            assert_eq!(stub.count(Asked::Create), nth, "the cloud was not asked");
            server.cloud_work_for(MINUTE_MS).await;
            assert_made_once(&server, &acme, stub, &vm, &format!("{fault:?} before")).await;
            stub.machines().iter().for_each(|machine| stub.remove(machine.id));
        }
    }

    async fn a_worker_that_ends_before_it_asks_leaves_the_decision_to_people_elsewhere(setup: Setup) {
        let (server, clouds, trap) = trapped(setup).await;
        let stub = &clouds.digitalocean;
        for (nth, fault) in FAULTS.into_iter().enumerate() {
            let acme = server.tenant(&format!("acme-{nth}")).await;
            let provider = server.connect(&acme, stub, &acme.tenant.slug).await;
            trap.set(BEFORE, fault);
            let vm = server.order(&acme, stub, &provider).await;
            trap.work(&server).await;
            server.cloud_work_for(12 * MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), stub.count(Asked::Create)), ("needs_attention", nth), "{now:#}");
            server.post_order(&acme, &settlement(&vm, "retry")).await.is(202);
            server.cloud_work_for(MINUTE_MS).await;
            let now = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&now), stub.count(Asked::Create)), ("succeeded", nth + 1), "{now:#}");
        }
        assert_eq!(stub.machines().len(), 2);
    }

    async fn machines_leave_the_list_when_the_request_that_removes_them_is_interrupted(setup: Setup) {
        let (server, clouds, trap) = trapped(setup).await;
        let (stub, acme) = (&clouds.hetzner, server.tenant("acme").await);
        for number in 0..250 {
            stub.add("acme", &format!("m-{number}"));
        }
        let provider = server.connect(&acme, stub, "acme").await;
        trap.set("cloud.forget", InjectedFault::Error);
        server.delete(one_provider(&provider)).cookie(&acme.admin).await.is(204);
        assert!(trap.is_sprung());
        assert_eq!(server.list_vms(&acme, "limit=200").await.len(), 250, "none was forgotten yet");
        server.cloud_work().await;
        assert_eq!(server.list_vms(&acme, "limit=200").await, Vec::<Value>::new());
        assert_eq!(lanes::find_next_due(&server.app.store, CLOUD_LANE).await.unwrap(), None, "its lanes have ended");
    }

    async fn a_region_that_is_listed_again_keeps_the_machines_that_were_not_forgotten_yet(setup: Setup) {
        let (server, clouds, trap) = trapped(setup).await;
        let (stub, acme) = (&clouds.hetzner, server.tenant("acme").await);
        let moved = stub.add("acme", "in-nbg1");
        stub.change(moved, |machine| "nbg1".clone_into(&mut machine.region));
        let both = with(&provider_body(stub, &stub.token("acme", Rights::All)), &json!({"regions": ["fsn1", "nbg1"]}));
        let provider = server.connect_by(&acme, &both).await;
        let found = server.list_vms(&acme, "").await;
        trap.set("cloud.forget", InjectedFault::Error);
        let one = with(&both, &json!({"regions": ["fsn1"]}));
        server.put(one_provider(&provider)).cookie(&acme.admin).json(&one).await.is(200);
        server.put(one_provider(&provider)).cookie(&acme.admin).json(&both).await.is(200);
        server.cloud_work().await;
        assert_eq!(server.list_vms(&acme, "").await, found, "it never left");
    }

    /// Death upon death, and answers that are lost between them.
    async fn however_often_it_ends_one_order_makes_one_machine(setup: Setup) {
        let (server, clouds, trap) = trapped(setup).await;
        let stub = &clouds.hetzner;
        let acme = server.tenant("acme").await;
        let provider = server.connect(&acme, stub, "acme").await;
        let vm = server.order(&acme, stub, &provider).await;
        stub.on(Asked::Create, [Fault::LostRequest, Fault::LostRequest, Fault::LostAnswer]);
        for (place, fault) in [(BEFORE, InjectedFault::Die), (AFTER, InjectedFault::Die), (BEFORE, InjectedFault::Error), (AFTER, InjectedFault::Die)] {
            trap.set(place, fault);
            trap.work(&server).await;
            server.advance(LEASE_MS);
        }
        server.cloud_work_for(5 * MINUTE_MS).await;
        assert_made_once(&server, &acme, stub, &vm, "after four ends").await;
    }
}
