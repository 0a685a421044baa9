//! One sync of a region: reads all its machines, page by page, and finds out which are gone. Where the cloud lists all regions
//! together, the first region of the provider is synced for all of them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use clouds::{CloudAdapter, CloudError, CloudErrorKind, Machine, MachinePage};
use kernel::args;
use kernel::base::{HOUR_MS, MINUTE_MS, RecordId, Result, SECOND_MS, Timestamp};

use super::job::JobContext;
use super::store::{FAIL_SYNC, REGION_STATE, SAVE_SYNC, SKIP_SYNC, WorkBasis};
use super::tagged_machines::TaggedMachines;
use crate::pace::JOB_WAIT_MAX_MS;
use crate::providers::store::{find_stored, verify_soon};
use crate::settings::CloudSettings;
use crate::vms::VmId;
use crate::vms::known_accounts::store::{AccountMismatch, find_mismatch, list_known_before};
use crate::vms::machine_changes::store::{apply_machines, has_usable_id, list_unsaved, mark_gone, mark_missing};
use crate::vms::store::{LIVE_IN_REGION, LiveVm};

/// Machines that one transaction saves.
const CHUNK: usize = 100;
/// Machines and pages of a region: more are a mistake of the cloud's, or of ours.
const MACHINES_MAX: usize = 100_000;
const PAGES_MAX: usize = 5_000;
const EMPTY_PAGES_MAX: usize = 5;
/// Machines that are looked at one by one after a sync; the others are after the next, which is soon.
const LOOKS_MAX: usize = 200;
/// How often a page is asked for again when the cloud says that there were too many requests.
const RATE_RETRIES_MAX: u32 = 5;
/// How long a cloud can put off the next sync.
const RATE_WAIT_MAX_MS: i64 = HOUR_MS;
/// Machines that are read at once.
const LIVE_ROWS: i64 = 500;
/// How long a cloud may not show a machine that it has just made.
const UNLISTED_MAX_MS: i64 = 2 * MINUTE_MS;
/// The first wait after a sync that failed; it doubles each time.
const RETRY_MS: i64 = 30 * SECOND_MS;
/// The detail of an error that is kept.
const ERROR_CHARS_MAX: usize = 500;

/// The result of a part of a sync.
enum SyncStep {
    Done,
    /// Another node has the lane.
    Lost,
    /// The provider was changed, disabled or deleted: what was read belongs to nobody.
    Outdated,
    Failed(CloudError),
}

/// A sync under way.
struct RegionSync<'a> {
    context: &'a JobContext,
    region: &'a str,
    /// Its regions are those that are read: this one, or all of the provider.
    basis: WorkBasis,
    began: Timestamp,
    /// When it was due: a sync that is asked for meanwhile is not this one.
    due_at: Option<Timestamp>,
    failures: i64,
}

/// Syncs a region. Returns false when the lease is lost.
pub async fn sync_region(context: &JobContext, region: &str) -> Result<bool> {
    let (db, id) = (context.lane.db(), context.provider.record.id);
    let state: Option<(i64, Option<Timestamp>)> = db.find(REGION_STATE, args![id, region]).await?;
    let Some((failures, due_at)) = state else { return Ok(true) };
    // Read after the region: a verification that has just made the sync due has found out the account, too.
    let Some(provider) = find_stored(db, id).await? else { return Ok(true) };
    let context = &JobContext { provider: Arc::new(provider), ..context.clone() };
    let credentials_version = context.provider.credentials_version;
    let basis = WorkBasis { provider: id, regions: vec![region.to_owned()], credentials_version };
    let regions = &context.provider.record.regions;
    let mut sync = RegionSync { context, region, basis, began: context.now(), due_at, failures };
    let cloud = match context.open_cloud() {
        Ok(cloud) => cloud,
        Err(unopened) => return sync.fail(unopened).await,
    };
    if cloud.lists_all_regions() {
        if regions.first().is_some_and(|first| first != region) {
            return skip_sync(context, region, due_at).await;
        }
        sync.basis.regions.clone_from(regions);
    }
    match sync.read_machines(&*cloud).await? {
        SyncStep::Done => {}
        step => return sync.stop(step).await,
    }
    Ok(true)
}

/// The sync of another region reads this one, too.
async fn skip_sync(context: &JobContext, region: &str, due_at: Option<Timestamp>) -> Result<bool> {
    let (id, region) = (context.provider.record.id, region.to_owned());
    let skipped = context
        .lane
        .tick_and_write_if_held(async move |tx| tx.exec(SKIP_SYNC, args![id, region, due_at]).await)
        .await?;
    Ok(skipped.is_some())
}

