//! Authentication and authorization: tenants, users, roles, sessions, API keys, scopes. How a request is admitted with them
//! is in `http/caller.rs`.

mod authority;
mod clocks;
mod credentials;
mod key_format;
mod presented;
mod principal;
mod rights;
mod role;
mod scope;
mod sessions;
mod signin_links;
mod tenants;

pub use authority::load_saver_rights;
pub use clocks::{TenantClock, clamp_future_credentials, find_stuck_clock, list_clocks, reset_clock};
pub use credentials::Credentials;
pub use key_format::{PlainKey, PublicId};
pub use principal::{KeyIdentity, PrincipalIdentity, Tenant, USERS, UserIdentity};
pub use rights::{CredentialRef, PendingRights, Rights, RightsBatch};
pub use role::Role;
pub use scope::{Scope, Scopes};
pub use sessions::{
    EndedSession, ProviderSession, SessionEntry, SignInToken, create_session, end_provider_sessions, end_sign_ins,
    list_sessions, revoke_session, revoke_user_sessions, start_session,
};
pub use signin_links::{SIGNIN_LINK_MS, SigninLink, create_signin_link};
pub use tenants::{create_tenant, find_tenant, insert_tenant, list_tenants, open_as_operator, plan_first_tenant};

pub(crate) use credentials::{ValidPrincipal, unauthenticated_error};
pub(crate) use presented::PresentedCredential;
pub use presented::{cookie_sizes, read_cookies};
pub(crate) use principal::Principal;
pub(crate) use sessions::{end_presented_session, end_session};
pub(crate) use signin_links::{find_signin_link, redeem_signin_link};

pub(crate) use authority::STATEMENTS as AUTHORITY_STATEMENTS;
pub(crate) use clocks::STATEMENTS as CLOCK_STATEMENTS;
pub(crate) use credentials::STATEMENTS as CREDENTIAL_STATEMENTS;
pub(crate) use rights::STATEMENTS as RIGHTS_STATEMENTS;
pub(crate) use sessions::STATEMENTS as SESSION_STATEMENTS;
pub(crate) use signin_links::STATEMENTS as SIGNIN_LINK_STATEMENTS;
pub(crate) use tenants::STATEMENTS as TENANT_STATEMENTS;
