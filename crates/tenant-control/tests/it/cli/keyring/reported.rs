//! What operators are told of nodes that were away and of values that do not open.

use super::*;
use crate::support::postgres::connect;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_while_its_key_was_removed_seals_as_the_others_do() {
    let database = fresh_database().await;
    let desks = two_nodes(&database.url);
    let [a, b] = &desks;
    let [first, second] = [a.serve(&LOCAL), b.serve(&LOCAL)];
    let cookie = cookie(a);
    let hook = create_hook(&first, &cookie).await;
    a.json(&keyring(&["add"]));
    copy_secrets(&desks);
    until_known(a, 2, 2).await;
    a.json(&keyring(&["rotate"]));
    second.freeze().await;
    // It has not been heard of for a minute.
    let client = connect(&database.url_as_superuser()).await;
    let forget = "DELETE FROM keyring_nodes WHERE host LIKE $1";
    assert_eq!(client.execute(forget, &[&format!("%{}%", second.address)]).await.unwrap(), 1);
    until_rewrapped(a, 1).await;
    assert_eq!(a.json(&keyring(&["remove", "--id", "1"])), json!({"removed_id": 1, "primary_id": 2}));
    second.thaw();
    second.logs(&["the primary sealing key of this server was removed", "removed=1", "primary=2"]);
    create_hook(&second, &cookie).await;
    let shown = status(a);
    let used = json!({"webhook_secrets": 2, "webhooks": 2});
    let key = json!({"id": 2, "is_primary": true, "in_secrets": true, "is_retired": false, "values": used});
    assert_eq!((&shown["keys"], &shown["unopened"]), (&json!([key]), &json!([])));
    for process in [&first, &second] {
        assert!(opens_headers(process, &cookie, &hook).await);
    }
    second.stop();
    let refused = b.run(&["serve", "--listen", "127.0.0.1:0"]);
    let told =
        "error: the secrets of this node seal with key 1, which was removed: copy the secrets file from another node";
    assert!(refused.code == 1 && refused.stderr.contains(told), "{}", refused.stderr);
    copy_secrets(&desks);
    assert!(opens_headers(&b.serve(&LOCAL), &cookie, &hook).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_does_not_open_is_named_and_not_skipped() {
    let database = fresh_database().await;
    let [desk, _] = two_nodes(&database.url);
    let process = desk.serve(&LOCAL);
    let hook = create_hook(&process, &cookie(&desk)).await;
    assert!(desk.run(&["doctor"]).stdout.contains("ok    sealed values: all open\n"));
    // A row of another version, as somebody who has kept a copy of it might put it back.
    let client = connect(&database.url_as_superuser()).await;
    assert_eq!(client.execute("UPDATE webhooks SET headers_version = 7", &[]).await.unwrap(), 1);
    desk.json(&keyring(&["add"]));
    until_known(&desk, 2, 1).await;
    desk.json(&keyring(&["rotate"]));
    let id = hook["id"].as_str().unwrap();
    process.logs(&["failed to rewrap sealed values", "column=\"webhooks\"", "values=1", id, "version=7"]);
    let shown = until("the other value is rewrapped", PATIENCE, async || {
        Some(status(&desk)).filter(|status| status["left_to_rewrap"] == 1)
    })
    .await;
    assert_eq!(shown["sealed_with_primary"], 1);
    assert_eq!((&shown["unopened"][0]["column"], &shown["unopened"][0]["values"]), (&json!("webhooks"), &json!(1)));
    assert_eq!(shown["unopened"][0]["first"]["record_id"], hook["id"]);
    let line = format!("1 value of webhooks does NOT open: version 7 of {id} in ten_");
    assert!(desk.run(&keyring(&["status"])).stdout.contains(&line));
    let doctor = desk.run(&["doctor"]);
    assert!(doctor.code == 1 && doctor.stdout.contains(&format!("FAIL  sealed values: {line}")), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("ok    sealing keys: 1 of 2 values are left to rewrap"), "{}", doctor.stdout);
    let refused = desk.run(&keyring(&["remove", "--id", "1"]));
    assert!(refused.code == 1 && refused.stderr.contains("(webhooks 1), and would be lost"), "{}", refused.stderr);
}
