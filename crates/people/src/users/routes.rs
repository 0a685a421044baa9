//! `/api/admin/users`

use feature_kit::{Q_CHARS_MAX, parse_q};
use kernel::auth::Scope;
use kernel::base::{Code, Result, UserId};
use kernel::http::{
    Access, Api, Created, FromParams, Idempotency, IdempotentReply, IfMatch, Json, LIST_MAX, ListPage, NoContent,
    OneOrPage, PageRequest, Params, QueryParam, QueryString, RatePolicy, RecordQuery, Rules, Versioned,
};
use kernel::operations;
use kernel::rules;

use super::find::Filter;
use super::input::UserInput;
use super::{User, find, fold_email, store};

/// The operations of this feature, and the schemas that their answers refer to.
pub fn mount(api: Api) -> Api {
    api.add_tenant_routes(operations!(list_users, create_user, replace_user, disable_user))
        .add_refusals("create_user", &[Code::Conflict])
        .add_refusals("replace_user", &[Code::Conflict])
        .add_refusals("disable_user", &[Code::Conflict])
        .add_schema::<ListPage<super::User>>()
        .add_schema::<super::UpdatedUser>()
}

const PATH: &str = "/api/admin/users";

/// The fault point after a write is authorized and before it begins: tests of races hold all racing requests here.
const WRITE_FAULT_POINT: &str = "users.write.asked";

rules! {
    Reading = Rules::new(RatePolicy::Read, &[Scope::UsersRead]);
    Writing = Rules::new(RatePolicy::Write, &[Scope::UsersWrite]);
}

pub struct ListQuery {
    id: Option<UserId>,
    filter: Filter,
    page: PageRequest,
}

impl FromParams for ListQuery {
    fn from_params(params: &mut Params) -> Result<Self> {
        let any = |name, about| QueryParam::new(name, about).with_items_max(LIST_MAX);
        let one = "One user, disabled or not. Cannot be combined with other parameters than `limit`.";
        let email = QueryParam::new("email", "With this e-mail address, in any case.").with_length(3, 254);
        let role = any("role", "With any of these roles, as a comma list.");
        let status = any("status", "Any of these, as a comma list. Without it: all, disabled or not.");
        let q =
            "At most 10 words, each the beginning of a word of the name or the e-mail address, however it is\nwritten.";
        let updated = "Changed at this moment or later, in the order of the changes. A reader that goes on by cursor, or from \
                       the last\n`updated_at` it has seen, misses nothing.";
        Ok(ListQuery {
            id: params.take_optional_id(one)?,
            filter: Filter {
                email: params.take_parsed(email, fold_email)?,
                role: params.take_enums(role)?,
                status: params.take_enums(status)?,
                words: params
                    .take_parsed(QueryParam::new("q", q).with_length(1, Q_CHARS_MAX), parse_q)?
                    .unwrap_or_default(),
                updated_since: params.take_time(QueryParam::new("updated_since", updated))?,
            },
            page: PageRequest::take_page(params)?,
        })
    }
}

/// List users, or read one
///
/// Newest first, including disabled users. All filters apply together; a page may hold fewer users than `limit`, and even
/// none, when matches are rare: go by `has_more`.
#[utoipa::path(
    get, path = PATH, tag = "Control plane", operation_id = "list_users", params(QueryString<ListQuery>)
)]
pub async fn list_users(caller: Access<Reading>, query: QueryString<ListQuery>) -> Result<OneOrPage<User>> {
    let db = caller.db();
    let ListQuery { id, filter, page } = query.parse()?;
    if let Some(id) = id {
        return store::get_user(&db, id).await.map(OneOrPage::One);
    }
    let after = page.cursor_key(&caller, PATH)?;
    let (users, next) = find::store::list_users(&db, &filter, after, page.limit).await?;
    page.build_cut_page(&caller, PATH, users, next).map(OneOrPage::Page)
}

/// Create a user
///
/// They sign in with a link from the operator, or by single sign-on. You cannot give a role with scopes that you do not
/// hold.
#[utoipa::path(
    post, path = PATH, tag = "Control plane", operation_id = "create_user", request_body = UserInput
)]
pub async fn create_user(
    caller: Access<Writing>,
    idempotency: Idempotency,
    query: QueryString<()>,
    body: Json<UserInput>,
) -> Result<IdempotentReply<Created<User>>> {
    let db = caller.db();
    query.parse()?;
    let body = body.read().await?;
    let (grant, input) = (caller.grant(), body.value);
    db.env().faults.check_outside_tx(WRITE_FAULT_POINT).await?;
    idempotency
        .run_once(&caller, &db, body.digest, async move |tx| {
            let rights = grant.confirm(tx).await?;
            let created = store::create_user_with_rights(tx, &rights, input).await?;
            Ok(Created::in_collection(PATH, created.id, created))
        })
        .await
}

/// Replace a user
///
/// Effective at once, also in open sessions. Without `status` it stays; `disabled` ends all sessions, as DELETE does. You
/// cannot change a user with scopes that you do not hold, nor disable or demote yourself; a tenant keeps one active admin.
#[utoipa::path(
    put, path = PATH, tag = "Control plane", operation_id = "replace_user", params(QueryString<RecordQuery<UserId>>), request_body = UserInput
)]
pub async fn replace_user(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<UserId>>,
    body: Json<UserInput>,
) -> Result<Versioned<User>> {
    let db = caller.db();
    let id = query.parse()?.id;
    let input = body.read().await?.value;
    idempotency.check_key()?;
    let grant = caller.grant();
    db.env().faults.check_outside_tx(WRITE_FAULT_POINT).await?;
    let changed = db
        .write(async move |tx| {
            let rights = grant.confirm(tx).await?;
            store::replace_user(tx, &rights, id, &if_match, input).await
        })
        .await?;
    caller.app().credentials.invalidate_tenant(caller.tenant_id());
    Ok(Versioned(changed))
}

/// Disable a user
///
/// All their sessions end, at once on this node and within a second on every other. Keys they made go on, tickets keep their
/// name, and the address stays taken. The record stays readable, and PUT can enable it again.
#[utoipa::path(
    delete, path = PATH, tag = "Control plane", operation_id = "disable_user", params(QueryString<RecordQuery<UserId>>)
)]
pub async fn disable_user(
    caller: Access<Writing>,
    if_match: IfMatch,
    idempotency: Idempotency,
    query: QueryString<RecordQuery<UserId>>,
) -> Result<NoContent> {
    let db = caller.db();
    let id = query.parse()?.id;
    idempotency.check_key()?;
    let grant = caller.grant();
    db.env().faults.check_outside_tx(WRITE_FAULT_POINT).await?;
    db.write(async move |tx| {
        let rights = grant.confirm(tx).await?;
        store::disable_user(tx, &rights, id, &if_match).await
    })
    .await?;
    caller.app().credentials.invalidate_tenant(caller.tenant_id());
    Ok(NoContent)
}
