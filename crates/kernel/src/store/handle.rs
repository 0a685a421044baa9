//! The context of a handle: the tenant it is bound to, the actor, and the environment that gives time and randomness.

use crate::base::{Actor, Clock, Error, Result, TenantId, Timestamp, World};

use super::{Engine, Followers, dialect};

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
}

impl Purpose {
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::SignIn => "sign_in",
            Purpose::Credentials => "credentials",
            Purpose::Housekeeping => "housekeeping",
            Purpose::Jobs => "jobs",
            Purpose::RateLimits => "rate_limits",
            Purpose::Startup => "startup",
            Purpose::Cli => "cli",
            Purpose::Health => "health",
        }
    }
}

pub(super) struct Handle {
    pub reach: Reach,
    /// Whether this is a background job of the tenant, which must not delay the tenant's own requests.
    pub job: bool,
    pub actor: Actor,
    pub world: World,
    /// None when the store was opened without declaring followers.
    pub followers: Option<Followers>,
}

#[derive(Clone)]
pub(super) enum Reach {
    /// The text is kept beside the id because every statement binds it.
    Tenant(TenantId, String),
    System(Purpose),
}

/// Whose share of queues and limiters a handle uses: tenants are served round-robin, and their jobs have shares of their
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    System,
    Tenant(TenantId),
    Job(TenantId),
}

impl Handle {
    /// A copy of the context with another actor.
    pub fn acting(&self, actor: Actor) -> Self {
        let Handle { reach, job, world, followers, .. } = self;
        Handle { reach: reach.clone(), job: *job, actor, world: world.clone(), followers: *followers }
    }

    /// The time to bind as the database's time; none where the database has its own clock and no manual clock replaces it.
    pub fn given_time(&self, engine: Engine) -> Option<Timestamp> {
        let tells_itself = engine == Engine::Postgres && !matches!(self.world.clock, Clock::Manual(_));
        (!tells_itself).then(|| self.world.now())
    }

    pub fn lane(&self) -> Lane {
        match self.reach {
            Reach::System(_) => Lane::System,
            Reach::Tenant(id, _) if self.job => Lane::Job(id),
            Reach::Tenant(id, _) => Lane::Tenant(id),
        }
    }

    pub fn tenant_id(&self) -> Option<TenantId> {
        match &self.reach {
            Reach::Tenant(id, _) => Some(*id),
            Reach::System(_) => None,
        }
    }

    /// The tenant that the handle binds as `$1`; the system's handle binds none.
    pub fn bound(&self) -> Option<&String> {
        match &self.reach {
            Reach::Tenant(_, text) => Some(text),
            Reach::System(_) => None,
        }
    }

    /// The tenant whose rows row-level security lets through.
    pub fn visible(&self) -> &str {
        match &self.reach {
            Reach::Tenant(_, text) => text,
            Reach::System(_) => dialect::EVERY_TENANT,
        }
    }

    /// A [`super::Select`] numbers its parameters for one kind of handle; on the other kind `$1` would be another value.
    pub fn check_select(&self, for_tenant: bool) -> Result<()> {
        if for_tenant == self.bound().is_some() {
            return Ok(());
        }
        Err(Error::internal("a Select for a tenant's handle was used on the system's, or the other way round"))
    }
}

/// The error for a statement whose parameters do not match the bound values. Clients never see it, so it may name the
/// statement.
pub(super) fn mismatch(sql: &str, uses: usize, bound: usize) -> Error {
    Error::internal(format!(
        "the statement uses {uses} parameters and {bound} are bound (every number from $1 must occur, and on a \
         tenant's handle $1 is the tenant): {sql}"
    ))
}
