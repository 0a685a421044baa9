//! `device.tag`: what workflows do with devices.

use serde_json::{Value, json};

use crate::asset_inventory::{self, add, named, remove};
use crate::support::people::KEYS;
use crate::support::workflows::{Step, WORKFLOWS, assert_ended, manual, on_event, open, step, step_of, wait};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::without;
use crate::workflows::faults;

fn tag(device: &str, add: &[&str], remove: &[&str]) -> Step {
    step("tag", "device.tag", json!({"device_id": device, "add": add, "remove": remove}))
}

/// The device as it is now, without its history.
async fn device(server: &Server, tenancy: &Tenancy, id: &str) -> Value {
    without(&asset_inventory::read(server, tenancy, id).await, &["history"])
}

async fn run(server: &Server, tenancy: &Tenancy, steps: Step) -> Value {
    server.run(tenancy, &manual([steps])).await
}

over_http! {
    async fn tags_are_added_and_taken_away(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, named("web-1")).await;
        let first = run(&server, &acme, tag(&id, &["new", "ü b"], &[])).await;
        assert_ended(&first, "succeeded: tag succeeded");
        let now = device(&server, &acme, &id).await;
        assert_eq!((&now["tags"], &now["version"]), (&json!(["new", "ü b"]), &json!(2)));
        assert_eq!(step_of(&first, "tag")["output"], now, "the output is the device");
        let second = run(&server, &acme, tag(&id, &["done", "ü b", "done"], &["new", "missing"])).await;
        assert_ended(&second, "succeeded: tag succeeded");
        let whole = asset_inventory::read(&server, &acme, &id).await;
        assert_eq!(whole["tags"], json!(["ü b", "done"]));
        let last = whole["history"].as_array().unwrap().last().unwrap();
        assert_eq!(last["changes"], json!({"tags": {"from": ["new", "ü b"], "to": ["ü b", "done"]}}));
        assert_eq!(last["actor"], json!({"type": "workflow", "id": second["workflow_id"], "name": second["workflow_name"]}));
        assert_eq!(asset_inventory::names(&server, &acme, "tag=done").await, ["web-1"]);
        assert_eq!(asset_inventory::names(&server, &acme, "tag=new").await, Vec::<String>::new());
        let told = server.events_of(&acme, "device.updated").await;
        assert_eq!((told.len(), &told[1]["data"]["changes"]), (2, &last["changes"]));
        // What changes nothing is not told.
        let third = run(&server, &acme, tag(&id, &["done"], &["new"])).await;
        assert_ended(&third, "succeeded: tag succeeded");
        assert_eq!(asset_inventory::read(&server, &acme, &id).await, whole);
        assert_eq!(server.events_of(&acme, "device.").await.len(), 3);
    }

    async fn an_event_of_a_device_can_have_it_tagged(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let with = json!({"device_id": "${{ event.data.id }}", "add": ["${{ event.data.type }}"]});
        let workflow = server.workflow(&acme, &on_event(&["device.created"], [step("tag", "device.tag", with)])).await;
        let id = add(&server, &acme, named("web-1")).await;
        server.work().await;
        let runs = server.runs_of(&acme, &workflow).await;
        assert_eq!(runs.len(), 1, "{runs:#?}");
        assert_ended(&server.read_run(&acme, &runs[0]).await, "succeeded: tag succeeded");
        assert_eq!(device(&server, &acme, &id).await["tags"], json!(["server"]));
    }

    async fn a_device_that_is_not_there_fails_the_step(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let (gone, foreign) = (add(&server, &acme, named("gone")).await, add(&server, &globex, named("theirs")).await);
        remove(&server, &acme, &gone).await;
        for id in [&gone, &foreign, "dev_01jd8z6v2mfkpb7h3q9xw5t4ra"] {
            let run = run(&server, &acme, tag(&format!("${{{{ '{id}' }}}}"), &["mine"], &[])).await;
            assert_ended(&run, "failed: tag failed");
            assert_eq!(step_of(&run, "tag")["error"]["code"], "not_found", "{id}");
        }
        assert_eq!(device(&server, &globex, &foreign).await["tags"], json!([]));
    }

    async fn a_device_has_so_many_tags_and_no_more(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, named("web-1")).await;
        let tags: Vec<String> = (0..50).map(|n| format!("t{n}")).collect();
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        assert_ended(&run(&server, &acme, tag(&id, &tags, &[])).await, "succeeded: tag succeeded");
        let more = run(&server, &acme, tag(&id, &["one more"], &[])).await;
        assert_ended(&more, "failed: tag failed");
        assert_eq!(step_of(&more, "tag")["error"]["code"], "invalid_fields");
        assert_ended(&run(&server, &acme, tag(&id, &["one more"], &["t0"])).await, "succeeded: tag succeeded");
        assert_eq!(device(&server, &acme, &id).await["tags"].as_array().unwrap().len(), 50);
    }

    async fn what_is_wrong_with_the_step_is_told_when_it_is_saved(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let known = "dev_01jd8z6v2mfkpb7h3q9xw5t4ra";
        for (with, pointers) in [
            (json!({}), vec!["add", "device_id"]),
            (json!({"device_id": known}), vec!["add"]),
            (json!({"device_id": known, "add": [], "remove": []}), vec!["add"]),
            (json!({"device_id": 1, "add": ["a"]}), vec!["device_id"]),
            (json!({"device_id": known, "add": "a"}), vec!["add"]),
            (json!({"device_id": known, "add": ["", "a,b", 1, "x".repeat(201)]}), vec!["add/0", "add/1", "add/2", "add/3"]),
            (json!({"device_id": known, "remove": ["a,b"]}), vec!["remove/0"]),
            (json!({"device_id": known, "add": vec!["a"; 51]}), vec!["add"]),
            (json!({"device_id": known, "add": ["a"], "tags": ["b"]}), vec!["tags"]),
        ] {
            let answer = server.create_workflow(&acme, &manual([step("tag", "device.tag", with.clone())])).await;
            let mut found: Vec<String> = faults(&answer).into_iter().map(|(pointer, _)| pointer).collect();
            found.sort_unstable();
            let pointers: Vec<String> = pointers.iter().map(|at| format!("/steps/0/with/{at}")).collect();
            assert_eq!(found, pointers, "{with}");
        }
    }

    async fn who_saves_it_needs_to_read_the_inventory_when_it_acts_as_well(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, named("web-1")).await;
        let mut body = manual([wait("pause", 60), tag(&id, &["a"], &[]).needs(&["pause"])]);
        body["action"] = json!("create");
        let bare = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let refused = server.post(WORKFLOWS).key(&bare.plain).json(&body).await;
        assert_eq!(refused.problem("insufficient_scope")["required_scope"], "inventory:read");
        let saver = server.key(&acme, &["workflows:*", "inventory:read"]).await;
        let workflow = server.post(WORKFLOWS).key(&saver.plain).json(&body).await.ok(201);
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        // What is lost meanwhile is lost.
        let less = json!({"name": "Less", "scopes": ["workflows:*"]});
        server.put(format!("{KEYS}?id={}", saver.id)).cookie(&acme.admin).json(&less).await.is(200);
        server.work_for(60_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: pause succeeded, tag failed");
        assert_eq!(step_of(&run, "tag")["error"]["code"], "insufficient_scope");
        assert_eq!(device(&server, &acme, &id).await["tags"], json!([]));

    }

    async fn a_dry_run_tags_nothing(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, named("web-1")).await;
        let before = asset_inventory::read(&server, &acme, &id).await;
        let workflow = server.workflow(&acme, &manual([tag(&id, &["a"], &[])])).await;
        let run = server.post_run(&acme, &workflow, &json!({"dry_run": true})).await.ok(202);
        server.work().await;
        let run = server.read_run(&acme, &run).await;
        assert_eq!((&run["status"], &run["dry_run"]), (&json!("succeeded"), &json!(true)));
        assert_eq!(asset_inventory::read(&server, &acme, &id).await, before);
    }
}
