//! `admin clock`, and what `doctor` says of tenants' clocks.

use kernel::base::{Actor, DAY_MS, Env};
use kernel::store::{Store, StoreOptions};

use super::*;

/// Moves the clock of acme 120 days ahead, as a machine with a wrong time does.
async fn move_ahead(desk: &Desk) {
    let options = StoreOptions::sqlite(desk.path("data/tenant-control.db"));
    let store = Store::open(options, Env::default()).await.unwrap();
    let id = desk.json(&["admin", "tenant", "list"])[0]["id"].as_str().unwrap().parse().unwrap();
    let ahead = store.env().now().plus_ms(120 * DAY_MS);
    let db = store.tenant_for_test(id, Actor::for_system());
    let moved = db.write(async move |tx| {
        tx.exec("UPDATE tenant_clocks SET last_at = $2 WHERE tenant_id = $1", kernel::args![ahead]).await
    });
    assert_eq!(moved.await.unwrap(), 1);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_ran_ahead_is_found_and_repaired() {
    let desk = Desk::new();
    acme(&desk);
    let list = desk.json(&["admin", "clock", "list"]);
    assert_eq!((&list[0]["tenant"], &list[0]["ahead_ms"]), (&json!("acme"), &json!(0)));
    let repair = ["admin", "clock", "repair", "--tenant", "acme"];
    assert_eq!(
        desk.run(&repair).shown(&desk),
        "exit 0\nstdout:\nThe clock of acme is not so far ahead that it needs repair.\n"
    );

    move_ahead(&desk).await;
    let list = desk.run(&["admin", "clock", "list"]);
    assert!(list.stdout.contains("acme  AHEAD by ") && list.stdout.contains("nothing can be written"), "{list:?}");
    let refused = desk.run(&["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test"]);
    assert!(refused.code == 1 && refused.stderr.contains("admin clock repair"), "{refused:?}");
    let doctor = desk.run(&["doctor"]);
    assert_eq!(doctor.code, 1);
    let said = doctor.stdout.lines().find(|line| line.starts_with("FAIL  tenants' clocks: acme stands at "));
    assert!(said.is_some_and(|line| line.contains("admin clock repair --tenant SLUG")), "{}", doctor.stdout);

    let repaired = desk.json(&repair);
    assert!(repaired["from"].as_str() > repaired["to"].as_str(), "{repaired}");
    assert_eq!(
        (&repaired["tickets"], &repaired["api_keys"], &repaired["deliveries"]),
        (&json!(0), &json!(0), &json!(0))
    );
    assert!(desk.run(&["doctor"]).stdout.contains("ok    tenants' clocks: none is ahead of the time\n"));
    cookie(&desk);
}
