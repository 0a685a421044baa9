//! Bodies that no honest agent sends: refused with a sentence, or taken for what they are. Nothing is half done.

use std::fmt::Write as _;

use flate2::{Compress, Compression, FlushCompress};
use serde_json::Value;

use crate::support::devices::{Agent, Codec, INGEST, IngestKey, device_events, element, only_device, reported};
use crate::support::{Answer, Server, over_http};

use super::all;

/// What may come inflated.
const INFLATED_BYTES_MAX: usize = 64 << 20;
/// What may come at all.
const BODY_BYTES_MAX: usize = 16 << 20;

struct Hostile {
    what: &'static str,
    bytes: Vec<u8>,
    status: u16,
    /// Part of what is said about it.
    told: &'static str,
}

fn hostile(what: &'static str, bytes: impl Into<Vec<u8>>, status: u16, told: &'static str) -> Hostile {
    Hostile { what, bytes: bytes.into(), status, told }
}

fn xml(content: &str) -> Vec<u8> {
    format!("<REQUEST><CONTENT>{content}</CONTENT><DEVICEID>d</DEVICEID><QUERY>INVENTORY</QUERY></REQUEST>")
        .into_bytes()
}

fn json(content: &str) -> Vec<u8> {
    format!("{{\"action\":\"inventory\",\"deviceid\":\"d\",\"content\":{content}}}").into_bytes()
}

fn xml_software(count: usize) -> Vec<u8> {
    let mut all = String::new();
    for n in 0..count {
        let _ = write!(all, "<SOFTWARES><NAME>p{n}</NAME></SOFTWARES>");
    }
    xml(&all)
}

fn json_software(count: usize) -> Vec<u8> {
    let all: Vec<String> = (0..count).map(|n| format!("{{\"name\":\"p{n}\"}}")).collect();
    json(&format!("{{\"softwares\":[{}]}}", all.join(",")))
}

fn scan(content: &str) -> Vec<u8> {
    format!("{{\"action\":\"netinventory\",\"deviceid\":\"d\",\"content\":{content}}}").into_bytes()
}

fn many_devices(count: usize) -> Vec<u8> {
    let all: Vec<_> = (0..count).map(|n| format!("<DEVICE><SNMPHOSTNAME>s{n}</SNMPHOSTNAME></DEVICE>")).collect();
    format!("<REQUEST><CONTENT>{}</CONTENT><QUERY>NETDISCOVERY</QUERY></REQUEST>", all.concat()).into_bytes()
}

fn cut(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len() / 2].to_vec()
}

/// Bytes that nothing can make anything of, the same in every run.
fn junk(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_be_bytes()[0]
    };
    (0..length).map(next).collect()
}

