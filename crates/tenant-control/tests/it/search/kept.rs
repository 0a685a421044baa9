//! The index is like the store: what is written is found, what is gone is not, whatever happens to the index.

use kernel::args;
use kernel::store::{Purpose, Tx};
use serde_json::json;

use crate::asset_inventory::{add, with};
use crate::support::devices::{Agent, reported};
use crate::support::over_http;
use crate::support::search::Indexed;
use crate::tickets::{changed, make};

use super::company;

over_http! {
    async fn what_is_written_is_found_and_what_is_gone_is_not(server: Server) {
        let acme = server.tenant("acme").await;
        let index = Indexed::of(&server).await;
        let ticket = make(&server, &acme, &json!({"subject": "Coffee machine"})).await;
        index.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "coffee").await, ["Coffee machine"]);
        changed(&server, &acme, &ticket, &json!({"subject": "Tea machine"})).await;
        index.catch_up().await;
        assert!(server.titles(&acme.admin, "coffee").await.is_empty());
        assert_eq!(server.titles(&acme.admin, "tea").await, ["Tea machine"]);
        let id = add(&server, &acme, with("samovar", |_| {})).await;
        index.catch_up().await;
        assert_eq!(server.titles(&acme.admin, "samovar").await, ["samovar"]);
        server.delete_device(&acme, &id).await;
        index.catch_up().await;
        assert!(server.titles(&acme.admin, "samovar").await.is_empty());
    }

    async fn software_is_found_while_anybody_has_it(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let index = Indexed::of(&server).await;
        for name in ["web01", "web02"] {
            reported(&server, &key, &Agent::named(name).software(&[("LibreOffice", "7.4"), ("Curl", "8")]).fusion()).await;
        }
        tenant_control::features::devices::software::store::index_tenants(&server.app).await.expect("it is indexed");
        index.catch_up().await;
        let found = server.search(&acme.admin, "libreofice").await;
        assert_eq!((&found["data"][0]["title"], &found["data"][0]["subtitle"]), (&json!("LibreOffice"), &json!("on 2 devices")), "{found}");
        assert_eq!(found["data"][0]["id"], "libreoffice");
        for name in ["web01", "web02"] {
            reported(&server, &key, &Agent::named(name).software(&[("Curl", "8")]).fusion()).await;
        }
        tenant_control::features::devices::software::store::index_tenants(&server.app).await.expect("it is indexed");
        index.catch_up().await;
        assert!(server.titles(&acme.admin, "libreoffice").await.is_empty());
        assert_eq!(server.titles(&acme.admin, "curl").await, ["Curl"]);
    }

    async fn an_index_goes_on_where_it_was(server: Server) {
        let acme = company(&server).await;
        let index = Indexed::of(&server).await;
        let name = std::fs::read_to_string(index.folder.path().join("current")).expect("an index");
        let folder = index.stop();
        make(&server, &acme, &json!({"subject": "Written meanwhile"})).await;
        let index = Indexed::again(&server, folder).await;
        assert_eq!(server.titles(&acme.admin, "meanwhile").await, ["Written meanwhile"]);
        assert_eq!(server.titles(&acme.admin, "toner").await, ["Printer toner ordered"]);
        assert_eq!(std::fs::read_to_string(index.folder.path().join("current")).expect("an index"), name, "it is the same");
    }

    async fn an_index_that_is_damaged_gone_or_forgotten_is_built_anew(server: Server) {
        let acme = company(&server).await;
        let mut folder = Indexed::of(&server).await.stop();
        for harm in ["damage", "remove", "forget"] {
            let name = std::fs::read_to_string(folder.path().join("current")).expect("an index");
            match harm {
                "damage" => {
                    let files = std::fs::read_dir(folder.path().join(&name)).expect("files").map(|file| file.expect("a file").path());
                    let terms = files.filter(|path| path.extension().is_some_and(|end| end == "term")).collect::<Vec<_>>();
                    assert!(!terms.is_empty());
                    for path in terms {
                        let mut bytes = std::fs::read(&path).expect("bytes");
                        let middle = bytes.len() / 2;
                        bytes[middle] ^= 0xff;
                        std::fs::write(&path, bytes).expect("damaged");
                    }
                }
                "remove" => std::fs::remove_dir_all(folder.path().join(&name)).expect("removed"),
                _ => {
                    let system = server.app.store.system(Purpose::Cli);
                    let forget = async |tx: &mut Tx| tx.exec("DELETE FROM change_readers", args![]).await;
                    assert_eq!(system.write(forget).await.expect("forgotten"), 1);
                }
            }
            make(&server, &acme, &json!({"subject": format!("Written before {harm}")})).await;
            let index = Indexed::again(&server, folder).await;
            assert_ne!(std::fs::read_to_string(index.folder.path().join("current")).expect("an index"), name, "{harm}");
            assert_eq!(server.titles(&acme.admin, harm).await, [format!("Written before {harm}")]);
            assert_eq!(server.titles(&acme.admin, "toner").await, ["Printer toner ordered"], "{harm}");
            folder = index.stop();
        }
    }
}
