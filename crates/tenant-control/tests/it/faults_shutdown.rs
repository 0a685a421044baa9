//! The end that an operator asks for, and a second server where one runs already.

use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::process::{Launch, until};

const WAIT_MAX: Duration = Duration::from_mins(1);
/// What the contract gives a process to end in.
const EXIT_MAX: Duration = Duration::from_secs(25);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_told_to_stop_finishes_what_it_has_begun_and_takes_nothing_new() {
    let folder = TempDir::new().unwrap();
    let launch = Launch::on_folder(folder.path());
    let mut server = launch.start().await;
    let cookie = launch.sign_in();
    let address = server.address();
    // A client that has nothing to ask right now keeps its connection, as browsers do.
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 4096]).await.unwrap() > 0);
    let mut slow = TcpStream::connect(address).await.unwrap();
    let body = br#"{"name":"slow upload","scopes":["api_keys:read"]}"#;
    let head = format!(
        "POST /api/admin/api-keys HTTP/1.1\r\nHost: test\r\nCookie: {cookie}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    // The server asks for the body when the handler is about to read it: so the request is under way.
    let mut interim = [0; 25];
    slow.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    slow.write_all(&body[..20]).await.unwrap();

    server.terminate();
    until("new connections are refused", WAIT_MAX, async || TcpStream::connect(address).await.is_err().then_some(()))
        .await;
    assert_eq!(idle.read(&mut [0; 4096]).await.unwrap_or(0), 0, "an idle connection is closed");
    slow.write_all(&body[20..]).await.unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert_eq!(server.exit(EXIT_MAX).await.code(), Some(0), "{}", server.stderr());

    let server = launch.start().await;
    assert_eq!(server.api(&cookie).keys("slow upload").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_data_directory_is_refused() {
    let folder = TempDir::new().unwrap();
    let launch = Launch::on_folder(folder.path());
    let server = launch.start().await;
    let (code, said) = launch.refused().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another server is running on the data directory"), "{said}");
    // The commands of an administrator work beside it, and the first one is unharmed.
    let api = server.api(&launch.sign_in());
    assert_eq!(api.create_key("unharmed").await.unwrap().status, 201);
}
