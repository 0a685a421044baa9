//! Calls by https: who must prove what.

use std::path::PathBuf;
use std::sync::Arc;

use kernel::outbound::{FailureKind, Outbound, OutboundSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::peer::{Peer, read_request};
use super::{get, loopback};

/// A peer by https with a certificate for these names, and the file of the authority that signed it.
struct Proven {
    peer: Peer,
    authority: PathBuf,
    _folder: TempDir,
}

impl Proven {
    async fn start(names: &[&str]) -> Proven {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate.der().to_vec())],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            );
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let peer = Peer::start(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                while read_request(&mut stream).await.is_some() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                }
            }
        })
        .await;
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("authority.pem");
        std::fs::write(&file, authority.pem()).unwrap();
        Proven { peer, authority: file, _folder: folder }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/", self.peer.address.port())
    }

    fn trusting(&self) -> Outbound {
        Outbound::new(OutboundSettings { extra_roots: Some(self.authority.clone()), ..loopback() }).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_certificate_of_a_trusted_authority_is_believed() {
    let proven = Proven::start(&["hooks.example.org"]).await;
    let url = proven.url("hooks.example.org");
    let failure = Outbound::new(loopback()).unwrap().send_request(get(&url)).await.expect_err("a stranger");
    assert_eq!((failure.kind, failure.kind.as_str()), (FailureKind::Tls, "tls_failed"), "{failure:?}");
    assert_eq!((failure.address, failure.status), (Some(proven.peer.address), None));
    assert!(failure.timings.connect_ms.is_some() && failure.timings.tls_ms.is_none(), "{failure:?}");

    let answer = proven.trusting().send_request(get(&url)).await.unwrap();
    assert_eq!((answer.status, &*answer.body, answer.address), (200, &b"ok"[..], proven.peer.address));
    assert!(answer.timings.tls_ms.is_some(), "{:?}", answer.timings);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_must_be_for_the_host_that_was_called() {
    let (name, address) = (Proven::start(&["hooks.example.org"]).await, Proven::start(&["127.0.0.1"]).await);
    // A dot at the end of a name is not part of what is certified.
    for (proven, host, works) in [
        (&name, "hooks.example.org", true),
        (&name, "hooks.example.org.", true),
        (&name, "two.example.org", false),
        (&name, "127.0.0.1", false),
        (&address, "127.0.0.1", true),
        (&address, "hooks.example.org", false),
    ] {
        let answer = proven.trusting().send_request(get(&proven.url(host))).await;
        assert_eq!(answer.as_ref().err().map(|failure| failure.kind), (!works).then_some(FailureKind::Tls), "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_without_tls_is_not_spoken_to() {
    let garbage = Peer::start(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let outbound = Outbound::new(loopback()).unwrap();
    let failure = outbound.send_request(get(&format!("https://{}/", garbage.address))).await.expect_err("no TLS");
    assert_eq!(failure.kind, FailureKind::Tls, "{failure:?}");
}

#[test]
fn a_file_of_certificates_that_cannot_be_used_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("authority.pem");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for content in [None, Some(""), Some("no certificate"), Some(broken)] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let settings = OutboundSettings { extra_roots: Some(file.clone()), ..OutboundSettings::default() };
        let error = Outbound::new(settings).err().expect("a refusal").to_string();
        assert!(error.contains("authority.pem: "), "{content:?}: {error}");
    }
}
