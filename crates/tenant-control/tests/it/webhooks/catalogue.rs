//! GET of the catalogue: what can be subscribed to, and that what is sent is what it says.

use jsonschema::Validator;

use super::create::{create, input_with, one};
use super::*;
use crate::support::contract::references;
use crate::support::receiver::Behaviour;

/// Every kind that the contract knows, those included that nothing emits yet.
const KINDS: &str = "ticket.created ticket.updated ticket.commented workflow.run.started workflow.run.succeeded \
    workflow.run.failed workflow.run.cancelled workflow.approval.requested device.created device.updated device.offline \
    device.deleted cloud.provider.verified cloud.provider.failed vm.provisioned vm.failed vm.state_changed \
    backup.config.updated backup.job.failed backup.posture.changed api_key.created api_key.rotated api_key.revoked \
    api_key.expiring organization.created organization.updated organization.deleted user.created user.updated \
    user.disabled webhook.auto_disabled webhook.test custom.*";

/// Kinds that tenants name themselves are one entry.
const CUSTOM: &str = "custom.*";

async fn catalogue(server: &Server, tenancy: &Tenancy) -> Vec<Value> {
    let page = server.get(format!("{EVENTS}?limit=200")).cookie(&tenancy.admin).await.ok(200);
    assert_eq!((&page["has_more"], &page["next_cursor"]), (&json!(false), &Value::Null));
    page["data"].as_array().unwrap().clone()
}

fn kind(entry: &Value) -> &str {
    entry["type"].as_str().expect("a type")
}

fn family(kind: &str) -> &str {
    kind.split('.').next().unwrap()
}

pub fn validator(schema: &Value) -> Validator {
    let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012).should_validate_formats(true);
    options.build(schema).unwrap_or_else(|error| panic!("{error} in {schema}"))
}

#[track_caller]
pub fn fits(validator: &Validator, body: &Value) {
    let errors: Vec<String> =
        validator.iter_errors(body).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{body}");
}

