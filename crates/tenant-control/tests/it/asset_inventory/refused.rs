//! What is refused: values, names and combinations that mean nothing here. A filter is applied or refused.

use kernel::auth::Role;

use super::{INVENTORY, NOTHING, NOWHERE, add, named};
use crate::support::over_http;
use crate::tickets::TICKETS;

over_http! {
    async fn a_value_that_means_nothing_is_refused_and_named(server: Server) {
        let acme = server.tenant("acme").await;
        let (words, letters, values) = (["a"; 11].join("+"), "a".repeat(201), vec!["a"; 101].join(","));
        for (name, bad) in [
            ("type", vec!["", "Server", "servers", "server,", "server,none", ",", "none"]),
            ("platform", vec!["", "Linux", "bsd", "linux,,macos"]),
            ("status", vec!["", "up", "online,deleted"]),
            ("health", vec!["", "ok", "healthy;unknown"]),
            ("organization_id", vec!["", "x", NOTHING, "org_", "none,x", "NONE", "null"]),
            ("tag", vec!["", ",", "a,,b", "%00", &values]),
            ("software", vec!["", ",", "bash@", "bash,", &letters, &values]),
            ("q", vec!["", "+", "---", "-+%22", &words, &letters]),
            ("updated_since", vec!["", "yesterday", "2026-01-01", "2026-01-01T00:00:00+02:00", "0"]),
            ("limit", vec!["", "0", "201", "x", "-1", "01", "1.0"]),
            ("fields", vec!["", "nonsense", "hostname,", "os.name", "Hostname", "disks", "history", "software", "tenant_id"]),
            ("include", vec!["", "history", "disks,", "Disks", "all", "*"]),
            ("format", vec!["", "xml", "CSV", "json,csv"]),
            ("view", vec!["", "Summary", "devices", "summary,history"]),
        ] {
            for value in bad {
                let answer = server.get(format!("{INVENTORY}?{name}={value}")).cookie(&acme.admin).await;
                assert_eq!(answer.status, 400, "{name}={value}: {}", answer.json());
                let problem = answer.problem("invalid_parameter");
                assert!(problem["detail"].as_str().unwrap().contains(name), "{name}={value}: {problem}");
            }
            // A list may be given one by one; then each of its values counts.
            let second = if ["tag", "software"].contains(&name) { "" } else { "a" };
            let twice = server.get(format!("{INVENTORY}?{name}=a&{name}={second}")).cookie(&acme.admin).await;
            twice.problem("invalid_parameter");
        }
        server.get(format!("{INVENTORY}?cursor=nonsense")).cookie(&acme.admin).await.problem("invalid_cursor");
    }

    async fn a_name_that_nobody_knows_is_refused(server: Server) {
        let acme = server.tenant("acme").await;
        for query in [
            "nonsense=1", "order=created_at", "created_since=2026-01-01T00:00:00Z", "Type=server", "types=server", "system=linux",
            "host=a", "serial=a", "offset=1", "page=2", "type[]=server", "warranty_status=expired", "id_=1",
        ] {
            let answer = server.get(format!("{INVENTORY}?{query}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{query}");
            answer.problem("unknown_parameter");
            server.get(format!("{INVENTORY}?format=csv&{query}")).cookie(&acme.admin).await.problem("unknown_parameter");
        }
    }

    async fn what_does_not_go_together_is_refused(server: Server) {
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, named("web-1")).await;
        let page = server.get(format!("{INVENTORY}?limit=1")).cookie(&acme.admin).await.ok(200);
        assert_eq!(page["has_more"], false);
        let filters = [
            "organization_id=none", "type=server", "platform=linux", "status=online", "health=unknown", "tag=a", "software=a",
            "q=web", "updated_since=2026-01-01T00:00:00Z",
        ];
        let mut bad = Vec::new();
        for other in filters.iter().copied().chain(["format=csv", "format=json", "limit=5", "cursor=a"]) {
            // One device is no more than any limit.
            let beside = if other == "limit=5" { "limit=0" } else { other };
            bad.push(format!("id={id}&{beside}"));
            bad.push(format!("id=nonsense&{beside}"));
            if !other.starts_with("organization_id") {
                bad.push(format!("view=summary&{other}"));
            }
        }
        for filter in filters {
            bad.push(format!("id={id}&view=history&{filter}"));
        }
        for format in ["csv", "ndjson"] {
            bad.push(format!("format={format}&limit=1"));
            bad.push(format!("format={format}&cursor=a"));
            bad.push(format!("id={id}&view=history&format={format}"));
        }
        bad.extend([
            "view=history".to_owned(),
            "view=history&type=server".to_owned(),
            format!("view=summary&id={id}"),
            "view=summary&fields=id".to_owned(),
            "view=summary&include=disks".to_owned(),
            format!("view=summary&organization_id=none,{NOWHERE}"),
            format!("id={id}&view=history&fields=id"),
            format!("id={id}&view=history&include=disks"),
        ]);
        for query in bad {
            let answer = server.get(format!("{INVENTORY}?{query}")).cookie(&acme.admin).await;
            assert_eq!(answer.status, 400, "{query}: {}", answer.json());
            answer.problem("invalid_parameter");
        }
    }

    async fn only_who_may_read_the_inventory_reads_it(server: Server) {
        let acme = server.tenant("acme").await;
        let id = add(&server, &acme, named("web-1")).await;
        let other = server.key(&acme, &["tickets:*", "search:read", "analytics:read"]).await;
        let right = server.key(&acme, &["inventory:read"]).await;
        let viewer = server.user(&acme.tenant, Role::Viewer).await;
        for query in ["", "?view=summary", "?format=csv", "?format=ndjson", &format!("?id={id}"), &format!("?id={id}&view=history")] {
            let problem = server.get(format!("{INVENTORY}{query}")).key(&other.plain).await.problem("insufficient_scope");
            assert_eq!(problem["required_scope"], "inventory:read");
            server.get(format!("{INVENTORY}{query}")).key(&right.plain).await.is(200);
            server.get(format!("{INVENTORY}{query}")).cookie(&viewer).await.is(200);
            server.head(format!("{INVENTORY}{query}")).key(&right.plain).await.is(200);
        }
        // The scope comes before everything that is wrong with the request.
        server.get(format!("{INVENTORY}?nonsense=1")).key(&other.plain).await.problem("insufficient_scope");
        server.get(TICKETS).key(&right.plain).await.problem("insufficient_scope");
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let answer = server.call(method.parse().unwrap(), format!("{INVENTORY}?id={id}")).cookie(&acme.admin).await;
            answer.problem("method_not_allowed");
            let mut allowed: Vec<&str> = answer.header("allow").split(',').map(str::trim).collect();
            allowed.sort_unstable();
            assert_eq!(allowed, ["GET", "HEAD"], "{method}");
        }
    }
}
