//! `/internal/auth/sso/callback`: where identity providers redirect users to. They are signed in and redirected, or see why
//! not.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use kernel::base::{Error, Result};
use kernel::http::{RatePolicy, RequestContext, SharedApp};
use people::cookie;
use people::sso::{CallbackOutcome, CallbackRequest, RefusalMessage, complete_sign_on};

use super::page::{HtmlPage, REFERRER_POLICY, RETRY_IN_A_MINUTE, redirect_with_cookies};

#[derive(Template)]
#[template(path = "sso_refused.html")]
struct SsoRefused<'a> {
    here: &'static str,
    heading: &'static str,
    lead: &'static str,
    advice: &'static str,
    request_id: &'a str,
}

pub async fn handle_sso_callback(
    State(app): State<SharedApp>,
    Extension(context): Extension<Arc<RequestContext>>,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response> {
    // Only GET uses up the sign-on: programs that preview links send HEAD.
    if method != Method::GET {
        context.charge_address(&app, RatePolicy::Public)?;
        return Ok([(header::REFERRER_POLICY, REFERRER_POLICY)].into_response());
    }
    let base_url = &app.settings.base_url;
    let request = CallbackRequest {
        query: uri.query().unwrap_or_default(),
        headers: &headers,
        address: context.address,
        request_id: context.request_id.clone(),
    };
    let ended = match complete_sign_on(&app, request).await {
        Ok(ended) => ended,
        // A person waits for the answer, so it is a page.
        Err(error) if error.code().status() == 503 => {
            tracing::warn!(%error, request_id = &*context.request_id, "failed to finish a sign-on");
            return Ok(
                ([RETRY_IN_A_MINUTE], render_sso_refusal(RefusalMessage::Unavailable, &context)?).into_response()
            );
        }
        Err(error) => return Err(error),
    };
    match ended {
        CallbackOutcome::SignedIn { session, redirect_to, cookie } => {
            app.clone().end_replaced_sessions(headers, context).await;
            let session =
                cookie::set_cookie_header(base_url.cookie_name(), session.expose_secret(), base_url.is_https());
            redirect_with_cookies(&redirect_to, &[session, cookie::clear_cookie_header(&cookie, base_url.is_https())])
        }
        CallbackOutcome::Unknown => {
            tracing::info!(request_id = &*context.request_id, "sign-on callback without a matching cookie");
            context.charge_address(&app, RatePolicy::AuthFailures)?;
            render_sso_refusal(RefusalMessage::TryAgain, &context)
        }
        CallbackOutcome::Refused { message, cookie } => {
            // The reason is shown even past the rate limit: the sign-on was valid, and is used up.
            drop(context.charge_address(&app, RatePolicy::AuthFailures));
            let mut response = render_sso_refusal(message, &context)?;
            let cleared = cookie::clear_cookie_header(&cookie, base_url.is_https());
            response.headers_mut().append(header::SET_COOKIE, HeaderValue::try_from(cleared).map_err(Error::internal)?);
            Ok(response)
        }
    }
}

fn render_sso_refusal(message: RefusalMessage, context: &RequestContext) -> Result<Response> {
    let (status, heading, lead, advice) = match message {
        RefusalMessage::TryAgain => (
            StatusCode::BAD_REQUEST,
            "This sign-in has ended",
            "It was finished before, took longer than ten minutes, began in another browser, or the provider was changed \
             meanwhile.",
            "Begin again, and stay in the same browser until you are back.",
        ),
        RefusalMessage::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Not right now",
            "This service cannot sign anybody in at the moment.",
            "Wait a minute, then load this page again, or begin again.",
        ),
        RefusalMessage::Provider => (
            StatusCode::BAD_REQUEST,
            "Your provider did not sign you in",
            "The provider of your organization refused, could not be reached, or gave an answer that cannot be \
             trusted.",
            "Begin again. If it happens once more, tell your administrator.",
        ),
        RefusalMessage::NotAllowed => (
            StatusCode::FORBIDDEN,
            "You cannot sign in here",
            "Your provider knows you, but this account may not use this service.",
            "Ask your administrator whether you should be able to, and whether your e-mail address is confirmed at your \
             provider.",
        ),
    };
    let refused = SsoRefused { here: "/signin", heading, lead, advice, request_id: &context.request_id };
    Ok(HtmlPage::new(&refused)?.with_status(status).into_response())
}
