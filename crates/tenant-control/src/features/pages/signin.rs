//! `/signin`: a work e-mail address leads to the identity provider of its domain. With the token of a sign-in link it is the
//! page of that link (`signin_link.rs`).

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use kernel::auth::SIGNIN_LINK_MS;
use kernel::base::{Error, Result, is_email};
use kernel::http::{Context, Form, FormFields, Policy, Settings, Shared};

use super::page::{IN_A_MINUTE, Page, REFERRER_POLICY, words};
use super::signin_link;
use people::sso::{self, Asked};

#[derive(Template)]
#[template(path = "signin.html")]
struct SignIn<'a> {
    here: &'static str,
    /// The user followed a link that is unknown, used or expired.
    is_refused: bool,
    /// The address that was typed, and why it was refused.
    email: &'a str,
    refusal: Option<Refusal>,
    redirect_to: Option<&'a str>,
    link_lifetime: String,
    idle_limit: String,
    absolute_limit: String,
}

impl<'a> SignIn<'a> {
    fn new(settings: &Settings, redirect_to: Option<&'a str>) -> Self {
        SignIn {
            here: "/signin",
            is_refused: false,
            email: "",
            refusal: None,
            redirect_to,
            link_lifetime: words(SIGNIN_LINK_MS),
            idle_limit: words(settings.session_idle_ms),
            absolute_limit: words(settings.session_absolute_ms),
        }
    }

    fn page(&self, settings: &Settings, status: StatusCode) -> Result<Response> {
        Page::leading(self, &settings.base_url).map(|page| page.status(status).into_response())
    }
}

/// Why an e-mail address leads to no provider.
#[derive(Clone, Copy)]
enum Refusal {
    Malformed,
    /// One answer for every address without a provider, so that nobody can find out who the customers are.
    Unknown,
    Away,
}

impl Refusal {
    fn status(self) -> StatusCode {
        match self {
            Refusal::Malformed => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Unknown => StatusCode::NOT_FOUND,
            Refusal::Away => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Refusal::Malformed => "Type your whole e-mail address, such as you@example.com.",
            Refusal::Unknown => "No sign-on is set up for this address. Ask your administrator, or use a sign-in link.",
            Refusal::Away => {
                "Your provider or this service cannot be used right now. Try again in a minute, or use a sign-in link."
            }
        }
    }

    /// Whether another e-mail address would help.
    fn is_of_email(self) -> bool {
        !matches!(self, Refusal::Away)
    }
}

/// Showing the form is charged as a page. A link is looked up even if the rate limit of the address is used up, and charged
/// only if it is invalid.
pub async fn signin(
    State(app): State<Shared>,
    Extension(context): Extension<Arc<Context>>,
    uri: Uri,
) -> Result<Response> {
    if let Some(token) = find_token(&uri) {
        return signin_link::show(&app, &context, token).await;
    }
    // The request is counted but never refused: a script at the same address must not prevent people from signing in.
    drop(context.charge_address(&app, Policy::Public));
    let asked = FormFields::parse(uri.query().unwrap_or_default());
    let form = SignIn::new(&app.settings, asked.get("redirect_to").and_then(own_path));
    form.page(&app.settings, StatusCode::OK)
}

/// One page for a link that is unknown, used or expired; it offers the other ways to sign in.
pub fn refuse_link(app: &Shared, context: &Context) -> Result<Response> {
    context.charge_address(app, Policy::AuthFailures)?;
    SignIn { is_refused: true, ..SignIn::new(&app.settings, None) }.page(&app.settings, StatusCode::GONE)
}

/// Handles the form: redirects to the provider of the address, or shows the form again with the error. A POST to the URL of
/// a link redeems it, like its button.
pub async fn begin_signin(
    State(app): State<Shared>,
    Extension(context): Extension<Arc<Context>>,
    uri: Uri,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    if let Some(token) = find_token(&uri) {
        return signin_link::redeem(app, context, headers, token).await;
    }
    context.charge_address(&app, Policy::Auth)?;
    let fields = form.read().await?;
    let email = fields.get("email").unwrap_or_default().trim();
    let redirect_to = fields.get("redirect_to").and_then(own_path);
    let begun = match sso::email_domain(email).filter(|_| is_email(email)) {
        Some(domain) => {
            let redirect_to = redirect_to.unwrap_or(sso::DEFAULT_REDIRECT);
            begin(&app, Asked { domain: &domain, redirect_to, login_hint: Some(email), headers: &headers }).await?
        }
        None => Err(Refusal::Malformed),
    };
    match begun {
        Ok((url, cookies)) => redirect(&url, &cookies),
        Err(refusal) => {
            if matches!(refusal, Refusal::Unknown) {
                context.charge_address(&app, Policy::AuthFailures)?;
            }
            let again = SignIn { email, refusal: Some(refusal), ..SignIn::new(&app.settings, redirect_to) };
            let page = again.page(&app.settings, refusal.status())?;
            Ok(if refusal.is_of_email() { page } else { ([IN_A_MINUTE], page).into_response() })
        }
    }
}

/// The URL of the provider, and the cookies that the browser must bring back.
async fn begin(app: &Shared, asked: Asked<'_>) -> Result<Result<(String, Vec<String>), Refusal>> {
    match sso::begin(app, asked).await {
        Ok(begun) => Ok(Ok((begun.url, begun.cookies))),
        Err(error) if error.code().status() == 404 => Ok(Err(Refusal::Unknown)),
        Err(error) if error.code().status() == 503 => {
            tracing::warn!(%error, "failed to begin a sign-on");
            Ok(Err(Refusal::Away))
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

pub fn redirect(location: &str, cookies: &[String]) -> Result<Response> {
    let headers = [
        (header::LOCATION, HeaderValue::try_from(location).map_err(Error::internal)?),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, REFERRER_POLICY),
    ];
    let mut response = (StatusCode::SEE_OTHER, headers).into_response();
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, HeaderValue::try_from(cookie).map_err(Error::internal)?);
    }
    Ok(response)
}
