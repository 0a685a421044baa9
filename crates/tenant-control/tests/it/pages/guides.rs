//! The guides: every file of `docs/`, as a page.

use std::path::Path;

use super::documentation::{GUIDES, open_to_readers, raw};
use super::*;

/// The names and texts of the files.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let guides = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let read = |path: std::path::PathBuf| {
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap())
    };
    guides.map(read).collect()
}

over_http! {
    async fn every_file_is_a_page_and_is_listed(setup: Setup) {
        let server = open_to_readers(setup).await;
        let list = raw(&server.get(GUIDES).await);
        let first = raw(&server.get(DOCUMENTATION).await);
        let files = files();
        assert!(!files.is_empty());
        for (name, text) in files {
            let path = format!("{GUIDES}{name}/");
            let title = text.lines().next().unwrap().strip_prefix("# ").unwrap();
            let link = format!("<a href=\"{path}\">{title}</a>");
            assert!(list.contains(&link) && first.contains(&link), "{name} has a row in the table of guides");
            let page = raw(&server.get(&path).await);
            assert!(page.contains(&format!("<h1>{title}</h1>")), "{name}");
            // All that is written has become what it means.
            let sections = text.lines().filter(|line| line.starts_with("## ")).count();
            assert_eq!(page.matches("<h2 id=").count(), sections, "{name}");
            assert_eq!(2 * page.matches("<pre ").count(), text.lines().filter(|line| line.trim_start().starts_with("```")).count(), "{name}");
            for mark in ["```", "\n## ", "|---", ".md)"] {
                assert!(!page.contains(mark), "{mark} in {name}");
            }
        }
    }

    async fn the_wrapper_that_reports_backups_can_be_fetched(server: Server) {
        let page = raw(&server.get("/documentation/guides/backup/").await);
        let path = "/documentation/guides/backup/tenant-control-backup";
        assert!(page.contains(&format!("<a href=\"{path}\">tenant-control-backup</a>")) && page.contains(&format!("curl -fsSO {}{path}", server.base_url())));
        let answer = server.get(path).await;
        assert_eq!(answer.is(200).header("content-type"), "text/plain; charset=utf-8");
        let file = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tenant-control-backup")).unwrap();
        assert_eq!(answer.body, file.as_bytes());
    }

    async fn commands_name_this_server(setup: Setup) {
        let mut setup = setup;
        setup.settings.base_url = BaseUrl::parse("https://control.example").unwrap();
        let server = setup.start().await;
        let page = html(&server.get("/documentation/guides/tickets/").await);
        assert!(page.contains("curl -s https://control.example/api/psa/tickets -H"), "{page}");
        assert!(!page.contains("127.0.0.1"), "{page}");
    }

    async fn a_table_and_a_link_are_what_they_are(server: Server) {
        let page = raw(&server.get("/documentation/guides/tickets/").await);
        for part in [
            "<a href=\"#make-one-safely\">Make one, safely</a>",
            "<h2 id=\"make-one-safely\">Make one, safely</h2>",
            "<a href=\"/documentation/guides/organizations/\">Organizations</a>",
            "<div class=\"scroll\" role=\"group\" aria-label=\"Table\" tabindex=\"0\">",
            "<th scope=\"col\">from</th>",
            "<th scope=\"row\">by words</th>",
            "<th scope=\"col\"><code>sla_state</code></th><td></td>",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
