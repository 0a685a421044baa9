//! The TLS certificate, reloaded when its files change.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::base::{Error, Result, lock_unpoisoned};

/// The certificate chain and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The certificate in use, and the files it came from.
pub struct Certificates {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: Mutex<Arc<CertifiedKey>>,
    /// The stamps of the files when they were last read, and whether they were valid.
    seen: Mutex<(FileStamps, bool)>,
}

/// Metadata that changes when a file is written or replaced.
type FileStamps = [Option<[i64; 5]>; 2];

impl Certificates {
    pub fn load_files(files: &TlsFiles) -> Result<Arc<Self>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let seen = file_stamps(files);
        let current = read_certificate(files, &provider)?;
        Ok(Arc::new(Certificates {
            files: files.clone(),
            provider,
            current: Mutex::new(Arc::new(current)),
            seen: Mutex::new((seen, true)),
        }))
    }

    /// Reads the files again if they have changed or were invalid. Returns whether a new certificate is in use. An invalid
    /// one is reported once and the old one stays in use, because the two files are seldom replaced at the same moment.
    pub fn reload_files(&self) -> Result<bool> {
        let now = file_stamps(&self.files);
        let mut seen = lock_unpoisoned(&self.seen);
        let changed = seen.0 != now;
        if !changed && seen.1 {
            return Ok(false);
        }
        let fresh = read_certificate(&self.files, &self.provider);
        *seen = (now, fresh.is_ok());
        match fresh {
            Ok(fresh) => {
                *lock_unpoisoned(&self.current) = Arc::new(fresh);
                Ok(true)
            }
            Err(error) if changed => Err(error),
            Err(_) => Ok(false),
        }
    }

    pub(super) fn tls_acceptor(self: &Arc<Self>) -> Result<TlsAcceptor> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(Error::internal)?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(lock_unpoisoned(&self.current).clone())
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

fn read_certificate(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable_file(&files.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable_file(&files.key, &error))?;
    let unusable = |error| Error::internal(format!("the TLS certificate cannot be used: {error}"));
    CertifiedKey::from_der(chain, key, provider).map_err(unusable)
}

fn file_stamps(files: &TlsFiles) -> FileStamps {
    let stamp = |path: &Path| -> io::Result<_> {
        let file = std::fs::metadata(path)?;
        Ok([file.ino() as i64, file.mtime(), file.mtime_nsec(), file.ctime_nsec(), file.len() as i64])
    };
    [stamp(&files.certificate).ok(), stamp(&files.key).ok()]
}

fn unreadable_file(path: &Path, error: &dyn fmt::Display) -> Error {
    Error::internal(format!("{}: {error}", path.display()))
}
