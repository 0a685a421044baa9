//! Who may report, and how others are refused.

use kernel::http::RatePolicy;
use serde_json::{Value, json};

use crate::support::call::Call;
use crate::support::devices::{Agent, DEVICES, FUSION, INGEST, IngestKey, device_events, report, reported};
use crate::support::people::{KEYS, SESSION};
use crate::support::{Server, over_http};
use crate::tickets::TICKETS;

use super::all;

const AGENT_ID: &str = "5c1f6c1e-7f0e-4b6a-9f0a-1f6f0f1f2f3f";
const CHALLENGE: &str = "Basic realm=\"ingest\", charset=\"UTF-8\"";

fn plain(server: &Server) -> Call<'_> {
    server.post(INGEST).header("content-type", "application/xml").body(Agent::named("web01").fusion().plain)
}

over_http! {
    async fn without_a_key_that_works_nothing_is_taken(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let (key, other) = (server.ingest_key(&acme).await, server.ingest_key(&globex).await);
        let gone = server.ingest_key(&acme).await;
        reported(&server, &gone, &Agent::named("before").prolog(FUSION)).await;
        server.revoke_ingest_key(&acme, &gone).await;
        let api_key = server.key(&acme, &["*"]).await.plain;
        let wrong = IngestKey { secret: other.secret.clone(), ..key.clone() };
        let with = |key: &IngestKey| plain(&server).header("authorization", key.basic());
        for call in [
            plain(&server), with(&gone), with(&wrong), plain(&server).key(&api_key), plain(&server).header("x-api-key", &api_key),
            plain(&server).cookie(&acme.admin), plain(&server).key(&key.secret),
            plain(&server).header("authorization", "Basic aaaa"), plain(&server).header("authorization", "Basic"),
        ] {
            let answer = call.await;
            answer.problem("unauthenticated");
            assert_eq!(answer.header("www-authenticate"), CHALLENGE);
        }
        with(&key).header("x-api-key", &api_key).await.problem("ambiguous_credentials");
        with(&key).cookie(&acme.admin).await.problem("ambiguous_credentials");
        assert_eq!((all(&server, &acme).await, all(&server, &globex).await), (Vec::<Value>::new(), Vec::new()));
        assert_eq!(device_events(&server, &acme).await, Vec::<Value>::new());
        with(&key).await.is(200);
    }

    async fn an_agent_that_speaks_json_is_told_in_json(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let glpi = Agent::named("web01").glpi();
        let plain = || server.post(INGEST).header("content-type", "application/json").body(glpi.plain.clone());
        let named = || server.post(INGEST).header("glpi-agent-id", AGENT_ID);
        let basic = key.basic();
        for (call, status) in [
            (plain(), 401),
            (named().header("content-type", "application/x-compress-zlib").body(glpi.plain.clone()), 401),
            (named().header("authorization", &basic).header("content-type", "text/plain").body("hello"), 415),
            (named().header("authorization", &basic).header("content-type", "application/x-compress-zlib").body("hello"), 415),
            (plain().header("authorization", &basic).header("authorization", &basic), 400),
            (server.post(INGEST).header("authorization", &basic).header("content-type", "application/json").body("{"), 400),
            (named().header("authorization", &basic).header("content-type", "application/xml").body("<REQUEST>"), 400),
            (named().header("authorization", &basic).header("content-type", "application/zlib").body(vec![b' '; (16 << 20) + 1]), 413),
        ] {
            let answer = call.await;
            answer.is(status);
            assert_eq!(answer.header("content-type"), "application/json");
            let told = answer.json();
            assert_eq!(told["status"], "error", "{told}");
            assert!(told["message"].as_str().is_some_and(|message| message.ends_with('.')), "{told}");
            assert_eq!(told.as_object().unwrap().len(), 2, "{told}");
            assert!(answer.header("x-request-id").starts_with("req_"));
            assert_eq!(answer.header("www-authenticate"), if status == 401 { CHALLENGE } else { "" });
        }
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new());
    }

    async fn what_agents_do_not_send_is_not_taken(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let body = Agent::named("web01").fusion();
        for media_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "image/png", "xml"] {
            let call = server.post(INGEST).header("authorization", key.basic()).header("content-type", media_type);
            call.body(body.plain.clone()).await.problem("unsupported_media_type");
        }
        let call = server.post(INGEST).header("authorization", key.basic());
        call.body(body.plain.clone()).await.problem("unsupported_media_type");
        for method in ["PUT", "PATCH", "DELETE"] {
            let call = server.call(method.parse().unwrap(), INGEST).header("authorization", key.basic());
            call.await.problem("method_not_allowed");
        }
        assert_eq!(all(&server, &acme).await, Vec::<Value>::new());
    }

    async fn an_ingest_key_reads_and_changes_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        reported(&server, &key, &Agent::named("web01").fusion()).await;
        for path in [DEVICES, TICKETS, KEYS, SESSION] {
            let basic = server.get(path).header("authorization", key.basic());
            for call in [basic, server.get(path).key(&key.secret), server.get(path).header("x-api-key", &key.secret)] {
                let answer = call.await;
                answer.problem("unauthenticated");
                assert_eq!(answer.header("www-authenticate"), "Bearer");
            }
        }
        let subject = json!({"subject": "Printer"});
        server.post(TICKETS).header("authorization", key.basic()).json(&subject).await.problem("unauthenticated");
        reported(&server, &key, &Agent::named("web01").fusion()).await;
    }

    async fn a_key_that_is_revoked_while_a_body_comes_takes_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let held = server.hold_writes(acme.tenant.id).await;
        let revoked = async {
            // Both wait for the tenant's clock; whoever is second sees what the first has done.
            tokio::task::yield_now().await;
            drop(held);
            server.revoke_ingest_key(&acme, &key).await;
        };
        let body = Agent::named("web01").fusion();
        let call = async { report(&server, &key, &body).await };
        let (answer, ()) = tokio::join!(call, revoked);
        let made = all(&server, &acme).await.len();
        assert_eq!((answer.status, made), if made == 1 { (200, 1) } else { (401, 0) });
        assert_eq!(report(&server, &key, &body).await.status, 401);
        assert_eq!(all(&server, &acme).await.len(), made);
    }

    async fn more_reports_than_a_key_may_send_are_refused_in_its_language(setup: Setup) {
        let mut setup = setup;
        setup.settings.rate_table.set(RatePolicy::Ingest, 2);
        let server = setup.start().await;
        let acme = server.tenant("acme").await;
        let (key, other) = (server.ingest_key(&acme).await, server.ingest_key(&acme).await);
        let agent = Agent::named("web01");
        for _ in 0..2 {
            reported(&server, &key, &agent.fusion()).await;
        }
        report(&server, &key, &agent.fusion()).await.problem("rate_limited");
        let told = report(&server, &key, &agent.glpi().agent_id(AGENT_ID)).await;
        assert_eq!(told.ok(429)["status"], "error");
        assert!(told.headers.contains_key("retry-after"));
        reported(&server, &other, &agent.fusion()).await;
        server.advance(60_000);
        reported(&server, &key, &agent.fusion()).await;
    }
}
