//! Queries that nobody would type: none breaks anything, and none finds what another tenant has.

use tenant_control::features::devices::FullDevice;

use super::{count_software, device_and_software, hits, make_scene, text};
use crate::asset_inventory::software;
use crate::support::over_http;
use crate::support::search::{Indexed, asking};
use crate::tickets::generous;

const QUERIES: usize = 300;
const PIECES_MAX: u64 = 12;
/// Characters of a query.
const Q_CHARS_MAX: usize = 200;
const SEED: u64 = 20_260_115;

/// What queries are made of: words of the scene, the language, and what does not belong into either.
const PIECES: [&str; 92] = [
    "printer",
    "print",
    "pirnter",
    "anna",
    "keller",
    "web01",
    "northwind",
    "test",
    "zürich",
    "SØREN",
    "東京",
    "オフィス",
    "7XK2P13",
    "02:fc:00:00:00:01",
    "02fc.0000.00a2",
    "192.0.2.10",
    "192.0.2.",
    "fe80::2a",
    "#3",
    "3",
    "42",
    "globex",
    "a",
    "e",
    "0",
    "type:",
    "type:device",
    "type:ticket",
    "type:software",
    "status:",
    "status:open",
    "org:",
    "org:northwind",
    "os:windows",
    "serial:",
    "mac:",
    "ip:",
    "host:",
    "email:",
    "tag:",
    "priority:high",
    "platform:linux",
    "model:",
    "assignee:",
    "assignee:anna",
    "anna@",
    "foo:",
    "number:3",
    "colour:red",
    "\"",
    "\"",
    "“",
    "”",
    "„",
    "-",
    "-",
    "--",
    "−",
    "–",
    ":",
    "::",
    "://",
    "*",
    "?",
    "~2",
    "^4",
    "AND",
    "OR",
    "(",
    ")",
    "[a TO z]",
    "\\",
    "%",
    "~1",
    "🖨",
    "\0",
    "\u{1f}",
    "\u{1e}",
    "\u{202e}",
    "e\u{301}\u{301}",
    "web-01",
    "printerfloor3",
    "müller",
    "mueller",
    "2p13",
    "02fc00",
    "win11",
    "C:",
    "RE:",
    "https://web01.northwind.test/x",
    "\\\\printer\\x",
    "localhost:80",
];

/// The same numbers in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        let end = u64::try_from(all.len()).expect("a length");
        all[usize::try_from(self.below(end)).expect("a place")]
    }

    fn query(&mut self) -> String {
        let mut q = String::new();
        for _ in 0..=self.below(PIECES_MAX) {
            match self.below(40) {
                // A word that no dictionary has.
                0 => q.push_str(&self.pick(&["a", "é", "printer", "東", "0", "\u{10ffff}"]).repeat(150)),
                _ => q.push_str(self.pick(&PIECES)),
            }
            if self.below(3) > 0 {
                q.push(' ');
            }
        }
        q.chars().take(Q_CHARS_MAX).collect()
    }
}

over_http! {
    async fn no_query_breaks_anything_or_finds_what_another_tenant_has(setup: Setup) {
        let server = generous(setup).await;
        let mut scenes = Vec::new();
        for slug in ["acme", "globex"] {
            let mut scene = make_scene(&server, slug).await;
            let (host, own) = (format!("printer-{slug}"), format!("Printer of {slug}"));
            let say = move |full: &mut FullDevice| full.parts.software = vec![software(&own, "1")];
            scene.owned.extend(device_and_software(&server, &scene.tenancy, &host, say).await);
            scenes.push(scene);
        }
        count_software(&server).await;
        let indexed = Indexed::of(&server).await;
        let (mut chance, mut answered, mut found_any) = (Chance(SEED), 0, 0);
        for n in 0..QUERIES {
            indexed.follow().await;
            let q = chance.query();
            for scene in &scenes {
                let answer = server.get(asking(&q)).cookie(&scene.tenancy.admin).await;
                assert!([200, 400].contains(&answer.status), "query {n}, {q:?}: {} {}", answer.status, answer.json());
                let said = answer.json();
                if answer.status == 400 {
                    let code = said["code"].as_str().expect("a code");
                    let expected = ["invalid_query", "invalid_parameter", "query_too_broad"];
                    assert!(expected.contains(&code), "query {n}, {q:?}: {said}");
                    continue;
                }
                answered += 1;
                found_any += usize::from(!hits(&said).is_empty());
                for hit in hits(&said) {
                    assert!(scene.owned.contains(text(hit, "id")), "query {n}, {q:?} has found another's: {hit}");
                }
            }
        }
        // Were all refused, or found nothing, nothing was tried.
        assert!(answered > QUERIES / 4 && found_any > QUERIES / 30, "{answered} were answered, {found_any} have found");
    }
}
