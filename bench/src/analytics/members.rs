//! What figures are broken down by.

use kernel::base::{ApiKeyId, DAY_MS, Env, Timestamp};
use tenant_control::features::organizations::OrganizationId;

const KEYS: usize = 20;
const ORGANIZATIONS: usize = 50;
const CURRENCIES: [&str; 2] = ["EUR", "USD"];
const RESOURCES: [&str; 12] = [
    "psa/tickets",
    "psa/sla-policies",
    "devices",
    "backup/configs",
    "backup/job-reports",
    "cloud/providers",
    "cloud/vms",
    "workflows",
    "webhooks",
    "organizations",
    "admin/users",
    "admin/api-keys",
];

pub struct Members {
    pub keys: Vec<ApiKeyId>,
    /// Method and path: five of each kind of record.
    pub routes: Vec<String>,
    pub organizations: Vec<String>,
    pub currencies: Vec<String>,
}

impl Members {
    /// Those that there were a year before.
    pub fn make(end: i64) -> Self {
        let (env, at) = (Env::default(), Timestamp::from_millis(end - 365 * DAY_MS));
        let routes = RESOURCES.iter().flat_map(|resource| {
            [
                format!("GET /api/{resource}"),
                format!("POST /api/{resource}"),
                format!("GET /api/{resource}/{{id}}"),
                format!("PATCH /api/{resource}/{{id}}"),
                format!("DELETE /api/{resource}/{{id}}"),
            ]
        });
        Members {
            keys: (0..KEYS).map(|_| ApiKeyId::new_at(&env, at)).collect(),
            routes: routes.collect(),
            organizations: (0..ORGANIZATIONS).map(|_| OrganizationId::new_at(&env, at).to_string()).collect(),
            currencies: CURRENCIES.map(str::to_owned).to_vec(),
        }
    }

    pub fn key_texts(&self) -> Vec<String> {
        self.keys.iter().map(ToString::to_string).collect()
    }
}
