//! `/overview`: who is signed in, figures of the last days, and the way to a first API key.

use askama::Template;
use axum::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kernel::auth::{PrincipalIdentity, Scope, UserIdentity};
use kernel::base::{Result, Timestamp};
use kernel::http::{Access, Caller, DocumentOnce, RatePolicy, Rules};
use kernel::rules;
use people::api_keys::{EXPIRES_DAYS_DEFAULT, EXPIRES_DAYS_MAX};

use crate::shell::format_flag;

use super::library::Library;
use super::overview_figures::{DAYS, OverviewFigures};
use super::page::{HtmlPage, REFERRER_POLICY, duration_words, minute_words};

/// The flags with which commands find the store of this server, whatever folder they are run in. They name its folders and
/// hosts, so that only platform operators, who run the commands, see them.
#[derive(Clone, Default)]
pub struct StoreFlags(pub String);

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview<'a> {
    here: &'static str,
    base_url: &'a str,
    cookie_name: &'static str,
    tenant_name: &'a str,
    tenant_slug: &'a str,
    user: &'a UserIdentity,
    expires_at: Timestamp,
    absolute_limit: String,
    days: usize,
    figures: OverviewFigures,
    may_make_keys: bool,
    store_flags: String,
    /// The scopes that a new key can have and use, which are some of the user's.
    grantable: Vec<&'static str>,
    expires_days_default: i64,
    expires_days_max: i64,
}

rules! { Looking = Rules::new(RatePolicy::Read, &[]); }

/// `Access` charges the caller's own rate limit, or the `public` one of the address if nobody is signed in.
pub async fn show_overview(
    caller: Result<Access<Looking>>,
    Extension(document): Extension<DocumentOnce>,
) -> Result<Response> {
    let caller = match caller {
        Ok(caller) => caller,
        Err(error) if error.code().status() == 401 => return Ok(to_signin()),
        Err(error) => return Err(error),
    };
    // An API key is no user; its identity is at /api/auth/session.
    let PrincipalIdentity::User(user) = caller.identity() else { return Ok(to_signin()) };
    let figures = OverviewFigures::read(&caller).await;
    render_overview(&caller, user, &document, figures).map(HtmlPage::into_response)
}

fn render_overview(
    caller: &Caller,
    user: &UserIdentity,
    document: &DocumentOnce,
    figures: OverviewFigures,
) -> Result<HtmlPage> {
    let settings = &caller.app().settings;
    let library: Library = settings.feature_settings();
    let used = library.used_scopes(document)?;
    let overview = Overview {
        here: "/overview",
        base_url: settings.base_url.as_str(),
        cookie_name: settings.base_url.cookie_name(),
        tenant_name: &caller.tenant().name,
        tenant_slug: &caller.tenant().slug,
        user,
        expires_at: caller.expires_at(),
        absolute_limit: duration_words(settings.session_absolute_ms),
        days: DAYS,
        figures,
        may_make_keys: caller.scopes().has_scope(Scope::ApiKeysWrite),
        store_flags: if user.platform_operator { settings.feature_settings::<StoreFlags>().0 } else { String::new() },
        grantable: Scope::ALL
            .iter()
            .filter(|scope| caller.scopes().has_scope(**scope) && used.contains(scope.name()))
            .map(|scope| scope.name())
            .collect(),
        expires_days_default: EXPIRES_DAYS_DEFAULT,
        expires_days_max: EXPIRES_DAYS_MAX,
    };
    HtmlPage::with_script(&overview, &settings.base_url)
}

fn to_signin() -> Response {
    let headers = [(header::LOCATION, HeaderValue::from_static("/signin")), (header::REFERRER_POLICY, REFERRER_POLICY)];
    (StatusCode::SEE_OTHER, headers).into_response()
}

impl Overview<'_> {
    /// To the minute: `2026-11-15 09:30 UTC`.
    fn expires_at_words(&self) -> String {
        minute_words(self.expires_at)
    }

    fn email_flag(&self) -> String {
        format_flag("--email", &self.user.email)
    }
}
