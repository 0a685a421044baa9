//! What may be asked, and how it is answered.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::over_http;
use crate::support::search::{Indexed, SEARCH, spelt};
use crate::tickets::make;

use super::company;

over_http! {
    async fn what_cannot_be_understood_is_refused(server: Server) {
        let acme = company(&server).await;
        let _index = Indexed::of(&server).await;
        let long = "x".repeat(201);
        for (query, code) in [
            ("", "missing_parameter"), ("q=", "invalid_parameter"), (&format!("q={long}"), "invalid_parameter"), ("q=a&colour=1", "unknown_parameter"),
            ("q=a&types=cat", "invalid_parameter"), ("q=a&limit=0", "invalid_parameter"), ("q=a&cursor=x", "invalid_cursor"),
            ("q=colour%3Ared", "invalid_query"), ("q=-printer", "invalid_query"), ("q=%22printer", "invalid_query"), ("q=os%3A", "invalid_query"),
            ("q=%21%21", "invalid_query"), ("q=type%3Acat", "invalid_query"),
        ] {
            let answer = server.get(format!("{SEARCH}?{query}")).cookie(&acme.admin).await;
            assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some(code)), "{query}: {}", answer.json());
        }
        let answer = server.get(format!("{SEARCH}?q={}", spelt("printer colour:red"))).cookie(&acme.admin).await.json();
        assert!(answer["detail"].as_str().unwrap().starts_with("At character 9: "), "{answer}");
    }

    async fn before_there_is_an_index_nothing_is_half_answered(server: Server) {
        let acme = server.tenant("acme").await;
        let answer = server.get(format!("{SEARCH}?q=a")).cookie(&acme.admin).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (503, Some("unavailable")));
        assert_ne!(answer.header("retry-after"), "");
    }

    async fn a_hit_says_what_it_is_and_where_it_was_found(server: Server) {
        let acme = company(&server).await;
        make(&server, &acme, &json!({"subject": "<script>alert(1)</script> & toner"})).await;
        let _index = Indexed::of(&server).await;
        let answer = server.get(format!("{SEARCH}?q=alert")).cookie(&acme.admin).await;
        assert!(answer.header("ratelimit-policy").starts_with("\"search\";"), "{}", answer.header("ratelimit-policy"));
        let found = answer.ok(200);
        let hit = &found["data"][0];
        assert_eq!(hit["type"], "ticket");
        assert_eq!(hit["title"], "<script>alert(1)</script> & toner");
        assert_eq!(hit["highlights"], json!([{
            "field": "subject", "snippet": "&lt;script&gt;<em>alert</em>(1)&lt;/script&gt; &amp; toner"
        }]));
        let url = hit["url"].as_str().unwrap();
        assert!(url.ends_with(&format!("/api/psa/tickets?id={}", hit["id"].as_str().unwrap())), "{url}");
        assert!(found["took_ms"].is_u64());
        assert_eq!(found["counts"], json!({"device": 0, "user": 0, "organization": 0, "ticket": 1, "vm": 0, "workflow": 0, "software": 0}));
    }

    async fn pages_have_everything_once_while_the_index_moves(server: Server) {
        let acme = company(&server).await;
        for n in 0..10 {
            make(&server, &acme, &json!({"subject": format!("Backup {n} failed")})).await;
        }
        let index = Indexed::of(&server).await;
        for limit in [1, 3, 200] {
            let (mut seen, mut more, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let answer = server.get(format!("{SEARCH}?q=backup&types=ticket&limit={limit}{more}")).cookie(&acme.admin).await;
                let link = answer.header("link").to_owned();
                let page = answer.ok(200);
                pages += 1;
                seen.extend(page["data"].as_array().unwrap().iter().map(|hit| hit["title"].as_str().unwrap().to_owned()));
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                assert!(link.contains(cursor), "{link}");
                more = format!("&cursor={cursor}");
                // Something else happens meanwhile.
                make(&server, &acme, &json!({"subject": format!("Restore {limit} {pages} failed")})).await;
                index.catch_up().await;
            }
            let distinct: BTreeSet<&String> = seen.iter().collect();
            assert_eq!((seen.len(), distinct.len()), (10, 10), "{limit}: {seen:?}");
        }
        let first = server.get(format!("{SEARCH}?q=backup&limit=1")).cookie(&acme.admin).await.ok(200);
        assert_eq!(first["counts"]["ticket"], 10);
        let cursor = first["next_cursor"].as_str().unwrap();
        let other = server.get(format!("{SEARCH}?q=restore&limit=1&cursor={cursor}")).cookie(&acme.admin).await;
        assert_eq!(other.json()["code"], "invalid_cursor");
        let globex = server.tenant("globex").await;
        let other = server.get(format!("{SEARCH}?q=backup&limit=1&cursor={cursor}")).cookie(&globex.admin).await;
        assert_eq!(other.json()["code"], "invalid_cursor");
    }
}
