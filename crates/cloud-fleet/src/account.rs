//! Opens the adapter of a provider.

use std::sync::Arc;

use clouds::{CloudAdapter, CloudCredentials, CloudError, CloudErrorKind, open_cloud};
use kernel::base::TenantId;
use kernel::http::App;

use crate::pace::PaceLimits;
use crate::providers::store::StoredProvider;
use crate::settings::CloudSettings;
use crate::transport::GuardedTransport;

/// What users are told of credentials that do not open: their key is lost, or they were changed or moved in the database.
const UNOPENED: &str = "The stored credentials of this provider cannot be opened. Enter them again with PUT, or ask the \
                        operator of the service, whose log says why.";

/// The adapter with the credentials of a provider. Requests are paced by the account if it is known, else by the provider.
/// Somebody who waits gets an answer sooner. It fails if the credentials do not open, which the log explains.
pub fn open_account(
    app: &App,
    tenant: TenantId,
    stored: &StoredProvider,
    for_caller: bool,
) -> Result<Arc<dyn CloudAdapter>, CloudError> {
    let settings: CloudSettings = app.settings.feature_settings();
    let provider = stored.record.id;
    let key = (tenant, provider, stored.credentials_version, stored.account_id.clone(), for_caller);
    // Opened each time: a value that was moved must not work because another had worked.
    let credentials = stored.open_credentials(tenant, &app.secrets).map_err(|error| {
        let version = stored.credentials_version;
        tracing::error!(%error, %tenant, %provider, version, "stored credentials of a cloud provider do not open");
        CloudError { kind: CloudErrorKind::Unavailable, code: None, detail: UNOPENED.to_owned(), retry_after_ms: None }
    })?;
    if let Some(adapter) = settings.accounts.find_open(&key) {
        return Ok(adapter);
    }
    let adapter = open_adapter(app, &settings, (tenant, stored), credentials, for_caller);
    settings.accounts.keep(key, adapter.clone());
    Ok(adapter)
}

fn open_adapter(
    app: &App,
    settings: &CloudSettings,
    (tenant, stored): (TenantId, &StoredProvider),
    credentials: CloudCredentials,
    for_caller: bool,
) -> Arc<dyn CloudAdapter> {
    let kind = credentials.kind();
    let mut limits = PaceLimits::for_kind(kind);
    if let Some(per_second) = settings.requests_per_second {
        limits = PaceLimits { burst: per_second.max(1.0), per_second };
    }
    let transport = GuardedTransport {
        env: app.env.clone(),
        kind,
        outbound: settings.client_for(kind, &app.outbound),
        tenant,
        paces: settings.paces.clone(),
        limits,
        account: stored.account_id.clone().unwrap_or_else(|| stored.record.id.to_string()),
        for_caller,
    };
    open_cloud(credentials, &settings.endpoints, Arc::new(transport)).into()
}
