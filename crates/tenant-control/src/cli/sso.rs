//! `admin sso`: the identity providers and domains of a tenant.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use kernel::auth::{Role, Tenant};
use kernel::base::{Code, Error, Result};
use kernel::http::BaseUrl;
use kernel::outbound::{Outbound, Target, look_up_txt};
use kernel::store::{Db, Store};
use people::sso::{
    self, CALLBACK_PATH, Domain, NewProvider, Provider, ProviderChange, ProviderId, RoleRule, SIGNED_OUT_PATH,
    is_address_target, is_allowed_target, parse_domain, parse_role_rule, parse_scope,
};
use serde::Serialize;

use super::args::{TenantArgs, open_tenant};
use super::store;
use crate::config::{LinkArgs, OutboundArgs};

#[derive(Subcommand)]
pub enum SsoCommand {
    /// Set an OpenID Connect provider up, and print what to register there and in the DNS
    Add(Box<SsoAddArgs>),
    /// Change a provider; sessions and identities stay, and sign-ons under way start again. The issuer cannot be changed,
    /// because identities belong to it: add another provider instead
    Update(Box<SsoUpdateArgs>),
    /// List the providers of a tenant, disabled ones included
    List {
        /// Only this one
        #[arg(long, value_parser = parse_id)]
        id: Option<ProviderId>,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Disable a provider: nobody can sign on there any more; sessions stay
    Disable {
        /// The provider's id, as `list` shows it [default: the only one that is enabled]
        #[arg(long, value_parser = parse_id)]
        id: Option<ProviderId>,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Replace the client secret of a provider; sessions and identities stay
    SetSecret {
        /// The provider's id, as `list` shows it [default: the only one that is enabled]
        #[arg(long, value_parser = parse_id)]
        id: Option<ProviderId>,
        /// A file with the secret, and nothing else
        #[arg(long, value_name = "PATH")]
        client_secret_file: PathBuf,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Give a domain up, so that another tenant can verify it; its people cannot sign on any more
    ReleaseDomain {
        #[arg(long, value_parser = parse_domain)]
        domain: String,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// Verify by DNS that a domain is the tenant's; then its users can sign on
    VerifyDomain {
        #[arg(long, value_parser = parse_domain)]
        domain: String,
        /// Skip the DNS lookup: you vouch for the domain
        #[arg(long)]
        operator_word: bool,
        /// The name server to ask [default: the system's]
        #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "operator_word")]
        dns_server: Option<SocketAddr>,
        #[command(flatten)]
        of: TenantArgs,
    },
}

#[derive(clap::Args)]
pub struct SsoAddArgs {
    /// Display name
    #[arg(long)]
    name: String,
    /// The provider's issuer, exactly as in its discovery document
    #[arg(long, value_name = "URL")]
    issuer: String,
    /// The client id of this service at the provider
    #[arg(long, value_name = "ID")]
    client_id: String,
    /// A file that contains only the client secret
    #[arg(long, value_name = "PATH")]
    client_secret_file: PathBuf,
    /// The scopes to ask for, such as "openid email profile groups" [default: openid email profile, and those of claims that
    /// --role-map looks at and the provider lists]
    #[arg(long, value_parser = parse_scope)]
    scope: Option<String>,
    /// A domain whose people sign in there; can be given several times
    #[arg(long, required = true, value_parser = parse_domain)]
    domain: Vec<String>,
    /// Role of users who match no --role-map: admin, technician or viewer; or none, which refuses them
    #[arg(long, default_value = "viewer", value_parser = parse_default_role)]
    default_role: DefaultRole,
    /// Role of users with this value in this claim; of several the highest; can be given several times
    #[arg(long, value_name = "CLAIM=VALUE:ROLE", value_parser = parse_role_rule)]
    role_map: Vec<RoleRule>,
    /// Take e-mail addresses that the provider does not call verified
    #[arg(long)]
    trust_email: bool,
    /// Send users who sign out here to the provider, to sign out there too
    #[arg(long)]
    sign_out_at_provider: bool,
    #[command(flatten)]
    url: LinkArgs,
    #[command(flatten)]
    outbound: OutboundArgs,
    #[command(flatten)]
    of: TenantArgs,
}

#[derive(clap::Args)]
pub struct SsoUpdateArgs {
    /// The provider's id, as `list` shows it
    #[arg(long, value_parser = parse_id)]
    id: ProviderId,
    /// Display name
    #[arg(long)]
    name: Option<String>,
    /// The client id of this service at the provider
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// A file that contains only the client secret
    #[arg(long, value_name = "PATH")]
    client_secret_file: Option<PathBuf>,
    /// The scopes to ask for, such as "openid email profile groups"
    #[arg(long, value_parser = parse_scope)]
    scope: Option<String>,
    /// Ask for openid email profile, and those of claims that --role-map looks at and the provider lists
    #[arg(long, conflicts_with = "scope")]
    no_scope: bool,
    /// Role of users who match no --role-map: admin, technician or viewer; or none, which refuses them
    #[arg(long, value_parser = parse_default_role)]
    default_role: Option<DefaultRole>,
    /// Role of users with this value in this claim; replaces all earlier rules; can be given several times
    #[arg(long, value_name = "CLAIM=VALUE:ROLE", value_parser = parse_role_rule)]
    role_map: Vec<RoleRule>,
    /// Everybody has the default role
    #[arg(long, conflicts_with = "role_map")]
    no_role_map: bool,
    /// true or false: take e-mail addresses that the provider does not call verified
    #[arg(long)]
    trust_email: Option<bool>,
    /// Another domain whose people sign in there; can be given several times
    #[arg(long, value_parser = parse_domain)]
    domain: Vec<String>,
    /// true or false: send users who sign out here to the provider, to sign out there too
    #[arg(long)]
    sign_out_at_provider: Option<bool>,
    /// Let people sign on there again; domains that lead to another provider by now stay there
    #[arg(long)]
    enable: bool,
    #[command(flatten)]
    url: LinkArgs,
    #[command(flatten)]
    of: TenantArgs,
}

pub fn parse_id(text: &str) -> Result<ProviderId, String> {
    text.parse().map_err(|_| "is not the id of a provider, such as sso_01jd8z6v2mfkpb7h3q9xw5t4rd".to_owned())
}

/// `None` refuses users who match no role rule.
#[derive(Clone, Copy)]
struct DefaultRole(Option<Role>);

fn parse_default_role(text: &str) -> Result<DefaultRole, String> {
    if text == "none" {
        return Ok(DefaultRole(None));
    }
    let wrong = || format!("must be one of {}, none", Role::ALL.map(Role::as_str).join(", "));
    Role::parse(text).map(|role| DefaultRole(Some(role))).ok_or_else(wrong)
}

pub async fn run(command: SsoCommand) -> Result<()> {
    match command {
        SsoCommand::Add(args) => add_provider(*args).await,
        SsoCommand::Update(args) => update_provider(*args).await,
        SsoCommand::List { id, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let mut all = sso::list_providers(&db).await?;
            all.retain(|provider| id.is_none_or(|id| provider.id == id));
            of.output().print_list(&all, format_provider)
        }
        SsoCommand::Disable { id, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let id = get_or_only_enabled(&db, &of, id).await?;
            let disabled = sso::disable_provider(&db, id).await.map_err(|error| unknown_provider(error, &of, id))?;
            of.output().print_value(&disabled, |one| format!("Provider {} ({}) was disabled.", one.name, one.id))
        }
        SsoCommand::SetSecret { id, client_secret_file, of } => {
            let secret = read_secret(&client_secret_file)?;
            let (store, _, db) = open_tenant(&of).await?;
            let id = get_or_only_enabled(&db, &of, id).await?;
            let secrets = store::load_secrets(&of.common.store, &store).await?;
            let change = ProviderChange { client_secret: Some((secret, secrets)), ..ProviderChange::default() };
            let set = sso::update_provider(&db, id, change).await.map_err(|error| unknown_provider(error, &of, id))?;
            of.output().print_value(&set, |one| format!("The client secret of {} ({}) was replaced.", one.name, one.id))
        }
        SsoCommand::ReleaseDomain { domain, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let released = sso::release_domain(&db, &domain).await?;
            of.output().print_value(&released, |one| format!("{} was released.", one.domain))
        }
        SsoCommand::VerifyDomain { domain, operator_word, dns_server, of } => {
            let (store, tenant, db) = open_tenant(&of).await?;
            let domain_record = sso::find_domain(&db, &domain).await?;
            let domain_record = domain_record.ok_or_else(|| {
                let placeholders =
                    [("--name", "NAME"), ("--issuer", "URL"), ("--client-id", "ID"), ("--client-secret-file", "PATH")];
                let add = of.command_line("sso add", &[&[("--domain", domain.as_str())][..], &placeholders].concat());
                Error::internal(format!("{} has no provider for {domain}; `{add}` sets one up", tenant.slug))
            })?;
            if domain_record.verified_at.is_none() && !operator_word {
                check_txt_record(&store, &domain_record, dns_server).await?;
            }
            let verified = sso::verify_domain(&db, &domain).await?;
            of.output().print_value(&verified, |one| format!("The people of {} can sign on now.", one.domain))
        }
    }
}

async fn add_provider(args: SsoAddArgs) -> Result<()> {
    let SsoAddArgs { name, issuer, client_id, client_secret_file, domain, .. } = args;
    let client_secret = read_secret(&client_secret_file)?;
    let (store, tenant, db) = open_tenant(&args.of).await?;
    let needs_leave = check_issuer(&issuer, &args.outbound, &tenant).await?;
    let base_url = args.url.base_url(&store).await?;
    // The server's secrets: a client secret sealed with others could never be opened.
    let secrets = store::load_secrets(&args.of.common.store, &store).await?;
    let new = NewProvider {
        name,
        issuer,
        client_id,
        client_secret,
        scope: args.scope,
        domains: domain,
        default_role: args.default_role.0,
        role_map: args.role_map,
        trust_email: args.trust_email,
        sign_out_at_provider: args.sign_out_at_provider,
    };
    let made = sso::add_provider(&db, new, &secrets).await?;
    let redirect_uri = format!("{}{CALLBACK_PATH}", base_url.as_str());
    let post_logout_redirect_uri = signed_out_uri(&made, &base_url);
    let added = AddedProvider { provider: made, redirect_uri, post_logout_redirect_uri, needs_leave };
    args.of.output().print_value(&added, |added| format_instructions(added, &args.of))
}

/// The URI to which the provider redirects after a sign-out, if users are sent there to sign out.
fn signed_out_uri(provider: &Provider, base_url: &BaseUrl) -> Option<String> {
    provider.sign_out_at_provider.then(|| format!("{}{SIGNED_OUT_PATH}", base_url.as_str()))
}

async fn update_provider(args: SsoUpdateArgs) -> Result<()> {
    let id = args.id;
    let client_secret = args.client_secret_file.as_deref().map(read_secret).transpose()?;
    let (store, _, db) = open_tenant(&args.of).await?;
    let base_url = args.url.base_url(&store).await?;
    let client_secret = match client_secret {
        Some(secret) => Some((secret, store::load_secrets(&args.of.common.store, &store).await?)),
        None => None,
    };
    let gives_rules = args.no_role_map || !args.role_map.is_empty();
    let change = ProviderChange {
        name: args.name,
        client_id: args.client_id,
        client_secret,
        scope: (args.no_scope || args.scope.is_some()).then_some(args.scope),
        default_role: args.default_role.map(|role| role.0),
        role_map: gives_rules.then_some(args.role_map),
        trust_email: args.trust_email,
        sign_out_at_provider: args.sign_out_at_provider,
        domains: args.domain,
        enable: args.enable,
    };
    let updated = sso::update_provider(&db, id, change).await;
    let updated = updated.map_err(|error| unknown_provider(error, &args.of, id))?;
    let wants_sign_out = args.sign_out_at_provider == Some(true);
    let post_logout_redirect_uri = signed_out_uri(&updated, &base_url).filter(|_| wants_sign_out);
    args.of.output().print_value(&UpdatedProvider { provider: updated, post_logout_redirect_uri }, |updated| {
        let logout = updated.post_logout_redirect_uri.as_deref().map(logout_line);
        [format_provider(&updated.provider)].into_iter().chain(logout).collect::<Vec<_>>().join("\n")
    })
}

/// The provider after an update, and the URI to register there if users sign out at it from now on.
#[derive(Serialize)]
struct UpdatedProvider {
    #[serde(flatten)]
    provider: Provider,
    #[serde(skip_serializing_if = "Option::is_none")]
    post_logout_redirect_uri: Option<String>,
}

fn logout_line(uri: &str) -> String {
    format!("Register this post-logout redirect URI there:\n  {uri}")
}

/// A new provider, and the URIs to register there.
#[derive(Serialize)]
struct AddedProvider {
    #[serde(flatten)]
    provider: Provider,
    redirect_uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    post_logout_redirect_uri: Option<String>,
    /// Whether the provider is inside a private network, which the server calls only if its operator allows it.
    needs_leave: bool,
}

/// Larger than any valid secret, so that one that is too long is detected.
const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Reads a secret from a file, without the newline at its end.
fn read_secret(path: &Path) -> Result<String> {
    let failed = |error: io::Error| Error::internal(format!("{}: {error}", path.display()));
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text)).map_err(failed)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Refuses an issuer that the server would refuse at every sign-on. Only the server knows which private networks its
/// operator allows, so this returns whether the issuer needs such permission.
async fn check_issuer(issuer: &str, outbound: &OutboundArgs, tenant: &Tenant) -> Result<bool> {
    let wrong = |detail: String| Error::invalid("/issuer", "invalid_url", detail);
    let target = Target::parse(issuer).map_err(|bad| wrong(bad.to_string()))?;
    let outbound = Outbound::new(outbound.outbound_settings())?;
    let is_inside = outbound.check_target(&target, Some(tenant.id)).await.is_err();
    let may_be_allowed = is_inside && is_address_target(&target);
    if !may_be_allowed && !is_allowed_target(&target, outbound.allowed_networks()) {
        let detail =
            "must be https; http is for an address inside a network that the server's --webhook-allow-cidr lists";
        return Err(wrong(detail.to_owned()));
    }
    Ok(is_inside)
}

fn format_instructions(added: &AddedProvider, of: &TenantArgs) -> String {
    let AddedProvider { provider, redirect_uri, post_logout_redirect_uri, needs_leave } = added;
    let first = format!(
        "Provider {} ({}) was made for {}.\nRegister this redirect URI there:\n  {redirect_uri}",
        provider.name, provider.id, of.tenant
    );
    let domain = |one: &Domain| match one.verified_at {
        Some(_) => format!("{} was verified before.", one.domain),
        None => format!(
            "Publish this TXT record, then run `{}`:\n  {}  \"{}\"",
            of.command_line("sso verify-domain", &[("--domain", &one.domain)]),
            one.txt.name,
            one.txt.value
        ),
    };
    let leave = needs_leave.then(|| {
        "It is inside a private network: the server calls it only if --webhook-allow-cidr lists that.".to_owned()
    });
    let logout = post_logout_redirect_uri.as_deref().map(logout_line);
    let rest = logout.into_iter().chain(leave).chain(provider.domains.iter().map(domain));
    [first].into_iter().chain(rest).collect::<Vec<_>>().join("\n")
}

/// The given provider, or the only one that is enabled.
async fn get_or_only_enabled(db: &Db, of: &TenantArgs, id: Option<ProviderId>) -> Result<ProviderId> {
    if let Some(id) = id {
        return Ok(id);
    }
    let all = sso::list_providers(db).await?;
    let enabled: Vec<&Provider> = all.iter().filter(|provider| provider.enabled).collect();
    match enabled.as_slice() {
        [only] => Ok(only.id),
        others => Err(Error::internal(format!(
            "{} has {} enabled providers; name one with --id, as `{}` shows them",
            of.tenant,
            others.len(),
            of.command_line("sso list", &[])
        ))),
    }
}

fn unknown_provider(error: Error, of: &TenantArgs, id: ProviderId) -> Error {
    if error.code() != Code::NotFound {
        return error;
    }
    let list = of.command_line("sso list", &[]);
    Error::internal(format!("there is no provider {id} in {}; `{list}` shows them", of.tenant))
}

/// Checks that the domain's owner has published the expected TXT record.
async fn check_txt_record(store: &Store, domain: &Domain, server: Option<SocketAddr>) -> Result<()> {
    let found = look_up_txt(&domain.txt.name, server, &store.env().random).await?;
    if found.iter().any(|text| text.trim() == domain.txt.value) {
        return Ok(());
    }
    let seen =
        if found.is_empty() { "there is no such record".to_owned() } else { format!("found: {}", found.join(", ")) };
    Err(Error::internal(format!(
        "the TXT record {} does not say \"{}\"; {seen}. A new record may take a while to be seen",
        domain.txt.name, domain.txt.value
    )))
}

/// The provider, and below it each of its domains.
fn format_provider(provider: &Provider) -> String {
    let state = if provider.enabled { "enabled" } else { "disabled" };
    let scope = provider.scope.as_ref().map(|scope| format!("  asked for {scope}")).unwrap_or_default();
    let first = format!("{}  {state}  {}  {}{scope}", provider.id, provider.name, provider.issuer);
    let domain = |one: &Domain| match one.verified_at {
        Some(at) => format!("  {}  verified {at}", one.domain),
        None => format!("  {}  not verified: {} must say \"{}\"", one.domain, one.txt.name, one.txt.value),
    };
    [first].into_iter().chain(provider.domains.iter().map(domain)).collect::<Vec<_>>().join("\n")
}
