//! Pages for people: plain HTML that works without scripts, asks nobody else for anything, and escapes what it shows.
//!
//! A file per page, beside its template in `templates/`. No tenant's data is here but the name of who is signed in.

pub mod assets;
mod changelog;
mod documentation;
mod errors;
mod home;
mod markdown;
mod not_found;
mod overview;
mod page;
mod rate_limits;
mod signin;
mod signout;
mod status;
mod watched;

pub use assets::{icon, overview_script, stylesheet};
pub use changelog::{changelog, feed};
pub use documentation::documentation;
pub use errors::errors;
pub use home::home;
pub use not_found::not_found;
pub use overview::overview;
pub use page::{Page, REFERRER_POLICY};
pub use rate_limits::rate_limits;
pub use signin::{begin_signin, signin};
pub use signout::signout;
pub use status::status;
pub use watched::{Watched, measure};
