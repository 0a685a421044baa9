//! HTML pages: they work without scripts, load nothing from other sites, and escape everything they show.
//!
//! There is a file for each page, and its template is in `templates/`. The only tenant data is the identity of the signed-in
//! user. `library.rs` keeps the pages of the reference (`reference.rs`, from `contract.rs` and `fields.rs`) and the guides.

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

use feature_kit::Feature;
use kernel::http::{Api, Policy};
use people::sso;

pub const FEATURE: Feature = Feature { name: "pages", more_operations: mount, ..Feature::NEW };

fn mount(api: Api) -> Api {
    api.page("/", Policy::Public, home)
        .page("/api/rate-limits/", Policy::Public, rate_limits)
        .page("/documentation/", Policy::Public, documentation)
        .page("/documentation/api/", Policy::Public, library)
        .page("/documentation/api/{name}/", Policy::Public, library)
        .page("/documentation/guides/", Policy::Public, library)
        .page("/documentation/guides/{name}/", Policy::Public, library)
        .page("/documentation/errors/", Policy::Public, errors)
        .page("/documentation/changelog/", Policy::Public, changelog)
        .page("/documentation/changelog/atom.xml", Policy::Public, feed)
        .page("/status/", Policy::Public, status)
        .charging_page("/signin", signin)
        .charging_form("/signin", begin_signin)
        .charging_form(REDEEM_PATH, redeem_link)
        // Only a callback that does not fit a sign-on is charged.
        .charging_page(sso::CALLBACK_PATH, callback)
        .form("/signout", Policy::Public, signout)
        // The page charges the caller's own budget, or the address's when nobody is signed in.
        .charging_page("/overview", overview)
        .refusal_page(refused)
        .free("/assets/style.css", stylesheet)
        .free("/assets/overview.js", overview_script)
        .free("/assets/icon.svg", icon)
}
