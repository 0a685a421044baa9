//! `/documentation/changelog/`: CHANGELOG.md of this build, as a page and as an Atom feed.
//!
//! A release is a heading `## VERSION – DATE`. A version without a date is not released: it has another id in the feed, so
//! that feed readers show it again once it is released.

use askama::Template;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use kernel::base::{Error, Result, Timestamp};
use kernel::http::Shared;

use super::markdown;
use super::page::{Page, REFERRER_POLICY, STILL};

const TEXT: &str = include_str!("../../../../../CHANGELOG.md");
const PATH: &str = "/documentation/changelog/";
/// The beginning of a release heading, below the title of the file.
const RELEASE: &str = "\n## ";

#[derive(Template)]
#[template(path = "changelog.html")]
struct Changelog {
    here: &'static str,
    about: String,
    releases: Vec<Release>,
}

#[derive(Template)]
#[template(path = "atom.xml")]
struct Feed<'a> {
    base_url: &'a str,
    path: &'static str,
    updated: String,
    entries: Vec<Entry>,
}

/// A version in the feed.
struct Entry {
    /// The part of its id after the URL of the page.
    id: String,
    anchor: String,
    title: String,
    /// A date without time.
    updated: String,
    body: String,
}

/// A version, with its changes as HTML.
#[derive(Debug)]
struct Release {
    version: String,
    /// Such as `2026-11-15`; `None` before the release.
    date: Option<String>,
    body: String,
}

pub async fn changelog() -> Result<Page> {
    let (about, releases) = read(TEXT);
    Page::new(&Changelog { here: PATH, about, releases })
}

pub async fn feed(State(app): State<Shared>) -> Result<Response> {
    let (_, releases) = read(TEXT);
    let feed = Feed::of(app.settings.base_url.as_str(), releases);
    let headers =
        [(header::CONTENT_TYPE, "application/atom+xml; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, STILL)];
    let xml = feed.render().map_err(Error::internal)?;
    Ok((headers, [(header::REFERRER_POLICY, REFERRER_POLICY)], xml).into_response())
}

/// Parses the text above the first release, and the releases in the order of the file, newest first.
fn read(text: &str) -> (String, Vec<Release>) {
    let (above, below) = match text.find(RELEASE) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    // The page has a title of its own.
    let about: Vec<&str> = above.lines().filter(|line| !line.starts_with("# ")).collect();
    let releases = below.split(RELEASE).skip(1).map(Release::of).collect();
    (markdown::render(&about.join("\n")), releases)
}

impl Release {
    /// Parses the text after [`RELEASE`].
    fn of(text: &str) -> Self {
        let (title, body) = text.split_once('\n').unwrap_or((text, ""));
        let (version, when) = title.split_once(" – ").unwrap_or((title, ""));
        let is_date = Timestamp::parse(&format!("{when}T00:00:00Z")).is_some();
        let date = is_date.then(|| when.to_owned());
        Release { version: version.to_owned(), date, body: markdown::render(body) }
    }

    /// The permanent anchor on the page.
    fn anchor(&self) -> String {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
        format!("v{}", self.version.chars().map(plain).collect::<String>())
    }

    fn when(&self) -> &str {
        self.date.as_deref().unwrap_or("unreleased")
    }
}

/// The first day of the changelog, for a feed without releases: a feed must have a date, and the same one after each
/// restart.
const BEGUN: &str = "2026-11-15";

impl<'a> Feed<'a> {
    fn of(base_url: &'a str, releases: Vec<Release>) -> Self {
        let newest = releases.iter().filter_map(|release| release.date.as_deref()).max().unwrap_or(BEGUN).to_owned();
        let entries = releases.into_iter().map(|release| Entry::of(release, &newest)).collect();
        Feed { base_url, path: PATH, updated: newest, entries }
    }
}

impl Entry {
    /// An unreleased version has the date of the `newest` release.
    fn of(release: Release, newest: &str) -> Self {
        let (anchor, version) = (release.anchor(), &release.version);
        match release.date {
            Some(date) => Entry {
                id: anchor.clone(),
                title: format!("Tenant Control {version}"),
                anchor,
                updated: date,
                body: release.body,
            },
            None => Entry {
                id: format!("{anchor}-unreleased"),
                title: format!("Tenant Control {version}, unreleased"),
                anchor,
                updated: newest.to_owned(),
                body: release.body,
            },
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const SAMPLE: &str = "# Changelog\n\nWhat changes.\n\n## 0.3.0 – unreleased\n\nSoon & <b>.\n\n\
        ## 0.2.0 – 2026-12-01\n\n### For users\n\n- `a < b` is said.\n\n## 0.1.0 – 2026-11-15\n\nThe ground.\n";

    #[test]
    fn a_release_has_a_date_and_what_has_none_is_told_as_such() {
        let (about, releases) = read(SAMPLE);
        assert!(about.contains("<p>What changes.</p>"), "{about}");
        let shown: Vec<_> = releases.iter().map(|release| (release.anchor(), release.when().to_owned())).collect();
        let expected = [("v0.3.0", "unreleased"), ("v0.2.0", "2026-12-01"), ("v0.1.0", "2026-11-15")];
        assert_eq!(shown, expected.map(|(anchor, when)| (anchor.to_owned(), when.to_owned())));

        let feed = Feed::of("https://tc.test", releases).render().unwrap();
        assert_eq!(feed.matches("<entry>").count(), 3, "{feed}");
        assert!(feed.contains("<title>Tenant Control 0.3.0, unreleased</title>") && feed.contains("Soon"), "{feed}");
        // The id differs from that of the release, or feed readers would not show the release.
        assert!(feed.contains("<id>https://tc.test/documentation/changelog/#v0.3.0-unreleased</id>"), "{feed}");
        assert!(feed.contains("href=\"https://tc.test/documentation/changelog/#v0.3.0\""), "{feed}");
        assert!(feed.contains("<id>https://tc.test/documentation/changelog/#v0.2.0</id>"), "{feed}");
        assert!(feed.contains("<title>Tenant Control 0.2.0</title>"), "{feed}");
        // The feed, the newest release and the unreleased version.
        assert_eq!(feed.matches("<updated>2026-12-01T00:00:00Z</updated>").count(), 3, "{feed}");
        // Escaped once as HTML, and once more as XML.
        assert!(feed.contains("&#60;code&#62;a &#38;lt; b&#60;/code&#62;"), "{feed}");
    }

    #[test]
    fn a_feed_without_a_release_has_a_day_of_its_own() {
        let (_, releases) = read("# Changelog\n\n## 0.1.0 – unreleased\n\nThe ground.\n");
        let feed = Feed::of("https://tc.test", releases).render().unwrap();
        assert_eq!(feed.matches("<entry>").count(), 1, "{feed}");
        assert_eq!(feed.matches(&format!("<updated>{BEGUN}T00:00:00Z</updated>")).count(), 2, "{feed}");
        let nothing = Feed::of("https://tc.test", Vec::new()).render().unwrap();
        assert!(!nothing.contains("<entry>") && nothing.contains(BEGUN), "{nothing}");
    }

    #[test]
    fn the_changelog_of_this_build_can_be_read() {
        let (about, releases) = read(TEXT);
        assert!(!about.is_empty() && !releases.is_empty());
        for release in &releases {
            assert!(!release.body.is_empty() && !release.body.contains("##"), "{release:?}");
        }
        let current = env!("CARGO_PKG_VERSION");
        assert!(releases.iter().any(|release| release.version == current), "{current} is not in it");
    }
}
