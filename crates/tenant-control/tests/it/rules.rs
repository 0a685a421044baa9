//! What a route declares: from its rules come the checks, the budget, the bound of its body and the document. The routes
//! here are the tests' own, beside those of the product.

use kernel::auth::Scope;
use kernel::base::Result;
use kernel::http::{
    Access, Api, BodyFields, FromBody, FromParams, Json, Ok200, Params, QueryParam, QueryString, RatePolicy, Rules,
};
use kernel::{operations, rules};
use serde_json::{Value, json};

use crate::support::{Server, Setup, over_http};

const LIST: &str = "/api/test/list";
const SEARCH: &str = "/api/test/search";
const EITHER: &str = "/api/test/either";
const SMALL: &str = "/api/test/small";
const LARGE: &str = "/api/test/large";

const SMALL_BYTES: usize = 100;
const LARGE_BYTES: usize = kernel::http::BODY_BYTES_MAX + 1_000;

rules! {
    Listing = Rules::new(RatePolicy::Read, &[Scope::TicketsRead]).or_export();
    Searching = Rules::new(RatePolicy::Search, &[Scope::SearchRead]);
    ReadingEither = Rules::new(RatePolicy::Read, &[Scope::CloudRead, Scope::BackupRead]);
    WritingSmall = Rules::new(RatePolicy::Write, &[Scope::TicketsWrite]).body_bytes_max(SMALL_BYTES);
    WritingLarge = Rules::new(RatePolicy::Write, &[Scope::TicketsWrite]).body_bytes_max(LARGE_BYTES);
}

/// What every route here answers.
type Done = Result<Ok200<String>>;

struct Format {
    format: Option<String>,
}

impl FromParams for Format {
    fn from_params(params: &mut Params) -> Result<Self> {
        Ok(Format { format: params.take_text(QueryParam::new("format", "As what."))? })
    }
}

#[derive(utoipa::ToSchema)]
struct Text {
    text: String,
}

impl FromBody for Text {
    fn from_fields(fields: &mut BodyFields) -> Option<Self> {
        Some(Text { text: fields.read_required("text", |field| field.read_string())? })
    }
}

/// List
#[utoipa::path(get, path = LIST, tag = "Schema", operation_id = "test_list", params(QueryString<Format>))]
async fn list(caller: Access<Listing>, query: QueryString<Format>) -> Done {
    let format = query.parse()?.format;
    let _db = caller.db();
    Ok(Ok200(format.unwrap_or_default()))
}

/// Search
#[utoipa::path(get, path = SEARCH, tag = "Schema", operation_id = "test_search")]
async fn search(caller: Access<Searching>, query: QueryString<()>) -> Done {
    query.parse()?;
    Ok(Ok200(caller.tenant_id().to_string()))
}

/// Either
#[utoipa::path(get, path = EITHER, tag = "Schema", operation_id = "test_either", params(QueryString<Format>))]
async fn either(caller: Access<ReadingEither>, query: QueryString<Format>) -> Done {
    let scope = if query.parse()?.format.is_some() { Scope::BackupRead } else { Scope::CloudRead };
    caller.require(scope)?;
    Ok(Ok200(scope.name().to_owned()))
}

/// Small
#[utoipa::path(post, path = SMALL, tag = "Schema", operation_id = "test_small", request_body = Text)]
async fn small(_caller: Access<WritingSmall>, query: QueryString<()>, body: Json<Text>) -> Done {
    query.parse()?;
    Ok(Ok200(body.read().await?.value.text.len().to_string()))
}

/// Large
#[utoipa::path(post, path = LARGE, tag = "Schema", operation_id = "test_large", request_body = Text)]
async fn large(_caller: Access<WritingLarge>, query: QueryString<()>, body: Json<Text>) -> Done {
    query.parse()?;
    Ok(Ok200(body.read().await?.value.text.len().to_string()))
}

async fn start(mut setup: Setup, limits: &[(RatePolicy, u64)]) -> Server {
    for (policy, per_minute) in limits {
        setup.settings.rate_table.set(*policy, *per_minute);
    }
    setup.mount =
        |api: Api| api.add_tenant_routes(operations!(list, search, either, small, large)).add_schema::<String>();
    setup.start().await
}

