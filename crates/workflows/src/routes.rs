//! `/api/psa/workflows/trigger`

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::response::{IntoResponse, Response};
use feature_kit::INVALID_TRANSITION;
use futures_util::future::join_all;
use kernel::auth::Scope;
use kernel::base::{Code, Error, FieldError, Result};
use kernel::http::{
    Accepted, Access, Api, Caller, Created, FromParams, Idempotency, IdempotentReply, IfMatch, Json, LIST_MAX,
    ListPage, NoContent, PageRequest, Params, QueryParam, QueryString, RatePolicy, RecordQuery, RenderedReply, Reply,
    ResponseDocs, Rules, Versioned, document_response,
};
use kernel::operations;
use kernel::outbound::Target;
use kernel::rules;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::check::CompiledDefinition;
use super::definition::{RunRequest, WorkflowChange, WorkflowRequest};
use super::dry_run::store::{save_dry_run, simulate_run};
use super::runs::control::RunControl;
use super::runs::control::store::apply_control;
use super::runs::list::store::{self as history, Filter};
use super::runs::start::store::{check_run, start_run};
use super::save_check::{self, WorkflowToSave};
use super::store::{self, WorkflowUpdate};
use super::{RunDetail, RunId, Workflow, WorkflowId, WorkflowRun, WorkflowSettings, counters};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_workflows, trigger_workflow, change_workflow, delete_workflow))
        .add_refusals("run_workflow", &[Code::NotFound, Code::Conflict, Code::LimitReached, Code::TargetNotAllowed])
        .add_refusals("change_workflow", &[Code::MissingParameter, Code::Conflict, INVALID_TRANSITION])
        .add_refusals("change_workflow", &[Code::TargetNotAllowed])
        .add_schema::<ListPage<super::Workflow>>()
        .add_schema::<ListPage<super::WorkflowRun>>()
        .add_schema::<super::RunDetail>()
        .add_schema::<WorkflowView>()
        .add_schema::<super::ApprovalRequested>()
        .add_schema::<super::actions::CustomEvent>()
}

const PATH: &str = "/api/psa/workflows/trigger";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::WorkflowsRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::WorkflowsWrite]);
}

pub struct ListQuery {
    id: Option<WorkflowId>,
    run_id: Option<RunId>,
    view: Option<WorkflowView>,
    filter: Filter,
    page: PageRequest,
}

kernel::string_enum! {
    /// What belongs to workflows and is a list of its own.
    #[schema(as = WorkflowView)]
    pub enum WorkflowView { Runs "runs" }
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id("One workflow. Cannot be combined with other parameters than `limit`.")?;
        let one_run = "One run, with its steps. Cannot be combined with other parameters than `limit`.";
        let run_id = params.take_optional_run_id(one_run)?;
        let view =
            params.take_enum(QueryParam::new("view", "`runs`: the history of runs instead of the workflows."))?;
        let run_param = ["workflow_id", "status", "since", "until"].into_iter().find(|name| params.has_param(name));
        let workflows = QueryParam::new("workflow_id", "With `view=runs`: of these workflows, as a comma list.");
        let filter = Filter {
            workflow_id: params.take_ids(workflows.with_items_max(LIST_MAX), "a workflow")?,
            status: params.take_enums(
                QueryParam::new("status", "With `view=runs`: any of these, as a comma list.").with_items_max(LIST_MAX),
            )?,
            since: params.take_time(QueryParam::new("since", "With `view=runs`: made at this moment or later."))?,
            until: params.take_time(QueryParam::new("until", "With `view=runs`: made before this moment."))?,
        };
        if let Some(name) = run_param.filter(|_| view.is_none()) {
            let detail = format!("The query parameter {name} needs view=runs: it is about runs, not workflows.");
            return Err(Error::new(Code::InvalidParameter, detail));
        }
        Ok(ListQuery { id, run_id, view, filter, page: PageRequest::take_page(params)? })
    }
}

/// The record that PATCH acts on: exactly one of the two.
pub struct ChangeQuery {
    id: Option<WorkflowId>,
    run_id: Option<RunId>,
}

impl FromParams for ChangeQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id("The workflow to change. Either this or `run_id`.")?;
        Ok(ChangeQuery { id, run_id: params.take_optional_run_id("The run to act on.")? })
    }
}

