//! All comments and all changes of a ticket, as lists of their own.

use kernel::args;
use kernel::base::Actor;

use super::*;

/// More than are shown with a ticket, written by direct SQL: numbers as bodies, and as teams.
const MANY: i64 = 1_205;
const COMMENTS_SQL: &str = "WITH RECURSIVE n (i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $3)
    INSERT INTO ticket_comments (tenant_id, number, ordinal, id, public, author_type, author_name, created_at, size_bytes, body)
    SELECT $1, $2, i, 'cmt_01jd8z6v2m' || substr(CAST(10000000000000000 + i AS TEXT), 2), TRUE, 'system', 'x', i, 10,
        CAST(i AS TEXT) FROM n";
const CHANGES_SQL: &str =
    "WITH RECURSIVE n (i) AS (SELECT CAST(2 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $3)
    INSERT INTO ticket_changes (tenant_id, number, version, at, actor_type, actor_name, size_bytes, changes)
    SELECT $1, $2, i, i, 'system', 'x', 10, '{\"team\":{\"from\":null,\"to\":\"' || CAST(i AS TEXT) || '\"}}' FROM n";

async fn with_many(server: &Server, tenancy: &Tenancy) -> Value {
    let ticket = make(server, tenancy, &json!({})).await;
    let number = ticket["number"].as_i64().unwrap();
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let load = db.write(async move |tx| {
        tx.exec(COMMENTS_SQL, args![number, MANY]).await?;
        tx.exec(CHANGES_SQL, args![number, MANY]).await
    });
    load.await.expect("it is loaded");
    ticket
}

/// Every row of a list, by its cursors and by its links alike.
async fn all(server: &Server, tenancy: &Tenancy, query: &str) -> (Vec<Value>, usize) {
    let (mut rows, mut pages, mut target) = (Vec::new(), 0, format!("{TICKETS}?{query}"));
    loop {
        let answer = server.get(&target).cookie(&tenancy.admin).await;
        let page = answer.ok(200);
        rows.extend(page["data"].as_array().unwrap().iter().cloned());
        pages += 1;
        assert_eq!(page["has_more"].as_bool().unwrap(), page["next_cursor"].is_string());
        let Some(cursor) = page["next_cursor"].as_str() else { return (rows, pages) };
        let link = answer.header("link");
        assert!(link.contains(&format!("cursor={cursor}>; rel=\"next\"")), "{link}");
        target = link[1..].split('>').next().unwrap().strip_prefix(server.base_url()).unwrap().to_owned();
    }
}

over_http! {
    async fn all_comments_and_all_changes_can_be_read_newest_first(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = with_many(&server, &acme).await;
        let shown = read(&server, &acme, &ticket).await;
        assert_eq!(shown["comments"].as_array().unwrap().len(), 1_000);
        for limit in [7, 50, 200] {
            let query = format!("id={}&view=comments&limit={limit}", id_of(&ticket));
            let (comments, pages) = all(&server, &acme, &query).await;
            let bodies: Vec<i64> = comments.iter().map(|one| one["body"].as_str().unwrap().parse().unwrap()).collect();
            assert_eq!(bodies, (1..=MANY).rev().collect::<Vec<_>>());
            assert_eq!(pages, 1_205_usize.div_ceil(limit));
        }
        let newest: Vec<Value> = shown["comments"].as_array().unwrap().iter().rev().take(50).cloned().collect();
        assert_eq!(list(&server, &acme, &format!("id={}&view=comments", id_of(&ticket))).await, newest, "50 unless said");
        let (changes, _) = all(&server, &acme, &format!("id={}&view=history&limit=200", id_of(&ticket))).await;
        assert_eq!(changes.len(), 1_205);
        assert_eq!(changes[0], *shown["history"].as_array().unwrap().last().unwrap());
        assert_eq!(changes[1_204]["changes"], json!({"status": {"from": null, "to": "new"}}), "the creation comes last");
    }

    async fn a_page_of_long_comments_ends_before_its_limit(server: Server) {
        let acme = server.tenant("acme").await;
        let ticket = make(&server, &acme, &json!({})).await;
        for n in 0..20 {
            // Of each byte JSON makes six.
            let body = format!("{n}{}", "\u{1}".repeat(30 * 1024));
            changed(&server, &acme, &ticket, &json!({"comment": {"body": body}})).await;
        }
        let query = format!("id={}&view=comments&limit=200", id_of(&ticket));
        let first = server.get(format!("{TICKETS}?{query}")).cookie(&acme.admin).await;
        assert!((500_000..1_100_000).contains(&first.body.len()), "{}", first.body.len());
        assert_eq!(first.ok(200)["data"].as_array().unwrap().len(), 5);
        let (comments, pages) = all(&server, &acme, &query).await;
        assert_eq!((comments.len(), pages), (20, 4));
        assert!(comments[19]["body"].as_str().unwrap().starts_with("0\u{1}"));
    }

    async fn a_view_is_of_one_ticket_and_takes_nothing_else(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let ticket = with_many(&server, &acme).await;
        let other = make(&server, &acme, &json!({})).await;
        let id = id_of(&ticket);
        for bad in [
            "view=comments".to_owned(),
            format!("id={id}&view="),
            format!("id={id}&view=Comments"),
            format!("id={id}&view=comments,history"),
            format!("id={id}&view=comments&status=open"),
            format!("id={id}&view=history&sort=created_at"),
            format!("id={id}&view=comments&limit=0"),
            format!("id={id}&cursor=x"),
        ] {
            server.get(format!("{TICKETS}?{bad}")).cookie(&acme.admin).await.problem("invalid_parameter");
        }
        let page = server.get(format!("{TICKETS}?id={id}&view=comments&limit=1")).cookie(&acme.admin).await.ok(200);
        let cursor = page["next_cursor"].as_str().unwrap();
        for bad in [
            format!("id={id}&view=history&cursor={cursor}"),
            format!("id={}&view=comments&cursor={cursor}", id_of(&other)),
            format!("cursor={cursor}"),
            format!("id={id}&view=comments&cursor=x{cursor}"),
        ] {
            server.get(format!("{TICKETS}?{bad}")).cookie(&acme.admin).await.problem("invalid_cursor");
        }
        for view in ["comments", "history"] {
            for (unknown, tenancy) in [(id, &globex), ("tkt_01jd8z6v2mfkpb7h3q9xw5t4ra", &acme), ("x", &acme)] {
                let target = format!("{TICKETS}?id={unknown}&view={view}");
                server.get(target).cookie(&tenancy.admin).await.problem("not_found");
            }
        }
        assert_eq!(list(&server, &acme, &format!("id={}&view=comments", id_of(&other))).await, Vec::<Value>::new());
    }
}
