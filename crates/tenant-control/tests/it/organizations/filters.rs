//! Finding organizations.

use super::*;
use crate::support::search::spelt;
use crate::tickets::generous;

/// The slugs that a query finds, page by page.
async fn found(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<String> {
    slugs(&walk(server, tenancy, query).await).into_iter().map(str::to_owned).collect()
}

async fn three(server: &Server) -> Tenancy {
    let acme = server.tenant("acme").await;
    for body in [
        json!({"name": "Globex & Söhne", "slug": "globex", "external_id": "CRM/4711", "domains": ["globex.example"]}),
        json!({"name": "Initech", "slug": "initech-llc", "domains": ["initech.example", "shop.test"]}),
        json!({"name": "Globex Old", "slug": "old", "external_id": "crm-1", "archived": true}),
    ] {
        make(server, &acme, &body).await;
    }
    acme
}

over_http! {
    async fn each_filter_narrows_the_list_down(server: Server) {
        let acme = three(&server).await;
        let since = format!("updated_since={}", server.now());
        for (query, expected) in [
            (String::new(), &["initech-llc", "globex"][..]),
            ("archived=false".to_owned(), &["initech-llc", "globex"]),
            ("archived=true".to_owned(), &["old"]),
            (since.clone(), &["globex", "initech-llc", "old"]),
            (format!("{since}&archived=true"), &["old"]),
            (format!("{since}&archived=false"), &["globex", "initech-llc"]),
            (format!("{since}&q=globex"), &["globex", "old"]),
            ("slug=globex".to_owned(), &["globex"]),
            ("slug=old".to_owned(), &[]),
            ("slug=old&archived=true".to_owned(), &["old"]),
            (format!("slug=old&{since}"), &["old"]),
            ("slug=glob".to_owned(), &[]),
            (format!("external_id={}", spelt("CRM/4711")), &["globex"]),
            (format!("external_id={}", spelt("crm/4711")), &[]),
            ("external_id=crm-1&archived=true".to_owned(), &["old"]),
            (format!("slug=initech-llc&external_id={}", spelt("CRM/4711")), &[]),
            ("q=glob".to_owned(), &["globex"]),
            ("q=glob&archived=true".to_owned(), &["old"]),
            (format!("q={}", spelt("SÖH glo")), &["globex"]),
            (format!("q={}", spelt("globex & sohne")), &["globex"]),
            ("q=soehne".to_owned(), &["globex"]),
            ("q=initechllc".to_owned(), &["initech-llc"]),
            ("q=crm4711".to_owned(), &["globex"]),
            (format!("q={}", spelt("globex.ex")), &["globex"]),
            (format!("q={}", spelt("crm/47")), &["globex"]),
            ("q=4711".to_owned(), &["globex"]),
            ("q=llc".to_owned(), &["initech-llc"]),
            ("q=shop".to_owned(), &["initech-llc"]),
            ("q=example".to_owned(), &["initech-llc", "globex"]),
            (format!("q={}", spelt("example.shop")), &[]),
            ("q=lobex".to_owned(), &[]),
            ("q=globex+nobody".to_owned(), &[]),
            ("q=glob&slug=globex".to_owned(), &["globex"]),
            ("q=glob&slug=initech-llc".to_owned(), &[]),
        ] {
            for limit in ["", "&limit=1"] {
                assert_eq!(found(&server, &acme, &format!("{query}{limit}")).await, expected, "{query}{limit}");
            }
        }
        assert_eq!(found(&server, &acme, "updated_since=2999-01-01T00:00:00Z").await, Vec::<String>::new());
        let other = server.tenant("other").await;
        for query in ["", "slug=globex", "q=glob", "updated_since=2000-01-01T00:00:00Z"] {
            assert_eq!(found(&server, &other, query).await, Vec::<String>::new(), "{query}");
        }
    }

    async fn a_filter_is_applied_or_refused(server: Server) {
        let acme = three(&server).await;
        let long = "x".repeat(201);
        for query in [
            "archived=yes", "archived=", "archived=TRUE", "slug=", "slug=Globex", "slug=a,b", "external_id=",
            &format!("external_id={long}"), "external_id=%00", "q=", "q=+", "q=%2D", &format!("q={long}"),
            "q=a+b+c+d+e+f+g+h+i+j+k", "updated_since=yesterday", "archived=true&archived=true", "limit=0", "limit=201",
        ] {
            let answer = server.get(format!("{ORGANIZATIONS}?{query}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{query}: {}", answer.json());
            answer.problem("invalid_parameter");
        }
    }

    async fn a_cursor_is_good_for_its_own_list_alone(server: Server) {
        let (acme, other) = (three(&server).await, server.tenant("other").await);
        let cursor = async |query: &str| {
            let page = server.get(format!("{ORGANIZATIONS}?limit=1{query}")).cookie(&acme.admin).await;
            let cursor = page.ok(200)["next_cursor"].as_str().expect("there is more").to_owned();
            assert!(page.header("link").contains(&cursor), "{query}");
            cursor
        };
        let (plain, followed) = (cursor("").await, cursor("&updated_since=2000-01-01T00:00:00Z").await);
        for (query, cursor) in [
            ("archived=true", &plain), ("q=globex", &plain), ("slug=globex", &plain), ("", &followed),
            ("updated_since=2000-01-01T00:00:00Z", &plain), ("updated_since=2001-01-01T00:00:00Z", &followed),
        ] {
            let answer = server.get(format!("{ORGANIZATIONS}?{query}&cursor={cursor}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{query}");
            answer.problem("invalid_cursor");
        }
        let foreign = server.get(format!("{ORGANIZATIONS}?limit=1&cursor={plain}")).cookie(&other.admin).await;
        foreign.problem("invalid_cursor");
    }

    async fn everything_is_reached_however_rare_it_is(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let mut expected = Vec::new();
        for n in 0..90 {
            server.advance(i64::from(n % 3 == 0));
            let name = if n % 30 == 7 { format!("Rare {n}") } else { format!("Common {n}") };
            let made = make(&server, &acme, &json!({"name": name, "archived": (n % 10 == 9)})).await;
            expected.push(made);
        }
        let of = |wanted: &dyn Fn(&Value) -> bool| -> Vec<Value> {
            expected.iter().filter(|one| wanted(one)).cloned().collect()
        };
        let is_rare = |one: &Value| one["slug"].as_str().unwrap().starts_with("rare");
        let is_archived = |one: &Value| one["archived"] == true;
        let newest_first = |mut rows: Vec<Value>| {
            rows.reverse();
            rows
        };
        for limit in [1, 7, 50, 200] {
            assert_eq!(walk(&server, &acme, &format!("limit={limit}")).await, newest_first(of(&|one| !is_archived(one))));
            assert_eq!(walk(&server, &acme, &format!("archived=true&limit={limit}")).await, newest_first(of(&is_archived)));
            assert_eq!(walk(&server, &acme, &format!("q=rare&limit={limit}")).await, newest_first(of(&is_rare)));
            let since = format!("updated_since=2000-01-01T00:00:00Z&limit={limit}");
            assert_eq!(walk(&server, &acme, &since).await, expected, "{since}");
            assert_eq!(walk(&server, &acme, &format!("{since}&q=rare")).await, of(&is_rare));
            assert_eq!(walk(&server, &acme, &format!("{since}&archived=true")).await, of(&is_archived));
        }
    }

    async fn large_ones_end_a_page_early(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let tags: Vec<String> = (0..50).map(|n| format!("{n}{}", "ü".repeat(198))).collect();
        let mut made = Vec::new();
        for n in 0..60 {
            let body = json!({"name": format!("Large {n}"), "tags": tags, "custom_fields": {"a": "x".repeat(16_000)}});
            made.push(make(&server, &acme, &body).await);
        }
        for query in ["limit=200", "limit=200&updated_since=2000-01-01T00:00:00Z"] {
            let page = server.get(format!("{ORGANIZATIONS}?{query}")).cookie(&acme.admin).await;
            assert!(page.body.len() <= (1 << 20) + 1_000, "{query}: {} bytes", page.body.len());
            let first = page.ok(200);
            assert!(first["data"].as_array().unwrap().len() > 10 && first["has_more"] == true, "{query}");
            assert_eq!(walk(&server, &acme, query).await.len(), made.len(), "{query}");
        }
    }
}
