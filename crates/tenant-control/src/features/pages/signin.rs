//! `/signin`: a work e-mail address leads to the identity provider of its domain. With the token of a sign-in link it is the
//! page of that link (`signin_link.rs`), whose button signs in.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use kernel::auth::SIGNIN_LINK_MS;
use kernel::base::{Result, is_email};
use kernel::http::{Form, FormFields, HttpSettings, RatePolicy, RequestContext, SharedApp};
use people::cookie;
use people::sso::{self, SignOnRequest};

use super::page::{HtmlPage, RETRY_IN_A_MINUTE, duration_words, redirect_with_cookies};
use super::signin_link;

#[derive(Template)]
#[template(path = "signin.html")]
struct SignInPage<'a> {
    here: &'static str,
    /// The user followed a link that is unknown, used or expired.
    is_refused: bool,
    /// The address that was typed, and why it was refused.
    email: &'a str,
    refusal: Option<SignInRefusal>,
    redirect_to: Option<&'a str>,
    link_lifetime: String,
    idle_limit: String,
    absolute_limit: String,
}

impl<'a> SignInPage<'a> {
    fn new(settings: &HttpSettings, redirect_to: Option<&'a str>) -> Self {
        SignInPage {
            here: "/signin",
            is_refused: false,
            email: "",
            refusal: None,
            redirect_to,
            link_lifetime: duration_words(SIGNIN_LINK_MS),
            idle_limit: duration_words(settings.session_idle_ms),
            absolute_limit: duration_words(settings.session_absolute_ms),
        }
    }

    fn to_response(&self, settings: &HttpSettings, status: StatusCode) -> Result<Response> {
        HtmlPage::with_external_form(self, &settings.base_url).map(|page| page.with_status(status).into_response())
    }
}

/// Why an e-mail address leads to no provider.
#[derive(Clone, Copy)]
enum SignInRefusal {
    Malformed,
    /// One answer for every address without a provider, so that nobody can find out who the customers are.
    Unknown,
    Away,
}

impl SignInRefusal {
    fn http_status(self) -> StatusCode {
        match self {
            SignInRefusal::Malformed => StatusCode::UNPROCESSABLE_ENTITY,
            SignInRefusal::Unknown => StatusCode::NOT_FOUND,
            SignInRefusal::Away => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            SignInRefusal::Malformed => "Type your whole e-mail address, such as you@example.com.",
            SignInRefusal::Unknown => {
                "No sign-on is set up for this address. Ask your administrator, or use a sign-in link."
            }
            SignInRefusal::Away => {
                "Your provider or this service cannot be used right now. Try again in a minute, or use a sign-in link."
            }
        }
    }

    /// Whether another e-mail address would help.
    fn is_of_email(self) -> bool {
        !matches!(self, SignInRefusal::Away)
    }
}

/// Showing the form is charged as a page. A link is looked up even if the rate limit of the address is used up, and charged
/// only if it is invalid.
pub async fn show_signin(
    State(app): State<SharedApp>,
    Extension(context): Extension<Arc<RequestContext>>,
    uri: Uri,
) -> Result<Response> {
    if let Some(token) = find_token(&uri) {
        return match signin_link::find_link_page(&app, token).await? {
            Some(page) => Ok(page),
            None => refuse_link(&app, &context),
        };
    }
    // The request is counted but never refused: a script at the same address must not prevent people from signing in.
    drop(context.charge_address(&app, RatePolicy::Public));
    let query = FormFields::parse(uri.query().unwrap_or_default());
    let form = SignInPage::new(&app.settings, query.get("redirect_to").and_then(own_path));
    form.to_response(&app.settings, StatusCode::OK)
}

/// One page for a link that is unknown, used or expired; it offers the other ways to sign in.
fn refuse_link(app: &SharedApp, context: &RequestContext) -> Result<Response> {
    context.charge_address(app, RatePolicy::AuthFailures)?;
    SignInPage { is_refused: true, ..SignInPage::new(&app.settings, None) }.to_response(&app.settings, StatusCode::GONE)
}

