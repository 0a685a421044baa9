//! TLS of the real binary: to its clients, and to PostgreSQL.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion, version};

use crate::support::command::{Desk, Process};
use crate::support::postgres::{certificate_authority, fresh_database};
use crate::support::process::until;

/// A certificate authority of the test's own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Puts `cert.pem` and `key.pem` for this name on the desk.
    fn certify(&self, desk: &Desk, name: &str) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        desk.file("cert.pem", certificate.pem());
        desk.file("key.pem", key.serialize_pem());
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.0.der().to_vec())).unwrap();
        roots
    }
}

const TLS_FILES: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

async fn connect(
    address: SocketAddr,
    roots: RootCertStore,
    protocol: &str,
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let tcp = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), tcp).await
}

/// The whole answer to a GET over TLS, as text.
async fn get(process: &Process, roots: RootCertStore, target: &str, header: &str) -> String {
    ask(process, roots, &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n")).await
}

/// The same to a form.
async fn send_form(process: &Process, roots: RootCertStore, target: &str, fields: &str) -> String {
    let of_body = format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n", fields.len());
    let head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{of_body}\r\n");
    ask(process, roots, &(head + fields)).await
}

async fn ask(process: &Process, roots: RootCertStore, request: &str) -> String {
    let mut stream = connect(process.address, roots, "http/1.1", &[&version::TLS13]).await.expect("a TLS connection");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn https_protects_cookies_and_insists_on_itself() {
    let (desk, authority) = (Desk::new(), Authority::new());
    authority.certify(&desk, "localhost");
    let process = desk.serve(&TLS_FILES);
    assert_eq!(process.base_url, format!("https://{}", process.address));
    let link = process.says("/signin?token=").trim().to_owned();
    let target = link.strip_prefix(&process.base_url).expect("a link by https");
    let answer = get(&process, authority.roots(), target, "").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("set-cookie: "), "{answer}");
    let (_, token) = target.split_once('?').expect("a token");
    let answer = send_form(&process, authority.roots(), "/signin/link", token).await;
    assert!(answer.starts_with("HTTP/1.1 303 "), "{answer}");
    let line = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
    assert!(line("strict-transport-security: ").starts_with("max-age="), "{answer}");
    let cookie = line("set-cookie: ");
    let (pair, attributes) = cookie.split_once("; ").expect("a cookie");
    assert!(pair.starts_with("__Host-session="), "{cookie}");
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Secure");
    let answer = get(&process, authority.roots(), "/api/auth/session", &format!("Cookie: {pair}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("strict-transport-security: "), "{answer}");

    // A session of the command line has the same name when it is told the same address.
    let create = [
        "admin",
        "session",
        "create",
        "--tenant",
        "default",
        "--email",
        "admin@localhost",
        "--base-url",
        &process.base_url,
    ];
    let made = desk.json(&create);
    let answer = get(
        &process,
        authority.roots(),
        "/api/auth/session",
        &format!("Cookie: {}\r\n", made["cookie"].as_str().unwrap()),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_offered_and_old_versions_are_not() {
    let (desk, authority) = (Desk::new(), Authority::new());
    authority.certify(&desk, "localhost");
    let process = desk.serve(&TLS_FILES);
    for protocol in ["h2", "http/1.1"] {
        let stream = connect(process.address, authority.roots(), protocol, &[&version::TLS13]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
    }
    let stream = connect(process.address, authority.roots(), "h2", &[&version::TLS12]).await.unwrap();
    assert_eq!(stream.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    let stranger = connect(process.address, Authority::new().roots(), "h2", &[&version::TLS13]).await;
    assert!(stranger.is_err(), "this test does check certificates");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_on_the_tls_port_gets_no_answer_and_harms_nobody() {
    let (desk, authority) = (Desk::new(), Authority::new());
    authority.certify(&desk, "localhost");
    let process = desk.serve(&TLS_FILES);
    let mut stream = TcpStream::connect(process.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    assert!(!bytes.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&bytes));
    assert!(get(&process, authority.roots(), "/healthz", "").await.starts_with("HTTP/1.1 200 "));
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let (desk, authority) = (Desk::new(), Authority::new());
    authority.certify(&desk, "localhost");
    desk.file("other.pem", KeyPair::generate().unwrap().serialize_pem());
    desk.file("empty.pem", "");
    for (certificate, key, wanted) in [
        ("missing.pem", "key.pem", "error: missing.pem: "),
        ("cert.pem", "missing.pem", "error: missing.pem: "),
        ("cert.pem", "empty.pem", "error: empty.pem: "),
        ("empty.pem", "key.pem", "error: "),
        ("cert.pem", "other.pem", "error: the TLS certificate cannot be used: "),
    ] {
        let ended = desk.run(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key]);
        assert_eq!(ended.code, 1, "{certificate} {key}: {ended:?}");
        assert!(ended.stderr.contains(wanted), "{certificate} {key}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_replaced_is_shown_without_a_restart() {
    let (desk, first, second) = (Desk::new(), Authority::new(), Authority::new());
    first.certify(&desk, "localhost");
    let process = desk.serve(&TLS_FILES);
    let reach =
        async |authority: &Authority| connect(process.address, authority.roots(), "h2", &[&version::TLS13]).await.ok();
    assert!(reach(&first).await.is_some());
    // The new certificate comes before its key: until then the old pair is used. Both are made elsewhere, so that the
    // server never finds the new pair before it is meant to.
    let elsewhere = Desk::new();
    second.certify(&elsewhere, "localhost");
    let made = |name: &str| std::fs::read(elsewhere.path(name)).unwrap();
    desk.file("cert.pem", made("cert.pem"));
    process.logs(&["WARN", "the TLS certificate cannot be used"]);
    assert!(reach(&first).await.is_some(), "the old one stays while the new one cannot be used");
    desk.file("key.pem", made("key.pem"));
    until("the new certificate is shown", Duration::from_mins(1), async || reach(&second).await).await;
    assert!(reach(&first).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_is_trusted_as_the_url_says() {
    let database = fresh_database().await;
    let mut desk = Desk::new();
    let stranger = desk.file("stranger.pem", Authority::new().0.pem());
    let (root, stranger) = (certificate_authority(), stranger.to_str().unwrap().to_owned());
    // The server's certificate is for localhost alone, and signed by `root`.
    for (host, mode, root, works) in [
        ("127.0.0.1", "disable", None, true),
        ("127.0.0.1", "require", None, true),
        ("127.0.0.1", "require", Some(&*root), true),
        ("127.0.0.1", "require", Some(&*stranger), false),
        ("127.0.0.1", "verify-ca", Some(&*root), true),
        ("127.0.0.1", "verify-ca", Some(&*stranger), false),
        ("127.0.0.1", "verify-ca", None, false),
        ("127.0.0.1", "verify-full", Some(&*root), false),
        ("localhost", "verify-full", Some(&*root), true),
        ("localhost", "verify-full", Some(&*stranger), false),
        ("localhost", "verify-full", None, false),
        ("localhost", "verify-full", Some("/nowhere.pem"), false),
        ("localhost", "verify-everything", Some(&*root), false),
    ] {
        desk.set("TENANT_CONTROL_DATABASE_URL", database.url_with_tls(host, mode, root));
        let ended = desk.run(&["migrate"]);
        assert_eq!(ended.code == 0, works, "{host} {mode} {root:?}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption_without_proof_is_warned_of() {
    let database = fresh_database().await;
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", database.url_with_tls("127.0.0.1", "require", None));
    desk.serve(&[]).logs(&["WARN", "nothing proves who answers: use sslmode=verify-full with sslrootcert"]);
    desk.set(
        "TENANT_CONTROL_DATABASE_URL",
        database.url_with_tls("localhost", "verify-full", Some(&certificate_authority())),
    );
    let ended = desk.serve(&[]).stop();
    assert!(!ended.stderr.contains("nothing proves"), "{}", ended.stderr);
}

/// Someone in the middle who claims that the server knows no TLS. Tells what the client sends after that.
fn downgrade() -> (SocketAddr, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let middle = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 8];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47], "an SSLRequest");
        stream.write_all(b"N").unwrap();
        let mut sent = Vec::new();
        let _ = stream.read_to_end(&mut sent);
        sent
    });
    (address, middle)
}

#[test]
fn a_server_that_claims_to_know_no_tls_learns_no_password() {
    let root = certificate_authority();
    for (mode, root) in [("require", None), ("verify-ca", Some(&root)), ("verify-full", Some(&root))] {
        let (address, middle) = downgrade();
        let mut desk = Desk::new();
        let root = root.map_or_else(String::new, |root| format!("&sslrootcert={root}"));
        desk.set("TENANT_CONTROL_DATABASE_URL", format!("postgres://tc:hunter2@{address}/tc?sslmode={mode}{root}"));
        let ended = desk.run(&["migrate"]);
        assert_eq!(ended.code, 1, "{mode}: {ended:?}");
        assert!(middle.join().unwrap().is_empty(), "{mode}");
        assert!(ended.stderr.contains("TLS"), "{}", ended.stderr);
    }
}
