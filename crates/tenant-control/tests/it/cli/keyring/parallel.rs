//! Commands at the same time, on one secrets file and on copies of it.

use super::*;
use crate::support::command::Running;

/// As many as an impatient operator and two scripts start.
const COMMANDS: usize = 6;

#[test]
fn keys_that_are_added_at_the_same_time_are_all_there_and_each_is_named() {
    let desk = Desk::new();
    desk.serve(&[]).stop();
    let begun: Vec<_> = (0..COMMANDS).map(|_| desk.begin(&keyring(&["add", "--json"]))).collect();
    let mut added = Vec::new();
    for ended in begun.into_iter().map(Running::ends) {
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(answer["primary_id"], 1, "{answer}");
        added.push(u32::try_from(answer["id"].as_u64().unwrap()).unwrap());
    }
    added.sort_unstable();
    assert_eq!(added, [2, 3, 4, 5, 6, 7]);
    assert_eq!((keys(&desk), mode(&secrets_path(&desk))), ((vec![1, 2, 3, 4, 5, 6, 7], 1), 0o600));
    desk.serve(&[]).stop();
    assert!(status(&desk)["keys"].as_array().unwrap().iter().all(|key| key["in_secrets"] == true));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_that_add_a_key_at_the_same_time_one_is_told_of_the_other() {
    let database = fresh_database().await;
    let desks = two_nodes(&database.url);
    for round in 0..3 {
        let before = keys(&desks[0]).0;
        let begun = desks.each_ref().map(|desk| desk.begin(&keyring(&["add", "--json"])));
        let ended = begun.map(Running::ends);
        let winner = ended.iter().position(|ended| ended.code == 0).expect("one of them adds its key");
        let (won, lost) = (&ended[winner], &ended[1 - winner]);
        let id = u32::try_from(serde_json::from_str::<Value>(&won.stdout).unwrap()["id"].as_u64().unwrap()).unwrap();
        assert_eq!((keys(&desks[winner]).0, id), ([before.as_slice(), &[id]].concat(), round + 2));
        assert_eq!((lost.code, lost.stdout.as_str(), keys(&desks[1 - winner]).0), (1, "", before), "{}", lost.stderr);
        let told = format!("error: key {id} was added on another node");
        assert!(lost.stderr.starts_with(&told) && lost.stderr.contains("copy the secrets file"), "{}", lost.stderr);
        std::fs::copy(secrets_path(&desks[winner]), secrets_path(&desks[1 - winner])).unwrap();
    }
    for desk in &desks {
        desk.serve(&[]).stop();
        assert_eq!(keys(desk), (vec![1, 2, 3, 4], 1));
    }
}

#[test]
fn a_key_is_not_taken_away_from_under_a_command_that_makes_it_primary() {
    let desk = Desk::new();
    desk.serve(&[]).stop();
    desk.json(&keyring(&["add"]));
    let commands = [keyring(&["rotate", "--to", "2"]), keyring(&["remove", "--id", "2"])];
    let [rotated, removed] = commands.map(|words| desk.begin(&words)).map(Running::ends);
    match (rotated.code, removed.code) {
        (0, 1) => {
            assert_eq!(keys(&desk), (vec![1, 2], 2));
            assert!(removed.stderr.starts_with("error: key 2 is the primary"), "{}", removed.stderr);
        }
        (1, 0) => {
            assert_eq!(keys(&desk), (vec![1], 1));
            assert!(rotated.stderr.contains("key 2"), "{}", rotated.stderr);
        }
        other => panic!("{other:?}: {} {}", rotated.stderr, removed.stderr),
    }
    desk.serve(&[]).stop();
}
