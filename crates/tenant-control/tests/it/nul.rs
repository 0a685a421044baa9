//! U+0000, which PostgreSQL stores in no text: whatever door it comes to, it is refused there on both databases.

use kernel::base::SECOND_MS;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::contract::Contract;
use crate::support::devices::{Agent, Body, FUSION, GLPI, report};
use crate::support::over_http;

/// Every way of putting the character into one of the texts of a value, or into the name of a member.
fn spoilt(value: &Value) -> Vec<Value> {
    match value {
        Value::String(text) => vec![json!(format!("{text}\0")), json!("\0")],
        Value::Array(items) => {
            let each = items.iter().enumerate().flat_map(|(index, item)| {
                spoilt(item).into_iter().map(move |bad| {
                    let mut items = items.clone();
                    items[index] = bad;
                    Value::Array(items)
                })
            });
            each.collect()
        }
        Value::Object(members) => {
            let each = members.iter().flat_map(|(name, member)| {
                let values = spoilt(member).into_iter().map(move |bad| {
                    let mut members = members.clone();
                    members.insert(name.clone(), bad);
                    Value::Object(members)
                });
                let mut renamed = members.clone();
                renamed.insert(format!("{name}\0"), member.clone());
                values.chain([Value::Object(renamed)])
            });
            each.collect()
        }
        _ => Vec::new(),
    }
}

/// The examples of what an operation takes.
fn examples(contract: &Contract, operation: &Value) -> Vec<Value> {
    let schema = contract.resolve(&operation["requestBody"]["content"]["application/json"]["schema"]);
    let one_of = schema["oneOf"].as_array().into_iter().flatten().map(|schema| contract.resolve(schema));
    let all = std::iter::once(schema).chain(one_of);
    all.flat_map(|schema| {
        schema["examples"].as_array().cloned().unwrap_or_default().into_iter().chain(schema.get("example").cloned())
    })
    .collect()
}

fn method(name: &str) -> Method {
    name.to_uppercase().parse().unwrap()
}

over_http! {
    async fn in_any_parameter_it_is_a_bad_request(server: Server) {
        let acme = server.tenant_of_operator("acme").await;
        let mut asked = 0;
        for (path, verb, operation) in server.contract.operations() {
            for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "query") {
                let name = parameter["name"].as_str().unwrap();
                for query in [format!("{name}=%00"), format!("{name}=a%00b"), format!("{name}%00=1")] {
                    let answer = server.call(method(verb), format!("{path}?{query}")).cookie(&acme.admin).await;
                    answer.problem("invalid_parameter");
                    asked += 1;
                }
            }
        }
        assert!(asked > 100, "{asked}");
        // Each of them is a read or a write of one minute's budget.
        server.advance(60 * SECOND_MS);
        server.get("/api/psa/tickets?tag=printer").cookie(&acme.admin).await.is(200);
    }

    async fn in_any_field_of_a_body_it_is_refused_or_kept_as_json(server: Server) {
        let acme = server.tenant("acme").await;
        let mut asked = 0;
        for (path, verb, operation) in server.contract.operations() {
            for body in examples(&server.contract, operation).iter().flat_map(spoilt) {
                let target = if verb == "post" { path.to_owned() } else { format!("{path}?id=x") };
                let answer = server.call(method(verb), target).cookie(&acme.admin).json(&body).await;
                assert!(answer.status < 500, "{verb} {path} {body}: {}", answer.status);
                asked += 1;
                if asked % 100 == 0 {
                    server.advance(60 * SECOND_MS);
                }
            }
        }
        assert!(asked > 100, "{asked}");
    }

    async fn in_forms_callbacks_and_reports_it_does_no_harm(server: Server) {
        let acme = server.tenant("acme").await;
        let form = |fields: &'static str| {
            server.post("/signin").header("content-type", "application/x-www-form-urlencoded").body(fields)
        };
        for fields in ["email=ann%40acme.test%00", "email=%00", "email=a%40b.test&redirect_to=%2F%00", "%00=1"] {
            assert!((400..500).contains(&form(fields).await.status), "{fields}");
        }
        for query in ["state=%00&code=x", "state=x&code=%00", "error=%00&state=x", "%00=%00"] {
            let answer = server.get(format!("/internal/auth/sso/callback?{query}")).await;
            assert!((400..500).contains(&answer.status), "{query}: {}", answer.status);
        }
        let sso = server.post("/api/auth/sso").json(&json!({"domain": "acme.test\0", "redirect_to": "/\0"})).await;
        sso.problem("invalid_fields");
        let key = server.ingest_key(&acme).await;
        let mut asked = 0;
        for body in spoilt(&Agent::named("printer-1").json()) {
            let answer = report(&server, &key, &Body::new(GLPI, body.to_string())).await;
            assert!(answer.status < 500, "{body}: {}", answer.status);
            asked += 1;
            server.advance(SECOND_MS);
        }
        assert!(asked > 20, "{asked}");
        let xml = String::from_utf8(Agent::named("printer-2").fusion().plain).unwrap();
        for bad in ["&#0;", "&#x0;", "\0"] {
            let answer = report(&server, &key, &Body::new(FUSION, xml.replace("printer-2", bad))).await;
            assert!(answer.status < 500, "{bad:?}: {}", answer.status);
        }
    }
}
