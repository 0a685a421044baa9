//! The document: committed, complete, and true in its examples.

mod clients;
mod refusals;

use std::collections::HashSet;
use std::path::Path;

use reqwest::Method;
use serde_json::Value;

use crate::support::contract::Contract;
use crate::support::{Server, over_http};

const DOCUMENT: &str = "/api/openapi.json";

/// Where the published document is committed, so that people review its changes.
fn committed() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi.json")
}

/// The document does not depend on the engine, so most tests here ask one.
async fn document() -> (Server, Contract) {
    let server = Server::sqlite().await;
    let document = server.get(DOCUMENT).await;
    let contract = Contract::new(std::str::from_utf8(&document.is(200).body).unwrap());
    (server, contract)
}

over_http! {
    async fn the_document_is_the_committed_one(server: Server) {
        let served = server.get(DOCUMENT).await;
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(committed(), &served.is(200).body).unwrap();
        }
        let committed = std::fs::read(committed()).unwrap_or_default();
        let same = committed == served.is(200).body;
        assert!(same, "openapi.json is not what the server publishes. Run UPDATE_OPENAPI=1 ./test openapi, and review its diff");
    }

    async fn the_document_can_be_cached(server: Server) {
        let first = server.get(DOCUMENT).await;
        let etag = first.is(200).header("etag").to_owned();
        // Weak, because compressed or not it is the same document in other bytes.
        let opaque = etag.strip_prefix("W/").expect("a weak tag").to_owned();
        assert!(opaque.starts_with('"') && opaque.ends_with('"'), "{etag}");
        assert!(!first.header("cache-control").contains("no-store"));
        let packed = server.get(DOCUMENT).header("accept-encoding", "gzip").await;
        assert_eq!((packed.is(200).header("content-encoding"), packed.header("etag")), ("gzip", etag.as_str()));
        for known in [etag.clone(), opaque.clone(), format!("\"x\", {etag}"), format!("\"x\",{opaque}"), "*".to_owned()] {
            for accepted in ["identity", "gzip"] {
                for method in [Method::GET, Method::HEAD] {
                    let call = server.call(method, DOCUMENT).header("accept-encoding", accepted);
                    let again = call.header("if-none-match", &known).await;
                    assert_eq!((again.is(304).header("etag"), again.body.len()), (etag.as_str(), 0), "{known}");
                    for header in ["vary", "cache-control"] {
                        assert_eq!(again.header(header), first.header(header), "{header}");
                    }
                    assert_eq!(again.header("content-length"), "", "0 is not the length of what GET would give");
                }
            }
        }
        assert_eq!(first.header("vary"), "accept-encoding");
        server.get(DOCUMENT).header("if-none-match", "\"x\"").await.is(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_openapi_3_1() {
    let (_server, contract) = document().await;
    assert!(contract.document["openapi"].as_str().unwrap().starts_with("3.1"));
    for field in ["title", "version", "description"] {
        assert!(contract.document["info"][field].as_str().is_some_and(|text| !text.is_empty()), "info.{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_says_what_it_is_and_who_may_call_it() {
    let (_server, contract) = document().await;
    let tags: HashSet<&str> =
        contract.document["tags"].as_array().unwrap().iter().filter_map(|tag| tag["name"].as_str()).collect();
    let mut ids = HashSet::new();
    for (path, method, operation) in contract.operations() {
        let at = format!("{method} {path}");
        assert!(ids.insert(operation["operationId"].as_str().expect(&at)), "the operationId of {at} is not unique");
        assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{at} has no summary");
        let own: Vec<&str> = operation["tags"].as_array().expect(&at).iter().filter_map(Value::as_str).collect();
        assert!(!own.is_empty() && own.iter().all(|tag| tags.contains(tag)), "the tags of {at}: {own:?}");
        let security = operation["security"].as_array();
        assert!(security.is_some_and(|any| !any.is_empty()), "{at} says neither who may call it nor that all may");
        let schemes = contract.document["components"]["securitySchemes"].as_object().unwrap();
        for scheme in security.unwrap().iter().flat_map(|one| one.as_object().unwrap().keys()) {
            assert!(schemes.contains_key(scheme), "{at}: {scheme}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_body_and_every_success_has_an_example_that_fits() {
    let (_server, contract) = document().await;
    for (path, method, operation) in contract.operations() {
        let mut contents = vec![(format!("the body of {method} {path}"), &operation["requestBody"]["content"])];
        for (status, response) in operation["responses"].as_object().unwrap() {
            if status.starts_with('2') {
                contents.push((format!("{status} of {method} {path}"), &contract.resolve(response)["content"]));
            }
        }
        for (at, content) in contents {
            for (kind, media) in content.as_object().into_iter().flatten() {
                let at = format!("{at} as {kind}");
                let examples = examples(&contract, media);
                assert!(!examples.is_empty(), "{at} has no example");
                for (schema, example) in examples {
                    let errors = contract.errors(schema, example);
                    assert!(errors.is_empty(), "the example of {at} does not fit: {errors:#?}");
                }
            }
        }
    }
}

/// The examples of a media type with the schema each belongs to: its own, or those of the schema it refers to.
fn examples<'a>(contract: &'a Contract, media: &'a Value) -> Vec<(&'a Value, &'a Value)> {
    let schema = &media["schema"];
    let named = media["examples"].as_object().into_iter().flat_map(|all| all.values().map(|one| &one["value"]));
    let own: Vec<&Value> = named.chain(media.get("example")).collect();
    if own.is_empty() { of_schema(contract, schema) } else { own.into_iter().map(|one| (schema, one)).collect() }
}

fn of_schema<'a>(contract: &'a Contract, schema: &'a Value) -> Vec<(&'a Value, &'a Value)> {
    let resolved = contract.resolve(schema);
    let own: Vec<&Value> =
        resolved.get("example").into_iter().chain(resolved["examples"].as_array().into_iter().flatten()).collect();
    if !own.is_empty() {
        return own.into_iter().map(|one| (schema, one)).collect();
    }
    let choices = resolved["oneOf"].as_array().into_iter().chain(resolved["anyOf"].as_array()).flatten();
    choices.flat_map(|choice| of_schema(contract, choice)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_schema_example_fits_its_schema() {
    let (_server, contract) = document().await;
    for (name, schema) in contract.document["components"]["schemas"].as_object().unwrap() {
        for (schema, example) in of_schema(&contract, schema) {
            let errors = contract.errors(schema, example);
            assert!(errors.is_empty(), "the example of {name} does not fit: {errors:#?}");
        }
        for (field, of_field) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(example) = of_field.get("example") {
                let errors = contract.errors(of_field, example);
                assert!(errors.is_empty(), "the example of {name}.{field} does not fit: {errors:#?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reference_leads_somewhere_and_every_component_is_used() {
    let (_server, contract) = document().await;
    let mut references = HashSet::new();
    collect(&contract.document, &mut references);
    for reference in &references {
        assert!(contract.document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
    }
    for section in ["schemas", "responses"] {
        for name in contract.document["components"][section].as_object().unwrap().keys() {
            let reference = format!("#/components/{section}/{name}");
            assert!(references.contains(&reference), "{reference} is used by nothing");
        }
    }
}

fn collect(value: &Value, references: &mut HashSet<String>) {
    match value {
        Value::Object(object) => {
            references.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}

/// The router cannot be asked what it serves, so the sources are read: the document has as many operations as features
/// mount handlers, and nothing under /api/ is served beside it but the pages.
#[tokio::test(flavor = "multi_thread")]
async fn the_document_describes_every_route_under_api_but_the_pages_and_nothing_else() {
    let (server, contract) = document().await;
    let sources = crate::tidy::sources(crate::tidy::FEATURES);
    let table: String = sources.iter().map(|(_, text)| crate::tidy::code(text)).collect();
    let lists = table.split("routes!(").skip(1).chain(table.split("operations!(").skip(1));
    let handlers: usize = lists.map(|rest| rest.split(')').next().unwrap().split(',').count()).sum();
    assert_eq!(contract.operations().len(), handlers, "handlers that are mounted and operations in the document");
    let undocumented = |call: &str| -> Vec<String> {
        let paths = table.split(call).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        paths.filter(|path| path.starts_with("/api/")).collect()
    };
    assert_eq!(undocumented(".add_page(\""), ["/api/rate-limits/"], "pages for people under /api/");
    assert!(undocumented(".add_charging_page(\"").is_empty(), "pages for people under /api/");
    assert!(undocumented(".add_uncharged_route(\"").is_empty(), "nothing under /api/ is free");
    for (path, method, _) in contract.operations() {
        let answer = server.call(method.to_uppercase().parse().unwrap(), path).await;
        assert!(path.starts_with("/api/") && ![404, 405].contains(&answer.status), "{method} {path} is not served");
    }
}
