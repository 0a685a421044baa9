//! Workflows as tests write them, run them and look at them.

use kernel::base::{DAY_MS, Timestamp};
use kernel::http::RatePolicy;
use kernel::jobs::lanes;
use serde_json::{Map, Value, json};
use tenant_control::features::workflows::WORKFLOW_LANE;
use tenant_control::features::workflows::engine::WorkflowEngine;

use super::{Answer, Server, Setup, Tenancy};

pub const WORKFLOWS: &str = "/api/psa/workflows/trigger";

/// More moments than any test lets pass; a lane that stays due for ever would otherwise never let its test end.
const MOMENTS_MAX: usize = 20_000;

/// A server that may send to this machine, with sessions that outlast the days of a test and budgets that no test meets.
pub async fn open(mut setup: Setup) -> Server {
    setup.settings.outbound.allow = vec!["127.0.0.0/8".parse().unwrap()];
    setup.settings.session_idle_ms = 10_000 * DAY_MS;
    setup.settings.session_absolute_ms = 10_000 * DAY_MS;
    for policy in RatePolicy::ALL {
        setup.settings.rate_table.set(policy, 10_000_000);
    }
    setup.start().await
}

/// One step of a definition, to be said more of.
#[derive(Clone, Debug)]
pub struct Step(Map<String, Value>);

pub fn step(id: &str, uses: &str, with: Value) -> Step {
    let fields = [("id", json!(id)), ("uses", json!(uses)), ("with", with)];
    Step(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

impl Step {
    pub fn needs(self, needs: &[&str]) -> Step {
        self.set("needs", json!(needs))
    }

    /// The step's `if`.
    pub fn when(self, condition: &str) -> Step {
        self.set("if", json!(condition))
    }

    pub fn retry(self, max: i64, backoff_seconds: i64) -> Step {
        self.set("retry", json!({"max": max, "backoff_seconds": backoff_seconds}))
    }

    pub fn timeout(self, seconds: i64) -> Step {
        self.set("timeout_seconds", json!(seconds))
    }

    /// `on_error: continue`.
    pub fn or_continue(self) -> Step {
        self.set("on_error", json!("continue"))
    }

    pub fn set(mut self, name: &str, value: Value) -> Step {
        self.0.insert(name.to_owned(), value);
        self
    }
}

/// A ticket with this subject.
pub fn ticket(id: &str, subject: &str) -> Step {
    step(id, "ticket.create", json!({"subject": subject}))
}

/// A ticket that there can be only once, so that a second attempt of whoever made it would be seen.
pub fn ticket_once(id: &str, external_id: &str) -> Step {
    step(id, "ticket.create", json!({"subject": id, "external_id": external_id}))
}

/// A request that says nothing.
pub fn get(id: &str, url: &str) -> Step {
    step(id, "http.request", json!({"method": "GET", "url": url}))
}

pub fn wait(id: &str, seconds: i64) -> Step {
    step(id, "wait", json!({"seconds": seconds}))
}

pub fn approval(id: &str) -> Step {
    step(id, "approval", json!({"message": format!("May {id} go on?")}))
}

/// A step whose every attempt fails: the ticket is not there. Saving does not look, since what it names is an expression.
pub fn failing(id: &str) -> Step {
    let nobody = "${{ 'tkt_01jd8z6v2mfkpb7h3q9xw5t4ra' }}";
    step(id, "ticket.comment", json!({"ticket_id": nobody, "body": "Hello.", "public": false}))
}

/// A definition that is run by hand.
pub fn manual(steps: impl IntoIterator<Item = Step>) -> Value {
    definition(&json!({"manual": {}}), steps)
}

/// A definition that events of these kinds start.
pub fn on_event(types: &[&str], steps: impl IntoIterator<Item = Step>) -> Value {
    definition(&json!({"event": {"types": types}}), steps)
}

/// The same, for those events that pass a filter.
pub fn on_event_if(types: &[&str], filter: &str, steps: impl IntoIterator<Item = Step>) -> Value {
    definition(&json!({"event": {"types": types, "if": filter}}), steps)
}

pub fn on_schedule(cron: &str, timezone: &str, steps: impl IntoIterator<Item = Step>) -> Value {
    definition(&json!({"schedule": {"cron": cron, "timezone": timezone}}), steps)
}

fn definition(on: &Value, steps: impl IntoIterator<Item = Step>) -> Value {
    let steps: Vec<Value> = steps.into_iter().map(|step| Value::Object(step.0)).collect();
    json!({"name": "Workflow", "on": on, "steps": steps})
}

pub fn id_of(record: &Value) -> &str {
    record["id"].as_str().expect("an id")
}

/// Where a run is.
pub fn one_run(run: &Value) -> String {
    format!("{WORKFLOWS}?run_id={}", id_of(run))
}

/// One step of a run.
#[track_caller]
pub fn step_of<'a>(run: &'a Value, id: &str) -> &'a Value {
    let steps = run["steps"].as_array().unwrap_or_else(|| panic!("no steps in {run}"));
    steps.iter().find(|step| step["id"] == id).unwrap_or_else(|| panic!("no step {id} in {run}"))
}

/// What became of a run and of each of its steps: `failed: a succeeded, b failed`.
#[track_caller]
pub fn summary(run: &Value) -> String {
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let steps = run["steps"].as_array().unwrap_or_else(|| panic!("no steps in {run}"));
    let steps: Vec<String> =
        steps.iter().map(|step| format!("{} {}", word(&step["id"]), word(&step["status"]))).collect();
    format!("{}: {}", word(&run["status"]), steps.join(", "))
}

#[track_caller]
pub fn assert_ended(run: &Value, expected: &str) {
    assert_eq!(summary(run), expected, "{run:#}");
}

