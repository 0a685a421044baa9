//! `admin tenant|organization|user|session|sso|sla|ingest-key|device|clock`: works on the store directly, beside a running
//! server.

use clap::{Args, Subcommand};
use kernel::auth::{Tenant, create_tenant, find_tenant, list_tenants, open_as_operator};
use kernel::base::{Error, Result, Word};
use kernel::store::{Purpose, Store};
use people::users::{User, find_user};
use serde_json::json;
use tickets::Priority;
use tickets::sla::{self, PriorityPolicy, SlaPolicy};

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

#[derive(Subcommand)]
pub enum AdminCommand {
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
    /// Identity providers for single sign-on
    #[command(subcommand)]
    Sso(SsoCommand),
    /// Service levels (SLA) for tickets
    #[command(subcommand)]
    Sla(SlaCommand),
    /// Keys that agents report devices with
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
pub struct CommonArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Subcommand)]
pub enum TenantCommand {
    /// Make a tenant
    Create {
        /// Display name
        #[arg(long)]
        name: String,
        /// Short name for commands: a-z, 0-9 and -
        #[arg(long)]
        slug: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// List all tenants
    List {
        #[command(flatten)]
        common: CommonArgs,
    },
}

#[derive(Subcommand)]
pub enum SlaCommand {
    /// Set the response and resolution times of tickets that get this priority from now on
    Set {
        #[command(flatten)]
        of: TenantArgs,
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
        common: CommonArgs,
    },
    /// List a tenant's service levels
    List {
        #[command(flatten)]
        of: TenantArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Delete the service level of a priority; existing tickets keep theirs
    Delete {
        #[command(flatten)]
        of: TenantArgs,
        /// low, medium, high or critical
        #[arg(long, value_parser = parse_word::<Priority>)]
        priority: Priority,
        #[command(flatten)]
        common: CommonArgs,
    },
}

/// Whose records a command is about.
#[derive(Args)]
pub struct TenantArgs {
    /// The tenant's slug
    #[arg(long)]
    pub tenant: String,
}

/// Whom a command is about.
#[derive(Args)]
pub struct UserArgs {
    #[command(flatten)]
    pub of: TenantArgs,
    /// The user's e-mail address
    #[arg(long)]
    pub email: String,
}

pub fn parse_word<W: Word>(text: &str) -> Result<W, String> {
    W::parse(text).ok_or_else(|| format!("must be {}", W::expected_words()))
}

pub async fn run(command: AdminCommand) -> Result<()> {
    match command {
        AdminCommand::Tenant(TenantCommand::Create { name, slug, common }) => {
            let store = store::open_store(&common.store).await?;
            let tenant = create_tenant(&store, &name, &slug).await?;
            common.output.print_value(&tenant, |tenant| format!("Tenant {} ({}) was made.", tenant.slug, tenant.id))
        }
        AdminCommand::Tenant(TenantCommand::List { common }) => {
            let store = store::open_store(&common.store).await?;
            let tenants = list_tenants(&store.system(Purpose::Cli)).await?;
            let line = |tenant: &Tenant| format!("{}  {}  {}", tenant.id, tenant.slug, tenant.name);
            common.output.print_value(&tenants, |tenants| tenants.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        AdminCommand::Organization(command) => organization::run(command).await,
        AdminCommand::User(command) => user::run(command).await,
        AdminCommand::Session(command) => session::run(command).await,
        AdminCommand::Sso(command) => sso::run(command).await,
        AdminCommand::Sla(command) => run_sla(command).await,
        AdminCommand::IngestKey(command) => ingest_key::run(command).await,
        AdminCommand::Device(command) => device::run(command).await,
        AdminCommand::Clock(command) => clock::run(command).await,
    }
}

async fn run_sla(command: SlaCommand) -> Result<()> {
    match command {
        SlaCommand::Set { of, priority, first_response_minutes, resolution_minutes, hours, timezone, common } => {
            let store = store::open_store(&common.store).await?;
            let db = open_as_operator(&store, &get_tenant(&store, &of).await?);
            let policy = SlaPolicy { first_response_minutes, resolution_minutes, hours, timezone };
            let set = sla::store::set_policy(&db, PriorityPolicy { priority, policy }).await?;
            common.output.print_value(&set, format_policy)
        }
        SlaCommand::List { of, common } => {
            let store = store::open_store(&common.store).await?;
            let all = sla::store::list_policies(&open_as_operator(&store, &get_tenant(&store, &of).await?)).await?;
            common.output.print_value(&all, |all| all.iter().map(format_policy).collect::<Vec<_>>().join("\n"))
        }
        SlaCommand::Delete { of, priority, common } => {
            let store = store::open_store(&common.store).await?;
            sla::store::delete_policy(&open_as_operator(&store, &get_tenant(&store, &of).await?), priority).await?;
            common.output.print_value(&json!({ "priority": priority }), |_| {
                format!("The service level for {} was deleted.", priority.as_str())
            })
        }
    }
}

fn format_policy(target: &PriorityPolicy) -> String {
    let SlaPolicy { first_response_minutes, resolution_minutes, hours, timezone } = &target.policy;
    let hours = match (hours, timezone) {
        (None, _) => "day and night".to_owned(),
        (Some(hours), zone) => format!("{hours} {}", zone.as_deref().unwrap_or("UTC")),
    };
    let priority = target.priority.as_str();
    format!("{priority}  first response {first_response_minutes} min  resolution {resolution_minutes} min  {hours}")
}

pub async fn get_tenant(store: &Store, of: &TenantArgs) -> Result<Tenant> {
    let slug = of.tenant.as_str();
    let found = find_tenant(&store.system(Purpose::Cli), slug).await?;
    found.ok_or_else(|| {
        Error::internal(format!("there is no tenant {slug:?}; `tenant-control admin tenant list` shows them"))
    })
}

/// The user and their tenant.
pub async fn get_user(store: &Store, user_args: &UserArgs) -> Result<(Tenant, User)> {
    let tenant = get_tenant(store, &user_args.of).await?;
    let user = find_user(store, &tenant, &user_args.email).await?;
    let missing = || {
        format!(
            "there is no user {:?} in {}; `tenant-control admin user list --tenant {}` shows them",
            user_args.email, tenant.slug, tenant.slug
        )
    };
    Ok((tenant.clone(), user.ok_or_else(|| Error::internal(missing()))?))
}