impl RegionSync<'_> {
    async fn stop(&self, step: SyncStep) -> Result<bool> {
        match step {
            SyncStep::Lost => Ok(false),
            SyncStep::Done | SyncStep::Outdated => Ok(true),
            SyncStep::Failed(error) => self.fail(error).await,
        }
    }

    async fn read_machines(&self, cloud: &dyn CloudAdapter) -> Result<SyncStep> {
        match self.check_account(cloud).await? {
            SyncStep::Done => {}
            step => return Ok(step),
        }
        let mut seen = HashSet::new();
        let mut tagged = TaggedMachines::default();
        let mut cursor: Option<String> = None;
        let mut empty_pages = 0;
        for _ in 0..PAGES_MAX {
            // Nobody waits for the machines of a provider that is another by now.
            if !self.basis.is_current(self.context.lane.db()).await? {
                return Ok(SyncStep::Outdated);
            }
            let (asked_at, page) = match self.list_page(cloud, cursor.as_deref()).await {
                Ok(page) => page,
                Err(error) => return Ok(SyncStep::Failed(error)),
            };
            // A list that moves while it is read may show a machine twice.
            empty_pages = if page.machines.is_empty() { empty_pages + 1 } else { 0 };
            if empty_pages > EMPTY_PAGES_MAX && page.next_cursor.is_some() {
                let detail = "The cloud goes on listing pages without machines.".to_owned();
                return Ok(SyncStep::Failed(to_error(CloudErrorKind::Unavailable, detail)));
            }
            let is_covered = |machine: &Machine| self.basis.regions.contains(&machine.region) && has_usable_id(machine);
            let machines: BTreeMap<String, Machine> = page
                .machines
                .into_iter()
                .filter(is_covered)
                .map(|machine| (machine.external_id.clone(), machine))
                .collect();
            seen.extend(machines.keys().cloned());
            let machines: Vec<Machine> = machines.into_values().collect();
            for chunk in machines.chunks(CHUNK) {
                match self.save_chunk(chunk, asked_at, &mut tagged).await? {
                    SyncStep::Done => {}
                    step => return Ok(step),
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return match self.save_tagged(tagged).await? {
                    SyncStep::Done => self.finish(cloud, &seen).await,
                    step => Ok(step),
                };
            }
            if seen.len() > MACHINES_MAX {
                break;
            }
        }
        let detail = format!("The region has more than {MACHINES_MAX} machines or {PAGES_MAX} pages.");
        Ok(SyncStep::Failed(to_error(CloudErrorKind::Invalid, detail)))
    }

    /// Credentials may have been replaced by those of another account, to which all machines known here would seem to be gone.
    /// Where the cloud does not tell the account, one of the machines shows that it is the same.
    async fn check_account(&self, cloud: &dyn CloudAdapter) -> Result<SyncStep> {
        let (db, provider) = (self.context.lane.db(), &self.context.provider);
        let Some(account) = &provider.account_id else {
            let detail = "It is not known yet whose the credentials are.".to_owned();
            return Ok(SyncStep::Failed(to_error(CloudErrorKind::Unavailable, detail)));
        };
        let Some(mismatch) = find_mismatch(db, self.basis.provider, account).await? else { return Ok(SyncStep::Done) };
        let known = list_known_before(db, self.basis.provider, &provider.record.regions, account).await?;
        let count = known.len();
        let detail = match mismatch {
            AccountMismatch::Named(other) => format!(
                "The credentials belong to the account {account}, and the {count} machines known here to {other}. Replace the \
                 credentials, or create another provider for that account."
            ),
            AccountMismatch::Unproven => {
                match self.shows_any(cloud, &known.into_iter().collect()).await {
                    Ok(true) => return Ok(SyncStep::Done),
                    Ok(false) => {}
                    Err(error) => return Ok(SyncStep::Failed(error)),
                }
                format!(
                    "None of the {count} machines known here is shown to the new credentials: they seem to belong to another \
                     project. Replace them, or create another provider. If all of the machines were deleted meanwhile, delete \
                     this provider with force=true and create it again."
                )
            }
        };
        Ok(SyncStep::Failed(to_error(CloudErrorKind::Conflict, detail)))
    }

    /// Whether the cloud lists one of these machines. Nothing is saved.
    async fn shows_any(&self, cloud: &dyn CloudAdapter, known: &HashSet<String>) -> Result<bool, CloudError> {
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let (_, page) = self.list_page(cloud, cursor.as_deref()).await?;
            if page.machines.iter().any(|machine| known.contains(&machine.external_id)) {
                return Ok(true);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(false)
    }

    /// One page, and when it was asked for: again when the cloud says that there were too many requests, and that there may soon
    /// be others.
    async fn list_page(
        &self,
        cloud: &dyn CloudAdapter,
        cursor: Option<&str>,
    ) -> Result<(Timestamp, MachinePage), CloudError> {
        let mut retries = 0;
        loop {
            let region = Some(self.region).filter(|_| !cloud.lists_all_regions());
            let asked_at = self.context.now();
            match cloud.list_machines(region, cursor, asked_at).await {
                Err(error) if error.kind == CloudErrorKind::RateLimited && retries < RATE_RETRIES_MAX => {
                    let wait = error.retry_after_ms.unwrap_or(SECOND_MS << retries).max(100);
                    if wait > JOB_WAIT_MAX_MS {
                        return Err(error);
                    }
                    retries += 1;
                    tokio::time::sleep(Duration::from_millis(wait.unsigned_abs())).await;
                }
                answer => return answer.map(|page| (asked_at, page)),
            }
        }
    }

    /// Saves the machines that are new or have changed. New ones with the tag of an order are left for the end.
    async fn save_chunk(
        &self,
        machines: &[Machine],
        asked_at: Timestamp,
        tagged: &mut TaggedMachines,
    ) -> Result<SyncStep> {
        tagged.count_carriers(machines);
        let unsaved = list_unsaved(self.context.lane.db(), self.basis.provider, machines).await?;
        let mut machines = unsaved.changed;
        machines.extend(tagged.take_tagged(unsaved.new));
        self.save_machines(machines, asked_at).await
    }

    /// Saves the new machines with the tag of an order.
    async fn save_tagged(&self, tagged: TaggedMachines) -> Result<SyncStep> {
        for chunk in tagged.into_new_machines().chunks(CHUNK) {
            // One that its order has got since the sync began is as the order has saved it.
            let unsaved = list_unsaved(self.context.lane.db(), self.basis.provider, chunk).await?;
            match self.save_machines(unsaved.new, self.began).await? {
                SyncStep::Done => {}
                step => return Ok(step),
            }
        }
        Ok(SyncStep::Done)
    }

    async fn save_machines(&self, machines: Vec<Machine>, asked_at: Timestamp) -> Result<SyncStep> {
        if machines.is_empty() {
            return Ok(SyncStep::Done);
        }
        let basis = self.basis.clone();
        let saved = self
            .context
            .lane
            .tick_and_write_if_held(async move |tx| {
                if !basis.confirm(tx).await? {
                    return Ok(SyncStep::Outdated);
                }
                apply_machines(tx, basis.provider, &machines, asked_at).await?;
                Ok(SyncStep::Done)
            })
            .await?;
        Ok(saved.unwrap_or(SyncStep::Lost))
    }

    /// All pages were read.
    async fn finish(&self, cloud: &dyn CloudAdapter, seen: &HashSet<String>) -> Result<SyncStep> {
        // One that was made while the pages were read, or a moment before, may be on none of them.
        let is_old = |vm: &LiveVm| {
            let is_made = |at: Timestamp| self.began.as_millis() - at.as_millis() > UNLISTED_MAX_MS;
            !vm.is_ordered && (!vm.managed || vm.first_seen_at.is_none_or(is_made))
        };
        let mut missing = self.list_live().await?;
        missing.retain(|vm| !seen.contains(&vm.external_id) && is_old(vm));
        // Those that were missed first come first: one that the lists hide is missed anew after each look.
        missing.sort_by_key(|vm| vm.missing_since.map_or(i64::MAX, Timestamp::as_millis));
        match self.mark_all_missing(&missing).await? {
            SyncStep::Done => {}
            step => return Ok(step),
        }
        let mut note = None;
        for vm in missing.iter().take(LOOKS_MAX) {
            match self.look_at(cloud, vm).await? {
                SyncStep::Done => {}
                SyncStep::Failed(error) => {
                    let is_over = matches!(error.kind, CloudErrorKind::Auth | CloudErrorKind::RateLimited);
                    note = Some(error.detail);
                    if is_over {
                        break;
                    }
                }
                step => return Ok(step),
            }
        }
        self.save_end(note, missing.len() > LOOKS_MAX).await
    }

    /// The machines of the regions that are not known to be gone.
    async fn list_live(&self) -> Result<Vec<LiveVm>> {
        let (db, provider) = (self.context.lane.db(), self.basis.provider);
        let mut live = Vec::new();
        for region in &self.basis.regions {
            let mut after = VmId::NONE.to_string();
            loop {
                let rows: Vec<LiveVm> = db.list(LIVE_IN_REGION, args![provider, region, after, LIVE_ROWS]).await?;
                let Some(last) = rows.last() else { break };
                after = last.id.to_string();
                live.extend(rows);
            }
        }
        Ok(live)
    }

    /// Before they are looked at one by one: they were not seen by this sync.
    async fn mark_all_missing(&self, missing: &[LiveVm]) -> Result<SyncStep> {
        for chunk in missing.chunks(CHUNK) {
            let new: Vec<LiveVm> = chunk.iter().filter(|vm| vm.missing_since.is_none()).cloned().collect();
            if new.is_empty() {
                continue;
            }
            let (basis, began) = (self.basis.clone(), self.began);
            let saved = self
                .context
                .lane
                .tick_and_write_if_held(async move |tx| {
                    if !basis.confirm(tx).await? {
                        return Ok(SyncStep::Outdated);
                    }
                    for vm in &new {
                        mark_missing(tx, vm, began).await?;
                    }
                    Ok(SyncStep::Done)
                })
                .await?;
            match saved.unwrap_or(SyncStep::Lost) {
                SyncStep::Done => {}
                step => return Ok(step),
            }
        }
        Ok(SyncStep::Done)
    }

    /// Asks for one machine that the lists do not show: they may lag behind.
    async fn look_at(&self, cloud: &dyn CloudAdapter, missing: &LiveVm) -> Result<SyncStep> {
        let asked_at = self.context.now();
        let found = match cloud.find_machine(&missing.region, &missing.external_id, asked_at).await {
            Ok(found) => found,
            Err(error) => return Ok(SyncStep::Failed(error)),
        };
        let (basis, missed) = (self.basis.clone(), missing.clone());
        let saved = self
            .context
            .lane
            .tick_and_write_if_held(async move |tx| {
                if !basis.confirm(tx).await? {
                    return Ok(SyncStep::Outdated);
                }
                match found {
                    None => mark_gone(tx, &missed, asked_at).await?,
                    Some(machine) => apply_machines(tx, basis.provider, &[machine], asked_at).await?,
                }
                Ok(SyncStep::Done)
            })
            .await?;
        Ok(saved.unwrap_or(SyncStep::Lost))
    }

    /// Saves that the region was read completely.
    async fn save_end(&self, note: Option<String>, must_look_on: bool) -> Result<SyncStep> {
        let settings: CloudSettings = self.context.node.settings.feature_settings();
        let (basis, began, due_at, now) = (self.basis.clone(), self.began, self.due_at, self.context.now());
        let (synced, account) = (self.region.to_owned(), self.context.provider.account_id.clone());
        let every = if must_look_on { settings.sync_every_ms.min(RETRY_MS) } else { settings.sync_every_ms };
        let next = now.plus_ms(jitter(self.context, every));
        metrics::counter!("cloud_syncs_total", "outcome" => "succeeded").increment(1);
        let saved = self
            .context
            .lane
            .tick_and_write_if_held(async move |tx| {
                if !basis.confirm(tx).await? {
                    return Ok(SyncStep::Outdated);
                }
                let id = basis.provider;
                for region in &basis.regions {
                    // The others are due when somebody asks for them, and skipped then.
                    let due_at = due_at.filter(|_| *region == synced);
                    tx.exec(SAVE_SYNC, args![id, region, next, began, note, account, due_at]).await?;
                }
                Ok(SyncStep::Done)
            })
            .await?;
        Ok(saved.unwrap_or(SyncStep::Lost))
    }

    /// Saves why the region could not be read. Nothing is taken for gone. Returns false when the lease is lost.
    async fn fail(&self, error: CloudError) -> Result<bool> {
        let settings: CloudSettings = self.context.node.settings.feature_settings();
        let (basis, due_at, now) = (self.basis.clone(), self.due_at, self.context.now());
        let region = self.region.to_owned();
        tracing::info!(provider = %basis.provider, region, error = error.detail, "failed to sync a region");
        metrics::counter!("cloud_syncs_total", "outcome" => "failed").increment(1);
        let most = settings.sync_every_ms.max(RETRY_MS);
        let wait = jitter(self.context, RETRY_MS).saturating_mul(1 << self.failures.clamp(0, 10)).min(most);
        let next = now.plus_ms(wait.max(error.retry_after_ms.unwrap_or(0).min(RATE_WAIT_MAX_MS)));
        // One region may refuse credentials that others accept, because it is not enabled: a verification tells.
        let must_verify = error.kind == CloudErrorKind::Auth;
        let saved = self
            .context
            .lane
            .tick_and_write_if_held(async move |tx| {
                if !basis.confirm(tx).await? {
                    return Ok(());
                }
                let detail: String = error.detail.chars().take(ERROR_CHARS_MAX).collect();
                tx.exec(FAIL_SYNC, args![basis.provider, region, next, detail, due_at]).await?;
                if must_verify { verify_soon(tx, basis.provider, now).await } else { Ok(()) }
            })
            .await?;
        Ok(saved.is_some())
    }
}

fn to_error(kind: CloudErrorKind, detail: String) -> CloudError {
    CloudError { kind, code: None, detail, retry_after_ms: None }
}

/// Up to a fifth more, so that regions that began together are not synced together for good.
fn jitter(context: &JobContext, ms: i64) -> i64 {
    let [byte] = context.node.env.random.public_bytes::<1>();
    ms + ms * i64::from(byte) / (5 * 256)
}
