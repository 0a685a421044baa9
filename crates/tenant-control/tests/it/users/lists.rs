//! How users are found.

use super::*;

/// The addresses on a page, as the admin sees them.
async fn listed(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<String> {
    let answer = server.get(format!("{USERS}?{query}")).cookie(&tenancy.admin).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.json());
    emails(&answer.json())
}

fn emails(page: &Value) -> Vec<String> {
    let rows = page["data"].as_array().expect("data").iter();
    rows.map(|user| user["email"].as_str().expect("an address").to_owned()).collect()
}

/// All pages, one after the other.
async fn walk(server: &Server, tenancy: &Tenancy, query: &str) -> Vec<String> {
    let (mut found, mut more) = (Vec::new(), String::new());
    loop {
        let page = server.get(format!("{USERS}?{query}{more}")).cookie(&tenancy.admin).await.ok(200);
        found.extend(emails(&page));
        let Some(cursor) = page["next_cursor"].as_str() else { return found };
        more = format!("&cursor={cursor}");
    }
}

/// Some people, each a second after the other, and one of them disabled. The admin comes first, whose address is renamed.
async fn some(server: &Server) -> Tenancy {
    let acme = server.tenant("acme").await;
    let own = me(server, &acme.admin).await;
    put(server, &acme.admin, &own, &json!({"email": "root@acme.test", "name": "Root", "role": "admin"})).await.is(200);
    for (email, name, role) in [
        ("ann@acme.test", "Ann-Marie O'Neill", "viewer"),
        ("bob@hub.test", "Bob Söder", "technician"),
        ("cem@hub.test", "Cem Ann", "viewer"),
        ("dora@acme.test", "Dora", "technician"),
    ] {
        server.advance(1_000);
        let body = json!({"email": email, "name": name, "role": role});
        let made = server.post(USERS).cookie(&acme.admin).json(&body).await.ok(201);
        if email.starts_with("cem") {
            server.delete(one(&made)).cookie(&acme.admin).await.is(204);
        }
    }
    acme
}

over_http! {
    async fn filters_narrow_each_other_down(server: Server) {
        let acme = some(&server).await;
        let (root, ann, bob) = ("root@acme.test", "ann@acme.test", "bob@hub.test");
        let (cem, dora) = ("cem@hub.test", "dora@acme.test");
        for (query, wanted) in [
            ("", vec![dora, cem, bob, ann, root]),
            ("status=active,disabled", vec![dora, cem, bob, ann, root]),
            ("status=active", vec![dora, bob, ann, root]),
            ("status=disabled", vec![cem]),
            ("role=admin", vec![root]),
            ("role=viewer", vec![cem, ann]),
            ("role=viewer,technician&status=active", vec![dora, bob, ann]),
            ("role=viewer&status=active&role=technician", vec![dora, bob, ann]),
            ("email=Bob@HUB.test", vec![bob]),
            ("email=bob@hub.test&role=viewer", vec![]),
            ("email=nobody@hub.test", vec![]),
            ("q=ann", vec![cem, ann]),
            ("q=ANN+o%27neill", vec![ann]),
            ("q=hub", vec![cem, bob]),
            ("q=bob@hub", vec![bob]),
            ("q=S%C3%B6d", vec![bob]),
            ("q=sod", vec![bob]),
            ("q=soeder", vec![bob]),
            ("q=oneill", vec![ann]),
            ("q=annmarie", vec![ann]),
            ("q=bob+-+hub", vec![bob]),
            ("q=nn", vec![]),
            ("q=hub&status=disabled", vec![cem]),
        ] {
            assert_eq!(listed(&server, &acme, query).await, wanted, "{query}");
        }
        for query in [
            "email=",
            "email=bob",
            "email=bob@hub..test",
            "role=",
            "role=boss",
            "role=Admin",
            "status=gone",
            "status=active,",
            "q=",
            "q=%2D",
            "updated_since=today",
            "role=admin&role=boss",
            "email=bob@hub.test&email=bob@hub.test",
        ] {
            server.get(format!("{USERS}?{query}")).cookie(&acme.admin).await.problem("invalid_parameter");
        }
        server.get(format!("{USERS}?name=x")).cookie(&acme.admin).await.problem("unknown_parameter");
    }

    async fn pages_show_everybody_once_however_many_share_a_moment(server: Server) {
        let acme = server.tenant("acme").await;
        for n in 0..9 {
            server.advance(i64::from(n % 3 == 0));
            make(&server, &acme, &format!("u{n}@acme.test"), if n % 2 == 0 { "viewer" } else { "technician" }).await;
        }
        for query in ["", "role=viewer", "q=acme", "updated_since=2000-01-01T00:00:00Z", "status=active&role=technician"] {
            let whole = listed(&server, &acme, query).await;
            for limit in [1, 2, 4] {
                let paged = walk(&server, &acme, &format!("{query}&limit={limit}")).await;
                assert_eq!(paged, whole, "{query} by {limit}");
            }
        }
        let page = server.get(format!("{USERS}?limit=1")).cookie(&acme.admin).await.ok(200);
        let cursor = page["next_cursor"].as_str().unwrap();
        for other in ["role=viewer", "updated_since=2000-01-01T00:00:00Z"] {
            let answer = server.get(format!("{USERS}?{other}&limit=1&cursor={cursor}")).cookie(&acme.admin).await;
            answer.problem("invalid_cursor");
        }
    }

    async fn a_reader_follows_changes_in_their_order(server: Server) {
        let acme = server.tenant("acme").await;
        let mut made = Vec::new();
        for n in 0..4 {
            // All in one millisecond.
            made.push(make(&server, &acme, &format!("u{n}@acme.test"), "viewer").await);
        }
        put(&server, &acme.admin, &made[0], &but(&made[0], "name", "Anna")).await.is(200);
        server.delete(one(&made[2])).cookie(&acme.admin).await.is(204);
        let since = format!("updated_since={}", server.now());
        let found = walk(&server, &acme, &format!("{since}&limit=2")).await;
        assert_eq!(found[1..], ["u1@acme.test", "u3@acme.test", "u0@acme.test", "u2@acme.test"], "the admin is the first");
        assert_eq!(walk(&server, &acme, &format!("{since}&status=disabled&limit=1")).await, ["u2@acme.test"]);
        // Whoever goes on from a place sees what was changed behind it.
        let page = server.get(format!("{USERS}?{since}&limit=3")).cookie(&acme.admin).await.ok(200);
        let seen = emails(&page);
        put(&server, &acme.admin, &made[1], &but(&made[1], "name", "Bob")).await.is(200);
        let more = format!("{USERS}?{since}&limit=3&cursor={}", page["next_cursor"].as_str().unwrap());
        let rest = emails(&server.get(more).cookie(&acme.admin).await.ok(200));
        assert_eq!(seen[1..], ["u1@acme.test", "u3@acme.test"]);
        assert_eq!(rest, ["u0@acme.test", "u2@acme.test", "u1@acme.test"]);
        server.advance(1);
        assert_eq!(walk(&server, &acme, &format!("updated_since={}", server.now())).await, [""; 0]);
    }
}
