//! `/documentation/changelog/`: CHANGELOG.md of this build, and an Atom feed of what it has released.
//!
//! A release is a heading `## VERSION – DATE`. One without a date is not released: the page shows it, and the feed does not, for
//! whoever is told of it would not be told again when it is.

use askama::Template;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use kernel::base::{Error, Result, Timestamp};
use kernel::http::Shared;

use super::markdown::{self, Block};
use super::page::{Page, REFERRER_POLICY, STILL};

const TEXT: &str = include_str!("../../../../../CHANGELOG.md");
const PATH: &str = "/documentation/changelog/";

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
    releases: Vec<Release>,
}

/// A version, with what has changed as HTML.
#[derive(Debug)]
struct Release {
    version: String,
    /// As `2026-11-15`, once it is released.
    date: Option<String>,
    body: String,
}

pub async fn changelog() -> Result<Page> {
    let (about, releases) = read(TEXT)?;
    Page::new(&Changelog { here: PATH, about, releases })
}

pub async fn feed(State(app): State<Shared>) -> Result<Response> {
    let (_, releases) = read(TEXT)?;
    let feed = Feed::of(app.settings.base_url.as_str(), releases);
    let headers =
        [(header::CONTENT_TYPE, "application/atom+xml; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, STILL)];
    let xml = feed.render().map_err(Error::internal)?;
    Ok((headers, [(header::REFERRER_POLICY, REFERRER_POLICY)], xml).into_response())
}

/// What stands above the first release, and the releases, the newest first as the file has them.
fn read(text: &str) -> Result<(String, Vec<Release>)> {
    let (mut about, mut releases) = (Vec::new(), Vec::<(String, Vec<Block>)>::new());
    for block in markdown::parse(text) {
        match block {
            // The page has a title of its own.
            Block::Heading(1, _) => {}
            Block::Heading(2, title) => releases.push((title, Vec::new())),
            block => releases.last_mut().map_or(&mut about, |(_, body)| body).push(block),
        }
    }
    let releases = releases.into_iter().map(|(title, body)| Release::of(&title, body));
    Ok((markdown::render(about)?, releases.collect::<Result<_>>()?))
}

impl Release {
    fn of(title: &str, body: Vec<Block>) -> Result<Self> {
        let (version, when) = title.split_once(" – ").unwrap_or((title, ""));
        let is_date = Timestamp::parse(&format!("{when}T00:00:00Z")).is_some();
        let date = is_date.then(|| when.to_owned());
        Ok(Release { version: version.to_owned(), date, body: markdown::render(body)? })
    }

    /// Where it stands on the page, for good.
    fn anchor(&self) -> String {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
        format!("v{}", self.version.chars().map(plain).collect::<String>())
    }

    fn when(&self) -> &str {
        self.date.as_deref().unwrap_or("unreleased")
    }
}

/// Of a feed without any release: it must have one, and nothing has been told yet.
const NEVER: &str = "1970-01-01";

impl<'a> Feed<'a> {
    fn of(base_url: &'a str, mut releases: Vec<Release>) -> Self {
        releases.retain(|release| release.date.is_some());
        let newest = releases.iter().filter_map(|release| release.date.as_deref()).max().unwrap_or(NEVER);
        Feed { base_url, path: PATH, updated: newest.to_owned(), releases }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const SAMPLE: &str = "# Changelog\n\nWhat changes.\n\n## 0.3.0 – unreleased\n\nSoon & <b>.\n\n\
        ## 0.2.0 – 2026-12-01\n\n### For users\n\n- `a < b` is said.\n\n## 0.1.0 – 2026-11-15\n\nThe ground.\n";

    #[test]
    fn a_release_has_a_date_and_what_has_none_is_not_told() {
        let (about, releases) = read(SAMPLE).unwrap();
        assert!(about.contains("<p>What changes.</p>"), "{about}");
        let shown: Vec<_> = releases.iter().map(|release| (release.anchor(), release.when().to_owned())).collect();
        let expected = [("v0.3.0", "unreleased"), ("v0.2.0", "2026-12-01"), ("v0.1.0", "2026-11-15")];
        assert_eq!(shown, expected.map(|(anchor, when)| (anchor.to_owned(), when.to_owned())));

        let feed = Feed::of("https://tc.test", releases).render().unwrap();
        assert_eq!(feed.matches("<entry>").count(), 2, "{feed}");
        assert!(!feed.contains("0.3.0") && !feed.contains("Soon"), "{feed}");
        assert!(feed.contains("<id>https://tc.test/documentation/changelog/#v0.2.0</id>"), "{feed}");
        assert_eq!(feed.matches("<updated>2026-12-01T00:00:00Z</updated>").count(), 2, "{feed}");
        // Escaped once as HTML, and once more as what HTML is in XML.
        assert!(feed.contains("&#60;code&#62;a &#38;#60; b&#60;/code&#62;"), "{feed}");
    }

    #[test]
    fn a_feed_of_nothing_is_a_feed() {
        let (_, releases) = read("## 0.1.0 – unreleased\n\nThe ground.\n").unwrap();
        let feed = Feed::of("https://tc.test", releases).render().unwrap();
        assert!(!feed.contains("<entry>") && feed.contains("<updated>1970-01-01T00:00:00Z</updated>"), "{feed}");
    }

    #[test]
    fn the_changelog_of_this_build_can_be_read() {
        let (about, releases) = read(TEXT).unwrap();
        assert!(!about.is_empty() && !releases.is_empty());
        for release in &releases {
            assert!(!release.body.is_empty() && !release.body.contains("##"), "{release:?}");
        }
        let current = env!("CARGO_PKG_VERSION");
        assert!(releases.iter().any(|release| release.version == current), "{current} is not in it");
    }
}
