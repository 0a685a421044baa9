//! `search.query`: what workflows find.

use kernel::base::Timestamp;
use kernel::jobs::lanes;
use serde_json::{Value, json};
use tenant_control::features::workflows::WORKFLOW_LANE;

use crate::asset_inventory::{add, named};
use crate::support::people::KEYS;
use crate::support::search::{Indexed, SEARCH, asking};
use crate::support::workflows::{
    Step, WORKFLOWS, assert_ended, attempt_codes, manual, open, step, step_of, ticket, wait,
};
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{self, make, without};
use crate::workflows::faults;

fn find(id: &str, with: Value) -> Step {
    step(id, "search.query", with)
}

/// What a step has found, but for how long it took.
#[track_caller]
fn found(run: &Value, id: &str) -> Value {
    without(&step_of(run, id)["output"], &["took_ms"])
}

/// What the route finds.
async fn asked(server: &Server, tenancy: &Tenancy, query: &str) -> Value {
    let answer = server.get(format!("{SEARCH}?{query}")).cookie(&tenancy.admin).await.ok(200);
    without(&answer, &["took_ms"])
}

fn titles(found: &Value) -> Vec<&str> {
    let hits = found["data"].as_array().unwrap_or_else(|| panic!("no data in {found}"));
    hits.iter().map(|hit| hit["title"].as_str().expect("a title")).collect()
}

/// When workflows are looked at next.
async fn next_look(server: &Server) -> Option<Timestamp> {
    lanes::find_next_due(&server.app.store, WORKFLOW_LANE).await.expect("the lanes")
}

async fn three_tickets(server: &Server) -> Tenancy {
    let acme = server.tenant("acme").await;
    for subject in ["Printer on floor 3", "Printer on floor 4", "Printer on floor 5"] {
        make(server, &acme, &json!({"subject": subject})).await;
    }
    acme
}

