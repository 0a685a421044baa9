//! What people type, and what must come first: a table to read and to extend. To add a case is to add a line. What there is to
//! find stands in [`super::scene`].

use super::{hits, scene, text};
use crate::support::over_http;
use crate::support::search::Indexed;

const WEB: &str = "web01.northwind.test";
const DB: &str = "db01.northwind.test";
const LAPTOP: &str = "Anna's laptop";
const PRINTER: &str = "printer-floor3";
const OLD_PRINTER: &str = "old-printer";
const ANNA: &str = "Anna Keller";
const BOB: &str = "Bob Stone";
const SOREN: &str = "Søren Ørsted";
const ZURICH: &str = "Zürich Logistics AG";
const MULLER: &str = "Bäckerei Müller";
const NORTHWIND: &str = "Northwind Traders";
/// The ticket 1, open.
const JAMMED: &str = "Printer on floor 3 is jammed";
/// Resolved.
const TONER: &str = "Printer toner is low";
/// The ticket 3, of which the description says that the printer works, and the screen does not.
const BLACK: &str = "Laptop does not start";
const VPN: &str = "VPN drops every hour";
const BLUE_SCREEN: &str = "Blue screen after update";
const BLUE_TINT: &str = "Screen has a blue tint";
const DISK: &str = "Größere Festplatte für Søren";
const CERTIFICATE: &str = "Renew the certificate";
const TOKYO: &str = "東京オフィスのサーバー";
/// Closed.
const RESET: &str = "Password reset for Anna";
const EXPIRED: &str = "Password expired on the VPN gateway";
const ESCALATE: &str = "Escalate critical tickets";
const NIGHTLY: &str = "Nightly backup report";

