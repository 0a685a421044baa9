//! How the service says it is, also while its database is away.

use std::time::Duration;

use tempfile::TempDir;
use tenant_control::features::pages;

use super::*;
use crate::support::cluster::Cluster;
use crate::support::process::{Launch, until};
use crate::support::search::Indexed;
use crate::webhooks;

const WAIT_MAX: Duration = Duration::from_mins(1);

async fn ask(server: &Server) -> Answer {
    server.get(STATUS).header("accept", "application/json").await
}

/// A part of what is said.
fn part<'a>(status: &'a Value, name: &str) -> &'a Value {
    let parts = status["components"].as_array().expect("components");
    parts.iter().find(|part| part["name"] == name).unwrap_or_else(|| panic!("no {name} in {status}"))
}

over_http! {
    async fn all_is_well_when_every_part_is(server: Server) {
        let _indexed = Indexed::of(&server).await;
        pages::measure_queue(&server.app).await.unwrap();
        let answer = ask(&server).await;
        let status = answer.ok(200);
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(answer.headers.get_all("vary").iter().any(|value| value == "accept"), "{:?}", answer.headers);
        assert_eq!(status["status"], "ok", "{status}");
        let names: Vec<&Value> = status["components"].as_array().unwrap().iter().map(|part| &part["name"]).collect();
        assert_eq!(names, ["database", "queue", "search", "providers"]);
        for name in ["database", "queue", "search", "providers"] {
            assert_eq!(part(&status, name)["status"], "ok", "{status}");
        }
        assert_eq!(part(&status, "queue")["lag_seconds"], 0);
        assert!(part(&status, "database")["lag_seconds"].is_null());

        let page = server.get(STATUS).await;
        assert!(page.headers.get_all("vary").iter().any(|value| value == "accept"), "{:?}", page.headers);
        assert_eq!(page.header("cache-control"), "no-store");
        assert!(html(page.is(200)).contains("The service works."));
        assert!(server.head(STATUS).await.is(200).body.is_empty());
    }

    async fn it_tells_nothing_of_anybody(server: Server) {
        server.tenant("acme").await;
        pages::measure_queue(&server.app).await.unwrap();
        let said = ask(&server).await.ok(200).to_string() + &html(&server.get(STATUS).await).replace(server.base_url(), "");
        for inside in ["acme", "sqlite", "postgres", "127.0.0.1", "localhost", server.app.node.as_str()] {
            assert!(!said.to_lowercase().contains(&inside.to_lowercase()), "{inside} in {said}");
        }
    }

    async fn what_the_operator_holds_is_told(setup: Setup) {
        let mut setup = setup;
        setup.settings.outbound.hold = true;
        let server = setup.start().await;
        let _indexed = Indexed::of(&server).await;
        pages::measure_queue(&server.app).await.unwrap();
        let status = ask(&server).await.ok(200);
        assert_eq!((&status["status"], &part(&status, "queue")["status"]), (&json!("degraded"), &json!("degraded")));
        let page = html(&server.get(STATUS).await);
        assert!(page.contains("The operator holds webhooks, requests of workflows and work on clouds: they are sent later."), "{page}");
    }

    async fn what_waits_too_long_is_told(server: Server) {
        let acme = server.tenant("acme").await;
        webhooks::endpoint(&server, &acme, "https://hooks.example.org/in", &["api_key.*"]).await;
        server.key(&acme, &["tickets:read"]).await;
        server.advance(59_000);
        pages::measure_queue(&server.app).await.unwrap();
        let status = ask(&server).await.ok(200);
        assert_eq!((&part(&status, "queue")["status"], &part(&status, "queue")["lag_seconds"]), (&json!("ok"), &json!(59)));
        server.advance(61_000);
        // The figure is old by now, and is not passed off as one of today.
        let status = ask(&server).await.ok(200);
        assert_eq!((&part(&status, "queue")["status"], &part(&status, "queue")["lag_seconds"]), (&json!("degraded"), &json!(null)));
        pages::measure_queue(&server.app).await.unwrap();
        let status = ask(&server).await.ok(200);
        assert_eq!((&part(&status, "queue")["status"], &part(&status, "queue")["lag_seconds"]), (&json!("degraded"), &json!(120)));
        assert_eq!(status["status"], "degraded");
        assert!(html(&server.get(STATUS).await).contains("120 s"));
    }

    async fn an_index_that_is_being_built_is_told(server: Server) {
        let status = ask(&server).await.ok(200);
        assert_eq!((&status["status"], &part(&status, "search")["status"]), (&json!("degraded"), &json!("degraded")));
        assert!(part(&status, "search")["lag_seconds"].is_null(), "{status}");
    }

    async fn a_database_that_is_gone_is_told_with_200(server: Server) {
        assert_eq!(part(&ask(&server).await.ok(200), "database")["status"], "ok");
        server.app.store.close().await;
        assert_eq!(part(&ask(&server).await.ok(200), "database")["status"], "ok", "one look serves a second");
        server.advance(1_000);
        let status = ask(&server).await.ok(200);
        assert_eq!(status["status"], "down", "{status}");
        for name in ["database", "queue"] {
            assert_eq!(part(&status, name)["status"], "down", "{status}");
        }
        let page = html(server.get(STATUS).await.is(200));
        assert!(page.contains("The service cannot answer requests right now."), "{page}");
        // What needs no database goes on.
        for path in ["/", CHANGELOG, SIGNIN] {
            server.get(path).await.is(200);
        }
    }

    async fn a_visit_is_charged_to_the_address(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Public, 2);
        let server = setup.start().await;
        server.get(STATUS).await.is(200);
        ask(&server).await.is(200);
        ask(&server).await.problem("rate_limited");
    }
}

/// What a real process says of its database.
async fn database_of(client: &reqwest::Client, url: &str) -> Option<String> {
    let answer = client.get(url).header("accept", "application/json").send().await.ok()?;
    assert_eq!(answer.status(), 200);
    let status: Value = answer.json().await.ok()?;
    part(&status, "database")["status"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_and_comes_back_is_told() {
    let (folder, cluster) = (TempDir::new().unwrap(), Cluster::start().await);
    let server = Launch::on_database(&cluster.url(), folder.path()).start().await;
    let (client, url) =
        (reqwest::Client::builder().no_proxy().build().unwrap(), format!("http://{}{STATUS}", server.address()));
    let told = async |word: &str| {
        until(word, WAIT_MAX, async || (database_of(&client, &url).await.as_deref() == Some(word)).then_some(())).await;
    };
    told("ok").await;
    cluster.stop_at_once();
    told("down").await;
    cluster.start_again().unwrap();
    told("ok").await;
}
