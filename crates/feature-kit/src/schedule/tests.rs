use kernel::base::Timestamp;

use super::{CronSchedule, ScheduleField};

/// Asserts the next times after `after`.
#[track_caller]
fn assert_fires(cron: &str, zone: &str, after: &str, expected: &[&str]) {
    let schedule = CronSchedule::parse(cron, zone).unwrap();
    let mut at = Timestamp::parse(after).unwrap();
    for expected in expected {
        at = schedule.next_after(at).unwrap_or_else(|| panic!("{cron}: nothing after {at}"));
        assert_eq!(at, Timestamp::parse(expected).unwrap(), "{cron} in {zone}: {at} instead of {expected}");
    }
}

#[test]
fn a_schedule_follows_the_clocks_of_its_zone() {
    assert_fires(
        "0 9 * * MON-FRI",
        "Europe/Berlin",
        "2026-03-27T08:00:00Z",
        &["2026-03-30T07:00:00Z", "2026-03-31T07:00:00Z"],
    );
    assert_fires("*/15 * * * *", "UTC", "2026-01-01T00:00:00Z", &["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]);
    assert_fires("* * * * *", "UTC", "2026-01-01T00:00:30.500Z", &["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]);
    assert_fires("@daily", "Asia/Kolkata", "2026-01-01T00:00:00Z", &["2026-01-01T18:30:00Z"]);
    assert_fires("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    assert_fires("0 0 L * *", "UTC", "2026-02-01T00:00:00Z", &["2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]);
    assert_fires("0 0 1 * MON", "UTC", "2026-06-26T00:00:00Z", &["2026-06-29T00:00:00Z", "2026-07-01T00:00:00Z"]);
}

#[test]
fn new_york_loses_an_hour_and_has_one_twice() {
    // A fixed time in the skipped hour fires after the jump, and at its own time the next day.
    assert_fires(
        "30 2 * * *",
        "America/New_York",
        "2026-03-07T12:00:00Z",
        &["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
    );
    assert_fires(
        "*/15 * * * *",
        "America/New_York",
        "2026-03-08T06:30:00Z",
        &["2026-03-08T06:45:00Z", "2026-03-08T07:00:00Z", "2026-03-08T07:15:00Z"],
    );
    // A fixed time that occurs twice fires once; steps fire in both hours.
    assert_fires(
        "30 1 * * *",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
    );
    assert_fires(
        "*/30 * * * *",
        "America/New_York",
        "2026-11-01T05:00:00Z",
        &["2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:00:00Z"],
    );
}

#[test]
fn each_of_several_fixed_times_is_one() {
    let zone = "Europe/Berlin";
    assert_fires(
        "45 2,4 * * *",
        zone,
        "2027-03-27T12:00:00Z",
        &["2027-03-28T01:00:00Z", "2027-03-28T02:45:00Z", "2027-03-29T00:45:00Z"],
    );
    // Both are in the skipped hour, which has one end.
    assert_fires("15,45 2 * * *", zone, "2027-03-27T12:00:00Z", &["2027-03-28T01:00:00Z", "2027-03-29T00:15:00Z"]);
    assert_fires(
        "45 1-2 * * *",
        zone,
        "2027-10-30T12:00:00Z",
        &["2027-10-30T23:45:00Z", "2027-10-31T00:45:00Z", "2027-11-01T00:45:00Z"],
    );
    // Within the repeated hour its fixed times have already fired.
    assert_fires("15,45 2 * * *", zone, "2027-10-31T01:05:00Z", &["2027-11-01T01:15:00Z"]);
    assert_fires(
        "0,30 12 * * *",
        "Pacific/Apia",
        "2011-12-29T22:00:00Z",
        &["2011-12-29T22:30:00Z", "2011-12-30T22:00:00Z"],
    );
}

#[test]
fn lord_howe_changes_by_half_an_hour() {
    assert_fires(
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T00:00:00Z",
        &["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
    );
    assert_fires(
        "*/15 * * * *",
        "Australia/Lord_Howe",
        "2026-10-03T15:00:00Z",
        &["2026-10-03T15:15:00Z", "2026-10-03T15:30:00Z", "2026-10-03T15:45:00Z"],
    );
    assert_fires(
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T00:00:00Z",
        &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
    );
}

#[test]
fn a_day_that_never_was_is_passed_over() {
    // Samoa went from 29 to 31 December 2011.
    assert_fires(
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-29T00:00:00Z",
        &["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"],
    );
    assert_fires(
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-29T22:00:00Z",
        &["2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"],
    );
    assert_fires("0 12 30 12 *", "Pacific/Apia", "2011-06-01T00:00:00Z", &["2012-12-29T22:00:00Z"]);
    assert_fires(
        "*/30 * * * *",
        "Pacific/Apia",
        "2011-12-30T09:15:00Z",
        &["2011-12-30T09:30:00Z", "2011-12-30T10:00:00Z"],
    );
}

#[test]
fn times_only_go_on() {
    for zone in ["America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Africa/Casablanca", "Asia/Tehran", "UTC"]
    {
        for cron in ["30 2 * * *", "*/7 1-3 * * *", "0 * * * *", "0,30 0-4 * * SUN", "59 23 L * *"] {
            let schedule = CronSchedule::parse(cron, zone).unwrap();
            let mut at = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
            for _ in 0..400 {
                let next = schedule.next_after(at).unwrap();
                assert!(next > at, "{cron} in {zone}: {next} after {at}");
                at = next;
            }
        }
    }
}

#[test]
fn what_never_fires_is_refused_at_once() {
    let at = std::time::Instant::now();
    for cron in
        ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30-31 FEB *", "0 0 31 2,4 +MON", "0 0 30 2 +MON#5", "* * * * +"]
    {
        let fault = CronSchedule::parse(cron, "UTC").unwrap_err();
        assert_eq!((fault.field, fault.code), (ScheduleField::Cron, "never_fires"), "{cron}: {fault:?}");
    }
    assert!(at.elapsed().as_secs() < 60);
    // A rare schedule is accepted: this one fires once in 28 years.
    assert_fires("0 0 29 2 +MON", "UTC", "2026-01-01T00:00:00Z", &["2044-02-29T00:00:00Z"]);
}

#[test]
fn what_is_no_schedule_is_refused_by_its_field() {
    let long = "1,".repeat(60) + "1 * * * *";
    for cron in [
        "",
        " ",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "a b c d e",
        "@reboot",
        "@every 1s",
        "*/0 * * * *",
        "5-1 * * * *",
        "* * * * MON#9",
        "* * * * 8",
        "\u{1f980} * * * *",
        "ſ * * * *",
        &long,
    ] {
        let fault = CronSchedule::parse(cron, "UTC").expect_err(cron);
        assert_eq!((fault.field.name(), fault.code), ("cron", "invalid"), "{cron}: {fault:?}");
    }
    for zone in [
        "",
        "Mars/Olympus",
        "+02:00",
        "../../etc/passwd",
        "/etc/localtime",
        "localtime",
        "Europe/Berlin\0",
        &"x".repeat(1_000),
    ] {
        let fault = CronSchedule::parse("* * * * *", zone).expect_err(zone);
        assert_eq!((fault.field.name(), fault.code), ("timezone", "invalid"), "{zone}: {fault:?}");
    }
}

#[test]
fn random_patterns_never_panic() {
    const PARTS: &[&str] =
        &["*", "0", "7", "31", "59", "L", "W", "#", "/", "-", ",", "+", "?", "MON", "FEB", "@", " ", " ", " ", "é"];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..3_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(PARTS[usize::try_from(state >> 33).unwrap() % PARTS.len()]);
        }
        if let Ok(schedule) = CronSchedule::parse(&text, "Europe/Berlin") {
            assert!(schedule.next_after(Timestamp::from_millis(1_800_000_000_000)).is_some(), "{text}");
        }
    }
}

#[test]
fn what_lies_beyond_all_calendars_is_none() {
    let schedule = CronSchedule::parse("* * * * *", "UTC").unwrap();
    assert_eq!(schedule.next_after(Timestamp::from_millis(i64::MAX)), None);
    assert_eq!(schedule.next_after(Timestamp::parse("9999-12-31T23:59:30Z").unwrap()), None);
}
