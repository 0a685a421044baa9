//! Rate policies: the kinds of requests that have separate budgets, and the limits of each.

/// The kinds of requests that have separate budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RatePolicy {
    Read,
    Write,
    Search,
    Export,
    Ingest,
    Auth,
    AuthFailures,
    Public,
}

impl RatePolicy {
    pub const ALL: [RatePolicy; 8] = [
        RatePolicy::Read,
        RatePolicy::Write,
        RatePolicy::Search,
        RatePolicy::Export,
        RatePolicy::Ingest,
        RatePolicy::Auth,
        RatePolicy::AuthFailures,
        RatePolicy::Public,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RatePolicy::Read => "read",
            RatePolicy::Write => "write",
            RatePolicy::Search => "search",
            RatePolicy::Export => "export",
            RatePolicy::Ingest => "ingest",
            RatePolicy::Auth => "auth",
            RatePolicy::AuthFailures => "auth_failures",
            RatePolicy::Public => "public",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        RatePolicy::ALL.into_iter().find(|policy| policy.name() == text)
    }

    /// Whether requests are counted by address, because the caller is not authenticated.
    pub const fn is_by_address(self) -> bool {
        matches!(self, RatePolicy::Auth | RatePolicy::AuthFailures | RatePolicy::Public)
    }

    pub fn purpose(self) -> &'static str {
        match self {
            RatePolicy::Read => "Reads: GET and HEAD of tenant data.",
            RatePolicy::Write => "Changes: POST, PUT, PATCH and DELETE.",
            RatePolicy::Search => "Full-text search.",
            RatePolicy::Export => "Whole lists as CSV or NDJSON.",
            RatePolicy::Ingest => "Reports of agents, by ingest key.",
            RatePolicy::Auth => "Beginning to sign in: the form of /signin, and POST /api/auth/sso.",
            RatePolicy::AuthFailures => {
                "Failing to sign in: an unknown domain, a link or return from a provider that does not fit, a refused sign-on."
            }
            RatePolicy::Public => "Everything without a valid credential, and requests that no route answers.",
        }
    }
}

/// One row of the rate table.
#[derive(Clone, Copy, Debug)]
pub struct PolicyLimit {
    pub policy: RatePolicy,
    pub per_minute: u64,
    /// The budget that all keys and sessions of a tenant share.
    pub per_tenant: Option<u64>,
}

/// The limits in force, for the limiter and for the page that shows them.
#[derive(Clone, Debug)]
pub struct RateTable([u64; RatePolicy::ALL.len()]);

/// A tenant's budget is this many times that of one of its keys.
pub(super) const TENANT_FACTOR: u64 = 5;
pub const WINDOW_SECONDS: i64 = 60;

impl Default for RateTable {
    fn default() -> Self {
        RateTable([1200, 600, 600, 30, 6000, 120, 20, 120])
    }
}

impl RateTable {
    pub fn set(&mut self, policy: RatePolicy, per_minute: u64) {
        self.0[policy as usize] = per_minute;
    }

    pub(super) fn per_minute(&self, policy: RatePolicy) -> u64 {
        self.0[policy as usize]
    }

    pub fn policy_limits(&self) -> impl Iterator<Item = PolicyLimit> + '_ {
        RatePolicy::ALL.into_iter().map(|policy| {
            let per_minute = self.per_minute(policy);
            let per_tenant = (!policy.is_by_address()).then(|| per_minute.saturating_mul(TENANT_FACTOR));
            PolicyLimit { policy, per_minute, per_tenant }
        })
    }
}
