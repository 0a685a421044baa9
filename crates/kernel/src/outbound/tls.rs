//! TLS of outbound connections: trusts the system's certificate authorities and those of one extra file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::TargetHost;
use crate::base::{Error, Result};

pub(super) struct TlsClient {
    extra: RootCertStore,
    /// Built at the first https request, because reading the system's certificates is slow and not every process needs it.
    config: OnceCell<Arc<ClientConfig>>,
}

impl TlsClient {
    /// Reads the extra file at once, so that the operator sees a mistake in it at the start.
    pub fn new(extra: Option<&Path>) -> Result<Self> {
        let extra = extra.map_or_else(|| Ok(RootCertStore::empty()), read_roots)?;
        Ok(TlsClient { extra, config: OnceCell::new() })
    }

    pub async fn connect_tls(&self, host: &TargetHost, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let name = server_name(host)?;
        let config = self.config.get_or_try_init(|| self.load_config()).await?.clone();
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| plain_reason(&error))
    }

    async fn load_config(&self) -> Result<Arc<ClientConfig>, String> {
        let extra = self.extra.clone();
        let built = spawn_blocking(move || build_config(extra)).await;
        built.map_err(|error| error.to_string())?
    }
}

fn read_roots(file: &Path) -> Result<RootCertStore> {
    let unreadable = |reason: String| Error::internal(format!("{}: {reason}", file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.to_string()))? {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unreadable("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}

fn build_config(mut roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "failed to read a trusted certificate of the system");
    }
    // The system's list may have old entries that rustls cannot parse; the others are still used.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("this system trusts no certificate authority, so no server can prove who it is".to_owned());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Certificates name a host without its trailing dot.
fn server_name(host: &TargetHost) -> Result<ServerName<'static>, String> {
    match host {
        TargetHost::Address(address) => Ok(ServerName::from(*address)),
        TargetHost::Name(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            ServerName::try_from(name.to_owned()).map_err(|_| format!("{name} cannot stand in a certificate"))
        }
    }
}

/// The reason of rustls, without the wrapper of the stream.
fn plain_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the connection was closed during the handshake".to_owned(),
        _ => error.to_string(),
    }
}