/// The response of GET.
pub enum WorkflowListReply {
    One(Box<Workflow>),
    Page(ListPage<Workflow>),
    Run(Box<RunDetail>),
    Runs(ListPage<WorkflowRun>),
}

impl IntoResponse for WorkflowListReply {
    fn into_response(self) -> Response {
        match self {
            WorkflowListReply::One(workflow) => Versioned(*workflow).into_response(),
            WorkflowListReply::Page(page) => page.into_response(),
            WorkflowListReply::Run(run) => Versioned(*run).into_response(),
            WorkflowListReply::Runs(page) => page.into_response(),
        }
    }
}

impl PartialSchema for WorkflowListReply {
    fn schema() -> RefOr<Schema> {
        // Not `oneOf`: an empty page matches both kinds of pages.
        let names =
            [<ListPage<Workflow>>::name(), Workflow::name(), <ListPage<WorkflowRun>>::name(), RunDetail::name()];
        names.into_iter().fold(AnyOfBuilder::new(), |any_of, name| any_of.item(Ref::from_schema_name(name))).into()
    }
}

impl IntoResponses for WorkflowListReply {
    fn responses() -> ResponseDocs {
        let text = "A page of the list; with `id`, the one workflow; with `run_id`, the one run; with `view=runs`, a page of \
                    runs.";
        document_response::<Self>("200", text)
    }
}

/// List workflows or runs, or read one
///
/// Newest first. Values of headers are never shown, not even in runs. A request checks about 3,000 runs at most: when
/// matches are rare, a page may hold fewer than its `limit`, even none, while `has_more` is true; `next_cursor` continues
/// from there, and nothing is left out.
#[utoipa::path(
    get, path = PATH, tag = "Service workflows", operation_id = "list_workflows", params(QueryString<ListQuery>)
)]
pub async fn list_workflows(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<WorkflowListReply> {
    let db = caller.db();
    let ListQuery { id, run_id, view, filter, page } = query.parse()?;
    if let Some(id) = id {
        return store::get_workflow(&db, id).await.map(|workflow| WorkflowListReply::One(Box::new(workflow)));
    }
    if let Some(id) = run_id {
        return history::get_run_detail(&db, id).await.map(|run| WorkflowListReply::Run(Box::new(run)));
    }
    if view == Some(WorkflowView::Runs) {
        let after = page.cursor_key(&caller, PATH)?;
        let (runs, next) = history::list_runs(&db, &filter, after, page.limit).await?;
        return page.build_cut_page(&caller, PATH, runs, next).map(WorkflowListReply::Runs);
    }
    let after = page.cursor_key(&caller, PATH)?;
    let (workflows, next) = store::list_workflows(&db, after, page.limit).await?;
    page.build_cut_page(&caller, PATH, workflows, next).map(WorkflowListReply::Page)
}

/// The response of POST.
pub enum WorkflowPostReply {
    Created(Box<Created<Workflow>>),
    Started(Box<Accepted<RunDetail>>),
}

impl Reply for WorkflowPostReply {
    fn render_reply(&self) -> Result<RenderedReply> {
        match self {
            WorkflowPostReply::Created(workflow) => workflow.render_reply(),
            WorkflowPostReply::Started(run) => run.render_reply(),
        }
    }
}

impl IntoResponses for WorkflowPostReply {
    fn responses() -> ResponseDocs {
        let mut responses = <Created<Workflow>>::responses();
        responses.extend(<Accepted<RunDetail>>::responses());
        responses
    }
}

/// Run a workflow, or create one
///
/// `run` queues a run and answers 202 with it; `?run_id=` shows its progress. A disabled workflow is 409. With `dry_run` it
/// is evaluated at once, and nothing is changed, sent or announced.
///
/// `create` makes a workflow. The whole definition is checked: actions, their inputs, expressions, needs. Its runs act with
/// your rights, so you need the scopes of its actions, and `read` of the families of events that start it.
#[utoipa::path(
    post, path = PATH, tag = "Service workflows", operation_id = "run_workflow", request_body = WorkflowRequest
)]
pub async fn trigger_workflow(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<WorkflowRequest>,
) -> Result<IdempotentReply<WorkflowPostReply>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let new = match body.value {
        WorkflowRequest::Create(new) => new,
        WorkflowRequest::Run(new) => return start_or_simulate(&caller, idempotency, new, body.digest).await,
    };
    // Checked before the transaction, and refused in it: a repeated request gets its first response, whatever changed since.
    let saving = check_targets(&caller, save_check::check_new(*new).await).await;
    let (grant, secrets) = (caller.grant(), caller.app().secrets.clone());
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            let created = store::create_workflow(tx, &rights, saving?, &secrets).await?;
            Ok(WorkflowPostReply::Created(Box::new(Created::in_collection(PATH, created.id, created))))
        })
        .await
}

