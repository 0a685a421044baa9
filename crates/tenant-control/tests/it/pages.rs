//! The pages for people: what they show, what their headers allow, and how a link signs a browser in.

mod addresses;
mod changelog;
mod documentation;
mod figures;
mod forms;
mod guides;
mod missing;
mod reference;
mod refused;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use kernel::auth::{Role, create_signin_link, create_tenant};
use kernel::base::MINUTE_MS;
use kernel::http::{BaseUrl, RatePolicy};
use serde_json::{Value, json};
use tenant_control::features;
use tenant_control::features::pages::StoreFlags;
use tenant_control::features::users::{NewUser, create_user};

use crate::support::people::{KEYS, SESSION};
use crate::support::{Answer, Server, over_http};

const RATE_LIMITS: &str = "/api/rate-limits/";
const ERRORS: &str = "/documentation/errors/";
const DOCUMENTATION: &str = "/documentation/";
const CHANGELOG: &str = "/documentation/changelog/";
const STATUS: &str = "/status/";
const SIGNIN: &str = "/signin";
const OVERVIEW: &str = "/overview";
const PAGES: [&str; 8] = ["/", RATE_LIMITS, DOCUMENTATION, ERRORS, CHANGELOG, STATUS, SIGNIN, OVERVIEW];
/// What browsers send when an address is typed.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
const ASSETS: [&str; 3] = ["/assets/style.css", "/assets/overview.js", "/assets/icon.svg"];

