//! One connection of a receiver: reads request after request, and does with each what it was told.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::behaviour::{Behaviour, DRIP_EVERY};
use super::log::{Log, Received, Verdict};
use crate::support::process::say;

/// Far more than a webhook has; only a sender gone wild meets these.
const HEAD_BYTES_MAX: u64 = 64 * 1024;
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// `tcp` finds the connection below what may be TLS.
pub(super) async fn serve<S>(stream: S, tcp: fn(&S) -> &TcpStream, log: &Log) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = BufReader::new(stream);
    while let Some(mut request) = read_head(&mut stream).await.inspect_err(complain)? {
        let behaviour = log.choose(&request);
        if matches!(behaviour, Behaviour::ResetEarly) {
            return tcp(stream.get_ref()).set_zero_linger();
        }
        request.body = read_body(&request, &mut stream).await.inspect_err(complain)?;
        log.record(&request, behaviour.verdict());
        if matches!(behaviour, Behaviour::Reset) {
            return tcp(stream.get_ref()).set_zero_linger();
        }
        if behaviour.answer().is_none() {
            misbehave(&behaviour, &mut stream).await?;
            break;
        }
        answer(&behaviour, &request, &mut stream, log).await?;
        if request.headers.get("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            break;
        }
    }
    stream.shutdown().await
}

/// A request that this reader does not understand would otherwise look like one that never came.
fn complain(error: &Error) {
    if error.kind() == ErrorKind::InvalidData {
        say(&format!("the receiver was sent something strange: {error}"));
    }
}

async fn read_head<S>(stream: &mut BufReader<S>) -> Result<Option<Received>>
where
    S: AsyncRead + Unpin,
{
    let mut head = Vec::new();
    let mut limited = stream.take(HEAD_BYTES_MAX);
    while !head.ends_with(b"\r\n\r\n") {
        if limited.read_until(b'\n', &mut head).await? == 0 {
            return if head.is_empty() { Ok(None) } else { Err(strange("a head without an end", &head)) };
        }
    }
    let text = str::from_utf8(&head).map_err(|_| strange("a head that is not text", &head))?;
    let mut lines = text.trim_end().split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some("HTTP/1.1"), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(strange("no request line", &head));
    };
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| strange("a line that is no header", &head))?;
        let known = headers.entry(name.to_lowercase()).or_default();
        known.push_str(if known.is_empty() { "" } else { ", " });
        known.push_str(value.trim());
    }
    let (method, path) = (method.to_owned(), path.to_owned());
    Ok(Some(Received { method, path, headers, body: Vec::new(), at: Instant::now() }))
}

async fn read_body<S>(request: &Received, stream: &mut BufReader<S>) -> Result<Vec<u8>>
where
    S: AsyncRead + Unpin,
{
    if request.headers.contains_key("transfer-encoding") {
        return Err(strange("a body whose length is not told before", request.path.as_bytes()));
    }
    let length = request.headers.get("content-length").map_or(Ok(0), |length| length.parse());
    let length = length.ok().filter(|length| *length <= BODY_BYTES_MAX);
    let length = length.ok_or_else(|| strange("a body of no sensible length", request.path.as_bytes()))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

fn strange(what: &str, bytes: &[u8]) -> Error {
    Error::new(ErrorKind::InvalidData, format!("{what}: {:?}", String::from_utf8_lossy(bytes)))
}

/// A whole answer. It counts as an acknowledgement before it is sent, so that no sender knows of it earlier than the
/// test does.
async fn answer<S>(behaviour: &Behaviour, request: &Received, stream: &mut BufReader<S>, log: &Log) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(answer) = behaviour.answer() else { return Ok(()) };
    if let Behaviour::Hold(gate) | Behaviour::HoldThen(gate, _) = behaviour {
        tokio::select! {
            // The sender's end is looked at first: nobody acknowledges to one who has gone.
            biased;
            error = sender_gone(stream) => return Err(error),
            () = gate.opened() => {}
        }
        if answer.is_success() {
            log.judge(request, Verdict::Acknowledged);
        }
    }
    let sent = stream.write_all(&answer.to_bytes()).await;
    let sent = match sent {
        Ok(()) => stream.flush().await,
        failed => failed,
    };
    if sent.is_err() && answer.is_success() {
        log.judge(request, Verdict::TakenBack);
    }
    sent
}

/// Does what is no answer until the sender has enough of it.
async fn misbehave<S>(behaviour: &Behaviour, stream: &mut BufReader<S>) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match behaviour {
        Behaviour::DripHead => drip(b"HTTP/1.1 200 \r\nx-drip: ", stream).await,
        Behaviour::DripBody => drip(b"HTTP/1.1 200 \r\ncontent-length: 1000000000\r\n\r\n", stream).await,
        Behaviour::EndlessBody => {
            stream.write_all(b"HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n").await?;
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            loop {
                stream.write_all(chunk.as_bytes()).await?;
            }
        }
        Behaviour::HugeHeaders => {
            let header = format!("x-huge: {}\r\n", "x".repeat(1014)).repeat(2 * 1024);
            stream.write_all(format!("HTTP/1.1 200 \r\n{header}content-length: 0\r\n\r\n").as_bytes()).await
        }
        Behaviour::Garbage => stream.write_all(b"\0\xff\xfe220 mail.example ESMTP\r\n\x16\x03\x01\r\n\r\n").await,
        Behaviour::Truncated => stream.write_all(b"HTTP/1.1 200 \r\ncontent-length: 1000\r\n\r\nshort").await,
        Behaviour::BreakOff { status, seconds, drips } => {
            let head = format!("HTTP/1.1 {status} \r\nretry-after: {seconds}\r\ncontent-length: 1000000\r\n\r\nshort");
            if *drips { drip(head.as_bytes(), stream).await } else { stream.write_all(head.as_bytes()).await }
        }
        _ => Err(sender_gone(stream).await),
    }
}

async fn drip<S>(start: &[u8], stream: &mut BufReader<S>) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(start).await?;
    loop {
        stream.write_all(b"x").await?;
        stream.flush().await?;
        tokio::time::sleep(DRIP_EVERY).await;
    }
}

/// Waits for the sender to give up.
async fn sender_gone<S>(stream: &mut BufReader<S>) -> Error
where
    S: AsyncRead + Unpin,
{
    match stream.fill_buf().await {
        Ok([]) => ErrorKind::ConnectionAborted.into(),
        // A sender that already speaks again is there.
        Ok(_) => std::future::pending().await,
        Err(error) => error,
    }
}
