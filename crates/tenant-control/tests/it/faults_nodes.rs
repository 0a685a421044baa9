//! Several nodes on one PostgreSQL: one set of secrets, one budget, one truth about keys.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use kernel::base::{Env, RandomSource, Secrets};
use tempfile::TempDir;

use crate::support::load::Api;
use crate::support::nodes::Nodes;
use crate::support::postgres::{connect, fresh_database};
use crate::support::process::{Launch, until};

const WAIT_MAX: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_key_revoked_on_one_node_is_refused_at_once_there_and_within_a_second_on_the_other() {
    let nodes = Nodes::start(|launch| launch).await;
    let [a, b] = nodes.apis();
    let bearers = [nodes.a.api(""), nodes.b.api("")];
    for round in 0..5 {
        let made = a.create_key(&format!("round{round}")).await.unwrap();
        assert_eq!(made.status, 201, "{}", made.body);
        let key = made.text("key");
        // Both nodes have read the key a moment ago, and may remember it.
        for bearer in &bearers {
            assert_eq!(bearer.list_with_key(&key).await.unwrap().status, 200);
        }
        assert_eq!(a.revoke_key(&made.text("id")).await.unwrap().status, 204);
        let revoked = Instant::now();
        assert_eq!(bearers[0].list_with_key(&key).await.unwrap().status, 401);
        let mut admitted_last = Duration::ZERO;
        until("the other node refuses the key", WAIT_MAX, async || {
            let sent = revoked.elapsed();
            let refused = bearers[1].list_with_key(&key).await.unwrap().status == 401;
            if !refused {
                admitted_last = sent;
            }
            refused.then_some(())
        })
        .await;
        assert!(admitted_last < Duration::from_secs(1), "admitted {admitted_last:?} after the revocation");
    }
    assert_eq!(b.status("/readyz").await, Some(200));
}

const QUOTA: u64 = 300;
/// Windows are fixed minutes: an attempt that began near the end of one is made again.
const ATTEMPTS_MAX: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_have_one_rate_budget() {
    let nodes = Nodes::start(|launch| launch.flag("--rate-limit", &format!("read={QUOTA}"))).await;
    for _ in 0..ATTEMPTS_MAX {
        let [a, b] = nodes.apis();
        if let Some((on_b, more_on_a)) = use_up_the_budget(&a, &b).await {
            assert_eq!(on_b, QUOTA / 2, "what node B admitted after node A had used half");
            assert!(more_on_a < QUOTA / 2, "node A went on although node B had used up the rest");
            return;
        }
    }
    panic!("no attempt fit into one minute");
}

/// Half of the budget on A, then as much as B gives: how much that was, and how much A gives until it knows. None when
/// a new minute began meanwhile.
async fn use_up_the_budget(a: &Api, b: &Api) -> Option<(u64, u64)> {
    let minute = || Env::default().now().as_millis().div_euclid(60_000);
    let started = minute();
    let same_minute = || (minute() == started).then_some(());
    for _ in 0..QUOTA / 2 {
        let admitted = read(a).await;
        same_minute()?;
        assert!(admitted.is_some(), "refused within the budget");
    }
    // Each look is a request too, and B knows best how many it has admitted.
    let mut on_b = looks_until_counted(b, || same_minute().is_some()).await;
    same_minute()?;
    while read(b).await.is_some() {
        on_b += 1;
        if on_b > 2 * QUOTA {
            break;
        }
    }
    same_minute()?;
    let mut more_on_a = 0;
    while read(a).await.is_some() {
        more_on_a += 1;
        tokio::time::sleep(READ_EVERY).await;
    }
    same_minute()?;
    Some((on_b, more_on_a))
}

/// How often a node reads while it has yet to learn what the other has used, which takes two seconds and on a busy
/// machine more: so slowly that it has not used up the rest of the budget itself by then.
const READ_EVERY: Duration = Duration::from_millis(50);

/// How many reads B admits until it knows that A has used half of the budget, or a new minute has begun.
async fn looks_until_counted(b: &Api, same_minute: impl Fn() -> bool) -> u64 {
    let mut on_b = 0;
    loop {
        let remaining = read(b).await;
        on_b += 1;
        let counted = remaining.is_none_or(|remaining| remaining <= (QUOTA / 2).saturating_sub(on_b));
        if counted || !same_minute() {
            return on_b;
        }
        assert!(on_b <= QUOTA, "node B gives more than there is");
        tokio::time::sleep(READ_EVERY).await;
    }
}

/// The counts are not lost when the database does not take them for a while.
#[tokio::test(flavor = "multi_thread")]
async fn use_that_could_not_be_reported_is_reported_when_it_can_be() {
    let nodes = Nodes::start(|launch| launch.flag("--rate-limit", &format!("read={QUOTA}"))).await;
    for _ in 0..ATTEMPTS_MAX {
        if let Some(on_b) = count_past_a_fault(&nodes).await {
            assert!(on_b < QUOTA / 2, "node B never heard of what node A had used");
            return;
        }
    }
    panic!("no attempt fit into one minute");
}

