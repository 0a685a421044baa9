//! `admin ingest-key`: the keys that agents report with.

use clap::Subcommand;
use fleet::ingest_keys::{self, IngestKey, IngestKeyId};
use fleet::inventory;
use kernel::base::{Code, Result};
use kernel::http::BaseUrl;
use kernel::store::Db;
use serde_json::json;

use super::args::{TenantArgs, open_tenant, unknown_record};
use super::organization::find_organization;
use super::store;
use crate::config::LinkArgs;

#[derive(Subcommand)]
pub enum IngestKeyCommand {
    /// Make a key and print the address that is pasted into the agents' settings; the secret in it is not shown again
    Create {
        /// The slug of the one organization whose devices the key reaches [default: all of the tenant's]
        #[arg(long, value_name = "SLUG")]
        organization: Option<String>,
        #[command(flatten)]
        url: LinkArgs,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// List the keys of a tenant, revoked ones included
    List {
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Revoke a key; reports with it are refused from now on
    Revoke {
        /// The key's id, as `list` shows it
        #[arg(long)]
        id: String,
        #[command(flatten)]
        of: TenantArgs,
    },
}

pub async fn run(command: IngestKeyCommand) -> Result<()> {
    match command {
        IngestKeyCommand::Create { organization, url, of } => {
            let (store, tenant, db) = open_tenant(&of).await?;
            let organization = match organization {
                Some(slug) => Some(find_organization(&db, &of, &slug).await?),
                None => None,
            };
            let base_url = url.base_url(&store).await?;
            // The server's secrets: a hash with another pepper would never match.
            let secrets = store::load_secrets(&of.common.store, &store).await?;
            let made = ingest_keys::create_ingest_key(&db, organization.as_ref(), &secrets).await?;
            let id = made.record.id;
            let url = ingest_url(&base_url, &made.secret.with_id(id));
            let owner =
                organization.map_or_else(|| tenant.slug.clone(), |one| format!("{} of {}", one.slug, tenant.slug));
            of.output().print_value(&json!({ "id": id, "secret": made.secret.reveal(), "url": url }), |_| {
                format!(
                    "Ingest key {id} was made for {owner}. Its address, which is not shown again:\n{url}\n\
                     Paste it into the settings of agents as their server."
                )
            })
        }
        IngestKeyCommand::List { of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let all = ingest_keys::list_ingest_keys(&db).await?;
            of.output().print_list(&all, format_key)
        }
        IngestKeyCommand::Revoke { id, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let revoked = revoke_key(&db, &of, &id).await?;
            of.output().print_value(&revoked, |key| format!("Ingest key {} is revoked.", key.id))
        }
    }
}

/// A malformed id is reported like the id of another tenant's key: as unknown.
async fn revoke_key(db: &Db, of: &TenantArgs, id: &str) -> Result<IngestKey> {
    let missing = || unknown_record(of, "ingest key", id);
    let id: IngestKeyId = id.parse().map_err(|_| missing())?;
    let revoked = ingest_keys::revoke_ingest_key(db, id).await;
    revoked.map_err(|error| if error.code() == Code::NotFound { missing() } else { error })
}

/// The URL for agents, with the credentials in it, where agents read them.
fn ingest_url(base_url: &BaseUrl, credentials: &str) -> String {
    base_url.as_str().replacen("://", &format!("://{credentials}@"), 1) + inventory::routes::PATH
}

fn format_key(key: &IngestKey) -> String {
    let organization = key.organization.as_deref().unwrap_or("(all)");
    let revoked = key.revoked_at.map(|at| format!("  revoked {at}")).unwrap_or_default();
    format!("{}  {organization}  …{}  {}{revoked}", key.id, key.last_four, key.created_at)
}
