//! `/api/admin/users`

use kernel::auth::Scope;
use kernel::base::{Result, UserId};
use kernel::http::{
    Access, Api, Created, FromParams, Idempotency, IfMatch, Json, LIST_MAX, NoContent, Once, One, OneOrPage, Page,
    PageRequest, Param, Params, Policy, Query, Rules, Versioned,
};
use kernel::operations;
use kernel::rules;

use super::find::Filter;
use super::input::Input;
use super::{User, find, fold_email, store};
use feature_kit::{Q_CHARS_MAX, parse_q};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.tenant(operations!(list, create, replace, disable)).schema::<Page<super::User>>().schema::<super::UpdatedUser>()
}

const PATH: &str = "/api/admin/users";

/// The fault point after a write is authorized and before it begins: tests of races hold all racing requests here.
const ASKED: &str = "users.write.asked";

rules! {
    Reading = Rules::new(Policy::Read, &[Scope::UsersRead]);
    Writing = Rules::new(Policy::Write, &[Scope::UsersWrite]);
}

pub struct ListQuery {
    id: Option<UserId>,
    filter: Filter,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let any = |name, about| Param::new(name, about).items_max(LIST_MAX);
        let one = "One user, disabled or not. Cannot be combined with the other parameters.";
        let email = Param::new("email", "With this e-mail address, in any case.").length(3, 254);
        let role = any("role", "With any of these roles, as a comma list.");
        let status = any("status", "Any of these, as a comma list. Without it: all, disabled or not.");
        let q = "At most 10 words, each the beginning of a word of the name or the e-mail address.";
        let updated = "Changed at this moment or later, in the order of the changes. A reader that goes on by cursor, or from \
                       the last\n`updated_at` it has seen, misses nothing.";
        Ok(ListQuery {
            id: params.take_optional_id(one)?,
            filter: Filter {
                email: params.take_parsed(email, fold_email)?,
                role: params.take_words(role)?,
                status: params.take_words(status)?,
                words: params.take_parsed(Param::new("q", q).length(1, Q_CHARS_MAX), parse_q)?.unwrap_or_default(),
                updated_since: params.take_time(Param::new("updated_since", updated))?,
            },
            page: PageRequest::take(params)?,
        })
    }
}

/// List users, or read one
///
/// Newest first, the disabled among them. Filters narrow each other down; a page may hold fewer users than `limit`, and even
/// none, when what is wanted is rare: go by `has_more`.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_users", params(Query<ListQuery>)
)]
pub async fn list(caller: Access<Reading>, query: Query<ListQuery>) -> Result<OneOrPage<User>> {
    let db = caller.db();
    let ListQuery { id, filter, page } = query.parse()?;
    if let Some(id) = id {
        return store::get(&db, id).await.map(OneOrPage::One);
    }
    let after = page.after(&caller, PATH)?;
    let (users, next) = find::store::list(&db, &filter, after, page.limit).await?;
    page.page_before(&caller, PATH, users, next).map(OneOrPage::Page)
}

/// Create a user
///
/// They sign in with a link that the operator makes, or where their domain signs on. Nobody gives a role that holds scopes they
/// do not hold themselves.
#[utoipa::path(
    post, path = PATH, tag = "Control plane", operation_id = "create_user", request_body = Input
)]
pub async fn create(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: Query<()>,
    body: Json<Input>,
) -> Result<Once<Created<User>>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let (grant, input) = (caller.grant(), body.value);
    db.world().faults.pass(ASKED).await?;
    idempotency
        .once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            let made = store::create(tx, &rights, input).await?;
            Ok(Created::at(PATH, made.id, made))
        })
        .await
}

/// Replace a user
///
/// In force at once, also in open sessions. Without `status` it stays; `disabled` ends all sessions, as DELETE does. Nobody
/// changes a user who holds scopes they do not hold, nor disables or demotes themselves, and a tenant keeps one active admin.
#[utoipa::path(
    put, path = PATH, tag = "Control plane", operation_id = "replace_user", params(Query<One<UserId>>), request_body = Input
)]
pub async fn replace(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: Query<One<UserId>>,
    body: Json<Input>,
) -> Result<Versioned<User>> {
    let db = caller.db();
    let id = query.parse()?.id;
    let input = body.read().await?.value;
    idempotency.check()?;
    let grant = caller.grant();
    db.world().faults.pass(ASKED).await?;
    let changed = db
        .write(async move |tx| {
            let rights = grant.confirm(tx).await?;
            store::replace(tx, &rights, id, &if_match, input).await
        })
        .await?;
    caller.app().credentials.forget(caller.tenant_id());
    Ok(Versioned(changed))
}

/// Disable a user
///
/// All their sessions end, at once on this node and within a second on every other. Keys they made go on, tickets keep their
/// name, and the address stays taken. The record stays readable, and PUT can enable it again.
#[utoipa::path(
    delete, path = PATH, tag = "Control plane", operation_id = "disable_user", params(Query<One<UserId>>)
)]
pub async fn disable(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: Query<One<UserId>>,
) -> Result<NoContent> {
    let db = caller.db();
    let id = query.parse()?.id;
    idempotency.check()?;
    let grant = caller.grant();
    db.world().faults.pass(ASKED).await?;
    db.write(async move |tx| {
        let rights = grant.confirm(tx).await?;
        store::disable(tx, &rights, id, &if_match).await
    })
    .await?;
    caller.app().credentials.forget(caller.tenant_id());
    Ok(NoContent)
}
