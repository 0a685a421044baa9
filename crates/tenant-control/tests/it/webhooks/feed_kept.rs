//! What a reader of the feed is told at the edge of what is kept: never less than there was, and never a gap unsaid.

use std::time::Duration;

use kernel::args;
use kernel::base::{Actor, DAY_MS};
use kernel::events;
use serde_json::{Value, json};
use tenant_control::features;

use super::EVENTS;
use super::drive::{LOAD, patient, publish_one};
use crate::support::{Answer, Server, Tenancy, over_http};

/// More events than one request passes over, and further apart than it looks at once.
const FAR_APART: usize = 60;
const APART: i64 = 2_001;

const PASS_OVER: &str = "UPDATE tenant_clocks SET sequence = sequence + $2 WHERE tenant_id = $1";

/// The events of keys, from the oldest or from where a page ended.
async fn read(server: &Server, tenancy: &Tenancy, after: Option<&Value>) -> Answer {
    let cursor = after.map(|page| format!("&cursor={}", page["next_cursor"].as_str().unwrap())).unwrap_or_default();
    server.get(format!("{EVENTS}?view=feed&types=api_key.*{cursor}")).cookie(&tenancy.admin).await
}

fn count(page: &Value) -> usize {
    page["data"].as_array().unwrap().len()
}

/// Lets so many numbers of the tenant's writes pass without an event.
async fn pass_over(server: &Server, tenancy: &Tenancy, numbers: i64) {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    db.write(async move |tx| tx.exec(PASS_OVER, args![numbers]).await).await.unwrap();
}

/// Events that the reader does not want, more than one request passes over.
async fn publish_far_apart(server: &Server, tenancy: &Tenancy) {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    db.write(async |tx| {
        for number in 0..FAR_APART {
            tx.exec(PASS_OVER, args![APART]).await?;
            events::publish(tx, &LOAD, number, &json!({"id": number})).await?;
        }
        Ok(())
    })
    .await
    .unwrap();
}

async fn clean(server: &Server) {
    kernel::jobs::delete_expired(&server.app, &features::install().retention).await.unwrap();
}

over_http! {
    async fn a_cursor_whose_last_event_is_removed_goes_on_if_nothing_behind_it_is(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        server.key(&acme, &["tickets:read"]).await;
        server.advance(5 * DAY_MS);
        publish_far_apart(&server, &acme).await;
        server.advance(DAY_MS);
        server.key(&acme, &["tickets:read"]).await;
        server.advance(24 * DAY_MS);
        let first = read(&server, &acme, None).await.ok(200);
        assert_eq!((count(&first), &first["has_more"]), (1, &json!(true)));
        server.advance(1);
        clean(&server).await;
        let second = read(&server, &acme, Some(&first)).await.ok(200);
        assert_eq!((count(&second), &second["has_more"]), (0, &json!(true)), "so much is passed over");
        server.advance(5 * DAY_MS - 1);
        clean(&server).await;
        let third = read(&server, &acme, Some(&second)).await.ok(200);
        assert_eq!((count(&third), &third["has_more"]), (1, &json!(false)));
        server.advance(1);
        clean(&server).await;
        read(&server, &acme, Some(&second)).await.problem("invalid_cursor");
    }

    async fn a_cursor_that_has_passed_over_much_is_refused_when_what_is_behind_it_is_gone(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        publish_far_apart(&server, &acme).await;
        server.key(&acme, &["tickets:read"]).await;
        server.advance(20 * DAY_MS);
        let page = read(&server, &acme, None).await.ok(200);
        assert_eq!((count(&page), &page["has_more"]), (0, &json!(true)), "the key is not reached yet");
        server.advance(10 * DAY_MS + 1);
        clean(&server).await;
        read(&server, &acme, Some(&page)).await.problem("invalid_cursor");
    }

    async fn a_cursor_behind_which_nothing_was_removed_is_good_however_old_it_is(setup: Setup) {
        let mut setup = setup;
        // What is asked here is whether the cursor is good, and not how long an answer without news takes.
        setup.settings.news_wait_max = Duration::ZERO;
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        publish_one(&server, &acme, "rec_1").await;
        let page = server.get(format!("{EVENTS}?view=feed")).cookie(&acme.admin).await.ok(200);
        assert_eq!((count(&page), &page["has_more"]), (1, &json!(false)));
        let next = format!("{EVENTS}?view=feed&cursor={}", page["next_cursor"].as_str().unwrap());
        server.advance(60 * DAY_MS);
        clean(&server).await;
        assert_eq!(count(&server.get(&next).cookie(&acme.admin).await.ok(200)), 0, "nothing has happened since");
        publish_one(&server, &acme, "rec_2").await;
        assert_eq!(count(&server.get(&next).cookie(&acme.admin).await.ok(200)), 1);
        server.advance(31 * DAY_MS);
        clean(&server).await;
        publish_one(&server, &acme, "rec_3").await;
        server.get(&next).cookie(&acme.admin).await.problem("invalid_cursor");
    }

    async fn numbers_without_an_event_are_passed_over_at_once(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        pass_over(&server, &acme, 10_000_000).await;
        server.key(&acme, &["tickets:read"]).await;
        pass_over(&server, &acme, 10_000_000).await;
        let first = read(&server, &acme, None).await.ok(200);
        assert_eq!((count(&first), &first["has_more"]), (1, &json!(false)));
        server.key(&acme, &["tickets:read"]).await;
        let second = read(&server, &acme, Some(&first)).await.ok(200);
        assert_eq!(count(&second), 1);
    }
}
