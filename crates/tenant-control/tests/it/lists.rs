//! Lists: strict parameters, signed cursors, and every row exactly once.

use std::collections::HashSet;

use kernel::base::{MINUTE_MS, SECOND_MS};
use serde_json::{Value, json};

use crate::support::people::{AUDIT, KEYS};
use crate::support::{Server, Tenancy, over_http};

const TICKETS: &str = "/api/psa/tickets";

fn ids(page: &Value) -> Vec<String> {
    page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

async fn make(server: &Server, tenancy: &Tenancy, count: usize) -> Vec<String> {
    let mut made = Vec::new();
    for n in 0..count {
        made.push(server.key_with(tenancy, &json!({"name": format!("Key {n}"), "scopes": ["search:read"]})).await.id);
        // Several in one millisecond, so that time alone does not order them.
        if n % 3 == 2 {
            server.advance(SECOND_MS);
        }
    }
    made
}

async fn page(server: &Server, tenancy: &Tenancy, query: &str) -> Value {
    server.get(format!("{KEYS}{query}")).cookie(&tenancy.admin).await.ok(200)
}

/// Follows the cursor to the end; `between` runs after each page.
async fn walk(server: &Server, tenancy: &Tenancy, query: &str, mut between: impl AsyncFnMut()) -> Vec<String> {
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = page(server, tenancy, &format!("?{query}{cursor}")).await;
        seen.extend(ids(&page));
        assert_eq!(page["has_more"], page["next_cursor"].is_string(), "{page}");
        let Some(next) = page["next_cursor"].as_str() else { return seen };
        cursor = format!("&cursor={next}");
        between().await;
    }
}

