//! Who sees what.

use serde_json::json;

use crate::support::over_http;
use crate::support::search::{Indexed, SEARCH, spelt};
use crate::tickets::make;

use super::company;

over_http! {
    async fn scopes_decide_what_is_found_and_counted(server: Server) {
        let acme = company(&server).await;
        let _index = Indexed::of(&server).await;
        for (scopes, types) in [
            (&["search:read"][..], &["user", "organization"][..]),
            (&["search:read", "tickets:read"], &["user", "organization", "ticket"]),
            (&["search:read", "inventory:read"], &["user", "organization", "device", "software"]),
            (&["*"], &["user", "organization", "ticket", "device", "software", "workflow"]),
        ] {
            let key = server.key(&acme, scopes).await;
            for q in ["print", "web", "globex", "the admin", "type:ticket", "org:globex"] {
                let found = server.get(format!("{SEARCH}?q={}", spelt(q))).key(&key.plain).await.ok(200);
                for hit in found["data"].as_array().unwrap() {
                    assert!(types.contains(&hit["type"].as_str().unwrap()), "{scopes:?} {q}: {hit}");
                }
                for (kind, count) in found["counts"].as_object().unwrap() {
                    assert!(types.contains(&kind.as_str()) || count == 0, "{scopes:?} {q}: {kind} {count}");
                }
            }
        }
        let key = server.key(&acme, &["tickets:read"]).await;
        let answer = server.get(format!("{SEARCH}?q=print")).key(&key.plain).await;
        assert_eq!((answer.status, answer.json()["required_scope"].as_str()), (403, Some("search:read")));
    }

    async fn nobody_finds_what_another_tenant_has(server: Server) {
        let acme = company(&server).await;
        let globex = server.tenant("globex").await;
        make(&server, &globex, &json!({"subject": "Printer of Globex"})).await;
        let _index = Indexed::of(&server).await;
        assert_eq!(server.titles(&globex.admin, "printer").await, ["Printer of Globex"]);
        for q in ["web", "7XK2P13", "02:fc:00:00:0a:01", "serial:7XK2P13", "type:device", "org:globex", "zoe@globex.test", "#2", "acme"] {
            assert!(server.titles(&globex.admin, q).await.is_empty(), "{q}");
        }
        assert!(!server.titles(&acme.admin, "printer").await.contains(&"Printer of Globex".to_owned()));
    }

    /// Pieces of the language in any order: never an error of ours, never another tenant's record.
    async fn whatever_is_asked_is_answered_or_refused(server: Server) {
        const PIECES: &[&str] = &[
            "printer", "web-01", "-", "\"", "os:", "type:", "foo:", "device", "#", "42", " ", "  ", "–", "é", "02:fc:00:00:0a:01", "fe80::1", "*", "?", "(", ")",
            "AND", "\u{0}", "\u{1f}", "東京", ".", "192.0.2.", "org:globex", "assignee:the", "\\", "%", "~1", "^2", "[a TO z]", "zoe@", "🖨",
        ];
        let acme = company(&server).await;
        let globex = server.tenant("globex").await;
        make(&server, &globex, &json!({"subject": "printer web-01 42 device é 東京 zoe"})).await;
        let _index = Indexed::of(&server).await;
        let (mut seed, mut answered) = (7_u64, 0);
        let mut draw = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        for _ in 0..200 {
            let q: String = (0..=draw(7)).map(|_| PIECES[draw(PIECES.len())]).collect();
            let answer = server.get(format!("{SEARCH}?q={}", spelt(&q))).cookie(&acme.admin).await;
            assert!([200, 400].contains(&answer.status), "{q:?}: {}", answer.json());
            if answer.status == 200 {
                answered += 1;
                let found = answer.json();
                let of_other = |hit: &serde_json::Value| hit["title"] == "printer web-01 42 device é 東京 zoe";
                assert!(!found["data"].as_array().unwrap().iter().any(of_other), "{q:?}: {found}");
            }
        }
        assert!(answered > 20, "{answered}");
    }
}