fn broken() -> Vec<Hostile> {
    let agent = Agent::named("web01");
    let (fusion, glpi) = (agent.fusion().plain, agent.glpi().plain);
    let zlib = Codec::Zlib.pack(&fusion);
    let mut wrong_sum = zlib.clone();
    *wrong_sum.last_mut().unwrap() ^= 1;
    let entities = "<!DOCTYPE r [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>";
    let outside = "<!DOCTYPE r [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>";
    let with = |start: &str, content: &str| [start.as_bytes(), &xml(content)].concat();
    let deep = |count: usize, open: &str, close: &str| format!("{}{}", open.repeat(count), close.repeat(count));
    vec![
        hostile("nothing", "", 400, "empty"),
        hostile("spaces", "   \n  ", 400, "empty"),
        hostile("junk", junk(4_096), 415, "not zlib, gzip, XML or JSON"),
        hostile("text", "hello", 415, "not zlib, gzip, XML or JSON"),
        hostile("zlib of junk", Codec::Zlib.pack(&junk(4_096)), 415, "not XML or JSON"),
        hostile("zlib of text", Codec::Zlib.pack(b"hello"), 415, "not XML or JSON"),
        hostile("zlib in zlib", Codec::Zlib.pack(&zlib), 415, "not XML or JSON"),
        hostile("zlib that is cut", cut(&zlib), 400, "cut off"),
        hostile("zlib without its last byte", &zlib[..zlib.len() - 1], 400, "cut off"),
        hostile("zlib with a wrong sum", wrong_sum, 400, "damaged"),
        hostile("zlib with more behind", [&zlib[..], b"more"].concat(), 400, "more bytes"),
        hostile("gzip that is cut", cut(&Codec::Gzip.pack(&fusion)), 400, "cut off"),
        hostile("gzip twice", Codec::Gzip.pack(&fusion).repeat(2), 400, "more bytes"),
        hostile("deflate alone", &zlib[2..zlib.len() - 4], 415, ""),
        hostile("XML that is cut", cut(&fusion), 400, "XML"),
        hostile("JSON that is cut", cut(&glpi), 400, "JSON"),
        hostile("XML that is cut, packed well", Codec::Zlib.pack(&cut(&fusion)), 400, "XML"),
        hostile("JSON that is cut, packed well", Codec::Gzip.pack(&cut(&glpi)), 400, "JSON"),
        hostile("many laughs", with(entities, "<HARDWARE><NAME>&b;</NAME></HARDWARE>"), 415, "entities"),
        hostile("a file of the server", with(outside, "<HARDWARE><NAME>&x;</NAME></HARDWARE>"), 415, "entities"),
        hostile("a document type", with("<!DOCTYPE r SYSTEM \"http://127.0.0.1/x.dtd\">", ""), 415, "entities"),
        hostile("an entity", xml("<HARDWARE><NAME>&x;</NAME></HARDWARE>"), 415, "entities"),
        hostile("10,001 packages in XML", xml_software(10_001), 413, "10000"),
        hostile("10,001 packages in JSON", json_software(10_001), 413, "10000"),
        hostile("100,000 packages, packed", Codec::Zlib.pack(&xml_software(100_000)), 413, "10000"),
        hostile("deep XML", xml(&deep(100_000, "<A>", "</A>")), 400, "deeper"),
        hostile("deep JSON", json(&format!("{{\"bios\":{}}}", deep(100_000, "[", "]"))), 400, "bios"),
        hostile("deep JSON without an end", json(&"[".repeat(100_000)), 400, ""),
        hostile("a list", "[1,2,3]", 415, ""),
        hostile("an empty object", "{}", 400, "what it is"),
        hostile("an empty request", "<REQUEST></REQUEST>", 400, "what it is"),
        hostile("a page", "<html></html>", 415, "REQUEST"),
        hostile("two requests", [&fusion[..], b"<REQUEST></REQUEST>"].concat(), 400, ""),
        hostile("no device", "<REQUEST><CONTENT/><QUERY>INVENTORY</QUERY></REQUEST>", 400, "device id"),
        hostile("no content", "{\"action\":\"inventory\",\"deviceid\":\"d\"}", 400, "content"),
        hostile("another task", "{\"action\":\"deploy\",\"deviceid\":\"d\",\"content\":{}}", 400, "deploy"),
        hostile("another query", "<REQUEST><DEVICEID>d</DEVICEID><QUERY>WAKEONLAN</QUERY></REQUEST>", 400, "WAKEONLAN"),
        hostile(
            "a scan without content",
            "<REQUEST><DEVICEID>d</DEVICEID><QUERY>SNMPQUERY</QUERY></REQUEST>",
            400,
            "content",
        ),
        hostile("a scan of a list", "{\"action\":\"netdiscovery\",\"deviceid\":\"d\",\"content\":[1]}", 400, "content"),
        hostile("a scan of nobody knows what", scan("{\"network_device\":{\"type\":\"Printer\"}}"), 400, "recognized"),
        hostile(
            "a scan of another kind",
            "<REQUEST><CONTENT><SNMP_DEFAULT><NAME>sw1</NAME></SNMP_DEFAULT></CONTENT><DEVICEID>d</DEVICEID><QUERY>SNMP</QUERY></REQUEST>",
            400,
            "SNMP",
        ),
        hostile("ports that are none", scan("{\"network_ports\":[1]}"), 400, "network_ports"),
        hostile("501 scanned devices", many_devices(501), 413, "500"),
        hostile("another encoding", "<?xml version=\"1.0\" encoding=\"UTF-16\"?><REQUEST/>", 415, "encoding"),
        hostile("a section that is none", json("{\"softwares\":\"all\"}"), 400, "softwares"),
        hostile("half a letter", json("{\"hardware\":{\"name\":\"\\ud800\"}}"), 400, "JSON"),
        hostile("a body that is too long", vec![b' '; BODY_BYTES_MAX + 1], 413, ""),
    ]
}