over_http! {
    async fn a_route_is_charged_as_it_says_and_a_file_is_an_export(setup: Setup) {
        let server = start(setup, &[(RatePolicy::Read, 3), (RatePolicy::Export, 2), (RatePolicy::Search, 1)]).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["*"]).await.plain;
        let asked = async |target: String| server.get(target).key(&key).await;
        for (format, left) in [("csv", 1), ("ndjson", 0)] {
            let answer = asked(format!("{LIST}?format={format}")).await;
            assert_eq!(answer.is(200).remaining(), ("export".to_owned(), left));
        }
        asked(format!("{LIST}?f%6Frmat=cs%76")).await.problem("rate_limited");
        assert_eq!(asked(format!("{LIST}?format=json")).await.is(200).remaining(), ("read".to_owned(), 2));
        assert_eq!(asked(SEARCH.to_owned()).await.is(200).remaining(), ("search".to_owned(), 0));
        asked(SEARCH.to_owned()).await.problem("rate_limited");
        assert_eq!(asked(LIST.to_owned()).await.is(200).remaining(), ("read".to_owned(), 1));
    }

    async fn rules_are_checked_in_the_contracts_order(setup: Setup) {
        let server = start(setup, &[(RatePolicy::Export, 1)]).await;
        let acme = server.tenant("acme").await;
        let powerless = server.key(&acme, &["search:read"]).await.plain;
        let target = format!("{LIST}?format=csv&nonsense=1");
        server.get(&target).await.problem("unauthenticated");
        let refused = server.get(&target).key(&powerless).await;
        assert_eq!(refused.problem("insufficient_scope")["required_scope"], "tickets:read");
        server.get(&target).key(&powerless).await.problem("rate_limited");
        let able = server.key(&acme, &["tickets:read"]).await.plain;
        server.get(&target).key(&able).await.problem("unknown_parameter");
    }

    async fn a_route_can_need_another_scope_for_another_request(setup: Setup) {
        let server = start(setup, &[]).await;
        let acme = server.tenant("acme").await;
        let [neither, cloud, backup] = [["search:read"], ["cloud:read"], ["backup:read"]];
        let plain = async |scopes: &[&str]| server.key(&acme, scopes).await.plain;
        let (neither, cloud, backup) = (plain(&neither).await, plain(&cloud).await, plain(&backup).await);
        let other = format!("{EITHER}?format=x");
        // Whoever holds none of them is not told what is wrong with the query.
        let refused = server.get(format!("{EITHER}?nonsense=1")).key(&neither).await;
        assert_eq!(refused.problem("insufficient_scope")["required_scope"], "cloud:read");
        server.get(EITHER).key(&cloud).await.is(200);
        server.get(&other).key(&backup).await.is(200);
        let refused = server.get(&other).key(&cloud).await;
        assert_eq!(refused.problem("insufficient_scope")["required_scope"], "backup:read");
        server.get(EITHER).key(&backup).await.problem("insufficient_scope");
    }

    async fn a_route_bounds_its_own_bodies(setup: Setup) {
        let server = start(setup, &[]).await;
        let acme = server.tenant("acme").await;
        let post = async |path: &str, bytes: usize| {
            let frame = json!({"text": ""}).to_string().len();
            let body = json!({"text": "x".repeat(bytes - frame)});
            server.post(path).cookie(&acme.admin).json(&body).await
        };
        post(SMALL, SMALL_BYTES).await.is(200);
        let refused = post(SMALL, SMALL_BYTES + 1).await;
        assert_eq!(refused.problem("payload_too_large")["detail"], "A body is at most 100 bytes.");
        post(LARGE, LARGE_BYTES).await.is(200);
        post(LARGE, LARGE_BYTES + 1).await.problem("payload_too_large");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_says_who_may_call_a_route() {
    let server = start(Setup::sqlite().await, &[]).await;
    let security = |path: &str, method: &str| server.contract.document["paths"][path][method]["security"].clone();
    let ways = |scopes: Value| json!([{"api_key": scopes}, {"api_key_header": scopes}, {"session": scopes}]);
    assert_eq!(security(LIST, "get"), ways(json!(["tickets:read"])));
    assert_eq!(security(SMALL, "post"), ways(json!(["tickets:write"])));
    let either = ["api_key", "api_key_header", "session"]
        .map(|way| ["cloud:read", "backup:read"].map(|scope| json!({way: [scope]})))
        .concat();
    assert_eq!(security(EITHER, "get"), Value::Array(either));
    assert_eq!(security("/api/auth/session", "get"), ways(json!([])));
    assert_eq!(security("/api/auth/session", "delete"), json!([{"session": []}]));
    assert_eq!(security("/api/openapi.json", "get"), json!([{}]));
}
