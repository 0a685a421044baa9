//! Pages for people: plain HTML that works without scripts, asks nobody else for anything, and escapes what it shows.
//!
//! A file per page, beside its template in `templates/`. No tenant's data is here but the name of who is signed in.
//! `library.rs` keeps the pages of the reference (`reference.rs`, from `contract.rs` and `fields.rs`) and the guides.

pub mod assets;
mod callback;
mod changelog;
mod contract;
mod documentation;
mod errors;
mod fields;
mod guides;
mod home;
mod library;
mod markdown;
mod overview;
mod page;
mod rate_limits;
mod reference;
mod refused;
mod signin;
mod signin_link;
mod signout;
mod status;
mod watched;

pub use assets::{icon, overview_script, stylesheet};
pub use callback::callback;
pub use changelog::{changelog, feed};
pub use documentation::documentation;
pub use errors::errors;
pub use home::home;
pub use library::{Library, library};
pub use overview::overview;
pub use rate_limits::rate_limits;
pub use refused::refused;
pub use signin::{begin_signin, signin};
pub use signin_link::{REDEEM_PATH, redeem_link};
pub use signout::signout;
pub use status::status;
pub use watched::{Watched, measure};
