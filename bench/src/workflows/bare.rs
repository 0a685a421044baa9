//! What steps are measured against: the product's writes of them, a transaction of the store for each step, and nothing
//! else. Nothing is looked up, parsed, evaluated or planned; texts are those of a run that the server has made.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use kernel::args;
use kernel::audit;
use kernel::base::{AuditId, Result, Timestamp};
use kernel::jobs::lanes::{EXTEND_LEASE, LEASE_MS};
use kernel::jobs::steps::{self, StepRecord};
use kernel::store::{Db, Tx, Value};
use rusqlite::Connection;
use tenant_control::features::tickets::CommentId;
use tenant_control::features::tickets::store::{INSERT_COMMENT, UPDATE};
use tenant_control::features::tickets::stored::CommentColumns;
use tenant_control::features::workflows::runs::{StoredRun, store as runs};
use tenant_control::features::workflows::{LANE_KEY, Status, WORKFLOW_LANE};

use crate::harness::Outcome;
use crate::tickets::bare::{By, Made, create, tell};
use crate::tickets::new::New;

/// In the order of their needs.
pub const STEPS: [&str; 3] = ["make", "note", "tell"];
const CUSTOM: &str = "custom.host.reported";

/// What one run wrote, and the token of the lane on which it was done.
pub struct Texts {
    token: i64,
    /// Bodies of events by their kind.
    events: HashMap<String, String>,
    /// Of each step its input, output and attempts.
    steps: HashMap<String, [String; 3]>,
    comment: String,
    new: New,
}

impl Texts {
    /// From a file in which one run has been made.
    pub fn read(database: &Path) -> Outcome<Self> {
        let file = Connection::open(database)?;
        let token = file.query_row("SELECT token FROM lanes WHERE kind = 'workflow'", [], |row| row.get(0))?;
        let mut events = file.prepare("SELECT type, body FROM events")?;
        let events = events.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        let mut steps = file.prepare("SELECT name, input, output, attempts FROM steps")?;
        let steps = steps.query_map([], |row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?])))?;
        let steps = steps.collect::<Result<_, _>>()?;
        let comment = file.query_row("SELECT body FROM ticket_comments", [], |row| row.get(0))?;
        let subject: String = file.query_row("SELECT subject FROM tickets", [], |row| row.get(0))?;
        let new = New { subject, priority: 2, tag: "monitoring".to_owned(), organization: None };
        Ok(Texts { token, events, steps, comment, new })
    }

    fn event(&self, kind: &str) -> &str {
        self.events.get(kind).map_or("", String::as_str)
    }
}

/// All of a run that waits for its turn, one transaction after the other.
pub async fn run(db: &Db, texts: &Arc<Texts>, queued: &StoredRun) -> Result<()> {
    let (mut run, known) = (queued.clone(), texts.clone());
    let (made, run) = db.write(async move |tx| Ok((make(tx, &known, &mut run).await?, run))).await?;
    let known = texts.clone();
    let run = db.write(async move |tx| note(tx, &known, &run, made).await.map(|()| run)).await?;
    let (mut run, known) = (run, texts.clone());
    db.write(async move |tx| finish(tx, &known, &mut run).await).await
}

/// Begins the run, which the server does for many at once, and does its first step.
async fn make(tx: &mut Tx, texts: &Texts, run: &mut StoredRun) -> Result<Made> {
    let at = hold(tx, texts).await?;
    run.transition_status(Status::Running, at);
    runs::update_run(tx, run).await?;
    let (id, workflow) = (run.run.id.to_string(), run.run.workflow_id.to_string());
    tell(tx, "workflow.run.started", &id, texts.event("workflow.run.started"), run.run.depth).await?;
    begin(tx, &id, STEPS[0], at).await?;
    let made = create(tx, &texts.new, texts.event("ticket.created"), &by(run, &id, &workflow)).await?;
    end(tx, texts, &id, STEPS[0], at).await?;
    begin(tx, &id, STEPS[1], at).await?;
    Ok(made)
}

async fn note(tx: &mut Tx, texts: &Texts, run: &StoredRun, made: Made) -> Result<()> {
    let at = hold(tx, texts).await?;
    let (id, workflow) = (run.run.id.to_string(), run.run.workflow_id.to_string());
    let (number, sequence) = (made.number, tx.tick().await?.sequence);
    let row = CommentColumns {
        number: number.into(),
        ordinal: 1_i64.into(),
        id: CommentId::new_numbered(tx.env(), at, 1).into(),
        public: false.into(),
        author_type: "workflow".into(),
        author_id: workflow.as_str().into(),
        author_name: run.run.workflow_name.as_str().into(),
        created_at: at.into(),
        size_bytes: Value::Int(texts.comment.len() as i64),
        body: texts.comment.as_str().into(),
    };
    tx.defer_exec(INSERT_COMMENT, row.into_vec()).await?;
    let (ticket, by) = (made.id.clone(), by(run, &id, &workflow));
    let mut row = made.row(&texts.new, &by);
    (row.comment_count, row.version) = (1_i64.into(), 2_i64.into());
    (row.updated_at, row.sequence) = (at.into(), sequence.into());
    tx.defer_exec(UPDATE, row.into_vec()).await?;
    let entry = AuditId::new(tx.env());
    tx.defer_exec(audit::INSERT, by.entry(entry, at, "ticket.comment", &ticket)).await?;
    tell(tx, "ticket.commented", &ticket, texts.event("ticket.commented"), run.run.depth).await?;
    end(tx, texts, &id, STEPS[1], at).await?;
    begin(tx, &id, STEPS[2], at).await
}

async fn finish(tx: &mut Tx, texts: &Texts, run: &mut StoredRun) -> Result<()> {
    let at = hold(tx, texts).await?;
    let id = run.run.id.to_string();
    tell(tx, CUSTOM, &id, texts.event(CUSTOM), run.run.depth).await?;
    end(tx, texts, &id, STEPS[2], at).await?;
    run.transition_status(Status::Succeeded, at);
    runs::update_run(tx, run).await?;
    tell(tx, "workflow.run.succeeded", &id, texts.event("workflow.run.succeeded"), run.run.depth).await
}

/// Moves the clock and shows that the lane is held.
async fn hold(tx: &mut Tx, texts: &Texts) -> Result<Timestamp> {
    let (at, now) = (tx.tick().await?.at, tx.env().now());
    tx.exec(EXTEND_LEASE, args![WORKFLOW_LANE, LANE_KEY, texts.token, now, LEASE_MS]).await?;
    Ok(at)
}

async fn begin(tx: &mut Tx, run: &str, name: &str, at: Timestamp) -> Result<()> {
    steps::insert_step(tx, WORKFLOW_LANE, LANE_KEY, &StepRecord::new_ready(run, name, at)).await
}

async fn end(tx: &mut Tx, texts: &Texts, run: &str, name: &str, at: Timestamp) -> Result<()> {
    let mut step = StepRecord::new_ready(run, name, at);
    if let Some([input, output, attempts]) = texts.steps.get(name) {
        (step.input, step.output, step.attempts) = (Some(input.clone()), Some(output.clone()), attempts.clone());
    }
    (step.attempt, step.started_at) = (1, Some(at));
    step.end_with(Status::Succeeded, at);
    steps::update_step(tx, WORKFLOW_LANE, LANE_KEY, &step).await
}

fn by<'a>(run: &'a StoredRun, id: &'a str, workflow: &'a str) -> By<'a> {
    By {
        kind: "workflow",
        id: workflow,
        name: &run.run.workflow_name,
        address: None,
        credential: None,
        request: id,
        depth: run.run.depth,
        source: "workflow",
    }
}