/// How much B admits until it knows that A has used half of the budget, which A could not report at first. None when a
/// new minute began meanwhile.
async fn count_past_a_fault(nodes: &Nodes) -> Option<u64> {
    let [a, b] = nodes.apis();
    let minute = || Env::default().now().as_millis().div_euclid(60_000);
    let started = minute();
    let failures = || nodes.a.stderr().matches("exchanging rate counts failed").count();
    let database = connect(&nodes.database.url).await;
    database.batch_execute("ALTER TABLE rate_usage RENAME TO away").await.unwrap();
    for _ in 0..QUOTA / 2 {
        read(&a).await?;
    }
    let before = failures();
    until("node A cannot report", WAIT_MAX, async || (failures() > before).then_some(())).await;
    database.batch_execute("ALTER TABLE away RENAME TO rate_usage").await.unwrap();
    let on_b = looks_until_counted(&b, || minute() == started).await;
    (minute() == started).then_some(on_b)
}

/// What is left of the budget after one more read; none when it was refused.
async fn read(api: &Api) -> Option<u64> {
    let reply = api.get("/api/admin/api-keys?limit=1").await.unwrap();
    match reply.status {
        200 => {
            let state = reply.header("ratelimit").expect("a RateLimit header");
            let remaining = state.split(';').find_map(|part| part.strip_prefix("r="));
            Some(remaining.expect("r=").parse().unwrap())
        }
        429 => {
            assert!(reply.header("retry-after").is_some());
            None
        }
        status => panic!("{status}: {}", reply.body),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_other_secrets_or_none_refuses_to_start() {
    let (database, folder) = (fresh_database().await, TempDir::new().unwrap());
    let first = Launch::on_database(&database.url, folder.path());
    let server = first.start().await;

    let other = TempDir::new().unwrap();
    let (code, said) = Launch::on_database(&database.url, other.path()).refused().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("copy it from a node that runs"), "{said}");
    assert!(!other.path().join("secrets.json").exists(), "secrets were made although the database has some");

    let file = other.path().join("others.json");
    std::fs::write(&file, Secrets::generate_text(&RandomSource::System).unwrap()).unwrap();
    let (code, said) = Launch::on_database(&database.url, other.path()).secrets_file(&file).refused().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("every node needs the same secrets file"), "{said}");
    assert_eq!(server.api("").status("/readyz").await, Some(200));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_started_at_once_on_an_empty_database_one_prints_the_sign_in_link() {
    let (database, folders) = (fresh_database().await, [TempDir::new().unwrap(), TempDir::new().unwrap()]);
    let secrets = Secrets::generate_text(&RandomSource::System).unwrap();
    let launch =
        |folder: &Path| Launch::on_database(&database.url, folder).variable("TENANT_CONTROL_SECRETS", &secrets);
    assert_eq!(links_of_two(&launch(folders[0].path()), &launch(folders[1].path())).await, 1);
}

/// The secrets too are made once when both nodes find none, and have one place to keep them.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_started_at_once_in_one_folder_both_start_with_the_same_secrets() {
    for _ in 0..3 {
        let (database, folder) = (fresh_database().await, TempDir::new().unwrap());
        let launch = Launch::on_database(&database.url, folder.path());
        assert_eq!(links_of_two(&launch, &launch).await, 1);
        // Whether the second came while the first had the index's folder is a matter of luck.
        let of_search = ["search", "search.lock", "search-2", "search-2.lock"];
        let entries = std::fs::read_dir(folder.path()).unwrap().flatten();
        let left = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let left: Vec<String> = left.filter(|name| !of_search.contains(&name.as_str())).collect();
        assert_eq!(left, ["secrets.json"]);
    }
}

/// Starts both at once, waits until both serve, ends them, and counts the sign-in links they have printed.
async fn links_of_two(first: &Launch, second: &Launch) -> usize {
    let mut nodes = [first.spawn(), second.spawn()];
    for node in &mut nodes {
        node.serves().await;
        node.terminate();
    }
    let mut links = 0;
    for node in &mut nodes {
        assert_eq!(node.exit(WAIT_MAX).await.code(), Some(0), "{}", node.stderr());
        links += node.stdout().matches("/signin?token=").count();
    }
    links
}

const PARALLEL: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn parallel_requests_with_one_idempotency_key_make_one_key_on_the_embedded_store() {
    let folder = TempDir::new().unwrap();
    let launch = Launch::on_folder(folder.path());
    let server = launch.start().await;
    makes_one_key(&[server.api(&launch.sign_in())]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_requests_with_one_idempotency_key_make_one_key_on_two_nodes() {
    let nodes = Nodes::start(|launch| launch).await;
    makes_one_key(&nodes.apis()).await;
}

async fn makes_one_key(nodes: &[Api]) {
    for round in 0..3 {
        let name = format!("parallel{round}");
        let requests = (0..PARALLEL).map(|n| {
            let (api, name) = (nodes[n % nodes.len()].clone(), name.clone());
            async move { api.create_key(&name).await.unwrap() }
        });
        let replies = requests.collect::<tokio::task::JoinSet<_>>().join_all().await;
        let mut answers = HashSet::new();
        for reply in replies {
            match (reply.status, reply.code()) {
                (201, _) => drop(answers.insert(reply.text("id"))),
                (409, "idempotency_in_progress") => {}
                (status, _) => panic!("{status}: {}", reply.body),
            }
        }
        let made = nodes[0].keys(&name).await;
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!(answers, HashSet::from([made[0].1.clone()]));
        // Whoever comes later gets the same answer, on every node.
        for api in nodes {
            let reply = api.create_key(&name).await.unwrap();
            assert_eq!((reply.status, reply.header("idempotency-replayed")), (201, Some("true")));
            assert_eq!(reply.text("id"), made[0].1);
        }
    }
}
