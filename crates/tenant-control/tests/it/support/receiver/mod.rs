//! A webhook receiver that does to its sender whatever a test asks for, in this process, on a port of its own.
//!
//! It speaks HTTP/1.1 by hand, because a library would refuse to misbehave. It does not check signatures: what came is
//! there to be looked at.

mod behaviour;
mod connection;
mod log;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::{TLS12, TLS13};

pub use behaviour::{Behaviour, DRIP_EVERY, Gate};
use log::Log;
pub use log::{Received, Tally};

/// How long a test waits for requests. A sender whose retries follow the test's clock needs milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A running receiver. It ends with this value, and with it every connection.
pub struct Receiver {
    address: SocketAddr,
    scheme: &'static str,
    log: Arc<Log>,
    accepting: JoinHandle<()>,
}

impl Receiver {
    pub async fn start() -> Receiver {
        Receiver::listen("http", None).await
    }

    /// Over TLS, with a certificate for `localhost` and `127.0.0.1`. The text is the authority that signed it, as PEM.
    pub async fn start_tls() -> (Receiver, String) {
        let (acceptor, authority) = certified();
        (Receiver::listen("https", Some(acceptor)).await, authority)
    }

    async fn listen(scheme: &'static str, tls: Option<TlsAcceptor>) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let accepting = tokio::spawn(accept(listener, tls, log.clone()));
        Receiver { address, scheme, log, accepting }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// What a path does: the script's entries one per request, then the last of them for ever. A path that nobody
    /// spoke of answers 204. A path is what stands in the request, with its query.
    pub fn on(&self, path: &str, script: impl IntoIterator<Item = Behaviour>) {
        let script: Vec<Behaviour> = script.into_iter().collect();
        assert!(!script.is_empty(), "a script has at least one entry");
        self.on_each(path, move |nth, _| script[nth.min(script.len() - 1)].clone());
    }

    /// What a path does, chosen for each request by its number on this path, from 0, and by its webhook-id, which is
    /// empty when there is none. It must not call the receiver.
    pub fn on_each(&self, path: &str, choose: impl Fn(usize, &str) -> Behaviour + Send + Sync + 'static) {
        self.log.set_rule(path, Box::new(choose));
    }

    /// The complete requests, as they came; nothing after [`Receiver::keep_tallies_only`].
    pub fn received(&self) -> Vec<Received> {
        self.log.read(|state| state.received.clone())
    }

    pub fn received_on(&self, path: &str) -> Vec<Received> {
        self.log.read(|state| state.received.iter().filter(|received| received.path == path).cloned().collect())
    }

    /// How many complete requests came.
    pub fn count(&self) -> usize {
        self.log.read(|state| state.paths.values().map(|path| path.count).sum())
    }

    pub fn count_on(&self, path: &str) -> usize {
        self.log.read(|state| state.paths.get(path).map_or(0, |path| path.count))
    }

    /// Waits until so many complete requests came in all.
    pub async fn wait_for(&self, count: usize) -> Vec<Received> {
        self.wait(&format!("{count} requests"), || self.count() >= count).await;
        self.received()
    }

    pub async fn wait_for_on(&self, path: &str, count: usize) -> Vec<Received> {
        self.wait(&format!("{count} requests on {path}"), || self.count_on(path) >= count).await;
        self.received_on(path)
    }

    /// Waits until so many deliveries were acknowledged on this path, the same one twice being one.
    pub async fn wait_for_acknowledged(&self, path: &str, count: usize) {
        let enough = || self.log.read(|state| state.paths.get(path).map_or(0, |path| path.acknowledged) >= count);
        self.wait(&format!("{count} acknowledged on {path}"), enough).await;
    }

    async fn wait(&self, what: &str, enough: impl Fn() -> bool) {
        let waited = tokio::time::timeout(WAIT_MAX, self.log.until(enough)).await;
        assert!(waited.is_ok(), "waited {WAIT_MAX:?} in vain for {what}; what came:\n{}", self.log.summary());
    }

    /// How many connections were accepted, also those that said nothing.
    pub fn connections(&self) -> usize {
        self.log.read(|state| state.connections)
    }

    /// From now on each connection is reset before anything is read from it, or no longer.
    pub fn reset_connections(&self, reset: bool) {
        self.log.change(|state| state.reset_connections = reset);
    }

    /// What became of each webhook-id on this path.
    pub fn tallies(&self, path: &str) -> HashMap<String, Tally> {
        self.log.read(|state| state.paths.get(path).map(|path| path.tallies.clone()).unwrap_or_default())
    }

    /// The webhook-ids that got a whole answer of 2xx on this path, and how many times.
    pub fn acknowledged(&self, path: &str) -> HashMap<String, usize> {
        let counts = self.tallies(path).into_iter().map(|(id, tally)| (id, tally.acknowledged));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Forgets what came, but for the connections; what paths do stays as it is, and their scripts go on.
    pub fn forget(&self) {
        self.log.change(|state| {
            state.received.clear();
            state.paths.clear();
        });
    }

    /// For long runs: keeps of each request nothing but its webhook-id, its path and what became of it.
    pub fn keep_tallies_only(&self) {
        self.log.change(|state| {
            state.tallies_only = true;
            state.received = Vec::new();
        });
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The connections are in a set of this task, so that they end with it.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, log: Arc<Log>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                if log.accepted() {
                    drop(stream.set_zero_linger());
                } else {
                    connections.spawn(converse(stream, tls.clone(), log.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, tls: Option<TlsAcceptor>, log: Arc<Log>) {
    // A sender that goes away is what many tests are about, so an error here is no news.
    let Some(tls) = tls else { return drop(connection::serve(stream, |stream| stream, &log).await) };
    if let Ok(stream) = tls.accept(stream).await {
        drop(connection::serve(stream, |stream| stream.get_ref().0, &log).await);
    }
}

fn certified() -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the receiver's authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let names = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateDer::from(names.signed_by(&key, &authority).unwrap().der().to_vec());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]).unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}
