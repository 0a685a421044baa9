//! The plots of the overview, and the tables behind them.

use kernel::base::{DAY_MS, HOUR_MS};

use super::*;
use crate::support::Tenancy;
use crate::support::backups::open;
use crate::tickets::{changed, make};

const TITLES: [&str; 5] = [
    "Tickets created and resolved",
    "Open tickets at the end of the day",
    "Devices at the end of the day",
    "Backups",
    "Requests to the API",
];
const NOTHING: &str = "Nothing was counted in these days.";

async fn read_overview(server: &Server, tenancy: &Tenancy) -> String {
    server.fold().await;
    let answer = server.get(OVERVIEW).cookie(&tenancy.admin).await;
    answer.is(200);
    html(&answer)
}

/// The plot with this title, from its heading to its end.
#[track_caller]
fn plot<'a>(page: &'a str, title: &str) -> &'a str {
    let (_, rest) =
        page.split_once(&format!("-heading\">{title}</h3>")).unwrap_or_else(|| panic!("no {title} in {page}"));
    rest.split("</figure>").next().unwrap()
}

/// The numbers of one day in the table of a plot.
#[track_caller]
fn row(plot: &str, day: &str) -> Vec<i64> {
    let start = format!("<th scope=\"row\">{day}</th>");
    let (_, rest) = plot.split_once(&start).unwrap_or_else(|| panic!("no {day} in {plot}"));
    let cells = rest.split("</tr>").next().unwrap().split("<td class=\"number\">").skip(1);
    cells.map(|cell| cell.split('<').next().unwrap().parse().unwrap()).collect()
}

over_http! {
    async fn the_overview_draws_what_was_counted_and_lists_it(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let other = server.tenant("globex").await;
        let printer = make(&server, &acme, &json!({})).await;
        make(&server, &acme, &json!({})).await;
        // What is metered is written as of its first request: those of the two days are written apart.
        server.fold().await;
        server.advance(DAY_MS);
        changed(&server, &acme, &printer, &json!({"status": "resolved"})).await;
        server.advance(HOUR_MS);
        let page = read_overview(&server, &acme).await;
        let tickets = plot(&page, TITLES[0]);
        for part in ["<svg role=\"img\"", "-title\">Tickets created and resolved</title>", "Created: 2 in all, at most 2 on 2026-01-15. Resolved: 1 in all, at most 1 on 2026-01-16.", "<rect class=\"bar\"", "<summary>Table"] {
            assert!(tickets.contains(part), "{part} in {tickets}");
        }
        assert_eq!((row(tickets, "2026-01-15"), row(tickets, "2026-01-16")), (vec![2, 0], vec![0, 1]));
        assert_eq!(row(tickets, "2025-12-18"), [0, 0], "the first of thirty days");
        assert_eq!(tickets.matches("<th scope=\"row\">").count(), 30);
        let backlog = plot(&page, TITLES[1]);
        assert!(backlog.contains("<polyline class=\"line\"") && backlog.contains("Open: 1 at last, at most 2 on 2026-01-15."), "{backlog}");
        assert_eq!((row(backlog, "2026-01-14"), row(backlog, "2026-01-15"), row(backlog, "2026-01-16")), (vec![0], vec![2], vec![1]));
        let requests = row(plot(&page, TITLES[4]), "2026-01-15");
        assert!(requests[0] >= 2 && requests[1] == 0, "{requests:?}");
        for title in &TITLES[2..4] {
            let empty = plot(&page, title);
            assert!(empty.contains("will appear here") && !empty.contains("<svg"), "{empty}");
        }
        assert!(read_overview(&server, &other).await.contains(NOTHING), "figures are of the tenant");
    }

    async fn the_plots_of_the_overview_are_strict_and_can_be_read_by_everybody(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let page = read_overview(&server, &acme).await;
        assert!(page.contains(NOTHING) && !page.contains("class=\"plot\""), "{page}");
        make(&server, &acme, &json!({"subject": "<script>alert(1)</script>"})).await;
        let page = read_overview(&server, &acme).await;
        assert!(!page.contains("alert(1)") && !page.contains(" style=") && !page.contains("<style"), "{page}");
        let ids = attributes(&page, "id");
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an id is repeated: {ids:?}");
        let named = ["aria-labelledby", "aria-describedby"].map(|name| attributes(&page, name)).concat();
        assert!(named.iter().flat_map(|names| names.split(' ')).all(|name| ids.iter().any(|id| id == name)), "{named:?} of {ids:?}");
        let filled: Vec<String> = attributes(&page, "fill").into_iter().filter(|fill| fill.starts_with("url(")).collect();
        assert!(filled.iter().all(|fill| ids.iter().any(|id| *fill == format!("url(#{id})"))), "{filled:?} of {ids:?}");
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        let seen = html(&server.get(OVERVIEW).cookie(&viewer).await);
        assert_eq!(row(plot(&seen, TITLES[0]), "2026-01-15"), [1, 0]);
    }
}
