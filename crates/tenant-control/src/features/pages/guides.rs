//! `/documentation/guides/`: the files of `docs/` at build time, and the script that one of them is about.

use askama::Template;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use kernel::base::{Error, Result};

use super::markdown::{self, MarkdownSection};
use super::page::{LibraryPages, REFERRER_POLICY, STATIC_POLICY};

pub const PATH: &str = "/documentation/guides/";

/// A file of `docs/`. Its first line is its title.
pub struct Guide {
    name: &'static str,
    pub about: &'static str,
    text: &'static str,
}

pub const WRAPPER_PATH: &str = "/documentation/guides/backup/tenant-control-backup";
const WRAPPER: &str = include_str!("../../../../../docs/tenant-control-backup");

/// The script that reports backups, for machines that have nothing else of this project.
pub async fn serve_backup_wrapper() -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, STATIC_POLICY)];
    (headers, [(header::REFERRER_POLICY, REFERRER_POLICY)], WRAPPER).into_response()
}

/// In reading order.
pub const GUIDES: &[Guide] = &[
    Guide {
        name: "tickets",
        about: "Create, change and find tickets, keep a copy, and set service levels.",
        text: include_str!("../../../../../docs/tickets.md"),
    },
    Guide {
        name: "workflows",
        about: "Run steps on events, on a schedule, or when somebody calls.",
        text: include_str!("../../../../../docs/workflows.md"),
    },
    Guide {
        name: "inventory",
        about: "Devices: connect agents, read what they find, keep a copy.",
        text: include_str!("../../../../../docs/inventory.md"),
    },
    Guide {
        name: "search",
        about: "Find anything as people type it: the language, the order, and how fresh it is.",
        text: include_str!("../../../../../docs/search.md"),
    },
    Guide {
        name: "webhooks",
        about: "Receive events: verify, answer, and find out why one did not arrive.",
        text: include_str!("../../../../../docs/webhooks.md"),
    },
    Guide {
        name: "api-keys",
        about: "Keys for programs: create, limit, rotate and revoke them, and what to do about a leaked one.",
        text: include_str!("../../../../../docs/api-keys.md"),
    },
    Guide {
        name: "audit",
        about: "Who did what: what is recorded, how to ask, and how to export it.",
        text: include_str!("../../../../../docs/audit.md"),
    },
    Guide {
        name: "clients",
        about: "Generate a client from the OpenAPI document, and what it needs to know.",
        text: include_str!("../../../../../docs/clients.md"),
    },
    Guide {
        name: "clouds",
        about: "Connect AWS, Hetzner and DigitalOcean, see all machines, and make new ones.",
        text: include_str!("../../../../../docs/clouds.md"),
    },
    Guide {
        name: "backup",
        about: "Backups: report what ran, say what is wanted, and see whose backup failed last night.",
        text: include_str!("../../../../../docs/backup.md"),
    },
    Guide {
        name: "analytics",
        about: "Figures about everything: what each counts, and a day to check by hand.",
        text: include_str!("../../../../../docs/analytics.md"),
    },
    Guide {
        name: "organizations",
        about: "Your customers: make, change, archive and find them.",
        text: include_str!("../../../../../docs/organizations.md"),
    },
    Guide {
        name: "users",
        about: "People of a tenant: make, change, disable and find them.",
        text: include_str!("../../../../../docs/users.md"),
    },
    Guide {
        name: "single-sign-on",
        about: "Sign in with the accounts of an organization, by OpenID Connect.",
        text: include_str!("../../../../../docs/single-sign-on.md"),
    },
    Guide {
        name: "operating",
        about: "For operators: start, several nodes, upgrades, backups, and what to do when something is wrong.",
        text: include_str!("../../../../../docs/operating.md"),
    },
];

impl Guide {
    pub fn title(&self) -> &'static str {
        self.split_title().0
    }

    pub fn path(&self) -> String {
        format!("{PATH}{}/", self.name)
    }

    /// Title and text.
    fn split_title(&self) -> (&'static str, &'static str) {
        let (title, text) = self.text.split_once('\n').unwrap_or((self.text, ""));
        (title.trim_start_matches("# "), text)
    }
}

#[derive(Template)]
#[template(path = "guides.html")]
struct Guides {
    here: &'static str,
    guides: &'static [Guide],
}

#[derive(Template)]
#[template(path = "guide.html")]
struct GuidePage {
    here: &'static str,
    title: &'static str,
    sections: Vec<MarkdownSection>,
    /// As HTML.
    body: String,
}

/// The base URL in the guides, which the pages replace by that of the service.
const SERVICE: &str = "http://127.0.0.1:8080";

pub fn render_guides(pages: &mut LibraryPages, base_url: &str) -> Result<()> {
    let guides = Guides { here: PATH, guides: GUIDES };
    pages.insert(PATH.to_owned(), guides.render().map_err(Error::internal)?);
    for guide in GUIDES {
        let (title, text) = guide.split_title();
        let text = markdown::to_html_with_anchors(&text.replace(SERVICE, base_url), &resolve_link);
        let page = GuidePage { here: "", title, sections: text.sections, body: text.html };
        pages.insert(guide.path(), page.render().map_err(Error::internal)?);
    }
    Ok(())
}

/// The page that a link in a file of `docs/` leads to. `None`, and so no link, for a file without a page.
fn resolve_link(url: &str) -> Option<String> {
    let (file, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    let name = file.strip_suffix(".md");
    let page = match file {
        "../README.md" => "/documentation/".to_owned(),
        "../CHANGELOG.md" => "/documentation/changelog/".to_owned(),
        "tenant-control-backup" => WRAPPER_PATH.to_owned(),
        _ => match GUIDES.iter().find(|guide| Some(guide.name) == name) {
            Some(guide) => guide.path(),
            None => return markdown::permit_link(url),
        },
    };
    Some(format!("{page}{fragment}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_the_page_of_the_file() {
        for (url, page) in [
            ("search.md#for-operators", "/documentation/guides/search/#for-operators"),
            ("single-sign-on.md", "/documentation/guides/single-sign-on/"),
            ("../README.md", "/documentation/"),
            ("tenant-control-backup", WRAPPER_PATH),
            ("../CHANGELOG.md", "/documentation/changelog/"),
            ("#here", "#here"),
            ("https://cel.dev", "https://cel.dev"),
        ] {
            assert_eq!(resolve_link(url).as_deref(), Some(page));
        }
        for url in ["../LICENSE", "nothing.md", "javascript:alert(1)"] {
            assert_eq!(resolve_link(url), None, "{url}");
        }
    }

    #[test]
    fn every_guide_begins_with_its_title() {
        for guide in GUIDES {
            assert!(guide.text.starts_with("# ") && !guide.title().is_empty(), "{}", guide.name);
        }
    }
}
