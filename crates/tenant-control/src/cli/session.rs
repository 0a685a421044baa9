//! `admin session`: signs people in and out.

use clap::{Args, Subcommand};
use kernel::auth::{
    SIGNIN_LINK_MS, SessionEntry, create_session, create_signin_link, list_sessions, open_as_operator, revoke_session,
    revoke_user_sessions,
};
use kernel::base::{Error, Result, SessionId};
use people::users::UserStatus;
use serde_json::json;

use super::args::{TenantArgs, UserArgs, get_user, open_tenant, open_user, unknown_record};
use crate::config::{LinkArgs, SessionArgs};

#[derive(Subcommand)]
pub enum SessionCommand {
    /// Make a session cookie for the command line, or with --link a one-time sign-in link for a browser
    Create {
        /// A link that signs a browser in, once, within 15 minutes
        #[arg(long)]
        link: bool,
        #[command(flatten)]
        url: LinkArgs,
        #[command(flatten)]
        session: SessionArgs,
        #[command(flatten)]
        whom: UserArgs,
    },
    /// List the sessions of a tenant that have not come to their end
    List {
        /// Only those of the user with this e-mail address
        #[arg(long)]
        email: Option<String>,
        #[command(flatten)]
        of: TenantArgs,
    },
    /// End a session, or all of a user; every server knows within a second
    Revoke {
        #[command(flatten)]
        which: SessionSelector,
        #[command(flatten)]
        of: TenantArgs,
    },
}

/// Which sessions shall end.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct SessionSelector {
    /// The session's id, as `list` shows it
    #[arg(long)]
    id: Option<String>,
    /// The e-mail address of the user whose sessions all end
    #[arg(long)]
    email: Option<String>,
}

pub async fn run(command: SessionCommand) -> Result<()> {
    match command {
        SessionCommand::Create { link, url, session, whom } => run_create(&whom, link, &url, session).await,
        SessionCommand::List { email, of } => {
            let (output, (store, _, db)) = (of.output(), open_tenant(&of).await?);
            let mut all = list_sessions(&db).await?;
            if let Some(email) = email {
                let (_, user) = get_user(&store, &UserArgs { email, of }).await?;
                all.retain(|session| session.email == user.email);
            }
            all.sort_by_key(|session| session.created_at);
            output.print_list(&all, format_session)
        }
        SessionCommand::Revoke { which: SessionSelector { id: Some(id), .. }, of } => {
            let (_, _, db) = open_tenant(&of).await?;
            let missing = || unknown_record(&of, "session", &id);
            // A malformed id is reported like the id of another tenant's session: as unknown.
            let session: SessionId = id.parse().map_err(|_| missing())?;
            if !revoke_session(&db, session).await? {
                return Err(missing());
            }
            of.output().print_value(&json!({ "revoked": 1 }), |_| format!("Session {session} has ended."))
        }
        SessionCommand::Revoke { which: SessionSelector { email, .. }, of } => {
            let whom = UserArgs { email: email.unwrap_or_default(), of };
            let (store, tenant, user) = open_user(&whom).await?;
            let revoked = revoke_user_sessions(&open_as_operator(&store, &tenant), user.id).await?;
            whom.output().print_value(&json!({ "revoked": revoked }), |_| {
                format!("All sessions of {} have ended: {revoked}.", user.email)
            })
        }
    }
}

async fn run_create(whom: &UserArgs, link: bool, url: &LinkArgs, session: SessionArgs) -> Result<()> {
    let (store, tenant, user) = open_user(whom).await?;
    if user.status == UserStatus::Disabled {
        let update = whom.of.command_line("user update", &[("--email", &user.email), ("--status", "active")]);
        return Err(Error::internal(format!("{} is disabled; `{update}` enables them again", user.email)));
    }
    let base_url = url.base_url(&store).await?;
    if link {
        let token = create_signin_link(&store, tenant.id, user.id).await?;
        let url = format!("{}/signin?token={}", base_url.as_str(), token.expose_secret());
        let expires_at = store.env().now().plus_ms(SIGNIN_LINK_MS);
        return whom.output().print_value(&json!({ "url": url, "expires_at": expires_at }), |_| {
            format!("{url}\nGood once, until {expires_at}.")
        });
    }
    let (token, ends_at) = create_session(&store, tenant.id, user.id, session.max_ms()).await?;
    let cookie = format!("{}={}", base_url.cookie_name(), token.expose_secret());
    let expires_at = ends_at.min(store.env().now().plus_ms(session.idle_ms()));
    whom.output().print_value(&json!({ "cookie": cookie, "expires_at": expires_at }), |_| {
        format!("Cookie: {cookie}\nUntil {expires_at} if unused.")
    })
}

fn format_session(session: &SessionEntry) -> String {
    let SessionEntry { id, email, created_at, last_seen_at, expires_at } = session;
    format!("{id}  {email}  made {created_at}  seen {last_seen_at}  until {expires_at}")
}
