//! `/documentation/changelog/`: CHANGELOG.md of this build, as a page and as an Atom feed.
//!
//! A release is a heading `## VERSION – DATE`. A version without a date is not released: it has another id in the feed, so
//! that feed readers show it again once it is released.

use askama::Template;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use kernel::base::{Error, Result, Timestamp};
use kernel::http::SharedApp;

use super::markdown;
use super::page::{HtmlPage, REFERRER_POLICY, STATIC_POLICY};

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
struct ChangelogFeed<'a> {
    base_url: &'a str,
    path: &'static str,
    updated: String,
    entries: Vec<ChangelogEntry>,
}

/// A version in the feed.
struct ChangelogEntry {
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

pub async fn show_changelog() -> Result<HtmlPage> {
    let (about, releases) = parse_changelog(TEXT);
    HtmlPage::new(&Changelog { here: PATH, about, releases })
}

pub async fn serve_changelog_feed(State(app): State<SharedApp>) -> Result<Response> {
    let (_, releases) = parse_changelog(TEXT);
    let feed = ChangelogFeed::from_releases(app.settings.base_url.as_str(), releases);
    let headers = [
        (header::CONTENT_TYPE, "application/atom+xml; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, STATIC_POLICY),
    ];
    let xml = feed.render().map_err(Error::internal)?;
    Ok((headers, [(header::REFERRER_POLICY, REFERRER_POLICY)], xml).into_response())
}

/// Parses the text above the first release, and the releases in the order of the file, newest first.
fn parse_changelog(text: &str) -> (String, Vec<Release>) {
    let (above, below) = match text.find(RELEASE) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    // The page has a title of its own.
    let about: Vec<&str> = above.lines().filter(|line| !line.starts_with("# ")).collect();
    let releases = below.split(RELEASE).skip(1).map(Release::from_section).collect();
    (markdown::to_html(&about.join("\n")), releases)
}

impl Release {
    /// Parses the text after [`RELEASE`].
    fn from_section(text: &str) -> Self {
        let (title, body) = text.split_once('\n').unwrap_or((text, ""));
        let (version, when) = title.split_once(" – ").unwrap_or((title, ""));
        let is_date = Timestamp::parse(&format!("{when}T00:00:00Z")).is_some();
        let date = is_date.then(|| when.to_owned());
        Release { version: version.to_owned(), date, body: markdown::to_html(body) }
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
const FIRST_DAY: &str = "2026-11-15";

impl<'a> ChangelogFeed<'a> {
    fn from_releases(base_url: &'a str, releases: Vec<Release>) -> Self {
        let newest =
            releases.iter().filter_map(|release| release.date.as_deref()).max().unwrap_or(FIRST_DAY).to_owned();
        let entries = releases.into_iter().map(|release| ChangelogEntry::from_release(release, &newest)).collect();
        ChangelogFeed { base_url, path: PATH, updated: newest, entries }
    }
}

impl ChangelogEntry {
    /// An unreleased version has the date of the `newest` release.
    fn from_release(release: Release, newest: &str) -> Self {
        let (anchor, version) = (release.anchor(), &release.version);
        match release.date {
            Some(date) => ChangelogEntry {
                id: anchor.clone(),
                title: format!("Tenant Control {version}"),
                anchor,
                updated: date,
                body: release.body,
            },
            None => ChangelogEntry {
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
        let (about, releases) = parse_changelog(SAMPLE);
        assert!(about.contains("<p>What changes.</p>"), "{about}");
        let shown: Vec<_> = releases.iter().map(|release| (release.anchor(), release.when().to_owned())).collect();
        let expected = [("v0.3.0", "unreleased"), ("v0.2.0", "2026-12-01"), ("v0.1.0", "2026-11-15")];
        assert_eq!(shown, expected.map(|(anchor, when)| (anchor.to_owned(), when.to_owned())));

        let feed = ChangelogFeed::from_releases("https://tc.test", releases).render().unwrap();
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
        let (_, releases) = parse_changelog("# Changelog\n\n## 0.1.0 – unreleased\n\nThe ground.\n");
        let feed = ChangelogFeed::from_releases("https://tc.test", releases).render().unwrap();
        assert_eq!(feed.matches("<entry>").count(), 1, "{feed}");
        assert_eq!(feed.matches(&format!("<updated>{FIRST_DAY}T00:00:00Z</updated>")).count(), 2, "{feed}");
        let nothing = ChangelogFeed::from_releases("https://tc.test", Vec::new()).render().unwrap();
        assert!(!nothing.contains("<entry>") && nothing.contains(FIRST_DAY), "{nothing}");
    }

    #[test]
    fn the_changelog_of_this_build_can_be_read() {
        let (about, releases) = parse_changelog(TEXT);
        assert!(!about.is_empty() && !releases.is_empty());
        for release in &releases {
            assert!(!release.body.is_empty() && !release.body.contains("##"), "{release:?}");
        }
        let current = env!("CARGO_PKG_VERSION");
        assert!(releases.iter().any(|release| release.version == current), "{current} is not in it");
    }
}
