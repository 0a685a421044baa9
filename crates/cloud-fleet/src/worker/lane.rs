//! The work on one provider, or on one of its regions, while this node leases its lane.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kernel::base::{MINUTE_MS, Result};
use kernel::jobs::ServerNode;
use kernel::jobs::dispatch::{DueJobs, JobCompletion, JobsInFlight, LaneWork, LoadResult, SaveReport};
use kernel::jobs::lanes::LeasedLane;

use super::job::{CloudJobId, JobContext};
use super::store::{self, DueOperation};
use super::{operation, sync};
use crate::providers::ProviderId;
use crate::providers::store::{StoredProvider, find_stored, mark_verifying};
use crate::providers::verify::store::{ask_cloud, save_verification};
use crate::settings::CloudSettings;
use crate::vms::forget::store::{ForgetProgress, forget_batch};

/// Orders of a region that are worked on at once.
const OPERATIONS_MAX: usize = 10;
/// A job that failed for a reason of our own is repeated later.
const FAILURE_PAUSE_MS: i64 = MINUTE_MS;
const FAILURE_PAUSE: Duration = Duration::from_secs(2);

pub struct CloudLane {
    node: ServerNode,
    lane: LeasedLane,
    provider_id: ProviderId,
    /// None on the lane of the provider itself.
    region: Option<String>,
    provider: Option<Arc<StoredProvider>>,
}

pub enum CloudJob {
    Verify,
    Sync,
    Operation(Box<DueOperation>),
}

impl LaneWork for CloudLane {
    const JOBS: &'static str = "work on clouds";
    type Id = CloudJobId;
    type Job = CloudJob;
    /// Jobs save what they do.
    type Outcome = ();

    fn job_id(job: &CloudJob) -> CloudJobId {
        match job {
            CloudJob::Verify => CloudJobId::Verify,
            CloudJob::Sync => CloudJobId::Sync,
            CloudJob::Operation(due) => CloudJobId::Operation(due.id),
        }
    }

    async fn load_lane(&mut self, _: &JobsInFlight<CloudJobId>) -> Result<LoadResult> {
        let provider = find_stored(self.lane.db(), self.provider_id).await?;
        let is_listed = |provider: &StoredProvider| {
            self.region.as_ref().is_none_or(|region| provider.record.regions.contains(region))
        };
        let Some(provider) = provider.filter(is_listed) else {
            self.provider = None;
            return self.end_lane().await;
        };
        self.provider = Some(Arc::new(provider));
        Ok(LoadResult::Ready)
    }

    async fn load_due_jobs(&mut self, in_flight: &JobsInFlight<CloudJobId>) -> Result<Option<DueJobs<CloudJob>>> {
        let (db, now) = (self.lane.db(), self.node.env.now());
        let mut jobs = VecDeque::new();
        let Some(provider) = &self.provider else { return Ok(Some(DueJobs::default())) };
        let Some(region) = &self.region else {
            let verify_at = store::find_verify_at(db, self.provider_id).await?;
            if verify_at.is_some_and(|at| at <= now) && in_flight.is_empty() {
                jobs.push_back(CloudJob::Verify);
            }
            return Ok(Some(DueJobs { jobs, next: verify_at }));
        };
        let sync_at = store::find_sync_at(db, self.provider_id, region).await?.filter(|_| provider.record.enabled);
        if sync_at.is_some_and(|at| at <= now) && !in_flight.contains_job(&CloudJobId::Sync) {
            jobs.push_back(CloudJob::Sync);
        }
        let room = OPERATIONS_MAX.saturating_sub(in_flight.running_count());
        let due = store::list_due_operations(db, provider, region, now, OPERATIONS_MAX).await?;
        let is_new = |due: &DueOperation| !in_flight.contains_job(&CloudJobId::Operation(due.id));
        jobs.extend(due.into_iter().filter(is_new).take(room).map(|due| CloudJob::Operation(Box::new(due))));
        let next_operation = store::find_next_operation(db, provider, region).await?;
        Ok(Some(DueJobs { jobs, next: [sync_at, next_operation].into_iter().flatten().min() }))
    }

