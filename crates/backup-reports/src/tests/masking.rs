use crate::text::{DETAIL_CHARS_MAX, clean_detail};

#[test]
fn passwords_of_urls_are_masked() {
    for (line, shown) in [
        ("rest:https://joe:hunter2@host:8000/x/", "rest:https://joe:***@host:8000/x/"),
        ("Head \"http://joe:hunter2@host/config\": refused", "Head \"http://joe:***@host/config\": refused"),
        ("https://joe:hun@ter2@host/x and ftp://a:b@c", "https://joe:***@host/x and ftp://a:***@c"),
        ("https://joe:hun/ter2@host/x", "https://joe:***@host/x"),
        ("https://:hunter2@host/x", "https://:***@host/x"),
        ("ssh://backup@host:22/./repository", "ssh://backup@host:22/./repository"),
        ("https://host:443/a@b", "https://host:443/a@b"),
        ("https://[::1]:443/a@b", "https://[::1]:443/a@b"),
        ("sftp://host/repository, try again", "sftp://host/repository, try again"),
    ] {
        assert_eq!(clean_detail(line), shown);
    }
}

#[test]
fn passwords_of_options_are_masked() {
    for (line, shown) in [
        ("RESTIC_PASSWORD=hunter2 restic backup", "RESTIC_PASSWORD=*** restic backup"),
        ("--Passphrase='hunter 2' BORG_PASSPHRASE=\"a b\" x", "--Passphrase=*** BORG_PASSPHRASE=*** x"),
        ("AWS_SECRET_ACCESS_KEY=a token= sig=b&c=d", "AWS_SECRET_ACCESS_KEY=*** token= sig=***&c=d"),
        ("size=3 a=b", "size=3 a=b"),
    ] {
        assert_eq!(clean_detail(line), shown);
    }
}

#[test]
fn a_url_that_is_cut_off_is_masked_whole() {
    let line = format!("see https://joe:{}@host", "p".repeat(10_000));
    assert_eq!(clean_detail(&line), "see https://***");
}

#[test]
fn a_detail_is_one_short_line_without_control_characters() {
    assert_eq!(clean_detail("\u{1b}[2Ksignal\tinterrupt\r\nreceived\u{7}\u{0}\u{202e}"), "signal interrupt  received");
    assert_eq!(clean_detail("\u{1b}[31"), "");
    let long = clean_detail(&"ä".repeat(5_000));
    assert_eq!(long.chars().count(), DETAIL_CHARS_MAX);
    assert!(long.ends_with('…'));
}
