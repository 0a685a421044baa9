//! Backups: policies, reports of jobs, and how customers stand.

use std::time::Duration;

use kernel::base::{DAY_MS, Timestamp};
use kernel::http::RatePolicy;
use kernel::store::Purpose;
use serde_json::{Value, json};
use tenant_control::features::devices::Type;
use tenant_control::features::posture::clock::store::judge_due_backups;

use super::devices::IngestKey;
use super::{Answer, Server, Setup, Tenancy};
use crate::asset_inventory::{add, with};

pub const CONFIG: &str = "/api/backup/config";
pub const AGGREGATE: &str = "/api/backup/customer-aggregate";
pub const REPORTS: &str = "/internal/ingest/backup";

/// Two targets that make three copies on two media with the original, one of them elsewhere and immutable.
pub const TARGETS: [&str; 2] = ["nas", "b2"];

/// More moments than any test lets pass.
const MOMENTS_MAX: usize = 20_000;
/// Judging that is not done after this long never is.
const JUDGING_MAX: Duration = Duration::from_mins(1);

const NEXT_DUE: &str = "SELECT MIN(next_at) FROM (SELECT next_at FROM backup_devices UNION ALL SELECT next_at FROM backup_postures) AS due";

/// A server whose sessions outlast the weeks of a test, and with budgets that no test meets.
pub async fn open(mut setup: Setup) -> Server {
    setup.settings.session_idle_ms = 10_000 * DAY_MS;
    setup.settings.session_absolute_ms = 10_000 * DAY_MS;
    for policy in RatePolicy::ALL {
        setup.settings.rate_table.set(policy, 10_000_000);
    }
    setup.start().await
}

/// A moment, such as `2026-01-15T10:00:00Z`.
#[track_caller]
pub fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap_or_else(|| panic!("{text} is no time"))
}

/// A run of a backup that took ten minutes, as a script reports it.
pub fn backup(device: &str, status: &str, ended_at: Timestamp) -> Value {
    job(device, "backup", status, ended_at)
}

/// A run of any kind.
pub fn job(device: &str, kind: &str, status: &str, ended_at: Timestamp) -> Value {
    json!({
        "external_id": format!("{device} {kind} {status} {}", ended_at.as_millis()), "device": device, "job": "nightly", "kind": kind,
        "tool": "other", "status": status, "target": "nas", "started_at": ended_at.plus_ms(-600_000), "ended_at": ended_at,
    })
}

/// The targets of [`TARGETS`], for a policy.
pub fn targets() -> Value {
    json!([
        {"name": "nas", "type": "nas", "media": "disk", "offsite": false, "immutable": false, "immutable_days": null},
        {"name": "b2", "type": "s3", "media": "object", "offsite": true, "immutable": true, "immutable_days": 30},
    ])
}

/// The grades of a row: of protection, of recoverability, and the worse.
#[track_caller]
pub fn grades(row: &Value) -> [&str; 3] {
    ["protection_health", "recoverability_health", "health"]
        .map(|field| row[field].as_str().unwrap_or_else(|| panic!("no {field} in {row:#}")))
}

/// The reasons of a row as `rpo_missed critical`, sorted.
#[track_caller]
pub fn reasons(row: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let all = row["reasons"].as_array().unwrap_or_else(|| panic!("no reasons in {row:#}"));
    let mut all: Vec<String> =
        all.iter().map(|one| format!("{} {}", word(&one["code"]), word(&one["severity"]))).collect();
    all.sort_unstable();
    all
}

/// The only reason of a row with this code.
#[track_caller]
pub fn reason<'a>(row: &'a Value, code: &str) -> &'a Value {
    let found: Vec<&Value> =
        row["reasons"].as_array().expect("reasons").iter().filter(|one| one["code"] == code).collect();
    let [one] = found.as_slice() else { panic!("one reason {code} in {row:#}") };
    one
}

/// Success, warning, failed and missed.
#[track_caller]
pub fn counts(of: &Value) -> [i64; 4] {
    ["success", "warning", "failed", "missed"]
        .map(|name| of[name].as_i64().unwrap_or_else(|| panic!("no {name} in {of}")))
}

/// The days of a row on which anything ran or was missed.
pub fn busy_days(row: &Value) -> Vec<(String, [i64; 4])> {
    let days = row["days"].as_array().expect("days");
    assert_eq!(days.len(), 28, "{row:#}");
    let all = days.iter().map(|day| (day["date"].as_str().expect("a date").to_owned(), counts(day)));
    all.filter(|(_, counts)| *counts != [0; 4]).collect()
}