async fn post(server: &Server, key: &IngestKey, agent_id: Option<&str>, bytes: &[u8]) -> Answer {
    let call =
        server.post(INGEST).header("authorization", key.basic()).header("content-type", "application/octet-stream");
    let call = agent_id.into_iter().fold(call, |call, id| call.header("glpi-agent-id", id));
    call.body(bytes).await
}

over_http! {
    async fn a_broken_body_is_refused_with_a_sentence_and_leaves_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut wrong = Vec::new();
        for Hostile { what, bytes, status, told } in broken() {
            let answer = post(&server, &key, None, &bytes).await;
            if answer.status != status {
                wrong.push(format!("{what}: {}", String::from_utf8_lossy(&answer.body)));
                continue;
            }
            let code = match status {
                413 => "payload_too_large",
                415 => "unsupported_media_type",
                _ => "malformed_report",
            };
            let problem = answer.problem(code);
            let detail = problem["detail"].as_str().unwrap();
            if !detail.contains(told) || detail.len() > 300 {
                wrong.push(format!("{what}: {detail}"));
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new());
        assert_eq!(device_events(&server, &acme).await, Vec::<Value>::new());
        reported(&server, &key, &Agent::named("web01").fusion()).await;
        assert_eq!(all(&server, &acme).await.len(), 1, "and who is honest is not held back");
    }

    async fn a_broken_body_of_a_known_device_changes_nothing_of_it(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01");
        reported(&server, &key, &agent.fusion()).await;
        let before = only_device(&server, &acme.admin).await;
        server.advance(60_000);
        agent.memory_mib = 1;
        let (fusion, glpi) = (agent.fusion().plain, agent.glpi().plain);
        let too_many = [&fusion[..fusion.len() - 60], &xml_software(10_001)[..]].concat();
        for bytes in [&fusion[..fusion.len() - 1], &glpi[..glpi.len() - 1], &cut(&Codec::Zlib.pack(&fusion)), &too_many] {
            assert!([400, 413].contains(&post(&server, &key, None, bytes).await.status));
        }
        assert_eq!(only_device(&server, &acme.admin).await, before);
        assert_eq!(device_events(&server, &acme).await.len(), 1);
    }

    async fn names_as_long_as_they_can_be_are_taken(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        // Letters of four bytes each, in an order that no index can press together.
        let bytes = junk(200_000);
        let mut letters = bytes.chunks(2).map(|pair| 0x20000 + u32::from(pair[0]) * 160 + u32::from(pair[1]) % 160);
        let mut long = |prefix: &str| -> String {
            let letter = |n: u32| char::from_u32(n).unwrap();
            prefix.chars().chain(letters.by_ref().take(600).map(letter)).collect()
        };
        let mut agent = Agent::named("web01").tag(&long("t"));
        agent.device_id = long("d");
        agent.hostname = long("h");
        agent.serial = Some(long("s"));
        agent.manufacturer = Some(long("m"));
        agent.model = Some(long("o"));
        agent.user = Some(long("u"));
        (agent.os_name, agent.os_version, agent.cpu) = (long("Linux "), long("v"), long("c"));
        agent.software = (0..20).map(|n| (long(&format!("p{n}")), long("v"))).collect();
        agent.disks = vec![(long("d"), 1)];
        agent.volumes = vec![(long("/"), 100, 50)];
        agent.nics[0].0 = long("n");
        for _ in 0..2 {
            reported(&server, &key, &agent.fusion()).await;
            reported(&server, &key, &agent.glpi()).await;
            agent.memory_mib += 1;
        }
        let device = only_device(&server, &acme.admin).await;
        for field in ["hostname", "serial_number", "manufacturer", "model", "last_logged_user"] {
            assert_eq!(device[field].as_str().unwrap().chars().count(), 500, "{field}");
        }
        assert_eq!(device["software"].as_array().unwrap().len(), 20);
    }

    async fn what_is_odd_and_harmless_is_taken(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut agent = Agent::named("web01");
        "web\u{7f}01\u{feff}\u{202e}<b>&'\"".clone_into(&mut agent.hostname);
        agent.memory_mib = i64::MAX;
        agent.disks = vec![("sda".to_owned(), i64::MAX), ("sdb".to_owned(), -1)];
        agent.volumes = vec![("/".to_owned(), -5, 7), ("/srv".to_owned(), 10, 20)];
        agent.nics = vec![("eno1".to_owned(), "no address".to_owned(), "999.999.999.999".to_owned())];
        "9999-99-99 99:99:99".clone_into(&mut agent.boot_time);
        let odd = "<SOFTWARES></SOFTWARES><SOFTWARES><NAME></NAME></SOFTWARES><SOFTWARES><VERSION>1</VERSION></SOFTWARES>";
        agent.more_xml = odd.to_owned() + &element("SOFTWARES", &[("NAME", "x"), ("INSTALLDATE", "31/02/2025")]);
        reported(&server, &key, &agent.fusion()).await;
        let mut json = agent.json();
        json["content"]["hardware"]["name"] = "nul\u{0}byte".into();
        json["content"]["unknown"] = serde_json::json!([[[[{"a": [null]}]]]]);
        reported(&server, &key, &crate::support::devices::Body::new("curl/8.0", json.to_string())).await;
        let device = only_device(&server, &acme.admin).await;
        assert_eq!((&device["hostname"], &device["memory_bytes"]), (&"nulbyte".into(), &Value::Null));
        assert_eq!((&device["last_boot_at"], &device["primary_ip"]), (&Value::Null, &Value::Null));
    }

    async fn ten_thousand_packages_are_taken(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        post(&server, &key, None, &Codec::Zlib.pack(&xml_software(10_000))).await.is(200);
        let device = only_device(&server, &acme.admin).await;
        assert_eq!(device["software"].as_array().unwrap().len(), 10_000);
        post(&server, &key, None, &json_software(1)).await.is(200);
        assert_eq!(only_device(&server, &acme.admin).await["software"].as_array().unwrap().len(), 1);
    }
}

