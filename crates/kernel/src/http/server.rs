//! Listening: plain or TLS, HTTP/1.1 and HTTP/2, bounded connections, and a shutdown that finishes what it has begun.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Request, StatusCode, Version};
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use ipnet::IpNet;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::address::ClientAddress;
use super::context::Arrival;
use super::patience::{Patience, Patient, Pulse};
use super::places::Places;
use super::tls::{Certificates, TlsFiles};
use crate::base::{Error, Result};

/// Enough for every client of a busy node; each costs a few kilobytes.
const CONNECTIONS_MAX: usize = 8192;
/// Connections that have come and are not accepted yet.
const BACKLOG: u32 = 1024;
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// The most of a request's head, and of an answer that a connection takes from us before it has gone out.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// What the system keeps of an answer that its client does not take; it doubles the number. Left to itself it would
/// keep some megabytes of each.
const SEND_BUFFER_BYTES: u32 = 128 * 1024;
/// Requests under way get this long to finish; the process is gone within 25 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// What one client may take of the connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// A client that keeps a connection waiting for longer is not served any more.
    pub patience: Patience,
    /// One host cannot take all the places. An IPv6 customer counts by its /64.
    pub per_address_max: usize,
    /// Proxies, whose connections are those of many clients.
    pub exempt: Vec<IpNet>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let patience = Patience {
            head: Duration::from_secs(10),
            // Load balancers keep a connection for 60 s and expect it to be there.
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(30),
        };
        // An eighth of all places: more than a load test or an office behind one address needs.
        ConnectionLimits { patience, per_address_max: 1024, exempt: Vec::new() }
    }
}

impl ConnectionLimits {
    fn max_of(&self, address: IpAddr) -> usize {
        if self.exempt.iter().any(|network| network.contains(&address)) { usize::MAX } else { self.per_address_max }
    }
}

/// A bound address, which clients can already reach. Cheap to clone.
#[derive(Clone)]
pub struct Listener {
    tcp: Arc<TcpListener>,
    tls: Option<(TlsAcceptor, Arc<Certificates>)>,
}

impl Listener {
    pub async fn bind(address: SocketAddr, tls: Option<&TlsFiles>) -> Result<Self> {
        let tls = match tls {
            Some(files) => {
                let files = files.clone();
                let read = tokio::task::spawn_blocking(move || Certificates::load(&files));
                let certificates = read.await.map_err(Error::internal)??;
                Some((certificates.acceptor()?, certificates))
            }
            None => None,
        };
        let tcp = listen(address).map_err(|error| Error::internal(format!("cannot listen on {address}: {error}")))?;
        Ok(Listener { tcp: Arc::new(tcp), tls })
    }

    /// What is shown to clients, to be read again now and then.
    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        self.tls.as_ref().map(|(_, certificates)| certificates.clone())
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// Accepted connections have what is set here, too.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves a router until `stop` is done, then drains.
pub struct Server;

impl Server {
    pub fn run(
        listener: Listener,
        router: Router,
        limits: ConnectionLimits,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        run(listener, router, limits, Box::pin(stop))
    }
}

/// Boxed, so that HTTP is compiled here and not again by everybody who serves.
fn run(
    listener: Listener,
    router: Router,
    limits: ConnectionLimits,
    mut stop: BoxFuture<'static, ()>,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let addresses = Places::default();
        let graceful = GracefulShutdown::new();
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
            let connection = Connection { peer, router: router.clone(), patience: limits.patience };
            let (tls, watcher) = (listener.tls.as_ref().map(|(tls, _)| tls.clone()), graceful.watcher());
            tokio::spawn(async move {
                connection.serve(stream, tls, watcher).await;
                drop((permit, place));
            });
        }
        drop(listener);
        if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests were still running when the time to drain was over");
        }
    })
}

struct Connection {
    peer: SocketAddr,
    router: Router,
    patience: Patience,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>, watcher: Watcher) {
        // Small answers should not wait for more bytes to fill a packet.
        let _ = stream.set_nodelay(true);
        // What the system has taken of an answer is given up like what it has not.
        #[cfg(target_os = "linux")]
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(self.patience.stall));
        let (peer, pulse) = (self.peer, Arc::new(Pulse::default()));
        let stream = Patient::new(stream, self.patience, pulse.clone());
        let Some(tls) = tls else {
            return self.serve_http(stream, pulse, watcher).await;
        };
        match tls.accept(stream).await {
            Ok(stream) => self.serve_http(stream, pulse, watcher).await,
            Err(error) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        }
    }

    async fn serve_http<S>(self, stream: S, pulse: Arc<Pulse>, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Connection { peer, router, .. } = self;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let under_way = pulse.begin(request.version() == Version::HTTP_2);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Arrival { peer, under_way: Arc::new(under_way) });
            let answer = router.clone().oneshot(request);
            async move {
                let mut answer = answer.await?;
                // The router says that there are no bytes; of what is not sent, that is not the length.
                if answer.status() == StatusCode::NOT_MODIFIED {
                    answer.headers_mut().remove(CONTENT_LENGTH);
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // The stream itself knows how long a head may take.
        builder.http1().header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING_INTERVAL)
            .max_send_buf_size(BUFFER_BYTES_MAX)
            .max_header_list_size(HEAD_BYTES_MAX);
        let connection = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
        if let Err(error) = connection.await {
            tracing::debug!(%peer, %error, "a connection ended early");
        }
    }
}
