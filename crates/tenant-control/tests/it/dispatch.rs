//! What the dispatcher promises to whoever works on lanes, with work of the test's own: in which order it asks, and what it
//! does about each answer. The rest is tested by those who use it: see `webhooks/lanes.rs` and `webhooks/turns.rs`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kernel::base::{Actor, Error, Result};
use kernel::jobs::ServerNode;
use kernel::jobs::dispatch::{
    DispatchLimits, Dispatcher, DueJobs, JobCompletion, JobsInFlight, LaneWork, LoadResult, SaveReport, WorkKind,
};
use kernel::jobs::lanes::{self, LEASE_MS, LeasedLane};
use tokio::sync::Notify;

use crate::support::{Server, over_http};

/// How a job of the test ends.
#[derive(Clone)]
enum End {
    Noted,
    ToNote,
    Lost,
    Panic,
    /// As the first, when the lane rests.
    NotedAtRest,
}

/// What the lane answers, in this order, and what it was asked. When nothing is left, it goes on and has nothing due; and
/// nothing is due while something is under way. So looks that come with time, on a slow machine, change nothing.
#[derive(Default)]
struct Script {
    loads: Mutex<VecDeque<LoadResult>>,
    due: Mutex<VecDeque<Vec<(u32, End)>>>,
    /// Whether the next settling fails because the database is away.
    away: AtomicBool,
    /// The same of the next load.
    away_at_load: AtomicBool,
    /// Whether something comes after the next load and before what is due is asked for.
    comes: AtomicBool,
    asked: Mutex<Vec<String>>,
    rests: Notify,
    worked: Notify,
}

impl Script {
    fn note(&self, what: impl Into<String>) {
        self.asked.lock().unwrap().push(what.into());
    }

    fn asked(&self) -> String {
        self.asked.lock().unwrap().join(" ")
    }
}

/// Work of one of two kinds.
#[derive(Clone)]
struct Scripted<const SECOND: bool> {
    node: ServerNode,
    script: Arc<Script>,
}

impl<const SECOND: bool> WorkKind for Scripted<SECOND> {
    const KIND: &'static str = if SECOND { "second" } else { "first" };
    type Lane = ScriptedLane;

    fn node(&self) -> &ServerNode {
        &self.node
    }

    fn limits(&self) -> DispatchLimits {
        DispatchLimits { lanes_max: 8, tenure_max: Duration::from_secs(5), stop_max: Duration::from_secs(5) }
    }

    fn open_lane(&self, lane: LeasedLane) -> Option<ScriptedLane> {
        assert_eq!(lane.kind(), Self::KIND);
        Some(ScriptedLane { lane, script: self.script.clone() })
    }
}

struct ScriptedLane {
    lane: LeasedLane,
    script: Arc<Script>,
}

impl LaneWork for ScriptedLane {
    const JOBS: &'static str = "jobs";
    type Id = u32;
    type Job = (u32, End);
    type Outcome = u32;

    fn job_id(job: &(u32, End)) -> u32 {
        job.0
    }

    async fn load_lane(&mut self, _: &JobsInFlight<u32>) -> Result<LoadResult> {
        if self.script.away_at_load.swap(false, Ordering::Relaxed) {
            self.script.note("away");
            return Err(Error::unavailable("the database is away"));
        }
        let load = {
            let mut loads = self.script.loads.lock().unwrap();
            let Some(load) = loads.pop_front() else { return Ok(LoadResult::Ready) };
            // What rests at the end rests for good.
            if load == LoadResult::Paused && loads.is_empty() {
                loads.push_back(load);
            }
            load
        };
        self.script.note("load");
        if load == LoadResult::Paused {
            self.script.rests.notify_one();
        }
        Ok(load)
    }

    async fn load_due_jobs(&mut self, under_way: &JobsInFlight<u32>) -> Result<Option<DueJobs<(u32, End)>>> {
        if !under_way.is_empty() {
            return Ok(Some(DueJobs::default()));
        }
        self.script.note("due");
        if self.script.comes.swap(false, Ordering::Relaxed) {
            return Ok(Some(DueJobs { jobs: VecDeque::new(), next: Some(self.lane.db().env().now()) }));
        }
        let jobs = self.script.due.lock().unwrap().pop_front().unwrap_or_default();
        Ok(Some(DueJobs { jobs: jobs.into(), next: None }))
    }

