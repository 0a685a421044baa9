//! `/api/psa/workflows/trigger`

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use kernel::auth::Scope;
use kernel::base::{Code, Error, FieldError, Result};
use kernel::http::{
    Accepted, Access, Api, Caller, Created, Documented, FromParams, Idempotency, IfMatch, Json, LIST_MAX, NoContent,
    Once, One, Page, PageRequest, Param, Params, Policy, Query, Rendered, Reply, Rules, Versioned, documented,
};
use kernel::operations;
use kernel::outbound::Target;
use kernel::rules;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::check::Compiled;
use super::definition::{Change, NewRun, Request};
use super::dry_run::store::{keep, simulate};
use super::runs::control::Control;
use super::runs::control::store::control;
use super::runs::list::store::{self as history, Filter};
use super::runs::start::store::{check, start};
use super::saving::{self, Saving};
use super::store::{self, Change as Saved};
use super::{Run, RunDetail, RunId, Settings, Workflow, WorkflowId, tally};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.tenant(operations!(list, act, change, delete))
        .schema::<Page<super::Workflow>>()
        .schema::<Page<super::Run>>()
        .schema::<super::RunDetail>()
        .schema::<View>()
        .schema::<super::ApprovalRequested>()
        .schema::<super::actions::CustomEvent>()
}

const PATH: &str = "/api/psa/workflows/trigger";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::WorkflowsRead]);
    Writing = Rules::new(Policy::Write, &[Scope::WorkflowsWrite]);
}

pub struct ListQuery {
    id: Option<WorkflowId>,
    run_id: Option<RunId>,
    view: Option<View>,
    filter: Filter,
    page: PageRequest,
}

kernel::words! {
    /// What belongs to workflows and is a list of its own.
    #[schema(as = WorkflowView)]
    pub enum View { Runs "runs" }
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let id = params.take_optional_id("One workflow. Cannot be combined with the other parameters.")?;
        let one_run = "One run, with its steps. Cannot be combined with the other parameters.";
        let run_id = params.take_optional_run_id(one_run)?;
        let view = params.take_word(Param::new("view", "`runs`: the history of runs instead of the workflows."))?;
        let of_runs = ["workflow_id", "status", "since", "until"].into_iter().find(|name| params.has(name));
        let workflows = Param::new("workflow_id", "With `view=runs`: of these workflows, as a comma list.");
        let filter = Filter {
            workflow_id: params.take_ids(workflows.items_max(LIST_MAX), "a workflow")?,
            status: params.take_words(
                Param::new("status", "With `view=runs`: any of these, as a comma list.").items_max(LIST_MAX),
            )?,
            since: params.take_time(Param::new("since", "With `view=runs`: made at this moment or later."))?,
            until: params.take_time(Param::new("until", "With `view=runs`: made before this moment."))?,
        };
        if let Some(name) = of_runs.filter(|_| view.is_none()) {
            let detail = format!("The query parameter {name} needs view=runs: it is about runs, not workflows.");
            return Err(Error::new(Code::InvalidParameter, detail));
        }
        Ok(ListQuery { id, run_id, view, filter, page: PageRequest::take(params)? })
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
pub enum Found {
    One(Box<Workflow>),
    Page(Page<Workflow>),
    Run(Box<RunDetail>),
    Runs(Page<Run>),
}

impl IntoResponse for Found {
    fn into_response(self) -> Response {
        match self {
            Found::One(workflow) => Versioned(*workflow).into_response(),
            Found::Page(page) => page.into_response(),
            Found::Run(run) => Versioned(*run).into_response(),
            Found::Runs(page) => page.into_response(),
        }
    }
}

impl PartialSchema for Found {
    fn schema() -> RefOr<Schema> {
        // Not `oneOf`: an empty page matches both kinds of pages.
        let names = [<Page<Workflow>>::name(), Workflow::name(), <Page<Run>>::name(), RunDetail::name()];
        names.into_iter().fold(AnyOfBuilder::new(), |any_of, name| any_of.item(Ref::from_schema_name(name))).into()
    }
}

impl IntoResponses for Found {
    fn responses() -> Documented {
        let text = "A page of the list; with `id`, the one workflow; with `run_id`, the one run; with `view=runs`, a page of \
                    runs.";
        documented::<Self>("200", text)
    }
}

/// List workflows or runs, or read one
///
/// Newest first. Values of headers are never shown, in runs neither. A request looks at about 3,000 runs at most: where a
/// combination of filters is rare, a page may hold fewer than its `limit`, even none, while `has_more` is true; `next_cursor`
/// goes on from there, and nothing is left out.
#[utoipa::path(
    get, path = PATH, tag = "Service workflows", operation_id = "list_workflows", params(Query<ListQuery>)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<Found> {
    let db = caller.db();
    let ListQuery { id, run_id, view, filter, page } = query.parse()?;
    if let Some(id) = id {
        return store::get(&db, id).await.map(|workflow| Found::One(Box::new(workflow)));
    }
    if let Some(id) = run_id {
        return history::get(&db, id).await.map(|run| Found::Run(Box::new(run)));
    }
    if view == Some(View::Runs) {
        let after = page.after(&caller, PATH)?;
        let (runs, next) = history::list(&db, &filter, after, page.limit).await?;
        return page.page_before(&caller, PATH, runs, next).map(Found::Runs);
    }
    let after = page.after(&caller, PATH)?;
    let (workflows, next) = store::list(&db, after, page.limit).await?;
    page.page_before(&caller, PATH, workflows, next).map(Found::Page)
}

/// The response of POST.
pub enum Done {
    Made(Box<Created<Workflow>>),
    Started(Box<Accepted<RunDetail>>),
}

impl Reply for Done {
    fn render(&self) -> Result<Rendered> {
        match self {
            Done::Made(workflow) => workflow.render(),
            Done::Started(run) => run.render(),
        }
    }
}

impl IntoResponses for Done {
    fn responses() -> Documented {
        let mut answers = <Created<Workflow>>::responses();
        answers.extend(<Accepted<RunDetail>>::responses());
        // The body names the workflow, which may not exist.
        answers.insert("404".to_owned(), RefOr::Ref(Ref::from_response_name("NotFound")));
        answers
    }
}

/// Run a workflow, or create one
///
/// `run` takes a run on and answers 202 with it; `?run_id=` shows how it goes. A disabled workflow is 409. With `dry_run` it
/// is evaluated on the spot, and nothing is touched, sent or told.
///
/// `create` makes a workflow. The definition is checked as a whole: actions, what they are given, expressions, needs. Its runs act with the authority of
/// whoever saved it, so that takes the scopes of its actions, and `read` of the families of events that start it.
#[utoipa::path(
    post, path = PATH, tag = "Service workflows", operation_id = "run_workflow", request_body = Request
)]
pub async fn act(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: Query<()>,
    body: Json<Request>,
) -> Result<Once<Done>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let new = match body.value {
        Request::Create(new) => new,
        Request::Run(new) => return run(&caller, idempotency, new, body.digest).await,
    };
    // Checked before the transaction, and refused in it: a repeated request gets its first response, whatever changed since.
    let saving = checked(&caller, saving::new(*new).await).await;
    let (grant, secrets) = (caller.grant(), caller.app().secrets.clone());
    idempotency
        .once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            let made = store::create(tx, &rights, saving?, &secrets).await?;
            Ok(Done::Made(Box::new(Created::at(PATH, made.id, made))))
        })
        .await
}