over_http! {
    async fn every_answer_fits_one_choice_of_the_document_and_no_other(setup: Setup) {
        let mut setup = setup;
        setup.settings.news_wait_max = std::time::Duration::ZERO;
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let empty = server.get(format!("{EVENTS}?view=feed")).cookie(&acme.admin).await.ok(200);
        assert_eq!(empty["data"], json!([]));
        server.key(&acme, &["*"]).await;
        let feed = server.get(format!("{EVENTS}?view=feed")).cookie(&acme.admin).await.ok(200);
        let id = feed["data"][0]["id"].as_str().unwrap();
        let one = server.get(format!("{EVENTS}?id={id}")).cookie(&acme.admin).await.ok(200);
        let kinds = server.get(format!("{EVENTS}?limit=1")).cookie(&acme.admin).await.ok(200);
        let answer = &server.contract.document["paths"][EVENTS]["get"]["responses"]["200"];
        let choices = answer["content"]["application/json"]["schema"]["oneOf"].as_array().expect("choices");
        for body in [empty, feed, one, kinds] {
            let fitting = choices.iter().filter(|choice| server.contract.errors(choice, &body).is_empty()).count();
            assert_eq!(fitting, 1, "{body}");
        }
    }

    async fn the_catalogue_lists_exactly_what_can_be_subscribed_to(server: Server) {
        let acme = server.tenant("acme").await;
        let listed = catalogue(&server, &acme).await;
        let listed: Vec<&str> = listed.iter().map(kind).collect();
        let known: Vec<&str> = KINDS.split_whitespace().collect();
        assert!(listed.iter().all(|kind| known.contains(kind)), "{listed:?}");
        for first_day in ["ticket.created", "ticket.updated", "webhook.test"] {
            assert!(listed.contains(&first_day), "{first_day}");
        }
        let mut unique = listed.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), listed.len(), "each once");
        for kind in known {
            for (pattern, offered) in [
                (kind.to_owned(), listed.contains(&kind)),
                (format!("{}.*", family(kind)), listed.iter().any(|one| family(one) == family(kind))),
            ] {
                let answer = create(&server, &acme, &input_with("events", json!([pattern]))).await;
                if offered {
                    let made = answer.ok(201);
                    server.delete(one(&made)).cookie(&acme.admin).await.is(204);
                } else {
                    assert_eq!(answer.pointers(), ["/events/0"], "{pattern}");
                }
            }
        }
        // The document's own list of words is the same one.
        let input = &server.contract.document["components"]["schemas"]["WebhookInput"]["properties"]["events"]["items"];
        let words: Vec<&str> =
            input["anyOf"][0]["enum"].as_array().expect("an enum").iter().map(|word| word.as_str().unwrap()).collect();
        assert!(words.contains(&CUSTOM) && listed.contains(&CUSTOM), "{words:?}");
        let named: Vec<&str> = words.into_iter().filter(|word| !word.ends_with('*')).collect();
        assert_eq!(named, listed.into_iter().filter(|kind| *kind != CUSTOM).collect::<Vec<_>>());
    }

    async fn each_example_fits_its_schema_and_the_schema_stands_alone(server: Server) {
        let acme = server.tenant("acme").await;
        for entry in catalogue(&server, &acme).await {
            let (schema, example) = (&entry["schema"], &entry["example"]);
            assert!(entry["description"].as_str().is_some_and(|text| !text.is_empty()), "{entry}");
            assert_eq!(entry.as_object().unwrap().len(), 4, "type, description, schema, example: {entry}");
            for reference in references(schema) {
                let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads outside"));
                assert!(schema.pointer(pointer).is_some(), "{reference} leads nowhere in {}", kind(&entry));
            }
            let validator = validator(schema);
            fits(&validator, example);
            let begins = kind(&entry).trim_end_matches('*');
            assert!(kind(example) == kind(&entry) || kind(&entry) == CUSTOM && kind(example).starts_with(begins), "{entry}");
            // The schema says something: every part of a delivery is there and of its kind.
            for field in ["id", "type", "timestamp", "tenant_id", "sequence", "data"] {
                let mut without = example.clone();
                without.as_object_mut().unwrap().remove(field);
                assert!(!validator.is_valid(&without), "{} without {field}", kind(&entry));
                let mut wrong = example.clone();
                wrong[field] = json!(["wrong"]);
                assert!(!validator.is_valid(&wrong), "{} with a wrong {field}", kind(&entry));
            }
            let mut other = example.clone();
            other["type"] = json!("ticket.nonsense");
            assert!(!validator.is_valid(&other), "{} as another kind", kind(&entry));
            let mut hollow = example.clone();
            hollow["data"] = json!({});
            let is_free = kind(&entry) == CUSTOM;
            assert_eq!(validator.is_valid(&hollow), is_free, "{} without a record", kind(&entry));
        }
    }

    async fn the_catalogue_comes_in_pages(server: Server) {
        let acme = server.tenant("acme").await;
        let whole = catalogue(&server, &acme).await;
        assert_eq!(server.get(EVENTS).cookie(&acme.admin).await.ok(200)["data"], json!(whole));
        for limit in [1, 3, whole.len(), 200] {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = server.get(format!("{EVENTS}?limit={limit}{cursor}")).cookie(&acme.admin).await.ok(200);
                seen.extend(page["data"].as_array().unwrap().clone());
                assert_eq!(page["has_more"], page["next_cursor"].is_string());
                let Some(next) = page["next_cursor"].as_str() else { break };
                cursor = format!("&cursor={next}");
            }
            assert_eq!(seen, whole, "pages of {limit}");
        }
        let cursor = server.get(format!("{EVENTS}?limit=1")).cookie(&acme.admin).await.ok(200)["next_cursor"]
            .as_str()
            .unwrap()
            .to_owned();
        for query in [format!("cursor={cursor}x"), "cursor=x".to_owned(), format!("view=feed&cursor={cursor}")] {
            server.get(format!("{EVENTS}?{query}")).cookie(&acme.admin).await.problem("invalid_cursor");
        }
        for (query, code) in [
            ("view=nonsense", "invalid_parameter"),
            ("view=", "invalid_parameter"),
            ("limit=0", "invalid_parameter"),
            ("type=ticket.created", "unknown_parameter"),
            ("types=ticket.created", "invalid_parameter"),
            ("id=evt_x", "not_found"),
        ] {
            server.get(format!("{EVENTS}?{query}")).cookie(&acme.admin).await.problem(code);
        }
    }

    async fn the_document_describes_the_same_deliveries(server: Server) {
        let acme = server.tenant("acme").await;
        let listed = catalogue(&server, &acme).await;
        let documented = server.contract.document["webhooks"].as_object().expect("webhooks");
        let mut names: Vec<&str> = documented.keys().map(String::as_str).collect();
        let mut kinds: Vec<&str> = listed.iter().map(kind).collect();
        names.sort_unstable();
        kinds.sort_unstable();
        assert_eq!(names, kinds);
        for entry in &listed {
            let post = &documented[kind(entry)]["post"];
            let content = &post["requestBody"]["content"]["application/json"];
            assert_eq!(
                server.contract.errors(&content["schema"], &entry["example"]),
                Vec::<String>::new(),
                "{}",
                kind(entry)
            );
            let mut other = entry["example"].clone();
            other["type"] = json!("ticket.nonsense");
            assert!(!server.contract.errors(&content["schema"], &other).is_empty(), "{}", kind(entry));
            // Every delivery has all three.
            let headers = post["parameters"].as_array().expect("parameters");
            for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
                let header = headers.iter().find(|one| one["name"] == name && one["in"] == "header");
                assert_eq!(header.map(|one| &one["required"]), Some(&json!(true)), "{name} of {}", kind(entry));
            }
        }
    }

    async fn what_is_sent_fits_its_schema_and_holds_the_record(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let receiver = Receiver::start().await;
        receiver.on("/gone", [Behaviour::Answer(410)]);
        // What several of its words match comes once.
        let hook = endpoint(&server, &acme, &receiver.url("/hook"), &["*", "api_key.*", "api_key.created"]).await;
        let gone = endpoint(&server, &acme, &receiver.url("/gone"), &["ticket.*"]).await;
        let key = server.key_with(&acme, &json!({"name": "Key", "scopes": ["tickets:read"], "expires_days": 7})).await;
        let record = async || server.get(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.ok(200);
        let mut records = vec![("api_key.created", record().await)];
        tenant_control::features::api_keys::jobs::announce_expiry(&server.app).await.unwrap();
        records.push(("api_key.expiring", record().await));
        server.put(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).json(&json!({"rotate": {}})).await.is(200);
        records.push(("api_key.rotated", record().await));
        server.delete(format!("{KEYS}?id={}", key.id)).cookie(&acme.admin).await.is(204);
        records.push(("api_key.revoked", record().await));
        for webhook in [&hook, &gone] {
            let test = json!({"action": "test", "webhook_id": webhook["id"]});
            server.post(DELIVERIES).cookie(&acme.admin).json(&test).await.is(202);
        }
        // Once for what is due, and once for what comes of it.
        server.sender.run_due().await.unwrap();
        server.sender.run_due().await.unwrap();
        let disabled = server.get(one(&gone)).cookie(&acme.admin).await.ok(200);
        assert_eq!((&disabled["status"], &disabled["disabled_reason"]), (&json!("auto_disabled"), &json!("gone")));
        records.push(("webhook.auto_disabled", disabled));

        let bodies: Vec<Value> = receiver.received_on("/hook").iter().map(|got| got.json()).collect();
        let catalogue = catalogue(&server, &acme).await;
        for body in &bodies {
            let entry = catalogue.iter().find(|entry| entry["type"] == body["type"]).expect("a kind of the catalogue");
            fits(&validator(&entry["schema"]), body);
            assert_eq!(body.as_object().unwrap().len(), 6, "{body}");
            assert_eq!(
                (&body["tenant_id"], &body["timestamp"]),
                (&json!(acme.tenant.id.to_string()), &json!(server.now().to_string()))
            );
            let documented = &server.contract.document["webhooks"][kind(body)]["post"]["requestBody"]["content"]["application/json"]
                ["schema"];
            assert_eq!(server.contract.errors(documented, body), Vec::<String>::new());
        }
        let mut sent: Vec<&str> = bodies.iter().map(kind).collect();
        sent.sort_unstable();
        let wanted = [
            "api_key.created",
            "api_key.expiring",
            "api_key.revoked",
            "api_key.rotated",
            "webhook.auto_disabled",
            "webhook.test",
        ];
        assert_eq!(sent, wanted, "each once, and of the tests only its own");
        for (name, record) in records {
            let body = bodies.iter().find(|body| body["type"] == name).expect(name);
            assert_eq!(body["data"], record, "{name} holds the record as the API shows it");
        }
        let test = bodies.iter().find(|body| body["type"] == "webhook.test").unwrap();
        assert_eq!(test["data"]["id"], hook["id"]);
        // In the order of commit, whatever order they came in.
        let mut sequences: Vec<(i64, &str)> =
            bodies.iter().map(|body| (body["sequence"].as_i64().unwrap(), kind(body))).collect();
        sequences.sort_unstable();
        let order: Vec<&str> = sequences.iter().map(|(_, kind)| *kind).collect();
        assert_eq!(
            order,
            [
                "api_key.created",
                "api_key.expiring",
                "api_key.rotated",
                "api_key.revoked",
                "webhook.test",
                "webhook.auto_disabled"
            ]
        );
        assert!(sequences.windows(2).all(|pair| pair[0].0 < pair[1].0), "{sequences:?}");
    }
}