    fn start_job(&mut self, (id, end): (u32, End)) -> BoxFuture<'static, JobCompletion<u32>> {
        self.script.note(format!("start({id})"));
        let script = self.script.clone();
        Box::pin(async move {
            match end {
                End::Noted => JobCompletion::Saved,
                End::ToNote => JobCompletion::Unsaved(id),
                End::Lost => JobCompletion::Lost,
                End::Panic => panic!("as the test wants it"),
                End::NotedAtRest => {
                    script.rests.notified().await;
                    JobCompletion::Saved
                }
            }
        })
    }

    fn save_outcomes(&mut self, outcomes: Arc<Vec<u32>>) -> BoxFuture<'static, Result<SaveReport>> {
        self.script.note(format!("settle({outcomes:?})"));
        let (lane, script) = (self.lane.clone(), self.script.clone());
        Box::pin(async move {
            if script.away.swap(false, Ordering::Relaxed) {
                return Err(Error::unavailable("the database is away"));
            }
            Ok(SaveReport { lease_held: hold(&lane).await?, must_reload: true })
        })
    }

    fn apply_outcome(&mut self, outcome: &u32) {
        self.script.note(format!("learn({outcome})"));
    }

    fn on_saved(&mut self) {
        self.script.note("noted");
    }

    async fn send_heartbeat(&mut self, _: Vec<u32>) -> Result<bool> {
        hold(&self.lane).await
    }

    async fn release_lane(&mut self) -> Result<()> {
        self.script.note("release");
        let held = self.lane.clone();
        self.lane.db().write(async move |tx| held.release_lease(tx, None, None).await).await?;
        self.script.worked.notify_one();
        Ok(())
    }
}

async fn hold(lane: &LeasedLane) -> Result<bool> {
    let held = lane.clone();
    lane.db().write(async move |tx| held.extend_lease(tx).await).await
}

/// Makes a tenant's lanes of these kinds, unless they are there, and due.
async fn wake(server: &Server, kinds: &'static [&'static str]) {
    let acme = server.tenant("acme").await;
    let db = server.app.store.tenant_for_test(acme.tenant.id, Actor::for_system());
    let woken = db.write(async move |tx| {
        for kind in kinds {
            lanes::ensure_lane(tx, kind, "all").await?;
            lanes::ensure_lane(tx, kind, "all").await?;
            lanes::wake_lane(tx, kind, "all").await?;
        }
        Ok(())
    });
    woken.await.expect("lanes");
}

/// Works on a lane until nothing is due, and tells what it was asked.
async fn work(server: &Server, script: Script) -> (Dispatcher<Scripted<false>>, Arc<Script>) {
    wake(server, &["first"]).await;
    let script = Arc::new(script);
    let dispatcher = Dispatcher::new(Scripted { node: server.app.clone(), script: script.clone() });
    dispatcher.run_due().await.expect("work");
    (dispatcher, script)
}

fn script(loads: &[LoadResult], due: &[&[(u32, End)]]) -> Script {
    let due = due.iter().map(|jobs| jobs.to_vec()).collect();
    Script { loads: Mutex::new(loads.iter().copied().collect()), due: Mutex::new(due), ..Script::default() }
}

/// Nobody gives the lane back, and it is taken up again when its lease has ended.
async fn is_taken_up_when_the_lease_ends(server: &Server, dispatcher: &Dispatcher<Scripted<false>>, script: &Script) {
    assert_eq!(script.asked(), "due start(1)");
    server.advance(LEASE_MS - 1);
    dispatcher.run_due().await.expect("work");
    assert_eq!(script.asked(), "due start(1)", "the lease has not ended");
    server.advance(1);
    dispatcher.run_due().await.expect("work");
    assert_eq!(script.asked(), "due start(1) due release");
}

