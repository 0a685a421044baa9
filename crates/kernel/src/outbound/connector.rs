//! Makes every outbound connection of the service, to an address that the guard has checked.
//!
//! A name is resolved once. All its addresses are checked, and the connection goes to one of exactly these, so a second DNS
//! answer cannot differ from the checked one (DNS rebinding).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tower::Service;

use super::exchange::FailureKind;
use super::guard::AddressGuard;
use super::resolver::{Resolver, Unresolved};
use super::socket::{ConnectionHandle, PROGRESS, RequestProgress, Socket, SocketStream};
use super::target::{BadTarget, TargetHost};
use super::tls::TlsClient;

/// How many addresses of one name are tried: enough to skip one that is down, too few for a port scan.
const ADDRESSES_MAX: u32 = 4;
/// The minimum time for each address.
const CONNECT_MIN: Duration = Duration::from_secs(1);
/// The time limit of a connection outside of a request's task, which should not happen.
const STRAY_MAX: Duration = Duration::from_secs(10);

/// Makes connections for hyper's client.
#[derive(Clone)]
pub(super) struct Connector(Arc<ConnectorInner>);

struct ConnectorInner {
    guard: AddressGuard,
    resolver: Resolver,
    tls: TlsClient,
}

/// The kind and detail of a failed connection or exchange.
#[derive(Clone, Debug)]
pub(super) struct FailureCause {
    pub kind: FailureKind,
    pub detail: String,
}

impl FailureCause {
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        FailureCause { kind, detail: detail.into() }
    }

    fn connect_timeout() -> Self {
        FailureCause::new(FailureKind::Timeout, "there was no connection in time")
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for FailureCause {}

impl Connector {
    pub fn new(guard: AddressGuard, resolver: Resolver, tls: TlsClient) -> Self {
        Connector(Arc::new(ConnectorInner { guard, resolver, tls }))
    }

    pub fn guard(&self) -> &AddressGuard {
        &self.0.guard
    }

    pub fn resolver(&self) -> &Resolver {
        &self.0.resolver
    }

    async fn open_connection(self, uri: Uri, progress: RequestProgress) -> Result<TokioIo<Socket>, FailureCause> {
        let https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        let host = TargetHost::parse(uri.host().unwrap_or_default()).map_err(|bad| match bad {
            BadTarget::NotAllowed(refused) => FailureCause::new(FailureKind::NotAllowed, refused.detail),
            BadTarget::NotAUrl(detail) => FailureCause::new(FailureKind::NotAllowed, detail),
        })?;
        let addresses = self.resolve_host(&host, &progress).await?;
        let (stream, address) = connect_to_one(&addresses, port, &progress).await?;
        let stream = if https { self.start_tls(&host, stream, &progress).await? } else { SocketStream::Plain(stream) };
        Ok(TokioIo::new(Socket { stream, handle: ConnectionHandle::new(address, progress) }))
    }

    async fn resolve_host(&self, host: &TargetHost, progress: &RequestProgress) -> Result<Vec<IpAddr>, FailureCause> {
        let mut lookup = self.0.resolver.look_up(host, progress.tenant);
        // The wait for a lookup permit does not count against the deadline, because the server does not cause it.
        let held = progress.hold_back();
        lookup.wait_started().await;
        drop(held);
        let start = Instant::now();
        let addresses = lookup.await_addresses().await.map_err(|unresolved| match unresolved {
            Unresolved::Crowded => FailureCause::new(FailureKind::HeldBack, "too many names are being looked up"),
            Unresolved::Failed(detail) => FailureCause::new(FailureKind::Name, detail),
        })?;
        progress.lock_state().resolved = Some(start.elapsed());
        self.0
            .guard
            .check_all(&addresses)
            .map_err(|refused| FailureCause::new(FailureKind::NotAllowed, refused.detail))?;
        Ok(addresses)
    }

    async fn start_tls(
        &self,
        host: &TargetHost,
        stream: TcpStream,
        progress: &RequestProgress,
    ) -> Result<SocketStream, FailureCause> {
        let start = Instant::now();
        let encrypted = self.0.tls.connect_tls(host, stream).await;
        let encrypted = encrypted.map_err(|error| FailureCause::new(FailureKind::Tls, error))?;
        progress.lock_state().encrypted = Some(start.elapsed());
        Ok(SocketStream::Encrypted(Box::new(encrypted)))
    }
}

/// Tries the addresses one after the other, each for its share of the remaining time.
async fn connect_to_one(
    addresses: &[IpAddr],
    port: u16,
    progress: &RequestProgress,
) -> Result<(TcpStream, SocketAddr), FailureCause> {
    let start = Instant::now();
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX).min(ADDRESSES_MAX);
    let mut cause = FailureCause::connect_timeout();
    for (tried, address) in (0..count).zip(addresses) {
        // IPv4-mapped IPv6 is called as IPv4.
        let address = SocketAddr::new(address.to_canonical(), port);
        progress.lock_state().address = Some(address);
        let share = progress.deadline().saturating_duration_since(Instant::now()) / (count - tried);
        cause = match timeout(share.max(CONNECT_MIN), TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                progress.lock_state().connected = Some(start.elapsed());
                // Requests are written in one piece, so Nagle's algorithm would only delay them.
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
            Ok(Err(error)) => FailureCause::new(FailureKind::Connect, format!("{address}: {error}")),
            Err(_) => FailureCause::connect_timeout(),
        };
    }
    Err(cause)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Socket>;
    type Error = FailureCause;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Socket>, FailureCause>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), FailureCause>> {
        Poll::Ready(Ok(()))
    }

    /// Called within the request's own task. The future owns the deadline, because it may outlive the request: when another
    /// connection becomes free first, the client finishes this one for the next request.
    fn call(&mut self, uri: Uri) -> Self::Future {
        let progress =
            PROGRESS.try_with(Clone::clone).unwrap_or_else(|_| RequestProgress::new(Instant::now() + STRAY_MAX, None));
        let connecting = self.clone().open_connection(uri, progress.clone());
        Box::pin(async move {
            progress.run_in_time(connecting).await.unwrap_or_else(|| Err(FailureCause::connect_timeout()))
        })
    }
}
