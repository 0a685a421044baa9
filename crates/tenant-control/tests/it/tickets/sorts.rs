//! Orders, and pages through each of them: every ticket exactly once.

use kernel::base::SECOND_MS;

use super::*;

const SORTS: [&str; 4] = ["created_at", "updated_at", "priority", "due_at"];

/// Whether a ticket is wanted.
type Condition<'a> = &'a dyn Fn(&Value) -> bool;

/// The places of tickets that are changed after all are made, in this order.
const CHANGED: [usize; 4] = [3, 11, 0, 7];

/// Tickets with ties in everything that they can be sorted by, and some without a date.
async fn scene(server: &Server, acme: &Tenancy) -> Vec<Value> {
    let dates = [
        json!("2026-03-01T00:00:00Z"),
        Value::Null,
        json!("1969-07-20T20:17:40Z"),
        json!("2026-03-01T00:00:00Z"),
        json!("2026-02-01T00:00:00.001Z"),
        Value::Null,
        json!("2026-02-01T00:00:00Z"),
    ];
    let mut made = Vec::new();
    for n in 0..14 {
        let body = json!({"priority": (["high", "low", "critical", "medium", "low"][n % 5]), "due_at": dates[n % 7], "tags": [(["a", "b"][n % 2])]});
        made.push(make(server, acme, &body).await);
        if n % 3 == 2 {
            server.advance(SECOND_MS);
        }
    }
    for at in CHANGED {
        changed(server, acme, &made[at], &json!({"team": "Moved"})).await;
        if at == 11 {
            server.advance(SECOND_MS);
        }
    }
    list(server, acme, "limit=200").await
}

/// What the contract says of an order: by the field, missing dates last, then in the same direction by id, or in the
/// order of updates by which was changed first.
fn sorted(mut tickets: Vec<Value>, sort: &str) -> Vec<Value> {
    let (field, descending) = sort.strip_prefix('-').map_or((sort, false), |field| (field, true));
    let change = |ticket: &Value| {
        let number = ticket["number"].as_u64().unwrap();
        let place = CHANGED.iter().position(|at| field == "updated_at" && number == *at as u64 + 1);
        (place, number)
    };
    let rank = |ticket: &Value| match field {
        "priority" => {
            let ranks = ["low", "medium", "high", "critical"];
            ranks.iter().position(|word| ticket["priority"] == *word).unwrap().to_string()
        }
        field => ticket[field].as_str().unwrap_or_default().to_owned(),
    };
    tickets.sort_by(|a, b| {
        let by_value = (rank(a), change(a)).cmp(&(rank(b), change(b)));
        let missing = a[field].is_null().cmp(&b[field].is_null());
        missing.then(if descending { by_value.reverse() } else { by_value })
    });
    tickets
}

fn numbers_of(tickets: &[Value]) -> Vec<i64> {
    tickets.iter().map(|ticket| ticket["number"].as_i64().unwrap()).collect()
}

/// Follows the cursor to the end.
async fn walk(server: &Server, tenancy: &Tenancy, query: &str, limit: usize) -> Vec<i64> {
    let mut seen = Vec::new();
    let mut target = format!("{TICKETS}?{query}&limit={limit}");
    loop {
        let answer = server.get(&target).cookie(&tenancy.admin).await;
        let page = answer.ok(200);
        let rows = page["data"].as_array().unwrap();
        seen.extend(numbers_of(rows));
        assert!(rows.len() <= limit && seen.len() <= 100, "{target}: {page}");
        assert_eq!(page["has_more"], page["next_cursor"].is_string(), "{target}");
        let link = answer.header("link");
        let Some(cursor) = page["next_cursor"].as_str() else {
            assert_eq!(link, "", "{target}");
            return seen;
        };
        assert_eq!(rows.len(), limit, "a page before the last is full: {target}");
        let url = link.strip_prefix('<').and_then(|rest| rest.strip_suffix(">; rel=\"next\"")).expect(link);
        assert!(url.contains(cursor), "{url} repeats the cursor");
        target = url.strip_prefix(server.base_url()).expect(url).to_owned();
    }
}

