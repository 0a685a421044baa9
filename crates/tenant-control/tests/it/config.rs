//! `/api/backup/config`: policies, what they inherit, and what they are told when they cannot be.

use kernel::auth::Role;
use kernel::base::HOUR_MS;
use serde_json::{Value, json};

use crate::support::backups::{CONFIG, open, targets};
use crate::support::people::AUDIT;
use crate::support::workflows::{manual, step, step_of};
use crate::support::{Answer, Server, Setup, Tenancy, over_http};
use crate::tickets::{organization, with};

/// Ids that are well formed and name nothing.
const NOWHERE: &str = "org_01jd8z6v2mfkpb7h3q9xw5t4ra";
const NOTHING: &str = "dev_01jd8z6v2mfkpb7h3q9xw5t4ra";

const FIELDS: [&str; 9] = [
    "alert_after_failures",
    "enabled",
    "encryption_required",
    "excluded_devices",
    "retention",
    "rpo_hours",
    "schedule",
    "targets",
    "verification",
];

/// A tenant with a customer and its server.
struct Policies {
    server: Server,
    acme: Tenancy,
    organization: String,
    device: String,
}

impl Policies {
    async fn open(setup: Setup) -> Policies {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let organization = organization(&server, &acme, "globex").await;
        let device = server.machine(&acme, "web01", Some(&organization)).await;
        Policies { server, acme, organization, device }
    }

    /// The levels from the tenant down, as they are asked for.
    fn levels(&self) -> [String; 3] {
        [String::new(), format!("organization_id={}", self.organization), format!("device_id={}", self.device)]
    }

    async fn put(&self, query: &str, policy: &Value) -> Answer {
        self.server.put_policy(&self.acme, query, policy).await
    }

    async fn set(&self, query: &str, policy: &Value) -> Value {
        self.server.set_policy(&self.acme, query, policy).await
    }

    async fn read(&self, query: &str) -> Value {
        self.server.read_policy(&self.acme, query).await
    }

    async fn put_if(&self, query: &str, version: &str, policy: &Value) -> Answer {
        let call = self.server.put(format!("{CONFIG}?{query}")).cookie(&self.acme.admin).header("if-match", version);
        call.json(policy).await
    }

    /// The pointers at which a policy is refused, sorted.
    async fn refused(&self, query: &str, policy: &Value) -> Vec<String> {
        let answer = self.put(query, policy).await;
        assert_eq!(answer.status, 422, "{policy}: {}", answer.json());
        let mut pointers = answer.pointers();
        pointers.sort_unstable();
        pointers
    }
}

fn target(name: &str, more: &Value) -> Value {
    let target = json!({"name": name, "type": "s3", "media": "object", "offsite": true, "immutable": false, "immutable_days": null});
    with(&target, more)
}

fn retention(more: &Value) -> Value {
    with(&json!({"keep_last": 0, "hourly": 0, "daily": 0, "weekly": 0, "monthly": 0, "yearly": 0}), more)
}

