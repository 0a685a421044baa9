//! The listening server: plain or TLS, HTTP/1.1 and HTTP/2, bounded connections, and a graceful shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
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
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::address::ClientAddress;
use super::connection_limits::ConnectionLimits;
use super::connection_timeouts::{ConnectionActivity, ConnectionTimeouts, TimeoutStream};
use super::context::Arrival;
use super::tls::{Certificates, TlsFiles};
use crate::base::{BudgetLimits, Error, FairBudget, Result, run_blocking};

/// Enough for all clients of a busy node. Each connection takes a few kilobytes.
const CONNECTIONS_MAX: usize = 8192;
/// Connections that are not accepted yet.
const BACKLOG: u32 = 1024;
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// Buffers of a connection: the most of a request's head, and of an answer before it is sent.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// The kernel's send buffer of a connection, which it doubles. By default it would buffer some megabytes of an answer that
/// the client does not take.
const SEND_BUFFER_BYTES: u32 = 128 * 1024;
/// How long requests under way may take to finish at shutdown. The process exits within 25 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

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
                let certificates = run_blocking(move || Certificates::load_files(&files)).await?;
                Some((certificates.tls_acceptor()?, certificates))
            }
            None => None,
        };
        let tcp = listen_on(address).map_err(|error| {
            Error::internal(format!("cannot listen on {address}: {error}; --listen names another address"))
        })?;
        Ok(Listener { tcp: Arc::new(tcp), tls })
    }

    /// The certificates in use, so that a job can reload them.
    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        self.tls.as_ref().map(|(_, certificates)| certificates.clone())
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

/// Accepted connections inherit the options that are set here.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
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
        run_server(listener, router, limits, Box::pin(stop))
    }
}

/// Boxed, so that HTTP is compiled in this crate and not again in every user of it.
fn run_server(
    listener: Listener,
    router: Router,
    limits: ConnectionLimits,
    mut stop: BoxFuture<'static, ()>,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let addresses = FairBudget::new(BudgetLimits { each: limits.per_address_max, ..BudgetLimits::UNLIMITED });
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
                        // Most likely out of file descriptors: wait instead of spinning.
                        tracing::warn!(%error, "failed to accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            let address = ClientAddress(peer.ip().to_canonical());
            let Some(address_permit) = limits.count_connection(&addresses, address) else {
                tracing::debug!(%peer, "connection refused: too many from one address");
                continue;
            };
            let connection = ClientConnection { peer, router: router.clone(), timeouts: limits.timeouts };
            let (tls, watcher) = (listener.tls.as_ref().map(|(tls, _)| tls.clone()), graceful.watcher());
            tokio::spawn(async move {
                connection.serve_stream(stream, tls, watcher).await;
                drop((permit, address_permit));
            });
        }
        drop(listener);
        if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests were still running when the time to drain was over");
        }
    })
}

struct ClientConnection {
    peer: SocketAddr,
    router: Router,
    timeouts: ConnectionTimeouts,
}

impl ClientConnection {
    async fn serve_stream(self, stream: TcpStream, tls: Option<TlsAcceptor>, watcher: Watcher) {
        // Small answers must not wait for more bytes to fill a packet.
        let _ = stream.set_nodelay(true);
        // The stall timeout also applies to bytes in the kernel's send buffer.
        #[cfg(target_os = "linux")]
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(self.timeouts.stall));
        let (peer, activity) = (self.peer, Arc::new(ConnectionActivity::default()));
        let stream = TimeoutStream::new(stream, self.timeouts, activity.clone());
        let Some(tls) = tls else {
            return self.serve_http(stream, activity, watcher).await;
        };
        match tls.accept(stream).await {
            Ok(stream) => self.serve_http(stream, activity, watcher).await,
            Err(error) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        }
    }

    async fn serve_http<S>(self, stream: S, activity: Arc<ConnectionActivity>, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let ClientConnection { peer, router, .. } = self;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let active_request = activity.begin_request(request.version() == Version::HTTP_2);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Arrival { peer, active_request: Arc::new(active_request) });
            let answer = router.clone().oneshot(request);
            async move {
                let mut answer = answer.await?;
                // The router sets 0, which is not the length of the representation that 304 leaves out.
                if answer.status() == StatusCode::NOT_MODIFIED {
                    answer.headers_mut().remove(CONTENT_LENGTH);
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // `TimeoutStream` enforces the timeout of the head.
        builder.http1().header_read_timeout(None).max_buf_size(BUFFER_BYTES_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING_INTERVAL)
            .max_send_buf_size(BUFFER_BYTES_MAX)
            .max_header_list_size(HEAD_BYTES_MAX);
        let connection = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
        if let Err(error) = connection.await {
            tracing::debug!(%peer, %error, "connection closed early");
        }
    }
}