over_http! {
    async fn a_step_finds_what_the_route_finds(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        add(&server, &acme, named("printer-3")).await;
        let _index = Indexed::of(&server).await;
        let run = server.run(&acme, &manual([
            find("all", json!({"q": "printer"})),
            find("some", json!({"q": "${{ 'prin' + 'ter' }} floor", "types": ["ticket"], "limit": 1})),
            find("listed", json!({"q": "printer", "types": ["ticket", "device", "ticket"], "limit": 1})),
            find("comma", json!({"q": "printer", "types": "ticket,device", "limit": 1})),
            find("nothing_said", json!({"q": "printer", "types": null, "limit": "${{ null }}", "cursor": null})),
            find("nothing", json!({"q": "scanner"})),
        ])).await;
        let ended = "succeeded: all succeeded, some succeeded, listed succeeded, comma succeeded, nothing_said succeeded, \
            nothing succeeded";
        assert_ended(&run, ended);
        for (id, query) in [
            ("all", "q=printer"), ("some", "q=printer%20floor&types=ticket&limit=1"),
            ("listed", "q=printer&types=device,ticket&limit=1"), ("comma", "q=printer&types=device,ticket&limit=1"),
            ("nothing_said", "q=printer"), ("nothing", "q=scanner"),
        ] {
            assert_eq!(found(&run, id), asked(&server, &acme, query).await, "{id}");
            assert!(step_of(&run, id)["output"]["took_ms"].is_u64(), "{id}");
        }
        let all = found(&run, "all");
        assert_eq!((&all["counts"]["ticket"], &all["counts"]["device"]), (&json!(3), &json!(1)));
        assert_eq!((titles(&all).len(), titles(&found(&run, "nothing")).len()), (4, 0));
        assert_eq!(attempt_codes(step_of(&run, "all")), [""]);
        assert_eq!(step_of(&run, "some")["input"], json!({"q": "printer floor", "types": ["ticket"], "limit": 1}));
    }

    async fn a_cursor_of_a_step_goes_on_in_a_step_and_in_a_request(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        let globex = server.tenant("globex").await;
        let _index = Indexed::of(&server).await;
        let page = |id: &str, cursor: &str| find(id, json!({"q": "printer", "types": ["ticket"], "limit": 2, "cursor": cursor}));
        let definition = manual([
            find("first", json!({"q": "printer", "types": ["ticket"], "limit": 2})),
            page("second", "${{ steps.first.output.next_cursor }}").needs(&["first"]),
        ]);
        let run = server.run(&acme, &definition).await;
        assert_ended(&run, "succeeded: first succeeded, second succeeded");
        let (first, second) = (found(&run, "first"), found(&run, "second"));
        assert_eq!((titles(&first).len(), &first["has_more"]), (2, &json!(true)));
        assert_eq!((titles(&second).len(), &second["has_more"], &second["next_cursor"]), (1, &json!(false), &json!(null)));
        assert!(!titles(&first).contains(&titles(&second)[0]), "each once");
        let cursor = first["next_cursor"].as_str().unwrap();
        assert_eq!(asked(&server, &acme, &format!("q=printer&types=ticket&limit=2&cursor={cursor}")).await, second);
        let of_request = asked(&server, &acme, "q=printer&types=ticket&limit=2").await;
        assert_eq!(of_request["next_cursor"], cursor, "the list has one kind of cursor");
        for (tenancy, with) in [
            (&acme, json!({"q": "printer floor", "types": ["ticket"], "cursor": cursor})),
            (&acme, json!({"q": "printer", "cursor": cursor})),
            (&acme, json!({"q": "printer", "types": ["ticket"], "cursor": "x"})),
            (&acme, json!({"q": "printer", "types": ["ticket"], "cursor": ""})),
            (&globex, json!({"q": "printer", "types": ["ticket"], "cursor": cursor})),
        ] {
            let run = server.run(tenancy, &manual([find("find", with.clone())])).await;
            assert_ended(&run, "failed: find failed");
            assert_eq!(step_of(&run, "find")["error"]["code"], "invalid_cursor", "{with}");
        }
    }

    async fn what_is_found_is_what_the_saver_may_read_when_it_is_looked_for(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        let _index = Indexed::of(&server).await;
        let steps = [
            find("now", json!({"q": "printer"})),
            wait("pause", 60).needs(&["now"]),
            find("later", json!({"q": "printer"})).needs(&["pause"]),
            wait("night", 60).needs(&["later"]),
            find("last", json!({"q": "printer"})).needs(&["night"]),
        ];
        let mut body = manual(steps);
        body["action"] = json!("create");
        let bare = server.key(&acme, &["workflows:*", "tickets:*"]).await;
        let refused = server.post(WORKFLOWS).key(&bare.plain).json(&body).await;
        assert_eq!(refused.problem("insufficient_scope")["required_scope"], "search:read");
        let saver = server.key(&acme, &["workflows:*", "search:read", "tickets:read"]).await;
        let workflow = server.post(WORKFLOWS).key(&saver.plain).json(&body).await.ok(201);
        let run = server.start_run(&acme, &workflow, &json!({})).await;
        server.work().await;
        let change = async |scopes: &[&str]| {
            let key = format!("{KEYS}?id={}", saver.id);
            server.put(key).cookie(&acme.admin).json(&json!({"name": "Less", "scopes": scopes})).await.is(200);
            server.work_for(60_000).await;
        };
        change(&["workflows:*", "search:read"]).await;
        change(&["workflows:*", "tickets:read"]).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(
            &run,
            "failed: now succeeded, pause succeeded, later succeeded, night succeeded, last failed",
        );
        assert_eq!(found(&run, "now")["counts"]["ticket"], 3);
        let later = found(&run, "later");
        assert_eq!((titles(&later).len(), &later["counts"]["ticket"]), (0, &json!(0)), "whoever began it may read them");
        assert_eq!(step_of(&run, "last")["error"]["code"], "insufficient_scope");
    }

    async fn what_another_tenant_has_is_not_found(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        let globex = server.tenant("globex").await;
        let _index = Indexed::of(&server).await;
        let definition = manual([find("find", json!({"q": "printer"}))]);
        assert_eq!(titles(&found(&server.run(&globex, &definition).await, "find")), [""; 0]);
        assert_eq!(titles(&found(&server.run(&acme, &definition).await, "find")).len(), 3);
    }

    async fn what_is_wrong_with_a_search_is_told_when_it_is_saved(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        for (with, expected) in [
            (json!({}), vec![("q", "required")]),
            (json!({"q": ""}), vec![("q", "invalid_text")]),
            (json!({"q": "x".repeat(201)}), vec![("q", "invalid_text")]),
            (json!({"q": 1}), vec![("q", "wrong_type")]),
            (json!({"q": "colour:red"}), vec![("q", "invalid_query")]),
            (json!({"q": "-printer"}), vec![("q", "invalid_query")]),
            (json!({"q": "a", "types": ["ticket", "cat", 1]}), vec![("types/1", "invalid_value"), ("types/2", "wrong_type")]),
            (json!({"q": "a", "types": "ticket,cat"}), vec![("types", "invalid_value")]),
            (json!({"q": "a", "types": []}), vec![("types", "required")]),
            (json!({"q": "a", "types": 1}), vec![("types", "wrong_type")]),
            (json!({"q": "a", "limit": 0}), vec![("limit", "out_of_range")]),
            (json!({"q": "a", "limit": 201}), vec![("limit", "out_of_range")]),
            (json!({"q": "a", "limit": "10"}), vec![("limit", "wrong_type")]),
            (json!({"q": "a", "cursor": 1}), vec![("cursor", "wrong_type")]),
            (json!({"query": "a", "limit": 0}), vec![("limit", "out_of_range"), ("q", "required"), ("query", "unknown_field")]),
        ] {
            let mut found = faults(&server.create_workflow(&acme, &manual([find("find", with.clone())])).await);
            found.sort_unstable();
            let at = |(field, code): &(&str, &str)| (format!("/steps/0/with/{field}"), (*code).to_owned());
            assert_eq!(found, expected.iter().map(at).collect::<Vec<_>>(), "{with}");
        }
        // What is not known yet is judged when it is.
        let with = json!({"q": "${{ input.q }}", "types": ["${{ input.type }}"], "limit": "${{ input.limit }}"});
        server.workflow(&acme, &manual([find("find", with)])).await;
    }

    async fn a_search_that_is_refused_fails_the_step(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        let _index = Indexed::of(&server).await;
        let with = json!({"q": "${{ input.q }}", "types": "${{ input.types }}"});
        let workflow = server.workflow(&acme, &manual([find("find", with).retry(3, 60)])).await;
        for (input, code, says) in [
            (json!({"q": "printer colour:red", "types": null}), "invalid_query", "At character 9: "),
            (json!({"q": "", "types": null}), "invalid_fields", "/q "),
            (json!({"q": "printer", "types": ["cat"]}), "invalid_fields", "/types/0 "),
            (json!({"q": "colour:red", "types": "cat"}), "invalid_fields", "At character 1: "),
        ] {
            let run = server.start_run(&acme, &workflow, &input).await;
            server.work().await;
            let run = server.read_run(&acme, &run).await;
            assert_ended(&run, "failed: find failed");
            let error = &step_of(&run, "find")["error"];
            assert_eq!(error["code"], code, "{input}");
            assert!(error["detail"].as_str().unwrap().contains(says), "{error}");
        }
    }

    async fn a_step_waits_until_there_is_an_index(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        let definition = manual([
            find("find", json!({"q": "printer"})),
            find("hasty", json!({"q": "printer"})).timeout(3).or_continue(),
            find("never", json!({"q": "printer"})).when("false"),
        ]);
        let run = server.run(&acme, &definition).await;
        assert_ended(&run, "running: find running, hasty running, never skipped");
        assert_eq!(next_look(&server).await, Some(server.now().plus_ms(3_000)), "its own time is not overslept");
        server.work_for(3_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "running: find running, hasty timed_out, never skipped");
        // The longer it has waited, the longer it rests; at least as long as lets another node have a look.
        for (passes_ms, rests_ms) in [(2_000, 5_000), (5_000, 10_000), (10_000, 20_000), (20_000, 30_000)] {
            server.work_for(passes_ms).await;
            assert_eq!(next_look(&server).await, Some(server.now().plus_ms(rests_ms)));
        }
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "running: find running, hasty timed_out, never skipped");
        assert_eq!(attempt_codes(step_of(&run, "find")), [""; 0], "nothing was tried");
        let _index = Indexed::of(&server).await;
        server.work_for(30_000).await;
        let run = server.read_run(&acme, &run).await;
        assert_ended(&run, "succeeded: find succeeded, hasty timed_out, never skipped");
        assert_eq!(attempt_codes(step_of(&run, "find")), [""]);
        assert_eq!(titles(&found(&run, "find")).len(), 3);
    }

    async fn a_page_that_is_too_large_for_a_step_ends_before_its_limit(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        // What is escaped in a highlight is five times as long.
        let text = format!("Printer {} Printer", "&".repeat(140));
        for _ in 0..200 {
            make(&server, &acme, &json!({"subject": text, "description": text})).await;
        }
        let _index = Indexed::of(&server).await;
        let with = |cursor: &str| json!({"q": "printer", "types": ["ticket"], "limit": 200, "cursor": cursor});
        let run = server.run(&acme, &manual([
            find("first", json!({"q": "printer", "types": ["ticket"], "limit": 200})),
            find("second", with("${{ steps.first.output.next_cursor }}")).needs(&["first"]),
        ])).await;
        assert_ended(&run, "succeeded: first succeeded, second succeeded");
        let (first, second) = (found(&run, "first"), found(&run, "second"));
        assert_eq!((&first["has_more"], &first["counts"]["ticket"]), (&json!(true), &json!(200)));
        assert_eq!((titles(&first).len(), titles(&second).len()), (100, 100));
        assert_eq!(second["has_more"], false);
        let whole = server.get(asking("printer type:ticket") + "&limit=200").cookie(&acme.admin).await.ok(200);
        assert_eq!(titles(&whole).len(), 200, "a request may be answered more");
    }

    async fn a_dry_run_looks_and_touches_nothing(setup: Setup) {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let made = make(&server, &acme, &json!({"subject": "Printer on fire"})).await;
        let _index = Indexed::of(&server).await;
        let before = tickets::read(&server, &acme, &made).await;
        let comment = json!({"ticket_id": "${{ steps.found.output.data[0].id }}", "body": "Seen.", "public": false});
        let workflow = server.workflow(&acme, &manual([
            find("found", json!({"q": "printer", "types": ["ticket"]})),
            step("note", "ticket.comment", comment).needs(&["found"]),
            find("again", json!({"q": "${{ steps.note.output.subject }}", "types": ["ticket"]})).needs(&["note"]),
            find("beside", json!({"q": "type:ticket"})),
            find("refused", json!({"q": "${{ 'colour:red' }}"})).or_continue(),
            find("after_refused", json!({"q": "${{ steps.refused.status }} printer"})).needs(&["refused"]),
            ticket("report", "${{ steps.again.output.counts.ticket }} found").needs(&["again"]),
            find("never", json!({"q": "printer"})).when("false"),
        ])).await;
        let answer = server.post_run(&acme, &workflow, &json!({"dry_run": true})).await.ok(202);
        let run = server.read_run(&acme, &answer).await;
        assert_ended(
            &run,
            "succeeded: found succeeded, note succeeded, again succeeded, beside succeeded, refused failed, \
            after_refused succeeded, report succeeded, never skipped",
        );
        assert_eq!(found(&run, "found"), asked(&server, &acme, "q=printer&types=ticket").await);
        assert_eq!((titles(&found(&run, "again")), titles(&found(&run, "beside"))), (vec!["Printer on fire"], vec!["Printer on fire"]));
        assert_eq!(step_of(&run, "refused")["error"]["code"], "invalid_query");
        assert_eq!(step_of(&run, "after_refused")["input"]["q"], "failed printer");
        assert_eq!(step_of(&run, "report")["output"]["subject"], "1 found");
        assert_eq!(tickets::read(&server, &acme, &made).await, before);
        assert_eq!(tickets::numbers(&server, &acme, "").await, [1]);
        server.work().await;
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 1);
    }

    async fn a_dry_run_shows_what_was_asked(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        let _index = Indexed::of(&server).await;
        let workflow = server.workflow(&acme, &manual([
            ticket("make", "Toner"),
            find("found", json!({"q": "printer -${{ run.id }} -${{ steps.make.output.id }}", "limit": 1})).needs(&["make"]),
            find("after", json!({"q": "${{ run.id }}"})).needs(&["found"]),
        ])).await;
        let run = server.post_run(&acme, &workflow, &json!({"dry_run": true})).await.ok(202);
        assert_ended(&run, "succeeded: make succeeded, found succeeded, after succeeded");
        assert_eq!(step_of(&run, "after")["input"]["q"], run["id"]);
        let (q, answer) = (step_of(&run, "found")["input"]["q"].as_str().unwrap(), found(&run, "found"));
        assert!(q.contains(run["id"].as_str().unwrap()), "{q}");
        // A cursor goes on with its own question alone.
        let cursor = answer["next_cursor"].as_str().unwrap();
        let next = server.get(format!("{}&limit=1&cursor={cursor}", asking(q))).cookie(&acme.admin).await.ok(200);
        assert_eq!(titles(&next).len(), 1);
    }

    async fn a_dry_run_looks_ten_times_at_most(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        let _index = Indexed::of(&server).await;
        let one = |number: usize| find(&format!("find_{number}"), json!({"q": "printer"}));
        let behind = |number: usize| one(number).needs(&[format!("find_{}", number - 1).as_str()]);
        let chain: Vec<Step> = std::iter::once(one(0)).chain((1..11).map(behind)).collect();
        for steps in [chain, (0..11).map(one).collect()] {
            let workflow = server.workflow(&acme, &manual(steps)).await;
            let run = server.post_run(&acme, &workflow, &json!({"dry_run": true})).await.ok(202);
            assert_eq!(run["status"], "failed");
            for number in 0..10 {
                assert_eq!(titles(&found(&run, &format!("find_{number}"))).len(), 3, "{number}");
            }
            assert_eq!(step_of(&run, "find_10")["error"]["code"], "limit_reached");
            let run = server.start_run(&acme, &workflow, &json!({})).await;
            server.work().await;
            assert_eq!(server.read_run(&acme, &run).await["status"], "succeeded", "a run has no such limit");
        }
    }

    async fn a_dry_run_without_an_index_can_be_asked_for_again(setup: Setup) {
        let server = open(setup).await;
        let acme = three_tickets(&server).await;
        let workflow = server.workflow(&acme, &manual([find("find", json!({"q": "printer"}))])).await;
        let body = json!({"action": "run", "workflow_id": workflow["id"], "dry_run": true});
        let ask = || server.post(WORKFLOWS).cookie(&acme.admin).idempotency_key("dry").json(&body);
        ask().await.problem("unavailable");
        assert_eq!(server.runs_of(&acme, &workflow).await.len(), 0);
        let _index = Indexed::of(&server).await;
        let run = ask().await.ok(202);
        assert_eq!(titles(&found(&run, "find")).len(), 3);
    }
}