impl Server {
    /// A server of this name without an organization, or with one. Its id.
    pub async fn machine(&self, tenancy: &Tenancy, hostname: &str, organization: Option<&str>) -> String {
        self.machine_of(tenancy, hostname, organization, Type::Server).await
    }

    pub async fn machine_of(
        &self,
        tenancy: &Tenancy,
        hostname: &str,
        organization: Option<&str>,
        kind: Type,
    ) -> String {
        let organization = organization.map(|id| id.parse().expect("an id"));
        let made = with(hostname, |full| (full.device.organization_id, full.device.r#type) = (organization, kind));
        add(self, tenancy, made).await
    }

    pub async fn post_report(&self, key: &IngestKey, report: &Value) -> Answer {
        self.post(REPORTS).header("authorization", key.basic()).json(report).await
    }

    /// A new report.
    pub async fn report(&self, key: &IngestKey, report: &Value) -> Value {
        let answer = self.post_report(key, report).await;
        assert_eq!(answer.status, 201, "{report}: {}", answer.json());
        answer.json()
    }

    pub async fn put_policy(&self, tenancy: &Tenancy, query: &str, policy: &Value) -> Answer {
        self.put(format!("{CONFIG}?{query}")).cookie(&tenancy.admin).json(policy).await
    }

    /// Sets a level of the policy.
    pub async fn set_policy(&self, tenancy: &Tenancy, query: &str, policy: &Value) -> Value {
        let answer = self.put_policy(tenancy, query, policy).await;
        assert_eq!(answer.status, 200, "{policy}: {}", answer.json());
        answer.json()
    }

    pub async fn read_policy(&self, tenancy: &Tenancy, query: &str) -> Value {
        self.get(format!("{CONFIG}?{query}")).cookie(&tenancy.admin).await.ok(200)
    }

    /// Judges every device and organization whose time has come, as the job does.
    pub async fn judge_backups(&self) {
        let judged = tokio::time::timeout(JUDGING_MAX, judge_due_backups(&self.app)).await;
        judged.expect("judging ends").expect("backups are judged");
    }

    /// Lets time pass, and judges what comes due on the way, when it does.
    pub async fn judge_for(&self, ms: i64) {
        self.judge_until(self.now().plus_ms(ms)).await;
    }

    pub async fn judge_until(&self, end: Timestamp) {
        self.judge_backups().await;
        for _ in 0..MOMENTS_MAX {
            let due: Option<Timestamp> =
                self.app.store.system(Purpose::Cli).get_one(NEXT_DUE, kernel::args![]).await.expect("what is due");
            let Some(due) = due.filter(|due| *due <= end) else {
                self.advance_to(end);
                return self.judge_backups().await;
            };
            assert!(due > self.now(), "what was due at {due} was not judged");
            self.advance_to(due);
            self.judge_backups().await;
        }
        panic!("a backup is due for ever");
    }

    /// The whole answer of the aggregate.
    pub async fn aggregate(&self, tenancy: &Tenancy, query: &str) -> Value {
        self.get(format!("{AGGREGATE}?{query}")).cookie(&tenancy.admin).await.ok(200)
    }

    /// All rows, in their order.
    pub async fn postures(&self, tenancy: &Tenancy) -> Vec<Value> {
        self.aggregate(tenancy, "limit=200").await["data"].as_array().expect("data").clone()
    }

    /// How an organization stands; without one, the devices that belong to none.
    pub async fn posture(&self, tenancy: &Tenancy, organization: Option<&str>) -> Value {
        let rows = match organization {
            Some(id) => self.aggregate(tenancy, &format!("organization_id={id}")).await["data"]
                .as_array()
                .expect("data")
                .clone(),
            None => self.postures(tenancy).await.into_iter().filter(|row| row["organization_id"].is_null()).collect(),
        };
        let [row] = rows.as_slice() else { panic!("one row of {organization:?}, not {rows:#?}") };
        row.clone()
    }

    /// The events of changed grades, oldest first: of whom, and the grades.
    pub async fn grade_events(&self, tenancy: &Tenancy) -> Vec<(Value, [String; 3])> {
        let events = self.events_of(tenancy, "backup.posture.changed").await;
        events
            .iter()
            .map(|event| (event["data"]["organization_id"].clone(), grades(&event["data"]).map(str::to_owned)))
            .collect()
    }
}
