//! Looks up TXT records, by which a tenant proves that it owns a domain. Used by commands of the operator only; requests of
//! tenants cannot reach it, so the address of the name server is not guarded.
//!
//! The system's resolver returns addresses only, so the query is built here: over UDP, and again over TCP if the answer is
//! truncated. Deliberately left out: caching, and following delegations, which the name server does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, TYPE, header_buffer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::base::{Error, RandomSource, Result};

/// A datagram may be lost, or a server may be down: each try uses the next server.
const TRIES: usize = 3;
const TRY_MAX: Duration = Duration::from_secs(3);
/// As many as the C library uses.
const SERVERS_MAX: usize = 3;
const PORT: u16 = 53;
/// More than any UDP answer without EDNS, which this query does not use.
const DATAGRAM_BYTES_MAX: usize = 4_096;
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The texts of all TXT records of a name, each joined from its parts. Uses the given name server, or those of the system.
pub async fn look_up_txt(name: &str, server: Option<SocketAddr>, random: &RandomSource) -> Result<Vec<String>> {
    let servers = match server {
        Some(server) => vec![server],
        None => system_servers().await,
    };
    let mut reason = String::new();
    for server in servers.iter().cycle().take(TRIES) {
        // The id is unpredictable, so that an attacker cannot forge an answer.
        let id = u16::from_be_bytes(random.secret_bytes());
        match query_server(name, *server, id).await {
            Ok(texts) => return Ok(texts),
            Err(why) => reason = format!("{server}: {why}"),
        }
    }
    Err(Error::internal(format!("the TXT records of {name} could not be asked for: {reason}")))
}

/// The name servers of the system, or localhost if it names none.
async fn system_servers() -> Vec<SocketAddr> {
    let text = tokio::fs::read_to_string(RESOLV_CONF).await.unwrap_or_default();
    let servers = named_servers(&text);
    if servers.is_empty() { vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))] } else { servers }
}

/// The addresses of the `nameserver` lines. A link-local address with a zone is skipped.
fn named_servers(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| -> Option<SocketAddr> {
        let mut words = line.split_whitespace();
        let address: IpAddr = words.next().filter(|word| *word == "nameserver").and(words.next())?.parse().ok()?;
        Some(SocketAddr::new(address, PORT))
    };
    text.lines().filter_map(address).take(SERVERS_MAX).collect()
}

/// The content of an answer.
#[derive(Debug, PartialEq, Eq)]
enum TxtAnswer {
    Texts(Vec<String>),
    /// The answer did not fit into a datagram.
    Truncated,
    Refused(String),
}

async fn query_server(name: &str, server: SocketAddr, id: u16) -> Result<Vec<String>, String> {
    let question = build_question(name, id)?;
    let late = |_| format!("there was no answer within {} s", TRY_MAX.as_secs());
    let mut answer = timeout(TRY_MAX, query_udp(&question, name, server, id)).await.map_err(late)??;
    if answer == TxtAnswer::Truncated {
        answer = timeout(TRY_MAX, query_tcp(&question, name, server, id)).await.map_err(late)??;
    }
    match answer {
        TxtAnswer::Texts(texts) => Ok(texts),
        TxtAnswer::Truncated => Err("the answer is cut off".to_owned()),
        TxtAnswer::Refused(why) => Err(why),
    }
}

fn build_question(name: &str, id: u16) -> Result<Vec<u8>, String> {
    let name = Name::new(name).map_err(|error| error.to_string())?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(name, TYPE::TXT.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().map_err(|error| error.to_string())
}

/// Skips datagrams that do not answer the question, because anybody can send to an open port.
async fn query_udp(question: &[u8], name: &str, server: SocketAddr, id: u16) -> Result<TxtAnswer, String> {
    let own: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let failed = |error: std::io::Error| error.to_string();
    let socket = UdpSocket::bind(own).await.map_err(failed)?;
    socket.connect(server).await.map_err(failed)?;
    socket.send(question).await.map_err(failed)?;
    let mut message = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let length = socket.recv(&mut message).await.map_err(failed)?;
        if let Some(answer) = message.get(..length).and_then(|message| parse_answer(message, name, id)) {
            return Ok(answer);
        }
    }
}