/// Handles the form: redirects to the provider of the address, or shows the form again with the error. A POST to the URL of
/// a link redeems it, like its button.
pub async fn begin_signin(
    State(app): State<SharedApp>,
    Extension(context): Extension<Arc<RequestContext>>,
    uri: Uri,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    if let Some(token) = find_token(&uri) {
        return redeem_token(app, context, headers, token).await;
    }
    context.charge_address(&app, RatePolicy::Auth)?;
    let fields = form.read_fields().await?;
    let email = fields.get("email").unwrap_or_default().trim();
    let redirect_to = fields.get("redirect_to").and_then(own_path);
    let begun = match sso::email_domain(email).filter(|_| is_email(email)) {
        Some(domain) => {
            let redirect_to = redirect_to.unwrap_or(sso::DEFAULT_REDIRECT);
            begin_sso(&app, SignOnRequest { domain: &domain, redirect_to, login_hint: Some(email), headers: &headers })
                .await?
        }
        None => Err(SignInRefusal::Malformed),
    };
    match begun {
        Ok((url, cookies)) => redirect_with_cookies(&url, &cookies),
        Err(refusal) => {
            if matches!(refusal, SignInRefusal::Unknown) {
                context.charge_address(&app, RatePolicy::AuthFailures)?;
            }
            let again = SignInPage { email, refusal: Some(refusal), ..SignInPage::new(&app.settings, redirect_to) };
            let page = again.to_response(&app.settings, refusal.http_status())?;
            Ok(if refusal.is_of_email() { page } else { ([RETRY_IN_A_MINUTE], page).into_response() })
        }
    }
}

/// Handles the button of a link. A valid link is neither charged to the address nor refused because its rate limit is used up.
pub async fn redeem_link(
    State(app): State<SharedApp>,
    Extension(context): Extension<Arc<RequestContext>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let fields = match form.read_fields().await {
        Ok(fields) => fields,
        Err(error) => return Err(context.charge_address(&app, RatePolicy::AuthFailures).err().unwrap_or(error)),
    };
    redeem_token(app, context, headers, fields.get("token").unwrap_or_default()).await
}

async fn redeem_token(
    app: SharedApp,
    context: Arc<RequestContext>,
    headers: HeaderMap,
    token: &str,
) -> Result<Response> {
    let session = app.redeem_signin_link(token, context.address, &context.request_id).await?;
    let Some(session) = session else { return refuse_link(&app, &context) };
    app.clone().end_replaced_sessions(headers, context).await;
    let base_url = &app.settings.base_url;
    let cookie = cookie::set_cookie_header(base_url.cookie_name(), session.expose_secret(), base_url.is_https());
    redirect_with_cookies(sso::DEFAULT_REDIRECT, &[cookie])
}

/// The URL of the provider, and the cookies that the browser must bring back.
async fn begin_sso(
    app: &SharedApp,
    request: SignOnRequest<'_>,
) -> Result<Result<(String, Vec<String>), SignInRefusal>> {
    match sso::begin_sign_on(app, request).await {
        Ok(redirect) => Ok(Ok((redirect.url, redirect.cookies))),
        Err(error) if error.code().status() == 404 => Ok(Err(SignInRefusal::Unknown)),
        Err(error) if error.code().status() == 503 => {
            tracing::warn!(%error, "failed to begin a sign-on");
            Ok(Err(SignInRefusal::Away))
        }
        Err(error) => Err(error),
    }
}

/// The requested destination, if it is a path of this service. Others are ignored, because the page works without one.
fn own_path(text: &str) -> Option<&str> {
    sso::parse_redirect(text).is_ok().then_some(text)
}

/// The token of a sign-in link. Its alphabet needs no decoding.
fn find_token(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}
