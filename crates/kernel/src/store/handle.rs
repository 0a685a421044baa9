//! The context of a handle: the tenant it is bound to, the actor, and the environment that gives time and randomness.

use crate::base::{Actor, Env, Error, Result, TenantId, Timestamp, WallClock};

use super::{DatabaseEngine, Followers, dialect};

/// The reason for a statement over all tenants. Every call of [`super::Store::system`] names one, and a test lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    SignIn,
    Credentials,
    Housekeeping,
    Jobs,
    RateLimits,
    Startup,
    Cli,
    Health,
    /// Figures of all tenants, for platform operators.
    Platform,
}

pub(super) struct HandleContext {
    pub reach: HandleReach,
    /// Whether this is a background job of the tenant, which must not delay the tenant's own requests.
    pub is_job: bool,
    pub actor: Actor,
    pub env: Env,
    /// None when the store was opened without declaring followers.
    pub followers: Option<Followers>,
}

#[derive(Clone)]
pub(super) enum HandleReach {
    /// The text is kept beside the id because every statement binds it.
    Tenant(TenantId, String),
    System,
}

/// Whose share of queues and limiters a handle uses: tenants are served round-robin, and their jobs have shares of their
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FairnessKey {
    System,
    Tenant(TenantId),
    Job(TenantId),
}

impl HandleContext {
    /// A copy of the context with another actor.
    pub fn with_actor(&self, actor: Actor) -> Self {
        let HandleContext { reach, is_job, env, followers, .. } = self;
        HandleContext { reach: reach.clone(), is_job: *is_job, actor, env: env.clone(), followers: *followers }
    }

    /// The time to bind as the database's time; none where the database has its own clock and no manual clock replaces it.
    pub fn clock_override(&self, engine: DatabaseEngine) -> Option<Timestamp> {
        let has_own_clock = engine == DatabaseEngine::Postgres && !matches!(self.env.clock, WallClock::Manual(_));
        (!has_own_clock).then(|| self.env.now())
    }

    pub fn fairness_key(&self) -> FairnessKey {
        match self.reach {
            HandleReach::System => FairnessKey::System,
            HandleReach::Tenant(id, _) if self.is_job => FairnessKey::Job(id),
            HandleReach::Tenant(id, _) => FairnessKey::Tenant(id),
        }
    }

    pub fn tenant_id(&self) -> Option<TenantId> {
        match &self.reach {
            HandleReach::Tenant(id, _) => Some(*id),
            HandleReach::System => None,
        }
    }

    /// The tenant that the handle binds as `$1`; the system's handle binds none.
    pub fn bound_tenant(&self) -> Option<&String> {
        match &self.reach {
            HandleReach::Tenant(_, text) => Some(text),
            HandleReach::System => None,
        }
    }

    /// The tenant whose rows row-level security lets through.
    pub fn visible_tenant(&self) -> &str {
        match &self.reach {
            HandleReach::Tenant(_, text) => text,
            HandleReach::System => dialect::EVERY_TENANT,
        }
    }

    /// A [`super::Select`] numbers its parameters for one kind of handle; on the other kind `$1` would be another value.
    pub fn check_select(&self, for_tenant: bool) -> Result<()> {
        if for_tenant == self.bound_tenant().is_some() {
            return Ok(());
        }
        Err(Error::internal("a Select for a tenant's handle was used on the system's, or the other way round"))
    }
}

/// The error for a statement whose parameters do not match the bound values. Clients never see it, so it may name the
/// statement.
pub(super) fn parameter_mismatch(sql: &str, uses: usize, bound: usize) -> Error {
    Error::internal(format!(
        "the statement uses {uses} parameters and {bound} are bound (every number from $1 must occur, and on a \
         tenant's handle $1 is the tenant): {sql}"
    ))
}
