//! `serve`: the first run, the lock on the data directory, and the end.

use super::*;
use crate::support::command::mode;

#[tokio::test(flavor = "multi_thread")]
async fn no_command_means_serve() {
    let desk = Desk::new();
    let process = desk.start(&["--listen", "127.0.0.1:0", "--base-url", "http://tc.test"]);
    assert_eq!(get(&process, "/healthz", ("accept", "*/*")).await.0, 200);
    assert_eq!(process.base_url, "http://tc.test");
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_LISTEN", "127.0.0.1:0");
    let process = desk.start(&[]);
    assert_eq!(get(&process, "/readyz", ("accept", "*/*")).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_run_makes_an_admin_and_prints_a_link_that_works_once() {
    let desk = Desk::new();
    let process = desk.serve(&[]);
    let link = process.says("/signin?token=").trim().to_owned();
    assert!(link.starts_with(&format!("http://{}/signin?token=", process.address)), "{link}");
    assert_eq!(client().get(&link).send().await.unwrap().status(), 200);
    let (page, token) = link.split_once("?token=").unwrap();
    let button = client().post(format!("{page}/link")).header("content-type", "application/x-www-form-urlencoded");
    let answer = button.body(format!("token={token}")).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["location"].as_bytes()), (303, &b"/overview"[..]));
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let (status, session) = get(&process, SESSION, ("cookie", &cookie)).await;
    assert_eq!((status, &session["role"], &session["platform_operator"]), (200, &json!("admin"), &json!(true)));
    assert_eq!(client().get(&link).send().await.unwrap().status(), 410);

    let ended = process.stop();
    assert_eq!(ended.code, 0);
    let address = link.split("/signin").next().unwrap().trim_start_matches("http://");
    let wanted = format!(
        "exit 0\nstdout:\nTenant Control {} listens on ADDRESS and is reached at http://ADDRESS\n\n\
         This store is new. A tenant \"default\" and its admin admin@localhost were made.\nSign in once, within 15 minutes:\n\n  \
         http://ADDRESS/signin?token=TOKEN\n\n\
         Another link: tenant-control admin session create --tenant default --email admin@localhost --link\n\n",
        env!("CARGO_PKG_VERSION")
    );
    let shown = crate::support::command::Ended { stderr: String::new(), ..ended }.shown(&desk);
    assert_eq!(shown.replace(address, "ADDRESS"), wanted);
    assert!(!desk.serve(&[]).stop().stdout.contains("signin"), "a store with a tenant is not new");
}

#[test]
fn files_are_their_owners_alone() {
    let desk = Desk::new();
    let process = desk.serve(&[]);
    assert_eq!(mode(&desk.path("data")), 0o700);
    assert_eq!(mode(&desk.path("data/secrets.json")), 0o600);
    assert_eq!(mode(&desk.path("data/tenant-control.db")), 0o600);
    for name in desk.data_files().iter().filter(|name| name.starts_with("tenant-control.db-")) {
        assert_eq!(mode(&desk.path("data").join(name)), 0o600, "{name}");
    }
    drop(process);
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let desk = Desk::new();
    let _process = desk.serve(&[]);
    let refused = desk.run(&["serve", "--listen", "127.0.0.1:0"]);
    let wanted = "exit 1\nstderr:\nerror: another server is running on the data directory ./data; \
                  stop it first, or give --data-dir another place\n";
    assert_eq!(refused.shown(&desk), wanted);
}

#[test]
fn an_address_in_use_is_said() {
    let desk = Desk::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = desk.run(&["serve", "--listen", &address]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains(&format!("error: cannot listen on {address}: ")), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_uses_are_written_down_at_the_end() {
    let desk = Desk::new();
    acme(&desk);
    let process = desk.serve(&[]);
    let cookie = cookie(&desk);
    let key = create_key(&process, &cookie).await;
    assert!(accepts_key(&process, &key).await);
    assert_eq!(process.stop().code, 0);
    let process = desk.serve(&[]);
    let (_, list) = get(&process, KEYS, ("cookie", &cookie)).await;
    assert_eq!(list["data"][0]["last_used_ip"], "127.0.0.1");
}

#[test]
fn migrate_is_done_once() {
    let desk = Desk::new();
    let first = desk.json(&["migrate"]);
    assert!(first["applied"].as_array().unwrap().contains(&json!("0001_ground")), "{first}");
    assert_eq!(desk.json(&["migrate"]), json!({"applied": []}));
    assert_eq!(desk.run(&["migrate"]).shown(&desk), "exit 0\nstdout:\nThe schema is up to date.\n");
    let desk = Desk::new();
    let shown = desk.run(&["migrate"]).shown(&desk);
    assert!(shown.starts_with("exit 0\nstdout:\n") && shown.contains(" applied: 0001_ground"), "{shown}");
}

#[test]
fn the_first_migration_waits_for_nobody() {
    let takes = || {
        let desk = Desk::new();
        let started = std::time::Instant::now();
        assert_eq!(desk.run(&["migrate"]).code, 0);
        let took = started.elapsed();
        assert_eq!(desk.data_files(), ["tenant-control.db"], "and everything is in the file itself");
        took
    };
    // A tenth of a second on an idle machine. A lock that is waited for in vain takes five seconds, and each time.
    assert!((0..3).any(|_| takes() < std::time::Duration::from_secs(4)), "something is waited for");
}
