//! Signing out at the provider too, where the operator wants it (OpenID Connect RP-Initiated Logout).

use std::time::Duration;

use kernel::auth::EndedSession;
use kernel::base::{Actor, Error, Result};
use kernel::http::Shared;
use tokio::time::timeout;

use super::flow::with_query;
use super::{ProviderId, SIGNED_OUT_PATH, discovery, store};

/// Somebody has signed out and waits to see it. What the provider says of itself is nearly always known.
const FINDING_MAX: Duration = Duration::from_secs(2);

/// Where somebody is led who was signed in by this provider and has signed out here. None if they are led nowhere, or nobody can
/// tell right now: they are signed out in any case. Their ID token goes along, if it was kept: some providers do not sign anybody
/// out without it.
pub async fn sign_out_url(app: &Shared, ended: &EndedSession) -> Option<String> {
    let provider = ended.provider.as_str();
    let cause = match timeout(FINDING_MAX, find(app, ended)).await {
        Ok(Ok(url)) => return url,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took too long".to_owned(),
    };
    tracing::warn!(provider, cause, "somebody has signed out here, and is not led to their provider");
    None
}

async fn find(app: &Shared, ended: &EndedSession) -> Result<Option<String>> {
    let id = ended.provider.parse::<ProviderId>().map_err(Error::internal)?;
    let db = app.signing_on_to(ended.tenant, Actor::system());
    let Some(found) = store::find_to_sign_out(&db, id).await? else { return Ok(None) };
    let metadata =
        discovery::metadata(app, &found, None).await.map_err(|trouble| Error::unavailable(trouble.detail))?;
    let Some(endpoint) = &metadata.end_session_endpoint else { return Ok(None) };
    let back = format!("{}{SIGNED_OUT_PATH}", app.settings.base_url.as_str());
    let hint = ended.id_token.as_deref().map(|token| ("id_token_hint", token));
    let known = [("client_id", found.client_id.as_str()), ("post_logout_redirect_uri", back.as_str())];
    let parameters: Vec<(&str, &str)> = hint.into_iter().chain(known).collect();
    Ok(Some(with_query(endpoint.as_str(), &parameters)))
}
