//! Verifies a provider: asks the cloud who the credentials are and what they may do, and saves the answer.

use std::time::Duration;

use clouds::Verification;
use kernel::args;
use kernel::base::{Error, Result, StringEnum, Timestamp};
use kernel::events;
use kernel::http::App;
use kernel::store::{Db, Tx, to_json};

use super::super::store::{self, RESUME_SYNC, STOP_SYNC, StoredProvider, find_in_tx, get_in_tx, wake_lanes};
use super::super::{
    CLOUD_PROVIDER_FAILED, CLOUD_PROVIDER_VERIFIED, ProviderId, ProviderStatus, ReportedError, ReportedIdentity,
    VerificationReport, judge_verification,
};
use crate::account::open_account;
use crate::cloud_text::clean_text;
use crate::settings::CloudSettings;

kernel::statements! {
    POSTPONE_VERIFICATION = "UPDATE cloud_providers SET verify_at = $3, verify_failures = 1 WHERE tenant_id = $1 AND id = $2";
    SAVE_VERIFICATION = "UPDATE cloud_providers SET status = $3, account_id = $4, verification = $5, last_verified_at = $6,
            verify_at = $7, verify_failures = $8 WHERE tenant_id = $1 AND id = $2";
}

/// The longest name of an account, and of a principal.
const ACCOUNT_CHARS_MAX: usize = 255;
/// The longest that somebody waits for a verification.
const CALLER_WAITS_MAX: Duration = Duration::from_secs(25);

/// Asks the cloud for somebody who waits, and saves nothing.
pub async fn ask_for_caller(app: &App, db: &Db, id: ProviderId) -> Result<VerificationOutcome> {
    let stored = store::get_stored(db, id).await?;
    stored.check_enabled()?;
    // A cloud that is slow today says nothing of the credentials: the verification in the background, which takes its time, does.
    match tokio::time::timeout(CALLER_WAITS_MAX, ask_cloud(app, db, &stored, true)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::unavailable("the cloud did not answer all questions of a verification in time")),
    }
}

/// Verifies the credentials of a provider now.
pub async fn verify_provider(app: &App, db: &Db, id: ProviderId) -> Result<VerificationReport> {
    let outcome = ask_for_caller(app, db, id).await?;
    let times = (app.env.now(), verify_every_ms(app));
    db.write(async move |tx| save_for_caller(tx, id, outcome, times).await).await
}

/// Saves a verification that somebody has asked for.
pub async fn save_for_caller(
    tx: &mut Tx,
    id: ProviderId,
    outcome: VerificationOutcome,
    times: (Timestamp, i64),
) -> Result<VerificationReport> {
    let report = outcome.report.clone();
    if save_verification(tx, id, outcome, times, true).await? {
        return Ok(report);
    }
    Err(Error::conflict("The provider was changed while it was verified. Verify it again."))
}

/// How often credentials are verified.
pub fn verify_every_ms(app: &App) -> i64 {
    app.settings.feature_settings::<CloudSettings>().verify_every_ms
}

/// Asks the cloud, and writes nothing.
pub async fn ask_cloud(app: &App, db: &Db, stored: &StoredProvider, for_caller: bool) -> Result<VerificationOutcome> {
    let tenant = db.tenant_id().ok_or_else(|| Error::internal("a provider belongs to a tenant"))?;
    let began = app.env.now();
    let verification = match open_account(app, tenant, stored, for_caller) {
        Ok(cloud) => cloud.verify(&stored.record.regions, began).await,
        Err(failure) => Verification { identity: None, checks: Vec::new(), failure: Some(failure) },
    };
    Ok(to_outcome(verification, stored, (began, app.env.now())))
}

fn to_outcome(
    verification: Verification,
    stored: &StoredProvider,
    (began, ended): (Timestamp, Timestamp),
) -> VerificationOutcome {
    let status = judge_verification(&verification);
    let account = |text: &str| clean_text(text, ACCOUNT_CHARS_MAX);
    let account_id = verification.identity.as_ref().map(|identity| account(&identity.account_id));
    let report = VerificationReport {
        status: status.as_str().to_owned(),
        checked_at: ended.to_string(),
        duration_ms: ended.as_millis() - began.as_millis(),
        identity: verification.identity.map(|identity| ReportedIdentity {
            account_id: account(&identity.account_id),
            principal: account(&identity.principal),
        }),
        error: verification
            .failure
            .map(|failure| ReportedError { code: failure.kind.as_str().to_owned(), detail: failure.detail }),
        checks: verification.checks.into_iter().map(Into::into).collect(),
    };
    VerificationOutcome { status, account_id, report, provider_version: stored.record.version }
}

