//! The documentation as a whole: every page of it as a reader finds it, from link to link.

use super::*;
use crate::support::Setup;

pub const REFERENCE: &str = "/documentation/api/";
pub const GUIDES: &str = "/documentation/guides/";

/// More would be long to load on a phone.
const PAGE_BYTES_MAX: usize = 150_000;

/// A server whose visitors may read all of it within a minute.
pub async fn open_to_readers(setup: Setup) -> Server {
    let mut setup = setup;
    setup.settings.rate_table.set(RatePolicy::Public, 10_000);
    setup.start().await
}

/// A page as it is sent: what is shown of HTML in it is no HTML.
pub fn raw(answer: &Answer) -> String {
    String::from_utf8(answer.is(200).body.clone()).unwrap()
}

fn is_of_documentation(path: &str) -> bool {
    path.starts_with(DOCUMENTATION) && path.ends_with('/')
}

/// Every page that can be reached from the first, by path.
async fn read_all(server: &Server) -> BTreeMap<String, String> {
    let (mut pages, mut left) = (BTreeMap::new(), vec![DOCUMENTATION.to_owned()]);
    while let Some(path) = left.pop() {
        if pages.contains_key(&path) {
            continue;
        }
        let page = raw(&server.get(&path).await);
        let links = attributes(&page, "href").into_iter().map(|link| link.split('#').next().unwrap().to_owned());
        left.extend(links.filter(|link| is_of_documentation(link)));
        pages.insert(path, page);
    }
    pages
}

/// The levels of its headings, in order.
fn levels(page: &str) -> Vec<u32> {
    let starts = page.split("<h").skip(1).filter_map(|rest| rest.chars().next()?.to_digit(10));
    starts.collect()
}

over_http! {
    async fn every_page_of_it_is_found_from_the_first(setup: Setup) {
        let server = open_to_readers(setup).await;
        let pages = read_all(&server).await;
        let operations = server.contract.operations();
        // With the list of operations, the events, the list of guides, the errors, the changelog, and the first.
        assert!(pages.len() >= operations.len() + 6, "{:?}", pages.keys());
        for path in [REFERENCE, GUIDES, ERRORS, CHANGELOG, "/documentation/api/events/"] {
            assert!(pages.contains_key(path), "{path}");
        }
    }

    async fn every_page_of_it_can_be_read_by_everybody(setup: Setup) {
        let server = open_to_readers(setup).await;
        for (path, page) in read_all(&server).await {
            assert!(page.len() <= PAGE_BYTES_MAX || path == CHANGELOG, "{path} has {} bytes", page.len());
            let levels = levels(&page);
            assert_eq!(levels.iter().filter(|level| **level == 1).count(), 1, "{path} has one first heading");
            assert_eq!(levels[0], 1, "{path} begins with it");
            assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{path} skips a level: {levels:?}");
            let ids = attributes(&page, "id");
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{path} repeats an id: {ids:?}");
            assert!(!page.contains("<th>"), "{path} has a header of nobody knows what");
            for table in page.split("<table").skip(1).map(|rest| rest.split("</table>").next().unwrap()) {
                assert!(table.contains("<th scope="), "{path} has a table without headers: {table}");
            }
            for code in page.split("<pre").skip(1) {
                let can_be_reached = code.starts_with(" class=\"command\"") || code.split('>').next().unwrap().contains("tabindex=\"0\"");
                assert!(can_be_reached, "{path}: what scrolls can be scrolled with keys alone");
            }
            for nav in page.split("<nav").skip(1) {
                assert!(nav.split('>').next().unwrap().contains(" aria-label"), "{path} has a nav without a name");
            }
        }
    }

    async fn no_page_of_it_asks_somebody_else(setup: Setup) {
        let server = open_to_readers(setup).await;
        for path in read_all(&server).await.into_keys() {
            let answer = server.get(&path).await;
            let policy = answer.header("content-security-policy");
            assert!(policy.starts_with("default-src 'none'; style-src 'self'; img-src 'self'; base-uri"), "{path}: {policy}");
            let page = raw(&answer);
            for part in ["<script", "<style", " style=", "<img", "<iframe", " src=", "@import"] {
                assert!(!page.contains(part), "{part} in {path}");
            }
            let mut loaded = page.split("<link ").skip(1).flat_map(|rest| attributes(rest.split('>').next().unwrap(), "href"));
            assert!(loaded.all(|url| url.starts_with('/')), "{path}");
        }
    }

    async fn no_link_of_it_is_dead(setup: Setup) {
        let server = open_to_readers(setup).await;
        let admin = server.tenant("acme").await.admin;
        let pages = read_all(&server).await;
        let mut anchors: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (path, page) in &pages {
            for link in attributes(page, "href") {
                let is_elsewhere = ["https://", "mailto:"].iter().any(|start| link.starts_with(start));
                assert!(is_elsewhere || link.starts_with(['/', '#']), "{link} in {path}");
                if !is_elsewhere {
                    let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
                    let target = if target.is_empty() { path.as_str() } else { target };
                    anchors.entry(target.to_owned()).or_default().insert(anchor.to_owned());
                }
            }
        }
        assert!(anchors.contains_key("/documentation/guides/search/") && anchors["/documentation/guides/search/"].contains("for-operators"));
        for (target, anchors) in anchors {
            let answer = server.get(&target).cookie(&admin).await;
            let ids = attributes(&raw(&answer), "id");
            let dead: Vec<_> = anchors.iter().filter(|anchor| !anchor.is_empty() && !ids.contains(anchor)).collect();
            assert!(dead.is_empty(), "{target}: {dead:?}");
        }
    }

    async fn the_first_page_has_calls_that_work(server: Server) {
        let tenancy = server.tenant("acme").await;
        let key = server.key(&tenancy, &["tickets:*", "audit:read"]).await.plain;
        let page = html(&server.get(DOCUMENTATION).await);
        let calls: Vec<&str> = page.split("<code>curl -s ").skip(1).map(|rest| rest.split("</code>").next().unwrap()).collect();
        assert_eq!(calls.len(), 4, "{calls:?}");
        for call in calls {
            assert!(call.contains("-H \"Authorization: Bearer $KEY\""), "{call}");
            let path = call.trim_start_matches('"').strip_prefix(server.base_url()).unwrap();
            let path = path.split([' ', '"']).next().unwrap();
            match call.split_once("-d '") {
                Some((_, body)) => {
                    let body: Value = serde_json::from_str(body.strip_suffix('\'').unwrap()).unwrap();
                    server.post(path).key(&key).json(&body).await.is(201);
                }
                None => {
                    server.get(path).key(&key).await.is(200);
                }
            }
        }
    }

    async fn pages_of_it_are_charged_as_public(server: Server) {
        let pages = [DOCUMENTATION, REFERENCE, GUIDES, "/documentation/api/create_ticket/"];
        for path in pages {
            server.get(path).await.is(200);
        }
        // They do not say so themselves, as what stands below /api/ does.
        let left = server.get("/api/openapi.json").await.is(200).remaining();
        assert_eq!(left, ("public".to_owned(), 120 - pages.len() as u64 - 1));
    }

    async fn what_has_no_page_is_not_found(server: Server) {
        for path in ["/documentation/api/nothing/", "/documentation/guides/nothing/", "/documentation/guides/tickets.md/"] {
            server.get(path).await.problem("not_found");
            let shown = server.get(path).header("accept", BROWSER).await;
            assert!(html(shown.is(404)).contains("<h1>Page not found</h1>"), "{path}");
        }
    }
}
