//! What is told of a hit: what it is, where its record is, and where the words were found.

use std::collections::BTreeSet;

use serde_json::json;
use tenant_control::features::devices::FullDevice;

use super::{called, count_software, device, hits, organization, some, text, ticket, user, workflow};
use crate::asset_inventory::software;
use crate::support::search::Indexed;
use crate::support::workflows::{approval, manual};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::id_of;

/// The field and the snippet of each place that is shown of the only hit.
async fn shown(server: &Server, tenancy: &Tenancy, q: &str) -> Vec<(String, String)> {
    let found = server.search(&tenancy.admin, q).await;
    let [hit] = hits(&found) else { panic!("one hit of {q}, not {found}") };
    let all = hit["highlights"].as_array().expect("highlights");
    all.iter().map(|one| (text(one, "field").to_owned(), text(one, "snippet").to_owned())).collect()
}

over_http! {
    async fn what_is_found_is_told_with_all_that_a_list_needs(server: Server) {
        let acme = server.tenant("acme").await;
        let fields = json!({"subject": "Printer on floor 3 is jammed", "priority": "high"});
        let made = ticket(&server, &acme, &fields, &["open"]).await;
        let _indexed = Indexed::of(&server).await;
        let mut found = server.search(&acme.admin, "printer").await;
        assert!(found["took_ms"].take().is_u64(), "how long it took");
        let hit = json!({
            "type": "ticket", "id": made["id"], "title": "Printer on floor 3 is jammed", "subtitle": "#1 · open · high",
            "organization_id": null, "score": 80,
            "highlights": [{"field": "subject", "snippet": "<em>Printer</em> on floor 3 is jammed"}],
            "url": format!("{}/api/psa/tickets?id={}", server.base_url(), id_of(&made)),
        });
        let counts = json!({"device": 0, "user": 0, "organization": 0, "ticket": 1, "vm": 0, "workflow": 0, "software": 0});
        let whole = json!({"data": [hit], "has_more": false, "next_cursor": null, "counts": counts, "took_ms": null});
        assert_eq!(found, whole);
    }

    /// A software leads to the devices that have it; one with a name that their filter would read as something else, to itself.
    async fn a_hit_leads_to_its_record(server: Server) {
        let acme = server.tenant("acme").await;
        organization(&server, &acme, "Apollo Stores", "apollo").await;
        user(&server, &acme, "Apollo Creed", "creed@hub.test").await;
        let names = ["Apollo & Sons C++", "openssl@3", "Foo, Inc. Driver"];
        let install = move |full: &mut FullDevice| full.parts.software = names.map(|name| software(name, "1")).into();
        device(&server, &acme, "apollo01", install).await;
        count_software(&server).await;
        called(&server, &acme, "Apollo is down").await;
        workflow(&server, &acme, "Apollo again", manual([approval("ask")])).await;
        let _indexed = Indexed::of(&server).await;
        let (mut found, mut followed) = (BTreeSet::new(), BTreeSet::new());
        for q in ["apollo", "type:software"] {
            for hit in hits(&server.search(&acme.admin, q).await) {
                let (kind, title) = (text(hit, "type"), text(hit, "title"));
                found.insert(kind.to_owned());
                let url = text(hit, "url");
                let target = url.strip_prefix(server.base_url()).expect("a URL of this server").to_owned();
                let read = server.get(target).cookie(&acme.admin).await.ok(200);
                let one = if read["data"].is_array() { &read["data"][0] } else { &read };
                let has_it = kind == "software" && one["hostname"] == "apollo01";
                assert!(has_it || one["id"] == hit["id"], "{hit} leads to {read}");
                followed.insert(format!("{kind} {title}"));
            }
        }
        assert_eq!(found.len(), 6, "one of each type: {found:?}");
        for expected in [
            "device apollo01", "user Apollo Creed", "organization Apollo Stores", "ticket Apollo is down",
            "workflow Apollo again", "software Apollo & Sons C++",
            "software openssl@3", "software Foo, Inc. Driver",
        ] {
            assert!(followed.contains(expected), "{expected} is not among {followed:?}");
        }
    }

    async fn a_highlight_says_where_and_can_be_put_into_html(server: Server) {
        let acme = server.tenant("acme").await;
        let fields = json!({
            "subject": "<script>alert(\"printer\")</script> & 'more'", "description": "The toner of it\nis low.",
            "requester": {"name": "Sam <em>Toner</em>", "email": "sam@hub.test"}, "tags": ["toner", "toner 2"],
            "external_id": "JIRA-77",
        });
        ticket(&server, &acme, &fields, &[]).await;
        device(&server, &acme, "gutenberg", |full| full.device.model = some("Press 1450")).await;
        let _indexed = Indexed::of(&server).await;
        let title = server.titles(&acme.admin, "printer").await;
        assert_eq!(title, ["<script>alert(\"printer\")</script> & 'more'"], "a title is text");
        let html = "&lt;script&gt;alert(&quot;<em>printer</em>&quot;)&lt;/script&gt; &amp; &#39;more&#39;";
        for q in ["printer", "print", "pirnter", "\"printer\"", "PRINTER type:ticket"] {
            assert_eq!(shown(&server, &acme, q).await, [("subject".to_owned(), html.to_owned())], "{q}");
        }
        let toner = [
            ("requester.name", "Sam &lt;em&gt;<em>Toner</em>&lt;/em&gt;"),
            ("description", "The <em>toner</em> of it is low."),
            ("tags", "<em>toner</em>"),
        ];
        let toner = toner.map(|(field, snippet)| (field.to_owned(), snippet.to_owned()));
        assert_eq!(shown(&server, &acme, "toner").await, toner, "three at most");
        for (q, field, snippet) in [
            ("jira-77", "external_id", "<em>JIRA</em>-<em>77</em>"),
            ("gutenburg", "hostname", "<em>gutenberg</em>"),
            ("press", "model", "<em>Press</em> 1450"),
        ] {
            assert_eq!(shown(&server, &acme, q).await, [(field.to_owned(), snippet.to_owned())], "{q}");
        }
        for q in ["#1", "type:ticket", "host:gutenberg"] {
            assert!(shown(&server, &acme, q).await.is_empty(), "{q}: nothing is looked for by its words");
        }
    }

    async fn of_a_long_text_the_part_around_the_word_is_shown(server: Server) {
        let acme = server.tenant("acme").await;
        let filler = "lorem ipsum ".repeat(100);
        let fields = json!({"subject": "Long", "description": format!("{filler}needle {filler}")});
        ticket(&server, &acme, &fields, &[]).await;
        let _indexed = Indexed::of(&server).await;
        let shown = shown(&server, &acme, "needle").await;
        let [(field, snippet)] = shown.as_slice() else { panic!("{shown:?}") };
        assert_eq!(field, "description");
        assert!(snippet.starts_with('…') && snippet.ends_with('…') && snippet.contains("<em>needle</em>"), "{snippet}");
        assert!(snippet.chars().count() < 200, "{snippet}");
    }
}