async fn query_tcp(question: &[u8], name: &str, server: SocketAddr, id: u16) -> Result<TxtAnswer, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(server).await.map_err(failed)?;
    let length = u16::try_from(question.len()).map_err(|error| error.to_string())?;
    stream.write_all(&[length.to_be_bytes().as_slice(), question].concat()).await.map_err(failed)?;
    let length = stream.read_u16().await.map_err(failed)?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await.map_err(failed)?;
    parse_answer(&message, name, id).ok_or_else(|| "what came is no answer to the question".to_owned())
}

fn parse_answer(message: &[u8], name: &str, id: u16) -> Option<TxtAnswer> {
    let is_answer = header_buffer::has_flags(message, PacketFlag::RESPONSE).ok()?;
    if !is_answer || header_buffer::id(message).ok()? != id {
        return None;
    }
    // A truncated message may end within a record, so it is not parsed; the query is repeated over TCP.
    if header_buffer::has_flags(message, PacketFlag::TRUNCATION).ok()? {
        return Some(TxtAnswer::Truncated);
    }
    let packet = Packet::parse(message).ok()?;
    let name = Name::new(name).ok()?;
    let [question] = packet.questions.as_slice() else { return None };
    if question.qname != name || question.qtype != QTYPE::TYPE(TYPE::TXT) {
        return None;
    }
    Some(match packet.rcode() {
        RCODE::NoError => {
            TxtAnswer::Texts(packet.answers.iter().filter_map(|record| txt_text(&record.rdata)).collect())
        }
        // The name does not exist, so it has no records.
        RCODE::NameError => TxtAnswer::Texts(Vec::new()),
        refused => TxtAnswer::Refused(format!("the name server says {refused:?}")),
    })
}

fn txt_text(data: &RData<'_>) -> Option<String> {
    match data {
        RData::TXT(txt) => String::try_from(txt.clone()).ok(),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::TXT;

    use super::*;

    const NAME: &str = "_tenant-control.acme.test";

    /// An answer with one record in two parts.
    fn answer(name: &'static str, id: u16) -> Packet<'static> {
        let mut reply = Packet::new_reply(id);
        let question = Question::new(Name::new(name).unwrap(), TYPE::TXT.into(), CLASS::IN.into(), false);
        reply.questions.push(question);
        let text = TXT::new().with_string("tenant-control-").unwrap().with_string("verification=abc").unwrap();
        let record = ResourceRecord::new(Name::new(name).unwrap(), CLASS::IN, 60, RData::TXT(text));
        reply.answers.push(record);
        reply
    }

    #[test]
    fn an_answer_counts_only_for_its_question() {
        let right = answer(NAME, 7).build_bytes_vec().unwrap();
        let texts = TxtAnswer::Texts(vec!["tenant-control-verification=abc".to_owned()]);
        assert_eq!(parse_answer(&right, NAME, 7), Some(texts));
        assert_eq!(parse_answer(&right, NAME, 8), None, "another id");
        assert_eq!(parse_answer(&right, "_tenant-control.other.test", 7), None, "another name");
        assert_eq!(parse_answer(&build_question(NAME, 7).unwrap(), NAME, 7), None, "a question is no answer");
        assert_eq!(parse_answer(&right[..11], NAME, 7), None);
    }

    #[test]
    fn what_is_cut_off_and_what_is_missing_is_told() {
        let mut cut = answer(NAME, 7);
        cut.set_flags(PacketFlag::TRUNCATION);
        assert_eq!(parse_answer(&cut.build_bytes_vec().unwrap(), NAME, 7), Some(TxtAnswer::Truncated));
        let mut missing = answer(NAME, 7);
        missing.answers.clear();
        *missing.rcode_mut() = RCODE::NameError;
        assert_eq!(parse_answer(&missing.build_bytes_vec().unwrap(), NAME, 7), Some(TxtAnswer::Texts(Vec::new())));
        *missing.rcode_mut() = RCODE::ServerFailure;
        assert!(matches!(parse_answer(&missing.build_bytes_vec().unwrap(), NAME, 7), Some(TxtAnswer::Refused(_))));
    }

    #[test]
    fn the_systems_servers_are_read() {
        let text = "# nameserver 192.0.2.9\nsearch acme.test\nnameserver 192.0.2.1\n nameserver 2001:db8::1\n\
            nameserver fe80::1%eth0\nnameserver\n";
        let servers: Vec<String> = named_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53"]);
    }
}
