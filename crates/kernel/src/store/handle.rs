//! On whose behalf a handle works: the tenant it is bound to, who acts, and the world it takes time and chance from.

use crate::base::{Actor, Clock, Error, Result, TenantId, Timestamp, World};

use super::{Engine, Followers, dialect};

/// Why the service works across tenants. Every call of [`super::Store::system`] names one, and a test lists them.
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
    /// Whether the service works for the tenant by itself, which must not keep the tenant's own requests waiting.
    pub job: bool,
    pub actor: Actor,
    pub world: World,
    /// None when nobody has said who follows.
    pub followers: Option<Followers>,
}

#[derive(Clone)]
pub(super) enum Reach {
    /// The text is kept beside the id because every statement binds it.
    Tenant(TenantId, String),
    System(Purpose),
}

/// In whose turn a handle works: tenants take turns, and what the service does by itself has turns of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    System,
    Tenant(TenantId),
    Job(TenantId),
}

impl Handle {
    /// The same, with another who acts.
    pub fn acting(&self, actor: Actor) -> Self {
        let Handle { reach, job, world, followers, .. } = self;
        Handle { reach: reach.clone(), job: *job, actor, world: world.clone(), followers: *followers }
    }

    /// The moment that stands for the database's time: none where it has its own, which a manual clock replaces.
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

    /// What the handle binds as `$1`; the system binds nothing itself.
    pub fn bound(&self) -> Option<&String> {
        match &self.reach {
            Reach::Tenant(_, text) => Some(text),
            Reach::System(_) => None,
        }
    }

    /// Whose rows row-level security lets through.
    pub fn visible(&self) -> &str {
        match &self.reach {
            Reach::Tenant(_, text) => text,
            Reach::System(_) => dialect::EVERY_TENANT,
        }
    }

    /// A [`super::Select`] counts its numbers for one kind of handle; on the other, `$1` would be another value.
    pub fn check_select(&self, for_tenant: bool) -> Result<()> {
        if for_tenant == self.bound().is_some() {
            return Ok(());
        }
        Err(Error::internal("a Select for a tenant's handle was used on the system's, or the other way round"))
    }
}

/// The statement's numbers and what is bound do not match. Never shown to a client, so it may name the statement.
pub(super) fn mismatch(sql: &str, uses: usize, bound: usize) -> Error {
    Error::internal(format!(
        "the statement uses {uses} parameters and {bound} are bound (every number from $1 must occur, and on a \
         tenant's handle $1 is the tenant): {sql}"
    ))
}
