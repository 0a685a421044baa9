//! A page of long texts ends before its limit.

use super::*;

over_http! {
    async fn a_page_ends_at_about_a_megabyte_and_the_pages_show_all(server: Server) {
        let acme = server.tenant("acme").await;
        // A byte that JSON writes as two, and may write as six.
        let description = "\n".repeat(16 * 1024);
        for n in 0..30 {
            make(&server, &acme, &json!({"subject": "Long", "description": description, "priority": (["low", "high"][n % 2])})).await;
        }
        for (query, first) in [("", 30), ("sort=-priority", 30), ("updated_since=2026-01-01T00:00:00Z", 1)] {
            let (mut seen, mut more, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let page = server.get(format!("{TICKETS}?limit=200&{query}{more}")).cookie(&acme.admin).await;
                assert!(page.body.len() < 1_100_000, "{query}: a page of {} bytes", page.body.len());
                let page = page.ok(200);
                let rows = page["data"].as_array().unwrap();
                assert!(rows.iter().all(|row| row["description"] == description.as_str()));
                seen.extend(rows.iter().map(|row| row["number"].as_i64().unwrap()));
                pages += 1;
                assert_eq!(page["has_more"], page["next_cursor"].is_string());
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                more = format!("&cursor={cursor}");
            }
            assert!(pages > 1, "{query}: too much in one page");
            assert_eq!(seen[0], first, "{query}");
            seen.sort_unstable();
            assert_eq!(seen, (1..=30).collect::<Vec<i64>>(), "{query}: each once");
        }
    }
}
