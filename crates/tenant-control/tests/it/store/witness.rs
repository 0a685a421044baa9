//! A connection that was not proved to have a backend to itself is not used; and a server that has place for it need not
//! have place for another.

use std::time::Duration;

use kernel::args;
use kernel::base::{Code, Env};
use kernel::store::{PostgresOptions, Purpose, Store, StoreOptions};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::Client;

use super::traps::occupy;
use crate::support::postgres::{TestDatabase, connect, fresh_database};
use crate::support::process::until;

const PATIENCE: Duration = Duration::from_secs(30);

/// A node with one connection and its witness, as a role that nobody else has.
struct Node {
    store: Store,
    role: String,
    admin: Client,
    _database: TestDatabase,
}

impl Node {
    async fn start() -> Node {
        let database = fresh_database().await;
        // Roles belong to the whole server: this one is named after the database, which no other test has.
        let role = database.url.rsplit('/').next().and_then(|rest| rest.split('?').next()).expect("a name").to_owned();
        let admin = connect(&database.url_as_superuser()).await;
        admin.batch_execute(&format!("CREATE ROLE {role} LOGIN NOSUPERUSER NOBYPASSRLS")).await.expect("a role");
        let options = StoreOptions::postgres(PostgresOptions::new(database.url_as(&role))).pool_max(2);
        let store = Store::open(options, Env::default()).await.expect("the store opens");
        let node = Node { store, role, admin, _database: database };
        assert_eq!(node.connections().await, 2);
        node
    }

    async fn connections(&self) -> i64 {
        let count = "SELECT COUNT(*) FROM pg_stat_activity WHERE usename = $1";
        self.admin.query_one(count, &[&self.role]).await.expect("a count").get(0)
    }

    /// The server takes so many connections of this role and no more.
    async fn limit(&self, connections: usize) {
        let limit = format!("ALTER ROLE {} CONNECTION LIMIT {connections}", self.role);
        self.admin.batch_execute(&limit).await.expect("a limit");
    }

    /// Ends the connection that is not the pool's.
    async fn end_witness(&self) {
        let own = "SELECT CAST(pg_backend_pid() AS BIGINT)";
        let own: i64 = self.store.system(Purpose::Cli).get_one(own, args![]).await.expect("the pool's own");
        let own = i32::try_from(own).expect("a process");
        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = $1 AND pid <> $2";
        assert_eq!(self.admin.query(end, &[&self.role, &own]).await.expect("an end").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_place_of_a_full_server_is_used() {
    let node = Node::start().await;
    node.limit(3).await;
    let (release, occupied) = occupy(&node.store.system(Purpose::Cli)).await;
    node.store.ping_read().await.expect("a second connection, beside the witness of the first");
    assert_eq!(node.connections().await, 3);
    drop(release);
    occupied.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_without_a_witness_is_not_used() {
    let node = Node::start().await;
    node.end_witness().await;
    node.limit(2).await;
    let (release, occupied) = occupy(&node.store.system(Purpose::Cli)).await;
    let refused = node.store.ping_read().await.expect_err("nobody can say whose the backend is");
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.to_string().contains("no second connection"), "{refused}");
    until("it is closed", PATIENCE, async || (node.connections().await == 1).then_some(())).await;
    // There is place again, and whoever comes next is served.
    node.limit(10).await;
    node.store.ping_read().await.expect("a connection and its witness");
    drop(release);
    occupied.await.unwrap().unwrap();
}

/// As one does that has too much to do: a node that is restarted then must not end.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_gives_the_second_connection_late_is_waited_for() {
    const LATE: Duration = Duration::from_secs(3);
    let database = fresh_database().await;
    let server = database.url.split(['@', '/']).nth(3).expect("an address").to_owned();
    let between = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = database.url.replace(&server, &between.local_addr().expect("its address").to_string());
    tokio::spawn(async move {
        for late in [Duration::ZERO, LATE] {
            let (mut near, _) = between.accept().await.expect("a connection");
            let server = server.clone();
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                let mut far = TcpStream::connect(server).await.expect("the server");
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let options = StoreOptions::postgres(PostgresOptions::new(url)).pool_max(1);
    let store = Store::open(options, Env::default()).await.expect("the store opens");
    store.ping_read().await.expect("a connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_closed_has_let_its_witness_go() {
    let node = Node::start().await;
    node.store.close().await;
    until("nobody is left", PATIENCE, async || (node.connections().await == 0).then_some(())).await;
}
