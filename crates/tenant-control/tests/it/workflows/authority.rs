//! A run has the authority of who saved its workflow, as it is when a step acts.

use kernel::auth::Role;
use kernel::base::DAY_MS;
use serde_json::{Value, json};
use tenant_control::features::users::{NewUser, User, UserUpdate, create_user, delete_user, find_user, update_user};

use crate::support::people::KEYS;
use crate::support::receiver::Receiver;
use crate::support::workflows::{WORKFLOWS, approval, assert_ended, id_of, manual, open, step, step_of, ticket, wait};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets;

/// A workflow with a pause before its second ticket.
fn paused() -> Value {
    manual([ticket("before", "A"), wait("pause", 60).needs(&["before"]), ticket("after", "B").needs(&["pause"])])
}

const STOPPED: &str = "failed: before succeeded, pause succeeded, after failed";
const DONE: &str = "succeeded: before succeeded, pause succeeded, after succeeded";

/// A user and their cookie.
async fn somebody(server: &Server, tenancy: &Tenancy, role: Role) -> (User, String) {
    let email = format!("{}@acme.test", server.app.env.random.base62_text(8));
    let new = NewUser { email: email.clone(), name: Some("Somebody".to_owned()), role, platform_operator: false };
    let cookie = server.session(&tenancy.tenant, new).await;
    let user = find_user(&server.app.store, &tenancy.tenant, &email).await.unwrap().expect("the user");
    (user, cookie)
}

/// Saved by whoever has this cookie or key, and begun by the admin.
async fn begin(server: &Server, tenancy: &Tenancy, saver: &str, definition: &Value) -> (Value, Value) {
    let mut body = definition.clone();
    body["action"] = json!("create");
    let call = server.post(WORKFLOWS).json(&body);
    let call = if saver.contains('=') { call.cookie(saver) } else { call.key(saver) };
    let workflow = call.await.ok(201);
    let run = server.start_run(tenancy, &workflow, &json!({})).await;
    server.work().await;
    (workflow, run)
}

async fn assert_stopped(server: &Server, tenancy: &Tenancy, run: &Value, says: &str) {
    let run = server.read_run(tenancy, run).await;
    assert_ended(&run, STOPPED);
    let error = &step_of(&run, "after")["error"];
    assert_eq!(error["code"], "insufficient_scope");
    assert!(error["detail"].as_str().unwrap().contains(says), "{error}");
    assert_eq!((&run["error"]["code"], &run["error"]["step_id"]), (&json!("insufficient_scope"), &json!("after")));
    assert_eq!(tickets::numbers(server, tenancy, "").await, [1]);
}

