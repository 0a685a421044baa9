//! Arguments that commands share, and what they name.

use clap::Args;
use kernel::auth::{Tenant, find_tenant};
use kernel::base::{Error, Result, Word};
use kernel::store::{Purpose, Store};
use people::users::{User, find_user};

use super::output::Output;
use crate::config::StoreArgs;

#[derive(Args)]
pub struct CommonArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub output: Output,
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

pub fn parse_word<W: Word>(text: &str) -> Result<W, String> {
    W::parse(text).ok_or_else(|| format!("must be {}", W::expected_words()))
}
