//! `/api/analytics/tenant` and `/api/analytics/platform`: figures about everything.

mod backfill;
mod edges;
mod families;
mod guide;
mod model;
mod platform;
mod rebuild;
mod refuse;
mod usage;
mod zones;

use kernel::base::Timestamp;
use serde_json::{Value, json};
use tenant_control::features::fold;

use crate::support::backups::{at, open};
use crate::support::{Answer, Server, Setup, Tenancy, over_http};

pub const TENANT: &str = "/api/analytics/tenant";
pub const PLATFORM: &str = "/api/analytics/platform";

impl Server {
    /// Adds up everything so far, as the jobs do.
    pub async fn fold(&self) {
        fold::store::write_usage(&self.app).await.expect("what is metered is written");
        fold::store::fold_facts(&self.app).await.expect("facts are added up");
    }

    async fn ask_figures(&self, tenancy: &Tenancy, query: &str) -> Answer {
        self.fold().await;
        self.get(format!("{TENANT}?{query}")).cookie(&tenancy.admin).await
    }

    /// The figures of a tenant, up to date.
    pub async fn figures(&self, tenancy: &Tenancy, query: &str) -> Value {
        let answer = self.ask_figures(tenancy, query).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.json());
        answer.json()
    }

    /// Lets time pass until a moment.
    fn go_to(&self, moment: Timestamp) {
        assert!(moment >= self.now(), "time does not go back to {moment}");
        self.advance(moment.as_millis() - self.now().as_millis());
    }
}

/// A field of each bucket.
fn column(family: &Value, path: &str) -> Vec<Value> {
    let series = family["series"].as_array().expect("a series");
    series.iter().map(|bucket| bucket.pointer(path).expect("a field").clone()).collect()
}

/// The sum of a field of all buckets.
fn sum(family: &Value, path: &str) -> i64 {
    column(family, path).iter().map(|number| number.as_i64().expect("a whole number")).sum()
}
