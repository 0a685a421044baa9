//! Who ran a command: the trail names the person, as the operating system knows them.

use std::process::Command;

use super::*;
use crate::support::people::AUDIT;

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_names_the_user_who_ran_a_command() {
    let mut desk = Desk::new();
    let process = desk.serve(&[]);
    acme(&desk);
    let cookie = cookie(&desk);
    let user = Command::new("id").arg("-un").output().expect("id").stdout;
    let user = String::from_utf8(user).expect("a name").trim().to_owned();
    // Through sudo it is whoever did that. What could not be read in the trail is no name.
    for (slug, sudo_user, name) in [
        ("one", None, user.as_str()),
        ("two", Some("ann"), "ann"),
        ("three", Some("a\nb"), &user),
        ("four", Some(""), &user),
    ] {
        match sudo_user {
            Some(sudo_user) => desk.set("SUDO_USER", sudo_user),
            None => desk.unset("SUDO_USER"),
        }
        let create = ["admin", "organization", "create", "--tenant", "acme", "--name", "Globex", "--slug", slug];
        let made = desk.json(&create);
        let path = format!("{AUDIT}?target_id={}", made["id"].as_str().expect("an id"));
        let (_, trail) = get(&process, &path, ("cookie", &cookie)).await;
        assert_eq!(trail["data"][0]["actor"], json!({"type": "operator", "id": null, "name": name}), "{sudo_user:?}");
    }
}