/// So many spaces and more, as zlib. A part that stands for itself is packed once and repeated: packing all of it takes long.
fn bomb(length: usize) -> Vec<u8> {
    let part = vec![b' '; 1 << 20];
    let mut packed = Vec::with_capacity(1 << 16);
    let mut compress = Compress::new(Compression::best(), false);
    compress.compress_vec(&part, &mut packed, FlushCompress::Full).unwrap();
    assert_eq!(compress.total_in(), part.len() as u64);
    [b"\x78\x9c".as_slice(), &packed.repeat(length.div_ceil(part.len()))].concat()
}

/// What is inflated is the same on every database.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bomb_is_given_up_at_its_bound() {
    let server = Server::sqlite().await;
    let acme = server.tenant("acme").await;
    let key = server.ingest_key(&acme).await;
    let agent_id = Some("5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f");
    let bomb = bomb(INFLATED_BYTES_MAX + 1);
    assert!(bomb.len() < BODY_BYTES_MAX / 100, "{} bytes", bomb.len());
    for (agent_id, media_type) in [(agent_id, "application/json"), (None, "application/problem+json")] {
        let answer = post(&server, &key, agent_id, &bomb).await;
        assert_eq!(answer.is(413).header("content-type"), media_type);
        let told = answer.json();
        let text = if agent_id.is_some() { &told["message"] } else { &told["detail"] };
        assert_eq!(text, "The body is larger than 64 MiB once inflated.");
    }
    assert_eq!(all(&server, &acme).await, Vec::<Value>::new());
}
