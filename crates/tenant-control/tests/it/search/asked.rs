//! How a search is asked, page by page, what is refused, and how many are answered at once.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use kernel::base::SECOND_MS;
use kernel::store::Db;
use search_language::parse;
use serde_json::{Value, json};
use tenant_control::features::search::index::{IndexQuery, SearchResults};
use tenant_control::features::search::requested_kinds;
use tenant_control::features::search::service::SearchService;
use tokio::runtime::Builder;

use super::{called, device, hits, ids, ticket, total};
use crate::asset_inventory::database;
use crate::support::people::AUDIT;
use crate::support::search::{Indexed, SEARCH, asking, spelt};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{changed, generous, id_of, make};

/// Eleven printers: nine tickets, three of each moment, and two devices.
async fn printers(server: &Server, tenancy: &Tenancy) {
    for n in 0..9 {
        if n % 3 == 0 {
            server.advance(SECOND_MS);
        }
        make(server, tenancy, &json!({"subject": format!("Printer {n}")})).await;
    }
    for name in ["printer-a", "printer-b"] {
        device(server, tenancy, name, |_| {}).await;
    }
}

/// Follows the cursor to the end, with what runs after each page. The ids in their order, and how many each page says that
/// there are.
async fn walk(
    server: &Server,
    tenancy: &Tenancy,
    query: &str,
    mut between: impl AsyncFnMut(),
) -> (Vec<String>, Vec<u64>) {
    let (mut seen, mut totals, mut more) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = server.get(format!("{SEARCH}?{query}{more}")).cookie(&tenancy.admin).await.ok(200);
        seen.extend(ids(&page));
        totals.push(total(&page));
        assert_eq!(page["has_more"], page["next_cursor"].is_string(), "{page}");
        let Some(next) = page["next_cursor"].as_str() else { return (seen, totals) };
        more = format!("&cursor={next}");
        between().await;
    }
}

async fn first_cursor(server: &Server, cookie: &str, query: &str) -> String {
    let page = server.get(format!("{SEARCH}?{query}&limit=1")).cookie(cookie).await.ok(200);
    page["next_cursor"].as_str().expect("a cursor").to_owned()
}

/// A search for printers as the route hands it on, with the handle of whoever asks.
fn printer_search(server: &Server, tenancy: &Tenancy) -> (Db, IndexQuery) {
    let query = parse("printer").expect("a query");
    let asked = IndexQuery { tenant: tenancy.tenant.id, kinds: requested_kinds(None), query, limit: 50, after: None };
    (database(server, tenancy), asked)
}

/// How many of these searches were answered before the one that came behind them all, and what that one has found.
///
/// A single thread makes them, in the order in which they get their turns: nothing here depends on how fast it is.
fn answered_before(
    served: &SearchService,
    many: Vec<(Db, IndexQuery)>,
    last: (Db, IndexQuery),
) -> (usize, SearchResults) {
    let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let answered = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for (db, asked) in many {
            let (served, answered) = (served.clone(), answered.clone());
            tasks.push(tokio::spawn(async move {
                let found = served.search(&db, asked).await.expect("an answer");
                assert!(found.is_some(), "a search for one word does not cost too much");
                answered.fetch_add(1, Ordering::Relaxed);
            }));
        }
        let served = served.clone();
        let last = tokio::spawn(async move {
            let (db, asked) = last;
            let found = served.search(&db, asked).await.expect("an answer");
            (answered.load(Ordering::Relaxed), found.expect("a search for one word does not cost too much"))
        });
        let last = last.await.expect("the last one is answered");
        for task in tasks {
            task.await.expect("all are answered");
        }
        last
    })
}