/// Queues a run, or simulates it in a dry run.
async fn start_or_simulate(
    caller: &Access<Writing>,
    idempotency: Idempotency,
    new: RunRequest,
    digest: [u8; 32],
) -> Result<IdempotentReply<WorkflowPostReply>> {
    let (db, grant) = (caller.db(), caller.grant());
    let settings: WorkflowSettings = caller.app().settings.feature_settings();
    let RunRequest { workflow_id, input, dry_run } = new;
    if !dry_run {
        // Checked before the transaction, and refused in it: a repeated request gets its first response.
        let checked = check_run(&db, workflow_id, input).await;
        let started = idempotency.run_once(caller, &db, digest, async move |tx| {
            grant.confirm(tx).await?;
            start_run(tx, workflow_id, checked?, &settings)
                .await
                .map(|run| WorkflowPostReply::Started(Box::new(Accepted(run))))
        });
        return started.await;
    }
    let simulated = simulate_run(&db, caller.app(), workflow_id, input, settings).await;
    let saved = idempotency.run_once(caller, &db, digest, async move |tx| {
        grant.confirm(tx).await?;
        save_dry_run(tx, simulated?).await.map(|run| WorkflowPostReply::Started(Box::new(Accepted(run))))
    });
    saved.await
}

/// Change a workflow, or act on a run
///
/// With `run_id`: `cancel` ends a run, `retry` goes on from the step that failed, `approve` and `reject` answer what it waits
/// for. What the state of the run forbids is 409 `invalid_transition`.
///
/// With `id`: a JSON merge patch: what is left out stays; `steps` and `input_schema` are replaced as a whole. A change makes
/// a new `revision`, which acts with your rights; runs keep the revision that they began with. `enabled` alone makes none.
#[utoipa::path(
    patch, path = PATH, tag = "Service workflows", operation_id = "change_workflow", params(QueryString<ChangeQuery>),
    request_body = WorkflowChange
)]
pub async fn change_workflow(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<ChangeQuery>,
    body: Json<WorkflowChange>,
) -> Result<IdempotentReply<WorkflowChangeReply>> {
    let db = caller.db();
    let ChangeQuery { id, run_id } = query.parse()?;
    if id.is_none() && run_id.is_none() {
        let detail = "Name the workflow with the query parameter id, or a run with run_id.";
        return Err(Error::new(Code::MissingParameter, detail));
    }
    let body = body.read().await?;
    let (grant, secrets) = (caller.grant(), caller.app().secrets.clone());
    let (id, patch) = match (id, run_id, body.value) {
        (Some(id), _, WorkflowChange::Workflow(patch)) => (id, patch),
        (None, Some(id), WorkflowChange::Run(control)) => {
            return control_run(&caller, if_match, idempotency, id, control, body.digest).await;
        }
        (_, _, WorkflowChange::Run(_)) => {
            return Err(Error::invalid("/action", "unknown_field", "is for runs, which run_id names"));
        }
        (_, _, WorkflowChange::Workflow(_)) => return Err(Error::invalid("/action", "required", "is required")),
    };
    for tries in 1.. {
        let change = if let Some(enabled) = patch.enabled_alone() {
            WorkflowUpdate::Enable(enabled)
        } else {
            let (version, saving) = match store::load_current(&db, &secrets, id).await {
                Ok(current) => (Some(current.version), save_check::check_changed(current, patch.clone()).await),
                Err(error) => (None, Err(error)),
            };
            WorkflowUpdate::Save { version, saving: check_targets(&caller, saving).await.map(Box::new) }
        };
        let (if_match, secrets) = (if_match.clone(), secrets.clone());
        let changed = idempotency.clone().run_once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            let changed = store::update_workflow(tx, &rights, id, &if_match, change, &secrets).await?;
            Ok(WorkflowChangeReply::Workflow(Box::new(Versioned(changed))))
        });
        match changed.await {
            // Another change was first: the patch is applied to the new version.
            Err(error) if error.code() == Code::Conflict && tries < TRIES_MAX => {}
            changed => return changed,
        }
    }
    Err(Error::internal("the last try is answered"))
}

