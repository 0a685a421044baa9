//! What people type, and what must come first. To add a case is to add a line.

use crate::support::over_http;
use crate::support::search::Indexed;

use super::company;

const PRINTER: &str = "Printer on floor 3 is jammed";
const PRINTING: &str = "Printing from the VPN is slow";
const TONER: &str = "Printer toner ordered";
const VPN: &str = "VPN drops every hour";
const LAPTOP: &str = "New laptop for Anna";
const STREET: &str = "Straße gesperrt: deliveries late";
const WEB1: &str = "web-01.acme.test";
const WEB2: &str = "web-02.acme.test";
const DESKTOP: &str = "DESKTOP-ANNA";

/// A query, and the titles that come first, in this order.
const FIRST: &[(&str, &[&str])] = &[
    // Whole words, beginnings and typos.
    ("toner", &[TONER]),
    ("laptop", &[LAPTOP]),
    ("lapt", &[LAPTOP]),
    ("laptpo", &[LAPTOP]),
    ("lptop", &[LAPTOP]),
    ("delivreies", &[STREET]),
    ("deliverys", &[STREET]),
    ("jamed floor", &[PRINTER]),
    // All words must be there.
    ("vpn slow", &[PRINTING]),
    ("vpn drops", &[VPN]),
    // What it is called before what is said of it.
    ("printer room", &[LAPTOP]),
    ("paper", &[PRINTER]),
    // Phrases and exclusions.
    ("\"on floor 3\"", &[PRINTER]),
    ("\"the vpn is\"", &[PRINTING]),
    ("vpn -slow", &[VPN]),
    ("print -printer", &[PRINTING]),
    // As people spell it.
    ("STRASSE", &[STREET]),
    ("straße", &[STREET]),
    ("muller", &[VPN]),
    ("zoe", &[VPN]),
    // Hosts, addresses, serials, hardware addresses.
    ("web-01", &[WEB1]),
    ("web-01.acme", &[WEB1]),
    ("web-01.acme.test", &[WEB1]),
    ("192.0.2.11", &[WEB2]),
    ("7xk2p13", &[WEB1]),
    ("7XK2", &[WEB1]),
    ("02:fc:00:00:0a:01", &[WEB1]),
    ("02-FC-00-00-0A-01", &[WEB1]),
    ("02fc.0000.0a01", &[WEB1]),
    ("02FC00000A01", &[WEB1]),
    ("poweredge", &[WEB1]),
    // Numbers of tickets.
    ("#2", &[VPN]),
    ("number:3", &[LAPTOP]),
    // People.
    ("zoe@globex.test", &[VPN]),
    // Fields are compared as a whole.
    ("os:windows", &[DESKTOP]),
    ("os:\"microsoft windows 11 pro\"", &[DESKTOP]),
    ("serial:7XK2P13", &[WEB1]),
    ("host:web-02", &[WEB2]),
    ("type:ticket toner", &[TONER]),
    ("status:resolved", &[TONER]),
    ("priority:high", &[PRINTER]),
    ("tag:hardware", &[PRINTER]),
    ("org:globex type:ticket", &[VPN]),
    ("ip:192.0.2.10", &[WEB1]),
    ("mac:02-fc-00-00-0a-01", &[WEB1]),
    // What is live before what is done.
    ("type:ticket printer", &[PRINTER, TONER]),
];

/// What must find nothing.
const NOTHING: &[&str] = &[
    "zzzz",
    "vpn jammed",
    "\"floor on\"",
    "serial:7XK2",
    "os:debian",
    "#99",
    "laptop -anna",
    "type:device jammed",
    "02:fc:00:00:0a:02",
    "type:vm",
];

over_http! {
    async fn what_must_come_first_comes_first(server: Server) {
        let acme = company(&server).await;
        let _index = Indexed::of(&server).await;
        let mut wrong = Vec::new();
        for (query, wanted) in FIRST {
            let found = server.titles(&acme.admin, query).await;
            if !found.starts_with(&wanted.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>()) {
                wrong.push(format!("{query}: wanted {wanted:?}, found {found:?}"));
            }
        }
        for query in NOTHING {
            let found = server.titles(&acme.admin, query).await;
            if !found.is_empty() {
                wrong.push(format!("{query}: wanted nothing, found {found:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