over_http! {
    async fn every_page_allows_only_what_is_ours(server: Server) {
        let admin = server.tenant("acme").await.admin;
        for path in PAGES {
            let page = server.get(path).cookie(&admin).await;
            page.is(200);
            assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
            assert_eq!(page.header("x-content-type-options"), "nosniff");
            // A form whose page hides where it comes from would be sent with `Origin: null`, and refused.
            let told = if [SIGNIN, OVERVIEW].contains(&path) { "same-origin" } else { "no-referrer" };
            assert_eq!(page.header("referrer-policy"), told, "{path}");
            assert_eq!(page.header("cache-control"), "no-store");
            let policy = page.header("content-security-policy");
            assert!(policy.starts_with("default-src 'none'; "), "{policy}");
            // Only where there is a form. Signing in and out lead on to a provider, which may be anywhere.
            let forms = match path {
                SIGNIN | OVERVIEW => "form-action 'self' https: http:;",
                _ => "form-action 'none';",
            };
            for directive in ["base-uri 'none'", forms, "frame-ancestors 'none'"] {
                assert!(policy.contains(directive), "{directive} in {policy}");
            }
            assert!(!policy.contains("unsafe"), "{policy}");
            assert_eq!(policy.contains("script-src 'self'"), path == OVERVIEW, "{path}: {policy}");
        }
    }

    async fn every_page_can_be_read_by_everybody(server: Server) {
        let admin = server.tenant("acme").await.admin;
        for path in PAGES {
            let html = html(&server.get(path).cookie(&admin).await);
            for part in ["<html lang=\"en\">", "<title>", "name=\"viewport\"", "<main ", "<nav aria-label=", "class=\"skip\""] {
                assert!(html.contains(part), "{part} in {path}");
            }
            assert_eq!(html.matches("<h1").count(), 1, "{path} has one first heading");
            assert!(!html.contains(" style=") && !html.contains("<style") && !html.contains("<script>"), "{path}");
            let elsewhere = html.replace(server.base_url(), "").replace("<a href=\"https://", "");
            assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{path} asks somebody else");
            assert!(path == CHANGELOG || !html.contains("<a href=\"https://"), "{path} points elsewhere");
            let ids = attributes(&html, "id");
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{path} repeats an id");
        }
    }

    async fn no_page_has_a_dead_link(server: Server) {
        let admin = server.tenant("acme").await.admin;
        let mut anchors: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for path in PAGES {
            let html = html(&server.get(path).cookie(&admin).await);
            let links = [attributes(&html, "href"), attributes(&html, "src")].concat();
            for link in links.iter().filter(|link| !link.starts_with("https://")) {
                let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if target.is_empty() { path } else { target };
                anchors.entry(target.to_owned()).or_default().insert(anchor.to_owned());
            }
        }
        assert!(anchors[ERRORS].len() > features::install().error_codes.len(), "{anchors:?}");
        for (target, anchors) in anchors {
            let answer = server.get(&target).cookie(&admin).await;
            let ids = attributes(&html(answer.is(200)), "id");
            let dead: Vec<_> = anchors.iter().filter(|anchor| !anchor.is_empty() && !ids.contains(anchor)).collect();
            assert!(dead.is_empty(), "{target}: {dead:?}");
        }
    }

    async fn every_code_has_an_entry_with_a_true_example(server: Server) {
        let page = html(&server.get(ERRORS).await);
        for code in &features::install().error_codes {
            let entry = entry(&page, code.name());
            assert!(entry.contains(code.title()) && entry.contains(&format!("{}", code.status())), "{entry}");
            let example = example(&entry);
            assert_eq!(example["type"], format!("{}{ERRORS}#{}", server.base_url(), code.name()));
            assert_eq!(example["code"], code.name());
            assert_eq!(example["status"], code.status());
            assert!(example["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{example}");
        }
    }

    async fn an_example_has_the_members_of_a_real_problem(server: Server) {
        let tenancy = server.tenant("acme").await;
        let viewer = server.user(&tenancy.tenant, Role::Viewer).await;
        let page = html(&server.get(ERRORS).await);
        let body = json!({"name": "Key", "scopes": ["*"], "expires_days": 0});
        let real = [
            server.get("/nowhere").await.problem("not_found"),
            server.get(KEYS).cookie(&viewer).await.problem("insufficient_scope"),
            server.post(KEYS).cookie(&tenancy.admin).json(&body).await.problem("invalid_fields"),
        ];
        for real in real {
            let example = example(&entry(&page, real["code"].as_str().unwrap()));
            assert_eq!(members(&example), members(&real));
            assert_eq!(example["errors"], real["errors"]);
        }
    }

    async fn the_rate_limits_page_shows_the_settings(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Read, 4321);
        setup.settings.rate_table.set(RatePolicy::Public, 77);
        let server = setup.start().await;
        let page = server.get(RATE_LIMITS).await;
        assert_eq!(page.header("ratelimit-policy"), "\"public\";q=77;w=60");
        let html = html(&page);
        let cell = |number: u64| format!("<td class=\"number\">{number}</td>");
        for number in [4321, 5 * 4321, 77, 600, 30, 150, 20] {
            assert!(html.contains(&cell(number)), "{number}");
        }
        assert!(html.contains("\"read\";q=4321;w=60") && !html.contains("1200"));
        for policy in RatePolicy::ALL {
            assert!(html.contains(policy.name()) && html.contains(policy.purpose()), "{}", policy.name());
        }
    }

    async fn a_link_that_never_was_is_refused_kindly(server: Server) {
        for link in ["/signin?token=", "/signin?token=abc", "/signin?token=%00%ff", "/signin?other=1&token=%3Cscript%3E"] {
            is_refused(&server.get(link).await);
            is_refused(&server.redeem(link).await);
        }
        server.get("/signin?token").await.is(200);
    }

    async fn under_https_the_cookie_is_bound_to_the_host(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://control.example").unwrap();
        let server = setup.start().await;
        let answer = server.redeem(&link(&server).await).await;
        let (cookie, attributes) = answer.header("set-cookie").split_once(';').unwrap();
        assert!(cookie.starts_with("__Host-session="), "{cookie}");
        assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax; Secure");
        let overview = html(&server.get(OVERVIEW).cookie(cookie).await);
        assert!(overview.contains("curl https://control.example/api/admin/api-keys"));
        assert!(overview.contains("'Cookie: __Host-session=…'"));
    }

    async fn the_overview_is_for_the_signed_in(server: Server) {
        let tenancy = server.tenant("acme").await;
        let key = server.key(&tenancy, &["*"]).await;
        let to_signin = |answer: &Answer| {
            answer.is(303);
            assert_eq!(answer.header("location"), "/signin");
        };
        to_signin(&server.get(OVERVIEW).await);
        to_signin(&server.get(OVERVIEW).cookie("session=nonsense").await);
        to_signin(&server.get(OVERVIEW).key(&key.plain).await);
        server.get(OVERVIEW).cookie(&tenancy.admin).await.is(200);
        server.advance(server.app.settings.session_idle_ms);
        to_signin(&server.get(OVERVIEW).cookie(&tenancy.admin).await);
    }

    async fn the_overview_tells_who_is_signed_in(server: Server) {
        let tenancy = server.tenant("acme").await;
        let page = html(&server.get(OVERVIEW).cookie(&tenancy.admin).await);
        for part in ["ACME", "(<code>acme</code>)", "The admin", "2026-01-15 11:30 UTC", "2026-01-15T11:30:00.000Z"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains("id=\"key-form\"") && page.contains("value=\"api_keys:write\""));
        assert!(!page.contains("platform:read"), "only what the maker holds can be granted");
    }

    async fn only_scopes_that_something_needs_are_offered(server: Server) {
        let tenancy = server.tenant("acme").await;
        let page = html(&server.get(OVERVIEW).cookie(&tenancy.admin).await);
        let document = server.get("/api/openapi.json").await.ok(200);
        let operations = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
        let needed: BTreeSet<String> = operations
            .flat_map(|operation| operation["security"].as_array().cloned().unwrap_or_default())
            .flat_map(|credential| credential.as_object().unwrap().values().cloned().collect::<Vec<_>>())
            .flat_map(|scopes| scopes.as_array().unwrap().iter().map(|scope| scope.as_str().unwrap().to_owned()).collect::<Vec<_>>())
            .collect();
        assert!(needed.contains("tickets:write"), "{needed:?}");
        let offered: BTreeSet<String> = page
            .split("name=\"scopes\" value=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .filter(|scope| scope != "*")
            .collect();
        assert_eq!(offered, needed.into_iter().filter(|scope| scope != "platform:read").collect());
    }

    async fn who_may_not_make_keys_sees_no_form(server: Server) {
        let tenancy = server.tenant("acme").await;
        for role in [Role::Technician, Role::Viewer] {
            let cookie = server.user(&tenancy.tenant, role).await;
            let page = html(&server.get(OVERVIEW).cookie(&cookie).await);
            assert!(!page.contains("id=\"key-form\"") && !page.contains("admin session create"), "{}", role.as_str());
            assert!(page.contains(&format!("Your role, {}, cannot create API keys", role.as_str())));
            assert!(page.contains("id=\"sign-out\""));
        }
    }

    async fn operators_alone_see_where_the_store_is(setup: Setup) {
        let mut setup = setup;
        setup.settings.set_feature_settings(StoreFlags(" --data-dir '/srv/my data'".to_owned()));
        let server = setup.start().await;
        let tenancy = server.tenant("acme").await;
        let new = |email: &str, platform_operator| {
            let (email, name) = (email.to_owned(), None);
            NewUser { email, name, role: Role::Admin, platform_operator }
        };
        let operator = server.session(&tenancy.tenant, new("root@acme.test", true)).await;
        let page = html(&server.get(OVERVIEW).cookie(&operator).await);
        let whole = "tenant-control admin session create --tenant acme --email root@acme.test --json --data-dir '/srv/my data'<";
        assert!(page.contains(whole) && !page.contains("such as <code>--data-dir"), "{page}");
        let other = server.session(&tenancy.tenant, new("ann@acme.test", false)).await;
        let page = html(&server.get(OVERVIEW).cookie(&other).await);
        assert!(!page.contains("/srv/") && page.contains("such as <code>--data-dir</code>"), "{page}");
    }

    async fn names_are_text_whatever_they_hold(server: Server) {
        let tenant = create_tenant(&server.app.store, "<script>alert('tenant')</script>", "acme").await.unwrap();
        let email = "`id`&amp'$x@acme.test".to_owned();
        let name = Some("\"><img src=x onerror=alert(1)>".to_owned());
        let cookie = server.session(&tenant, NewUser { email, name, role: Role::Admin, platform_operator: false }).await;
        let raw = String::from_utf8(server.get(OVERVIEW).cookie(&cookie).await.body).unwrap();
        for dangerous in ["<script>", "<img", "&amp'", "\">alert"] {
            assert!(!raw.contains(dangerous), "{dangerous} in {raw}");
        }
        let shown = unescape(&raw);
        assert!(shown.contains("<script>alert('tenant')</script>") && shown.contains("<img src=x onerror=alert(1)>"));
        assert!(shown.contains("--email '`id`&amp'\\''$x@acme.test' --json"), "a pasted command runs nothing else: {shown}");
        let dashed = NewUser { email: "-a@acme.test".to_owned(), name: None, role: Role::Admin, platform_operator: false };
        let page = html(&server.get(OVERVIEW).cookie(&server.session(&tenant, dashed).await).await);
        assert!(page.contains("--tenant acme --email=-a@acme.test --json"), "{page}");
    }

    async fn pages_count_and_their_assets_do_not(server: Server) {
        let admin = server.tenant("acme").await.admin;
        let left = async || server.get(RATE_LIMITS).await.remaining();
        assert_eq!(left().await, ("public".to_owned(), 119));
        server.get("/").await.is(200);
        server.get(ERRORS).await.is(200);
        server.get(OVERVIEW).await.is(303);
        assert_eq!(left().await, ("public".to_owned(), 115));
        for asset in ASSETS {
            server.get(asset).await.is(200);
        }
        server.get(OVERVIEW).cookie(&admin).await.is(200);
        assert_eq!(left().await, ("public".to_owned(), 114));
        server.get(SIGNIN).await.is(200);
        assert_eq!(left().await, ("public".to_owned(), 112));
        assert_eq!(server.get(SESSION).cookie(&admin).await.remaining(), ("read".to_owned(), 1198));
    }

    async fn failing_to_sign_in_has_a_budget_of_its_own(server: Server) {
        let link = link(&server).await;
        for at in 0..20 {
            let guess = "/signin?token=guess";
            let answer = if at % 2 == 0 { server.get(guess).await } else { server.redeem(guess).await };
            answer.is(410);
        }
        for refused in [server.get("/signin?token=guess").await, server.redeem("/signin?token=guess").await] {
            refused.problem("rate_limited");
            assert_eq!(refused.header("retry-after"), "60");
        }
        server.get("/").await.is(200);
        // Whoever has a link that fits is not kept out by it.
        server.head(&link).await.is(200);
        server.get(&link).await.is(200);
        server.redeem(&link).await.is(303);
        server.redeem(&link).await.problem("rate_limited");
        server.advance(MINUTE_MS);
        is_refused(&server.get(&link).await);
    }

    async fn a_link_that_fits_is_not_charged(setup: Setup) {
        let mut setup = setup;
        for policy in [RatePolicy::Auth, RatePolicy::AuthFailures, RatePolicy::Public] {
            setup.settings.rate_table.set(policy, 1);
        }
        let server = setup.start().await;
        let link = link(&server).await;
        server.get("/").await.is(200);
        server.get("/").await.problem("rate_limited");
        for _ in 0..3 {
            server.get(&link).await.is(200);
            server.head(&link).await.is(200);
        }
        server.redeem(&link).await.is(303);
        is_refused(&server.get(&link).await);
        server.get(&link).await.problem("rate_limited");
    }

    async fn assets_are_kept_for_good_under_their_own_hash(server: Server) {
        let admin = server.tenant("acme").await.admin;
        let page = html(&server.get(OVERVIEW).cookie(&admin).await);
        let links: Vec<String> = attributes(&page, "href").into_iter().chain(attributes(&page, "src")).collect();
        for asset in ASSETS {
            let link = links.iter().find(|link| link.starts_with(asset)).unwrap_or_else(|| panic!("{asset} in {links:?}"));
            let hashed = server.get(link).await;
            assert_eq!(hashed.header("cache-control"), "public, max-age=31536000, immutable");
            assert!(!hashed.body.is_empty() && hashed.header("x-content-type-options") == "nosniff");
            for other in [asset.to_owned(), format!("{asset}?v=0123456789abcdef")] {
                let answer = server.get(other).await;
                assert_eq!(answer.header("cache-control"), "no-cache");
                assert_eq!(answer.body, hashed.body);
            }
        }
    }
}

/// The path and query of a new link for a new user of a new tenant.
async fn link(server: &Server) -> String {
    create_tenant(&server.app.store, "Acme", "acme").await.unwrap();
    another_link(server, "guest@acme.test").await
}

async fn another_link(server: &Server, email: &str) -> String {
    let store = &server.app.store;
    let tenant = kernel::auth::find_tenant(&store.system(kernel::store::Purpose::Cli), "acme").await.unwrap().unwrap();
    let new = NewUser { email: email.to_owned(), name: None, role: Role::Admin, platform_operator: false };
    let user = create_user(store, &tenant, new).await.unwrap();
    let token = create_signin_link(store, tenant.id, user.id).await.unwrap();
    format!("/signin?token={}", token.expose_secret())
}

/// A page that says what to do, and no session.
#[track_caller]
fn is_refused(answer: &Answer) {
    answer.is(410);
    assert!(!answer.headers.contains_key("set-cookie"));
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("referrer-policy"), "same-origin");
    let page = html(answer);
    assert!(page.contains("<h1>This link does not work</h1>"));
    assert!(page.contains("tenant-control admin session create --link"));
}

/// The page as a reader sees its text.
fn html(answer: &Answer) -> String {
    unescape(&String::from_utf8(answer.body.clone()).unwrap())
}

fn unescape(html: &str) -> String {
    let entities = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")];
    entities.iter().fold(html.to_owned(), |text, (entity, character)| text.replace(entity, character))
}

/// Every value of an attribute.
fn attributes(html: &str, name: &str) -> Vec<String> {
    let start = format!(" {name}=\"");
    html.split(&start).skip(1).map(|rest| rest.split('"').next().unwrap_or_default().to_owned()).collect()
}

/// The part of the errors page that a code's anchor leads to.
#[track_caller]
fn entry(page: &str, code: &str) -> String {
    let (_, rest) =
        page.split_once(&format!("<article id=\"{code}\">")).unwrap_or_else(|| panic!("{code} has no entry"));
    rest.split("</article>").next().unwrap().to_owned()
}

fn example(entry: &str) -> Value {
    let start = entry.find("\n{").expect("an example");
    let text = entry[start..].split("</code>").next().unwrap();
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn members(problem: &Value) -> Vec<&String> {
    problem.as_object().unwrap().keys().collect()
}
