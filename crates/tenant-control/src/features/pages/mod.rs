//! Pages for people: plain HTML that works without scripts, asks nobody else for anything, and escapes what it shows.
//!
//! A file per page, beside its template in `templates/`. No tenant's data is here but the name of who is signed in.

mod assets;
mod errors;
mod home;
mod overview;
mod page;
mod rate_limits;
mod signin;

pub use assets::{icon, overview_script, stylesheet};
pub use errors::errors;
pub use home::home;
pub use overview::overview;
pub use rate_limits::rate_limits;
pub use signin::signin;
