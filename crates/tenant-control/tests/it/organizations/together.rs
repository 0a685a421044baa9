//! Requests at once.

use std::sync::{Arc, Mutex};

use kernel::auth::open_as_operator;
use kernel::base::{FaultPoints, InjectedFault};
use kernel::store::Db;
use tenant_control::features::organizations::{OrganizationId, OrganizationUpdate, update_organization};
use tokio::task::JoinSet;

use super::*;
use crate::inventory::imports::import_csv;
use crate::support::Setup;
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

/// Something that is done between trying a file of devices and writing it.
type Deed = Box<dyn FnOnce() + Send>;

/// A server that does it once.
async fn interrupted(setup: Setup) -> (Server, Arc<Mutex<Option<Deed>>>) {
    let deed: Arc<Mutex<Option<Deed>>> = Arc::default();
    let due = deed.clone();
    let faults = FaultPoints::new(move |place| {
        let deed = if place == "import.tried" { due.lock().unwrap().take() } else { None };
        if let Some(deed) = deed {
            deed();
        }
        InjectedFault::None
    });
    (setup.with_faults(faults).start().await, deed)
}

/// Archives it while whoever asked waits.
fn archive_now(db: &Db, id: OrganizationId) {
    let change = OrganizationUpdate { name: None, slug: None, archived: Some(true) };
    let changed =
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(update_organization(db, id, change)));
    assert!(changed.expect("an organization").archived);
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

    async fn rows_of_one_that_is_archived_while_a_file_is_imported_are_named_and_the_others_stay(setup: Setup) {
        let (server, deed) = interrupted(setup).await;
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, &json!({"name": "Globex"})).await;
        let (db, id) = (open_as_operator(&server.app.store, &acme.tenant), id_of(&made).parse().unwrap());
        *deed.lock().unwrap() = Some(Box::new(move || archive_now(&db, id)));
        let lines = "hostname,organization\nweb01,\nweb02,globex\nweb03,\n";
        let done = import_csv(&server, &acme, lines).await;
        assert!(deed.lock().unwrap().is_none(), "it was archived meanwhile");
        assert_eq!((done.created, done.nothing_written, done.errors.len()), (2, false, 1), "{:?}", done.errors);
        assert_eq!((done.errors[0].row, done.errors[0].column.as_str()), (2, "organization"));
        // Once the row is mended the file can be imported as a whole.
        let again = import_csv(&server, &acme, &lines.replace("globex", "")).await;
        assert_eq!((again.created, again.unchanged, again.errors.len()), (1, 2, 0), "{:?}", again.errors);
    }
}