/// Queues a run, or simulates it in a dry run.
async fn run(caller: &Access<Writing>, idempotency: Idempotency, new: NewRun, digest: [u8; 32]) -> Result<Once<Done>> {
    let (db, grant) = (caller.db(), caller.grant());
    let settings: Settings = caller.app().settings.of_feature();
    let NewRun { workflow_id, input, dry_run } = new;
    if !dry_run {
        // Checked before the transaction, and refused in it: a repeated request gets its first response.
        let checked = check(&db, workflow_id, input).await;
        let started = idempotency.once(caller, &db, digest, async move |tx| {
            grant.confirm(tx).await?;
            start(tx, workflow_id, checked?, &settings).await.map(|run| Done::Started(Box::new(Accepted(run))))
        });
        return started.await;
    }
    let tried = simulate(&db, caller.app(), workflow_id, input, settings).await;
    let kept = idempotency.once(caller, &db, digest, async move |tx| {
        grant.confirm(tx).await?;
        keep(tx, tried?).await.map(|run| Done::Started(Box::new(Accepted(run))))
    });
    kept.await
}

/// Change a workflow, or act on a run
///
/// With `run_id`: `cancel` ends a run, `retry` goes on from the step that failed, `approve` and `reject` answer what it waits
/// for. What the state of the run forbids is 409 `invalid_transition`.
///
/// With `id`: a JSON merge patch: what is left out stays; `steps` and `input_schema` are given whole. A change is a new `revision`, and
/// whoever makes it becomes its saver; runs keep the revision that they began with. `enabled` alone is no revision.
#[utoipa::path(
    patch, path = PATH, tag = "Service workflows", operation_id = "change_workflow", params(Query<ChangeQuery>),
    request_body = Change
)]
pub async fn change(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: Query<ChangeQuery>,
    body: Json<Change>,
) -> Result<Once<Changed>> {
    let db = caller.db();
    let ChangeQuery { id, run_id } = query.parse()?;
    if id.is_none() && run_id.is_none() {
        let detail = "Name the workflow with the query parameter id, or a run with run_id.";
        return Err(Error::new(Code::MissingParameter, detail));
    }
    let body = body.read().await?;
    let (grant, secrets) = (caller.grant(), caller.app().secrets.clone());
    let (id, patch) = match (id, run_id, body.value) {
        (Some(id), _, Change::Workflow(patch)) => (id, patch),
        (None, Some(id), Change::Run(wanted)) => {
            return tell_run(&caller, if_match, idempotency, id, wanted, body.digest).await;
        }
        (_, _, Change::Run(_)) => {
            return Err(Error::invalid("/action", "unknown_field", "is for runs, which run_id names"));
        }
        (_, _, Change::Workflow(_)) => return Err(Error::invalid("/action", "required", "is required")),
    };
    for tries in 1.. {
        let change = if let Some(enabled) = patch.enabled_alone() {
            Saved::Enable(enabled)
        } else {
            let (version, saving) = match store::current(&db, &secrets, id).await {
                Ok(current) => (Some(current.version), saving::changed(current, patch.clone()).await),
                Err(error) => (None, Err(error)),
            };
            Saved::Save { version, saving: checked(&caller, saving).await.map(Box::new) }
        };
        let (if_match, secrets) = (if_match.clone(), secrets.clone());
        let changed = idempotency.clone().once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            let changed = store::change(tx, &rights, id, &if_match, change, &secrets).await?;
            Ok(Changed::Workflow(Box::new(Versioned(changed))))
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
async fn tell_run(
    caller: &Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    id: RunId,
    wanted: Control,
    digest: [u8; 32],
) -> Result<Once<Changed>> {
    let (db, grant) = (caller.db(), caller.grant());
    let settings: Settings = caller.app().settings.of_feature();
    // Set when the action is applied, so that a repeated request counts no metrics.
    let (done, decided) = (Arc::new(OnceLock::new()), wanted.decided());
    let noted = done.clone();
    let told = idempotency.once(caller, &db, digest, async move |tx| {
        grant.confirm(tx).await?;
        let run = control(tx, id, &if_match, wanted, &settings).await?;
        noted.get_or_init(|| run.run.status);
        Ok(Changed::Run(Box::new(Versioned(run))))
    });
    let told = told.await?;
    if let Some(status) = done.get() {
        if let Some(outcome) = &decided {
            tally::count_step("approval", outcome);
        }
        tally::count_run(*status);
    }
    Ok(told)
}

/// The response of PATCH.
pub enum Changed {
    Workflow(Box<Versioned<Workflow>>),
    Run(Box<Versioned<RunDetail>>),
}

impl Reply for Changed {
    fn render(&self) -> Result<Rendered> {
        match self {
            Changed::Workflow(workflow) => workflow.render(),
            Changed::Run(run) => run.render(),
        }
    }
}

impl PartialSchema for Changed {
    fn schema() -> RefOr<Schema> {
        let names = [Workflow::name(), RunDetail::name()];
        names.into_iter().fold(AnyOfBuilder::new(), |any_of, name| any_of.item(Ref::from_schema_name(name))).into()
    }
}

impl IntoResponses for Changed {
    fn responses() -> Documented {
        documented::<Self>("200", "The workflow, or the run with its steps, as it is now.")
    }
}

/// Delete a workflow
///
/// Runs that are not over end as cancelled. All stay readable.
#[utoipa::path(
    delete, path = PATH, tag = "Service workflows", operation_id = "delete_workflow", params(Query<One<WorkflowId>>)
)]
pub async fn delete(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: Query<One<WorkflowId>>,
) -> Result<NoContent> {
    let db = caller.db();
    let id = query.parse()?.id;
    idempotency.check()?;
    let grant = caller.grant();
    db.write(async move |tx| {
        grant.confirm(tx).await?;
        store::delete(tx, id, &if_match).await
    })
    .await?;
    Ok(NoContent)
}

/// Checks the targets of its requests too. A host that does not resolve yet is accepted: it is checked again when sending.
async fn checked(caller: &Caller, saving: Result<Saving>) -> Result<Saving> {
    let saving = saving?;
    let places = places(&saving.compiled);
    let looks = places.values().map(async |(target, pointers)| {
        let refused = caller.app().outbound.check(target, Some(caller.tenant_id())).await.err();
        let field = |detail: String| {
            let code = Code::TargetNotAllowed.name();
            pointers.iter().map(move |at| FieldError { pointer: at.clone(), code, detail: detail.clone() })
        };
        refused.into_iter().flat_map(|refusal| field(refusal.detail)).collect::<Vec<_>>()
    });
    let refused: Vec<FieldError> = join_all(looks).await.concat();
    if refused.is_empty() { Ok(saving) } else { Err(Error::invalid_fields(refused)) }
}

/// Each host once, with the pointers that name it.
fn places(compiled: &Compiled) -> BTreeMap<String, (Target, Vec<String>)> {
    let mut places = BTreeMap::new();
    for (pointer, target) in compiled.targets() {
        let host = target.host().to_ascii_lowercase();
        places.entry(host).or_insert_with(|| (target, Vec::new())).1.push(pointer);
    }
    places
}
