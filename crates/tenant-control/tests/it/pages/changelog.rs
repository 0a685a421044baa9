//! The changelog as a page, and its releases as a feed.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;

const FEED: &str = "/documentation/changelog/atom.xml";

/// The path of every element, in the order in which they begin. It fails where the text is no XML.
fn elements(xml: &str) -> Vec<String> {
    let mut reader = Reader::from_str(xml);
    let (mut open, mut found): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    loop {
        match reader.read_event().unwrap_or_else(|error| panic!("{error}: {xml}")) {
            Event::Start(start) => {
                open.push(start.name().as_ref().to_owned());
                found.push(open.join("/"));
            }
            Event::Empty(start) => {
                open.push(start.name().as_ref().to_owned());
                found.push(open.join("/"));
                open.pop();
            }
            Event::End(_) => drop(open.pop()),
            Event::Eof => break,
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?} is not closed");
    found
}

over_http! {
    async fn every_version_has_a_place_of_its_own(server: Server) {
        let page = html(server.get(CHANGELOG).await.is(200));
        let version = env!("CARGO_PKG_VERSION");
        assert!(page.contains(&format!("<h2 id=\"v{version}\">")), "{page}");
        assert!(page.contains("<h3>For operators</h3>") && page.contains("<code>/api/admin/api-keys</code>"));
        assert!(page.contains("<a href=\"https://semver.org\">Semantic Versioning</a>"));
        assert!(!page.contains("##") && !page.contains("]("), "what is written is rendered");
        let link = format!("<link rel=\"alternate\" type=\"application/atom+xml\" title=\"Tenant Control: changelog\" href=\"{FEED}\">");
        assert!(page.contains(&link), "{page}");
        server.head(CHANGELOG).await.is(200);
    }

    async fn the_feed_has_what_atom_asks_for(server: Server) {
        let answer = server.get(FEED).await;
        assert_eq!(answer.is(200).header("content-type"), "application/atom+xml; charset=utf-8");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert!(answer.header("content-security-policy").starts_with("default-src 'none'; "));
        let xml = String::from_utf8(answer.body).unwrap();
        let elements = elements(&xml);
        assert_eq!(elements[0], "feed");
        for needed in ["feed/id", "feed/title", "feed/updated", "feed/author/name"] {
            assert_eq!(elements.iter().filter(|element| *element == needed).count(), 1, "{needed} in {xml}");
        }
        assert!(xml.contains("<feed xmlns=\"http://www.w3.org/2005/Atom\">"), "{xml}");
        assert!(xml.contains(&format!("<id>{}{CHANGELOG}</id>", server.base_url())), "{xml}");
        assert!(xml.contains(&format!("rel=\"self\" type=\"application/atom+xml\" href=\"{}{FEED}\"", server.base_url())));
        let count = |part: &str| elements.iter().filter(|element| *element == part).count();
        for part in ["feed/entry/id", "feed/entry/title", "feed/entry/updated", "feed/entry/content"] {
            assert_eq!(count(part), count("feed/entry"), "{part}");
        }
        server.head(FEED).await.is(200);
    }

    async fn the_feed_has_every_version_and_says_what_is_not_released(server: Server) {
        let (page, feed) = (html(&server.get(CHANGELOG).await), html(&server.get(FEED).await));
        assert_eq!(feed.matches("<entry>").count(), page.matches("<h2 id=\"v").count());
        let unreleased = page.matches("<span class=\"when\">unreleased</span>").count();
        assert_eq!(feed.matches(", unreleased</title>").count(), unreleased);
        assert_eq!(feed.matches("-unreleased</id>").count(), unreleased);
        // A reader tells entries apart by their ids, and what is new by when it was changed.
        let ids: BTreeSet<&str> = feed.split("<id>").skip(1).collect();
        assert_eq!(ids.len(), 1 + feed.matches("<entry>").count());
        server.advance(MINUTE_MS);
        assert_eq!(html(&server.get(FEED).await), feed);
    }
}
