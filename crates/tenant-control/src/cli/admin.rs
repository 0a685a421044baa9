//! `admin tenant|organization|user|session|sla|ingest-key|device|clock`: on the store directly, beside a running server.

use clap::{Args, Subcommand};
use kernel::auth::{
    NewUser, Role, SIGNIN_LINK_MS, Tenant, User, UserChange, create_session, create_signin_link, create_tenant,
    create_user, delete_user, find_tenant, find_user, list_tenants, list_users, operate, update_user,
};
use kernel::base::{Error, Result, Word};
use kernel::store::{Purpose, Store};
use serde_json::json;

use super::clock::{self, ClockCommand};
use super::device::{self, DeviceCommand};
use super::ingest_key::{self, IngestKeyCommand};
use super::output::Output;
use super::store;
use crate::config::{LinkArgs, SessionArgs, StoreArgs};
use crate::features::organizations::{self, Organization};
use crate::features::tickets::Priority;
use crate::features::tickets::sla::{self, Policy, PriorityPolicy};

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
    /// Signing people in
    #[command(subcommand)]
    Session(SessionCommand),
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
pub enum OrganizationCommand {
    /// Make an organization
    Create {
        #[command(flatten)]
        of: Of,
        /// What people call it
        #[arg(long)]
        name: String,
        /// What commands and agents call it: a-z, 0-9 and -
        #[arg(long)]
        slug: String,
        #[command(flatten)]
        common: Common,
    },
    /// List the organizations of a tenant
    List {
        #[command(flatten)]
        of: Of,
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
    tenant: String,
}

/// Whom a command is about.
#[derive(Args)]
pub struct Whom {
    #[command(flatten)]
    of: Of,
    /// The user's e-mail address
    #[arg(long)]
    email: String,
}

#[derive(Subcommand)]
pub enum UserCommand {
    /// Make a user
    Create {
        #[command(flatten)]
        whom: Whom,
        /// What the user may do: admin, technician or viewer
        #[arg(long, value_parser = parse_role)]
        role: Role,
        /// The user's name [default: the e-mail's first part]
        #[arg(long)]
        name: Option<String>,
        /// May read the figures of all tenants
        #[arg(long)]
        platform_operator: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Change a user's role or office; in force at once, also in open sessions
    Update {
        #[command(flatten)]
        whom: Whom,
        /// admin, technician or viewer
        #[arg(long, value_parser = parse_role)]
        role: Option<Role>,
        /// true or false
        #[arg(long)]
        platform_operator: Option<bool>,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a user and end all their sessions; keys they made stay until revoked
    Delete {
        #[command(flatten)]
        whom: Whom,
        #[command(flatten)]
        common: Common,
    },
    /// List the users of a tenant
    List {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Subcommand)]
pub enum SessionCommand {
    /// Make a session cookie for the command line, or with --link a one-time sign-in link for a browser
    Create {
        #[command(flatten)]
        whom: Whom,
        /// A link that signs a browser in, once, within 15 minutes
        #[arg(long)]
        link: bool,
        #[command(flatten)]
        url: LinkArgs,
        #[command(flatten)]
        session: SessionArgs,
        #[command(flatten)]
        common: Common,
    },
}

fn parse_role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| format!("must be one of {}", Role::ALL.map(Role::as_str).join(", ")))
}

fn parse_word<W: Word>(text: &str) -> Result<W, String> {
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
        Command::Organization(command) => run_organization(command).await,
        Command::Sla(command) => run_sla(command).await,
        Command::IngestKey(command) => ingest_key::run(command).await,
        Command::Device(command) => device::run(command).await,
        Command::Clock(command) => clock::run(command).await,
        Command::User(command) => run_user(command).await,
        Command::Session(SessionCommand::Create { whom, link, url, session, common }) => {
            let store = store::open(&common.store).await?;
            let (tenant, user) = find(&store, &whom).await?;
            let base_url = url.base_url(&store).await?;
            if link {
                let token = create_signin_link(&store, tenant.id, user.id).await?;
                let url = format!("{}/signin?token={}", base_url.as_str(), token.reveal());
                let expires_at = store.world().now().plus(SIGNIN_LINK_MS);
                return common.output.print(&json!({ "url": url, "expires_at": expires_at }), |_| {
                    format!("{url}\nGood once, until {expires_at}.")
                });
            }
            let (token, ends_at) = create_session(&store, tenant.id, user.id, session.max_ms()).await?;
            let cookie = format!("{}={}", base_url.cookie_name(), token.reveal());
            let expires_at = ends_at.min(store.world().now().plus(session.idle_ms()));
            common.output.print(&json!({ "cookie": cookie, "expires_at": expires_at }), |_| {
                format!("Cookie: {cookie}\nUntil {expires_at} if unused.")
            })
        }
    }
}