/// The codes of a step's attempts, with nothing for one that worked.
pub fn attempt_codes(step: &Value) -> Vec<String> {
    let attempts = step["attempts"].as_array().expect("attempts");
    attempts.iter().map(|attempt| attempt["error"]["code"].as_str().unwrap_or_default().to_owned()).collect()
}

pub fn time(value: &Value) -> Timestamp {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no time"));
    Timestamp::parse(text).unwrap_or_else(|| panic!("{text} is no time"))
}

impl Server {
    /// What works on this node's workflows.
    pub fn engine(&self) -> WorkflowEngine {
        WorkflowEngine::new(self.app.clone(), self.workflows.clone())
    }

    /// Does everything of workflows that is due at this moment.
    pub async fn work(&self) {
        self.engine().run_due().await.expect("the engine works");
    }

    /// Lets time pass, and does what comes due on the way, when it does.
    pub async fn work_for(&self, ms: i64) {
        let end = self.now().plus_ms(ms);
        self.work().await;
        for _ in 0..MOMENTS_MAX {
            let due = lanes::find_next_due(&self.app.store, WORKFLOW_LANE).await.expect("the lanes");
            let Some(due) = due.filter(|due| *due <= end) else {
                self.advance_to(end);
                return self.work().await;
            };
            self.advance_to(due);
            self.work().await;
        }
        panic!("something of a workflow is due for ever");
    }

    pub fn advance_to(&self, at: Timestamp) {
        self.advance((at.as_millis() - self.now().as_millis()).max(0));
    }

    /// A new workflow.
    pub async fn workflow(&self, tenancy: &Tenancy, definition: &Value) -> Value {
        let answer = self.create_workflow(tenancy, definition).await;
        assert_eq!(answer.status, 201, "{}\n{definition:#}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    pub async fn create_workflow(&self, tenancy: &Tenancy, definition: &Value) -> Answer {
        let mut body = definition.clone();
        body["action"] = json!("create");
        self.post(WORKFLOWS).cookie(&tenancy.admin).json(&body).await
    }

    pub async fn change_workflow(&self, tenancy: &Tenancy, workflow: &Value, changes: &Value) -> Value {
        let target = format!("{WORKFLOWS}?id={}", id_of(workflow));
        self.patch(target).cookie(&tenancy.admin).json(changes).await.ok(200)
    }

    /// The workflow as it is now.
    pub async fn read_workflow(&self, tenancy: &Tenancy, workflow: &Value) -> Value {
        self.get(format!("{WORKFLOWS}?id={}", id_of(workflow))).cookie(&tenancy.admin).await.ok(200)
    }

    pub async fn delete_workflow(&self, tenancy: &Tenancy, workflow: &Value) {
        self.delete(format!("{WORKFLOWS}?id={}", id_of(workflow))).cookie(&tenancy.admin).await.is(204);
    }

    /// Asks for a run.
    pub async fn post_run(&self, tenancy: &Tenancy, workflow: &Value, more: &Value) -> Answer {
        let mut body = json!({"action": "run", "workflow_id": workflow["id"]});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
        self.post(WORKFLOWS).cookie(&tenancy.admin).json(&body).await
    }

    /// A run that has begun and not gone on yet.
    pub async fn start_run(&self, tenancy: &Tenancy, workflow: &Value, input: &Value) -> Value {
        self.post_run(tenancy, workflow, &json!({"input": input})).await.ok(202)
    }

    /// A run of a new workflow, as far as it comes at this moment.
    pub async fn run(&self, tenancy: &Tenancy, definition: &Value) -> Value {
        self.run_with(tenancy, definition, &json!({})).await
    }

    pub async fn run_with(&self, tenancy: &Tenancy, definition: &Value, input: &Value) -> Value {
        let workflow = self.workflow(tenancy, definition).await;
        let run = self.start_run(tenancy, &workflow, input).await;
        self.work().await;
        self.read_run(tenancy, &run).await
    }

    /// A run with its steps.
    pub async fn read_run(&self, tenancy: &Tenancy, run: &Value) -> Value {
        self.get(one_run(run)).cookie(&tenancy.admin).await.ok(200)
    }

    /// The runs that a query finds, in its order, of one page.
    pub async fn list_runs(&self, tenancy: &Tenancy, query: &str) -> Vec<Value> {
        let answer = self.get(format!("{WORKFLOWS}?view=runs{query}")).cookie(&tenancy.admin).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.json());
        answer.json()["data"].as_array().expect("data").clone()
    }

    /// All runs of a workflow, oldest first.
    pub async fn runs_of(&self, tenancy: &Tenancy, workflow: &Value) -> Vec<Value> {
        let (mut all, mut more) = (Vec::new(), String::new());
        loop {
            let target = format!("{WORKFLOWS}?view=runs&workflow_id={}&limit=200{more}", id_of(workflow));
            let page = self.get(target).cookie(&tenancy.admin).await.ok(200);
            all.extend(page["data"].as_array().expect("data").iter().cloned());
            match page["next_cursor"].as_str() {
                Some(cursor) => more = format!("&cursor={cursor}"),
                None => break,
            }
        }
        all.reverse();
        all
    }

    /// Tells a run what to do: `cancel`, `retry`, `approve` or `reject`.
    pub async fn tell_run(&self, tenancy: &Tenancy, run: &Value, action: &str) -> Answer {
        self.tell_step(tenancy, run, &json!({"action": action})).await
    }

    /// The same, with more said, as which step is meant.
    pub async fn tell_step(&self, tenancy: &Tenancy, run: &Value, body: &Value) -> Answer {
        self.patch(one_run(run)).cookie(&tenancy.admin).json(body).await
    }
}
