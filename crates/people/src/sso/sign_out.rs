//! Signing out at the provider too, if the operator wants it (OpenID Connect RP-Initiated Logout).

use std::time::Duration;

use kernel::auth::EndedSession;
use kernel::base::{Actor, Error, Result};
use kernel::http::SharedApp;
use tokio::time::timeout;

use super::flow::with_query;
use super::{ProviderId, SIGNED_OUT_PATH, discovery, store};

/// A person waits for this. The metadata is nearly always cached.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The provider's URL for signing out, after a session of that provider has ended here. `None` if the provider has none or
/// it cannot be found out now: the session has ended in any case. The URL has the stored ID token, if there is one, because
/// some providers require it.
pub async fn sign_out_url(app: &SharedApp, ended: &EndedSession) -> Option<String> {
    let provider = ended.provider.as_str();
    let cause = match timeout(LOOKUP_TIMEOUT, find_sign_out_url(app, ended)).await {
        Ok(Ok(url)) => return url,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took too long".to_owned(),
    };
    tracing::warn!(provider, cause, "failed to find the provider's sign-out URL");
    None
}

async fn find_sign_out_url(app: &SharedApp, ended: &EndedSession) -> Result<Option<String>> {
    let id = ended.provider.parse::<ProviderId>().map_err(Error::internal)?;
    let db = app.signing_on_to(ended.tenant, Actor::for_system());
    let Some(found) = store::find_sign_out_provider(&db, id).await? else { return Ok(None) };
    let metadata =
        discovery::get_metadata(app, &found, None).await.map_err(|refused| Error::unavailable(refused.detail))?;
    let Some(endpoint) = &metadata.end_session_endpoint else { return Ok(None) };
    let return_url = format!("{}{SIGNED_OUT_PATH}", app.settings.base_url.as_str());
    let hint = ended.id_token.as_deref().map(|token| ("id_token_hint", token));
    let own_parameters = [("client_id", found.client_id.as_str()), ("post_logout_redirect_uri", return_url.as_str())];
    let parameters: Vec<(&str, &str)> = hint.into_iter().chain(own_parameters).collect();
    Ok(Some(with_query(endpoint.as_str(), &parameters)))
}