over_http! {
    async fn nothing_is_set_at_first_and_the_defaults_hold(setup: Setup) {
        let own = Policies::open(setup).await;
        let (nothing, defaults): (Value, Value) = (
            FIELDS.iter().map(|field| ((*field).to_owned(), Value::Null)).collect(),
            FIELDS.iter().map(|field| ((*field).to_owned(), json!("default"))).collect(),
        );
        for (query, level) in own.levels().iter().zip(["tenant", "organization", "device"]) {
            let answer = own.server.get(format!("{CONFIG}?{query}")).cookie(&own.acme.admin).await;
            assert_eq!(answer.header("etag"), "\"0\"");
            let of = |kind: &str, id: &str| if level == kind { json!(id) } else { Value::Null };
            assert_eq!(answer.ok(200), json!({
                "id": null, "level": level, "organization_id": of("organization", &own.organization), "device_id": of("device", &own.device),
                "effective": {
                    "enabled": true, "schedule": null, "rpo_hours": {"server": 26, "workstation": 72},
                    "retention": {"keep_last": 0, "hourly": 0, "daily": 14, "weekly": 8, "monthly": 12, "yearly": 0},
                    "targets": [], "encryption_required": false, "verification": {"every_days": 30, "restore_test_every_days": 90},
                    "alert_after_failures": 1, "excluded_devices": [],
                },
                "sources": defaults, "set": nothing, "version": 0, "created_at": null, "updated_at": null,
            }));
        }
    }

    async fn each_field_comes_from_the_lowest_level_that_sets_it(setup: Setup) {
        let own = Policies::open(setup).await;
        let [tenant, customer, device] = own.levels();
        own.set(&tenant, &json!({"rpo_hours": {"server": 48, "workstation": 96}, "alert_after_failures": 3, "encryption_required": true})).await;
        own.set(&customer, &json!({"alert_after_failures": 5, "targets": targets(), "schedule": {"cron": "0 22 * * *", "timezone": "Europe/Berlin"}})).await;
        let set = own.set(&device, &json!({"targets": [], "enabled": false, "rpo_hours": null})).await;
        assert_eq!(set, own.read(&device).await);
        assert_eq!(set["set"]["rpo_hours"], Value::Null);
        assert_eq!(set["sources"], json!({
            "enabled": "device", "schedule": "organization", "rpo_hours": "tenant", "retention": "default", "targets": "device",
            "encryption_required": "tenant", "verification": "default", "alert_after_failures": "organization", "excluded_devices": "default",
        }));
        let effective = &set["effective"];
        assert_eq!((&effective["targets"], &effective["enabled"], &effective["alert_after_failures"]), (&json!([]), &json!(false), &json!(5)));
        assert_eq!((&effective["rpo_hours"], &effective["schedule"]["cron"]), (&json!({"server": 48, "workstation": 96}), &json!("0 22 * * *")));
        let of_customer = own.read(&customer).await;
        assert_eq!((&of_customer["effective"]["targets"], &of_customer["sources"]["enabled"]), (&targets(), &json!("default")));
        assert_eq!(own.read(&tenant).await["effective"]["alert_after_failures"], 3);
        // What a PUT omits is inherited again.
        let set = own.set(&customer, &json!({"schedule": {"cron": "0 23 * * *", "timezone": "UTC"}})).await;
        assert_eq!((&set["sources"]["targets"], &set["sources"]["alert_after_failures"]), (&json!("default"), &json!("tenant")));
        // A device that moves inherits from where it is.
        own.server.edit_device(&own.acme, &own.device, |full| full.device.organization_id = None).await;
        assert_eq!(own.read(&device).await["effective"]["schedule"], Value::Null);
    }

    async fn versions_count_changes_and_if_match_holds(setup: Setup) {
        let own = Policies::open(setup).await;
        for query in &own.levels() {
            let answer = own.put_if(query, "\"0\"", &json!({"alert_after_failures": 2})).await;
            let made = answer.ok(200);
            assert_eq!((answer.header("etag"), &made["version"]), ("\"1\"", &json!(1)));
            assert!(made["id"].as_str().unwrap().starts_with("bcf_"));
            assert_eq!((&made["created_at"], &made["updated_at"]), (&json!(own.server.now()), &json!(own.server.now())));
            own.server.advance(1_000);
            own.put_if(query, "\"0\"", &json!({"alert_after_failures": 3})).await.problem("version_mismatch");
            let same = own.put_if(query, "\"1\"", &json!({"alert_after_failures": 2, "enabled": null})).await;
            assert_eq!((same.header("etag"), same.ok(200)), ("\"1\"", made.clone()), "nothing has changed");
            let changed = own.put_if(query, "\"1\"", &json!({})).await.ok(200);
            assert_eq!((&changed["version"], &changed["id"], &changed["created_at"]), (&json!(2), &made["id"], &made["created_at"]));
            assert_eq!(changed["updated_at"], json!(own.server.now()));
            own.put_if(query, "\"1\"", &json!({"enabled": false})).await.problem("version_mismatch");
            own.put_if(query, "*", &json!({"enabled": false})).await.is(200);
        }
        assert_eq!(own.read("").await["version"], 3, "each level has versions of its own");
    }

    async fn a_change_is_told_of_and_recorded_and_no_change_is_not(setup: Setup) {
        let own = Policies::open(setup).await;
        let [_, customer, _] = own.levels();
        let first = own.set(&customer, &json!({"alert_after_failures": 2, "targets": targets()})).await;
        own.server.advance(1_000);
        own.set(&customer, &json!({"alert_after_failures": 2, "targets": targets()})).await;
        let second = own.set(&customer, &json!({"alert_after_failures": 4})).await;
        own.put(&customer, &json!({"alert_after_failures": 0})).await.is(422);
        let events = own.server.events_of(&own.acme, "backup.config.").await;
        let told: Vec<Value> = events.iter().map(|event| event["data"].clone()).collect();
        assert!(events.iter().all(|event| event["type"] == "backup.config.updated"));
        let changes = [
            json!({"alert_after_failures": {"from": null, "to": 2}, "targets": {"from": null, "to": targets()}}),
            json!({"alert_after_failures": {"from": 2, "to": 4}, "targets": {"from": targets(), "to": null}}),
        ];
        let wanted: Vec<Value> = [first, second].iter().zip(&changes).map(|(config, changes)| with(config, &json!({"changes": changes}))).collect();
        assert_eq!(told, wanted);
        let trail = own.server.get(format!("{AUDIT}?action=backup_config.update")).cookie(&own.acme.admin).await.ok(200);
        let entries = trail["data"].as_array().unwrap();
        assert_eq!(entries.len(), 2, "{trail:#}");
        assert_eq!(entries[0]["target"], json!({"type": "backup_config", "id": wanted[0]["id"]}));
        assert_eq!((&entries[0]["actor"]["type"], &entries[0]["changes"]["alert_after_failures"]), (&json!("user"), &json!({"from": 2, "to": 4})));
    }

    async fn fields_that_are_wrong_are_named_at_once(setup: Setup) {
        let own = Policies::open(setup).await;
        let body = json!({
            "nope": 1, "enabled": "yes", "schedule": {"cron": "0 22 * * *"}, "rpo_hours": {"server": 0, "workstation": 8785, "laptop": 1},
            "retention": {"daily": -1, "weekly": 1.5}, "targets": [target("a", &json!({"type": "ftp", "media": null, "days": 1})), 3],
            "verification": {"every_days": 0}, "alert_after_failures": 101, "excluded_devices": [{"id": NOTHING}], "version": 1,
        });
        assert_eq!(own.refused("", &body).await, [
            "/alert_after_failures", "/enabled", "/excluded_devices/0/id", "/excluded_devices/0/reason", "/nope", "/retention/daily", "/retention/hourly",
            "/retention/keep_last", "/retention/monthly", "/retention/weekly", "/retention/yearly", "/rpo_hours/laptop", "/rpo_hours/server",
            "/rpo_hours/workstation", "/schedule/timezone", "/targets/0/days", "/targets/0/media", "/targets/0/type", "/targets/1",
            "/verification/every_days", "/verification/restore_test_every_days", "/version",
        ]);
        for (cron, timezone, pointer) in [
            ("0 0 31 2 *", "UTC", "/schedule/cron"), ("every day", "UTC", "/schedule/cron"), ("0 22 * * *", "Mars/Olympus", "/schedule/timezone"),
            ("0 0 22 * * *", "UTC", "/schedule/cron"),
        ] {
            assert_eq!(own.refused("", &json!({"schedule": {"cron": cron, "timezone": timezone}})).await, [pointer], "{cron} {timezone}");
        }
        assert_eq!(own.refused("", &json!({"targets": [target("a", &json!({})), target("a", &json!({}))]})).await, ["/targets/1/name"]);
        let many: Vec<Value> = (0..21).map(|n| target(&n.to_string(), &json!({}))).collect();
        assert_eq!(own.refused("", &json!({"targets": many})).await, ["/targets"]);
        own.server.put(CONFIG).cookie(&own.acme.admin).json(&json!([])).await.is(422);
        assert_eq!(own.read("").await["version"], 0);
    }

    async fn fields_that_contradict_each_other_are_named_where_they_are_set(setup: Setup) {
        let own = Policies::open(setup).await;
        let [_, customer, device] = own.levels();
        let schedule = |cron: &str| json!({"cron": cron, "timezone": "Europe/Berlin"});
        let rpo = |hours: i64| json!({"server": hours, "workstation": hours});
        for (policy, pointers) in [
            (json!({"schedule": schedule("0 22 * * 0")}), vec!["/schedule/cron"]),
            (json!({"schedule": schedule("*/14 * * * *")}), vec!["/schedule/cron"]),
            (json!({"schedule": schedule("* * * * *")}), vec!["/schedule/cron"]),
            (json!({"schedule": schedule("0 22 * * 1-5")}), vec!["/schedule/cron"]),
            (json!({"schedule": schedule("0 22 * * 1-5"), "rpo_hours": rpo(71)}), vec!["/schedule/cron"]),
            (json!({"retention": retention(&json!({"hourly": 71}))}), vec!["/retention"]),
            (json!({"retention": retention(&json!({}))}), vec!["/retention"]),
            (json!({"retention": retention(&json!({"keep_last": 2}))}), vec!["/retention"]),
            (json!({"retention": retention(&json!({"daily": 2})), "schedule": schedule("0 1 * * 6")}), vec!["/retention", "/schedule/cron"]),
            (json!({"targets": [target("a", &json!({})), target("b", &json!({"immutable_days": 30}))]}), vec!["/targets/1/immutable_days"]),
        ] {
            assert_eq!(own.refused("", &policy).await, pointers, "{policy}");
        }
        for policy in [
            json!({"schedule": schedule("0 22 * * 1-5"), "rpo_hours": rpo(72)}),
            json!({"schedule": schedule("*/15 * * * *"), "rpo_hours": rpo(1)}),
            json!({"retention": retention(&json!({"hourly": 72}))}),
            json!({"retention": retention(&json!({"keep_last": 3}))}),
            json!({"targets": [target("a", &json!({"immutable": true, "immutable_days": 30})), target("b", &json!({"immutable": true}))]}),
        ] {
            own.set("", &policy).await;
        }
        // Beside what is inherited, at the field of this level.
        own.set("", &json!({"schedule": schedule("0 22 * * *"), "retention": retention(&json!({"daily": 3}))})).await;
        assert_eq!(own.refused(&customer, &json!({"rpo_hours": rpo(12)})).await, ["/rpo_hours/server"]);
        assert_eq!(own.refused(&device, &json!({"rpo_hours": {"server": 26, "workstation": 73}})).await, ["/rpo_hours"]);
        own.set(&customer, &json!({"rpo_hours": rpo(24)})).await;
        assert_eq!(own.refused(&device, &json!({"schedule": schedule("0 22 */2 * *")})).await, ["/schedule/cron"]);
        own.set(&device, &json!({"enabled": false})).await;
    }

    async fn a_change_that_levels_below_would_contradict_is_refused_and_names_them(setup: Setup) {
        let own = Policies::open(setup).await;
        let [tenant, customer, device] = own.levels();
        let daily = json!({"schedule": {"cron": "0 22 * * *", "timezone": "Europe/Berlin"}});
        let rpo = |hours: i64| json!({"rpo_hours": {"server": hours, "workstation": 72}});
        own.set(&customer, &daily).await;
        let answer = own.put(&tenant, &rpo(8)).await;
        let problem = answer.problem("invalid_fields");
        assert_eq!(problem["errors"], json!([{"pointer": "/rpo_hours", "code": "conflict", "detail": format!(
            "contradicts what the organization GLOBEX ({}) sets itself: the schedule leaves 24 hours between two runs, and the RPO of servers \
             is 8 hours. Change that policy first.", own.organization
        )}]));
        assert_eq!(own.read(&tenant).await["version"], 0);
        // With an RPO of its own the organization is not concerned.
        own.set(&customer, &with(&daily, &rpo(26))).await;
        own.set(&tenant, &rpo(8)).await;
        own.set(&device, &json!({"retention": retention(&json!({"hourly": 73}))})).await;
        let longer = json!({"rpo_hours": {"server": 26, "workstation": 100}});
        let named = |answer: &Answer| answer.problem("invalid_fields")["errors"][0]["detail"].as_str().unwrap().to_owned();
        let answer = own.put(&customer, &with(&daily, &longer)).await;
        assert_eq!(answer.pointers(), ["/rpo_hours"]);
        assert!(named(&answer).starts_with(&format!("contradicts what the device web01 ({}) sets itself: the retention", own.device)));
        // What is taken away is inherited from further above, which may contradict as well.
        own.set(&device, &json!({"schedule": {"cron": "0 */12 * * *", "timezone": "UTC"}})).await;
        let answer = own.put(&customer, &json!({})).await;
        assert_eq!(answer.pointers(), ["/rpo_hours"], "the tenant's are 8 hours");
        // A device that is gone does not keep anybody from anything.
        own.server.delete_device(&own.acme, &own.device).await;
        own.set(&customer, &json!({})).await;
    }

    async fn a_contradiction_that_was_there_before_keeps_nobody_from_a_change(setup: Setup) {
        let own = Policies::open(setup).await;
        let [tenant, customer, device] = own.levels();
        let rpo = |hours: i64| json!({"rpo_hours": {"server": hours, "workstation": 72}});
        own.set(&device, &json!({"schedule": {"cron": "0 22 * * *", "timezone": "UTC"}})).await;
        let strict = organization(&own.server, &own.acme, "strict").await;
        own.set(&format!("organization_id={strict}"), &rpo(8)).await;
        let to = strict.parse().unwrap();
        own.server.edit_device(&own.acme, &own.device, move |full| full.device.organization_id = Some(to)).await;
        own.set(&format!("organization_id={strict}"), &rpo(6)).await;
        own.set(&tenant, &rpo(48)).await;
        own.set(&customer, &rpo(4)).await;
        // A level answers for what it sets itself alone.
        let answer = own.put(&device, &json!({"schedule": {"cron": "0 21 * * *", "timezone": "UTC"}})).await;
        assert_eq!(answer.pointers(), ["/schedule/cron"]);
        own.set(&device, &json!({"alert_after_failures": 3})).await;
    }

    async fn of_many_levels_that_a_change_contradicts_the_first_are_named(setup: Setup) {
        let own = Policies::open(setup).await;
        let daily = json!({"schedule": {"cron": "0 22 * * *", "timezone": "UTC"}});
        for n in 0..7 {
            let id = organization(&own.server, &own.acme, &format!("customer-{n}")).await;
            own.set(&format!("organization_id={id}"), &daily).await;
        }
        let answer = own.put("", &json!({"rpo_hours": {"server": 8, "workstation": 72}})).await;
        let errors = answer.problem("invalid_fields")["errors"].as_array().unwrap().clone();
        assert_eq!(errors.len(), 5, "{errors:#?}");
        assert!(errors[4]["detail"].as_str().unwrap().ends_with("So do 2 more levels."), "{errors:#?}");
    }

    async fn devices_are_excluded_where_they_belong(setup: Setup) {
        let own = Policies::open(setup).await;
        let [tenant, customer, device] = own.levels();
        let elsewhere = organization(&own.server, &own.acme, "initech").await;
        let theirs = own.server.machine(&own.acme, "db01", Some(&elsewhere)).await;
        let nobodys = own.server.machine(&own.acme, "spare", None).await;
        let exclude = |ids: &[&str]| json!({"excluded_devices": ids.iter().map(|id| json!({"id": id, "reason": "Lab"})).collect::<Vec<_>>()});
        for list in [exclude(&[&own.device]), exclude(&[])] {
            assert_eq!(own.refused(&device, &list).await, ["/excluded_devices"]);
        }
        own.set(&device, &json!({"excluded_devices": null, "alert_after_failures": 2})).await;
        assert_eq!(own.refused(&customer, &exclude(&[&own.device, &theirs, &nobodys])).await, ["/excluded_devices/1/id", "/excluded_devices/2/id"]);
        own.set(&customer, &exclude(&[&own.device])).await;
        own.set(&tenant, &exclude(&[&own.device, &theirs, &nobodys])).await;
        // One that has moved since does not keep anybody from changing the rest.
        own.server.edit_device(&own.acme, &own.device, |full| full.device.organization_id = None).await;
        own.set(&customer, &with(&exclude(&[&own.device]), &json!({"alert_after_failures": 9}))).await;
        own.set(&customer, &json!({})).await;
        assert_eq!(own.refused(&customer, &exclude(&[&own.device])).await, ["/excluded_devices/0/id"]);
    }

    async fn excluded_devices_have_to_be_there_when_they_are_added(setup: Setup) {
        let own = Policies::open(setup).await;
        let stranger = own.server.tenant("other").await;
        let foreign = own.server.machine(&stranger, "theirs", None).await;
        let gone = own.server.machine(&own.acme, "gone", None).await;
        own.server.delete_device(&own.acme, &gone).await;
        let exclude = |ids: &[&str]| json!({"excluded_devices": ids.iter().map(|id| json!({"id": id, "reason": "Lab"})).collect::<Vec<_>>()});
        for unknown in [NOTHING, foreign.as_str(), gone.as_str(), "nonsense"] {
            assert_eq!(own.refused("", &exclude(&[&own.device, unknown])).await, ["/excluded_devices/1/id"], "{unknown}");
        }
        assert_eq!(own.refused("", &exclude(&[&own.device, &own.device])).await, ["/excluded_devices/1/id"]);
        own.set("", &exclude(&[&own.device])).await;
        own.server.delete_device(&own.acme, &own.device).await;
        // One that has gone since does not keep anybody from changing the rest.
        own.set("", &with(&exclude(&[&own.device]), &json!({"alert_after_failures": 9}))).await;
        own.set("", &json!({})).await;
        assert_eq!(own.refused("", &exclude(&[&own.device])).await, ["/excluded_devices/0/id"]);
    }

    async fn of_what_is_not_there_nothing_is_told(setup: Setup) {
        let own = Policies::open(setup).await;
        let stranger = own.server.tenant("other").await;
        let (their_customer, their_device) = (organization(&own.server, &stranger, "theirs").await, own.server.machine(&stranger, "theirs", None).await);
        let gone = own.server.machine(&own.acme, "gone", None).await;
        own.server.delete_device(&own.acme, &gone).await;
        let mut seen = Vec::new();
        for query in [
            format!("organization_id={NOWHERE}"), format!("device_id={NOTHING}"), format!("organization_id={their_customer}"),
            format!("device_id={their_device}"), format!("device_id={gone}"), "organization_id=nonsense".to_owned(), "device_id=dev_".to_owned(),
            format!("organization_id={}", own.device),
        ] {
            for answer in [
                own.server.get(format!("{CONFIG}?{query}")).cookie(&own.acme.admin).await,
                own.put(&query, &json!({"enabled": false})).await,
            ] {
                answer.problem("not_found");
                seen.push(answer.body_but_request_id());
            }
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{seen:#?}");
        let both = format!("{CONFIG}?organization_id={}&device_id={}", own.organization, own.device);
        own.server.get(both).cookie(&own.acme.admin).await.problem("invalid_parameter");
        own.server.get(format!("{CONFIG}?id=1")).cookie(&own.acme.admin).await.problem("unknown_parameter");
        assert_eq!(own.server.read_policy(&stranger, "").await["version"], 0);
    }

    async fn admins_change_policies_and_the_others_read_them(setup: Setup) {
        let own = Policies::open(setup).await;
        for role in [Role::Technician, Role::Viewer] {
            let cookie = own.server.user(&own.acme.tenant, role).await;
            own.server.get(CONFIG).cookie(&cookie).await.is(200);
            let problem = own.server.put(CONFIG).cookie(&cookie).json(&json!({"enabled": false})).await.problem("insufficient_scope");
            assert_eq!(problem["required_scope"], "backup:write");
        }
        let (reader, writer) = (own.server.key(&own.acme, &["backup:read"]).await, own.server.key(&own.acme, &["backup:write"]).await);
        own.server.put(CONFIG).key(&writer.plain).json(&json!({"enabled": false})).await.is(200);
        own.server.get(CONFIG).key(&writer.plain).await.problem("insufficient_scope");
        own.server.put(CONFIG).key(&reader.plain).json(&json!({})).await.problem("insufficient_scope");
        for method in [reqwest::Method::POST, reqwest::Method::PATCH, reqwest::Method::DELETE] {
            own.server.call(method, CONFIG).cookie(&own.acme.admin).await.problem("method_not_allowed");
        }
    }

    async fn workflows_set_policies_as_put_does(setup: Setup) {
        let own = Policies::open(setup).await;
        let [_, customer, device] = own.levels();
        let set = |id: &str, with: Value| step(id, "backup.set_config", with);
        let definition = manual([
            set("customer", json!({"organization_id": own.organization, "rpo_hours": {"server": "${{ input.hours }}", "workstation": 72}})),
            set("device", json!({"device_id": own.device, "enabled": false})),
        ]);
        let run = own.server.run_with(&own.acme, &definition, &json!({"hours": 12})).await;
        assert_eq!(run["status"], "succeeded", "{run:#}");
        assert_eq!(step_of(&run, "customer")["output"], own.read(&customer).await);
        assert_eq!(own.read(&customer).await["effective"]["rpo_hours"]["server"], 12);
        assert_eq!(own.read(&device).await["set"]["enabled"], false);
        assert_eq!(own.server.kinds_of(&own.acme, "backup.config.").await.len(), 2);
        for (with, code) in [
            (json!({"organization_id": "${{ 'org_01jd8z6v2mfkpb7h3q9xw5t4ra' }}"}), "not_found"),
            // What is missing is not everybody.
            (json!({"organization_id": "${{ null }}", "enabled": false}), "invalid_fields"),
            (json!({"retention": "${{ {'keep_last': 0, 'hourly': 0, 'daily': 0, 'weekly': 0, 'monthly': 0, 'yearly': 0} }}"}), "invalid_fields"),
        ] {
            let run = own.server.run(&own.acme, &manual([set("one", with)])).await;
            assert_eq!(step_of(&run, "one")["error"]["code"], code, "{run:#}");
        }
        let bad = manual([set("one", json!({"enabled": "perhaps"}))]);
        assert_eq!(own.server.create_workflow(&own.acme, &bad).await.pointers(), ["/steps/0/with/enabled"]);
        own.server.work_for(HOUR_MS).await;
        assert_eq!(own.read("").await["version"], 0);
    }
}
