//! What agents scan over the network: switches, printers and VMware hosts become devices of their own.

mod again;
mod kinds;
mod others;

use serde_json::Value;

use crate::support::devices::{Body, Codec, devices, reported};
use crate::support::{Server, Tenancy};

/// A sample of the parser's tests.
macro_rules! scan {
    ($name:literal) => {
        include_bytes!(concat!("../../../../agent-reports/src/testdata/scans/", $name))
    };
}

pub const SWITCH: &[u8] = scan!("switch.json");
pub const STACK: &[u8] = scan!("stack.xml");
pub const ACCESS_POINT: &[u8] = scan!("access-point.json");
pub const ROUTER: &[u8] = scan!("router.xml");
pub const FIREWALL: &[u8] = scan!("firewall.json");
pub const LASER_PRINTER: &[u8] = scan!("laser-printer.xml");
pub const INK_MULTIFUNCTION: &[u8] = scan!("ink-multifunction.json");
pub const LABEL_PRINTER: &[u8] = scan!("label-printer.json");
pub const UPS: &[u8] = scan!("ups.xml");
pub const NAS: &[u8] = scan!("nas.xml");
pub const ESX_JSON: &[u8] = scan!("esx-host.json");
pub const ESX_XML: &[u8] = scan!("esx-host.xml");
pub const DISCOVERY: &[u8] = scan!("discovery.xml");
pub const DISCOVERY_JSON: &[u8] = scan!("discovery.json");

/// What people send files of scans with.
pub const INJECTOR: &str = "GLPI-Injector";

pub fn injected(plain: impl Into<Vec<u8>>) -> Body {
    Body::new(INJECTOR, plain)
}

/// A sample in which something is different.
pub fn changed(sample: &[u8], from: &str, to: &str) -> Body {
    let text = str::from_utf8(sample).expect("a text");
    assert!(text.contains(from), "{from}");
    injected(text.replace(from, to))
}

/// Every device with all its lists, the oldest first.
pub async fn whole(server: &Server, tenancy: &Tenancy) -> Vec<Value> {
    let mut all = devices(server, &tenancy.admin, "include=nics,ports,supplies,volumes,disks,software").await;
    all.reverse();
    all
}

/// A tenant with its only device after these reports.
pub async fn only_after(server: &Server, slug: &str, bodies: &[Body]) -> (Tenancy, Value) {
    let tenancy = server.tenant(slug).await;
    let key = server.ingest_key(&tenancy).await;
    for body in bodies {
        reported(server, &key, body).await;
    }
    let mut all = whole(server, &tenancy).await;
    assert_eq!(all.len(), 1, "{all:#?}");
    (tenancy, all.remove(0))
}

/// A switch of a rack, as many messages of one scan describe one each.
pub fn switch(n: usize) -> String {
    format!(
        "<DEVICE><INFO><NAME>sw{n}</NAME><SERIAL>SW00{n:04}</SERIAL><MANUFACTURER>Netgear</MANUFACTURER><TYPE>NETWORKING</TYPE>\
         <MAC>a0:40:a0:00:{:02x}:{:02x}</MAC><IPS><IP>198.51.100.{}</IP></IPS></INFO>\
         <PORTS><PORT><IFNUMBER>1</IFNUMBER><IFNAME>g1</IFNAME><IFTYPE>6</IFTYPE><IFSTATUS>1</IFSTATUS></PORT></PORTS></DEVICE>",
        n / 256,
        n % 256,
        n % 250 + 1
    )
}

/// A message of a scan with these devices, of the same scanner every time.
pub fn message(query: &str, devices: &str) -> Body {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n<REQUEST><CONTENT>{devices}<MODULEVERSION>6.4</MODULEVERSION>\
         <PROCESSNUMBER>1</PROCESSNUMBER></CONTENT><DEVICEID>scanner-2026-11-02-07-00-00</DEVICEID><QUERY>{query}</QUERY></REQUEST>"
    );
    Body::new("GLPI-Agent_v1.12", text).packed(Codec::Zlib)
}
