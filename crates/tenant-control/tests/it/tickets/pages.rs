//! A page of long texts ends before its limit.

use super::*;

over_http! {
    async fn a_page_ends_at_about_a_megabyte_and_the_pages_show_all(server: Server) {
        let acme = server.tenant("acme").await;
        // Bytes that JSON writes as six and as two: what is stored of all would fit into one page, what is written into
        // three.
        let descriptions = ["\u{1}".repeat(16 * 1024), "\"".repeat(48 * 1024)];
        for n in 0..30 {
            let body = json!({"subject": "Long", "description": descriptions[n % 2], "priority": (["low", "high"][n % 2])});
            make(&server, &acme, &body).await;
        }
        for (query, first) in [("", 30), ("sort=-priority", 30), ("updated_since=2026-01-01T00:00:00Z", 1)] {
            let (mut seen, mut more, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let page = server.get(format!("{TICKETS}?limit=200&{query}{more}")).cookie(&acme.admin).await;
                assert!(page.body.len() < 1_100_000, "{query}: a page of {} bytes", page.body.len());
                let page = page.ok(200);
                let rows = page["data"].as_array().unwrap();
                assert!(rows.iter().all(|row| descriptions.iter().any(|text| row["description"] == text.as_str())));
                seen.extend(rows.iter().map(|row| row["number"].as_i64().unwrap()));
                pages += 1;
                assert_eq!(page["has_more"], page["next_cursor"].is_string());
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                more = format!("&cursor={cursor}");
            }
            assert!((3..=4).contains(&pages), "{query}: {pages} pages of ten each");
            assert_eq!(seen[0], first, "{query}");
            seen.sort_unstable();
            assert_eq!(seen, (1..=30).collect::<Vec<i64>>(), "{query}: each once");
        }
    }
}
