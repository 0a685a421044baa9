//! `admin organization`: the organizations of a tenant, which are its own customers.

use clap::Subcommand;
use kernel::base::{Error, FieldError, Label, Result};
use kernel::http::read_object;
use kernel::store::Db;
use people::organizations::input::{OrganizationInput, parse_slug};
use people::organizations::{self, Organization, OrganizationUpdate};
use serde_json::{Map, Value, json};

use super::args::{TenantArgs, open_tenant, unknown_record};

#[derive(Subcommand)]
pub enum OrganizationCommand {
    /// Make an organization
    Create {
        /// Display name
        #[arg(long)]
        name: String,
        /// What commands and agents call it: a-z, 0-9 and - [default: made from the name]
        #[arg(long)]
        slug: Option<String>,
        /// Its id in another system
        #[arg(long)]
        external_id: Option<String>,
        /// A domain name that is its own; may be given several times
        #[arg(long = "domain", value_name = "DOMAIN")]
        domains: Vec<String>,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// List the organizations of a tenant, archived ones included
    List {
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Change an organization; what is not named stays
    Update {
        /// Its current slug
        #[arg(long)]
        slug: String,
        /// Display name
        #[arg(long)]
        name: Option<String>,
        /// Its new slug
        #[arg(long)]
        new_slug: Option<String>,
        /// true or false: whether it is hidden from lists, and nothing new can refer to it
        #[arg(long)]
        archived: Option<bool>,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Delete an organization that nothing refers to, for good
    Delete {
        /// Its slug
        #[arg(long)]
        slug: String,
        #[command(flatten)]
        of: TenantArgs,
    },
}

pub async fn run(command: OrganizationCommand) -> Result<()> {
    match command {
        OrganizationCommand::Create { name, slug, external_id, domains, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let input = read_input(name, slug, external_id, domains)?;
            let made = organizations::create_organization(&db, input).await?;
            of.output().print_value(&made, |made| format!("Organization {} ({}) was made.", made.slug, made.id))
        }
        OrganizationCommand::List { of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let all = organizations::list_organizations(&db).await?;
            of.output().print_list(&all, format_organization)
        }
        OrganizationCommand::Update { slug, name, new_slug, archived, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let update = read_update(name.as_deref(), new_slug.as_deref(), archived)?;
            let id = find_organization(&db, &of, &slug).await?.id;
            let changed = organizations::update_organization(&db, id, update).await?;
            of.output().print_value(&changed, format_organization)
        }
        OrganizationCommand::Delete { slug, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let id = find_organization(&db, &of, &slug).await?.id;
            organizations::delete_organization(&db, id).await?;
            of.output()
                .print_value(&json!({ "id": id, "slug": slug }), |_| format!("Organization {slug} ({id}) is gone."))
        }
    }
}

/// The organization with this slug, or an error that says how to list them.
pub async fn find_organization(db: &Db, of: &TenantArgs, slug: &str) -> Result<Organization> {
    organizations::find_by_slug(db, slug).await?.ok_or_else(|| unknown_record(of, "organization", slug))
}

/// Parses the flags by the same rules as a request body.
fn read_input(
    name: String,
    slug: Option<String>,
    external_id: Option<String>,
    domains: Vec<String>,
) -> Result<OrganizationInput> {
    let mut body = Map::new();
    body.insert("name".to_owned(), Value::from(name));
    body.insert("domains".to_owned(), Value::from(domains));
    for (field, given) in [("slug", slug), ("external_id", external_id)] {
        if let Some(given) = given {
            body.insert(field.to_owned(), Value::from(given));
        }
    }
    read_object::<OrganizationInput>(body).into_result().map(|(input, _)| input).map_err(|error| point_at_flags(&error))
}

/// Replaces the pointers of field errors by those of the flags.
fn point_at_flags(error: &Error) -> Error {
    let flag = |field: &FieldError| {
        let is_domain = field.pointer.starts_with("/domains");
        let pointer = if is_domain { "/domain".to_owned() } else { field.pointer.clone() };
        FieldError { pointer, code: field.code, detail: field.detail.clone() }
    };
    Error::invalid_fields(error.fields().iter().map(flag).collect())
}

fn read_update(name: Option<&str>, new_slug: Option<&str>, archived: Option<bool>) -> Result<OrganizationUpdate> {
    let name = name.map(Label::parse).transpose().map_err(|detail| Error::invalid("/name", "invalid_name", detail))?;
    let slug =
        new_slug.map(parse_slug).transpose().map_err(|detail| Error::invalid("/new-slug", "invalid_slug", detail))?;
    Ok(OrganizationUpdate { name, slug, archived })
}

fn format_organization(one: &Organization) -> String {
    let archived = if one.archived { "  archived" } else { "" };
    format!("{}  {}  {}{archived}", one.id, one.slug, one.name)
}
