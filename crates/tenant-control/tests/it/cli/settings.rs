//! A flag, else its variable, else the TOML file, else the default.

use super::*;

#[test]
fn every_setting_is_a_flag_and_a_variable_of_the_same_name() {
    let help = Desk::new().run(&["serve", "--help"]).stdout;
    let mut names = Vec::new();
    for line in help.lines().filter_map(|line| line.trim_start().strip_prefix("--")) {
        let name = line.split(' ').next().unwrap().replace('-', "_");
        assert!(line.contains(&format!("[env: TENANT_CONTROL_{}", name.to_uppercase())), "{line}");
        names.push(name);
    }
    assert!(help.contains("[default: 127.0.0.1:8080]") && help.contains("[default: ./data]"), "{help}");
    for promised in [
        "listen",
        "base_url",
        "data_dir",
        "database_url",
        "tls_cert",
        "tls_key",
        "trusted_proxy",
        "log_format",
        "metrics_listen",
    ] {
        assert!(names.contains(&promised.to_owned()), "{promised}");
    }
}

/// The policies in force, by asking the server: `read` of a signed-in caller.
async fn read_limit(process: &Process) -> String {
    let answer = client().get(process.url(SESSION)).header("x-api-key", "x").send().await.unwrap();
    answer.headers()["ratelimit-policy"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flag_beats_a_variable_and_a_variable_beats_the_file() {
    let mut desk = Desk::new();
    desk.file(
        "settings.toml",
        "base_url = \"http://file.test\"\nrate_limit = [\"public=11\", \"read=22\"]\ndata-dir = \"from-file\"\n",
    );
    let shown = desk.serve(&["--config", "settings.toml"]);
    assert_eq!(shown.base_url, "http://file.test");
    assert_eq!(read_limit(&shown).await, "\"public\";q=11;w=60");
    assert!(desk.path("from-file/tenant-control.db").exists());
    drop(shown);

    desk.set("TENANT_CONTROL_BASE_URL", "http://variable.test");
    desk.set("TENANT_CONTROL_RATE_LIMIT", "public=33,write=44");
    desk.set("TENANT_CONTROL_CONFIG", "settings.toml");
    let shown = desk.serve(&[]);
    assert_eq!(shown.base_url, "http://variable.test");
    assert_eq!(read_limit(&shown).await, "\"public\";q=33;w=60");
    drop(shown);

    let shown = desk.serve(&["--base-url", "http://flag.test", "--rate-limit", "public=55", "--rate-limit", "read=66"]);
    assert_eq!(shown.base_url, "http://flag.test");
    assert_eq!(read_limit(&shown).await, "\"public\";q=55;w=60");
    drop(shown);

    desk.unset("TENANT_CONTROL_CONFIG");
    desk.unset("TENANT_CONTROL_BASE_URL");
    desk.unset("TENANT_CONTROL_RATE_LIMIT");
    let shown = desk.serve(&[]);
    assert_eq!(shown.base_url, format!("http://{}", shown.address));
    assert_eq!(read_limit(&shown).await, "\"public\";q=120;w=60");
}

#[test]
fn a_bad_value_is_refused_wherever_it_stands() {
    let mut desk = Desk::new();
    let wanted = "exit 2\nstderr:\nerror: invalid value 'nowhere' for '--listen <ADDRESS>': invalid socket address syntax\n\n\
                  For more information, try '--help'.\n";
    desk.file("settings.toml", "listen = \"nowhere\"");
    assert_eq!(desk.run(&["serve", "--listen", "nowhere"]).shown(&desk), wanted);
    assert_eq!(desk.run(&["--config", "settings.toml"]).shown(&desk), wanted);
    desk.set("TENANT_CONTROL_LISTEN", "nowhere");
    assert_eq!(desk.run(&["serve"]).shown(&desk), wanted);
}

/// What was sent must be known for as long as it can be sent again.
#[test]
fn events_are_not_kept_longer_than_what_became_of_them() {
    let mut desk = Desk::new();
    let wanted = |events: i64, deliveries: i64| {
        format!(
            "exit 2\nstderr:\nerror: --event-days {events} is more than --delivery-days {deliveries}: a recovery would send \
             again what had succeeded, because the log of it is gone. Keep deliveries at least as long as events.\n"
        )
    };
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let run = |desk: &Desk, more: &[&str]| desk.run(&[&serve[..], more].concat()).shown(desk);
    assert_eq!(run(&desk, &["--event-days", "91"]), wanted(91, 90));
    assert_eq!(run(&desk, &["--delivery-days", "7"]), wanted(30, 7));
    desk.set("TENANT_CONTROL_EVENT_DAYS", "8");
    assert_eq!(run(&desk, &["--delivery-days", "7"]), wanted(8, 7));
    assert!(!desk.path("data").exists(), "before anything is done");
    drop(desk.serve(&["--delivery-days", "8"]));
}

#[test]
fn a_flag_and_the_file_may_each_give_half_of_a_pair() {
    let desk = Desk::new();
    desk.file("settings.toml", "tls_key = \"key.pem\"");
    let ended = desk.run(&["serve", "--listen", "127.0.0.1:0", "--config", "settings.toml", "--tls-cert", "cert.pem"]);
    assert_eq!(ended.code, 1, "not a matter of usage: {ended:?}");
    assert!(ended.stderr.contains("cert.pem"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_serves_every_command_and_each_takes_what_it_knows() {
    let desk = Desk::new();
    desk.file(
        "settings.toml",
        "data_dir = \"elsewhere\"\nlog_format = \"json\"\nbase_url = \"https://tc.acme.test\"\ntrusted_proxy = []\n",
    );
    let config = ["--config", "settings.toml"];
    for arguments in [
        &["migrate"][..],
        &["admin", "tenant", "create", "--name", "Acme", "--slug", "acme"],
        &["admin", "user", "create", "--tenant", "acme", "--email", "a@acme.test", "--role", "admin"],
    ] {
        desk.json(&[arguments, &config].concat());
    }
    assert!(desk.path("elsewhere/tenant-control.db").exists() && !desk.path("data").exists());
    let session = ["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test"];
    let made = desk.json(&[&session[..], &config].concat());
    assert!(made["cookie"].as_str().unwrap().starts_with("__Host-session="), "{made}");
    let made = desk.json(&[&session[..], &config, &["--base-url", "http://tc.acme.test"]].concat());
    assert!(made["cookie"].as_str().unwrap().starts_with("session="), "{made}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_limits_hold_for_the_server_and_for_sessions_made_beside_it() {
    let desk = Desk::new();
    acme(&desk);
    let session =
        ["admin", "session", "create", "--tenant", "acme", "--email", "a@acme.test", "--session-idle-minutes", "1440"];
    let made = desk.json(&[&session[..], &["--session-max-hours", "1"]].concat());
    let process = desk.serve(&["--session-idle-minutes", "7"]);
    let (status, session) = get(&process, SESSION, ("cookie", made["cookie"].as_str().unwrap())).await;
    assert_eq!(status, 200);
    let (made, seen) = (made["expires_at"].as_str().unwrap(), session["expires_at"].as_str().unwrap());
    assert!(seen < made, "idle for 7 minutes comes before an hour: {seen} {made}");
}
