//! How long runs are kept, and what goes with them.

use kernel::base::DAY_MS;
use kernel::store::Purpose;
use serde_json::json;
use tenant_control::features::workflows::jobs;

use crate::support::workflows::{WORKFLOWS, approval, id_of, manual, one_run, open, ticket};
use crate::support::{Server, over_http};

/// As long as they are kept where the operator says nothing.
const KEPT_MS: i64 = 90 * DAY_MS;

async fn count(server: &Server, table: &str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM {table}");
    server.app.store.system(Purpose::Cli).get_one(&sql, kernel::args![]).await.expect("a count")
}

async fn clean(server: &Server) {
    jobs::clean_history(&server.app, KEPT_MS).await.expect("cleaning");
}

over_http! {
    async fn a_run_that_is_over_is_kept_for_90_days(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let workflow = server
            .workflow(
                &acme,
                &manual([
                    ticket("make", "A").when("input.how == 'done'"),
                    approval("asked").when("input.how == 'asked'"),
                ]),
            )
            .await;
        let done = server.start_run(&acme, &workflow, &json!({"how": "done"})).await;
        server.work().await;
        let dry = server.post_run(&acme, &workflow, &json!({"input": {"how": "done"}, "dry_run": true})).await.ok(202);
        server.work_for(KEPT_MS - 10 * DAY_MS).await;
        let asked = server.start_run(&acme, &workflow, &json!({"how": "asked"})).await;
        server.work_for(10 * DAY_MS - 1).await;
        clean(&server).await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 3);
        server.work_for(2).await;
        clean(&server).await;
        for gone in [&done, &dry] {
            server.get(one_run(gone)).cookie(&acme.admin).await.problem("not_found");
        }
        assert_eq!(server.read_run(&acme, &asked).await["status"], "waiting", "what is not over stays");
        assert_eq!(count(&server, "workflow_runs").await, 1);
        assert_eq!(server.read_workflow(&acme, &workflow).await["id"], workflow["id"]);
    }

    async fn a_deleted_workflow_goes_with_the_last_of_its_runs(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let (gone, kept) = (
            server.workflow(&acme, &manual([ticket("make", "A")])).await,
            server.workflow(&acme, &manual([ticket("make", "A")])).await,
        );
        for workflow in [&gone, &kept] {
            server.start_run(&acme, workflow, &json!({})).await;
        }
        server.work().await;
        server.change_workflow(&acme, &kept, &json!({"name": "Renamed"})).await;
        server.delete_workflow(&acme, &gone).await;
        clean(&server).await;
        assert_eq!((count(&server, "workflows").await, count(&server, "workflow_runs").await), (2, 2));
        server.work_for(KEPT_MS + 1).await;
        for _ in 0..3 {
            clean(&server).await;
        }
        assert_eq!(
            (count(&server, "workflows").await, count(&server, "workflow_runs").await, count(&server, "steps").await),
            (1, 0, 0)
        );
        assert_eq!(server.read_workflow(&acme, &kept).await["revision"], 2);
        server.get(format!("{WORKFLOWS}?id={}", id_of(&gone))).cookie(&acme.admin).await.problem("not_found");
        let run = server.start_run(&acme, &kept, &json!({})).await;
        server.work().await;
        assert_eq!(server.read_run(&acme, &run).await["status"], "succeeded", "the revision in force is there");
    }

    async fn the_runs_of_one_tenant_do_not_keep_those_of_another(setup: Setup) {
        let server = open(setup).await;
        for slug in ["acme", "globex", "initech"] {
            let tenancy = server.tenant(slug).await;
            server.run(&tenancy, &manual([ticket("make", "A")])).await;
        }
        server.work_for(KEPT_MS + 1).await;
        clean(&server).await;
        assert_eq!((count(&server, "workflow_runs").await, count(&server, "steps").await), (0, 0));
    }
}
