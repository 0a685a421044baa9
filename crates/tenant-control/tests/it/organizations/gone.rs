//! Deleting an organization, and what keeps it.

use tenant_control::features::organizations::OrganizationId;

use super::*;
use crate::asset_inventory::{add, remove, with as device_with};
use crate::support::search::Indexed;
use crate::tickets;

over_http! {
    async fn it_is_gone_for_good_and_its_names_are_free(server: Server) {
        let acme = server.tenant("acme").await;
        let body = json!({"name": "Globex", "slug": "globex", "external_id": "crm-1"});
        let made = make(&server, &acme, &body).await;
        server.advance(1_000);
        let answer = delete(&server, &acme, &made).await;
        assert_eq!((answer.is(204).body.len(), answer.header("etag")), (0, ""));
        server.get(one(&made)).cookie(&acme.admin).await.problem("not_found");
        delete(&server, &acme, &made).await.problem("not_found");
        put(&server, &acme, &made, &body).await.problem("not_found");
        for query in ["", "archived=true", "slug=globex", "updated_since=2000-01-01T00:00:00Z"] {
            assert_eq!(walk(&server, &acme, query).await, Vec::<Value>::new(), "{query}");
        }
        let told = server.events_of(&acme, "organization.deleted").await;
        assert_eq!((told.len(), &told[0]["data"]), (1, &made));
        let trail = trail(&server, &acme, &made).await;
        assert_eq!(trail[1]["action"], "organization.delete");
        assert_eq!(trail[1]["changes"]["slug"], json!({"from": "globex", "to": null}));
        let again = make(&server, &acme, &body).await;
        assert_ne!(again["id"], made["id"]);
    }

    async fn it_stays_while_tickets_are_of_it_done_ones_too(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, &json!({"name": "Globex"})).await;
        let ticket = tickets::make(&server, &acme, &json!({"organization_id": made["id"]})).await;
        for status in ["open", "resolved", "closed"] {
            tickets::changed(&server, &acme, &ticket, &json!({"status": status})).await;
            let problem = delete(&server, &acme, &made).await.problem("conflict");
            assert!(problem["detail"].as_str().unwrap().contains("tickets"), "{status}: {problem}");
        }
        assert_eq!(read(&server, &acme, &made).await, made);
        tickets::changed(&server, &acme, &ticket, &json!({"organization_id": null})).await;
        delete(&server, &acme, &made).await.is(204);
        assert_eq!(server.kinds_of(&acme, "organization.deleted").await.len(), 1);
    }

    async fn it_stays_while_devices_or_ingest_keys_are_of_it(server: Server) {
        let acme = server.tenant("acme").await;
        let (id, key) = server.bound_ingest_key(&acme, "globex").await;
        let made = json!({"id": id});
        let own: OrganizationId = id.parse().unwrap();
        let device = add(&server, &acme, device_with("web01", |full| full.device.organization_id = Some(own))).await;
        let said = async |expected: &str| {
            let problem = delete(&server, &acme, &made).await.problem("conflict");
            assert!(problem["detail"].as_str().unwrap().contains(expected), "{expected}: {problem}");
        };
        said("devices, ingest keys").await;
        server.revoke_ingest_key(&acme, &key).await;
        said("devices").await;
        // A tombstone keeps nobody.
        remove(&server, &acme, &device).await;
        delete(&server, &acme, &made).await.is(204);
    }

    async fn search_finds_it_by_its_name_as_long_as_it_is_there(server: Server) {
        let acme = server.tenant("acme").await;
        let indexed = Indexed::of(&server).await;
        let made = make(&server, &acme, &json!({"name": "Globex"})).await;
        indexed.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "globex").await, ["Globex"]);
        changed(&server, &acme, &made, &json!({"name": "Initech", "slug": "initech"})).await;
        indexed.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "initech").await, ["Initech"]);
        assert_eq!(server.titles(&acme.admin, "globex").await, Vec::<String>::new());
        delete(&server, &acme, &made).await.is(204);
        indexed.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "initech").await, Vec::<String>::new());
    }
}