    fn start_job(&mut self, job: CloudJob) -> BoxFuture<'static, JobCompletion<()>> {
        let Some(provider) = self.provider.clone() else { return Box::pin(async { JobCompletion::Saved }) };
        let context = JobContext { node: self.node.clone(), lane: self.lane.clone(), provider };
        let (id, region) = (Self::job_id(&job), self.region.clone().unwrap_or_default());
        let key = self.lane.key.clone();
        Box::pin(async move {
            let work = async {
                match job {
                    CloudJob::Verify => verify_account(&context).await,
                    CloudJob::Sync => sync::sync_region(&context, &region).await,
                    CloudJob::Operation(due) => operation::run_step(&context, *due).await,
                }
            };
            let failure = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(Ok(true)) => return JobCompletion::Saved,
                Ok(Ok(false)) => return JobCompletion::Lost,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it panicked".to_owned(),
            };
            tracing::warn!(error = failure, lane = key, "work on a cloud failed; will retry");
            let (provider, now) = (context.provider.record.id, context.now());
            let at = now.plus_ms(FAILURE_PAUSE_MS);
            let deferred = context
                .lane
                .tick_and_write_if_held(async move |tx| store::defer_job(tx, provider, (id, &region), (now, at)).await)
                .await;
            match deferred {
                Ok(Some(())) => JobCompletion::Saved,
                Ok(None) => JobCompletion::Lost,
                Err(_) => {
                    // The database is away: the job is due again at once.
                    tokio::time::sleep(FAILURE_PAUSE).await;
                    JobCompletion::Saved
                }
            }
        })
    }

    fn save_outcomes(&mut self, _: Arc<Vec<()>>) -> BoxFuture<'static, Result<SaveReport>> {
        Box::pin(async { Ok(SaveReport { lease_held: true, must_reload: false }) })
    }

    async fn send_heartbeat(&mut self, _: Vec<CloudJobId>) -> Result<bool> {
        Ok(self.lane.write_if_held(async |_| Ok(())).await?.is_some())
    }

    async fn release_lane(&mut self) -> Result<()> {
        let (lane, id, region) = (self.lane.clone(), self.provider_id, self.region.clone());
        let now = self.node.env.now();
        // Read here, not before: the provider may have been enabled or verified since the lane was loaded.
        let released = self.lane.write_if_held(async move |tx| {
            let due = store::find_next_due(tx, id, region.as_deref()).await?;
            lane.release_lease(tx, due.map(|due| due.max(now)), None).await
        });
        released.await.map(drop)
    }
}

impl CloudLane {
    pub fn new(node: ServerNode, lane: LeasedLane, provider_id: ProviderId, region: Option<String>) -> Self {
        CloudLane { node, lane, provider_id, region, provider: None }
    }

    /// The provider was deleted, or lists the region no longer: a batch of its machines leaves the list, and after the last
    /// the lane ends.
    async fn end_lane(&self) -> Result<LoadResult> {
        let (lane, provider, region) = (self.lane.clone(), self.provider_id, self.region.clone());
        let ended = self.lane.tick_and_write_if_held(async move |tx| {
            let progress = forget_batch(tx, provider, region.as_deref()).await?;
            if progress == ForgetProgress::Done {
                lane.delete_lane(tx).await?;
            }
            Ok(progress)
        });
        Ok(match ended.await? {
            None | Some(ForgetProgress::Done) => LoadResult::Gone,
            Some(ForgetProgress::More | ForgetProgress::RegionReturned) => LoadResult::More,
        })
    }
}

/// Verifies the credentials. Returns false when the lease is lost.
async fn verify_account(context: &JobContext) -> Result<bool> {
    let provider = context.provider.clone();
    let marked = context.lane.tick_and_write_if_held(async move |tx| mark_verifying(tx, &provider).await).await?;
    if marked.is_none() {
        return Ok(false);
    }
    let outcome = ask_cloud(&context.node, context.lane.db(), &context.provider, false).await?;
    let (id, now) = (context.provider.record.id, context.now());
    let settings: CloudSettings = context.node.settings.feature_settings();
    let every = settings.verify_every_ms;
    let saved = context
        .lane
        .tick_and_write_if_held(async move |tx| save_verification(tx, id, outcome, (now, every), false).await)
        .await?;
    Ok(saved.is_some())
}
