//! What each reason takes, and which grade it leads to.

mod targets;

use tenant_control::features::devices::Type;

use super::*;

over_http! {
    async fn nobody_has_reported_and_all_is_unknown(setup: Setup) {
        let own = Customer::open(setup).await;
        let empty = organization(&own.server, &own.acme, "initech").await;
        for ms in [0, DAY_MS, 200 * DAY_MS] {
            own.server.judge_for(ms).await;
            let row = own.row().await;
            assert_eq!(grades(&row), ["unknown"; 3], "after {ms} ms: {row:#}");
            assert_eq!(reasons(&row), ["never_reported unknown"], "said once: {row:#}");
            assert_eq!(row["reasons"][0]["device_id"], Value::Null);
            assert_eq!(row["coverage_percent"], json!(0.0));
            let row = own.server.posture(&own.acme, Some(&empty)).await;
            assert_eq!((grades(&row), reasons(&row), &row["coverage_percent"]), (["unknown"; 3], Vec::new(), &Value::Null));
        }
        let totals = &own.server.aggregate(&own.acme, "").await["totals"];
        assert_eq!(totals["organizations"], json!({"total": 2, "ok": 0, "unknown": 2, "warning": 0, "critical": 0}));
        assert_eq!(own.server.grade_events(&own.acme).await, [], "nothing has changed");
    }

    async fn everything_done_is_ok_on_both_axes(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        own.do_everything().await;
        let row = own.row().await;
        assert_eq!((grades(&row), reasons(&row)), (["ok"; 3], Vec::new()), "{row:#}");
        let rule = json!({"copies": 3, "media": 2, "offsite": true, "immutable": true, "zero_errors": true});
        assert_eq!(row["rule_32110"], rule);
        let counted = json!({"total": 1, "in_scope": 1, "excluded": 0, "protected": 1, "unprotected": 0, "never_succeeded": 0});
        assert_eq!((&row["devices"], &row["coverage_percent"]), (&counted, &json!(100.0)));
    }

    async fn a_backup_grows_old_at_its_rpo_and_again_at_twice_the_rpo(setup: Setup) {
        let own = Customer::open(setup).await;
        let laptop = own.server.machine_of(&own.acme, "laptop", Some(&own.organization), Type::Laptop).await;
        own.set(&json!({"targets": targets(), "rpo_hours": {"server": 10, "workstation": 30}})).await;
        let start = own.server.now();
        own.back_up("success").await;
        own.report(&backup(&laptop, "success", start)).await;
        let states = async |hours: i64, ms: i64| {
            own.server.judge_until(start.plus_ms(hours * HOUR_MS + ms)).await;
            let row = own.row().await;
            let old: Vec<String> = reasons(&row).into_iter().filter(|one| one.starts_with("rpo")).collect();
            (grades(&row)[0].to_owned(), old.join(", "), row["devices"]["protected"].as_i64().unwrap())
        };
        let state = |health: &str, reasons: &str, protected| (health.to_owned(), reasons.to_owned(), protected);
        assert_eq!(states(10, 0).await, state("ok", "", 2));
        assert_eq!(states(10, 1).await, state("warning", "rpo_missed warning", 1));
        let since = own.row().await;
        assert_eq!(reason(&since, "rpo_missed"), &json!({
            "code": "rpo_missed", "severity": "warning", "device_id": own.device, "device_name": "web01", "since": start.plus_ms(10 * HOUR_MS), "detail": null
        }));
        assert_eq!(states(20, 0).await, state("warning", "rpo_missed warning", 1));
        assert_eq!(states(20, 1).await, state("critical", "rpo_missed critical", 1));
        assert_eq!(states(30, 0).await, state("critical", "rpo_missed critical", 1));
        assert_eq!(states(30, 1).await, state("critical", "rpo_missed critical, rpo_missed warning", 0));
        assert_eq!(states(60, 1).await, state("critical", "rpo_missed critical, rpo_missed critical", 0));
        let row = own.row().await;
        assert_eq!((&row["last_success_at"], &row["oldest_last_success_at"]), (&json!(start), &json!(start)));
        own.back_up("warning").await;
        own.report(&backup(&laptop, "warning", own.server.now())).await;
        let row = own.row().await;
        assert_eq!((grades(&row)[0], &row["last_success_at"]), ("ok", &json!(own.server.now())), "a warning has made a backup");
    }

    async fn a_silent_device_is_a_reason_once_another_has_reported(setup: Setup) {
        let own = Customer::open(setup).await;
        let start = own.server.now();
        own.set(&json!({"targets": targets(), "rpo_hours": {"server": 24, "workstation": 72}})).await;
        own.server.judge_for(HOUR_MS).await;
        let silent = own.server.machine(&own.acme, "silent", Some(&own.organization)).await;
        let made_at = own.server.now();
        own.back_up("success").await;
        let row = own.row().await;
        assert_eq!(reason(&row, "never_reported"), &json!({"code": "never_reported", "severity": "unknown", "device_id": silent, "device_name": "silent", "since": made_at, "detail": null}));
        assert_eq!(grades(&row)[0], "unknown");
        assert_eq!(row["devices"], json!({"total": 2, "in_scope": 2, "excluded": 0, "protected": 1, "unprotected": 1, "never_succeeded": 1}));
        assert_eq!((&row["coverage_percent"], &row["rpo"]), (&json!(50.0), &json!({"met": 1, "missed": 1, "percent": 50.0})));
        for (hours, severity) in [(25, "unknown"), (26, "warning"), (49, "warning"), (50, "critical")] {
            // The device is one hour younger than the start.
            let until = start.plus_ms(hours * HOUR_MS + i64::from(hours % 2 == 0) * (1 - HOUR_MS));
            own.server.judge_until(until).await;
            own.back_up("success").await;
            let row = own.row().await;
            assert_eq!(reason(&row, "never_reported")["severity"], severity, "{hours}: {row:#}");
            assert_eq!(grades(&row)[0], severity);
        }
    }

    async fn a_device_that_only_fails_is_critical(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"alert_after_failures": 3})).await;
        let first = own.server.now();
        for failures in 1..=4 {
            own.back_up("failed").await;
            let row = own.row().await;
            assert_eq!(reason(&row, "never_succeeded"), &json!({"code": "never_succeeded", "severity": "critical", "device_id": own.device, "device_name": "web01", "since": first, "detail": "nightly on nas: The script reported a failure and no message."}));
            assert_eq!((grades(&row), &row["max_consecutive_failures"]), (["critical", "unknown", "critical"], &json!(failures)));
            let alerts = reasons(&row).contains(&"failures warning".to_owned());
            assert_eq!(alerts, failures >= 3, "{row:#}");
            if alerts {
                assert_eq!(reason(&row, "failures")["since"], json!(first));
            }
            own.server.judge_for(HOUR_MS).await;
        }
        own.back_up("success").await;
        let row = own.row().await;
        assert_eq!((grades(&row)[0], &row["max_consecutive_failures"]), ("ok", &json!(0)));
        assert_eq!(counts(&row["jobs_24h"]), [1, 0, 4, 0]);
    }

    async fn failures_count_from_the_last_success_whatever_the_order(setup: Setup) {
        let own = Customer::open(setup).await;
        let start = own.server.now();
        let ended = |hours: i64| start.plus_ms(hours * HOUR_MS);
        own.server.judge_for(8 * HOUR_MS).await;
        for (hours, status, failures, since) in [
            (2, "failed", 1, Some(2)), (6, "failed", 2, Some(2)), (4, "success", 1, Some(6)), (3, "failed", 1, Some(6)),
            (5, "failed", 2, Some(5)), (1, "success", 2, Some(5)), (7, "warning", 0, None), (7, "prune", 0, None),
        ] {
            let report = match status {
                "prune" => job(&own.device, "prune", "failed", ended(hours)),
                _ => backup(&own.device, status, ended(hours)),
            };
            own.report(&report).await;
            let row = own.row().await;
            assert_eq!(row["max_consecutive_failures"], failures, "{status} at {hours}: {row:#}");
            if let Some(since) = since {
                assert_eq!(reason(&row, "failures")["since"], json!(ended(since)), "{status} at {hours}");
            } else {
                assert_eq!(grades(&row)[0], "ok");
            }
        }
    }

    async fn a_job_that_fails_is_not_hidden_by_what_succeeds_beside_it(setup: Setup) {
        let own = Customer::open(setup).await;
        let start = own.server.now();
        let run = |status: &str, hours: i64, job: &str, target: &str| {
            let report = backup(&own.device, status, start.plus_ms(hours * HOUR_MS));
            with(&report, &json!({"job": job, "target": target, "external_id": format!("{job} {target} {status} {hours}")}))
        };
        own.server.judge_for(6 * HOUR_MS).await;
        own.report(&run("failed", 1, "database", "nas")).await;
        // The files of the machine are safe; its database is not, nor is the copy elsewhere.
        for (hours, job, target) in [(2, "files", "nas"), (3, "database", "b2")] {
            own.report(&run("success", hours, job, target)).await;
            let row = own.row().await;
            assert_eq!((grades(&row)[0], &row["max_consecutive_failures"], &row["devices"]["protected"]), ("warning", &json!(1), &json!(1)));
            assert_eq!(reason(&row, "failures")["since"], json!(start.plus_ms(HOUR_MS)));
        }
        own.report(&run("failed", 2, "files", "b2")).await;
        own.report(&run("failed", 4, "files", "b2")).await;
        let row = own.row().await;
        assert_eq!((&row["max_consecutive_failures"], &reason(&row, "failures")["since"]), (&json!(2), &json!(start.plus_ms(HOUR_MS))));
        own.report(&run("success", 5, "database", "nas")).await;
        let row = own.row().await;
        assert_eq!((&row["max_consecutive_failures"], &reason(&row, "failures")["since"]), (&json!(2), &json!(start.plus_ms(2 * HOUR_MS))));
        own.report(&run("warning", 5, "files", "b2")).await;
        assert_eq!((grades(&own.row().await)[0], own.row().await["max_consecutive_failures"].clone()), ("ok", json!(0)));
    }

    async fn a_failure_says_which_job_failed_last_and_why(setup: Setup) {
        let own = Customer::open(setup).await;
        let failed = async |id: &str, job: &str, message: &str| {
            let report = backup(&own.device, "failed", own.server.now());
            own.report(&with(&report, &json!({"external_id": id, "job": job, "message": message}))).await;
            own.server.judge_for(1).await;
        };
        failed("1", "files", "disk full").await;
        let row = own.row().await;
        for code in ["failures", "never_succeeded"] {
            assert_eq!(reason(&row, code)["detail"], "files on nas: disk full");
        }
        assert_eq!(reason(&row, "too_few_copies")["detail"], json!(null));
        failed("2", "database", "could not connect to postgresql://backup:geheim@db01/shop").await;
        failed("3", "database", &"x".repeat(900)).await;
        let detail = reason(&own.row().await, "failures")["detail"].as_str().unwrap().to_owned();
        assert_eq!((&detail[..18], detail.len()), ("database on nas: x", 17 + 300));
        failed("4", "database", "could not connect to postgresql://backup:geheim@db01/shop").await;
        let row = own.row().await.to_string();
        assert!(row.contains("could not connect to postgresql://") && !row.contains("geheim"), "{row}");
    }

    async fn a_device_that_is_switched_on_below_what_is_switched_off_is_judged(setup: Setup) {
        let own = Customer::open(setup).await;
        own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.set(&json!({"enabled": false})).await;
        own.server.set_policy(&own.acme, &format!("device_id={}", own.device), &json!({"enabled": true})).await;
        assert_eq!((grades(&own.row().await), reasons(&own.row().await)), (["unknown"; 3], vec!["disabled unknown".to_owned()]));
        own.back_up("success").await;
        assert_eq!(grades(&own.row().await), ["unknown"; 3], "it is switched off, whatever goes well");
        own.server.judge_for(26 * HOUR_MS + 1).await;
        let row = own.row().await;
        assert_eq!((grades(&row), reasons(&row)), (["warning", "unknown", "warning"], vec!["disabled unknown".to_owned(), "rpo_missed warning".to_owned()]));
    }

    async fn a_job_that_failed_and_is_gone_is_forgotten_after_five_weeks(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"rpo_hours": {"server": 8784, "workstation": 8784}, "verification": {"every_days": null, "restore_test_every_days": null},
            "retention": {"keep_last": 0, "hourly": 0, "daily": 0, "weekly": 0, "monthly": 0, "yearly": 3}})).await;
        let failed = own.server.now();
        own.report(&with(&backup(&own.device, "failed", failed), &json!({"job": "before its new name"}))).await;
        own.back_up("success").await;
        own.server.judge_until(failed.plus_ms(35 * DAY_MS)).await;
        assert_eq!((grades(&own.row().await)[0], own.row().await["max_consecutive_failures"].clone()), ("warning", json!(1)));
        own.server.judge_for(1).await;
        assert_eq!((grades(&own.row().await)[0], own.row().await["max_consecutive_failures"].clone()), ("ok", json!(0)), "by the clock alone");
    }

    async fn what_is_damaged_is_not_hidden_by_what_is_sound(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        own.do_everything().await;
        own.server.judge_for(HOUR_MS).await;
        let verify = |status: &str, target: &str| {
            let report = job(&own.device, "verify", status, own.server.now());
            with(&report, &json!({"target": target, "external_id": format!("{target} {status} {}", own.server.now())}))
        };
        let found = own.server.now();
        own.report(&verify("failed", "b2")).await;
        own.server.judge_for(HOUR_MS).await;
        own.report(&verify("success", "nas")).await;
        let row = own.row().await;
        assert_eq!((grades(&row)[1], &reason(&row, "errors_found")["since"]), ("critical", &json!(found)));
        assert_eq!(row["rule_32110"]["zero_errors"], false);
        own.report(&verify("success", "b2")).await;
        assert_eq!(grades(&own.row().await), ["ok"; 3]);
    }

    async fn backups_that_are_not_verified_are_overdue_and_errors_are_critical(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({
            "targets": targets(), "rpo_hours": {"server": 8784, "workstation": 8784}, "verification": {"every_days": 7, "restore_test_every_days": null},
            "retention": {"keep_last": 0, "hourly": 0, "daily": 0, "weekly": 0, "monthly": 0, "yearly": 3},
        })).await;
        let start = own.server.now();
        for target in TARGETS {
            let report = backup(&own.device, "success", start);
            own.report(&with(&report, &json!({"target": target, "external_id": target}))).await;
        }
        own.server.judge_until(start.plus_ms(7 * DAY_MS)).await;
        let row = own.row().await;
        assert_eq!((grades(&row), &row["rule_32110"]["zero_errors"]), (["ok"; 3], &json!(false)), "{row:#}");
        own.server.judge_for(1).await;
        let row = own.row().await;
        assert_eq!(grades(&row), ["ok", "warning", "warning"]);
        assert_eq!(reason(&row, "verification_overdue"), &json!({
            "code": "verification_overdue", "severity": "warning", "device_id": own.device, "device_name": "web01", "since": start.plus_ms(7 * DAY_MS), "detail": null
        }));
        assert_eq!(row["verification"], json!({"every_days": 7, "last_success_at": null, "oldest_last_success_at": null, "overdue": 1}));
        let verified = own.server.now();
        own.report(&job(&own.device, "verify", "warning", verified)).await;
        let row = own.row().await;
        assert_eq!((grades(&row), &row["rule_32110"]["zero_errors"]), (["ok"; 3], &json!(true)));
        assert_eq!(row["verification"], json!({"every_days": 7, "last_success_at": verified, "oldest_last_success_at": verified, "overdue": 0}));
        own.server.judge_for(HOUR_MS).await;
        let failed = own.server.now();
        own.report(&job(&own.device, "verify", "failed", failed)).await;
        let row = own.row().await;
        assert_eq!((grades(&row), &row["rule_32110"]["zero_errors"]), (["ok", "critical", "critical"], &json!(false)));
        assert_eq!(reason(&row, "errors_found"), &json!({"code": "errors_found", "severity": "critical", "device_id": own.device, "device_name": "web01", "since": failed, "detail": "on nas"}));
        // A verification of before, which comes late, proves nothing of what was found since.
        own.report(&job(&own.device, "verify", "success", failed.plus_ms(-1_000))).await;
        assert_eq!(grades(&own.row().await)[1], "critical");
        own.server.judge_for(HOUR_MS).await;
        own.report(&job(&own.device, "verify", "success", own.server.now())).await;
        assert_eq!(grades(&own.row().await), ["ok"; 3]);
    }

    async fn a_verification_that_could_not_run_is_overdue_and_found_no_errors(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        own.do_everything().await;
        own.server.judge_for(HOUR_MS).await;
        let report = job(&own.device, "verify", "success", own.server.now());
        let mut locked = crate::tickets::without(&report, &["status"]);
        locked = with(&locked, &json!({"tool": "restic", "exit_code": 1, "stderr": "Fatal: wrong password or no key found"}));
        assert_eq!(own.report(&locked).await["status"], "failed");
        let failed = own.server.now();
        let row = own.row().await;
        assert_eq!((grades(&row), reasons(&row)), (["ok", "warning", "warning"], vec!["verification_overdue warning".to_owned()]), "{row:#}");
        let told = reason(&row, "verification_overdue");
        assert_eq!((&told["since"], &told["device_id"]), (&json!(failed), &json!(own.device)));
        assert!(told["detail"].as_str().unwrap().starts_with("nightly on nas: The password of the repository is wrong."), "{told}");
        assert_eq!((&row["verification"]["overdue"], &row["rule_32110"]["zero_errors"]), (&json!(1), &json!(false)));
        // Of another target, and of before.
        for (target, ended) in [("b2", failed), ("nas", failed.plus_ms(-1))] {
            let good = job(&own.device, "verify", "success", ended);
            own.report(&with(&good, &json!({"target": target, "external_id": format!("good on {target}")}))).await;
            assert_eq!(reasons(&own.row().await), ["verification_overdue warning"], "{target}");
        }
        let damaged = with(&locked, &json!({
            "external_id": "damaged", "stdout": "{\"message_type\":\"summary\",\"num_errors\":2,\"broken_packs\":null,\"suggest_repair_index\":false,\"suggest_prune\":false}",
            "stderr": "Fatal: repository contains errors",
        }));
        assert_eq!(own.report(&damaged).await["status"], "failed");
        assert_eq!(reasons(&own.row().await), ["errors_found critical"]);
        own.server.judge_for(HOUR_MS).await;
        own.report(&job(&own.device, "verify", "success", own.server.now())).await;
        assert_eq!(grades(&own.row().await), ["ok"; 3]);
    }

    async fn a_restore_test_that_fails_is_a_reason_until_one_succeeds(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        own.do_everything().await;
        own.server.judge_for(HOUR_MS).await;
        let failed = own.server.now();
        let report = job(&own.device, "restore_test", "failed", failed);
        own.report(&with(&report, &json!({"job": "monthly", "message": "3 files differ"}))).await;
        // Neither a success nor a failure of before changes anything.
        own.report(&job(&own.device, "restore_test", "success", failed.plus_ms(-1_000))).await;
        own.report(&job(&own.device, "restore_test", "failed", failed.plus_ms(-2_000))).await;
        let row = own.row().await;
        assert_eq!((grades(&row), reasons(&row)), (["ok", "warning", "warning"], vec!["restore_test_overdue warning".to_owned()]), "{row:#}");
        assert_eq!(reason(&row, "restore_test_overdue"), &json!({
            "code": "restore_test_overdue", "severity": "warning", "device_id": null, "device_name": null, "since": failed, "detail": "monthly on nas: 3 files differ"
        }));
        assert_eq!(row["restore_test"]["overdue"], true);
        let nothing_asked = json!({"targets": targets(), "verification": {"every_days": null, "restore_test_every_days": null}});
        own.set(&nothing_asked).await;
        assert_eq!(grades(&own.row().await)[1], "warning", "it failed, although nobody has asked for it");
        own.server.judge_for(HOUR_MS).await;
        own.report(&job(&own.device, "restore_test", "success", own.server.now())).await;
        let row = own.row().await;
        assert_eq!((grades(&row), &row["restore_test"]["overdue"]), (["ok"; 3], &json!(false)));
    }

    async fn one_restore_test_is_enough_for_the_whole_customer(setup: Setup) {
        let own = Customer::open(setup).await;
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.set(&json!({"verification": {"every_days": null, "restore_test_every_days": 5}})).await;
        let start = own.server.now();
        own.back_up("success").await;
        own.server.judge_until(start.plus_ms(5 * DAY_MS)).await;
        assert_eq!(own.row().await["restore_test"], json!({"every_days": 5, "last_success_at": null, "overdue": false}));
        own.server.judge_for(1).await;
        let row = own.row().await;
        assert_eq!(row["restore_test"], json!({"every_days": 5, "last_success_at": null, "overdue": true}));
        assert_eq!(reason(&row, "restore_test_overdue"), &json!({
            "code": "restore_test_overdue", "severity": "warning", "device_id": null, "device_name": null, "since": start.plus_ms(5 * DAY_MS), "detail": null
        }));
        own.report(&job(&other, "restore_test", "failed", own.server.now())).await;
        assert_eq!(own.row().await["restore_test"]["overdue"], true);
        let tested = own.server.now();
        own.report(&with(&job(&other, "restore_test", "success", tested), &json!({"external_id": "again"}))).await;
        assert_eq!(own.row().await["restore_test"], json!({"every_days": 5, "last_success_at": tested, "overdue": false}));
        assert_eq!(own.row().await["verification"]["every_days"], Value::Null);
    }

    async fn a_target_counts_while_every_device_has_a_fresh_success_on_it(setup: Setup) {
        let own = Customer::open(setup).await;
        own.do_everything().await;
        let row = own.row().await;
        assert_eq!(row["rule_32110"], json!({"copies": 1, "media": 1, "offsite": false, "immutable": false, "zero_errors": true}));
        let nothing_named = ["no_immutable unknown", "no_offsite unknown", "too_few_copies unknown", "too_few_media unknown"];
        assert_eq!((reasons(&row), grades(&row)), (nothing_named.map(str::to_owned).to_vec(), ["ok", "unknown", "unknown"]));
        assert!(row["reasons"].as_array().unwrap().iter().all(|one| one["device_id"].is_null()));
        own.set(&json!({"targets": targets()})).await;
        assert_eq!(grades(&own.row().await), ["ok"; 3]);
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.report(&backup(&other, "success", own.server.now())).await;
        let row = own.row().await;
        assert_eq!(row["rule_32110"], json!({"copies": 2, "media": 1, "offsite": false, "immutable": false, "zero_errors": false}));
        assert_eq!(reasons(&row), ["no_immutable warning", "no_offsite warning", "too_few_copies warning", "too_few_media warning"]);
        let since = own.server.now();
        own.server.judge_for(HOUR_MS).await;
        assert_eq!(reason(&own.row().await, "no_offsite")["since"], json!(since), "it stays since when");
        let offsite = backup(&other, "warning", own.server.now());
        own.report(&with(&offsite, &json!({"target": "b2", "external_id": "offsite"}))).await;
        assert_eq!(grades(&own.row().await), ["ok"; 3]);
        // Beyond the RPO of its oldest device on each target.
        own.server.judge_until(since.plus_ms(26 * HOUR_MS + 1)).await;
        let row = own.row().await;
        assert_eq!(row["rule_32110"]["copies"], 1, "{row:#}");
        assert_eq!(reasons(&row).iter().filter(|one| one.starts_with("rpo")).count(), 1, "only of web01: {row:#}");
    }

    async fn switched_off_is_unknown_and_says_so(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        own.do_everything().await;
        own.set(&json!({"targets": targets(), "enabled": false})).await;
        let row = own.row().await;
        assert_eq!((grades(&row), reasons(&row)), (["unknown"; 3], vec!["disabled unknown".to_owned()]));
        assert_eq!(row["reasons"][0]["device_id"], Value::Null);
        own.server.judge_for(400 * DAY_MS).await;
        assert_eq!(reasons(&own.row().await), ["disabled unknown"]);
        own.set(&json!({"targets": targets()})).await;
        assert_eq!(grades(&own.row().await), ["critical", "warning", "critical"]);
        own.do_everything().await;
        assert_eq!(grades(&own.row().await), ["ok"; 3]);
        own.server.set_policy(&own.acme, &format!("device_id={}", own.device), &json!({"enabled": false})).await;
        let row = own.row().await;
        assert_eq!(reason(&row, "disabled")["device_id"], json!(own.device));
        assert_eq!((grades(&row), reasons(&row)), (["unknown"; 3], vec!["disabled unknown".to_owned()]), "of the only device: {row:#}");
    }

    async fn a_device_that_is_switched_off_says_nothing_of_the_copies_of_others(setup: Setup) {
        let own = Customer::open(setup).await;
        let retired = own.server.machine(&own.acme, "retired", Some(&own.organization)).await;
        own.set(&json!({"targets": targets()})).await;
        own.do_everything().await;
        own.report(&backup(&retired, "success", own.server.now())).await;
        assert_eq!(own.row().await["rule_32110"]["copies"], 2);
        own.server.set_policy(&own.acme, &format!("device_id={retired}"), &json!({"enabled": false})).await;
        let row = own.row().await;
        assert_eq!((grades(&row), reasons(&row)), (["unknown", "ok", "unknown"], vec!["disabled unknown".to_owned()]), "{row:#}");
        assert_eq!(row["rule_32110"], json!({"copies": 3, "media": 2, "offsite": true, "immutable": true, "zero_errors": true}));
        assert_eq!(row["devices"]["in_scope"], 2);
        own.server.set_policy(&own.acme, &format!("device_id={retired}"), &json!({})).await;
        assert_eq!(own.row().await["rule_32110"]["copies"], 2);
    }

    async fn a_job_that_fails_on_a_target_that_the_policy_does_not_name_is_forgotten(setup: Setup) {
        let own = Customer::open(setup).await;
        own.do_everything().await;
        let failed = backup(&own.device, "failed", own.server.now());
        own.report(&with(&failed, &json!({"target": "usb", "message": "no such disk"}))).await;
        let row = own.row().await;
        assert_eq!((&reason(&row, "failures")["detail"], &row["max_consecutive_failures"]), (&json!("nightly on usb: no such disk"), &json!(1)));
        own.set(&json!({"targets": targets()})).await;
        let row = own.row().await;
        assert_eq!((grades(&row), &row["max_consecutive_failures"]), (["ok"; 3], &json!(0)), "{row:#}");
        own.report(&with(&failed, &json!({"target": "nas", "job": "database", "external_id": "on nas"}))).await;
        assert_eq!(reason(&own.row().await, "failures")["detail"], "database on nas: The script reported a failure and no message.");
        own.set(&json!({})).await;
        assert_eq!(own.row().await["max_consecutive_failures"], json!(1), "where none is named, all count");
    }

    async fn the_bytes_of_the_newest_backups_add_up(setup: Setup) {
        let own = Customer::open(setup).await;
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        let now = own.server.now();
        for (device, minutes, status, size, sum) in [
            (&own.device, 10, "success", 700, 700), (&own.device, 20, "success", 900, 700), (&own.device, 5, "warning", 800, 800),
            (&other, 10, "success", 50, 850), (&own.device, 1, "failed", 1, 850),
        ] {
            let report = backup(device, status, now.plus_ms(-minutes * MINUTE_MS));
            own.report(&with(&report, &json!({"size_bytes": size}))).await;
            assert_eq!(own.row().await["storage_bytes"], sum, "{minutes}");
        }
        assert_eq!(own.server.aggregate(&own.acme, "").await["totals"]["storage_bytes"], 850);
    }

    async fn bytes_are_of_each_job_on_each_target_whatever_the_order_of_reports(setup: Setup) {
        let own = Customer::open(setup).await;
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        let now = own.server.now();
        // One without a size tells nothing of it, and of two that ended together the larger counts.
        let mut runs = [
            ("nightly", "nas", 10_i64, Some(700)), ("nightly", "nas", 5, None), ("database", "nas", 1, Some(40)), ("nightly", "b2", 9, Some(600)),
            ("nightly", "nas", 10, Some(650)), ("nightly", "nas", 11, Some(900)),
        ];
        for device in [&own.device, &other] {
            for (n, (job, target, minutes, size)) in runs.iter().enumerate() {
                let report = backup(device, "success", now.plus_ms(-minutes * MINUTE_MS));
                let more = json!({"job": job, "target": target, "size_bytes": size, "external_id": format!("{device} {n}")});
                own.report(&with(&report, &more)).await;
            }
            runs.reverse();
        }
        assert_eq!(own.row().await["storage_bytes"], 2 * (700 + 40 + 600));
        // Jobs that are gone beside one that goes on are forgotten; a device that reports no more is not.
        own.server.judge_until(now.plus_ms(35 * DAY_MS)).await;
        own.report(&with(&backup(&own.device, "success", own.server.now()), &json!({"size_bytes": 800}))).await;
        assert_eq!(own.row().await["storage_bytes"], 800 + 1_340);
    }
}
