//! Texts of a cloud that nobody would write: they are kept short and clean, and hold nothing up.

use super::*;

/// The end of a text in C, colours of a terminal, text that runs backwards, and lines that are none.
const HOSTILE: &str = "a\u{0}b\u{1b}[31mc\u{7}\u{202e}d\u{2066}e\u{2069}\u{2028}f\r\n\tg\u{9b}";
/// The longest text that is kept of a cloud: the value of a tag.
const CHARS_MAX: usize = 1_024;

fn assert_clean(value: &Value, what: &str) {
    match value {
        Value::String(text) => {
            let is_foul = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            assert!(!text.contains(is_foul), "{what}: {text:?}");
            assert!(text.chars().count() <= CHARS_MAX, "{what}: {} characters", text.chars().count());
        }
        Value::Array(items) => items.iter().for_each(|item| assert_clean(item, what)),
        Value::Object(fields) => {
            for (key, field) in fields {
                assert_clean(&json!(key), what);
                assert_clean(field, &format!("{what} {key}"));
            }
        }
        _ => {}
    }
}

fn long() -> String {
    format!("{HOSTILE}{}", "x".repeat(50_000))
}

/// Many tags, long and foul, as each cloud has them.
fn hostile_tags(stub: &CloudStub) -> Value {
    let tags: Vec<(String, String)> =
        (0..300).map(|nth| (format!("t{nth}{HOSTILE}"), if nth == 0 { long() } else { HOSTILE.to_owned() })).collect();
    if stub.kind() == "hetzner" {
        Value::Object(tags.into_iter().map(|(key, value)| (key, json!(value))).collect())
    } else {
        tags.into_iter().map(|(key, value)| format!("{key}:{value}")).collect()
    }
}

over_http! {
    async fn what_a_cloud_says_of_a_machine_is_kept_short_and_clean(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let (first, hostile) = (stub.add("acme", "first"), stub.add("acme", &long()));
            stub.change(hostile, |machine| {
                for text in [&mut machine.zone, &mut machine.size, &mut machine.image, &mut machine.state, &mut machine.ip] {
                    *text = long();
                }
                machine.tags = hostile_tags(stub);
            });
            let nameless = stub.add("acme", "\u{0}\u{200b} \u{202e}");
            let last = stub.add("acme", "last");
            let provider = server.connect(&acme, stub, "acme").await;
            let vms = server.list_vms(&acme, "").await;
            assert_clean(&json!(vms), stub.kind());
            let of = |id: u64| vms.iter().find(|vm| vm["external_id"] == json!(id.to_string())).expect("a machine").clone();
            assert_eq!((&of(first)["name"], &of(last)["name"]), (&json!("first"), &json!("last")));
            assert_eq!(of(nameless)["name"], nameless.to_string(), "a name that cannot be seen is none");
            let vm = of(hostile);
            let name = vm["name"].as_str().unwrap();
            assert!(name.starts_with("ab[31mcdefg") && name.chars().count() == 200, "{name:?}");
            assert_eq!(vm["state"], "unknown");
            let zone = vm["zone"].as_str().map(|zone| zone.chars().count());
            assert_eq!(zone, (stub.kind() == "hetzner").then_some(255));
            assert!(vm["tags"].as_object().is_some_and(|tags| (100..=200).contains(&tags.len())), "{}", vm["tags"]);
            // What was cut is no change when it is read again.
            server.sync(&acme, &provider).await;
            assert_eq!(server.list_vms(&acme, "").await, vms);
            let summary = server.get(format!("{VMS}?view=summary")).cookie(&acme.admin).await.ok(200);
            assert_clean(&summary, "summary");
        }
    }

    async fn what_a_cloud_says_of_a_failure_is_kept_short_and_clean(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            let acme = server.tenant(stub.kind()).await;
            let provider = server.connect(&acme, stub, "acme").await;
            let foul = |status: u16| stub.refusal(status, HOSTILE, &long());
            stub.on(Asked::List, [foul(500)]);
            server.sync(&acme, &provider).await;
            let now = server.read_provider(&acme, &provider).await;
            assert!(now["last_sync_error"].as_str().is_some_and(|error| error.contains("xxx")), "{now:#}");
            stub.on(Asked::Create, [foul(422)]);
            let vm = server.order(&acme, stub, &provider).await;
            server.cloud_work_for(MINUTE_MS).await;
            let vm = server.read_vm(&acme, &vm).await;
            assert_eq!((operation_status(&vm), &vm["operation"]["error"]["code"]), ("failed", &json!("invalid")), "{vm:#}");
            for asked in [Asked::ListOne, Asked::Account] {
                stub.on(asked, [foul(500)]);
            }
            let verification = server.tell_provider(&acme, &provider, "verify").await.ok(200);
            assert_eq!(verification["status"], "error", "{verification:#}");
            stub.on(Asked::Images, [foul(500)]);
            let catalog = server.get(format!("{}&catalog=images", one_provider(&provider))).cookie(&acme.admin).await;
            let problem = catalog.problem("unavailable");
            let (vms, provider) = (server.list_vms(&acme, "").await, server.read_provider(&acme, &provider).await);
            let trail = server.get(AUDIT).cookie(&acme.admin).await.ok(200);
            let events = server.events_of(&acme, "").await;
            assert!(events.iter().any(|event| event["type"] == "vm.failed"), "{events:#?}");
            for shown in [now, json!(vms), provider, verification, problem, json!(events), trail] {
                assert_clean(&shown, stub.kind());
            }
        }
    }

    async fn what_a_cloud_offers_is_shown_short_and_clean(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let provider = server.connect(&acme, stub, "acme").await;
            let image = |slug: &str| json!({
                "id": 7, "name": slug, "slug": slug, "description": long(), "distribution": long(), "regions": [stub.region()],
            });
            let Fault::Refused(mut answer) = stub.refusal(200, "", "") else { unreachable!() };
            answer.body = json!({
                "images": [image("debian-13"), image(HOSTILE), image(&long())], "links": {}, "meta": {"pagination": {"next_page": null}},
            });
            stub.on(Asked::Images, [Fault::Refused(answer)]);
            let page = server.get(format!("{}&catalog=images", one_provider(&provider))).cookie(&acme.admin).await.ok(200);
            assert_clean(&page["data"], stub.kind());
            let [only] = &page["data"].as_array().unwrap()[..] else { panic!("{page:#}") };
            assert_eq!(only["id"], "debian-13", "an id that cannot be written back is not offered");
        }
    }
}
