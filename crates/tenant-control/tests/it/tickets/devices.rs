//! The devices that a ticket is about.

use super::*;
use crate::asset_inventory::{add, add_all, named, remove};

over_http! {
    async fn a_ticket_names_devices_that_are_there(server: Server) {
        let acme = server.tenant("acme").await;
        let ids = add_all(&server, &acme, vec![named("web-1"), named("web-2"), named("web-3")]).await;
        let ticket = make(&server, &acme, &json!({"device_ids": [ids[1], ids[0], ids[1]]})).await;
        assert_eq!(ticket["device_ids"], json!([ids[1], ids[0]]), "each once, in the order that was given");
        let now = changed(&server, &acme, &ticket, &json!({"device_ids": [ids[2], ids[0]]})).await;
        assert_eq!(now["device_ids"], json!([ids[2], ids[0]]));
        let whole = read(&server, &acme, &ticket).await;
        let change = json!({"device_ids": {"from": [ids[1], ids[0]], "to": [ids[2], ids[0]]}});
        assert_eq!(whole["history"].as_array().unwrap().last().unwrap()["changes"], change);
        let told = events(&server, &acme).await;
        assert_eq!((&told[1]["data"]["changes"], &told[1]["data"]["device_ids"]), (&change, &now["device_ids"]));
        make(&server, &acme, &json!({"device_ids": [ids[1]]})).await;
        for (query, found) in [
            (format!("device_id={}", ids[2]), vec![1]),
            (format!("device_id={}", ids[1]), vec![2]),
            (format!("device_id={},{}", ids[0], ids[1]), vec![2, 1]),
            (format!("device_id={NOTHING},{}", ids[0]), vec![1]),
            (format!("device_id={}&status=open", ids[0]), vec![]),
        ] {
            assert_eq!(numbers(&server, &acme, &query).await, found, "{query}");
        }
        assert_eq!(changed(&server, &acme, &ticket, &json!({"device_ids": null})).await["device_ids"], json!([]));
    }

    async fn one_that_is_not_there_is_refused_where_it_stands(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let (own, gone) = (add(&server, &acme, named("own")).await, add(&server, &acme, named("gone")).await);
        let foreign = add(&server, &globex, named("foreign")).await;
        remove(&server, &acme, &gone).await;
        let ticket = make(&server, &acme, &json!({"device_ids": [own]})).await;
        let body = json!({"subject": "A", "device_ids": [own, gone, foreign, NOTHING, own]});
        let pointers = ["/device_ids/1", "/device_ids/2", "/device_ids/3"];
        let (posted, patched) = (post(&server, &acme, &body).await, patch(&server, &acme, &ticket, &body).await);
        assert_eq!((posted.pointers(), patched.pointers()), (pointers.map(str::to_owned).to_vec(), pointers.map(str::to_owned).to_vec()));
        // Which of them is why is not told.
        let problem = posted.json();
        let said: Vec<&Value> = problem["errors"].as_array().unwrap().iter().map(|error| &error["detail"]).collect();
        assert!(said.iter().all(|detail| *detail == said[0]), "{said:?}");
        assert_eq!(without(&read(&server, &acme, &ticket).await, &["comments", "history"]), ticket);
    }

    async fn a_ticket_keeps_a_device_that_is_deleted(server: Server) {
        let acme = server.tenant("acme").await;
        let ids = add_all(&server, &acme, vec![named("stays"), named("goes")]).await;
        let ticket = make(&server, &acme, &json!({"device_ids": ids})).await;
        remove(&server, &acme, &ids[1]).await;
        assert_eq!(read(&server, &acme, &ticket).await["device_ids"], json!(ids));
        let now = changed(&server, &acme, &ticket, &json!({"team": "Night"})).await;
        assert_eq!(now["device_ids"], json!(ids), "what is not said stays");
        assert_eq!(numbers(&server, &acme, &format!("device_id={}", ids[1])).await, [1]);
        let again = patch(&server, &acme, &ticket, &json!({"device_ids": ids})).await;
        assert_eq!(again.pointers(), ["/device_ids/1"], "but it cannot be said again");
        changed(&server, &acme, &ticket, &json!({"device_ids": [ids[0]]})).await;
        assert_eq!(numbers(&server, &acme, &format!("device_id={}", ids[1])).await, Vec::<i64>::new());
    }
}
