//! `updated_since`: changes in the order in which they were made, with tombstones of what is deleted.

use serde_json::{Value, json};
use tenant_control::features::devices::Type;

use super::{
    INVENTORY, add, add_all, change, chosen, hear, list, named, names, read, remove, software, text, walk, with,
};
use crate::support::over_http;
use crate::tickets::{organization, without};

const LONG_AGO: &str = "updated_since=2000-01-01T00:00:00Z";

over_http! {
    async fn changes_come_in_the_order_in_which_they_were_made(server: Server) {
        let acme = server.tenant("acme").await;
        let ids = add_all(&server, &acme, ["a", "b", "c", "d"].map(named).into()).await;
        assert_eq!(names(&server, &acme, LONG_AGO).await, ["a", "b", "c", "d"]);
        // All at one moment.
        for at in [2, 0, 2, 3] {
            change(&server, &acme, &ids[at], move |full| full.device.model = Some(format!("{:?}{at}", full.device.model))).await;
        }
        assert_eq!(names(&server, &acme, LONG_AGO).await, ["b", "a", "c", "d"]);
        let moment = server.now();
        server.advance(1);
        change(&server, &acme, &ids[1], |full| full.device.tags = vec!["x".to_owned()]).await;
        assert_eq!(names(&server, &acme, LONG_AGO).await, ["a", "c", "d", "b"]);
        for (since, found) in [(moment, "a c d b"), (moment.plus_ms(1), "b"), (moment.plus_ms(2), "")] {
            assert_eq!(names(&server, &acme, &format!("updated_since={since}")).await.join(" "), found, "since {since}, included");
        }
        // What is no change does not come again.
        server.advance(1_000);
        change(&server, &acme, &ids[0], |_| {}).await;
        hear(&server, &acme, &ids[2], server.now()).await;
        assert_eq!(names(&server, &acme, &format!("updated_since={}", moment.plus_ms(2))).await, Vec::<String>::new());
        assert_eq!(names(&server, &acme, "").await, ["d", "c", "b", "a"], "newest first all the same");
    }

    async fn what_is_deleted_comes_as_a_tombstone(server: Server) {
        let acme = server.tenant("acme").await;
        let place = organization(&server, &acme, "initech").await;
        let of_place = place.clone();
        let make = move |name: &str| with(name, |full| {
            full.device.organization_id = Some(of_place.parse().unwrap());
            full.device.tags = vec!["t".to_owned()];
            full.parts.software = vec![software("bash", "5")];
            full.parts.nics = chosen::full("").parts.nics;
        });
        let ids = add_all(&server, &acme, vec![make("stays"), make("goes")]).await;
        let before = list(&server, &acme, "q=goes").await.remove(0);
        server.advance(1_000);
        remove(&server, &acme, &ids[1]).await;
        let at = server.now().to_string();
        let stone = list(&server, &acme, LONG_AGO).await.pop().unwrap();
        assert_eq!(text(&stone, "id"), ids[1]);
        assert_eq!([text(&stone, "deleted_at"), text(&stone, "updated_at")], [&at, &at]);
        assert_eq!(stone["version"], json!(2));
        let moved = ["deleted_at", "updated_at", "version"];
        assert_eq!(without(&stone, &moved), without(&before, &moved), "it is what it was");
        // Whoever follows some of the devices is told of those.
        for query in [&format!("organization_id={place}"), "tag=t", "type=server", "q=goes", "software=bash", "status=online&platform=linux"] {
            let found = names(&server, &acme, &format!("{LONG_AGO}&{query}")).await;
            assert_eq!(found.last().map(String::as_str), Some("goes"), "{query}");
        }
        for query in ["organization_id=none", "type=laptop", "q=stays", "tag=u"] {
            let found = names(&server, &acme, &format!("{LONG_AGO}&{query}")).await;
            assert!(!found.contains(&"goes".to_owned()), "{query}");
        }
        let lists = list(&server, &acme, &format!("{LONG_AGO}&include=nics,software&q=goes")).await.remove(0);
        assert_eq!((&lists["nics"], &lists["software"]), (&json!([]), &json!([])), "nothing is left on it");
        // Nobody else is.
        for query in ["", &format!("organization_id={place}"), "tag=t", "type=server", "q=s", "software=bash", "status=online"] {
            assert_eq!(names(&server, &acme, query).await, ["stays"], "{query}");
        }
        // One of that name is another.
        server.advance(1_000);
        let again = add(&server, &acme, named("goes")).await;
        assert_ne!(again, ids[1]);
        assert_eq!(names(&server, &acme, LONG_AGO).await, ["stays", "goes", "goes"]);
        let new = read(&server, &acme, &again).await;
        assert_eq!((&new["version"], &new["deleted_at"]), (&json!(1), &Value::Null));
    }

    async fn many_changes_of_one_moment_are_followed_at_any_size_of_page(server: Server) {
        let acme = server.tenant("acme").await;
        let ids = add_all(&server, &acme, (0..20).map(|n| named(&format!("h{n}"))).collect()).await;
        for (n, id) in ids.iter().enumerate().step_by(2) {
            change(&server, &acme, id, move |full| full.device.model = Some(format!("m{n}"))).await;
        }
        for id in ids.iter().step_by(5) {
            remove(&server, &acme, id).await;
        }
        let (all, _) = walk(&server, &acme, &format!("{LONG_AGO}&limit=200")).await;
        assert_eq!(all.len(), 20);
        assert!(all.iter().all(|row| row["updated_at"] == all[0]["updated_at"]), "all at one moment");
        let order: Vec<usize> = all.iter().map(|row| ids.iter().position(|id| id == text(row, "id")).unwrap()).collect();
        assert_eq!(order, [1, 3, 7, 9, 11, 13, 17, 19, 2, 4, 6, 8, 12, 14, 16, 18, 0, 5, 10, 15]);
        for limit in 1..=7 {
            for filter in ["", "&organization_id=none", "&type=server", "&q=h"] {
                let (rows, pages) = walk(&server, &acme, &format!("{LONG_AGO}&limit={limit}{filter}")).await;
                assert_eq!(rows, all, "{limit}{filter}");
                assert!(pages.iter().all(|page| *page <= limit));
            }
        }
    }

    async fn what_changes_while_it_is_followed_comes_again_further_on(server: Server) {
        let acme = server.tenant("acme").await;
        let ids = add_all(&server, &acme, (0..9).map(|n| named(&format!("h{n}"))).collect()).await;
        let page = async |more: &str| {
            let target = format!("{INVENTORY}?{LONG_AGO}&limit=2{more}");
            server.get(target).cookie(&acme.admin).await.ok(200)
        };
        let (mut seen, mut more) = (Vec::new(), String::new());
        for turn in 0.. {
            let page = page(&more).await;
            seen.extend(page["data"].as_array().unwrap().iter().map(|row| (text(row, "id").to_owned(), row["version"].as_i64().unwrap())));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            more = format!("&cursor={cursor}");
            match turn {
                // One that was seen, one that was not, one that goes, and one that comes.
                0 => change(&server, &acme, &ids[0], |full| full.device.r#type = Type::Laptop).await,
                1 => change(&server, &acme, &ids[8], |full| full.device.r#type = Type::Laptop).await,
                2 => remove(&server, &acme, &ids[1]).await,
                3 => drop(add(&server, &acme, named("new")).await),
                _ => {}
            }
        }
        let times = |at: usize| seen.iter().filter(|(id, _)| *id == ids[at]).map(|(_, version)| *version).collect::<Vec<_>>();
        assert_eq!((times(0), times(1), times(8)), (vec![1, 2], vec![1, 2], vec![2]));
        for at in 2..8 {
            assert_eq!(times(at), [1], "{at}: once, since it has not changed");
        }
        assert_eq!(seen.len(), 12);
    }
}
