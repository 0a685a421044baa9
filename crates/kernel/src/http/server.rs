//! Listening: plain or TLS, HTTP/1.1 and HTTP/2, bounded connections, and a shutdown that finishes what it has begun.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use ipnet::IpNet;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::address::ClientAddress;
use super::places::Places;
use crate::base::{Error, Result};

/// Enough for every client of a busy node; each costs a few kilobytes.
const CONNECTIONS_MAX: usize = 8192;
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// Requests under way get this long to finish; the process is gone within 25 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// What one client may take of the connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// A client that has not said by then what it wants is not served: from the connection, its TLS handshake included,
    /// to the end of the first request's head, and again for the head of every further request of HTTP/1.1.
    pub header_timeout: Duration,
    /// One host cannot take all the places. An IPv6 customer counts by its /64.
    pub per_address_max: usize,
    /// Proxies, whose connections are those of many clients.
    pub exempt: Vec<IpNet>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        // An eighth of all places: more than a load test or an office behind one address needs.
        ConnectionLimits { header_timeout: Duration::from_secs(10), per_address_max: 1024, exempt: Vec::new() }
    }
}

impl ConnectionLimits {
    fn max_of(&self, address: IpAddr) -> usize {
        if self.exempt.iter().any(|network| network.contains(&address)) { usize::MAX } else { self.per_address_max }
    }
}

/// The certificate chain and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A bound address, which clients can already reach.
pub struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    pub async fn bind(address: SocketAddr, tls: Option<&TlsFiles>) -> Result<Self> {
        let tls = tls.map(acceptor).transpose()?;
        let tcp = TcpListener::bind(address).await;
        let tcp = tcp.map_err(|error| Error::internal(format!("cannot listen on {address}: {error}")))?;
        Ok(Listener { tcp, tls })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// Serves a router until `stop` is done, then drains.
pub struct Server;

impl Server {
    pub async fn run(listener: Listener, router: Router, limits: ConnectionLimits, stop: impl Future<Output = ()>) {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let addresses = Places::default();
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let permit = tokio::select! {
                permit = connections.clone().acquire_owned() => permit,
                () = &mut stop => break,
            };
            let (stream, peer) = tokio::select! {
                accepted = listener.tcp.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Out of file descriptors, most likely: wait instead of spinning.
                        tracing::warn!(%error, "accepting a connection failed");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            let address = ClientAddress(peer.ip().to_canonical());
            let Some(place) = addresses.take(address.bucket(), limits.max_of(address.0)) else {
                tracing::debug!(%peer, "too many connections of one address");
                continue;
            };
            let connection = Connection { peer, router: router.clone(), header_timeout: limits.header_timeout };
            let (tls, watcher) = (listener.tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                connection.serve(stream, tls, watcher).await;
                drop((permit, place));
            });
        }
        drop(listener);
        if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests were still running when the time to drain was over");
        }
    }
}

struct Connection {
    peer: SocketAddr,
    router: Router,
    header_timeout: Duration,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>, watcher: Watcher) {
        // Small answers should not wait for more bytes to fill a packet.
        let _ = stream.set_nodelay(true);
        let (peer, deadline) = (self.peer, Instant::now() + self.header_timeout);
        let Some(tls) = tls else {
            return self.serve_http(stream, deadline, watcher).await;
        };
        match tokio::time::timeout_at(deadline, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.serve_http(stream, deadline, watcher).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
        }
    }

    async fn serve_http<S>(self, stream: S, deadline: Instant, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Connection { peer, router, header_timeout } = self;
        let asked = Arc::new(AtomicBool::new(false));
        let asks = asked.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            asks.store(true, Ordering::Relaxed);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request)
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(HTTP2_PING_INTERVAL);
        let connection = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
        let mut connection = std::pin::pin!(connection);
        // hyper's own timeout begins only when it knows the protocol, and HTTP/2 has none.
        let ended = match tokio::time::timeout_at(deadline, &mut connection).await {
            Ok(ended) => ended,
            Err(_) if asked.load(Ordering::Relaxed) => connection.await,
            Err(_) => return tracing::debug!(%peer, "a connection asked for nothing in time"),
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection ended early");
        }
    }
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(&files.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::internal)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| Error::internal(format!("the TLS certificate cannot be used: {error}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("{}: {error}", path.display()))
}