/// A query, and the titles that come first, in this order. More may follow.
const TABLE: &[(&str, &[&str])] = &[
    // What it is called before what is said of it; what is live before what is done; what is newer before what is older.
    ("printer", &[JAMMED, PRINTER, TONER, OLD_PRINTER, BLACK]),
    ("print", &[JAMMED, PRINTER, TONER, OLD_PRINTER, BLACK]),
    ("pirnter", &[JAMMED, PRINTER, TONER, OLD_PRINTER, BLACK]),
    ("PRINTER,", &[JAMMED, PRINTER, TONER, OLD_PRINTER, BLACK]),
    ("password", &[EXPIRED, RESET]),
    ("vpn", &[EXPIRED, VPN]),
    ("laptop", &[BLACK, LAPTOP]),
    ("toner", &[TONER]),
    ("paper", &[JAMMED]),
    // As it is, before what begins so, before a typo: each of them is newer than the one before.
    ("mail", &["Mail is late", "Mailbox is full", "Main office has no power"]),
    // The beginning of a word.
    ("lapt", &[BLACK, LAPTOP]),
    // One typo from 4 letters: two that changed places, one that is missing, one too many, another. Two from 8.
    ("laptpo", &[BLACK, LAPTOP]),
    ("lptop", &[BLACK, LAPTOP]),
    ("lapptop", &[BLACK, LAPTOP]),
    ("laptip", &[BLACK, LAPTOP]),
    ("cretifictae", &[CERTIFICATE]),
    ("festplate", &[DISK]),
    // All words must be there, each in its own way.
    ("vpn drops", &[VPN]),
    ("jamed floor", &[JAMMED]),
    ("printer works", &[BLACK]),
    ("floor 3", &[JAMMED, PRINTER]),
    ("anna keller", &[ANNA, LAPTOP]),
    ("anna", &[LAPTOP, ANNA, RESET]),
    ("blue screen", &[BLUE_TINT, BLUE_SCREEN]),
    ("northwind traders", &[NORTHWIND]),
    ("northwind", &[WEB, ANNA, NORTHWIND, DB, CERTIFICATE]),
    // In a row.
    ("\"blue screen\"", &[BLUE_SCREEN]),
    ("„Blue Screen”", &[BLUE_SCREEN]),
    ("\"floor 3\"", &[JAMMED]),
    ("\"on floor 3\"", &[JAMMED]),
    ("\"the vpn gateway\"", &[EXPIRED]),
    // What must not be there: as it is written, and not what begins so.
    ("printer -toner", &[JAMMED, PRINTER, OLD_PRINTER, BLACK]),
    ("printer -lap", &[JAMMED, PRINTER, TONER, OLD_PRINTER, BLACK]),
    ("printer -\"floor 3\"", &[PRINTER, TONER, OLD_PRINTER, BLACK]),
    ("printer -type:device", &[JAMMED, TONER, BLACK]),
    ("screen -blue", &[BLACK]),
    ("vpn -drops", &[EXPIRED]),
    ("laptop -anna", &[BLACK]),
    ("mail -mail", &["Mailbox is full", "Main office has no power"]),
    ("password -#11", &[RESET]),
    // However it is written.
    ("zurich", &[ZURICH]),
    ("ZU\u{308}RICH", &[ZURICH]),
    ("grossere festplatte", &[DISK]),
    ("GRÖẞERE", &[DISK]),
    ("soren", &[DISK, SOREN]),
    ("ørsted", &[SOREN]),
    ("orsted", &[SOREN]),
    ("backerei", &[MULLER]),
    ("muller", &[BOB, MULLER, JAMMED]),
    ("東京", &[TOKYO]),
    // Numbers of tickets. The first is also on floor 3.
    ("3", &[BLACK, JAMMED]),
    ("#3", &[BLACK]),
    ("#2", &[TONER]),
    ("(#3)", &[BLACK]),
    ("4", &[VPN]),
    ("number:3", &[BLACK]),
    ("jira-77", &[CERTIFICATE]),
    // Hardware addresses in any notation, of whichever card, and their beginnings.
    ("02:fc:00:00:00:01", &[WEB]),
    ("02-FC-00-00-00-01", &[WEB]),
    ("02fc.0000.0001", &[WEB]),
    ("02FC00000001", &[WEB]),
    ("02fc.0000.00a2", &[DB]),
    ("mac:02-fc-00-00-00-a2", &[DB]),
    ("02:fc:00", &[LAPTOP, WEB, DB]),
    // Serials and asset tags. One letter away is another machine, and comes behind.
    ("7XK2P13", &[WEB, DB]),
    ("7xk2", &[WEB, DB]),
    ("serial:7xk2p14", &[DB]),
    ("a-1007", &[LAPTOP]),
    // Addresses.
    ("192.0.2.10", &[WEB]),
    ("192.0.2.11", &[DB]),
    ("ip:192.0.2.10", &[WEB]),
    ("192.0.2", &[WEB, DB]),
    ("10.20.30.40", &[DB]),
    ("fe80::2a", &[DB]),
    ("ip:FE80:0:0:0:0:0:0:2A", &[DB]),
    // Names of hosts, with and without the domain.
    ("web01", &[WEB, CERTIFICATE]),
    ("WEB01.northwind.test", &[WEB, CERTIFICATE]),
    ("web01.north", &[WEB, CERTIFICATE]),
    ("printer-floor", &[PRINTER]),
    ("host:web01", &[WEB]),
    ("host:WEB01.northwind.test", &[WEB]),
    // People.
    ("anna.keller@northwind.test", &[ANNA]),
    ("bob stone", &[BOB, JAMMED]),
    ("bob.stone@muller.test", &[BOB, JAMMED]),
    ("email:Bob.Stone@muller.test", &[JAMMED, BOB]),
    ("keller", &[ANNA, LAPTOP]),
    // As whoever uses the laptop signs in.
    ("akeller", &[LAPTOP, ANNA]),
    ("assignee:anna.keller@northwind.test", &[BLACK]),
    ("assignee:\"anna keller\"", &[BLACK]),
    // The other fields.
    ("type:device printer", &[PRINTER, OLD_PRINTER]),
    ("type:ticket printer", &[JAMMED, TONER, BLACK]),
    ("type:ticket toner", &[TONER]),
    ("status:open", &[EXPIRED, JAMMED]),
    ("status:resolved", &[TONER]),
    ("status:stale", &[OLD_PRINTER]),
    ("status:disabled", &[NIGHTLY]),
    ("org:zurich-logistics", &[DISK, ZURICH]),
    ("org:\"zürich logistics ag\"", &[DISK, ZURICH]),
    ("org:northwind type:device", &[WEB, DB]),
    ("org:muller type:ticket", &[JAMMED]),
    ("os:windows", &[LAPTOP]),
    ("os:\"Windows 11 Pro\"", &[LAPTOP]),
    ("platform:linux", &[WEB, DB]),
    ("model:\"PowerEdge R640\"", &[WEB, DB]),
    ("tag:\"rack 7\"", &[WEB]),
    ("tag:printer", &[JAMMED]),
    ("priority:high", &[JAMMED]),
    ("r640", &[WEB, DB]),
    ("poweredge", &[WEB, DB]),
    ("thinkpad", &[LAPTOP]),
    // Software and workflows.
    ("firefox", &["Mozilla Firefox"]),
    ("visual studio", &["Visual Studio Code"]),
    ("type:software", &["Mozilla Firefox", "nginx", "OpenSSL", "PostgreSQL", "Visual Studio Code"]),
    ("escalate", &[ESCALATE]),
    ("type:workflow", &[ESCALATE, NIGHTLY]),
];

