//! `serve`: starts the server from its settings and runs it until it is stopped.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cloud_fleet::worker::CloudWorker;
use kernel::auth::{SIGNIN_LINK_MS, create_signin_link};
use kernel::base::{Error, MINUTE_MS, Result, run_blocking};
use kernel::http::{BaseUrl, Certificates, Listener, Server};
use kernel::jobs::{ServerNode, run_every, supervise_task};
use kernel::store::{Purpose, Store};
use people::users::create_first_admin;
use search::synchronizer::IndexSynchronizer;
use tokio::sync::watch::Receiver;
use tokio::sync::watch::error::RecvError;
use webhooks::sender::WebhookSender;
use workflows::engine::WorkflowEngine;

use super::output::print_line;
use super::{jobs, log, metrics, store};
use crate::config::ServeArgs;
use crate::{features, router};

pub async fn run(args: ServeArgs) -> Result<()> {
    log::start_logging(args.log_format, &args.log_level)?;
    // Signal handlers are installed first, so that no early signal is lost.
    let stop = stop_signal()?;
    let _lock = match args.store.database_url {
        None => Some(store::DataLock::acquire(&args.store)?),
        Some(_) => None,
    };
    let store = store::open_to_serve(&args.store).await?;
    let secrets = store::load_secrets(&args.store, &store).await?;
    if let Some(address) = args.metrics_listen {
        let bound = metrics::start_metrics(address).await?;
        tracing::info!(%bound, "metrics are served");
    }
    let tls = args.tls_files();
    let listener = Listener::bind(args.url.listen, tls.as_ref()).await?;
    let bound = listener.local_address().map_err(Error::internal)?;
    let base_url = args.url.base_url(bound, tls.is_some())?;
    let node = ServerNode::new(store.clone(), secrets, args.server_settings(base_url.clone())?)?;
    let (router, _) = router::build_router(router::route_table(node.app()))?;
    kernel::jobs::clear_stale_leases(&node).await?;
    let counted = features::backfill::store::backfill_facts(&store.system(Purpose::Startup)).await?;
    if counted > 0 {
        tracing::info!(records = counted, "records of an earlier version are counted in the figures");
    }
    let jobs = tokio::spawn(kernel::jobs::run(node.clone(), &features::install().retention));
    let columns = &features::install().sealed_columns;
    let (source, host) = (args.store.secrets_source(), describe_host(bound));
    kernel::jobs::announce_keys(&node, &host, columns).await?;
    let keeping = tokio::spawn(kernel::jobs::keep_keyring(node.clone(), source, host, columns));
    let announcing = tokio::spawn(jobs::run(node.clone(), args.delivery_retention_ms(), args.workflow.history_ms()));
    let sender = WebhookSender::new(node.clone(), args.sender_settings());
    let (stopping_node, stopped) = (node.clone(), node.stopping.subscribe());
    let sending = supervise_task("sending webhooks", stopped.clone(), move || {
        let stopped = stopped.clone();
        sender.clone().run(async move { drop(until_stopping(stopped).await) })
    });
    let sending = tokio::spawn(sending);
    let engine = WorkflowEngine::new(node.clone(), args.workflow_settings());
    let stopped = node.stopping.subscribe();
    let running = supervise_task("running workflows", stopped.clone(), move || {
        let stopped = stopped.clone();
        engine.clone().run(async move { drop(until_stopping(stopped).await) })
    });
    let running = tokio::spawn(running);
    let worker = CloudWorker::new(node.clone());
    let stopped = node.stopping.subscribe();
    let syncing = supervise_task("working on clouds", stopped.clone(), move || {
        let stopped = stopped.clone();
        worker.clone().run(async move { drop(until_stopping(stopped).await) })
    });
    let syncing = tokio::spawn(syncing);
    let (index_node, folder) = (node.clone(), args.store.search_folder());
    let indexing = supervise_task("keeping the search index", node.stopping.subscribe(), move || {
        IndexSynchronizer::new(index_node.clone(), folder.clone(), index_node.settings.feature_settings()).run()
    });
    let indexing = tokio::spawn(indexing);
    warn_of_allowed_networks(&node);
    announce_hold(&node).await;
    if let Some(certificates) = listener.certificates() {
        tokio::spawn(reload_certificates(node.clone(), certificates));
    }

    // Not fatal: with a full disk, the server can still answer reads.
    if let Err(error) = kernel::startup::save_base_url(&store, &base_url).await {
        tracing::warn!(%error, "failed to save the base URL");
    }
    // Before the first line: who reads it may stop the server at once.
    let welcome = create_welcome(&store, &base_url, &args).await?;
    print_line(&format!(
        "Tenant Control {} listens on {bound} and is reached at {}",
        env!("CARGO_PKG_VERSION"),
        base_url.as_str()
    ));
    if let Some(welcome) = welcome {
        print_line(&welcome);
    }
    let (stopped_at, broken) = (Arc::new(OnceLock::new()), Arc::new(AtomicBool::new(false)));
    let (stop_time, breaks, writer) = (stopped_at.clone(), broken.clone(), store.clone());
    let stop = async move {
        tokio::select! {
            () = stop => {}
            () = writer.wait_until_broken() => breaks.store(true, Ordering::Relaxed),
        }
        let _ = stop_time.set(Instant::now());
        stopping_node.stopping.send_replace(true);
    };
    Server::run(listener, router, node.settings.connection_limits(), stop).await;

    jobs.abort();
    keeping.abort();
    announcing.abort();
    indexing.abort();
    // Attempts under way already had the time in which requests were finished; attempts whose outcome is not saved by
    // then are repeated by the next node that leases their lane.
    let had = stopped_at.get().map_or(Duration::ZERO, Instant::elapsed);
    let ending = async { tokio::join!(sending, running, syncing) };
    let _ = tokio::time::timeout(SENDING_MAX.saturating_sub(had).max(SENDING_MIN), ending).await;
    save_and_close(&node).await;
    if broken.load(Ordering::Relaxed) {
        return Err(Error::internal("the thread that writes to the store has ended; start the server again"));
    }
    Ok(())
}

