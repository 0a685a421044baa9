//! Requests at once.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::*;
use crate::tickets::{self, TICKETS, generous};

/// Requests that want the same.
const RIVALS: usize = 8;
/// How often a ticket is made for an organization that is deleted meanwhile.
const ROUNDS: usize = 12;

/// The statuses of equal requests at once, in order.
async fn race(server: Arc<Server>, tenancy: &Tenancy, body: &Value) -> Vec<u16> {
    let mut racing = JoinSet::new();
    for _ in 0..RIVALS {
        let (server, admin, body) = (server.clone(), tenancy.admin.clone(), body.clone());
        racing.spawn(async move { server.post(ORGANIZATIONS).cookie(&admin).json(&body).await.status });
    }
    let mut statuses = racing.join_all().await;
    statuses.sort_unstable();
    statuses
}

over_http! {
    async fn one_of_many_gets_a_slug(server: Server) {
        let acme = server.tenant("acme").await;
        let server = Arc::new(server);
        let one_alone: Vec<u16> = std::iter::once(201).chain(std::iter::repeat_n(409, RIVALS - 1)).collect();
        assert_eq!(race(server.clone(), &acme, &json!({"name": "Globex", "slug": "globex"})).await, one_alone);
        assert_eq!(race(server.clone(), &acme, &json!({"name": "Initech", "external_id": "crm-1"})).await, one_alone);
        assert_eq!(race(server.clone(), &acme, &json!({"name": "Umbrella"})).await, [201; RIVALS], "numbers for all");
        let rows = walk(&server, &acme, "q=umbrella").await;
        let mut made = slugs(&rows);
        made.sort_unstable();
        let numbered = (2..=RIVALS).map(|number| format!("umbrella-{number}"));
        assert_eq!(made, ["umbrella".to_owned()].into_iter().chain(numbered).collect::<Vec<_>>());
        assert_eq!(server.kinds_of(&acme, "organization.created").await.len(), 2 + RIVALS);
    }

    async fn a_ticket_is_made_for_it_or_it_is_deleted_and_never_both(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        for round in 0..ROUNDS {
            let made = make(&server, &acme, &json!({"name": format!("Round {round}")})).await;
            let body = json!({"subject": "A", "organization_id": made["id"]});
            let ticket = async { server.post(TICKETS).cookie(&acme.admin).json(&body).await };
            let (ticket, gone) = tokio::join!(ticket, delete(&server, &acme, &made));
            let is_there = server.get(one(&made)).cookie(&acme.admin).await.status;
            match (ticket.status, gone.status) {
                (201, 409) => assert_eq!(is_there, 200, "{round}"),
                (422, 204) => assert_eq!(is_there, 404, "{round}"),
                both => panic!("round {round}: {both:?}"),
            }
        }
        let tickets = tickets::list(&server, &acme, "").await;
        for ticket in &tickets {
            let target = format!("{ORGANIZATIONS}?id={}", ticket["organization_id"].as_str().expect("an id"));
            server.get(target).cookie(&acme.admin).await.is(200);
        }
    }
}
