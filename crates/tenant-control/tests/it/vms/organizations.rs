//! Whose a machine is: by the order, or by a tag that names an organization by its slug.

use super::*;
use crate::organizations::{self, ORGANIZATIONS};
use crate::tickets;

/// The tag as each cloud can write it: a label of Hetzner has no colon.
fn tag(stub: &CloudStub, slug: &str) -> Value {
    if stub.kind() == "hetzner" {
        json!({"tenant-control/organization": slug})
    } else {
        json!([format!("tenant-control:organization:{slug}")])
    }
}

over_http! {
    async fn a_tag_names_the_organization_in_every_cloud(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (globex, initech) = (tickets::organization(&server, &acme, "globex").await, tickets::organization(&server, &acme, "initech").await);
            let id = stub.add(stub.kind(), "web-1");
            stub.change(id, |machine| machine.tags = tag(stub, "globex"));
            let provider = server.connect(&acme, stub, stub.kind()).await;
            let vm = server.list_vms(&acme, "").await.remove(0);
            assert_eq!(vm["organization_id"], globex.as_str(), "{vm:#}");
            assert_eq!(vm["tags"]["tenant-control:organization"], "globex", "it is shown under one name everywhere: {vm:#}");
            for (slug, expected) in [("initech", json!(initech)), ("nobody", json!(null)), ("globex", json!(globex))] {
                stub.change(id, |machine| machine.tags = tag(stub, slug));
                server.sync(&acme, &provider).await;
                assert_eq!(server.read_vm(&acme, &vm).await["organization_id"], expected, "{slug}");
            }
            // One that is there later than the tag is found by the next sync.
            stub.change(id, |machine| machine.tags = tag(stub, "umbrella"));
            server.sync(&acme, &provider).await;
            let umbrella = tickets::organization(&server, &acme, "umbrella").await;
            server.sync(&acme, &provider).await;
            assert_eq!(server.read_vm(&acme, &vm).await["organization_id"], umbrella.as_str());
        }
    }

    async fn an_archived_organization_gets_no_machines_and_keeps_those_that_it_has(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let body = json!({"name": "Globex", "slug": "globex"});
            let globex = organizations::make(&server, &acme, &body).await;
            let old = stub.add("acme", "old");
            stub.change(old, |machine| machine.tags = tag(stub, "globex"));
            let provider = server.connect(&acme, stub, "acme").await;
            let before = server.list_vms(&acme, "").await.remove(0);
            assert_eq!(before["organization_id"], globex["id"]);
            let set_archived = async |archived: bool| {
                let body = with(&body, &json!({"archived": archived}));
                organizations::put(&server, &acme, &globex, &body).await.is(200);
            };
            set_archived(true).await;
            let new = stub.add("acme", "new");
            stub.change(new, |machine| machine.tags = tag(stub, "globex"));
            server.sync(&acme, &provider).await;
            assert_eq!(server.read_vm(&acme, &before).await, before, "what refers to it stays");
            assert_eq!(server.list_vms(&acme, "q=new").await[0]["organization_id"], json!(null));
            // What has left it does not come back while it is archived.
            for (tags, expected) in [(json!(null), json!(null)), (tag(stub, "globex"), json!(null))] {
                stub.change(old, |machine| machine.tags = tags);
                server.sync(&acme, &provider).await;
                assert_eq!(server.read_vm(&acme, &before).await["organization_id"], expected);
            }
            set_archived(false).await;
            server.sync(&acme, &provider).await;
            let of_globex = format!("organization_id={}", id_of(&globex));
            assert_eq!(server.vm_names(&acme, &of_globex).await, ["new", "old"]);
        }
    }

    async fn what_is_no_slug_names_nobody(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            tickets::organization(&server, &acme, "globex").await;
            let slugs = ["GLOBEX", "globex ", "", "globex\u{0}", "glob\u{200b}ex", "%", &"globex".repeat(1_000)];
            for (nth, slug) in slugs.iter().enumerate() {
                let id = stub.add("acme", &format!("m-{nth}"));
                stub.change(id, |machine| machine.tags = tag(stub, slug));
            }
            server.connect(&acme, stub, "acme").await;
            let vms = server.list_vms(&acme, "").await;
            assert_eq!(vms.len(), slugs.len());
            assert!(vms.iter().all(|vm| vm["organization_id"].is_null()), "{vms:#?}");
        }
    }

    async fn an_order_for_an_organization_is_carried_out_by_every_cloud(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let globex = tickets::organization(&server, &acme, "globex").await;
            let provider = server.connect(&acme, stub, stub.kind()).await;
            let order = with(&order_body(stub, &provider), &json!({"organization_id": globex}));
            let vm = server.post_order(&acme, &order).await.ok(202);
            assert_eq!(vm["organization_id"], globex.as_str());
            server.cloud_work_for(MINUTE_MS).await;
            let made = assert_made_once(&server, &acme, stub, &vm, "for an organization").await;
            assert_eq!(made["organization_id"], globex.as_str());
            // Another provider of the account sees by the tag whose it is.
            let other = server.connect(&acme, stub, stub.kind()).await;
            let seen = server.list_vms(&acme, &format!("provider_id={}", id_of(&other))).await.remove(0);
            assert_eq!((&seen["organization_id"], &seen["managed"]), (&json!(globex), &json!(false)), "{seen:#}");
        }
    }

    async fn the_organization_of_an_order_stays_whatever_a_tag_says(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.digitalocean;
        let globex = tickets::organization(&server, &acme, "globex").await;
        tickets::organization(&server, &acme, "initech").await;
        let provider = server.connect(&acme, stub, "acme").await;
        let order = with(&order_body(stub, &provider), &json!({"organization_id": globex}));
        let vm = server.post_order(&acme, &order).await.ok(202);
        server.cloud_work_for(MINUTE_MS).await;
        stub.change(stub.machines()[0].id, |machine| machine.tags = tag(stub, "initech"));
        server.sync(&acme, &provider).await;
        assert_eq!(server.read_vm(&acme, &vm).await["organization_id"], globex.as_str());
    }

    async fn an_organization_with_machines_is_not_deleted(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.digitalocean;
        let globex = organizations::make(&server, &acme, &json!({"name": "Globex", "slug": "globex"})).await;
        let id = stub.add("acme", "web-1");
        stub.change(id, |machine| machine.tags = tag(stub, "globex"));
        let provider = server.connect(&acme, stub, "acme").await;
        let delete = || server.delete(format!("{ORGANIZATIONS}?id={}", id_of(&globex))).cookie(&acme.admin);
        let problem = delete().await.problem("conflict");
        assert!(problem["detail"].as_str().unwrap().contains("machine"), "{problem}");
        server.delete(one_provider(&provider)).cookie(&acme.admin).await.is(204);
        delete().await.is(204);
    }
}
