//! What refers to an organization that is archived stays, and nothing new does.

use super::*;
use crate::inventory::imports::import_csv;
use crate::support::devices::{Agent, only_device, reported};
use crate::support::workflows::{manual, step};
use crate::tickets;

async fn archived(server: &Server, tenancy: &Tenancy, name: &str) -> Value {
    make(server, tenancy, &json!({"name": name, "archived": true})).await
}

over_http! {
    async fn a_ticket_keeps_one_that_is_archived_and_no_other_gets_it(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, &json!({"name": "Globex"})).await;
        let ticket = tickets::make(&server, &acme, &json!({"organization_id": made["id"]})).await;
        let other = tickets::make(&server, &acme, &json!({})).await;
        changed(&server, &acme, &made, &json!({"name": "Globex", "archived": true})).await;
        let of = json!({"subject": "A", "organization_id": made["id"]});
        assert_eq!(tickets::post(&server, &acme, &of).await.pointers(), ["/organization_id"]);
        assert_eq!(tickets::patch(&server, &acme, &other, &of).await.pointers(), ["/organization_id"]);
        let kept = tickets::changed(&server, &acme, &ticket, &json!({"team": "Night"})).await;
        assert_eq!(kept["organization_id"], made["id"], "what is not said stays");
        let said = tickets::changed(&server, &acme, &ticket, &of).await;
        assert_eq!(said["organization_id"], made["id"], "it is no new reference");
        let listed = tickets::numbers(&server, &acme, &format!("organization_id={}", id_of(&made))).await;
        assert_eq!(listed, [1], "it is still found by it");
        changed(&server, &acme, &made, &json!({"name": "Globex"})).await;
        tickets::changed(&server, &acme, &other, &of).await;
    }

    async fn a_tag_that_names_an_archived_one_names_none(server: Server) {
        let acme = server.tenant("acme").await;
        let made = archived(&server, &acme, "Globex").await;
        let key = server.ingest_key(&acme).await;
        let of = async || only_device(&server, &acme.admin).await["organization_id"].clone();
        for tag in ["globex", "Globex"] {
            reported(&server, &key, &Agent::named("web01").tag(tag).fusion()).await;
            assert_eq!(of().await, Value::Null, "{tag}");
        }
        changed(&server, &acme, &made, &json!({"name": "Globex"})).await;
        reported(&server, &key, &Agent::named("web01").tag("globex").fusion()).await;
        assert_eq!(of().await, made["id"]);
        // What is there keeps it.
        changed(&server, &acme, &made, &json!({"name": "Globex", "archived": true})).await;
        reported(&server, &key, &Agent::named("web01").tag("globex").software(&[("bash", "5")]).fusion()).await;
        assert_eq!(of().await, made["id"]);
    }

    async fn a_device_stays_with_an_archived_one_whatever_others_are_called(server: Server) {
        let acme = server.tenant("acme").await;
        let first = make(&server, &acme, &json!({"name": "Globex", "slug": "globex"})).await;
        let key = server.ingest_key(&acme).await;
        let report = |version: &str| Agent::named("web01").tag("globex").software(&[("bash", version)]).fusion();
        reported(&server, &key, &report("1")).await;
        changed(&server, &acme, &first, &json!({"name": "Globex", "archived": true})).await;
        make(&server, &acme, &json!({"name": "globex", "slug": "other"})).await;
        reported(&server, &key, &report("2")).await;
        assert_eq!(only_device(&server, &acme.admin).await["organization_id"], first["id"]);
    }

    async fn what_was_exported_of_an_archived_one_can_be_imported(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, &json!({"name": "Globex"})).await;
        let lines = |name: &str| format!("hostname,organization\n{name},{}\n", id_of(&made));
        assert_eq!(import_csv(&server, &acme, &lines("web01")).await.created, 1);
        changed(&server, &acme, &made, &json!({"name": "Globex", "archived": true})).await;
        let again = import_csv(&server, &acme, &lines("web01")).await;
        assert_eq!((again.unchanged, again.errors.len()), (1, 0), "{:?}", again.errors);
        let new = import_csv(&server, &acme, &lines("web02")).await;
        assert_eq!(new.errors.len(), 1);
        assert_eq!(new.errors[0].detail, "is archived: no device can be given to it");
    }

    async fn a_workflow_keeps_what_it_names_and_keeps_it_from_going(server: Server) {
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, &json!({"name": "Globex"})).await;
        let with = json!({"subject": "Weekly look", "organization_id": made["id"]});
        let definition = manual([step("look", "ticket.create", with)]);
        let workflow = server.workflow(&acme, &definition).await;
        let problem = delete(&server, &acme, &made).await.problem("conflict");
        assert!(problem["detail"].as_str().unwrap().contains("workflows"), "{problem}");
        changed(&server, &acme, &made, &json!({"name": "Globex", "archived": true})).await;
        server.change_workflow(&acme, &workflow, &json!({"name": "Other"})).await;
        assert_eq!(server.create_workflow(&acme, &definition).await.pointers(), ["/steps/0/with/organization_id"]);
        server.delete_workflow(&acme, &workflow).await;
        delete(&server, &acme, &made).await.is(204);
    }

    async fn of_two_with_one_name_the_one_that_is_not_archived_is_meant(server: Server) {
        let acme = server.tenant("acme").await;
        archived(&server, &acme, "Twice").await;
        let made = make(&server, &acme, &json!({"name": "Twice", "slug": "other"})).await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &Agent::named("web01").tag("Twice").fusion()).await;
        assert_eq!(only_device(&server, &acme.admin).await["organization_id"], made["id"]);
    }
}
