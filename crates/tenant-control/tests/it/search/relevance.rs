//! What people type, and what must come first: tables to read and to extend. To add a case is to add a line. What there is to
//! find stands in [`super::make_scene`].
//!
//! What a part of the language leaves out shows only where the whole answer is compared: such lines stand in [`WHOLE`].

use serde_json::Value;

use super::{hits, scene, text, total};
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
/// The ticket 10, closed.
const RESET: &str = "Password reset for Anna";
/// The ticket 11, open.
const EXPIRED: &str = "Password expired on the VPN gateway";
const MAIL: &str = "Mail is late";
const MAILBOX: &str = "Mailbox is full";
const MAIN: &str = "Main office has no power";
/// Of which the description names the second card of the second server.
const DISPLAY: &str = "Display is dark";
const ESCALATE: &str = "Escalate critical tickets";
/// Disabled.
const NIGHTLY: &str = "Nightly backup report";
const MONITOR: &str = "Toner Monitor";

/// A query, and the titles that come first, in this order. More may follow.
const FIRST: &[(&str, &[&str])] = &[
    // What it is called before what is said of it; what is live before what is done; machines, people and customers before what
    // mentions them; what is newer before what is older.
    ("printer", &[PRINTER, JAMMED, OLD_PRINTER, TONER, BLACK]),
    ("print", &[PRINTER, JAMMED, OLD_PRINTER, TONER, BLACK]),
    ("pirnter", &[PRINTER, JAMMED, OLD_PRINTER, TONER, BLACK]),
    ("PRINTER,", &[PRINTER, JAMMED, OLD_PRINTER, TONER, BLACK]),
    ("password", &[EXPIRED, RESET]),
    ("vpn", &[EXPIRED, VPN]),
    ("laptop", &[LAPTOP, BLACK]),
    ("paper", &[JAMMED]),
    // The beginning of a word.
    ("lapt", &[LAPTOP, BLACK]),
    // One typo from 4 letters: two that changed places, one that is missing, one too many, another. Two from 8.
    ("laptpo", &[LAPTOP, BLACK]),
    ("lptop", &[LAPTOP, BLACK]),
    ("lapptop", &[LAPTOP, BLACK]),
    ("laptip", &[LAPTOP, BLACK]),
    ("cretifictae", &[CERTIFICATE]),
    ("festplate", &[DISK]),
    // All words must be there, each in its own way.
    ("vpn drops", &[VPN]),
    ("jamed floor", &[JAMMED]),
    ("printer works", &[BLACK]),
    ("floor 3", &[JAMMED, PRINTER]),
    ("anna keller", &[ANNA, LAPTOP]),
    ("anna", &[LAPTOP, ANNA, RESET]),
    ("northwind traders", &[NORTHWIND]),
    // However it is written.
    ("zurich", &[ZURICH]),
    ("ZU\u{308}RICH", &[ZURICH]),
    ("grossere festplatte", &[DISK]),
    ("GRÖẞERE", &[DISK]),
    ("soren", &[SOREN, DISK]),
    ("ørsted", &[SOREN]),
    ("orsted", &[SOREN]),
    ("backerei", &[MULLER]),
    ("muller", &[MULLER, BOB, JAMMED]),
    ("東京", &[TOKYO]),
    // Numbers of tickets. The first is also on floor 3.
    ("3", &[BLACK, JAMMED]),
    ("4", &[VPN]),
    ("jira-77", &[CERTIFICATE]),
    // Serials and asset tags. One letter away is another machine, and comes behind.
    ("7XK2P13", &[WEB, DB]),
    ("7xk2", &[WEB, DB]),
    ("a-1007", &[LAPTOP]),
    // Names of hosts, with and without the domain.
    ("web01", &[WEB, CERTIFICATE]),
    ("WEB01.northwind.test", &[WEB, CERTIFICATE]),
    // Not yet the whole name.
    ("web01.north", &[WEB, CERTIFICATE]),
    ("printer-floor", &[PRINTER]),
    // People.
    ("anna.keller@northwind.test", &[ANNA]),
    ("bob stone", &[BOB, JAMMED]),
    ("bob.stone@muller.test", &[BOB, JAMMED]),
    ("keller", &[ANNA, LAPTOP]),
    // As whoever uses the laptop signs in.
    ("akeller", &[LAPTOP, ANNA]),
    // Machines, software and workflows.
    ("r640", &[WEB, DB]),
    ("poweredge", &[WEB, DB]),
    ("thinkpad", &[LAPTOP]),
    ("firefox", &["Mozilla Firefox"]),
    ("visual studio", &["Visual Studio Code"]),
    ("escalate", &[ESCALATE]),
];

