//! Arguments that commands share, and what they name.

use clap::Args;
use kernel::auth::{Tenant, find_tenant, open_as_operator};
use kernel::base::{Error, Result, StringEnum};
use kernel::store::{Db, Purpose, Store};
use people::users::{User, find_user};

use super::output::Output;
use super::store::open_store;
use crate::config::StoreArgs;
use crate::shell::format_flag;

#[derive(Args)]
pub struct CommonArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub output: Output,
}

/// Whose records a command is about, and where they are.
#[derive(Args)]
pub struct TenantArgs {
    /// The tenant's slug
    #[arg(long)]
    pub tenant: String,
    #[command(flatten)]
    pub common: CommonArgs,
}

impl TenantArgs {
    pub fn output(&self) -> Output {
        self.common.output
    }

    /// The line of an `admin` command about this tenant, for people to paste.
    pub fn command_line(&self, command: &str, flags: &[(&str, &str)]) -> String {
        let flags = [&[("--tenant", self.tenant.as_str())], flags].concat();
        let flags: Vec<String> = flags.iter().map(|(name, value)| format_flag(name, value)).collect();
        self.common.store.command_line(&format!("admin {command} {}", flags.join(" ")))
    }
}

/// Whom a command is about.
#[derive(Args)]
pub struct UserArgs {
    /// The user's e-mail address
    #[arg(long)]
    pub email: String,
    #[command(flatten)]
    pub of: TenantArgs,
}

impl UserArgs {
    pub fn output(&self) -> Output {
        self.of.output()
    }
}

/// The store, the tenant that a command is about, and the tenant's records.
pub async fn open_tenant(of: &TenantArgs) -> Result<(Store, Tenant, Db)> {
    let store = open_store(&of.common.store).await?;
    let tenant = get_tenant(&store, of).await?;
    let db = open_as_operator(&store, &tenant);
    Ok((store, tenant, db))
}

/// The store, and the user that a command is about, with their tenant.
pub async fn open_user(user_args: &UserArgs) -> Result<(Store, Tenant, User)> {
    let store = open_store(&user_args.of.common.store).await?;
    let (tenant, user) = get_user(&store, user_args).await?;
    Ok((store, tenant, user))
}

async fn get_tenant(store: &Store, of: &TenantArgs) -> Result<Tenant> {
    let slug = of.tenant.as_str();
    let found = find_tenant(&store.system(Purpose::Cli), slug).await?;
    found.ok_or_else(|| {
        let list = of.common.store.command_line("admin tenant list");
        Error::internal(format!("there is no tenant {slug:?}; `{list}` shows them"))
    })
}

/// The user and their tenant.
pub async fn get_user(store: &Store, user_args: &UserArgs) -> Result<(Tenant, User)> {
    let tenant = get_tenant(store, &user_args.of).await?;
    let user = find_user(store, &tenant, &user_args.email).await?;
    let user = user.ok_or_else(|| unknown_record(&user_args.of, "user", &user_args.email))?;
    Ok((tenant, user))
}

/// The error for a record that the tenant does not have, which says how to list them.
pub fn unknown_record(of: &TenantArgs, what: &str, name: &str) -> Error {
    let list = of.command_line(&format!("{} list", what.replace(' ', "-")), &[]);
    Error::internal(format!("there is no {what} {name:?} in {}; `{list}` shows them", of.tenant))
}

pub fn parse_enum<W: StringEnum>(text: &str) -> Result<W, String> {
    W::parse(text).ok_or_else(|| format!("must be {}", W::expected_names()))
}