over_http! {
    async fn a_run_stops_at_the_next_step_when_its_saver_was_demoted(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (user, cookie) = somebody(&server, &acme, Role::Technician).await;
        let (_, run) = begin(&server, &acme, &cookie, &paused()).await;
        let change = UserUpdate { role: Some(Role::Viewer), ..UserUpdate::default() };
        update_user(&server.app.store, &acme.tenant, user.id, change).await.unwrap();
        server.work_for(60_000).await;
        assert_stopped(&server, &acme, &run, "tickets:write").await;
        // And goes on when they have their rights again.
        let change = UserUpdate { role: Some(Role::Technician), ..UserUpdate::default() };
        update_user(&server.app.store, &acme.tenant, user.id, change).await.unwrap();
        server.tell_run(&acme, &run, "retry").await.is(200);
        server.work().await;
        assert_ended(&server.read_run(&acme, &run).await, DONE);
    }

    async fn a_run_stops_when_its_saver_was_removed(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (user, cookie) = somebody(&server, &acme, Role::Technician).await;
        let (_, run) = begin(&server, &acme, &cookie, &paused()).await;
        delete_user(&server.app.store, &acme.tenant, &user).await.unwrap();
        server.work_for(60_000).await;
        assert_stopped(&server, &acme, &run, "no longer").await;
    }

    async fn a_run_stops_when_the_key_that_saved_it_was_revoked_or_has_expired(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let revoked = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let (_, run) = begin(&server, &acme, &revoked.plain, &paused()).await;
        server.delete(format!("{KEYS}?id={}", revoked.id)).cookie(&acme.admin).await.is(204);
        server.work_for(60_000).await;
        assert_stopped(&server, &acme, &run, "revoked").await;
        let globex = server.tenant("globex").await;
        let body = json!({"name": "Short", "scopes": ["workflows:*", "tickets:*"], "expires_days": 1});
        let expiring = server.key_with(&globex, &body).await;
        let long = manual([
            ticket("before", "A"),
            wait("pause", 2 * 24 * 60 * 60).needs(&["before"]),
            ticket("after", "B").needs(&["pause"]),
        ]);
        let (_, run) = begin(&server, &globex, &expiring.plain, &long).await;
        server.work_for(2 * DAY_MS).await;
        assert_stopped(&server, &globex, &run, "expired").await;
    }

    async fn a_run_stops_when_the_key_that_saved_it_lost_the_scope(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let (_, run) = begin(&server, &acme, &key.plain, &paused()).await;
        let less = json!({"name": "Less", "scopes": ["workflows:*", "tickets:read"]});
        server.put(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).json(&less).await.is(200);
        server.work_for(60_000).await;
        assert_stopped(&server, &acme, &run, "tickets:write").await;
    }

    async fn who_may_no_longer_write_workflows_lends_nothing_either(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let (_, run) = begin(&server, &acme, &key.plain, &paused()).await;
        let less = json!({"name": "Less", "scopes": ["workflows:read", "tickets:*"]});
        server.put(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).json(&less).await.is(200);
        server.work_for(60_000).await;
        assert_stopped(&server, &acme, &run, "workflows:write").await;
    }

    async fn lost_authority_is_not_worth_another_attempt_and_may_be_allowed_to_be(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let (_, run) = begin(
            &server,
            &acme,
            &key.plain,
            &manual([
                approval("asked"),
                ticket("final", "A").needs(&["asked"]).retry(5, 1),
                ticket("allowed", "A").needs(&["asked"]).or_continue(),
                ticket("after", "A").needs(&["allowed"]).or_continue(),
            ]),
        )
        .await;
        server.tell_run(&acme, &run, "approve").await.is(200);
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        server.work_for(60_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: asked succeeded, final failed, allowed failed, after failed");
        assert!(step_of(&run, "final")["attempts"].as_array().unwrap().len() <= 1, "{run:#}");
    }

    async fn who_changes_a_workflow_becomes_its_saver_for_the_runs_that_follow(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let (workflow, old) = begin(&server, &acme, &key.plain, &paused()).await;
        assert_eq!(workflow["saved_by"]["id"], json!(key.id));
        let changed = server.change_workflow(&acme, &workflow, &json!({"name": "Renamed"})).await;
        assert_eq!(changed["saved_by"]["type"], "user");
        let new = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        server.work_for(60_000).await;
        assert_ended(&server.read_run(&acme, &old).await, STOPPED);
        assert_ended(&server.read_run(&acme, &new).await, DONE);
    }

    async fn a_request_is_not_sent_for_who_is_gone(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        let key = server.key(&acme, &["workflows:*"]).await;
        let call = step("call", "http.request", json!({"method": "GET", "url": receiver.url("/a")}));
        let (_, run) = begin(&server, &acme, &key.plain, &manual([wait("pause", 5), call.needs(&["pause"])])).await;
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        server.work_for(5_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "failed: pause succeeded, call failed");
        assert_eq!((&step_of(&run, "call")["error"]["code"], receiver.count()), (&json!("insufficient_scope"), 0));
    }

    async fn a_saver_of_another_tenant_with_the_same_name_lends_nothing(setup: Setup) {
        let server = open(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let new = |tenant: &str| NewUser {
            email: format!("same@{tenant}.test"),
            name: Some("Same".to_owned()),
            role: Role::Admin,
            platform_operator: false,
        };
        let cookie = server.session(&acme.tenant, new("acme")).await;
        create_user(&server.app.store, &globex.tenant, new("globex")).await.unwrap();
        let (workflow, run) = begin(&server, &acme, &cookie, &paused()).await;
        let user = find_user(&server.app.store, &acme.tenant, "same@acme.test").await.unwrap().expect("the user");
        delete_user(&server.app.store, &acme.tenant, &user).await.unwrap();
        server.work_for(60_000).await;
        assert_ended(&server.read_run(&acme, &run).await, STOPPED);
        assert_eq!(workflow["saved_by"]["id"].as_str(), Some(user.id.to_string().as_str()));
        assert_eq!(server.runs_of(&acme, &json!({"id": id_of(&workflow)})).await.len(), 1);
    }
}
