//! A batch of graphs in the service: all at once, with what somebody does to them, and then a look at what is left.

use std::collections::{BTreeMap, BTreeSet};

use kernel::base::{DAY_MS, SECOND_MS};
use kernel::jobs::lanes;
use serde_json::{Value, json};
use tenant_control::features::workflows::WORKFLOW_LANE;

use super::graph::{Does, Graph, Then, id, path, subject};
use super::reference::{End, Outcome, execute};
use crate::support::receiver::{Gate, Receiver};
use crate::support::workflows::{id_of, step_of, summary};
use crate::support::{Server, Tenancy};
use crate::tickets::{self, TICKETS};

/// More moments than the waits and retries of a batch have.
const MOMENTS_MAX: usize = 2_000;

pub struct Drive<'a> {
    server: &'a Server,
    receiver: &'a Receiver,
    tenancy: Tenancy,
    played: Vec<Played>,
}

struct Played {
    graph: Graph,
    name: String,
    run: Value,
    gate: Option<Gate>,
    cancelled: bool,
    retried: usize,
}

impl<'a> Drive<'a> {
    pub async fn begin(server: &'a Server, receiver: &'a Receiver, slug: &str, graphs: Vec<Graph>) -> Drive<'a> {
        let tenancy = server.tenant(slug).await;
        let mut played = Vec::new();
        for (number, graph) in graphs.into_iter().enumerate() {
            let name = format!("{slug}-{number}");
            let gate = graph.prepare(receiver, &name);
            let workflow = server.workflow(&tenancy, &graph.definition(receiver, &name)).await;
            let run = server.start_run(&tenancy, &workflow, &json!({})).await;
            played.push(Played { graph, name, run, gate, cancelled: false, retried: 0 });
        }
        Drive { server, receiver, tenancy, played }
    }

    /// Works, cancels what is held, tells what has failed to try again, and lets time pass, until nothing is left to do.
    pub async fn play_out(&mut self) {
        for _ in 0..MOMENTS_MAX {
            self.work().await;
            if self.retry().await {
                continue;
            }
            let Some(due) = lanes::find_next_due(&self.server.app.store, WORKFLOW_LANE).await.expect("the lanes")
            else {
                return;
            };
            // Runs have their own end, weeks from now; what waits that long is not waiting for anything here.
            if due.as_millis() - self.server.now().as_millis() > DAY_MS {
                return;
            }
            // By whole seconds: what comes due in the same one is done at once, which takes fewer moments.
            self.server.advance_to(due.max(self.server.now().plus_ms(SECOND_MS)));
        }
        panic!("something of a workflow is due for ever");
    }

    /// Does what is due now; a request that is held until its run is cancelled is let go then.
    async fn work(&mut self) {
        let engine = self.server.engine();
        let mut working = tokio::spawn(async move { engine.run_due().await });
        loop {
            let open: Vec<String> = self.held().map(|(path, _)| path).collect();
            let reached = async {
                let waits = open.iter().map(|path| Box::pin(self.receiver.wait_for_on(path, 1)));
                futures_util::future::select_all(waits).await;
            };
            tokio::select! {
                worked = &mut working => return worked.expect("a result").expect("the engine works"),
                () = reached, if !open.is_empty() => {}
            }
            self.cancel_what_is_held().await;
        }
    }

    fn held(&self) -> impl Iterator<Item = (String, usize)> + '_ {
        self.played.iter().enumerate().filter(|(_, played)| !played.cancelled).filter_map(|(place, played)| {
            let Then::CancelAt(at) = played.graph.then else { return None };
            Some((path(&played.name, at), place))
        })
    }

    async fn cancel_what_is_held(&mut self) {
        let held: Vec<(String, usize)> = self.held().collect();
        for (path, place) in held {
            if self.receiver.count_on(&path) > 0 {
                let played = &mut self.played[place];
                self.server.tell_run(&self.tenancy, &played.run, "cancel").await.is(200);
                played.cancelled = true;
                played.gate.as_ref().expect("a gate").open();
            }
        }
    }

    async fn retry(&mut self) -> bool {
        let failed = self.server.list_runs(&self.tenancy, "&status=failed&limit=200").await;
        let mut any = false;
        for played in &mut self.played {
            let Then::Retry(times) = played.graph.then else { continue };
            if played.retried < times && failed.iter().any(|run| run["id"] == played.run["id"]) {
                self.server.tell_run(&self.tenancy, &played.run, "retry").await.is(200);
                played.retried += 1;
                any = true;
            }
        }
        any
    }

    /// What differs from what must be, or how often what came.
    pub async fn compare(&self) -> Result<BTreeMap<String, usize>, String> {
        let mut tally = BTreeMap::new();
        let mut made: BTreeMap<String, usize> = BTreeMap::new();
        let mut more = String::new();
        loop {
            let page = self.server.get(format!("{TICKETS}?limit=200{more}")).cookie(&self.tenancy.admin).await.ok(200);
            for ticket in page["data"].as_array().expect("tickets") {
                *made.entry(ticket["subject"].as_str().expect("a subject").to_owned()).or_default() += 1;
            }
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            more = format!("&cursor={cursor}");
        }
        for played in &self.played {
            let run = self.server.read_run(&self.tenancy, &played.run).await;
            let differs = |what: String| format!("{what}\n{}\n{:#?}", summary(&run), played.graph);
            played.compare(&run, &made, self.receiver).map_err(differs)?;
            played.count(&run, &mut tally);
        }
        let numbers = tickets::numbers(self.server, &self.tenancy, "limit=1").await;
        let all: usize = made.values().sum();
        if numbers.first().copied().unwrap_or_default() != i64::try_from(all).unwrap() {
            return Err(format!("{all} tickets, and the last has the number {numbers:?}"));
        }
        Ok(tally)
    }
}

