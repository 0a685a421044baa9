//! Help, versions and mistakes.

use super::*;

#[test]
fn help_lists_the_commands() {
    let desk = Desk::new();
    for flag in ["--help", "-h", "help"] {
        let wanted = "\
exit 0
stdout:
A control plane for the IT of many customers: their tickets, devices and people, driven by an HTTP API that is safe to automate against.

Usage: tenant-control <COMMAND>

Commands:
  serve    Serve the API; the default when no command is given
  admin    Tenants, users and sessions, directly on the store, beside a running server
  migrate  Bring the database to this version's schema
  backup   Copy the embedded store to a file, consistently, while the server runs
  restore  Put a backup in place of the embedded store
  doctor   Check that everything the server needs is in order
  help     Print this message or the help of the given subcommand(s)

Options:
  -h, --help     Print help
  -V, --version  Print version
";
        assert_eq!(desk.run(&[flag]).shown(&desk), wanted);
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let desk = Desk::new();
    for flag in ["--version", "-V"] {
        assert_eq!(
            desk.run(&[flag]).shown(&desk),
            format!("exit 0\nstdout:\ntenant-control {}\n", env!("CARGO_PKG_VERSION"))
        );
    }
}

#[test]
fn wrong_usage_says_what_is_wrong_and_exits_2() {
    let desk = Desk::new();
    let more = "\nFor more information, try '--help'.\n";
    for (arguments, wanted) in [
        (&["--nope"][..], "error: unexpected argument '--nope' found\n\nUsage: tenant-control serve [OPTIONS]\n"),
        (
            &["serv"],
            "error: unrecognized subcommand 'serv'\n\n  tip: a similar subcommand exists: 'serve'\n\nUsage: tenant-control <COMMAND>\n",
        ),
        (
            &["serve", "--lisen", "x"],
            "error: unexpected argument '--lisen' found\n\n  tip: a similar argument exists: '--listen'\n\n\
             Usage: tenant-control serve --listen <ADDRESS>\n",
        ),
        (
            &["admin", "tenant", "create", "--name", "Acme"],
            "error: the following required arguments were not provided:\n  --slug <SLUG>\n\n\
             Usage: tenant-control admin tenant create --name <NAME> --slug <SLUG>\n",
        ),
        (
            &["admin", "user", "create", "--tenant", "a", "--email", "a@a.test", "--role", "boss"],
            "error: invalid value 'boss' for '--role <ROLE>': must be one of admin, technician, viewer\n",
        ),
        (
            &["serve", "--tls-cert", "x.pem"],
            "error: the following required arguments were not provided:\n  --tls-key <FILE>\n\n\
             Usage: tenant-control serve --tls-cert <FILE> --tls-key <FILE>\n",
        ),
    ] {
        assert_eq!(desk.run(arguments).shown(&desk), format!("exit 2\nstderr:\n{wanted}{more}"), "{arguments:?}");
    }
    let without = desk.run(&["admin"]);
    assert_eq!((without.code, without.stdout.as_str()), (2, ""));
    assert!(without.stderr.contains("Usage: tenant-control admin <COMMAND>"), "{}", without.stderr);
    assert!(desk.data_files().is_empty(), "a mistake leaves nothing behind");
}

#[test]
fn bad_values_are_named_with_what_would_be_right() {
    let desk = Desk::new();
    for (flag, value, wanted) in [
        ("--listen", "8080", "invalid socket address"),
        ("--listen", "localhost", "invalid socket address"),
        ("--base-url", "tc.example", "must be http://HOST[:PORT] or https://HOST[:PORT], without a path"),
        ("--base-url", "https://tc.example/path", "without a path"),
        ("--base-url", "ftp://tc.example", "must be http://HOST[:PORT]"),
        ("--trusted-proxy", "10.0.0.0/33", "--trusted-proxy <CIDR>"),
        ("--cors-origin", "*", "must be http://HOST[:PORT]"),
        (
            "--rate-limit",
            "1200",
            "write POLICY=N, where POLICY is one of read, write, search, export, ingest, auth, auth_failures, public",
        ),
        ("--rate-limit", "reads=1", "known are read, write, search, export, ingest, auth, auth_failures, public"),
        ("--rate-limit", "read=0", "N must be a whole number above 0"),
        ("--rate-limit", "read=-1", "N must be a whole number above 0"),
        ("--session-idle-minutes", "0", "1..=1440"),
        ("--session-max-hours", "721", "1..=720"),
        ("--audit-days", "0", "1..=36500"),
        ("--max-in-flight", "many", "--max-in-flight <N>"),
        ("--metrics-listen", "9090", "invalid socket address"),
        ("--log-format", "xml", "[possible values: text, json]"),
    ] {
        let ended = desk.run(&["serve", flag, value]);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{flag} {value}");
        assert!(
            ended.stderr.starts_with("error: ") && ended.stderr.contains(wanted),
            "{flag} {value}: {}",
            ended.stderr
        );
    }
    for level in ["", "a=b=c", "chatty", "info,loud", "info,", "kernel=loud", "kernel=", "=info"] {
        let ended = desk.run(&["serve", "--log-level", level]);
        assert!(ended.code != 0 && ended.stderr.contains("--log-level"), "{level}: {ended:?}");
    }
}

#[test]
fn an_unknown_variable_is_refused_with_the_one_that_was_meant() {
    for (name, wanted) in [
        ("TENANT_CONTROL_LISTN", "; did you mean TENANT_CONTROL_LISTEN?"),
        ("TENANT_CONTROL_DATABASE", "; did you mean TENANT_CONTROL_DATABASE_URL?"),
        ("TENANT_CONTROL_LOGFORMAT", "; did you mean TENANT_CONTROL_LOG_FORMAT?"),
        ("TENANT_CONTROL_ZZZ", "; known are: TENANT_CONTROL_LISTEN, TENANT_CONTROL_BASE_URL, "),
    ] {
        let mut desk = Desk::new();
        desk.set(name, "secret-value");
        for command in [&["serve"][..], &["doctor"], &["admin", "tenant", "list"]] {
            let ended = desk.run(command);
            let start = format!("error: unknown environment variable {name}{wanted}");
            assert!(ended.code == 2 && ended.stderr.starts_with(&start), "{ended:?}");
            assert!(!ended.stderr.contains("secret-value"));
        }
    }
}

#[test]
fn an_unknown_setting_in_the_file_is_refused_with_the_one_that_was_meant() {
    let desk = Desk::new();
    for (text, wanted) in [
        ("lisen = \"127.0.0.1:0\"", "unknown setting \"lisen\"; did you mean listen?"),
        ("base-ulr = \"http://a.test\"", "unknown setting \"base-ulr\"; did you mean base_url?"),
        ("zzz = 1", "unknown setting \"zzz\"; known are: listen, base_url, data_dir, "),
        ("config = \"other.toml\"", "unknown setting \"config\"; "),
        ("[listen]\nport = 1", "listen must be a text, a number, true or false, or a list of them"),
        ("listen = 1.5", "listen must be a text, a number, true or false, or a list of them"),
        ("allow_superuser = \"yes\"", "allow_superuser must be true or false"),
        ("listen = ", "settings.toml, line 1: "),
        ("listen = \"a\"\nlisten = \"b\"", "settings.toml, line 2: duplicate key"),
        // The line itself may hold a secret.
        ("\ndatabase_url = \"postgres://tc:hunter2@db.test/tc", "settings.toml, line 2: "),
    ] {
        desk.file("settings.toml", text);
        let ended = desk.run(&["serve", "--config", "settings.toml"]);
        assert_eq!(ended.code, 2, "{text}: {ended:?}");
        assert!(
            ended.stderr.starts_with("error: settings.toml") && ended.stderr.contains(wanted),
            "{text}: {}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    let ended = desk.run(&["doctor", "--config", "missing.toml"]);
    assert_eq!(ended.shown(&desk), "exit 2\nstderr:\nerror: missing.toml: No such file or directory (os error 2)\n");
}

#[test]
fn help_never_prints_the_database_password() {
    let mut desk = Desk::new();
    desk.set("TENANT_CONTROL_DATABASE_URL", "postgres://tc:hunter2@db.test/tc");
    desk.set("TENANT_CONTROL_SECRETS", "hunter2");
    for arguments in
        [&["serve", "--help"][..], &["doctor", "--help"], &["admin", "tenant", "list", "--help"], &["serve", "--nope"]]
    {
        let ended = desk.run(arguments);
        assert!(!ended.stdout.contains("hunter2") && !ended.stderr.contains("hunter2"), "{ended:?}");
    }
}
