//! SQL that lists runs and reads one with its steps.

use kernel::args;
use kernel::base::Error;
use kernel::base::{Result, StringEnum, Timestamp};
use kernel::http::{json_size, load_records};
use kernel::jobs::steps;
use kernel::store::{ARMS_MAX, ArmSql, Db, FromRow, IndexWalk, Row, Select, Value, from_json, pair_rows};

use super::super::super::{Definition, RunDetail, RunId, Status, WORKFLOW_LANE, WorkflowId, WorkflowRun};
use super::super::control::store::DEFINITION;
use super::super::store::{GET, RunColumns};
use super::super::{StoredRun, build_detail};

/// The columns of a run that filters use.
const RUNS: ArmSql = ArmSql::new("id, workflow_id, status", "workflow_runs", &["id"]);

kernel::statements! {
    BY_ID = kernel::arm!(RUNS);
    BY_WORKFLOW = kernel::arm!(RUNS.use_index("workflow_runs_by_workflow").where_equal(&["workflow_id"]));
    BY_STATUS = kernel::arm!(RUNS.use_index("workflow_runs_by_status").where_equal(&["status"]));
    BY_BOTH = kernel::arm!(RUNS.use_index("workflow_runs_by_both").where_equal(&["workflow_id", "status"]));
    LIST = RunColumns::SELECT;
}

/// Full runs read in one statement, each with its input.
const READ_ROWS: usize = 64;

/// Which runs to list; `None` means all.
#[derive(Default)]
pub struct Filter {
    pub workflow_id: Option<Vec<WorkflowId>>,
    pub status: Option<Vec<Status>>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// A row of [`RUNS`].
struct RunSummary {
    id: RunId,
    workflow_id: WorkflowId,
    status: Status,
}

impl FromRow for RunSummary {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(RunSummary {
            id: row.get(0)?,
            workflow_id: row.get(1)?,
            status: Status::from_stored(&row.get::<String>(2)?)?,
        })
    }
}

impl Filter {
    fn matches_run(&self, row: &RunSummary) -> bool {
        self.workflow_id.as_ref().is_none_or(|any| any.contains(&row.workflow_id))
            && self.status.as_ref().is_none_or(|any| any.contains(&row.status))
    }

    fn build_walk(&self, after: Option<RunId>) -> IndexWalk<RunId> {
        let below = after.or(self.until.map(RunId::first_at)).unwrap_or_else(RunId::after_all);
        let least = RunId::first_at(self.since.unwrap_or(Timestamp::from_millis(0)));
        let walk = |text, values: Vec<Vec<Value>>, exact: bool| IndexWalk::new(text, values, least..below, exact);
        let statuses = |any: &[Status]| any.iter().map(|status| vec![status.as_str().into()]).collect();
        let workflows = |any: &[WorkflowId]| any.iter().map(|id| vec![(*id).into()]).collect();
        match (&self.workflow_id, &self.status) {
            (None, None) => walk(BY_ID, vec![Vec::new()], true),
            (None, Some(any)) => walk(BY_STATUS, statuses(any), true),
            (Some(any), None) => walk(BY_WORKFLOW, workflows(any), true),
            (Some(ids), Some(any)) if ids.len() * any.len() <= ARMS_MAX => {
                let of = |id: &WorkflowId| {
                    any.iter().map(|status| vec![(*id).into(), status.as_str().into()]).collect::<Vec<_>>()
                };
                walk(BY_BOTH, ids.iter().flat_map(of).collect(), true)
            }
            (Some(ids), Some(_)) => walk(BY_WORKFLOW, workflows(ids), false),
        }
    }
}

/// Newest first, by id; also returns where the next page starts.
pub async fn list_runs(
    db: &Db,
    filter: &Filter,
    after: Option<RunId>,
    limit: usize,
) -> Result<(Vec<WorkflowRun>, Option<RunId>)> {
    let matches = |row: &RunSummary| filter.matches_run(row);
    let (rows, next) = filter.build_walk(after).load_page(db, limit, |row: &RunSummary| row.id, matches).await?;
    load_records(
        &rows,
        next,
        |_| READ_ROWS,
        json_size,
        |part| async move {
            let select = Select::new(LIST).where_in("id", part.iter().map(|row| row.id)).limit(part.len());
            let runs = pair_rows(part, |row| row.id, db.select(&select).await?, |stored: &StoredRun| stored.run.id);
            // The status may have changed since the index was walked.
            let still_matches = |run: &WorkflowRun| filter.status.as_ref().is_none_or(|any| any.contains(&run.status));
            Ok(runs.map(|(row, stored)| (row.id, stored.run)).filter(|(_, run)| still_matches(run)).collect())
        },
    )
    .await
}

/// One run with its steps.
pub async fn get_run_detail(db: &Db, id: RunId) -> Result<RunDetail> {
    let run: StoredRun = db.find(GET, args![id]).await?.ok_or_else(Error::not_found)?;
    let definition: Definition =
        from_json(&db.get_one::<String>(DEFINITION, args![run.run.workflow_id, run.run.revision]).await?)?;
    let records = steps::list_steps(db, WORKFLOW_LANE, &run.run.id.to_string()).await?;
    build_detail(run.run, &definition, &records)
}
