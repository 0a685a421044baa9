//! The reference: all that the document says, on pages for people.

use super::documentation::{REFERENCE, open_to_readers, raw};
use super::*;

/// The page of an operation.
async fn page_of(server: &Server, operation: &Value) -> String {
    let id = operation["operationId"].as_str().unwrap();
    html(server.get(format!("{REFERENCE}{id}/")).await.is(200))
}

/// The body in the command of a page.
fn sent(page: &str) -> Value {
    let command = page.split("<code>curl ").nth(1).unwrap().split("</code>").next().unwrap();
    let body = command.split_once("-d '").unwrap().1.strip_suffix('\'').unwrap();
    serde_json::from_str(&body.replace("'\\''", "'")).unwrap()
}

over_http! {
    async fn every_operation_is_listed_and_has_a_page(setup: Setup) {
        let server = open_to_readers(setup).await;
        let list = html(&server.get(REFERENCE).await);
        let operations = server.contract.operations();
        assert!(operations.len() > 30);
        for (path, method, operation) in operations {
            let (id, summary) = (operation["operationId"].as_str().unwrap(), operation["summary"].as_str().unwrap());
            let route = format!("<code>{} {path}</code>", method.to_uppercase());
            let entry = format!("<li id=\"{id}\"><a href=\"{REFERENCE}{id}/\">{summary}</a>\n{route}</li>");
            assert!(list.contains(&entry), "{entry}");

            let page = page_of(&server, operation).await;
            assert!(page.contains(&format!("<h1 id=\"{id}\">{summary}</h1>")) && page.contains(&route), "{id}");
            assert!(page.contains(&format!("\"{}{path}", server.base_url())), "{id} has a command for this server");
            for parameter in operation["parameters"].as_array().unwrap() {
                let name = parameter["name"].as_str().unwrap();
                assert!(page.contains(&format!("<th scope=\"row\" role=\"rowheader\"><code>{name}</code>")), "{name} of {id}");
            }
            for status in operation["responses"].as_object().unwrap().keys() {
                assert!(page.contains(&format!("<th scope=\"row\" role=\"rowheader\">{status} ")), "{status} of {id}");
            }
            for way in operation["security"].as_array().unwrap().iter().flat_map(|way| way.as_object().unwrap().values()) {
                for scope in way.as_array().unwrap().iter().map(|scope| scope.as_str().unwrap()) {
                    assert!(page.contains(&format!("<code>{scope}</code>")), "{scope} of {id}");
                }
            }
        }
    }

    async fn every_reference_of_the_document_is_resolved(setup: Setup) {
        let server = open_to_readers(setup).await;
        for (_, _, operation) in server.contract.operations() {
            let page = page_of(&server, operation).await;
            assert!(!page.contains("$ref") && !page.contains("#/components/"), "{}", operation["operationId"]);
            let has_body = operation["requestBody"].is_object();
            assert_eq!(page.contains("<caption id=\"body-1\">"), has_body, "{}", operation["operationId"]);
        }
    }

    async fn the_page_of_an_operation_says_what_the_document_says(server: Server) {
        let page = html(&server.get("/documentation/api/create_ticket/").await);
        for part in [
            "<title>Create a ticket – Tenant Control</title>",
            "<code>POST /api/psa/tickets</code>",
            "Needs an API key or a session with the scope <code>tickets:write</code>.",
            "<code>Idempotency-Key</code><span class=\"hint\">optional</span></th><td role=\"cell\">header</td><td role=\"cell\">string</td>",
            "<span class=\"hint\">1 to 255 characters</span>",
            "<code>subject</code><span class=\"hint\">required</span></th><td role=\"cell\">string</td>",
            "<span class=\"hint\">one of <code>low</code> ",
            // Within the requester, and shown so.
            "<th scope=\"row\" role=\"rowheader\" class=\"depth-1\"><code>email</code><span class=\"unseen\"> of requester</span>",
            "<td role=\"cell\">array of string</td>",
            "<span class=\"hint\">each 1 to 200 characters</span>",
            "<th scope=\"row\" role=\"rowheader\">201 Created</th><td role=\"cell\" class=\"purpose\"><p>Created.</p>",
            "<a href=\"/documentation/errors/#invalid_fields\"><code>invalid_fields</code></a>: ",
            "<h3>201 application/json</h3>",
            "<code>sla_state</code>",
            "\"subject\": \"Printer on fire\"",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        // In the order of the document, which is the order in which fields are best read.
        assert!(page.find("<code>subject</code>").unwrap() < page.find("<code>description</code>").unwrap(), "{page}");
        let others = page.split("aria-labelledby=\"more\"").nth(1).unwrap();
        assert!(others.contains("<a href=\"/documentation/api/create_ticket/\" aria-current=\"page\">"), "{others}");
    }

    async fn who_may_call_is_said_of_each_kind(server: Server) {
        for (id, said, credential) in [
            ("begin_sso", "Needs no credential.", None),
            ("delete_session", "Needs a session; an API key cannot do it.", Some("-H \"Cookie: $COOKIE\"")),
            ("get_session", "Needs an API key or a session, with any scopes.", Some("-H \"Authorization: Bearer $KEY\"")),
        ] {
            let page = html(&server.get(format!("{REFERENCE}{id}/")).await);
            assert!(page.contains(said), "{page}");
            let sent = ["-H \"Cookie:", "-H \"Authorization:"].iter().any(|header| page.contains(header));
            assert_eq!(sent, credential.is_some(), "{page}");
            assert!(credential.is_none_or(|header| page.contains(header)), "{page}");
        }
    }

    async fn the_example_of_a_call_works(server: Server) {
        let tenancy = server.tenant("acme").await;
        let key = server.key(&tenancy, &["*"]).await.plain;
        for (id, path) in [
            ("create_ticket", "/api/psa/tickets"),
            ("create_organization", "/api/admin/organizations"),
            ("create_user", "/api/admin/users"),
        ] {
            let page = html(&server.get(format!("{REFERENCE}{id}/")).await);
            server.post(path).key(&key).json(&sent(&page)).await.is(201);
        }
        let change = html(&server.get("/documentation/api/change_ticket/").await);
        assert!(change.contains(&format!("curl -s -X PATCH \"{}/api/psa/tickets?id=$ID\"", server.base_url())), "{change}");
        let search = html(&server.get("/documentation/api/search/").await);
        assert!(search.contains("--data-urlencode \"q=$Q\""), "{search}");
    }

    async fn every_kind_of_event_is_there_with_an_example(server: Server) {
        let page = raw(&server.get("/documentation/api/events/").await);
        let kinds = server.contract.document["webhooks"].as_object().unwrap();
        assert!(!kinds.is_empty());
        for (name, item) in kinds {
            let id = item["post"]["operationId"].as_str().unwrap();
            let entry = entry(&page, id);
            assert!(entry.contains(&format!("<code>{name}</code>")), "{entry}");
            let example = unescape(&entry);
            let example = example.split("tabindex=\"0\"><code>").nth(1).unwrap().split("</code>").next().unwrap();
            let example: Value = serde_json::from_str(example).unwrap();
            assert_eq!(example, item["post"]["requestBody"]["content"]["application/json"]["example"], "{name}");
        }
        for header in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            assert!(page.contains(&format!("<code>{header}</code>")), "{header}");
        }
    }
}
