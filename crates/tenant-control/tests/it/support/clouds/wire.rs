//! The wire of a stub: reads a request, and answers it, breaks off or waits, as it was told. One request for each connection.
//!
//! It speaks HTTP/1.1 by hand, because a library would refuse to lose an answer.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::state::{CloudCall, Fault, State, StubAnswer};

pub(super) async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let Some(call) = read_call(&mut stream).await? else { return Ok(()) };
    let fault = state.lock().unwrap().begin(&call);
    let replied = reply(&mut stream, &call, &fault, &state).await;
    state.lock().unwrap().finished += 1;
    replied
}

async fn reply(stream: &mut BufReader<TcpStream>, call: &CloudCall, fault: &Fault, state: &Mutex<State>) -> Result<()> {
    if let Fault::HeldRequest(gate) = fault {
        gate.opened().await;
    }
    let answer = match fault {
        Fault::LostRequest => return stream.get_ref().set_zero_linger(),
        Fault::Refused(answer) => answer.clone(),
        _ => state.lock().unwrap().carry_out(call),
    };
    match fault {
        Fault::LostAnswer => return stream.get_ref().set_zero_linger(),
        Fault::HeldAnswer(gate) => gate.opened().await,
        _ => {}
    }
    let body = answer.body.to_string().into_bytes();
    let sent = if matches!(fault, Fault::Truncated) { &body[..body.len() / 2] } else { &body[..] };
    stream.write_all(to_head(&answer, body.len()).as_bytes()).await?;
    stream.write_all(sent).await?;
    stream.shutdown().await
}

fn to_head(answer: &StubAnswer, length: usize) -> String {
    let headers: Vec<String> = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = headers.concat();
    let status = answer.status;
    format!(
        "HTTP/1.1 {status} \r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    )
}

async fn read_call(stream: &mut BufReader<TcpStream>) -> Result<Option<CloudCall>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query: BTreeMap<String, String> = pairs.map(|(name, value)| (unescape(name), unescape(value))).collect();
    let mut call =
        CloudCall { method: method.to_owned(), path: path.to_owned(), query, token: String::new(), body: Value::Null };
    let mut length = 0;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => call.token = value.trim().trim_start_matches("Bearer ").to_owned(),
            "content-length" => length = value.trim().parse().map_err(|_| Error::from(ErrorKind::InvalidData))?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    if !body.is_empty() {
        call.body = serde_json::from_slice(&body)?;
    }
    Ok(Some(call))
}

/// A value of a query as it was meant.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2)).flatten();
        let escaped = escaped.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).expect("a query of UTF-8")
}
