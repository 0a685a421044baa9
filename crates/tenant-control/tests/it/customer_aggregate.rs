//! `/api/backup/customer-aggregate`: how the backups of each customer stand.

mod clock;
mod grades;
mod guide;
mod imported;
mod list;
mod model;
mod schedule;
mod scope;

use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use serde_json::{Value, json};

use crate::support::backups::{
    AGGREGATE, TARGETS, at, backup, busy_days, counts, grades, job, open, reason, reasons, targets,
};
use crate::support::devices::IngestKey;
use crate::support::{Server, Setup, Tenancy, over_http};
use crate::tickets::{organization, with};

/// A customer with one server, and what reports of it.
struct Customer {
    server: Server,
    acme: Tenancy,
    key: IngestKey,
    organization: String,
    device: String,
}

impl Customer {
    async fn open(setup: Setup) -> Customer {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let organization = organization(&server, &acme, "globex").await;
        let device = server.machine(&acme, "web01", Some(&organization)).await;
        Customer { server, acme, key, organization, device }
    }

    /// How it stands.
    async fn row(&self) -> Value {
        self.server.posture(&self.acme, Some(&self.organization)).await
    }

    async fn report(&self, report: &Value) -> Value {
        self.server.report(&self.key, report).await
    }

    /// A backup of its server that ends now.
    async fn back_up(&self, status: &str) {
        self.report(&backup(&self.device, status, self.server.now())).await;
    }

    /// The same on all of `TARGETS`, with a verification and a restore test.
    async fn do_everything(&self) {
        for target in TARGETS {
            let now = self.server.now();
            let report = backup(&self.device, "success", now);
            let id = format!("{target} {}", now.as_millis());
            self.report(&with(&report, &json!({"target": target, "external_id": id}))).await;
        }
        for kind in ["verify", "restore_test"] {
            self.report(&job(&self.device, kind, "success", self.server.now())).await;
        }
    }

    /// Sets the policy of the customer.
    async fn set(&self, policy: &Value) -> Value {
        self.server.set_policy(&self.acme, &format!("organization_id={}", self.organization), policy).await
    }
}