over_http! {
    async fn every_order_is_as_the_contract_says_and_its_pages_show_each_ticket_once(server: Server) {
        let acme = server.tenant("acme").await;
        let all = scene(&server, &acme).await;
        assert_eq!(numbers_of(&all), numbers_of(&sorted(all.clone(), "-created_at")), "newest first");
        for sort in SORTS.iter().flat_map(|sort| [(*sort).to_owned(), format!("-{sort}")]) {
            let expected = sorted(all.clone(), &sort);
            assert_eq!(list(&server, &acme, &format!("sort={sort}")).await, expected, "{sort}");
            for limit in [1, 2, 3, 13, 14, 15] {
                let seen = walk(&server, &acme, &format!("sort={sort}"), limit).await;
                assert_eq!(seen, numbers_of(&expected), "{sort} in pages of {limit}");
            }
        }
        for limit in [1, 3] {
            assert_eq!(walk(&server, &acme, "", limit).await, numbers_of(&all));
        }
    }

    async fn every_order_goes_with_every_kind_of_filter(server: Server) {
        let acme = server.tenant("acme").await;
        let all = scene(&server, &acme).await;
        let since = all[7]["updated_at"].as_str().unwrap().to_owned();
        let filters: [(String, Condition<'_>); 7] = [
            ("tag=a".to_owned(), &|ticket| ticket["tags"][0] == "a"),
            ("tag=a,b&status=new".to_owned(), &|_| true),
            ("q=fire&priority=low,high".to_owned(), &|ticket| ticket["priority"] == "low" || ticket["priority"] == "high"),
            ("number=2,3,5,7,11,13".to_owned(), &|ticket| [2, 3, 5, 7, 11, 13].contains(&ticket["number"].as_i64().unwrap())),
            (format!("updated_since={since}"), &|ticket| ticket["updated_at"].as_str().unwrap() >= since.as_str()),
            (format!("created_since={since}"), &|ticket| ticket["created_at"].as_str().unwrap() >= since.as_str()),
            (format!("created_since={since}&updated_since={since}&tag=b"), &|ticket| {
                ticket["created_at"].as_str().unwrap() >= since.as_str() && ticket["tags"][0] == "b"
            }),
        ];
        for sort in SORTS.iter().flat_map(|sort| [(*sort).to_owned(), format!("-{sort}")]) {
            for (filter, wants) in &filters {
                let expected = sorted(all.iter().filter(|ticket| wants(ticket)).cloned().collect(), &sort);
                assert!(!expected.is_empty(), "{filter}");
                for limit in [1, 2, 200] {
                    let seen = walk(&server, &acme, &format!("sort={sort}&{filter}"), limit).await;
                    assert_eq!(seen, numbers_of(&expected), "{sort} with {filter} in pages of {limit}");
                }
            }
        }
    }

    async fn with_updated_since_the_oldest_change_comes_first(server: Server) {
        let acme = server.tenant("acme").await;
        let all = scene(&server, &acme).await;
        for moment in [&all[13], &all[7], &all[0]].map(|ticket| ticket["updated_at"].as_str().unwrap()) {
            let later = all.iter().filter(|ticket| ticket["updated_at"].as_str().unwrap() >= moment).cloned().collect();
            let expected = numbers_of(&sorted(later, "updated_at"));
            for limit in [1, 2, 3, 200] {
                assert_eq!(walk(&server, &acme, &format!("updated_since={moment}"), limit).await, expected, "{moment} by {limit}");
            }
        }
    }

    async fn a_cursor_belongs_to_its_filters_order_and_tenant(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        scene(&server, &acme).await;
        scene(&server, &globex).await;
        let place = organization(&server, &acme, "initech").await;
        let queries = [
            String::new(), "sort=-created_at".to_owned(), "sort=created_at".to_owned(), "sort=priority".to_owned(),
            "sort=due_at".to_owned(), "status=new".to_owned(), "status=new,open".to_owned(), "tag=a".to_owned(),
            "tag=a,b".to_owned(), "q=fire".to_owned(), "q=fir".to_owned(), "priority=low".to_owned(), "type=incident".to_owned(),
            "number=1,2,3,4,6".to_owned(), "created_since=2026-01-01T00:00:00Z".to_owned(),
            "updated_since=2026-01-01T00:00:00Z".to_owned(), "updated_since=2026-01-01T00:00:01Z".to_owned(),
        ];
        let ask = |query: String, cookie: &str| server.get(format!("{TICKETS}?limit=1&{query}")).cookie(cookie);
        for query in &queries {
            let page = ask(query.clone(), &acme.admin).await.ok(200);
            let cursor = page["next_cursor"].as_str().unwrap_or_else(|| panic!("{query} has a second page"));
            ask(format!("{query}&cursor={cursor}"), &acme.admin).await.is(200);
            server.get(format!("{TICKETS}?cursor={cursor}&{query}&limit=200")).cookie(&acme.admin).await.is(200);
            ask(format!("{query}&cursor={cursor}"), &globex.admin).await.problem("invalid_cursor");
            ask(format!("{query}&cursor={cursor}A"), &acme.admin).await.problem("invalid_cursor");
            for other in queries.iter().filter(|other| *other != query && !other.is_empty() && !query.is_empty()) {
                let answer = ask(format!("{other}&cursor={cursor}"), &acme.admin).await;
                assert_eq!(answer.json()["code"], "invalid_cursor", "a cursor of {query} with {other}");
            }
            let narrowed = format!("{query}&organization_id={place}&cursor={cursor}");
            ask(narrowed, &acme.admin).await.problem("invalid_cursor");
            server.get(format!("{AUDIT}?cursor={cursor}")).cookie(&acme.admin).await.problem("invalid_cursor");
        }
    }

    async fn a_link_keeps_what_a_filter_says(server: Server) {
        let acme = server.tenant("acme").await;
        for n in 0..4 {
            make(&server, &acme, &json!({"subject": "R&D = 50% + ü", "tags": ["a&b=c", "50%+ü #1"], "external_id": format!("#{n}&?")})).await;
        }
        make(&server, &acme, &json!({})).await;
        for (query, expected) in [
            ("tag=a%26b%3Dc", vec![4, 3, 2, 1]),
            ("tag=50%25%2B%C3%BC%20%231", vec![4, 3, 2, 1]),
            ("tag=a%26b%3Dc,50%25%2B%C3%BC+%231&sort=created_at", vec![1, 2, 3, 4]),
            ("q=R%26D+50%25&status=new,open", vec![4, 3, 2, 1]),
            ("external_id=%230%26%3F,%233%26%3F", vec![4, 1]),
            ("updated_since=2026-01-15T11:00:00%2B01:00&tag=a%26b%3Dc", vec![1, 2, 3, 4]),
        ] {
            assert_eq!(walk(&server, &acme, query, 1).await, expected, "{query}");
        }
    }

    async fn tickets_that_come_and_change_while_paging_disturb_no_other(server: Server) {
        let acme = server.tenant("acme").await;
        let all = scene(&server, &acme).await;
        for sort in ["-created_at", "created_at", "priority", "-priority", "due_at", "-due_at"] {
            let before = list(&server, &acme, "limit=200").await;
            let untouched = &all[3..];
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            for turn in 0.. {
                let page = server.get(format!("{TICKETS}?sort={sort}&limit=5{cursor}")).cookie(&acme.admin).await.ok(200);
                seen.extend(numbers_of(page["data"].as_array().unwrap()));
                let Some(next) = page["next_cursor"].as_str() else { break };
                cursor = format!("&cursor={next}");
                server.advance(SECOND_MS);
                let body = json!({"priority": (if turn % 2 == 0 { "critical" } else { "low" }), "due_at": "2026-02-15T00:00:00Z"});
                changed(&server, &acme, &all[turn % 3], &body).await;
                if turn < 3 {
                    make(&server, &acme, &json!({"priority": "high", "due_at": "2026-02-14T00:00:00Z"})).await;
                }
            }
            for ticket in untouched.iter().chain(before.iter().filter(|ticket| !all.iter().any(|one| one["id"] == ticket["id"]))) {
                let times = seen.iter().filter(|number| ticket["number"] == **number).count();
                assert_eq!(times, 1, "{} by {sort}: {seen:?}", ticket["number"]);
            }
        }
    }

    async fn a_tenant_sees_its_own_tickets_in_every_order(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        scene(&server, &acme).await;
        make(&server, &globex, &json!({"subject": "Printer on ice"})).await;
        for query in ["", "sort=updated_at", "sort=-priority", "sort=due_at", "q=printer", "updated_since=2026-01-01T00:00:00Z", "number=1,2,3", "status=new"] {
            let found = list(&server, &globex, query).await;
            assert_eq!(found.iter().map(|ticket| &ticket["subject"]).collect::<Vec<_>>(), ["Printer on ice"], "{query}");
        }
    }

    async fn a_filter_takes_many_values_in_every_order(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({"tags": ["tag 99", "tag 7"], "external_id": "id 99"})).await;
        make(&server, &acme, &json!({"tags": ["other"]})).await;
        let many = |of: &str| (0..100).map(|n| format!("{of}%20{n}")).collect::<Vec<_>>().join(",");
        let (tags, ids) = (many("tag"), many("id"));
        let numbered: Vec<String> = [1].into_iter().chain(101..200).map(|number: i64| number.to_string()).collect();
        let nobodies = vec![NOBODY; 99].join(",");
        for sort in ["-created_at", "created_at", "updated_at", "-priority", "due_at"] {
            for query in [
                format!("tag={tags}"),
                format!("external_id={ids}"),
                format!("number={}", numbered.join(",")),
                format!("tag={tags}&external_id={ids}&number={}&status={}", numbered.join(","), STATUSES.join(",")),
                format!("tag={tags}&q=p+o+f&status={}", STATUSES.join(",")),
            ] {
                assert_eq!(numbers(&server, &acme, &format!("{query}&sort={sort}")).await, [1], "{query:.60} by {sort}");
            }
            assert_eq!(numbers(&server, &acme, &format!("assignee_id={nobodies}&tag={tags}&sort={sort}")).await, [0_i64; 0]);
        }
        changed(&server, &acme, &ticket, &json!({"status": "cancelled", "tags": ["tag 100"]})).await;
        assert_eq!(numbers(&server, &acme, &format!("tag={tags}")).await, [0_i64; 0]);
    }
}
