//! `admin tenant|organization|user|session|sso|sla|ingest-key|device|clock`: works on the store directly, beside a running
//! server.

use clap::{Args, Subcommand};
use kernel::auth::{Tenant, create_tenant, find_tenant, list_tenants, operate};
use kernel::base::{Error, Result, Word};
use kernel::store::{Purpose, Store};
use serde_json::json;

use super::clock::{self, ClockCommand};
use super::device::{self, DeviceCommand};
use super::ingest_key::{self, IngestKeyCommand};
use super::organization::{self, OrganizationCommand};
use super::output::Output;
use super::session::{self, SessionCommand};
use super::sso::{self, SsoCommand};
use super::store;
use super::user::{self, UserCommand};
use crate::config::StoreArgs;
use people::users::{User, find_user};
use tickets::Priority;
use tickets::sla::{self, Policy, PriorityPolicy};

#[derive(Subcommand)]
pub enum Command {
    /// The customers of this installation
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// The organizations of a tenant: its own customers
    #[command(subcommand)]
    Organization(OrganizationCommand),
    /// The people of a tenant
    #[command(subcommand)]
    User(UserCommand),
    /// Signing people in, and out
    #[command(subcommand)]
    Session(SessionCommand),
    /// Where the people of a tenant sign on
    #[command(subcommand)]
    Sso(SsoCommand),
    /// What a tenant promises for its tickets
    #[command(subcommand)]
    Sla(SlaCommand),
    /// What agents report a tenant's devices with
    #[command(subcommand)]
    IngestKey(IngestKeyCommand),
    /// Devices of a tenant, beside what agents report
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Clocks of tenants that a machine with a wrong time has moved ahead
    #[command(subcommand)]
    Clock(ClockCommand),
}

#[derive(Args)]
pub struct Common {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Subcommand)]
pub enum TenantCommand {
    /// Make a tenant
    Create {
        /// What people call it
        #[arg(long)]
        name: String,
        /// What commands call it: a-z, 0-9 and -
        #[arg(long)]
        slug: String,
        #[command(flatten)]
        common: Common,
    },
    /// List all tenants
    List {
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Subcommand)]
pub enum SlaCommand {
    /// Promise a first response and a resolution for tickets that get this priority from now on
    Set {
        #[command(flatten)]
        of: Of,
        /// low, medium, high or critical
        #[arg(long, value_parser = parse_word::<Priority>)]
        priority: Priority,
        #[arg(long)]
        first_response_minutes: i64,
        #[arg(long)]
        resolution_minutes: i64,
        /// When the clock runs, such as mon-fri@09:00-17:00, several with commas between [default: day and night]
        #[arg(long)]
        hours: Option<String>,
        /// The time zone of the hours, such as Europe/Berlin [default: UTC]
        #[arg(long, requires = "hours")]
        timezone: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// List what a tenant promises
    List {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        common: Common,
    },
    /// Promise nothing for this priority any more; tickets keep what they were promised
    Delete {
        #[command(flatten)]
        of: Of,
        /// low, medium, high or critical
        #[arg(long, value_parser = parse_word::<Priority>)]
        priority: Priority,
        #[command(flatten)]
        common: Common,
    },
}

/// Whose records a command is about.
#[derive(Args)]
pub struct Of {
    /// The tenant's slug
    #[arg(long)]
    pub tenant: String,
}

/// Whom a command is about.
#[derive(Args)]
pub struct Whom {
    #[command(flatten)]
    pub of: Of,
    /// The user's e-mail address
    #[arg(long)]
    pub email: String,
}

pub fn parse_word<W: Word>(text: &str) -> Result<W, String> {
    W::parse(text).ok_or_else(|| format!("must be {}", W::expected()))
}

pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Tenant(TenantCommand::Create { name, slug, common }) => {
            let store = store::open(&common.store).await?;
            let tenant = create_tenant(&store, &name, &slug).await?;
            common.output.print(&tenant, |tenant| format!("Tenant {} ({}) was made.", tenant.slug, tenant.id))
        }
        Command::Tenant(TenantCommand::List { common }) => {
            let store = store::open(&common.store).await?;
            let tenants = list_tenants(&store.system(Purpose::Cli)).await?;
            let line = |tenant: &Tenant| format!("{}  {}  {}", tenant.id, tenant.slug, tenant.name);
            common.output.print(&tenants, |tenants| tenants.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        Command::Organization(command) => organization::run(command).await,
        Command::User(command) => user::run(command).await,
        Command::Session(command) => session::run(command).await,
        Command::Sso(command) => sso::run(command).await,
        Command::Sla(command) => run_sla(command).await,
        Command::IngestKey(command) => ingest_key::run(command).await,
        Command::Device(command) => device::run(command).await,
        Command::Clock(command) => clock::run(command).await,
    }
}

async fn run_sla(command: SlaCommand) -> Result<()> {
    match command {
        SlaCommand::Set { of, priority, first_response_minutes, resolution_minutes, hours, timezone, common } => {
            let store = store::open(&common.store).await?;
            let db = operate(&store, &tenant(&store, &of).await?);
            let policy = Policy { first_response_minutes, resolution_minutes, hours, timezone };
            let set = sla::store::set(&db, PriorityPolicy { priority, policy }).await?;
            common.output.print(&set, promised)
        }
        SlaCommand::List { of, common } => {
            let store = store::open(&common.store).await?;
            let all = sla::store::list(&operate(&store, &tenant(&store, &of).await?)).await?;
            common.output.print(&all, |all| all.iter().map(promised).collect::<Vec<_>>().join("\n"))
        }
        SlaCommand::Delete { of, priority, common } => {
            let store = store::open(&common.store).await?;
            sla::store::delete(&operate(&store, &tenant(&store, &of).await?), priority).await?;
            common.output.print(&json!({ "priority": priority }), |_| {
                format!("Nothing is promised for {} from now on.", priority.as_str())
            })
        }
    }
}

fn promised(target: &PriorityPolicy) -> String {
    let Policy { first_response_minutes, resolution_minutes, hours, timezone } = &target.policy;
    let hours = match (hours, timezone) {
        (None, _) => "day and night".to_owned(),
        (Some(hours), zone) => format!("{hours} {}", zone.as_deref().unwrap_or("UTC")),
    };
    let priority = target.priority.as_str();
    format!("{priority}  first response {first_response_minutes} min  resolution {resolution_minutes} min  {hours}")
}

pub async fn tenant(store: &Store, of: &Of) -> Result<Tenant> {
    let slug = of.tenant.as_str();
    let found = find_tenant(&store.system(Purpose::Cli), slug).await?;
    found.ok_or_else(|| {
        Error::internal(format!("there is no tenant {slug:?}; `tenant-control admin tenant list` shows them"))
    })
}

/// The user and their tenant.
pub async fn find(store: &Store, whom: &Whom) -> Result<(Tenant, User)> {
    let tenant = tenant(store, &whom.of).await?;
    let user = find_user(store, &tenant, &whom.email).await?;
    let missing = || {
        format!(
            "there is no user {:?} in {}; `tenant-control admin user list --tenant {}` shows them",
            whom.email, tenant.slug, tenant.slug
        )
    };
    Ok((tenant.clone(), user.ok_or_else(|| Error::internal(missing()))?))
}