/// A query, and the titles of all that it finds, in this order.
const WHOLE: &[(&str, &[&str])] = &[
    // As it is, before what begins so, before a typo: each of them is newer than the one before.
    ("mail", &[MAIL, MAILBOX, MAIN]),
    // Only from 6 letters on a typo may be in the beginning of a word: see `pirnt` and `disk` below.
    ("pirnte", &[PRINTER, JAMMED, OLD_PRINTER, TONER, BLACK]),
    // Side by side as they were typed, before apart: the other one is newer.
    ("blue screen", &[BLUE_SCREEN, BLUE_TINT]),
    // The customer, before whoever has the name in an address; a network that a machine is in says less.
    ("northwind", &[NORTHWIND, ANNA, WEB, CERTIFICATE, DB]),
    // A software comes behind what is done, too.
    ("toner", &[TONER, MONITOR]),
    // In a row.
    ("\"blue screen\"", &[BLUE_SCREEN]),
    ("„Blue Screen”", &[BLUE_SCREEN]),
    ("\"floor 3\"", &[JAMMED]),
    ("\"on floor 3\"", &[JAMMED]),
    ("\"the vpn gateway\"", &[EXPIRED]),
    // What must not be there: as it is written, and not what begins so.
    ("printer -toner", &[PRINTER, JAMMED, OLD_PRINTER, BLACK]),
    ("printer -lap", &[PRINTER, JAMMED, OLD_PRINTER, TONER, BLACK]),
    ("printer -\"floor 3\"", &[PRINTER, OLD_PRINTER, TONER, BLACK]),
    ("printer -type:device", &[JAMMED, TONER, BLACK]),
    ("screen -blue", &[BLACK]),
    ("vpn -drops", &[EXPIRED]),
    ("laptop -anna", &[BLACK]),
    ("mail -mail", &[MAILBOX, MAIN]),
    ("password -#11", &[RESET]),
    ("02:fc:00 -02fc.0000.0003", &[WEB, DB, DISPLAY]),
    // A dash between words excludes nothing, nor one at the end.
    ("vpn - drops", &[VPN]),
    ("- printer -", &[PRINTER, JAMMED, OLD_PRINTER, TONER, BLACK]),
    // A ticket by its number, before all that only has it somewhere; with a hash it alone.
    ("10", &[RESET, PRINTER, LAPTOP, WEB, DB]),
    ("#10", &[RESET]),
    ("#3", &[BLACK]),
    ("#2", &[TONER]),
    ("(#3)", &[BLACK]),
    ("number:3", &[BLACK]),
    // Hardware addresses in any notation, of whichever card, before where they are only spoken of; and their beginnings.
    ("02:fc:00:00:00:01", &[WEB]),
    ("02-FC-00-00-00-01", &[WEB]),
    ("02fc.0000.0001", &[WEB]),
    ("02FC00000001", &[WEB]),
    ("02:fc:00:00:00:a2", &[DB, DISPLAY]),
    ("02fc.0000.00a2", &[DB]),
    ("mac:02-fc-00-00-00-a2", &[DB]),
    ("02:fc:00", &[LAPTOP, WEB, DB, DISPLAY]),
    // Addresses: as it is, before what begins so, which is newer.
    ("10.0.0.5", &[LAPTOP, PRINTER]),
    ("ip:10.0.0.5", &[LAPTOP]),
    ("192.0.2.10", &[WEB]),
    ("192.0.2.11", &[DB]),
    ("192.0.2", &[WEB, DB]),
    ("ip:192.0.2.10", &[WEB]),
    ("10.20.30.40", &[DB]),
    ("fe80::2a", &[DB]),
    ("ip:FE80:0:0:0:0:0:0:2A", &[DB]),
    // The other fields.
    ("type:device printer", &[PRINTER, OLD_PRINTER]),
    ("type:ticket printer", &[JAMMED, TONER, BLACK]),
    ("type:ticket toner", &[TONER]),
    ("type:ticket anna", &[RESET]),
    ("type:user anna", &[ANNA]),
    ("type:organization", &[NORTHWIND, MULLER, ZURICH]),
    ("type:software", &["Mozilla Firefox", "nginx", "OpenSSL", "PostgreSQL", MONITOR, "Visual Studio Code"]),
    ("type:workflow", &[ESCALATE, NIGHTLY]),
    ("status:open", &[EXPIRED, JAMMED]),
    ("status:resolved", &[TONER]),
    ("status:stale", &[OLD_PRINTER]),
    ("status:disabled", &[NIGHTLY]),
    ("org:zurich-logistics", &[ZURICH, DISK]),
    ("org:\"zürich logistics ag\"", &[ZURICH, DISK]),
    ("org:northwind type:device", &[WEB, DB]),
    ("org:muller type:ticket", &[JAMMED]),
    ("serial:7xk2p14", &[DB]),
    ("host:web01", &[WEB]),
    ("host:WEB01.northwind.test", &[WEB]),
    ("email:Bob.Stone@muller.test", &[BOB, JAMMED]),
    ("assignee:anna.keller@northwind.test", &[BLACK]),
    ("assignee:\"anna keller\"", &[BLACK]),
    ("platform:linux", &[WEB, DB]),
    ("model:\"PowerEdge R640\"", &[WEB, DB]),
    ("tag:\"rack 7\"", &[WEB]),
    ("tag:printer", &[JAMMED]),
    ("priority:high", &[JAMMED]),
    // An operating system by as much of its name as people say, without its maker and what stands in brackets.
    ("os:windows", &[LAPTOP]),
    ("os:\"windows 11\"", &[LAPTOP]),
    ("os:\"Windows 11 Pro\"", &[LAPTOP]),
    ("os:\"Microsoft Windows 11 Pro\"", &[LAPTOP]),
    ("os:debian", &[WEB, DB]),
    ("os:\"Debian GNU/Linux 12\"", &[WEB, DB]),
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
    // The beginning of a word with a typo, in less than 6 letters.
    "pirnt",
    "disk",
    // Two digits of a serial.
    "7xk2p99",
    // A value is the whole one.
    "serial:7xk2p1",
    "os:win",
    "os:\"windows 1\"",
    "os:\"gnu/linux 12\"",
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

/// The titles of what was found, in their order; and what is wrong with the points, if anything is.
fn titles_of<'a>(q: &str, found: &'a Value, wrong: &mut Vec<String>) -> Vec<&'a str> {
    let scores: Vec<u64> = hits(found).iter().map(|hit| hit["score"].as_u64().expect("a score")).collect();
    if !scores.is_sorted_by(|one, next| one >= next) {
        wrong.push(format!("{q}\n    has points in another order: {scores:?}"));
    }
    hits(found).iter().map(|hit| text(hit, "title")).collect()
}

