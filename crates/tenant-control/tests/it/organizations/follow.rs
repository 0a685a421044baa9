//! Keeping a copy by what has changed.

use std::collections::BTreeMap;

use super::*;
use crate::tickets::generous;

over_http! {
    async fn many_changes_of_one_moment_are_all_seen_at_any_page_size(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let mut made = Vec::new();
        for n in 0..24 {
            made.push(make(&server, &acme, &json!({"name": format!("Number {n}")})).await);
        }
        // Half of them once more, in another order, and all at the same moment.
        let mut order: Vec<Value> = made.iter().skip(1).step_by(2).cloned().collect();
        for one in made.iter().step_by(2).rev() {
            order.push(changed(&server, &acme, one, &json!({"name": one["name"], "tags": ["changed"]})).await);
        }
        assert!(order.iter().all(|one| one["updated_at"] == order[0]["updated_at"]), "the clock stands still");
        for limit in [1, 2, 5, 23, 24, 25, 200] {
            let query = format!("updated_since={}&limit={limit}", server.now());
            assert_eq!(walk(&server, &acme, &query).await, order, "{limit}");
        }
    }

    async fn a_change_while_somebody_reads_comes_behind_what_they_have_seen(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        for n in 0..6 {
            make(&server, &acme, &json!({"name": format!("Number {n}")})).await;
        }
        let (mut copy, mut more, mut turn) = (BTreeMap::new(), String::new(), 0);
        loop {
            let query = format!("updated_since={}&limit=1{more}", server.now());
            let page = server.get(format!("{ORGANIZATIONS}?{query}")).cookie(&acme.admin).await.ok(200);
            for row in page["data"].as_array().unwrap() {
                copy.insert(id_of(row).to_owned(), row.clone());
            }
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            more = format!("&cursor={cursor}");
            // Somebody changes one that was seen, makes another, and archives a third.
            if turn < 3 {
                let seen = copy.values().next().unwrap().clone();
                changed(&server, &acme, &seen, &json!({"name": seen["name"], "tags": [turn.to_string()]})).await;
                make(&server, &acme, &json!({"name": "Late"})).await;
                let late = walk(&server, &acme, "limit=1&slug=number-5").await;
                if let [late] = late.as_slice() {
                    changed(&server, &acme, late, &json!({"name": "Number 5", "archived": true})).await;
                }
            }
            turn += 1;
        }
        let all = [walk(&server, &acme, "").await, walk(&server, &acme, "archived=true").await].concat();
        let expected: BTreeMap<String, Value> = all.into_iter().map(|row| (id_of(&row).to_owned(), row)).collect();
        assert_eq!(expected.len(), 9);
        assert_eq!(copy, expected);
    }

    async fn a_reader_goes_on_from_the_last_time_it_has_seen(server: Server) {
        let acme = server.tenant("acme").await;
        let first = make(&server, &acme, &json!({"name": "First"})).await;
        server.advance(1_000);
        let second = make(&server, &acme, &json!({"name": "Second"})).await;
        let since = format!("updated_since={}", second["updated_at"].as_str().unwrap());
        assert_eq!(walk(&server, &acme, &since).await, std::slice::from_ref(&second), "the moment itself is included");
        server.advance(1_000);
        let first = changed(&server, &acme, &first, &json!({"name": "First", "archived": true})).await;
        assert_eq!(walk(&server, &acme, &since).await, [second, first]);
    }
}
