//! `admin tenant|organization|user|session|sso|sla|ingest-key|device|clock|keyring`: works on the store directly, beside a
//! running server.

use clap::Subcommand;
use kernel::auth::{Tenant, create_tenant, list_tenants};
use kernel::base::{Result, StringEnum};
use kernel::store::Purpose;
use serde_json::json;
use tickets::Priority;
use tickets::sla::{self, PriorityPolicy, SlaPolicy};

use super::analytics::{self, AnalyticsCommand};
use super::args::{CommonArgs, TenantArgs, open_tenant, parse_enum};
use super::clock::{self, ClockCommand};
use super::device::{self, DeviceCommand};
use super::ingest_key::{self, IngestKeyCommand};
use super::keyring::{self, KeyringCommand};
use super::organization::{self, OrganizationCommand};
use super::session::{self, SessionCommand};
use super::sso::{self, SsoCommand};
use super::store;
use super::user::{self, UserCommand};

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
    /// The keys of the secrets file that seal stored secrets
    #[command(subcommand)]
    Keyring(KeyringCommand),
    /// Figures of tenants and of the platform
    #[command(subcommand)]
    Analytics(AnalyticsCommand),
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
        /// low, medium, high or critical
        #[arg(long, value_parser = parse_enum::<Priority>)]
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
        of: TenantArgs,
    },
    /// List a tenant's service levels
    List {
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Delete the service level of a priority; existing tickets keep theirs
    Delete {
        /// low, medium, high or critical
        #[arg(long, value_parser = parse_enum::<Priority>)]
        priority: Priority,
        #[command(flatten)]
        of: TenantArgs,
    },
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
            common.output.print_list(&tenants, line)
        }
        AdminCommand::Organization(command) => organization::run(command).await,
        AdminCommand::User(command) => user::run(command).await,
        AdminCommand::Session(command) => session::run(command).await,
        AdminCommand::Sso(command) => sso::run(command).await,
        AdminCommand::Sla(command) => run_sla(command).await,
        AdminCommand::IngestKey(command) => ingest_key::run(command).await,
        AdminCommand::Device(command) => device::run(command).await,
        AdminCommand::Clock(command) => clock::run(command).await,
        AdminCommand::Keyring(command) => keyring::run(command).await,
        AdminCommand::Analytics(command) => analytics::run(command).await,
    }
}

async fn run_sla(command: SlaCommand) -> Result<()> {
    match command {
        SlaCommand::Set { priority, first_response_minutes, resolution_minutes, hours, timezone, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let policy = SlaPolicy { first_response_minutes, resolution_minutes, hours, timezone };
            let set = sla::store::set_policy(&db, PriorityPolicy { priority, policy }).await?;
            of.output().print_value(&set, format_policy)
        }
        SlaCommand::List { of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let all = sla::store::list_policies(&db).await?;
            of.output().print_list(&all, format_policy)
        }
        SlaCommand::Delete { priority, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            sla::store::delete_policy(&db, priority).await?;
            of.output().print_value(&json!({ "priority": priority }), |_| {
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