/// How often a patch is applied again because another change was first.
const TRIES_MAX: usize = 20;

/// Applies an action to a run.
async fn control_run(
    caller: &Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    id: RunId,
    control: RunControl,
    digest: [u8; 32],
) -> Result<IdempotentReply<WorkflowChangeReply>> {
    let (db, grant) = (caller.db(), caller.grant());
    let settings: WorkflowSettings = caller.app().settings.feature_settings();
    // Set when the action is applied, so that a repeated request counts no metrics.
    let (applied, decided) = (Arc::new(OnceLock::new()), control.approval_outcome());
    let status_slot = applied.clone();
    let reply = idempotency.run_once(caller, &db, digest, async move |tx| {
        grant.confirm(tx).await?;
        let run = apply_control(tx, id, &if_match, control, &settings).await?;
        status_slot.get_or_init(|| run.run.status);
        Ok(WorkflowChangeReply::Run(Box::new(Versioned(run))))
    });
    let reply = reply.await?;
    if let Some(status) = applied.get() {
        if let Some(outcome) = &decided {
            counters::count_step("approval", outcome);
        }
        counters::count_run(*status);
    }
    Ok(reply)
}

/// The response of PATCH.
pub enum WorkflowChangeReply {
    Workflow(Box<Versioned<Workflow>>),
    Run(Box<Versioned<RunDetail>>),
}

impl Reply for WorkflowChangeReply {
    fn render_reply(&self) -> Result<RenderedReply> {
        match self {
            WorkflowChangeReply::Workflow(workflow) => workflow.render_reply(),
            WorkflowChangeReply::Run(run) => run.render_reply(),
        }
    }
}

impl PartialSchema for WorkflowChangeReply {
    fn schema() -> RefOr<Schema> {
        let names = [Workflow::name(), RunDetail::name()];
        names.into_iter().fold(AnyOfBuilder::new(), |any_of, name| any_of.item(Ref::from_schema_name(name))).into()
    }
}

impl IntoResponses for WorkflowChangeReply {
    fn responses() -> ResponseDocs {
        document_response::<Self>("200", "The workflow, or the run with its steps, as it is now.")
    }
}

/// Delete a workflow
///
/// Runs that are not over end as cancelled. All stay readable.
#[utoipa::path(
    delete, path = PATH, tag = "Service workflows", operation_id = "delete_workflow", params(QueryString<RecordQuery<WorkflowId>>)
)]
pub async fn delete_workflow(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<WorkflowId>>,
) -> Result<NoContent> {
    let db = caller.db();
    let id = query.parse()?.id;
    idempotency.check_key()?;
    let grant = caller.grant();
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::delete_workflow(tx, id, &if_match).await
    })
    .await?;
    Ok(NoContent)
}

/// Checks the targets of its requests too. A host that does not resolve yet is accepted: it is checked again when sending.
async fn check_targets(caller: &Caller, saving: Result<WorkflowToSave>) -> Result<WorkflowToSave> {
    let saving = saving?;
    let targets = group_targets_by_host(&saving.compiled);
    let checks = targets.values().map(async |(target, pointers)| {
        let refused = caller.app().outbound.check_target(target, Some(caller.tenant_id())).await.err();
        let field = |detail: String| {
            let code = Code::TargetNotAllowed.name();
            pointers.iter().map(move |at| FieldError { pointer: at.clone(), code, detail: detail.clone() })
        };
        refused.into_iter().flat_map(|refusal| field(refusal.detail)).collect::<Vec<_>>()
    });
    let refused: Vec<FieldError> = join_all(checks).await.concat();
    if refused.is_empty() { Ok(saving) } else { Err(Error::invalid_fields(refused)) }
}

/// Each host once, with the pointers that name it.
fn group_targets_by_host(compiled: &CompiledDefinition) -> BTreeMap<String, (Target, Vec<String>)> {
    let mut targets = BTreeMap::new();
    for (pointer, target) in compiled.request_targets() {
        let host = target.host().to_ascii_lowercase();
        targets.entry(host).or_insert_with(|| (target, Vec::new())).1.push(pointer);
    }
    targets
}
