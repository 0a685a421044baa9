//! Pages: cursors that go on where they were, and rare devices among many.

use serde_json::Value;

use super::{INVENTORY, add, add_all, bulk, change, list, named, names, remove, text, walk, with};
use crate::support::over_http;
use crate::tickets::{self, TICKETS};

over_http! {
    async fn every_size_of_page_shows_the_same(server: Server) {
        let acme = server.tenant("acme").await;
        let devices = (0..23).map(|n| with(&format!("h{n}"), |full| full.device.tags = vec![format!("t{}", n % 3)])).collect();
        add_all(&server, &acme, devices).await;
        for query in ["", "tag=t0,t1,t2&", "tag=t0,t2&", "q=h&", "tag=t1&q=h&", "updated_since=2026-01-01T00:00:00Z&"] {
            let all = list(&server, &acme, &format!("{query}limit=200")).await;
            assert!(all.len() >= 7, "{query}");
            for limit in [1, 2, 7, 22, 23, 24] {
                let (found, pages) = walk(&server, &acme, &format!("{query}limit={limit}")).await;
                assert_eq!(found, all, "{query}limit={limit}");
                assert!(pages.iter().all(|page| *page <= limit), "{query}limit={limit}: {pages:?}");
                assert_eq!(pages.len(), all.len().div_ceil(limit).max(1), "{query}limit={limit}: {pages:?}");
            }
        }
        assert_eq!(list(&server, &acme, "").await.len(), 23);
        let first = server.get(format!("{INVENTORY}?limit=5&tag=t0,t2")).cookie(&acme.admin).await;
        let cursor = first.ok(200)["next_cursor"].as_str().unwrap().to_owned();
        let link = first.header("link");
        let target = link.strip_prefix(&format!("<{}", server.base_url())).and_then(|rest| rest.strip_suffix(">; rel=\"next\""));
        let target = target.unwrap_or_else(|| panic!("{link}"));
        assert!(target.contains(&cursor) && target.starts_with(INVENTORY), "{link}");
        let by_link = server.get(target).cookie(&acme.admin).await.ok(200);
        let by_cursor = server.get(format!("{INVENTORY}?tag=t2,t0,t2&limit=5&cursor={cursor}")).cookie(&acme.admin).await.ok(200);
        assert_eq!(by_link, by_cursor, "however the filters are spelt");
    }

    async fn a_list_goes_on_where_it_was_while_devices_come_and_go(server: Server) {
        for (slug, query) in [("acme", ""), ("globex", "tag=still&"), ("hooli", "q=still&type=server&")] {
            let acme = server.tenant(slug).await;
            let still = |n: usize| with(&format!("still-{n}"), |full| full.device.tags = vec!["still".to_owned()]);
            let ids = add_all(&server, &acme, (0..20).map(still).collect()).await;
            let (mut seen, mut more): (Vec<String>, _) = (Vec::new(), String::new());
            #[expect(clippy::needless_range_loop, reason = "the pages are counted, not the ids")]
            for turn in 0.. {
                let page = server.get(format!("{INVENTORY}?{query}limit=3{more}")).cookie(&acme.admin).await.ok(200);
                seen.extend(page["data"].as_array().unwrap().iter().map(|row| text(row, "id").to_owned()));
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                more = format!("&cursor={cursor}");
                // One comes, one that is seen goes, and one that is not seen changes.
                add(&server, &acme, still(100 + turn)).await;
                if let Some(first) = seen.get(turn).filter(|_| turn < 3) {
                    remove(&server, &acme, first).await;
                    change(&server, &acme, &ids[turn], |full| full.device.model = Some("changed".to_owned())).await;
                }
            }
            let own: Vec<&String> = seen.iter().filter(|id| ids.contains(id)).collect();
            assert_eq!(own, ids.iter().rev().collect::<Vec<_>>(), "{query}: each once, newest first, and none that came later");
        }
    }

    async fn a_cursor_is_good_for_its_own_list_alone(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        for tenancy in [&acme, &globex] {
            let devices = (0..5).map(|n| with(&format!("h{n}"), |full| full.device.tags = vec!["a".to_owned(), "b".to_owned()]));
            add_all(&server, tenancy, devices.collect()).await;
            for _ in 0..2 {
                tickets::make(&server, tenancy, &serde_json::json!({})).await;
            }
        }
        let cursor_of = async |query: &str| {
            let page = server.get(format!("{INVENTORY}?{query}")).cookie(&acme.admin).await.ok(200);
            page["next_cursor"].as_str().unwrap_or_else(|| panic!("{query} has no next page")).to_owned()
        };
        let all = cursor_of("limit=2").await;
        let tagged = cursor_of("limit=2&tag=a").await;
        let changes = cursor_of("limit=2&updated_since=2026-01-01T00:00:00Z").await;
        let (mut first, mut last) = (all.clone(), all.clone());
        first.replace_range(0..1, if all.starts_with('A') { "B" } else { "A" });
        last.push('A');
        for bad in [
            format!("cursor={first}"),
            format!("cursor={last}"),
            format!("cursor={}", &all[..all.len() - 2]),
            format!("cursor={tagged}"),
            format!("cursor={changes}"),
            format!("tag=a&cursor={all}"),
            format!("tag=b&cursor={tagged}"),
            format!("tag=a,b&cursor={tagged}"),
            format!("tag=a&type=server&cursor={tagged}"),
            format!("updated_since=2026-01-01T00:00:00Z&cursor={all}"),
            format!("updated_since=2026-01-02T00:00:00Z&cursor={changes}"),
            "cursor=".to_owned(),
        ] {
            let answer = server.get(format!("{INVENTORY}?{bad}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{bad}");
            answer.problem("invalid_cursor");
        }
        server.get(format!("{INVENTORY}?cursor={all}")).cookie(&globex.admin).await.problem("invalid_cursor");
        server.get(format!("{TICKETS}?cursor={all}")).cookie(&acme.admin).await.problem("invalid_cursor");
        let other = server.get(format!("{TICKETS}?limit=1")).cookie(&acme.admin).await.ok(200)["next_cursor"].clone();
        let other = other.as_str().unwrap();
        server.get(format!("{INVENTORY}?cursor={other}")).cookie(&acme.admin).await.problem("invalid_cursor");
        // The size of a page is no filter.
        assert_eq!(list(&server, &acme, &format!("limit=200&cursor={all}")).await.len(), 3);
    }

    /// Half of them are healthy, the other half are offline, and few are both: no index has that.
    async fn a_rare_device_among_thousands_is_found_in_bounded_steps(server: Server) {
        let acme = server.tenant("acme").await;
        bulk::load(&server, &acme, 7_000, 10).await;
        let numbers = |rows: &[Value]| rows.iter().map(bulk::number).collect::<Vec<_>>();
        for (limit, most) in [(50, 3), (1, 5)] {
            let (rows, pages) = walk(&server, &acme, &format!("health=healthy&status=offline&limit={limit}")).await;
            assert_eq!(numbers(&rows), [6_002, 3_002, 2]);
            assert!((2..=most).contains(&pages.len()), "a request looks at some, and not at few: {pages:?}");
        }
        let (rows, pages) = walk(&server, &acme, "health=healthy&status=offline&include=software").await;
        assert_eq!(numbers(&rows), [6_002, 3_002, 2]);
        assert!((2..=3).contains(&pages.len()), "with what is long as well: {pages:?}");
        let first = server.get(format!("{INVENTORY}?health=healthy&status=offline")).cookie(&acme.admin).await.ok(200);
        assert_eq!(first["has_more"], true);
        assert!(first["data"].as_array().unwrap().len() < 3, "what is not looked at yet is not shown");
        let (rows, pages) = walk(&server, &acme, "health=healthy&status=online,stale&q=nothing&limit=200").await;
        assert_eq!((rows.len(), pages.len()), (0, 1), "a word that nobody has");
        // In the order of changes it is the same.
        let query = "health=healthy&status=offline&updated_since=2000-01-01T00:00:00Z";
        let (rows, pages) = walk(&server, &acme, query).await;
        assert_eq!(numbers(&rows), [2, 3_002, 6_002]);
        assert!((2..=9).contains(&pages.len()), "{pages:?}");
        // One that is rare by itself is found at once, however many there are.
        add(&server, &acme, with("needle", |full| full.device.tags = vec!["rare".to_owned()])).await;
        for query in ["tag=rare", "q=needle", "tag=rare&type=server", "q=need&status=online&type=server"] {
            let (rows, pages) = walk(&server, &acme, query).await;
            assert_eq!((rows.len(), pages.len(), text(&rows[0], "hostname")), (1, 1, "needle"), "{query}");
        }
    }

    async fn a_page_of_large_devices_ends_before_its_limit(server: Server) {
        let acme = server.tenant("acme").await;
        bulk::load(&server, &acme, 20, 100_000).await;
        for query in ["limit=200", "limit=200&updated_since=2000-01-01T00:00:00Z", "limit=200&type=server"] {
            let first = server.get(format!("{INVENTORY}?{query}")).cookie(&acme.admin).await;
            assert!((800_000..1_100_000).contains(&first.body.len()), "{query}: {}", first.body.len());
            let (rows, pages) = walk(&server, &acme, query).await;
            let mut numbers: Vec<i64> = rows.iter().map(bulk::number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (1..=20).collect::<Vec<_>>(), "{query}");
            assert!(pages.len() >= 2 && pages.iter().all(|page| *page > 0), "{query}: {pages:?}");
        }
    }

    async fn a_list_without_devices_is_empty(server: Server) {
        let acme = server.tenant("acme").await;
        assert_eq!(names(&server, &acme, "").await, Vec::<String>::new());
        let id = add(&server, &acme, named("a")).await;
        remove(&server, &acme, &id).await;
        assert_eq!(names(&server, &acme, "type=server").await, Vec::<String>::new());
        assert_eq!(names(&server, &acme, "").await, Vec::<String>::new());
    }
}
