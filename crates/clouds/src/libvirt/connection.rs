//! The connection of this process to the operator's host, which all adapters share.
//!
//! libvirt's calls block, so each runs on a thread for blocking work, with a bound on how long it is awaited. A thread that
//! hangs cannot be ended: it keeps its permit, so hanging calls are few.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kernel::base::{lock_unpoisoned, run_blocking};
use tokio::sync::Semaphore;
use virt::connect::Connect;

use super::CLOUD;
use super::errors::to_connect_error;
use crate::error::RequestEffect;
use crate::{CloudError, CloudErrorKind};

/// Calls to a host at once. libvirt's own daemon works on 5 of a client at once by default.
const CALLS_MAX: usize = 4;
/// For a call that reads. A person may wait for it.
const READ_TIMEOUT: Duration = Duration::from_secs(8);
/// For a creation, which copies a disk. What takes longer is looked for afterwards.
const CREATE_TIMEOUT: Duration = Duration::from_mins(1);

/// The hosts of this process, by URI. The operator names one; the connection to it is kept, because opening one takes a login,
/// and because libvirt's test driver forgets its machines when the last connection is closed.
static HOSTS: Mutex<BTreeMap<String, Arc<Host>>> = Mutex::new(BTreeMap::new());

pub struct Host {
    uri: String,
    connection: Mutex<Option<Arc<HostConnection>>>,
    calls: Arc<Semaphore>,
    /// Machines that are being created, by UUID: the call may go on after nobody waits for it.
    creating: Mutex<BTreeSet<String>>,
}

/// Closed when nobody uses it any more.
pub struct HostConnection(Connect);

impl Drop for HostConnection {
    fn drop(&mut self) {
        // A connection that is broken cannot be closed, and needs not be.
        let _ = self.0.close();
    }
}

impl Host {
    pub fn for_uri(uri: &str) -> Arc<Host> {
        let mut hosts = lock_unpoisoned(&HOSTS);
        let new = || {
            Arc::new(Host {
                uri: uri.to_owned(),
                connection: Mutex::new(None),
                calls: Arc::new(Semaphore::new(CALLS_MAX)),
                creating: Mutex::default(),
            })
        };
        hosts.entry(uri.to_owned()).or_insert_with(new).clone()
    }

    pub async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connect) -> Result<T, CloudError> + Send + 'static,
    ) -> Result<T, CloudError> {
        self.call(RequestEffect::Read, READ_TIMEOUT, |connect, _| work(connect)).await
    }

    /// Runs the creation of a machine, unless an earlier one of the same machine still runs.
    pub async fn create<T: Send + 'static>(
        self: &Arc<Self>,
        uuid: String,
        work: impl FnOnce(&Connect) -> Result<T, CloudError> + Send + 'static,
    ) -> Result<T, CloudError> {
        self.call(RequestEffect::Create, CREATE_TIMEOUT, move |connect, host| {
            let Some(_creation) = Creation::begin(host, uuid) else {
                let detail = "The machine is still being created by an earlier call.";
                return Err(CloudError::new(CloudErrorKind::Ambiguous, detail));
            };
            work(connect)
        })
        .await
    }

    async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        effect: RequestEffect,
        timeout: Duration,
        work: impl FnOnce(&Connect, &Host) -> Result<T, CloudError> + Send + 'static,
    ) -> Result<T, CloudError> {
        let Ok(Ok(permit)) = tokio::time::timeout(READ_TIMEOUT, self.calls.clone().acquire_owned()).await else {
            let detail = format!("{CLOUD} does not answer: {CALLS_MAX} calls to the host wait already.");
            return Err(CloudError::new(CloudErrorKind::Unavailable, detail));
        };
        let host = self.clone();
        let call = run_blocking(move || {
            let _permit = permit;
            Ok(host.open_connection().and_then(|connection| work(&connection.0, &host)))
        });
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(CloudError::new(effect.kind_when_lost(), format!("A call to {CLOUD} broke off."))),
            Err(_) => {
                // The next call tries another connection. Closing this one may block, too.
                let left = lock_unpoisoned(&self.connection).take();
                tokio::task::spawn_blocking(move || drop(left));
                let detail = format!("{CLOUD} did not answer within {} seconds.", timeout.as_secs());
                Err(CloudError::new(effect.kind_when_lost(), detail))
            }
        }
    }

    /// The connection, opened again if it is broken.
    fn open_connection(&self) -> Result<Arc<HostConnection>, CloudError> {
        let kept = lock_unpoisoned(&self.connection).clone();
        if let Some(kept) = kept
            && kept.0.is_alive().unwrap_or(false)
        {
            return Ok(kept);
        }
        // Otherwise the library prints every error.
        virt::error::clear_error_callback();
        let opened = Connect::open(Some(&self.uri)).map_err(|error| to_connect_error(&error))?;
        let opened = Arc::new(HostConnection(opened));
        *lock_unpoisoned(&self.connection) = Some(opened.clone());
        Ok(opened)
    }
}

/// A machine that is being created.
struct Creation<'a> {
    host: &'a Host,
    uuid: String,
}

impl<'a> Creation<'a> {
    fn begin(host: &'a Host, uuid: String) -> Option<Self> {
        lock_unpoisoned(&host.creating).insert(uuid.clone()).then_some(Creation { host, uuid })
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        lock_unpoisoned(&self.host.creating).remove(&self.uuid);
    }
}