over_http! {
    async fn what_is_meant_comes_first_and_has_the_most_points(server: Server) {
        let hub = scene(&server, "hub").await;
        let indexed = Indexed::of(&server).await;
        let mut wrong = Vec::new();
        for (q, first) in FIRST {
            indexed.follow().await;
            let found = server.search(&hub.admin, q).await;
            let titles = titles_of(q, &found, &mut wrong);
            if !titles.starts_with(first) {
                wrong.push(format!("{q}\n    must find first {first:?}\n    and has found   {titles:?}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {} queries:\n{}", wrong.len(), FIRST.len(), wrong.join("\n"));
    }

    async fn what_is_meant_is_found_and_nothing_else(server: Server) {
        let hub = scene(&server, "hub").await;
        let indexed = Indexed::of(&server).await;
        let mut wrong = Vec::new();
        for (q, all) in WHOLE {
            indexed.follow().await;
            let found = server.search(&hub.admin, q).await;
            let titles = titles_of(q, &found, &mut wrong);
            if titles != *all {
                wrong.push(format!("{q}\n    must find     {all:?}\n    and has found {titles:?}"));
            }
            if u64::try_from(all.len()) != Ok(total(&found)) {
                wrong.push(format!("{q}\n    must count {} and has counted {}", all.len(), found["counts"]));
            }
        }
        assert!(wrong.is_empty(), "{} of {} queries:\n{}", wrong.len(), WHOLE.len(), wrong.join("\n"));
    }

    async fn what_is_not_there_is_not_found(server: Server) {
        let hub = scene(&server, "hub").await;
        let _indexed = Indexed::of(&server).await;
        let mut wrong = Vec::new();
        for q in NOTHING {
            let found = server.search(&hub.admin, q).await;
            if !hits(&found).is_empty() || total(&found) != 0 {
                wrong.push(format!("{q}\n    must find nothing and has found {found}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {} queries:\n{}", wrong.len(), NOTHING.len(), wrong.join("\n"));
    }
}