impl Played {
    fn compare(&self, run: &Value, made: &BTreeMap<String, usize>, receiver: &Receiver) -> Result<(), String> {
        let (status, outcomes) = execute(&self.graph, self.retried);
        let status = if self.cancelled { "cancelled" } else { status };
        expect("the run", &run["status"], status)?;
        for (at, outcome) in outcomes.iter().enumerate() {
            self.compare_step(at, *outcome, run, made, receiver).map_err(|what| format!("step {at}: {what}"))?;
        }
        Ok(())
    }

    fn compare_step(
        &self,
        at: usize,
        outcome: Outcome,
        run: &Value,
        made: &BTreeMap<String, usize>,
        receiver: &Receiver,
    ) -> Result<(), String> {
        let (node, step) = (&self.graph.nodes[at], step_of(run, &id(at)));
        let end = match outcome.end {
            End::Skipped => "skipped",
            End::Succeeded => "succeeded",
            End::Failed => "failed",
        };
        // Where somebody cancelled, each step is as it would have been or was cut short.
        let cut_short = self.cancelled && step["status"] == "cancelled";
        if !cut_short {
            expect("its status", &step["status"], end)?;
        }
        let succeeded = step["status"] == "succeeded";
        let tickets = made.get(&subject(&self.name, at)).copied().unwrap_or_default();
        let expected = usize::from(succeeded && node.does == Does::Ticket);
        if tickets != expected {
            return Err(format!("{tickets} tickets where there should be {expected}"));
        }
        let attempts = step["attempts"].as_array().expect("attempts").len();
        let acts = matches!(node.does, Does::Ticket | Does::Refused | Does::Call(_)) && outcome.attempts > 0;
        if acts && !cut_short && attempts != outcome.attempts {
            return Err(format!("{attempts} attempts where there should be {}", outcome.attempts));
        }
        if matches!(node.does, Does::Call(_)) {
            let requests = receiver.received_on(&path(&self.name, at));
            let keys: BTreeSet<&String> = requests.iter().map(|request| &request.headers["idempotency-key"]).collect();
            let right = if cut_short { requests.len() <= node.retries + 1 } else { requests.len() == outcome.attempts };
            if !right || keys.len() > 1 {
                return Err(format!("{} requests with {} keys, and {outcome:?}", requests.len(), keys.len()));
            }
        }
        Ok(())
    }

    fn count(&self, run: &Value, tally: &mut BTreeMap<String, usize>) {
        let mut add = |what: String| *tally.entry(what).or_default() += 1;
        add("graphs".to_owned());
        add(format!("run {}", run["status"].as_str().expect("a status")));
        for step in run["steps"].as_array().expect("steps") {
            add(format!("step {}", step["status"].as_str().expect("a status")));
            if step["attempts"].as_array().expect("attempts").len() > 1 {
                add("more than one attempt".to_owned());
            }
        }
        if self.retried > 0 {
            add("retried by hand".to_owned());
            if run["status"] == "succeeded" {
                add("retried by hand and done".to_owned());
            }
        }
        assert_eq!(id_of(run), id_of(&self.run));
    }
}

fn expect(what: &str, found: &Value, expected: &str) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} is {found} where it should be {expected:?}")) }
}
