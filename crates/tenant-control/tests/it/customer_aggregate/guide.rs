//! The example of docs/backup.md, hour by hour.

use tenant_control::features::devices::Type;

use super::*;

const GUIDE: &str = include_str!("../../../../../docs/backup.md");

/// A moment of the example's week, such as `Tue 22:30`.
fn moment(text: &str) -> Timestamp {
    let (day, time) = text.split_once(' ').expect("a day and a time");
    let day = ["Mon", "Tue", "Wed", "Thu"].iter().position(|known| *known == day).expect("a day of the example");
    at(&format!("2026-03-{:02}T{time}:00Z", 2 + day))
}

/// The table's rows: when, and the grades of protection and of recoverability.
fn rows_of_the_guide() -> Vec<(String, [String; 2])> {
    let (_, table) = GUIDE.split_once("| time | what happens | protection | recoverability |\n").expect("the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells =
        rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('*', "")).collect::<Vec<_>>());
    cells.map(|cells| (cells[0].clone(), [cells[2].clone(), cells[3].clone()])).collect()
}

/// What each row says of reasons.
const REASONS: [(&str, &[&str]); 11] = [
    ("Mon 22:40", &[]),
    ("Tue 22:30", &["failures"]),
    ("Wed 00:30", &["failures", "too_few_copies"]),
    ("Wed 00:40", &["failures", "no_immutable", "no_offsite", "rpo_missed", "too_few_copies", "too_few_media"]),
    ("Wed 22:00", &["failures", "no_immutable", "no_offsite", "rpo_missed", "too_few_copies", "too_few_media"]),
    (
        "Thu 02:00",
        &["failures", "missed_run", "no_immutable", "no_offsite", "rpo_missed", "too_few_copies", "too_few_media"],
    ),
    (
        "Thu 02:40",
        &["failures", "missed_run", "no_immutable", "no_offsite", "rpo_missed", "too_few_copies", "too_few_media"],
    ),
    ("Thu 09:00", &["no_immutable", "no_offsite", "too_few_copies", "too_few_media"]),
    ("Thu 09:10", &[]),
    ("Thu 18:00", &["too_few_copies"]),
    ("Thu 18:10", &["no_immutable", "no_offsite", "rpo_missed", "too_few_copies", "too_few_media"]),
];

over_http! {
    async fn the_example_of_the_guide_goes_hour_by_hour_as_it_says(setup: Setup) {
        let own = Customer::open(setup).await;
        let db01 = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        let laptop = own.server.machine_of(&own.acme, "nb-anna", Some(&own.organization), Type::Laptop).await;
        own.set(&json!({"schedule": {"cron": "0 22 * * *", "timezone": "UTC"}, "targets": targets()})).await;
        let mut runs = vec![
            ("Mon 18:00", &laptop, "success", "nas"), ("Mon 18:10", &laptop, "success", "b2"),
            ("Mon 22:30", &db01, "success", "nas"), ("Mon 22:40", &db01, "success", "b2"), ("Tue 22:30", &db01, "failed", "nas"),
            ("Thu 09:00", &db01, "success", "nas"), ("Thu 09:10", &db01, "success", "b2"),
        ];
        for (nas, b2) in [("Mon 22:10", "Mon 22:20"), ("Tue 22:10", "Tue 22:20"), ("Wed 22:10", "Wed 22:20")] {
            runs.extend([(nas, &own.device, "success", "nas"), (b2, &own.device, "success", "b2")]);
        }
        runs.sort_by_key(|(time, ..)| moment(time));
        let last_week = moment("Mon 18:00").plus_ms(-4 * DAY_MS);
        own.server.judge_until(last_week).await;
        for device in [&own.device, &db01, &laptop] {
            own.report(&job(device, "verify", "success", last_week)).await;
            own.report(&job(device, "restore_test", "success", last_week)).await;
        }
        let mut runs = runs.into_iter().peekable();
        let rows = rows_of_the_guide();
        assert_eq!(rows.len(), REASONS.len());
        for ((time, told), (expected_at, expected)) in rows.iter().zip(REASONS) {
            assert_eq!(time, expected_at);
            while let Some((ended, device, status, target)) = runs.next_if(|(ended, ..)| moment(ended) <= moment(time)) {
                own.server.judge_until(moment(ended)).await;
                own.report(&with(&backup(device, status, moment(ended)), &json!({"target": target}))).await;
            }
            // At the moment itself a limit still holds.
            own.server.judge_until(moment(time).plus_ms(1)).await;
            let row = own.row().await;
            let mut codes: Vec<&str> = row["reasons"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect();
            codes.sort_unstable();
            assert_eq!((codes.as_slice(), &grades(&row)[..2]), (expected, &told.each_ref().map(String::as_str)[..]), "{time}: {row:#}");
            match expected_at {
                "Wed 00:40" => {
                    assert_eq!((&row["devices"]["protected"], &reason(&row, "rpo_missed")["since"]), (&json!(2), &json!(moment("Wed 00:40"))));
                }
                "Thu 02:40" => assert_eq!(reason(&row, "rpo_missed")["since"], json!(moment("Wed 00:40"))),
                "Thu 02:00" => assert_eq!(reason(&row, "missed_run")["since"], json!(moment("Wed 22:00"))),
                "Thu 09:10" => assert_eq!(counts(&row["jobs_24h"]), [4, 0, 0, 1]),
                _ => {}
            }
        }
    }
}
