//! `admin user`: the people of a tenant.

use clap::Subcommand;
use kernel::auth::Role;
use kernel::base::Result;
use people::sso::ProviderId;
use people::users::{NewUser, User, UserStatus, UserUpdate, create_user, list_users, unlink_user, update_user};

use super::args::{TenantArgs, UserArgs, open_tenant, open_user, parse_enum};
use super::sso;

#[derive(Subcommand)]
pub enum UserCommand {
    /// Make a user
    Create {
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
        whom: UserArgs,
    },
    /// Change a user; in force at once, also in open sessions. A tenant keeps one active admin
    Update {
        /// admin, technician or viewer
        #[arg(long, value_parser = parse_role)]
        role: Option<Role>,
        /// true or false
        #[arg(long)]
        platform_operator: Option<bool>,
        /// The user's name
        #[arg(long)]
        name: Option<String>,
        /// active or disabled, which ends all their sessions
        #[arg(long, value_parser = parse_enum::<UserStatus>)]
        status: Option<UserStatus>,
        #[command(flatten)]
        whom: UserArgs,
    },
    /// Disable a user and end all their sessions; keys they made stay until revoked, and the address stays taken
    Delete {
        #[command(flatten)]
        whom: UserArgs,
    },
    /// Unlink a user from their providers and end all their sessions; the next sign-on with their verified address links them again
    Unlink {
        /// The provider's id, as `admin sso list` shows it [default: every provider]
        #[arg(long, value_parser = sso::parse_id)]
        provider: Option<ProviderId>,
        #[command(flatten)]
        whom: UserArgs,
    },
    /// List the users of a tenant, the disabled among them
    List {
        #[command(flatten)]
        of: TenantArgs,
    },
}

fn parse_role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| format!("must be one of {}", Role::ALL.map(Role::as_str).join(", ")))
}

pub async fn run(command: UserCommand) -> Result<()> {
    match command {
        UserCommand::Create { role, name, platform_operator, whom } => {
            let (store, tenant, _) = open_tenant(&whom.of).await?;
            let new = NewUser { email: whom.email.clone(), name, role, platform_operator };
            let user = create_user(&store, &tenant, new).await?;
            whom.output().print_value(&user, |user| format!("User {} ({}) was made.", user.email, user.id))
        }
        UserCommand::Update { role, platform_operator, name, status, whom } => {
            let (store, tenant, user) = open_user(&whom).await?;
            let change = UserUpdate { name, role, platform_operator, status };
            let user = update_user(&store, &tenant, user.id, change).await?;
            whom.output().print_value(&user, |user| {
                format!("User {} is {}{}.", user.email, user.role.as_str(), status_suffix(user))
            })
        }
        UserCommand::Delete { whom } => {
            let (store, tenant, user) = open_user(&whom).await?;
            let change = UserUpdate { status: Some(UserStatus::Disabled), ..UserUpdate::default() };
            let user = update_user(&store, &tenant, user.id, change).await?;
            whom.output().print_value(&user, |user| format!("User {} is disabled.", user.email))
        }
        UserCommand::Unlink { provider, whom } => {
            let (store, tenant, user) = open_user(&whom).await?;
            match unlink_user(&store, &tenant, user.id, provider).await? {
                Some(user) => whom.output().print_value(&user, format_unlinked),
                None => whom.output().print_value(&user, |user| format!("User {} has nothing to unlink.", user.email)),
            }
        }
        UserCommand::List { of } => {
            let (store, tenant, _) = open_tenant(&of).await?;
            let users = list_users(&store, &tenant).await?;
            let line =
                |user: &User| format!("{}  {}{}  {}", user.id, user.role.as_str(), status_suffix(user), user.email);
            of.output().print_list(&users, line)
        }
    }
}

/// The suffix of users who cannot sign in.
fn status_suffix(user: &User) -> &'static str {
    match user.status {
        UserStatus::Active => "",
        UserStatus::Disabled => " (disabled)",
    }
}

fn format_unlinked(user: &User) -> String {
    let first = format!("User {} is unlinked, and all their sessions have ended.", user.email);
    if user.platform_operator {
        return format!("{first}\nPlatform operators do not sign on: make them a sign-in link.");
    }
    first
}
