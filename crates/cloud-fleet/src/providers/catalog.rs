//! What a cloud offers: regions, sizes and images, asked of the cloud itself.

use std::sync::Arc;

use clouds::{CatalogKind, CloudAdapter, CloudError, CloudErrorKind};
use kernel::base::{Code, Error, Result};
use kernel::http::App;
use kernel::store::Db;

use super::catalog_cache::{CatalogEntry, CatalogKey};
use super::{ProviderId, store};
use crate::account::open_account;
use crate::settings::CloudSettings;

/// All entries of a catalog, by id.
pub async fn list_catalog(
    app: &App,
    db: &Db,
    id: ProviderId,
    kind: CatalogKind,
    region: Option<&str>,
) -> Result<Arc<Vec<CatalogEntry>>> {
    let stored = store::get_stored(db, id).await?;
    let tenant = db.tenant_id().ok_or_else(|| Error::internal("a provider belongs to a tenant"))?;
    let cloud = open_account(app, tenant, &stored, true).map_err(|unopened| Error::conflict(unopened.detail))?;
    let own_regions = &stored.record.regions;
    let load = async |kind: CatalogKind, region: Option<&str>| {
        let region = region.or_else(|| own_regions.first().map(String::as_str));
        let key = (tenant, id, stored.credentials_version, kind, region.map(str::to_owned));
        load_catalog(app, cloud.as_ref(), key).await
    };
    // Some clouds say of a region that they do not have that it offers nothing.
    if let Some(asked) = region.filter(|asked| !own_regions.iter().any(|own| own == asked)) {
        let offered = load(CatalogKind::Regions, None).await?;
        if !offered.iter().any(|entry| entry.id == *asked) {
            return Err(unknown_region(&format!("it has no {asked:?}")));
        }
    }
    load(kind, region).await
}

async fn load_catalog(app: &App, cloud: &dyn CloudAdapter, key: CatalogKey) -> Result<Arc<Vec<CatalogEntry>>> {
    let settings: CloudSettings = app.settings.feature_settings();
    let now = app.env.now();
    if let Some(entries) = settings.catalogs.find_kept(&key, now) {
        return Ok(entries);
    }
    let items = cloud.list_catalog(key.3, key.4.as_deref(), now).await.map_err(|error| into_refusal(&error))?;
    let mut entries: Vec<CatalogEntry> =
        items.into_iter().map(Into::into).filter(CatalogEntry::has_usable_id).collect();
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    entries.dedup_by(|a, b| a.id == b.id);
    let entries = Arc::new(entries);
    settings.catalogs.keep(&key, entries.clone(), now);
    Ok(entries)
}

fn unknown_region(detail: &str) -> Error {
    Error::new(Code::InvalidParameter, format!("The cloud does not know this region: {detail}"))
}

/// What the caller is told when the cloud gives no catalog.
fn into_refusal(error: &CloudError) -> Error {
    match error.kind {
        CloudErrorKind::Invalid | CloudErrorKind::NotFound => unknown_region(&error.detail),
        CloudErrorKind::Auth | CloudErrorKind::Permission => {
            Error::conflict(format!("The cloud refuses to tell it: {}", error.detail))
        }
        _ => {
            let seconds = error.retry_after_ms.map_or(10, |ms| ms.max(0).unsigned_abs().div_ceil(1_000));
            Error::unavailable(error.detail.clone())
                .with_retry_detail(format!("The cloud does not answer: {}", error.detail), seconds)
        }
    }
}