/// What follows from a verification.
pub struct VerificationOutcome {
    pub status: ProviderStatus,
    pub account_id: Option<String>,
    pub report: VerificationReport,
    /// The version of the provider that was verified.
    pub provider_version: i64,
}

/// Saves a verification, unless the provider was changed meanwhile: the verdict is of the credentials and regions that were
/// asked for. Returns false in that case. Syncs begin with the first success, and stop when the credentials are refused.
///
/// In the background, a cloud that cannot be reached for the first time changes nothing but the time of the next try.
pub async fn save_verification(
    tx: &mut Tx,
    id: ProviderId,
    outcome: VerificationOutcome,
    (now, verify_every_ms): (Timestamp, i64),
    for_caller: bool,
) -> Result<bool> {
    tx.tick().await?;
    metrics::counter!("cloud_verifications_total", "status" => outcome.status.as_str()).increment(1);
    let Some(stored) = find_in_tx(tx, id).await? else { return Ok(false) };
    if stored.record.version != outcome.provider_version || !stored.record.enabled {
        return Ok(false);
    }
    let was_usable = matches!(stored.record.status, ProviderStatus::Active | ProviderStatus::Degraded);
    if outcome.status == ProviderStatus::Error && !for_caller && was_usable && stored.verify_failures == 0 {
        let next = now.plus_ms(next_verification_ms(1, verify_every_ms, tx));
        tx.exec(POSTPONE_VERIFICATION, args![id, next]).await?;
        return Ok(true);
    }
    let failures = if outcome.status == ProviderStatus::Active { 0 } else { stored.verify_failures + 1 };
    let next = now.plus_ms(next_verification_ms(failures, verify_every_ms, tx));
    // A cloud that cannot be reached says nothing of whom the credentials belong to.
    let names_identity = outcome.account_id.is_some();
    let account = outcome.account_id.or(stored.account_id.filter(|_| outcome.status == ProviderStatus::Error));
    let report = to_json(&outcome.report)?;
    tx.exec(SAVE_VERIFICATION, args![id, outcome.status.as_str(), account, report, now, next, failures]).await?;
    match outcome.status {
        // What could not be asked, perhaps one region of many, does not keep the others waiting.
        ProviderStatus::Active | ProviderStatus::Degraded | ProviderStatus::Error if names_identity => {
            tx.exec(RESUME_SYNC, args![id, now]).await?;
            wake_lanes(tx, id, &stored.record.regions).await?;
        }
        ProviderStatus::Invalid => {
            tx.exec(STOP_SYNC, args![id]).await?;
        }
        _ => {}
    }
    if outcome.status != stored.record.status {
        publish_status(tx, id, outcome.status).await?;
    }
    Ok(true)
}

async fn publish_status(tx: &mut Tx, id: ProviderId, status: ProviderStatus) -> Result<()> {
    let record = get_in_tx(tx, id).await?.record;
    match status {
        ProviderStatus::Active => events::publish(tx, &CLOUD_PROVIDER_VERIFIED, id, &record).await.map(drop),
        ProviderStatus::Degraded | ProviderStatus::Invalid | ProviderStatus::Error => {
            events::publish(tx, &CLOUD_PROVIDER_FAILED, id, &record).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// A provider that is not active is verified again soon, then less often: a cloud comes back, and a new key or permission takes
/// a while to spread. Others are verified every few hours, not all at the same moment.
fn next_verification_ms(failures: i64, verify_every_ms: i64, tx: &Tx) -> i64 {
    const FIRST_RETRY_MS: i64 = 15_000;
    let [byte] = tx.env().random.public_bytes::<1>();
    let base = match u32::try_from(failures) {
        Ok(0) | Err(_) => verify_every_ms,
        Ok(failures) => FIRST_RETRY_MS.saturating_mul(1 << (2 * (failures - 1)).min(32)).min(verify_every_ms),
    };
    base + base * i64::from(byte) / (5 * 256)
}