over_http! {
    async fn a_parameter_is_good_or_refused(server: Server) {
        let acme = server.tenant("acme").await;
        let _indexed = Indexed::of(&server).await;
        let ask = |query: &str| server.get(format!("{SEARCH}?{query}")).cookie(&acme.admin);
        server.get(SEARCH).cookie(&acme.admin).await.problem("missing_parameter");
        ask("types=ticket").await.problem("missing_parameter");
        ask("q=a&nonsense=1").await.problem("unknown_parameter");
        ask("q=a&sort=title").await.problem("unknown_parameter");
        let long = format!("q={}", spelt(&"é".repeat(201)));
        // With the spaces around it.
        let most = spelt(&"é".repeat(200));
        let (before, behind) = (format!("q=%20{most}"), format!("q={most}%20"));
        for query in [
            "q=", "q=%20", "q=a&q=b", "q=%ff", "q=a&types=", "q=a&types=printer", "q=a&types=Device", "q=a&types=device,",
            "q=a&types=device%20ticket", "q=a&limit=0", "q=a&limit=201", "q=a&limit=ten", long.as_str(),
            before.as_str(), behind.as_str(),
        ] {
            let answer = ask(query).await;
            assert_eq!(answer.status, 400, "{query}: {}", answer.json());
            answer.problem("invalid_parameter");
        }
        ask(&format!("q={most}")).await.is(200);
        ask(&format!("q=%20{}%20", spelt(&"é".repeat(198)))).await.is(200);
        ask("q=a&types=vm,device,device&limit=200").await.is(200);
    }

    async fn an_error_of_a_query_names_the_place(server: Server) {
        let acme = server.tenant("acme").await;
        let _indexed = Indexed::of(&server).await;
        for (q, at, part) in [
            ("colour:red", 1, "There is no field `colour`."),
            ("printer colour:red", 9, "There is no field `colour`."),
            ("é -colour:red", 4, "There is no field `colour`."),
            ("-printer", 1, "Something to look for is needed"),
            (" -printer -status:open", 2, "Something to look for is needed"),
            ("Foo:bar", 1, "There is no field `Foo`."),
            ("printer foo:\"bar baz\"", 9, "There is no field `foo`."),
            ("foo:bar", 1, "There is no field `foo`."),
            ("-printer \"!\" -&", 1, "Something to look for is needed"),
            ("type:printer", 6, "There is no such type."),
            ("number:four", 8, "digits alone"),
            (" - ", 2, "a letter or a digit"),
            ("&", 1, "a letter or a digit"),
            ("  !!", 3, "a letter or a digit"),
        ] {
            let answer = server.get(asking(q)).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{q}: {}", answer.json());
            let problem = answer.problem("invalid_query");
            let detail = problem["detail"].as_str().expect("a detail");
            assert!(detail.starts_with(&format!("At character {at}: ")) && detail.contains(part), "{q}: {detail}");
        }
    }

    /// Whatever signs it has. Of more words than anybody types the first ones must be there.
    async fn pasted_text_is_searched_as_words(server: Server) {
        let acme = server.tenant("acme").await;
        let subject = "C: drive full, error: 0x800CCC0E at Order.load(Order.java:42) \"blue screen\" std::string localhost:8080 os";
        let (words, trace): (Vec<String>, &str) = ((1..=25).map(|n| format!("word{n}")).collect(), "see https://intra.test/a?b=c#d");
        let description = format!("{} {trace} HKLM:\\Software {{\"code\":\"E_FAIL\"}} re: [x]", words[..16].join(" "));
        let made = ticket(&server, &acme, &json!({"subject": subject, "description": description}), &[]).await;
        let _indexed = Indexed::of(&server).await;
        for q in [
            "C: drive full", "c:", "C:drive", "error: 0x800CCC0E", "at Order.load(Order.java:42)", "Order.java:42", "\"blue screen",
            "blue\" screen", "„blue screen", "\"blue screen\" \"", "drive \"!\"", "drive -&", "drive -\"&\"", "os: full", "full os:",
            "std::string", "localhost:8080", trace, "https://intra.test/a?b=c#d", "HKLM:\\Software", "{\"code\":\"E_FAIL\"}",
            "RE: drive full", "drive & full", "(drive) [full] {error}", "'drive full'", "drive; full|error", &words[..17].join(" "), &words.join(" "),
        ] {
            let answer = server.get(asking(q)).cookie(&acme.admin).await;
            assert_eq!(answer.status, 200, "{q}: {}", answer.json());
            assert_eq!(ids(&answer.json()), [id_of(&made)], "{q}");
        }
        let too_many = format!("{} type:device", words.join(" "));
        assert_eq!(total(&server.search(&acme.admin, &too_many).await), 0, "a field counts wherever it stands");
        let too_many = format!("{} -word1", words[1..].join(" "));
        assert_eq!(total(&server.search(&acme.admin, &too_many).await), 0, "and so does an exclusion");
    }

    async fn types_choose_what_is_found_and_counted(server: Server) {
        let acme = server.tenant("acme").await;
        printers(&server, &acme).await;
        let _indexed = Indexed::of(&server).await;
        for (query, tickets, devices) in [
            ("", 9, 2),
            ("&types=ticket", 9, 0),
            ("&types=device", 0, 2),
            ("&types=device,ticket,vm", 9, 2),
            ("&types=vm", 0, 0),
            ("&types=user,organization,workflow,software", 0, 0),
        ] {
            let found = server.get(format!("{SEARCH}?q=printer{query}")).cookie(&acme.admin).await.ok(200);
            assert_eq!(found["counts"]["ticket"], tickets, "{query}: {found}");
            assert_eq!(found["counts"]["device"], devices, "{query}: {found}");
            assert_eq!(total(&found), tickets + devices, "{query}: {found}");
            assert_eq!(u64::try_from(hits(&found).len()), Ok(tickets + devices), "{query}: {found}");
        }
        let both = format!("{SEARCH}?q={}&types=ticket", spelt("type:device printer"));
        assert_eq!(total(&server.get(both).cookie(&acme.admin).await.ok(200)), 0);
    }

    async fn pages_of_any_size_have_each_hit_once_and_count_all(server: Server) {
        let acme = server.tenant("acme").await;
        printers(&server, &acme).await;
        let _indexed = Indexed::of(&server).await;
        let whole = ids(&server.search(&acme.admin, "printer").await);
        assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 11, "{whole:?}");
        for limit in [1_usize, 3, 10, 11, 200] {
            let (seen, totals) = walk(&server, &acme, &format!("q=printer&limit={limit}"), async || {}).await;
            assert_eq!(seen, whole, "pages of {limit}");
            assert_eq!(totals.len(), 11_usize.div_ceil(limit), "pages of {limit}");
            assert!(totals.iter().all(|total| *total == 11), "pages of {limit}: {totals:?}");
        }
    }

    async fn what_stays_comes_once_while_others_come_and_change(server: Server) {
        let acme = server.tenant("acme").await;
        printers(&server, &acme).await;
        let moving = called(&server, &acme, "Printer that moves").await;
        let coming = called(&server, &acme, "Something else").await;
        let indexed = Indexed::of(&server).await;
        for limit in [1, 3] {
            let mut whole = ids(&server.search(&acme.admin, "printer").await);
            whole.retain(|id| id != id_of(&moving) && id != id_of(&coming));
            let mut page = 0;
            let (seen, _) = walk(&server, &acme, &format!("q=printer&limit={limit}"), async || {
                page += 1;
                let new = format!("Printer {limit} after {page}");
                let states: &[&str] = if page % 3 == 0 { &["resolved"] } else { &[] };
                ticket(&server, &acme, &json!({"subject": new}), states).await;
                changed(&server, &acme, &moving, &json!({"description": new})).await;
                let subject = if page % 2 == 0 { "Something else" } else { "Printer for a while" };
                changed(&server, &acme, &coming, &json!({"subject": subject})).await;
                indexed.catch_up().await;
            }).await;
            let stayed: Vec<String> = seen.into_iter().filter(|id| whole.contains(id)).collect();
            assert_eq!(stayed, whole, "pages of {limit}");
        }
    }

    async fn a_cursor_belongs_to_its_query_and_tenant_and_cannot_be_altered(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        printers(&server, &acme).await;
        printers(&server, &globex).await;
        let _indexed = Indexed::of(&server).await;
        let cursor = first_cursor(&server, &acme.admin, "q=printer").await;
        let typed = first_cursor(&server, &acme.admin, "q=printer&types=ticket").await;
        let good = server.get(format!("{SEARCH}?q=printer&limit=200&cursor={cursor}")).cookie(&acme.admin).await;
        assert_eq!(hits(&good.ok(200)).len(), 10, "a limit may change");
        for (target, cookie) in [
            (format!("{SEARCH}?q=print&cursor={cursor}"), &acme.admin),
            (format!("{SEARCH}?q=printer&types=ticket&cursor={cursor}"), &acme.admin),
            (format!("{SEARCH}?q=printer&cursor={typed}"), &acme.admin),
            (format!("{SEARCH}?q=printer&types=device&cursor={typed}"), &acme.admin),
            (format!("{SEARCH}?q=printer&cursor={cursor}"), &globex.admin),
            (format!("{AUDIT}?cursor={cursor}"), &acme.admin),
            (format!("{SEARCH}?q=printer&cursor="), &acme.admin),
            (format!("{SEARCH}?q=printer&cursor=nonsense"), &acme.admin),
            (format!("{SEARCH}?q=printer&cursor={cursor}A"), &acme.admin),
        ] {
            let answer = server.get(&target).cookie(cookie).await;
            assert_eq!(answer.status, 400, "{target}: {}", answer.json());
            answer.problem("invalid_cursor");
        }
        for at in (0..cursor.len()).step_by(5) {
            let other = if cursor[at..].starts_with('A') { "B" } else { "A" };
            let mut altered = cursor.clone();
            altered.replace_range(at..=at, other);
            let answer = server.get(format!("{SEARCH}?q=printer&cursor={altered}")).cookie(&acme.admin).await;
            answer.problem("invalid_cursor");
        }
    }

    async fn a_link_repeats_the_cursor(server: Server) {
        let acme = server.tenant("acme").await;
        printers(&server, &acme).await;
        let _indexed = Indexed::of(&server).await;
        let target = format!("{SEARCH}?q={}&types=ticket,device&limit=6", spelt("printer -\"floor 3\""));
        let answer = server.get(target).cookie(&acme.admin).await;
        let cursor = answer.ok(200)["next_cursor"].as_str().expect("a cursor").to_owned();
        let link = answer.header("link");
        let url = link.strip_prefix('<').and_then(|rest| rest.strip_suffix(">; rel=\"next\"")).expect(link);
        assert!(url.contains(&cursor), "{url}");
        let target = url.strip_prefix(server.base_url()).expect("a URL of this server").to_owned();
        let next = server.get(target).cookie(&acme.admin).await;
        assert_eq!(hits(&next.ok(200)).len(), 5);
        assert_eq!((next.header("link"), &next.json()["next_cursor"]), ("", &Value::Null));
    }

    async fn a_search_is_charged_to_the_budget_of_searches(server: Server) {
        let acme = server.tenant("acme").await;
        let _indexed = Indexed::of(&server).await;
        for query in ["q=printer", "q=colour:red", "nonsense=1"] {
            let answer = server.get(format!("{SEARCH}?{query}")).cookie(&acme.admin).await;
            assert_eq!(answer.header("ratelimit-policy"), "\"search\";q=600;w=60", "{query}");
            assert_eq!(answer.remaining().0, "search", "{query}");
        }
        let head = server.head(asking("printer")).cookie(&acme.admin).await;
        assert_eq!((head.is(200).body.len(), head.header("cache-control")), (0, "no-store"));
    }

    /// Rather than half an answer.
    async fn before_the_index_is_there_it_is_said_when_to_come_back(server: Server) {
        let acme = server.tenant("acme").await;
        called(&server, &acme, "Printer is jammed").await;
        for query in ["q=printer", "q=%22printer%20is%22&limit=1", "q=nothing"] {
            let answer = server.get(format!("{SEARCH}?{query}")).cookie(&acme.admin).await;
            answer.problem("unavailable");
            assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1), "{query}");
            server.head(format!("{SEARCH}?{query}")).cookie(&acme.admin).await.is(503);
        }
        // What is wrong with the request is told all the same.
        server.get(SEARCH).cookie(&acme.admin).await.problem("missing_parameter");
        server.get(asking("colour:red")).cookie(&acme.admin).await.problem("invalid_query");
        server.get(format!("{SEARCH}?q=printer&cursor=nonsense")).cookie(&acme.admin).await.problem("invalid_cursor");
        let _indexed = Indexed::of(&server).await;
        assert_eq!(server.titles(&acme.admin, "printer").await, ["Printer is jammed"]);
    }

    /// Of searches that came together, a neighbour's is made behind as many of one tenant as that one has turns, and not behind
    /// all of them.
    async fn one_tenant_with_many_searches_keeps_no_other_waiting(server: Server) {
        // As many as a tenant has turns for, and many times as many.
        let turns = std::thread::available_parallelism().map_or(1, usize::from).max(2) / 2;
        let at_once = 16 * turns;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        printers(&server, &acme).await;
        called(&server, &globex, "Printer of the neighbour").await;
        let _indexed = Indexed::of(&server).await;
        let served: SearchService = server.app.settings.feature_settings();
        let many = (0..at_once).map(|_| printer_search(&server, &acme)).collect();
        let last = printer_search(&server, &globex);
        let (before, found) = tokio::task::spawn_blocking(move || answered_before(&served, many, last))
            .await
            .expect("all are answered");
        let titles: Vec<&str> = found.hits.iter().map(|hit| hit.title.as_str()).collect();
        assert_eq!(titles, ["Printer of the neighbour"]);
        assert!(before < at_once / 2, "{before} of {at_once} were answered before the neighbour's");
    }

    /// More than one tenant has turns for, and more than there are threads: each is answered or sent away for a while, and
    /// meanwhile a neighbour is never sent away.
    async fn many_searches_at_once_are_answered_or_told_when_to_come_back(setup: Setup) {
        const AT_ONCE: usize = 150;
        const QUERIES: [&str; 5] = ["printer", "pirnter", "p", "\"printer 1\"", "printer -type:device"];
        let server = generous(setup).await;
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        printers(&server, &acme).await;
        called(&server, &globex, "Printer of the neighbour").await;
        let _indexed = Indexed::of(&server).await;
        let burst = join_all((0..AT_ONCE).map(|n| {
            server.get(asking(QUERIES[n % QUERIES.len()])).cookie(&acme.admin).into_future()
        }));
        let neighbour = async {
            let mut found = Vec::new();
            for _ in 0..5 {
                found.push(server.titles(&globex.admin, "printer").await);
            }
            found
        };
        let (answers, found) = tokio::join!(burst, neighbour);
        assert_eq!(found, [["Printer of the neighbour"]; 5]);
        let mut answered = 0;
        for answer in answers {
            match answer.status {
                200 => answered += 1,
                429 => drop(answer.problem("rate_limited")),
                _ => drop(answer.problem("unavailable")),
            }
        }
        assert!(answered > 0, "all of {AT_ONCE} were sent away");
        // And whoever comes back is served.
        assert_eq!(total(&server.search(&acme.admin, "printer").await), 11);
    }
}
