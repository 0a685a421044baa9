//! `admin organization`: the organizations of a tenant, which are its own customers.

use clap::Subcommand;
use kernel::auth::{Tenant, operate};
use kernel::base::{Error, FieldError, Label, Result};
use kernel::http::read_object;
use kernel::store::Db;
use serde_json::{Map, Value, json};

use super::admin::{Common, Of, tenant};
use super::store;
use people::organizations::input::{Input, parse_slug};
use people::organizations::{self, Organization, Update};

#[derive(Subcommand)]
pub enum OrganizationCommand {
    /// Make an organization
    Create {
        #[command(flatten)]
        of: Of,
        /// What people call it
        #[arg(long)]
        name: String,
        /// What commands and agents call it: a-z, 0-9 and - [default: made from the name]
        #[arg(long)]
        slug: Option<String>,
        /// What another system calls it
        #[arg(long)]
        external_id: Option<String>,
        /// A domain name that is its own; may be given several times
        #[arg(long = "domain", value_name = "DOMAIN")]
        domains: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// List the organizations of a tenant, archived ones included
    List {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        common: Common,
    },
    /// Change an organization; what is not named stays
    Update {
        #[command(flatten)]
        of: Of,
        /// What commands call it by now
        #[arg(long)]
        slug: String,
        /// What people call it
        #[arg(long)]
        name: Option<String>,
        /// What commands and agents call it from now on
        #[arg(long)]
        new_slug: Option<String>,
        /// true or false: whether it is hidden from lists, and nothing new can refer to it
        #[arg(long)]
        archived: Option<bool>,
        #[command(flatten)]
        common: Common,
    },
    /// Delete an organization that nothing refers to, for good
    Delete {
        #[command(flatten)]
        of: Of,
        /// What commands call it
        #[arg(long)]
        slug: String,
        #[command(flatten)]
        common: Common,
    },
}

pub async fn run(command: OrganizationCommand) -> Result<()> {
    match command {
        OrganizationCommand::Create { of, name, slug, external_id, domains, common } => {
            let store = store::open(&common.store).await?;
            let tenant = tenant(&store, &of).await?;
            let input = read_input(name, slug, external_id, domains)?;
            let made = organizations::create_from(&operate(&store, &tenant), input).await?;
            common.output.print(&made, |made| format!("Organization {} ({}) was made.", made.slug, made.id))
        }
        OrganizationCommand::List { of, common } => {
            let store = store::open(&common.store).await?;
            let all = organizations::list(&operate(&store, &tenant(&store, &of).await?)).await?;
            common.output.print(&all, |all| all.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        OrganizationCommand::Update { of, slug, name, new_slug, archived, common } => {
            let store = store::open(&common.store).await?;
            let tenant = tenant(&store, &of).await?;
            let update = read_update(name.as_deref(), new_slug.as_deref(), archived)?;
            let db = operate(&store, &tenant);
            let id = find_organization(&db, &tenant, &slug).await?.id;
            let changed = organizations::update(&db, id, update).await?;
            common.output.print(&changed, line)
        }
        OrganizationCommand::Delete { of, slug, common } => {
            let store = store::open(&common.store).await?;
            let tenant = tenant(&store, &of).await?;
            let db = operate(&store, &tenant);
            let id = find_organization(&db, &tenant, &slug).await?.id;
            organizations::delete(&db, id).await?;
            common.output.print(&json!({ "id": id, "slug": slug }), |_| format!("Organization {slug} ({id}) is gone."))
        }
    }
}

/// The organization with this slug, or an error that says how to list them.
pub async fn find_organization(db: &Db, tenant: &Tenant, slug: &str) -> Result<Organization> {
    let missing = || {
        Error::internal(format!(
            "there is no organization {slug:?} in {}; `tenant-control admin organization list --tenant {}` shows them",
            tenant.slug, tenant.slug
        ))
    };
    organizations::find_by_slug(db, slug).await?.ok_or_else(missing)
}

/// Parses the flags by the same rules as a request body.
fn read_input(name: String, slug: Option<String>, external_id: Option<String>, domains: Vec<String>) -> Result<Input> {
    let mut body = Map::new();
    body.insert("name".to_owned(), Value::from(name));
    body.insert("domains".to_owned(), Value::from(domains));
    for (field, given) in [("slug", slug), ("external_id", external_id)] {
        if let Some(given) = given {
            body.insert(field.to_owned(), Value::from(given));
        }
    }
    read_object::<Input>(body).into_result().map(|(input, _)| input).map_err(|error| flagged(&error))
}

/// Replaces the pointers of field errors by those of the flags.
fn flagged(error: &Error) -> Error {
    let flag = |field: &FieldError| {
        let is_domain = field.pointer.starts_with("/domains");
        let pointer = if is_domain { "/domain".to_owned() } else { field.pointer.clone() };
        FieldError { pointer, code: field.code, detail: field.detail.clone() }
    };
    Error::invalid_fields(error.fields().iter().map(flag).collect())
}

fn read_update(name: Option<&str>, new_slug: Option<&str>, archived: Option<bool>) -> Result<Update> {
    let name = name.map(Label::parse).transpose().map_err(|detail| Error::invalid("/name", "invalid_name", detail))?;
    let slug =
        new_slug.map(parse_slug).transpose().map_err(|detail| Error::invalid("/new-slug", "invalid_slug", detail))?;
    Ok(Update { name, slug, archived })
}

fn line(one: &Organization) -> String {
    let archived = if one.archived { "  archived" } else { "" };
    format!("{}  {}  {}{archived}", one.id, one.slug, one.name)
}