over_http! {
    async fn an_empty_list_is_a_list(server: Server) {
        let acme = server.tenant("acme").await;
        let answer = server.get(KEYS).cookie(&acme.admin).await;
        assert_eq!(answer.ok(200), json!({"data": [], "has_more": false, "next_cursor": null}));
        assert_eq!(answer.header("link"), "");
    }

    async fn the_newest_come_first_and_each_row_once(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, 23).await;
        let whole = ids(&page(&server, &acme, "?limit=200").await);
        assert_eq!(whole.len(), 23);
        let records = page(&server, &acme, "").await;
        let order: Vec<(&str, &str)> =
            records["data"].as_array().unwrap().iter().map(|row| (row["created_at"].as_str().unwrap(), row["id"].as_str().unwrap())).collect();
        assert!(order.windows(2).all(|pair| pair[0] > pair[1]), "newest first, then by id");
        assert_eq!(whole.iter().collect::<HashSet<_>>(), made.iter().collect());
        for limit in [1, 2, 5, 22, 23, 24, 200] {
            assert_eq!(walk(&server, &acme, &format!("limit={limit}"), async || {}).await, whole, "pages of {limit}");
        }
    }

    async fn rows_that_come_and_go_while_paging_disturb_no_other(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, 12).await;
        let whole = ids(&page(&server, &acme, "").await);
        let newest = whole[0].clone();
        let mut first = true;
        let seen = walk(&server, &acme, "limit=5", async || {
            server.advance(SECOND_MS);
            make(&server, &acme, 2).await;
            if std::mem::take(&mut first) {
                // A row of the page before, where the next page goes on from.
                server.delete(format!("{KEYS}?id={}", whole[4])).cookie(&acme.admin).await.is(204);
                let body = json!({"name": "Changed", "scopes": ["search:read"]});
                server.put(format!("{KEYS}?id={newest}")).cookie(&acme.admin).json(&body).await.is(200);
            }
        }).await;
        assert_eq!(seen, whole, "each row that was there, once, and no other");
        assert_eq!(made.len(), seen.len());
    }

    async fn a_link_repeats_the_cursor(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, 3).await;
        let answer = server.get(format!("{KEYS}?status=active,expired&limit=2")).cookie(&acme.admin).await;
        let cursor = answer.ok(200)["next_cursor"].as_str().unwrap().to_owned();
        let link = answer.header("link");
        let url = link.strip_prefix('<').and_then(|rest| rest.strip_suffix(">; rel=\"next\"")).expect(link);
        assert!(url.contains(&cursor) && url.starts_with(server.base_url()), "{url}");
        let target = url.strip_prefix(server.base_url()).unwrap().to_owned();
        let next = server.get(target).cookie(&acme.admin).await;
        assert_eq!(next.ok(200)["data"].as_array().unwrap().len(), 1);
        assert_eq!((next.header("link"), &next.json()["has_more"]), ("", &json!(false)));
    }

    async fn a_limit_is_from_1_to_200(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, 51).await;
        assert_eq!(page(&server, &acme, "").await["data"].as_array().unwrap().len(), 50, "the default");
        for limit in ["1", "200"] {
            page(&server, &acme, &format!("?limit={limit}")).await;
        }
        for limit in ["0", "201", "-1", "1.5", "ten", "", "99999999999999999999", "1e2", "+5", "%2B5", "%205", "05", "00", "5%20", "0x10"] {
            let answer = server.get(format!("{KEYS}?limit={limit}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "limit={limit}");
            answer.problem("invalid_parameter");
        }
    }

    async fn what_a_route_does_not_know_is_refused(server: Server) {
        let acme = server.tenant_of_operator("acme").await;
        let id = server.key(&acme, &["*"]).await.id;
        for (path, method, documented) in server.contract.operations() {
            let has_id = documented["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "id"));
            let named = if has_id && method != "get" { format!("&id={id}") } else { String::new() };
            let ask = |query: String| server.call(method.to_uppercase().parse().unwrap(), format!("{path}?{query}{named}")).cookie(&acme.admin);
            for unknown in ["nonsense=1", "nonsense", "LIMIT=1", "limit[]=1", "Id=1", "%6eonsense=", "order=name"] {
                let answer = ask(unknown.to_owned()).await;
                assert_eq!(answer.status, 400, "{method} {path}?{unknown}");
                answer.problem("unknown_parameter");
            }
            ask("a=1&a=2".to_owned()).await.problem("unknown_parameter");
            for broken in ["a=%", "a=%zz", "a=%ff", "%f=1", "a=%ed%a0%80"] {
                let answer = ask(broken.to_owned()).await;
                assert_eq!(answer.json()["code"], "invalid_parameter", "{method} {path}?{broken}");
            }
        }
        // Nothing between two & is nothing.
        server.get(format!("{KEYS}?&&")).cookie(&acme.admin).await.is(200);
    }

    async fn a_parameter_that_takes_no_list_is_given_once(server: Server) {
        let acme = server.tenant_of_operator("acme").await;
        let mut tried = 0;
        for (path, method, documented) in server.contract.operations() {
            let single = documented["parameters"].as_array().into_iter().flatten();
            let single = single.filter(|one| one["in"] == "query" && one["style"].is_null()).filter_map(|one| one["name"].as_str());
            for name in single {
                for repeated in [format!("{name}=1&{name}=1"), format!("{name}=1&{name}=2"), format!("{name}=&%{:x}{}=1", name.as_bytes()[0], &name[1..])] {
                    let call = server.call(method.to_uppercase().parse().unwrap(), format!("{path}?{repeated}"));
                    let answer = call.cookie(&acme.admin).await;
                    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("invalid_parameter")), "{method} {path}?{repeated}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 100, "{tried}");
    }

    async fn a_list_is_given_with_commas_or_by_repeating_its_name(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, 5).await;
        for id in &made[..2] {
            server.delete(format!("{KEYS}?id={id}")).cookie(&acme.admin).await.is(204);
        }
        let comma = page(&server, &acme, "?status=active,revoked").await;
        assert_eq!(comma["data"].as_array().unwrap().len(), 5);
        for same in ["status=active&status=revoked", "status=revoked&limit=50&status=active", "status=revoked,active&%73tatus=active"] {
            assert_eq!(page(&server, &acme, &format!("?{same}")).await["data"], comma["data"], "{same}");
        }
        // Another spelling of the same filter: a cursor goes on, and the link has one spelling.
        let first = server.get(format!("{KEYS}?limit=2&status=revoked&status=active")).cookie(&acme.admin).await;
        let cursor = first.ok(200)["next_cursor"].as_str().unwrap().to_owned();
        assert!(first.header("link").contains("?status=active%2Crevoked&limit=2"), "{}", first.header("link"));
        let next = page(&server, &acme, &format!("?limit=3&status=active,revoked&cursor={cursor}")).await;
        assert_eq!([ids(&first.json()), ids(&next)].concat(), ids(&comma));
        for bad in ["status=active&status=", "status=active&status=nonsense", "status=&status="] {
            server.get(format!("{KEYS}?{bad}")).cookie(&acme.admin).await.problem("invalid_parameter");
        }
        // The bound is on all values, however they are given.
        let target = "target_id=key_01jd8z6v2mfkpb7h3q9xw5t4ra";
        let many = |count: usize| vec![target; count].join("&");
        server.get(format!("{AUDIT}?{}", many(100))).cookie(&acme.admin).await.is(200);
        server.get(format!("{AUDIT}?{}", many(101))).cookie(&acme.admin).await.problem("invalid_parameter");
        server.get(format!("{AUDIT}?{target},usr_01jd8z6v2mfkpb7h3q9xw5t4ra&{}", many(99))).cookie(&acme.admin).await.problem("invalid_parameter");
    }

    async fn a_bad_value_is_named_whatever_stands_beside_it(server: Server) {
        let acme = server.tenant("acme").await;
        let targets = [
            format!("{KEYS}?limit=0&cursor=x"),
            format!("{KEYS}?status=nonsense&limit=1&cursor=x"),
            format!("{AUDIT}?actor_id=nonsense&action=api_key.create&since=2026-01-15T10:00:00Z&limit=1"),
        ];
        for target in targets {
            let answer = server.get(&target).cookie(&acme.admin).await;
            assert_eq!(answer.json()["code"], "invalid_parameter", "{target}: {}", answer.json());
        }
        // The document and the route know the same parameters.
        for (path, method, documented) in server.contract.operations() {
            let all = documented["parameters"].as_array().into_iter().flatten();
            for name in all.filter(|one| one["in"] == "query").filter_map(|one| one["name"].as_str()) {
                let answer = server.call(method.to_uppercase().parse().unwrap(), format!("{path}?{name}=%00")).cookie(&acme.admin).await;
                assert_ne!(answer.json()["code"], "unknown_parameter", "{method} {path}?{name}");
            }
        }
    }

    async fn an_id_stands_alone(server: Server) {
        let acme = server.tenant("acme").await;
        let id = server.key(&acme, &["*"]).await.id;
        for more in ["status=active", "cursor=x", "limit=0", "limit=5&limit=5"] {
            server.get(format!("{KEYS}?id={id}&{more}")).cookie(&acme.admin).await.problem("invalid_parameter");
            server.get(format!("{KEYS}?{more}&id={id}")).cookie(&acme.admin).await.problem("invalid_parameter");
        }
        // One record is at most as many as any limit allows.
        let alone = server.get(format!("{KEYS}?id={id}")).cookie(&acme.admin).await.ok(200);
        for limit in [1, 50, 200] {
            assert_eq!(server.get(format!("{KEYS}?limit={limit}&id={id}")).cookie(&acme.admin).await.ok(200), alone);
        }
    }

    async fn a_filter_takes_a_comma_list_of_any(server: Server) {
        let acme = server.tenant("acme").await;
        let short = server.key_with(&acme, &json!({"name": "Short", "scopes": ["*"], "expires_days": 1})).await.id;
        let revoked = server.key(&acme, &["*"]).await.id;
        server.delete(format!("{KEYS}?id={revoked}")).cookie(&acme.admin).await.is(204);
        let active = server.key_with(&acme, &json!({"name": "Long", "scopes": ["*"], "expires_days": 90})).await.id;
        server.advance(25 * 60 * MINUTE_MS);
        let admin = server.user(&acme.tenant, kernel::auth::Role::Admin).await;
        let acme = Tenancy { tenant: acme.tenant, admin };
        let cases: [(&str, Vec<&str>); 8] = [
            ("", vec![&active, &short]),
            ("?status=active", vec![&active]),
            ("?status=expired", vec![&short]),
            ("?status=revoked", vec![&revoked]),
            ("?status=active,expired", vec![&active, &short]),
            ("?status=revoked,active", vec![&active, &revoked]),
            ("?status=expired,revoked", vec![&revoked, &short]),
            ("?status=active,expired,revoked", vec![&active, &revoked, &short]),
        ];
        for (query, expected) in cases {
            let seen: HashSet<String> = ids(&page(&server, &acme, query).await).into_iter().collect();
            assert_eq!(seen, expected.iter().map(|id| (*id).to_owned()).collect(), "{query}");
        }
        for bad in ["", "Active", "active,", ",", "active expired", "nonsense", "active,nonsense", "active;expired"] {
            let answer = server.get(format!("{KEYS}?status={}", bad.replace(' ', "%20"))).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{bad:?}");
            answer.problem("invalid_parameter");
        }
    }

    async fn since_is_inclusive_and_times_are_strict(server: Server) {
        let acme = server.tenant("acme").await;
        server.advance(MINUTE_MS);
        let id = server.key(&acme, &["*"]).await.id;
        let count = async |query: &str| {
            let answer = server.get(format!("{AUDIT}?target_id={id}&{query}")).cookie(&acme.admin).await;
            answer.ok(200)["data"].as_array().unwrap().len()
        };
        assert_eq!(count("since=2026-01-15T10:01:00Z").await, 1, "since is inclusive");
        assert_eq!(count("since=2026-01-15T10:01:00.001Z").await, 0);
        assert_eq!(count("since=2026-01-15T11:01:00%2B01:00").await, 1, "any offset");
        assert_eq!(count("since=2026-01-15T10:00:00Z&until=2026-01-15T10:01:00.001Z").await, 1);
        for bad in ["yesterday", "", "2026-01-15", "2026-01-15T10:01:00", "1768471200", "2026-13-01T00:00:00Z", "2026-01-15T10:01:00+01:00"] {
            let answer = server.get(format!("{AUDIT}?since={bad}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{bad}");
            answer.problem("invalid_parameter");
        }
    }

    async fn a_cursor_cannot_be_altered(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, 3).await;
        let cursor = page(&server, &acme, "?limit=1").await["next_cursor"].as_str().unwrap().to_owned();
        let ask = |cursor: &str| server.get(format!("{KEYS}?limit=1&cursor={cursor}")).cookie(&acme.admin);
        ask(&cursor).await.is(200);
        for at in 0..cursor.len() {
            for other in ["A", "B", "_"] {
                let mut altered = cursor.clone();
                altered.replace_range(at..=at, other);
                if altered != cursor {
                    ask(&altered).await.problem("invalid_cursor");
                }
            }
            ask(&cursor[..at]).await.problem("invalid_cursor");
        }
        for forged in ["", "x", &format!("{cursor}A"), &format!("{cursor}{cursor}"), "%20", "AAAA", &format!("{cursor}%3D")] {
            ask(forged).await.problem("invalid_cursor");
        }
    }

    async fn a_cursor_belongs_to_its_list_filter_and_tenant(server: Server) {
        let acme = server.tenant("acme").await;
        let globex = server.tenant("globex").await;
        make(&server, &acme, 3).await;
        make(&server, &globex, 3).await;
        let cursor = page(&server, &acme, "?limit=1").await["next_cursor"].as_str().unwrap().to_owned();
        let filtered = page(&server, &acme, "?limit=1&status=active").await["next_cursor"].as_str().unwrap().to_owned();
        let ask = |target: String, cookie: &str| server.get(target).cookie(cookie);
        for (target, cookie) in [
            (format!("{AUDIT}?limit=1&cursor={cursor}"), &acme.admin),
            (format!("{KEYS}?limit=1&cursor={cursor}"), &globex.admin),
            (format!("{KEYS}?limit=1&status=active&cursor={cursor}"), &acme.admin),
            (format!("{KEYS}?limit=1&status=active,expired&cursor={cursor}"), &acme.admin),
            (format!("{KEYS}?limit=1&cursor={filtered}"), &acme.admin),
            (format!("{KEYS}?limit=1&status=expired&cursor={filtered}"), &acme.admin),
        ] {
            let answer = ask(target.clone(), cookie).await;
            assert_eq!(answer.status, 400, "{target}");
            answer.problem("invalid_cursor");
        }
        // Another page size, another caller of the tenant and another order of parameters are fine.
        let colleague = server.user(&acme.tenant, kernel::auth::Role::Admin).await;
        ask(format!("{KEYS}?cursor={cursor}&limit=2"), &colleague).await.is(200);
        ask(format!("{KEYS}?cursor={filtered}&limit=2&status=active"), &colleague).await.is(200);
    }

    async fn a_cursor_goes_on_however_the_values_of_a_filter_are_ordered(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, 4).await;
        for n in 0..4 {
            server.post(TICKETS).cookie(&acme.admin).json(&json!({"subject": format!("Ticket {n}"), "tags": ["a"]})).await.is(201);
        }
        for (path, filter, same) in [
            (KEYS, "status=active,expired", &["status=expired,active", "status=expired,active,expired"][..]),
            (AUDIT, "action=ticket.create,api_key.create", &["action=api_key.create,ticket.create"]),
            (TICKETS, "status=open,new", &["status=new,open", "status=new,open,new"]),
            (TICKETS, "number=10,2,3", &["number=2,3,10", "number=3,3,2,10"]),
            (TICKETS, "tag=b,a&priority=medium,low", &["tag=a,b&priority=low,medium"]),
        ] {
            let ask = |query: String| server.get(format!("{path}?{query}")).cookie(&acme.admin);
            let cursor = ask(format!("{filter}&limit=1")).await.ok(200)["next_cursor"].as_str().unwrap().to_owned();
            let wanted = ask(format!("{filter}&limit=1&cursor={cursor}")).await.ok(200)["data"].clone();
            assert_eq!(wanted.as_array().map(Vec::len), Some(1));
            for other in same {
                let answer = ask(format!("{other}&limit=1&cursor={cursor}")).await;
                assert_eq!(answer.ok(200)["data"], wanted, "{filter} as {other}");
            }
        }
        let cursor = server.get(format!("{TICKETS}?status=open,new&limit=1")).cookie(&acme.admin).await.ok(200);
        let cursor = cursor["next_cursor"].as_str().unwrap();
        for other in ["status=new", "status=new,open,pending", "status=new,pending"] {
            let answer = server.get(format!("{TICKETS}?{other}&limit=1&cursor={cursor}")).cookie(&acme.admin).await;
            answer.problem("invalid_cursor");
        }
    }

    async fn a_list_shows_nothing_of_another_tenant(server: Server) {
        let acme = server.tenant("acme").await;
        let globex = server.tenant("globex").await;
        let (ours, theirs) = (make(&server, &acme, 4).await, make(&server, &globex, 4).await);
        let seen: HashSet<String> = walk(&server, &acme, "limit=3", async || {}).await.into_iter().collect();
        assert_eq!(seen, ours.into_iter().collect());
        for id in theirs {
            let trail = server.get(format!("{AUDIT}?target_id={id}")).cookie(&acme.admin).await.ok(200);
            assert_eq!(trail["data"], json!([]));
        }
    }
}
