//! Backups on targets that the policy does not name, and the names of devices.

use super::*;

over_http! {
    async fn a_misspelt_target_is_named_where_a_copy_is_missing(setup: Setup) {
        let own = Customer::open(setup).await;
        let on = async |target: &str| {
            own.server.judge_for(MINUTE_MS).await;
            let report = backup(&own.device, "success", own.server.now());
            own.report(&with(&report, &json!({"target": target}))).await
        };
        let details = async || {
            let row = own.row().await;
            ["too_few_copies", "no_offsite", "too_few_media", "no_immutable"].map(|code| reason(&row, code)["detail"].clone())
        };
        assert_eq!(on("NAS").await["reasons"], json!([]), "the policy names none");
        assert_eq!(details().await, [Value::Null, Value::Null, Value::Null, Value::Null]);
        own.set(&json!({"targets": targets()})).await;
        let said = json!("The policy names nas and b2; devices have their newest backup on \"NAS\".");
        assert_eq!(details().await, [said.clone(), said, Value::Null, Value::Null]);
        let told = on("B2").await;
        assert_eq!(told["status"], "success");
        assert_eq!(told["reasons"], json!([{"code": "unknown_target", "detail": "The policy names nas and b2; this run is on \"B2\"."}]));
        let other = own.server.machine(&own.acme, "db01", Some(&own.organization)).await;
        own.report(&with(&backup(&other, "success", own.server.now()), &json!({"target": "nas2"}))).await;
        let both = json!("The policy names nas and b2; devices have their newest backup on \"B2\", \"nas2\".");
        assert_eq!(details().await[0], both);
        on("nas").await;
        assert_eq!(details().await[0], json!("The policy names nas and b2; devices have their newest backup on \"nas2\"."));
        own.server.delete_device(&own.acme, &other).await;
        assert_eq!(reason(&own.row().await, "no_offsite")["detail"], Value::Null);
        on("b2").await;
        assert_eq!(reasons(&own.row().await), Vec::<String>::new());
    }

    async fn of_many_unknown_targets_some_are_named(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets()})).await;
        let mut devices = Vec::new();
        for n in 0..8 {
            let device = own.server.machine(&own.acme, &format!("node-{n}"), Some(&own.organization)).await;
            own.report(&with(&backup(&device, "success", own.server.now()), &json!({"target": format!("usb-{n}")}))).await;
            devices.push(device);
        }
        let named = async || {
            let row = own.row().await;
            reason(&row, "too_few_copies")["detail"].as_str().unwrap().matches("usb-").count()
        };
        assert_eq!(named().await, 5);
        own.server.judge_for(MINUTE_MS).await;
        for (n, device) in devices.iter().enumerate().take(6) {
            let report = backup(device, "success", own.server.now());
            own.report(&with(&report, &json!({"external_id": format!("right {n}"), "target": "nas"}))).await;
        }
        for (n, device) in devices.iter().enumerate().skip(6) {
            let report = backup(device, "success", own.server.now());
            own.report(&with(&report, &json!({"external_id": format!("again {n}"), "target": format!("usb-{n}")}))).await;
        }
        assert_eq!(named().await, 2);
    }

    async fn a_reason_names_its_device_as_it_is_called_now(setup: Setup) {
        let own = Customer::open(setup).await;
        own.back_up("failed").await;
        let name = async || reason(&own.row().await, "failures")["device_name"].clone();
        assert_eq!(name().await, "web01");
        own.server.edit_device(&own.acme, &own.device, |full| full.device.hostname = Some("web02".to_owned())).await;
        assert_eq!(name().await, "web02");
        own.server.edit_device(&own.acme, &own.device, |full| {
            (full.device.hostname, full.device.display_name) = (None, Some("The shop".to_owned()));
        }).await;
        assert_eq!(name().await, "The shop");
        let row = own.row().await;
        assert_eq!(reason(&row, "too_few_copies")["device_name"], Value::Null);
        let told = own.server.events_of(&own.acme, "backup.posture.changed").await.pop().expect("an event");
        assert_eq!(reason(&told["data"], "failures")["device_name"], "web01");
    }
}
