//! Authentication and authorization: tenants, users, roles, sessions, API keys, scopes. How a request is admitted with them
//! is in `http/caller.rs`.

mod authority;
mod clocks;
mod credentials;
mod key_format;
mod people;
mod presented;
mod principal;
mod role;
mod scope;
mod sessions;
mod signin_links;
mod standing;

pub use authority::authority;
pub use clocks::{TenantClock, bring_credentials_back, find_stuck_clock, list_clocks, set_clock_back};
pub use credentials::Credentials;
pub use key_format::{PlainKey, PublicId};
pub use people::{USERS, create_tenant, find_tenant, first_tenant, insert_tenant, list_tenants, operate};
pub use principal::{Identity, KeyIdentity, Tenant, UserIdentity};
pub use role::Role;
pub use scope::{Scope, Scopes};
pub use sessions::{
    EndedSession, ProviderSession, SessionEntry, Token, create_session, end_provider_sessions, end_sign_ins,
    list_sessions, revoke_session, revoke_sessions, start_session,
};
pub use signin_links::{SIGNIN_LINK_MS, SigninLink, create_signin_link};
pub use standing::{AskedRights, Rights, RightsOfMany, Standing};

pub(crate) use credentials::{Found, unauthenticated};
pub(crate) use presented::Presented;
pub use presented::{cookie_sizes, cookies};
pub(crate) use principal::Principal;
pub(crate) use sessions::{end_presented_session, end_session};
pub(crate) use signin_links::{find_signin_link, redeem_signin_link};

pub(crate) use authority::STATEMENTS as AUTHORITY_STATEMENTS;
pub(crate) use clocks::STATEMENTS as CLOCK_STATEMENTS;
pub(crate) use credentials::STATEMENTS as CREDENTIAL_STATEMENTS;
pub(crate) use people::STATEMENTS as PEOPLE_STATEMENTS;
pub(crate) use sessions::STATEMENTS as SESSION_STATEMENTS;
pub(crate) use signin_links::STATEMENTS as SIGNIN_LINK_STATEMENTS;
pub(crate) use standing::STATEMENTS as STANDING_STATEMENTS;