over_http! {
    async fn what_a_job_has_noted_itself_is_not_settled_and_more_is_asked_for(server: Server) {
        let (_, script) = work(&server, script(&[], &[&[(1, End::Noted)], &[(2, End::Noted)]])).await;
        assert_eq!(script.asked(), "due start(1) noted due start(2) noted due release");
    }

    async fn what_is_to_be_noted_is_learnt_and_settled_and_more_is_asked_for(server: Server) {
        let (_, script) = work(&server, script(&[], &[&[(1, End::ToNote)], &[(2, End::ToNote)]])).await;
        let each = |id: u32| format!("due start({id}) learn({id}) settle([{id}]) noted");
        assert_eq!(script.asked(), format!("{} {} due release", each(1), each(2)));
    }

    async fn what_is_under_way_is_not_started_again(server: Server) {
        let (_, script) = work(&server, script(&[], &[&[(1, End::Noted), (1, End::Noted)]])).await;
        assert_eq!(script.asked(), "due start(1) noted due release");
    }

    async fn a_job_that_finds_the_lane_lost_ends_the_work_without_giving_the_lane_back(server: Server) {
        let (dispatcher, script) = work(&server, script(&[], &[&[(1, End::Lost)]])).await;
        is_taken_up_when_the_lease_ends(&server, &dispatcher, &script).await;
    }

    async fn a_job_that_panics_ends_the_work_until_the_lease_has_ended(server: Server) {
        let (dispatcher, script) = work(&server, script(&[], &[&[(1, End::Panic)]])).await;
        is_taken_up_when_the_lease_ends(&server, &dispatcher, &script).await;
    }

    async fn while_there_is_more_to_load_what_is_due_is_started(server: Server) {
        let (_, script) = work(&server, script(&[LoadResult::More, LoadResult::More], &[&[], &[(1, End::Noted)]])).await;
        assert_eq!(script.asked(), "load due load due start(1) noted due release");
    }

    async fn what_comes_between_loading_and_asking_is_loaded_at_once(server: Server) {
        let due: &[&[(u32, End)]] = &[&[(1, End::Noted)]];
        let comes = Script { comes: AtomicBool::new(true), ..script(&[LoadResult::Ready, LoadResult::Ready], due) };
        let (_, script) = work(&server, comes).await;
        assert_eq!(script.asked(), "load due load due start(1) noted due release");
    }

    async fn a_lane_at_rest_starts_nothing_and_is_given_back_when_nothing_is_under_way(server: Server) {
        // Settling the first asks for a look, while the second is still under way.
        let due: &[&[(u32, End)]] = &[&[(1, End::ToNote), (2, End::NotedAtRest)], &[(3, End::Noted)]];
        let (_, script) = work(&server, script(&[LoadResult::Ready, LoadResult::Paused], due)).await;
        let asked = script.asked();
        assert!(asked.starts_with("load due start(1) start(2) "), "{asked}");
        assert!(asked.ends_with(" load release") && !asked.contains("start(3)"), "{asked}");
    }

    async fn a_lane_that_rested_for_what_was_under_way_goes_on(server: Server) {
        let due: &[&[(u32, End)]] = &[&[(1, End::ToNote), (2, End::NotedAtRest)], &[(3, End::Noted)]];
        let (_, script) = work(&server, script(&[LoadResult::Ready, LoadResult::Paused, LoadResult::Ready], due)).await;
        let asked = script.asked();
        assert!(asked.ends_with(" due start(3) noted due release"), "{asked}");
    }

    async fn a_lane_that_is_gone_is_not_given_back(server: Server) {
        let (_, script) = work(&server, script(&[LoadResult::Gone], &[])).await;
        assert_eq!(script.asked(), "load");
    }

    async fn what_could_not_be_noted_is_noted_again_and_started_no_second_time(server: Server) {
        let away = Script { away: AtomicBool::new(true), ..script(&[], &[&[(1, End::ToNote)]]) };
        let (_, script) = work(&server, away).await;
        assert_eq!(script.asked(), "due start(1) learn(1) settle([1]) settle([1]) noted due release");
    }

    async fn a_lane_is_kept_while_the_database_is_away_for_a_moment(server: Server) {
        let away = Script { away_at_load: AtomicBool::new(true), ..script(&[LoadResult::Ready], &[&[(1, End::Noted)]]) };
        let (_, script) = work(&server, away).await;
        assert_eq!(script.asked(), "away load due start(1) noted due release", "not taken up when the lease ends");
    }

    async fn two_kinds_on_one_node_are_both_told_of_a_commit(server: Server) {
        let (one, two) = (Arc::new(Script::default()), Arc::new(Script::default()));
        let first = Dispatcher::new(Scripted::<false> { node: server.app.clone(), script: one.clone() });
        let second = Dispatcher::new(Scripted::<true> { node: server.app.clone(), script: two.clone() });
        let (stop, _) = tokio::sync::watch::channel(());
        let until = || {
            let mut stopped = stop.subscribe();
            async move { drop(stopped.changed().await) }
        };
        let running = [tokio::spawn(first.run(until())), tokio::spawn(second.run(until()))];
        wake(&server, &["first", "second"]).await;
        // A lane that has found nothing is kept for a while, and given back when the node stops.
        let has_begun = |script: &Script| script.asked().starts_with("due");
        while !(has_begun(&one) && has_begun(&two)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(stop);
        for dispatcher in running {
            dispatcher.await.expect("it stops");
        }
        for script in [one, two] {
            script.worked.notified().await;
            assert!(script.asked().ends_with("release"), "{}", script.asked());
        }
    }
}