/// What finds nothing.
const NOTHING: &[&str] = &[
    "xylophone",
    // All words must be of one thing.
    "printer xylophone",
    "vpn jammed",
    "type:device jammed",
    // Words in a row are in this order, whole, without typos and of one field.
    "\"screen blue\"",
    "\"floor on\"",
    "\"laptop does start\"",
    "\"print\"",
    "\"pirnter\"",
    "\"keller anna\"",
    // Two typos in 7 letters.
    "prnitre",
    // Two digits of a serial.
    "7xk2p99",
    // A value is the whole one.
    "serial:7xk2p1",
    "os:win",
    "os:debian",
    "host:web",
    "org:north",
    "email:anna.keller",
    // Nobody has them.
    "#42",
    "number:42",
    "192.0.2.12",
    "10.20.30.41",
    "02:fc:00:00:00:99",
    "mac:02fc00000099",
    "anna@globex.test",
    "type:vm",
    // What excludes itself.
    "printer -printer",
    "password -status:closed -status:open",
    "status:open type:device",
];

over_http! {
    async fn what_is_meant_comes_first_and_has_the_most_points(server: Server) {
        let hub = scene(&server, "hub").await;
        let _indexed = Indexed::of(&server).await;
        let mut wrong = Vec::new();
        for (q, first) in TABLE {
            let found = server.search(&hub.admin, q).await;
            let titles: Vec<&str> = hits(&found).iter().map(|hit| text(hit, "title")).collect();
            let scores: Vec<u64> = hits(&found).iter().map(|hit| hit["score"].as_u64().expect("a score")).collect();
            if !titles.starts_with(first) {
                wrong.push(format!("{q}\n    must find first {first:?}\n    and has found   {titles:?}"));
            }
            if !scores.is_sorted_by(|one, next| one >= next) {
                wrong.push(format!("{q}\n    has points in another order: {scores:?}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {} queries:\n{}", wrong.len(), TABLE.len(), wrong.join("\n"));
    }

    async fn what_is_not_there_is_not_found(server: Server) {
        let hub = scene(&server, "hub").await;
        let _indexed = Indexed::of(&server).await;
        let mut wrong = Vec::new();
        for q in NOTHING {
            let found = server.titles(&hub.admin, q).await;
            if !found.is_empty() {
                wrong.push(format!("{q}\n    must find nothing and has found {found:?}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {} queries:\n{}", wrong.len(), NOTHING.len(), wrong.join("\n"));
    }
}