/// Creates, on an empty store, the first tenant and its admin. Returns what to tell whoever has started the server, with a
/// sign-in link.
async fn create_welcome(store: &Store, base_url: &BaseUrl, args: &ServeArgs) -> Result<Option<String>> {
    let Some((tenant, user)) = create_first_admin(store).await? else { return Ok(None) };
    let token = create_signin_link(store, tenant.id, user.id).await?;
    Ok(Some(format!(
        "\nThis store is new. A tenant {:?} and its admin {} were made.\nSign in once, within {} minutes:\n\n  {}/signin?token={}\n\n\
         Another link: {}\n",
        tenant.slug,
        user.email,
        SIGNIN_LINK_MS / MINUTE_MS,
        base_url.as_str(),
        token.expose_secret(),
        args.store
            .command_line(&format!("admin session create --tenant {} --email {} --link", tenant.slug, user.email)),
    )))
}

/// This node as `admin keyring status` names it.
fn describe_host(bound: SocketAddr) -> String {
    let host = whoami::hostname().unwrap_or_else(|_| "a host without a name".to_owned());
    format!("{host} ({bound})")
}

async fn until_stopping(mut stopping: Receiver<bool>) -> Result<(), RecvError> {
    stopping.wait_for(|stopping| *stopping).await.map(drop)
}

/// How often the certificate files are checked.
const RELOAD_EVERY: Duration = Duration::from_secs(1);

/// Reloads the certificate when its files change.
async fn reload_certificates(node: ServerNode, certificates: Arc<Certificates>) {
    let job = move |_| {
        let certificates = certificates.clone();
        async move {
            if run_blocking(move || certificates.reload_files()).await? {
                tracing::info!("TLS certificate reloaded");
            }
            Ok(())
        }
    };
    run_every(&node, RELOAD_EVERY, "reading the TLS certificate", job).await;
}

/// Warns that an allowed network is open to the endpoints of every tenant, so that the operator knows.
fn warn_of_allowed_networks(node: &ServerNode) {
    for network in node.outbound.allowed_networks() {
        tracing::warn!(%network, "webhooks of every tenant may reach this network (--webhook-allow-cidr)");
    }
}

/// Warns that nothing is sent, so that nobody waits for it, and saves it for `doctor`.
async fn announce_hold(node: &ServerNode) {
    let is_holding = node.outbound.is_holding();
    if is_holding {
        tracing::warn!(
            "outgoing traffic is held (--hold-outgoing): webhooks, requests of workflows and work on clouds wait for a start without it"
        );
    }
    metrics::record_hold(is_holding);
    // Not fatal: with a full disk, the server can still answer reads.
    if let Err(error) = kernel::startup::save_outgoing_hold(&node.store, is_holding).await {
        tracing::warn!(%error, "failed to save whether outgoing traffic is held");
    }
}

/// How long attempts under way may take after the stop signal: a little more than the sender gives them.
const SENDING_MAX: Duration = Duration::from_secs(8);
/// How long they may take at least after the last request has finished.
const SENDING_MIN: Duration = Duration::from_millis(500);

/// The timeout of the final saves: shutdown has 25 s in all, and requests may take 20 s of them.
const FINISH_MAX: Duration = Duration::from_secs(3);

/// Saves what is only in memory, unless the database does not answer. No acknowledged write depends on this.
async fn save_and_close(node: &ServerNode) {
    let finished = tokio::time::timeout(FINISH_MAX, async {
        if let Err(error) = kernel::jobs::save_last_uses(node).await {
            tracing::warn!(%error, "failed to save the last uses of credentials");
        }
        if let Err(error) = features::fold::store::write_usage(node).await {
            tracing::warn!(%error, "failed to write what was metered");
        }
        if let Err(error) = kernel::jobs::forget_keys(node).await {
            tracing::warn!(%error, "failed to forget the sealing keys of this node");
        }
        node.store.close().await;
    });
    if finished.await.is_ok() {
        tracing::info!("stopped");
    } else {
        tracing::warn!("stopped without an answer from the database");
    }
}

#[cfg(unix)]
fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::internal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::internal)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: no new connections, requests under way are finished");
    })
}

#[cfg(not(unix))]
fn stop_signal() -> Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
