//! Times and durations, to the nanosecond.

use serde_json::json;

use super::{Fails, Gives, Refused, assert_rows, assert_true};

#[test]
fn nanoseconds_are_kept() {
    assert_rows(&[
        Gives("timestamp('2026-01-02T03:04:05.123456789Z')", json!("2026-01-02T03:04:05.123456789Z")),
        Gives("string(timestamp('2026-01-02T03:04:05.123456789Z'))", json!("2026-01-02T03:04:05.123456789Z")),
        Gives("timestamp('2026-01-02T03:04:05Z') + duration('1ns')", json!("2026-01-02T03:04:05.000000001Z")),
        Gives("timestamp('2026-01-02T03:04:05Z') - duration('1us')", json!("2026-01-02T03:04:04.999999Z")),
        Gives("duration('1.000000001s')", json!("1.000000001s")),
        Gives("duration('-1ms1us1ns')", json!("-0.001001001s")),
        Gives("duration('2us') + duration('3ns')", json!("0.000002003s")),
        Gives("timestamp('1969-12-31T23:59:59.5Z')", json!("1969-12-31T23:59:59.500Z")),
        Refused("timestamp('2026-01-02T03:04:05.1234567891Z')", "RFC 3339"),
    ]);
    assert_true(&[
        "timestamp('2026-01-01T00:00:00.000000002Z') - timestamp('2026-01-01T00:00:00Z') == duration('2ns')",
        "timestamp('1969-12-31T23:59:59.999999999Z') < timestamp(0)",
        "timestamp('0001-01-01T00:00:00.5Z') - duration('0.5s') == timestamp('0001-01-01T00:00:00Z')",
    ]);
}

#[test]
fn times_are_of_the_years_1_to_9999_and_durations_of_292_years() {
    assert_rows(&[
        Gives("string(timestamp('9999-12-31T23:59:59.999999999Z'))", json!("9999-12-31T23:59:59.999999999Z")),
        Gives("string(timestamp('0001-01-01T00:00:00Z'))", json!("0001-01-01T00:00:00Z")),
        Refused("timestamp('0000-12-31T23:59:59Z')", "years 1 to 9999"),
        Refused("timestamp('10000-01-01T00:00:00Z')", "years 1 to 9999"),
        Refused("timestamp('0001-01-01T00:00:00+00:01')", "years 1 to 9999"),
        Refused("timestamp('2026-02-30T00:00:00Z')", "RFC 3339"),
        Refused("timestamp('2026-01-02 03:04:05Z')", "RFC 3339"),
        Refused("timestamp('2026-01-02T03:04:05')", "RFC 3339"),
        Refused("duration('2562048h')", "292 years"),
        Refused("duration('1d')", "a duration"),
        Refused("duration('')", "a duration"),
        Fails("timestamp(253402300800)", "years 1 to 9999"),
        Fails("timestamp('9999-12-31T23:59:59.999999999Z') + duration('1ns')", "years 1 to 9999"),
        Fails("timestamp('0001-01-01T00:00:00Z') - duration('1ns')", "years 1 to 9999"),
        Fails("timestamp('9999-01-01T00:00:00Z') - timestamp('0001-01-01T00:00:00Z')", "out of range"),
        Fails("duration('2562047h') + duration('1h')", "out of range"),
        Fails("duration('1h') + 1", "+ cannot take duration and int"),
        Fails("timestamp(0) + timestamp(0)", "+ cannot take timestamp and timestamp"),
    ]);
}

#[test]
fn parts_are_of_utc_or_of_a_zone() {
    const AT: &str = "timestamp('2026-03-29T23:45:10.250Z')";
    let parts = |call: &str| format!("{AT}.{call}");
    for (call, expected) in [
        ("getFullYear()", 2026),
        ("getMonth()", 2),
        ("getDate()", 29),
        ("getDayOfMonth()", 28),
        ("getDayOfWeek()", 0),
        ("getDayOfYear()", 87),
        ("getHours()", 23),
        ("getMinutes()", 45),
        ("getSeconds()", 10),
        ("getMilliseconds()", 250),
        ("getDate('Europe/Berlin')", 30),
        ("getHours('Europe/Berlin')", 1),
        ("getMinutes('Asia/Kathmandu')", 30),
        ("getHours('-02:30')", 21),
        ("getMinutes('-02:30')", 15),
        ("getHours('02:00')", 1),
        ("getDayOfWeek('+01:00')", 1),
    ] {
        assert_eq!(super::eval_source(&parts(call)).unwrap(), json!(expected), "{call}");
    }
    assert_rows(&[
        Gives("timestamp('9999-12-31T23:59:59Z').getHours('America/New_York')", json!(18)),
        Fails("timestamp('9999-12-31T23:59:59Z').getHours('+01:00')", "years 1 to 9999"),
        Refused("now.getHours('Nowhere')", "time zone"),
        Refused("now.getHours('+25:00')", "time zone"),
    ]);
}

#[test]
fn parts_of_a_duration_are_whole_units() {
    assert_rows(&[
        Gives("duration('3h59m').getHours() + duration('-90m').getHours()", json!(2)),
        Gives("duration('90s').getMinutes() + duration('1h').getMinutes()", json!(61)),
        Gives("duration('90.9s').getSeconds()", json!(90)),
        Gives("duration('1.2345s').getMilliseconds()", json!(234)),
        Fails("duration('1h').getDate()", "getDate cannot take (duration)"),
        Fails("duration('1h').getHours('UTC')", "getHours cannot take (duration, string)"),
    ]);
}
