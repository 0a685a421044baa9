//! HTML pages: they work without scripts, load nothing from other sites, and escape everything they show.
//!
//! There is a file for each page, and its template is in `templates/`. The only tenant data is the identity of the
//! signed-in user, and figures of their tenant, which `overview_figures.rs` reads and `plot.rs` draws. `library.rs` keeps
//! the pages of the reference (`reference.rs`, from `contract.rs` and `fields.rs`) and the guides.

pub mod assets;
mod callback;
mod changelog;
mod contract;
mod documentation;
mod errors;
mod fields;
mod guides;
mod health_monitor;
mod home;
mod library;
mod markdown;
mod overview;
mod overview_figures;
mod page;
mod plot;
mod rate_limits;
mod reference;
mod refused;
mod signin;
mod signin_link;
mod signout;
mod status;

pub use assets::{serve_icon, serve_overview_script, serve_stylesheet};
pub use callback::handle_sso_callback;
pub use changelog::{serve_changelog_feed, show_changelog};
pub use documentation::show_documentation;
pub use errors::show_errors;
pub use guides::serve_backup_wrapper;
pub use health_monitor::{HealthMonitor, measure_queue};
pub use home::show_home;
pub use library::{Library, show_library_page};
pub use overview::{StoreFlags, show_overview};
pub use rate_limits::show_rate_limits;
pub use refused::render_refusal;
pub use signin::{begin_signin, redeem_link, show_signin};
pub use signin_link::REDEEM_PATH;
pub use signout::sign_out;
pub use status::show_status;

use feature_kit::Feature;
use kernel::http::{Api, RatePolicy};
use people::sso;

pub const FEATURE: Feature = Feature { name: "pages", more_operations: mount, ..Feature::NEW };

fn mount(api: Api) -> Api {
    api.add_page("/", RatePolicy::Public, show_home)
        .add_page("/api/rate-limits/", RatePolicy::Public, show_rate_limits)
        .add_page("/documentation/", RatePolicy::Public, show_documentation)
        .add_page("/documentation/api/", RatePolicy::Public, show_library_page)
        .add_page("/documentation/api/{name}/", RatePolicy::Public, show_library_page)
        .add_page("/documentation/guides/", RatePolicy::Public, show_library_page)
        .add_page("/documentation/guides/{name}/", RatePolicy::Public, show_library_page)
        .add_page(guides::WRAPPER_PATH, RatePolicy::Public, serve_backup_wrapper)
        .add_page("/documentation/errors/", RatePolicy::Public, show_errors)
        .add_page("/documentation/changelog/", RatePolicy::Public, show_changelog)
        .add_page("/documentation/changelog/atom.xml", RatePolicy::Public, serve_changelog_feed)
        .add_page("/status/", RatePolicy::Public, show_status)
        .add_charging_page("/signin", show_signin)
        .add_charging_form("/signin", begin_signin)
        .add_charging_form(REDEEM_PATH, redeem_link)
        // Only a callback that does not fit a sign-on is charged.
        .add_charging_page(sso::CALLBACK_PATH, handle_sso_callback)
        .add_form("/signout", RatePolicy::Public, sign_out)
        // The page charges the caller's own budget, or the address's when nobody is signed in.
        .add_charging_page("/overview", show_overview)
        .set_refusal_page(render_refusal)
        .add_uncharged_route("/assets/style.css", serve_stylesheet)
        .add_uncharged_route("/assets/overview.js", serve_overview_script)
        .add_uncharged_route("/assets/icon.svg", serve_icon)
}