async fn run_organization(command: OrganizationCommand) -> Result<()> {
    match command {
        OrganizationCommand::Create { of, name, slug, common } => {
            let store = store::open(&common.store).await?;
            let tenant = tenant(&store, &of).await?;
            let made = organizations::create(&operate(&store, &tenant), &name, &slug).await?;
            common.output.print(&made, |made| format!("Organization {} ({}) was made.", made.slug, made.id))
        }
        OrganizationCommand::List { of, common } => {
            let store = store::open(&common.store).await?;
            let all = organizations::list(&operate(&store, &tenant(&store, &of).await?)).await?;
            let line = |one: &Organization| format!("{}  {}  {}", one.id, one.slug, one.name);
            common.output.print(&all, |all| all.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
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

/// A promise in one line.
fn promised(target: &PriorityPolicy) -> String {
    let Policy { first_response_minutes, resolution_minutes, hours, timezone } = &target.policy;
    let hours = match (hours, timezone) {
        (None, _) => "day and night".to_owned(),
        (Some(hours), zone) => format!("{hours} {}", zone.as_deref().unwrap_or("UTC")),
    };
    let priority = target.priority.as_str();
    format!("{priority}  first response {first_response_minutes} min  resolution {resolution_minutes} min  {hours}")
}

async fn run_user(command: UserCommand) -> Result<()> {
    match command {
        UserCommand::Create { whom, role, name, platform_operator, common } => {
            let store = store::open(&common.store).await?;
            let tenant = tenant(&store, &whom.of).await?;
            let user =
                create_user(&store, &tenant, NewUser { email: whom.email, name, role, platform_operator }).await?;
            common.output.print(&user, |user| format!("User {} ({}) was made.", user.email, user.id))
        }
        UserCommand::Update { whom, role, platform_operator, common } => {
            let store = store::open(&common.store).await?;
            let (tenant, user) = find(&store, &whom).await?;
            let user = update_user(&store, &tenant, user.id, UserChange { role, platform_operator }).await?;
            common.output.print(&user, |user| format!("User {} is {}.", user.email, user.role.as_str()))
        }
        UserCommand::Delete { whom, common } => {
            let store = store::open(&common.store).await?;
            let (tenant, user) = find(&store, &whom).await?;
            delete_user(&store, &tenant, &user).await?;
            common.output.print(&user, |user| format!("User {} was removed.", user.email))
        }
        UserCommand::List { of, common } => {
            let store = store::open(&common.store).await?;
            let tenant = tenant(&store, &of).await?;
            let users = list_users(&store, &tenant).await?;
            let line = |user: &User| format!("{}  {}  {}", user.id, user.role.as_str(), user.email);
            common.output.print(&users, |users| users.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
    }
}

pub async fn tenant(store: &Store, of: &Of) -> Result<Tenant> {
    let slug = of.tenant.as_str();
    let found = find_tenant(&store.system(Purpose::Cli), slug).await?;
    found.ok_or_else(|| {
        Error::internal(format!("there is no tenant {slug:?}; `tenant-control admin tenant list` shows them"))
    })
}

async fn find(store: &Store, whom: &Whom) -> Result<(Tenant, User)> {
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
