//! Which devices count, and for whom.

use tenant_control::features::devices::Type;

use super::*;

impl Customer {
    async fn devices(&self) -> [i64; 4] {
        let row = self.row().await;
        ["total", "in_scope", "excluded", "protected"].map(|name| row["devices"][name].as_i64().unwrap())
    }

    async fn move_to(&self, device: &str, organization: Option<&str>) {
        let to = organization.map(|id| id.parse().unwrap());
        self.server.edit_device(&self.acme, device, move |full| full.device.organization_id = to).await;
    }
}

over_http! {
    async fn an_excluded_device_is_counted_and_not_judged(setup: Setup) {
        let own = Customer::open(setup).await;
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.back_up("success").await;
        own.report(&backup(&other, "failed", own.server.now())).await;
        assert_eq!((own.devices().await, grades(&own.row().await)[0].to_owned()), ([2, 2, 0, 1], "critical".to_owned()));
        let excluding = json!({"targets": targets(), "excluded_devices": [{"id": other, "reason": "A test machine"}]});
        own.set(&excluding).await;
        let row = own.row().await;
        assert_eq!((own.devices().await, grades(&row)[0]), ([2, 1, 1, 1], "ok"));
        assert!(row["reasons"].as_array().unwrap().iter().all(|one| one["device_id"] != other), "{row:#}");
        assert_eq!((&row["max_consecutive_failures"], &row["coverage_percent"]), (&json!(0), &json!(100.0)));
        // What ran is still said.
        assert_eq!(counts(&row["jobs_24h"]), [1, 0, 1, 0]);
        own.server.judge_for(HOUR_MS).await;
        own.report(&backup(&other, "failed", own.server.now())).await;
        assert_eq!((own.devices().await, counts(&own.row().await["jobs_24h"])), ([2, 1, 1, 1], [1, 0, 2, 0]));
        own.set(&json!({})).await;
        let row = own.row().await;
        assert_eq!((grades(&row)[0], &row["max_consecutive_failures"]), ("critical", &json!(2)), "nothing was forgotten");
    }

    async fn a_device_that_is_excluded_by_the_tenant_is_so_until_a_level_below_says_otherwise(setup: Setup) {
        let own = Customer::open(setup).await;
        own.server.set_policy(&own.acme, "", &json!({"excluded_devices": [{"id": own.device, "reason": "Lent"}]})).await;
        assert_eq!(own.devices().await, [1, 0, 1, 0]);
        let row = own.row().await;
        assert_eq!((grades(&row), &row["coverage_percent"]), (["unknown"; 3], &Value::Null));
        own.set(&json!({"excluded_devices": []})).await;
        assert_eq!(own.devices().await, [1, 1, 0, 0]);
    }

    async fn switches_and_printers_count_once_they_report(setup: Setup) {
        let own = Customer::open(setup).await;
        let switch = own.server.machine_of(&own.acme, "switch", Some(&own.organization), Type::Network).await;
        own.server.machine_of(&own.acme, "printer", Some(&own.organization), Type::Printer).await;
        own.server.machine_of(&own.acme, "virtual", Some(&own.organization), Type::Virtual).await;
        assert_eq!(own.devices().await, [2, 2, 0, 0]);
        own.back_up("success").await;
        own.report(&job(&switch, "verify", "success", own.server.now())).await;
        assert_eq!(own.devices().await, [2, 2, 0, 1], "a verification is no backup");
        own.report(&backup(&switch, "success", own.server.now())).await;
        assert_eq!(own.devices().await, [3, 3, 0, 2]);
        own.server.judge_for(26 * HOUR_MS + 1).await;
        assert_eq!(own.devices().await, [3, 3, 0, 0], "by the RPO of servers");
        // What turns out to be a printer was never meant.
        own.server.edit_device(&own.acme, &own.device, |full| full.device.r#type = Type::Laptop).await;
        assert_eq!(own.devices().await, [3, 3, 0, 1], "by that of workstations, at once");
    }

    async fn a_device_that_moves_takes_its_state_along_and_leaves_its_runs(setup: Setup) {
        let own = Customer::open(setup).await;
        let elsewhere = organization(&own.server, &own.acme, "initech").await;
        own.back_up("failed").await;
        own.report(&with(&backup(&own.device, "success", own.server.now().plus_ms(-HOUR_MS)), &json!({"size_bytes": 700}))).await;
        own.move_to(&own.device, Some(&elsewhere)).await;
        let (left, joined) = (own.row().await, own.server.posture(&own.acme, Some(&elsewhere)).await);
        let none = json!({"total": 0, "in_scope": 0, "excluded": 0, "protected": 0, "unprotected": 0, "never_succeeded": 0});
        assert_eq!((&left["devices"], grades(&left)), (&none, ["unknown"; 3]));
        assert_eq!((counts(&left["jobs_24h"]), busy_days(&left).len(), reasons(&left)), ([1, 0, 1, 0], 1, Vec::new()));
        assert_eq!((&left["last_success_at"], &left["storage_bytes"]), (&Value::Null, &json!(0)));
        assert_eq!((&joined["devices"]["protected"], &joined["max_consecutive_failures"], &joined["storage_bytes"]), (&json!(1), &json!(1), &json!(700)));
        assert_eq!((counts(&joined["jobs_24h"]), reason(&joined, "failures")["device_id"].clone()), ([0; 4], json!(own.device)));
        own.back_up("success").await;
        let joined = own.server.posture(&own.acme, Some(&elsewhere)).await;
        assert_eq!((counts(&joined["jobs_24h"]), counts(&own.row().await["jobs_24h"])), ([1, 0, 0, 0], [1, 0, 1, 0]));
        own.server.judge_for(DAY_MS).await;
        assert_eq!(counts(&own.row().await["jobs_24h"]), [0; 4]);
        own.move_to(&own.device, None).await;
        let nobodys = own.server.posture(&own.acme, None).await;
        assert_eq!(nobodys["devices"]["total"], 1);
        own.move_to(&own.device, Some(&own.organization)).await;
        assert_eq!(own.devices().await, [1, 1, 0, 1]);
        let nulls = own.server.postures(&own.acme).await.into_iter().filter(|row| row["organization_id"].is_null()).count();
        assert_eq!(nulls, 0, "there are no devices without an organization any more");
    }

    async fn the_row_of_no_organization_comes_back_with_what_ran(setup: Setup) {
        let own = Customer::open(setup).await;
        let nobodys = own.server.machine(&own.acme, "nobodys", None).await;
        own.report(&backup(&nobodys, "failed", own.server.now())).await;
        let before = own.server.posture(&own.acme, None).await;
        own.move_to(&nobodys, Some(&own.organization)).await;
        assert_eq!(own.server.postures(&own.acme).await.len(), 1);
        own.move_to(&nobodys, None).await;
        let after = own.server.posture(&own.acme, None).await;
        assert_eq!((&after["jobs_24h"], &after["days"]), (&before["jobs_24h"], &before["days"]));
        own.server.judge_for(DAY_MS).await;
        assert_eq!(counts(&own.server.posture(&own.acme, None).await["jobs_24h"]), [0; 4]);
    }

    async fn an_archived_organization_is_hidden_when_its_last_device_leaves(setup: Setup) {
        let own = Customer::open(setup).await;
        let elsewhere = organization(&own.server, &own.acme, "initech").await;
        for how in ["moves", "moves and reports", "is deleted"] {
            let archived = organization(&own.server, &own.acme, &how.replace(' ', "-")).await;
            let device = own.server.machine(&own.acme, how, Some(&archived)).await;
            own.report(&backup(&device, "success", own.server.now())).await;
            let target = format!("{}?id={archived}", crate::organizations::ORGANIZATIONS);
            own.server.put(&target).cookie(&own.acme.admin).json(&json!({"name": how, "archived": true})).await.is(200);
            assert_eq!(own.server.posture(&own.acme, Some(&archived)).await["devices"]["total"], 1, "{how}");
            match how {
                "is deleted" => own.server.delete_device(&own.acme, &device).await,
                _ => own.move_to(&device, Some(&elsewhere)).await,
            }
            if how == "moves and reports" {
                own.report(&backup(&device, "failed", own.server.now())).await;
            }
            own.server.judge_backups().await;
            let rows = own.server.postures(&own.acme).await;
            let ids: Vec<&Value> = rows.iter().map(|row| &row["organization_id"]).collect();
            assert_eq!(ids, [&json!(elsewhere), &json!(own.organization)], "{how}");
            own.server.put(&target).cookie(&own.acme.admin).json(&json!({"name": how, "archived": false})).await.is(200);
            assert_eq!(own.server.postures(&own.acme).await.len(), 3, "{how}");
            own.server.delete(&target).cookie(&own.acme.admin).await.is(204);
        }
    }

    async fn who_begins_to_report_has_the_rpo_for_all_other_devices(setup: Setup) {
        let own = Customer::open(setup).await;
        let silent = own.server.machine(&own.acme, "silent", Some(&own.organization)).await;
        own.server.judge_for(200 * DAY_MS).await;
        let begun = own.server.now();
        own.back_up("success").await;
        let state = async || {
            let row = own.row().await;
            let told = reason(&row, "never_reported").clone();
            (grades(&row)[0].to_owned(), told["severity"].clone(), told["since"].clone(), told["device_id"].clone())
        };
        for (hours, ms, severity) in [(0, 0, "unknown"), (26, 0, "unknown"), (26, 1, "warning"), (52, 0, "warning"), (52, 1, "critical")] {
            own.server.judge_until(begun.plus_ms(hours * HOUR_MS + ms)).await;
            let told = own.server.grade_events(&own.acme).await.pop();
            own.back_up("warning").await;
            assert_eq!(state().await, (severity.to_owned(), json!(severity), json!(begun), json!(silent)), "after {hours} h and {ms} ms");
            let is_told = told.as_ref().is_some_and(|(_, grades)| grades[0] == severity);
            assert!(ms == 0 || is_told, "told without any reading: {told:?}");
        }
    }

    async fn a_device_that_has_reported_begins_the_reports_of_where_it_moves_to(setup: Setup) {
        let own = Customer::open(setup).await;
        let elsewhere = organization(&own.server, &own.acme, "initech").await;
        let silent = own.server.machine(&own.acme, "silent", Some(&elsewhere)).await;
        own.back_up("success").await;
        own.server.judge_for(20 * HOUR_MS).await;
        let moved = own.server.now();
        own.move_to(&own.device, Some(&elsewhere)).await;
        let row = own.server.posture(&own.acme, Some(&elsewhere)).await;
        assert_eq!(reason(&row, "never_reported"), &json!({"code": "never_reported", "severity": "unknown", "device_id": silent, "device_name": "silent", "since": moved, "detail": null}));
        own.server.judge_until(moved.plus_ms(26 * HOUR_MS + 1)).await;
        let row = own.server.posture(&own.acme, Some(&elsewhere)).await;
        assert_eq!(reason(&row, "never_reported")["severity"], "warning");
    }

    async fn a_device_that_moves_comes_under_the_policy_of_where_it_is(setup: Setup) {
        let own = Customer::open(setup).await;
        let strict = organization(&own.server, &own.acme, "strict").await;
        own.server.set_policy(&own.acme, &format!("organization_id={strict}"), &json!({"rpo_hours": {"server": 1, "workstation": 1}})).await;
        own.back_up("success").await;
        own.server.judge_for(2 * HOUR_MS).await;
        assert_eq!(grades(&own.row().await)[0], "ok");
        own.move_to(&own.device, Some(&strict)).await;
        own.server.judge_backups().await;
        let row = own.server.posture(&own.acme, Some(&strict)).await;
        assert_eq!((grades(&row)[0], reason(&row, "rpo_missed")["severity"].clone()), ("warning", json!("warning")));
        let last = own.server.grade_events(&own.acme).await.pop().expect("an event");
        assert_eq!((last.0, last.1[0].as_str()), (json!(strict), "warning"), "told without any reading");
    }

    async fn a_deleted_device_is_gone_and_its_runs_stay(setup: Setup) {
        let own = Customer::open(setup).await;
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.back_up("success").await;
        own.report(&backup(&other, "failed", own.server.now())).await;
        own.server.delete_device(&own.acme, &other).await;
        let row = own.row().await;
        assert_eq!((own.devices().await, counts(&row["jobs_24h"]), grades(&row)[0]), ([1, 1, 0, 1], [1, 0, 1, 0], "ok"));
        own.server.post_report(&own.key, &backup(&other, "success", own.server.now().plus_ms(1))).await.problem("invalid_fields");
        own.server.delete_device(&own.acme, &own.device).await;
        let row = own.row().await;
        assert_eq!((own.devices().await, grades(&row), reasons(&row)), ([0; 4], ["unknown"; 3], Vec::new()));
        own.server.judge_for(DAY_MS).await;
        assert_eq!(counts(&own.row().await["jobs_24h"]), [0; 4]);
    }

    async fn a_new_organization_is_a_row_and_a_deleted_one_is_none(setup: Setup) {
        let own = Customer::open(setup).await;
        let other = organization(&own.server, &own.acme, "initech").await;
        assert_eq!(own.server.postures(&own.acme).await.len(), 2);
        let target = format!("{}?id={other}", crate::organizations::ORGANIZATIONS);
        own.server.delete(&target).cookie(&own.acme.admin).await.is(204);
        let left = own.server.postures(&own.acme).await;
        assert_eq!((left.len(), &left[0]["organization_id"]), (1, &json!(own.organization)));
        own.server.get(format!("{AGGREGATE}?organization_id={other}")).cookie(&own.acme.admin).await.problem("not_found");
        assert_eq!(own.server.aggregate(&own.acme, "").await["totals"]["organizations"]["total"], 1);
    }

    async fn a_policy_of_the_tenant_reaches_more_devices_than_one_transaction(setup: Setup) {
        let own = Customer::open(setup).await;
        let many = (0..230).map(|n| crate::asset_inventory::with(&format!("node-{n}"), |full| {
            full.device.organization_id = Some(own.organization.parse().unwrap());
        }));
        let ids = crate::asset_inventory::add_all(&own.server, &own.acme, many.collect()).await;
        own.server.judge_backups().await;
        for id in &ids[..3] {
            own.report(&backup(id, "success", own.server.now())).await;
        }
        own.server.judge_for(2 * HOUR_MS).await;
        assert_eq!(own.devices().await, [231, 231, 0, 3]);
        let strict = json!({"rpo_hours": {"server": 1, "workstation": 1}, "schedule": {"cron": "*/30 * * * *", "timezone": "Asia/Tokyo"}});
        own.server.set_policy(&own.acme, "", &strict).await;
        // A report comes while the rest of it is still to be done.
        own.report(&backup(&ids[229], "success", own.server.now())).await;
        own.server.judge_backups().await;
        let row = own.row().await;
        assert_eq!(own.devices().await, [231, 231, 0, 1]);
        assert_eq!((counts(&row["jobs_24h"]), busy_days(&row)), ([4, 0, 0, 0], vec![("2026-01-15".to_owned(), [4, 0, 0, 0])]));
    }
}
