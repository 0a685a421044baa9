//! The list itself: its shape, its filters, its pages, and who sees what.

use kernel::auth::Role;

use super::*;
use crate::support::workflows::{manual, step, step_of};

/// An id that is well formed and names nothing.
const NOWHERE: &str = "org_01jd8z6v2mfkpb7h3q9xw5t4ra";

fn names(object: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        object.as_object().unwrap_or_else(|| panic!("{object} is no object")).keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// The organizations of an answer, in its order.
fn ids(page: &Value) -> Vec<Value> {
    page["data"].as_array().expect("data").iter().map(|row| row["organization_id"].clone()).collect()
}

over_http! {
    async fn a_row_has_the_fields_of_the_contract_and_no_others(setup: Setup) {
        let own = Customer::open(setup).await;
        own.set(&json!({"targets": targets(), "schedule": {"cron": "0 22 * * *", "timezone": "Europe/Berlin"}})).await;
        own.back_up("failed").await;
        let page = own.server.aggregate(&own.acme, "").await;
        assert_eq!(names(&page), ["data", "has_more", "next_cursor", "totals"]);
        let row = &page["data"][0];
        assert_eq!(names(row), [
            "coverage_percent", "days", "devices", "health", "jobs_24h", "last_success_at", "max_consecutive_failures",
            "oldest_last_success_at", "organization_id", "organization_name", "protection_health", "reasons",
            "recoverability_health", "restore_test", "rpo", "rule_32110", "storage_bytes", "verification",
        ]);
        assert_eq!((&row["organization_id"], &row["organization_name"]), (&json!(own.organization), &json!("GLOBEX")));
        assert_eq!(names(&row["devices"]), ["excluded", "in_scope", "never_succeeded", "protected", "total", "unprotected"]);
        assert_eq!(names(&row["rpo"]), ["met", "missed", "percent"]);
        assert_eq!(names(&row["jobs_24h"]), ["failed", "missed", "success", "warning"]);
        assert_eq!(names(&row["days"][27]), ["date", "failed", "missed", "success", "warning"]);
        assert_eq!(names(&row["verification"]), ["every_days", "last_success_at", "oldest_last_success_at", "overdue"]);
        assert_eq!(names(&row["restore_test"]), ["every_days", "last_success_at", "overdue"]);
        assert_eq!(names(&row["rule_32110"]), ["copies", "immutable", "media", "offsite", "zero_errors"]);
        assert_eq!(names(&row["reasons"][0]), ["code", "detail", "device_id", "device_name", "severity", "since"]);
        assert_eq!(row["reasons"][0]["severity"], "critical", "the worst first");
        let dates: Vec<&str> = row["days"].as_array().unwrap().iter().map(|day| day["date"].as_str().unwrap()).collect();
        assert_eq!((dates.len(), dates[0], dates[27]), (28, "2025-12-19", "2026-01-15"), "oldest first");
        assert!(dates.is_sorted());
        assert_eq!(page["totals"], json!({
            "organizations": {"total": 1, "ok": 0, "unknown": 0, "warning": 0, "critical": 1}, "devices": row["devices"],
            "coverage_percent": 0.0, "rpo": row["rpo"], "jobs_24h": {"success": 0, "warning": 0, "failed": 1, "missed": 0}, "storage_bytes": 0,
        }));
    }

    async fn devices_without_an_organization_are_a_row_of_their_own(setup: Setup) {
        let own = Customer::open(setup).await;
        assert_eq!(ids(&own.server.aggregate(&own.acme, "").await), [json!(own.organization)]);
        let nobodys = own.server.machine(&own.acme, "nobodys", None).await;
        own.report(&backup(&nobodys, "success", own.server.now())).await;
        let page = own.server.aggregate(&own.acme, "").await;
        assert_eq!(ids(&page), [json!(own.organization), Value::Null], "at the end");
        let row = &page["data"][1];
        assert_eq!((&row["organization_name"], &row["devices"]["protected"]), (&Value::Null, &json!(1)));
        assert_eq!(page["totals"]["organizations"]["total"], 2);
        assert_eq!(page["totals"]["devices"]["total"], 2);
        assert_eq!(page["totals"]["coverage_percent"], 50.0);
    }

    async fn filters_hold_and_totals_are_of_all(setup: Setup) {
        let own = Customer::open(setup).await;
        let (server, acme) = (&own.server, &own.acme);
        let bad = organization(server, acme, "bad").await;
        let fine = organization(server, acme, "fine").await;
        let (broken, good) = (server.machine(acme, "broken", Some(&bad)).await, server.machine(acme, "good", Some(&fine)).await);
        server.set_policy(acme, "", &json!({"targets": targets()})).await;
        own.report(&backup(&broken, "failed", server.now())).await;
        for target in TARGETS {
            let report = backup(&good, "success", server.now());
            own.report(&with(&report, &json!({"target": target, "external_id": target}))).await;
        }
        let all = server.aggregate(acme, "").await;
        assert_eq!(ids(&all), [json!(fine), json!(bad), json!(own.organization)], "the newest first");
        for (query, wanted) in [
            ("health=critical".to_owned(), vec![&bad]), ("health=ok".to_owned(), vec![&fine]), ("health=unknown".to_owned(), vec![&own.organization]),
            ("health=warning".to_owned(), vec![]), ("health=unknown,critical".to_owned(), vec![&bad, &own.organization]),
            (format!("organization_id={bad}"), vec![&bad]), (format!("organization_id={},{fine}", own.organization), vec![&fine, &own.organization]),
            (format!("organization_id={bad},{fine}&health=ok"), vec![&fine]), (format!("organization_id={bad}&health=ok"), vec![]),
        ] {
            let page = server.aggregate(acme, &query).await;
            assert_eq!(ids(&page), wanted.iter().map(|id| json!(id)).collect::<Vec<_>>(), "{query}");
            assert_eq!(page["totals"], all["totals"], "{query}");
        }
        assert_eq!(all["totals"]["organizations"], json!({"total": 3, "ok": 1, "unknown": 1, "warning": 0, "critical": 1}));
        for query in ["health=fine", "health=", "limit=0", "limit=201"] {
            server.get(format!("{AGGREGATE}?{query}")).cookie(&acme.admin).await.problem("invalid_parameter");
        }
        server.get(format!("{AGGREGATE}?id={bad}")).cookie(&acme.admin).await.problem("unknown_parameter");
        server.get(format!("{AGGREGATE}?cursor=x")).cookie(&acme.admin).await.problem("invalid_cursor");
    }

    async fn every_page_size_shows_each_customer_once(setup: Setup) {
        let own = Customer::open(setup).await;
        let (server, acme) = (&own.server, &own.acme);
        for n in 0..6 {
            organization(server, acme, &format!("customer-{n}")).await;
        }
        server.machine(acme, "nobodys", None).await;
        let whole = server.aggregate(acme, "").await;
        assert_eq!(ids(&whole).len(), 8);
        let named = ids(&whole).iter().filter_map(|id| id.as_str().map(str::to_owned)).collect::<Vec<_>>().join(",");
        let broken = server.machine(acme, "broken", Some(&own.organization)).await;
        own.report(&backup(&broken, "failed", server.now())).await;
        let whole = server.aggregate(acme, "").await;
        let shown = |query: &str| {
            let all = ids(&whole).into_iter().filter(|id| !query.contains("organization_id") || !id.is_null());
            all.collect::<Vec<_>>()
        };
        for query in ["", "&health=unknown,critical", &format!("&organization_id={named}")] {
            for limit in [1, 3, 7, 8] {
                let (mut seen, mut more) = (Vec::new(), String::new());
                loop {
                    let answer = server.get(format!("{AGGREGATE}?limit={limit}{query}{more}")).cookie(&acme.admin).await;
                    let page = answer.ok(200);
                    assert!(ids(&page).len() <= limit);
                    assert_eq!(page["totals"], whole["totals"]);
                    assert_eq!(page["has_more"] == true, answer.header("link").contains("rel=\"next\""));
                    seen.extend(ids(&page));
                    match page["next_cursor"].as_str() {
                        Some(cursor) => more = format!("&cursor={cursor}"),
                        None => break,
                    }
                }
                assert_eq!(seen, shown(query), "{limit} at a time: {query}");
            }
        }
    }

    async fn another_tenants_customers_are_not_there(setup: Setup) {
        let own = Customer::open(setup).await;
        own.back_up("failed").await;
        let other = own.server.tenant("other").await;
        assert_eq!(ids(&own.server.aggregate(&other, "").await), Vec::<Value>::new());
        let totals = &own.server.aggregate(&other, "").await["totals"];
        assert_eq!((&totals["organizations"]["total"], &totals["jobs_24h"]["failed"]), (&json!(0), &json!(0)));
        let mut seen = Vec::new();
        for id in [own.organization.as_str(), NOWHERE, "nonsense", "org_"] {
            let answer = own.server.get(format!("{AGGREGATE}?organization_id={id}")).cookie(&other.admin).await;
            answer.problem("not_found");
            seen.push(answer.body_but_request_id());
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:#?}");
        let mixed = format!("{AGGREGATE}?organization_id={},{NOWHERE}", own.organization);
        own.server.get(mixed).cookie(&own.acme.admin).await.problem("not_found");
    }

    async fn reading_takes_the_scope_of_backups(setup: Setup) {
        let own = Customer::open(setup).await;
        for role in [Role::Admin, Role::Technician, Role::Viewer] {
            let cookie = own.server.user(&own.acme.tenant, role).await;
            own.server.get(AGGREGATE).cookie(&cookie).await.is(200);
        }
        let reader = own.server.key(&own.acme, &["backup:read"]).await;
        own.server.get(AGGREGATE).key(&reader.plain).await.is(200);
        let other = own.server.key(&own.acme, &["backup:write", "inventory:read"]).await;
        let problem = own.server.get(AGGREGATE).key(&other.plain).await.problem("insufficient_scope");
        assert_eq!(problem["required_scope"], "backup:read");
        own.server.get(AGGREGATE).await.problem("unauthenticated");
        own.server.post(AGGREGATE).cookie(&own.acme.admin).json(&json!({})).await.problem("method_not_allowed");
    }

    async fn a_row_follows_the_name_of_its_organization(setup: Setup) {
        let own = Customer::open(setup).await;
        let target = format!("{}?id={}", crate::organizations::ORGANIZATIONS, own.organization);
        own.server.put(&target).cookie(&own.acme.admin).json(&json!({"name": "Renamed"})).await.is(200);
        assert_eq!(own.row().await["organization_name"], "Renamed");
        // An archived one is shown as long as it has devices.
        own.server.put(&target).cookie(&own.acme.admin).json(&json!({"name": "Renamed", "archived": true})).await.is(200);
        assert_eq!(own.row().await["devices"]["total"], 1);
        own.server.delete_device(&own.acme, &own.device).await;
        assert_eq!(own.server.aggregate(&own.acme, "").await["totals"]["devices"]["total"], 0);
    }

    async fn workflows_check_a_customer(setup: Setup) {
        let own = Customer::open(setup).await;
        own.back_up("failed").await;
        let check = step("check", "backup.check", json!({"organization_id": own.organization}));
        let run = own.server.run(&own.acme, &manual([check])).await;
        assert_eq!(run["status"], "succeeded", "{run:#}");
        assert_eq!(step_of(&run, "check")["output"], own.row().await);
        let unknown = step("check", "backup.check", json!({"organization_id": "${{ 'org_01jd8z6v2mfkpb7h3q9xw5t4ra' }}"}));
        let run = own.server.run(&own.acme, &manual([unknown])).await;
        assert_eq!((&run["status"], &step_of(&run, "check")["error"]["code"]), (&json!("failed"), &json!("not_found")), "{run:#}");
        assert_eq!(own.server.postures(&own.acme).await.len(), 1, "asking for one that is not there makes none");
    }
}
