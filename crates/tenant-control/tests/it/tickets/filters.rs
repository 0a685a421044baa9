//! Filters: each alone, several together, and never one that is ignored; and the words of `q`.

use kernel::base::MINUTE_MS;

use super::*;

/// Whether a ticket is wanted.
type Condition<'a> = Box<dyn Fn(&Value) -> bool + 'a>;

/// A tenant with tickets of many kinds, beside another with the like of them.
struct Scene<'a> {
    server: &'a Server,
    acme: Tenancy,
    organizations: [String; 2],
    users: [String; 2],
    foreign: [String; 2],
    all: Vec<Value>,
}

const TYPES: [&str; 5] = ["incident", "service_request", "problem", "change", "task"];
const PRIORITIES: [&str; 4] = ["low", "medium", "high", "critical"];
const COUNT: usize = 24;

/// What the tests of `q` look for, in the order of their numbers.
const SUBJECTS: [&str; 9] = [
    "Printer on fire",
    "printers: PRINTING 2026-Q1 report",
    "E-Mail an Jürgen Größe",
    "100% CPU_load on web01.acme.test",
    "ПРИНТЕР горит",
    "プリンター 火事",
    "O'Neil's iPhone",
    "ΟΔΟΣΑ street",
    "Fire alarm, fire drill",
];

impl Scene<'_> {
    async fn set(server: &Server) -> Scene<'_> {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let organizations = [organization(server, &acme, "initech").await, organization(server, &acme, "hooli").await];
        let foreign_place = organization(server, &globex, "initech").await;
        let users = [person(server, &acme, Role::Technician).await.0, person(server, &acme, Role::Admin).await.0];
        let (foreigner, _) = person(server, &globex, Role::Technician).await;
        for n in 0..COUNT {
            let mut body = json!({
                "subject": format!("Ticket {} of the kind {}", n, ["Printer", "Network", "Laptop"][n % 3]),
                "type": TYPES[n % 5], "priority": PRIORITIES[n % 4], "external_id": format!("X{n}"),
                "tags": [(["red", "green", "blue"][n % 3]), (["a&b=c", "50%", "two words", "ü"][n % 4])],
            });
            let foreign = with(&body, &json!({"organization_id": foreign_place, "assignee_id": foreigner}));
            if n % 3 < 2 {
                body["organization_id"] = json!(organizations[n % 3]);
            }
            if n % 4 < 2 {
                body["assignee_id"] = json!(users[n % 4]);
            }
            let ticket = make(server, &acme, &body).await;
            if n % 5 == 4 {
                server.advance(MINUTE_MS);
            }
            let way: &[&str] =
                [&[][..], &["open"], &["pending"], &["resolved"], &["resolved", "closed"], &["cancelled"]][n % 6];
            for status in way {
                changed(server, &acme, &ticket, &json!({"status": status})).await;
            }
            if n % 4 == 0 {
                make(server, &globex, &foreign).await;
            }
        }
        let all = list(server, &acme, "limit=200").await;
        assert_eq!(all.len(), COUNT);
        Scene { server, acme, organizations, users, foreign: [foreign_place, foreigner], all }
    }

    /// Asserts that a query finds what a predicate wants of all tickets, newest first, and returns how many.
    async fn finds(&self, query: &str, wanted: impl Fn(&Value) -> bool) -> usize {
        let expected: Vec<&Value> = self.all.iter().filter(|ticket| wanted(ticket)).collect();
        let found = list(self.server, &self.acme, &format!("limit=200&{query}")).await;
        let short = |ticket: &Value| ticket["number"].clone();
        let (expected_numbers, found_numbers): (Vec<_>, Vec<_>) =
            (expected.iter().map(|ticket| short(ticket)).collect(), found.iter().map(short).collect());
        assert_eq!(found_numbers, expected_numbers, "{query}");
        assert!(found.iter().eq(expected), "{query} shows tickets as they are");
        found.len()
    }
}

fn is(ticket: &Value, field: &str, any: &[&str]) -> bool {
    ticket[field].as_str().is_some_and(|text| any.contains(&text))
}

fn tagged(ticket: &Value, any: &[&str]) -> bool {
    ticket["tags"].as_array().unwrap().iter().any(|tag| any.contains(&tag.as_str().unwrap()))
}

fn since(ticket: &Value, field: &str, moment: &str) -> bool {
    ticket[field].as_str().unwrap() >= moment
}

over_http! {
    async fn each_filter_alone_finds_any_of_its_values(server: Server) {
        let scene = Scene::set(&server).await;
        for (field, words) in [("status", &STATUSES[..]), ("type", &TYPES), ("priority", &PRIORITIES)] {
            for (at, word) in words.iter().enumerate() {
                let other = words[(at + 2) % words.len()];
                scene.finds(&format!("{field}={word}"), |ticket| is(ticket, field, &[word])).await;
                scene.finds(&format!("{field}={word},{other}"), |ticket| is(ticket, field, &[word, other])).await;
                scene.finds(&format!("{field}={word},{word}"), |ticket| is(ticket, field, &[word])).await;
            }
            assert_eq!(scene.finds(&format!("{field}={}", words.join(",")), |_| true).await, COUNT);
        }
        for (field, ids) in [("organization_id", &scene.organizations), ("assignee_id", &scene.users)] {
            for id in ids {
                assert!(scene.finds(&format!("{field}={id}"), |ticket| is(ticket, field, &[id])).await > 0);
            }
            let both = [ids[1].as_str(), ids[0].as_str()];
            assert!(scene.finds(&format!("{field}={}", both.join(",")), |ticket| is(ticket, field, &both)).await < COUNT);
        }
        for (spelt, tags) in [
            ("red", vec!["red"]),
            ("red,blue", vec!["red", "blue"]),
            ("a%26b%3Dc", vec!["a&b=c"]),
            ("50%25", vec!["50%"]),
            ("two%20words", vec!["two words"]),
            ("two+words", vec!["two words"]),
            ("%C3%BC,red", vec!["ü", "red"]),
            ("ü", vec!["ü"]),
        ] {
            assert!(scene.finds(&format!("tag={spelt}"), |ticket| tagged(ticket, &tags)).await > 0);
        }
        assert_eq!(scene.finds("external_id=X3", |ticket| is(ticket, "external_id", &["X3"])).await, 1);
        assert_eq!(scene.finds("external_id=X3,X20,missing", |ticket| is(ticket, "external_id", &["X3", "X20"])).await, 2);
        assert_eq!(scene.finds("number=4", |ticket| ticket["number"] == 4).await, 1);
        assert_eq!(scene.finds("number=24,4,1,4,1000", |ticket| [1, 4, 24].contains(&ticket["number"].as_i64().unwrap())).await, 3);
    }

    async fn what_nothing_has_finds_nothing(server: Server) {
        let scene = Scene::set(&server).await;
        let longest = i64::MAX;
        for query in [
            format!("organization_id={NOWHERE}"),
            format!("organization_id={}", scene.foreign[0]),
            format!("assignee_id={NOBODY}"),
            format!("assignee_id={}", scene.foreign[1]),
            format!("organization_id={NOWHERE},{}&assignee_id={}", scene.foreign[0], scene.users[0]),
            format!("device_id={NOTHING}"),
            format!("device_id={NOTHING}&tag=red"),
            format!("number={longest}"),
            "tag=Red".to_owned(),
            "tag=re".to_owned(),
            "tag=%25".to_owned(),
            "tag=_ed".to_owned(),
            "external_id=x3".to_owned(),
            "external_id=X".to_owned(),
            "number=25".to_owned(),
            "number=4&external_id=X4".to_owned(),
            "q=nonsense".to_owned(),
            "q=printer%20network".to_owned(),
            "status=new&number=2".to_owned(),
            "created_since=2026-02-01T00:00:00Z".to_owned(),
            "updated_since=2026-02-01T00:00:00Z".to_owned(),
            "created_since=9999-01-01T00:00:00Z&sort=priority".to_owned(),
        ] {
            let page = server.get(format!("{TICKETS}?{query}")).cookie(&scene.acme.admin).await.ok(200);
            assert_eq!(page, json!({"data": [], "has_more": false, "next_cursor": null}), "{query}");
        }
    }

    async fn filters_narrow_each_other_down(server: Server) {
        let scene = Scene::set(&server).await;
        let moment = scene.all[COUNT / 2]["created_at"].as_str().unwrap().to_owned();
        let (place, user) = (scene.organizations[0].clone(), scene.users[0].clone());
        let (place_id, user_id, at) = (place.as_str(), user.as_str(), moment.as_str());
        let conditions: Vec<(String, Condition<'_>)> = vec![
            ("status=new,open,pending".to_owned(), Box::new(|ticket| is(ticket, "status", &["new", "open", "pending"]))),
            ("status=resolved,closed".to_owned(), Box::new(|ticket| is(ticket, "status", &["resolved", "closed"]))),
            ("priority=low,critical".to_owned(), Box::new(|ticket| is(ticket, "priority", &["low", "critical"]))),
            ("type=incident,task".to_owned(), Box::new(|ticket| is(ticket, "type", &["incident", "task"]))),
            (format!("assignee_id={user}"), Box::new(|ticket| is(ticket, "assignee_id", &[user_id]))),
            (format!("organization_id={place}"), Box::new(|ticket| is(ticket, "organization_id", &[place_id]))),
            ("tag=red,green".to_owned(), Box::new(|ticket| tagged(ticket, &["red", "green"]))),
            ("number=1,2,3,4,5,6,7,8,9".to_owned(), Box::new(|ticket| ticket["number"].as_i64().unwrap() < 10)),
            ("external_id=X1,X2,X12,X18".to_owned(), Box::new(|ticket| is(ticket, "external_id", &["X1", "X2", "X12", "X18"]))),
            (format!("created_since={moment}"), Box::new(|ticket| since(ticket, "created_at", at))),
            ("q=prin".to_owned(), Box::new(|ticket| ticket["subject"].as_str().unwrap().contains("Printer"))),
        ];
        let mut found = 0;
        for (n, (first, wants)) in conditions.iter().enumerate() {
            for (second, also_wants) in &conditions[n + 1..] {
                if first.split('=').next() != second.split('=').next() {
                    found += scene.finds(&format!("{first}&{second}"), |ticket| wants(ticket) && also_wants(ticket)).await;
                    let turned = format!("{second}&{first}&tag=red");
                    if !turned.starts_with("tag") && !first.starts_with("tag") {
                        scene.finds(&turned, |ticket| wants(ticket) && also_wants(ticket) && tagged(ticket, &["red"])).await;
                    }
                }
            }
        }
        assert!(found > 50, "the conditions do not exclude each other: {found}");
        let most: Vec<&str> = conditions.iter().skip(1).map(|(query, _)| query.as_str()).collect();
        scene.finds(&most.join("&"), |ticket| conditions[1..].iter().all(|(_, wants)| wants(ticket))).await;
    }

    async fn since_is_inclusive_and_changes_come_in_their_order(server: Server) {
        let scene = Scene::set(&server).await;
        for ticket in scene.all.iter().step_by(5) {
            let at = ticket["created_at"].as_str().unwrap();
            let found = scene.finds(&format!("created_since={at}"), |ticket| since(ticket, "created_at", at)).await;
            let later = at.replace(".000Z", ".001Z");
            assert!(found > scene.finds(&format!("created_since={later}"), |ticket| since(ticket, "created_at", &later)).await);
            scene.finds(&format!("updated_since={at}&sort=-created_at"), |ticket| since(ticket, "updated_at", at)).await;
            let page = list(&server, &scene.acme, &format!("updated_since={at}")).await;
            let mut expected: Vec<Value> = scene.all.iter().filter(|ticket| since(ticket, "updated_at", at)).cloned().collect();
            expected.sort_by_key(|ticket| (ticket["updated_at"].to_string(), id_of(ticket).to_owned()));
            assert_eq!(page, expected, "updated_since={at}");
        }
        for early in ["1970-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2026-01-15T11:00:00%2B01:00"] {
            assert_eq!(scene.finds(&format!("created_since={early}"), |_| true).await, COUNT);
            assert_eq!(list(&server, &scene.acme, &format!("updated_since={early}&limit=200")).await.len(), COUNT);
        }
    }

    async fn a_parameter_is_known_once_and_good_or_refused(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, &json!({})).await;
        let ask = |query: String| server.get(format!("{TICKETS}?{query}")).cookie(&acme.admin);
        for query in ["nonsense=1", "Status=new", "state=new", "subject=x", "team=A", "category=A", "source=api", "sla_state=ok", "status[]=new"] {
            ask(query.to_owned()).await.problem("unknown_parameter");
        }
        let words = vec!["word"; 300].join("%20");
        for (name, bad) in [
            ("status", vec!["", "New", "new,", ",new", "new,,open", "nonsense", "new;open", "new%20"]),
            ("priority", vec!["", "High", "low,urgent", "1", ","]),
            ("type", vec!["", "Task", "task,ticket", ","]),
            ("assignee_id", vec!["", "nobody", "null", ",", NOWHERE, "usr_"]),
            ("organization_id", vec!["", "initech", NOBODY, "org_01JD8Z6V2MFKPB7H3Q9XW5T4RA"]),
            ("device_id", vec!["", "x", NOBODY]),
            ("tag", vec!["", ",", "a,", "%20"]),
            ("external_id", vec!["", ",", "a,,b"]),
            ("number", vec!["", "0", "-1", "1.5", "one", "1,", "99999999999999999999", "1e3", "%201"]),
            ("created_since", vec!["", "yesterday", "2026-01-15", "1768471200", "2026-01-15T10:00:00", "2026-01-15T10:00:00+01:00"]),
            ("updated_since", vec!["", "yesterday", "2026-01-15", "2026-01-15T25:00:00Z"]),
            ("q", vec!["", "%20", "%2C%2E-", &words]),
            ("sort", vec!["", "-", "number", "Priority", "priority,due_at", "+priority", "--priority", "-%20priority", "subject"]),
            ("limit", vec!["", "0", "201", "x"]),
        ] {
            for value in bad {
                let answer = ask(format!("{name}={value}")).await;
                assert_eq!(answer.json()["code"], "invalid_parameter", "{name}={value:.40}: {}", answer.json());
                answer.problem("invalid_parameter");
            }
        }
        for twice in ["status=new&status=odd", "tag=a&tag=", "q=a&q=b", "sort=priority&sort=priority", "number=1&number=x", "limit=1&limit=1", "updated_since=2026-01-15T10:00:00Z&updated_since=2026-01-15T10:00:00Z"] {
            ask(twice.to_owned()).await.problem("invalid_parameter");
        }
        // A filter that matches nothing is no excuse for another that is bad.
        ask("number=99&status=nonsense".to_owned()).await.problem("invalid_parameter");
    }

    async fn a_word_that_begins_very_many_others_in_several_spellings_is_found(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        // Up to 90 words in three spellings, of live tickets and of done ones.
        for part in 0..6 {
            let words: Vec<String> = (0..30).map(|n| format!("mü{part}{n}")).collect();
            let ticket = make(&server, &acme, &json!({"subject": words.join(" ")})).await;
            if part % 2 == 0 {
                changed(&server, &acme, &ticket, &json!({"status": "resolved"})).await;
            }
        }
        for q in ["mü", "mue", "mu", "m%C3%BC0"] {
            let found = server.get(format!("{TICKETS}?q={q}")).cookie(&acme.admin).await.ok(200);
            let count = if q == "m%C3%BC0" { 1 } else { 6 };
            assert_eq!(found["data"].as_array().map(Vec::len), Some(count), "{q}");
        }
    }

    async fn every_word_is_the_beginning_of_a_word_of_the_subject(server: Server) {
        let acme = server.tenant("acme").await;
        for subject in SUBJECTS {
            let elsewhere = json!({"description": "hidden", "team": "hidden", "category": "hidden", "tags": ["hidden"],
                "requester": {"name": "hidden"}, "custom_fields": {"hidden": "hidden"}});
            let ticket = make(&server, &acme, &with(&elsewhere, &json!({"subject": subject}))).await;
            changed(&server, &acme, &ticket, &json!({"comment": {"body": "hidden"}})).await;
        }
        for (q, expected) in [
            ("p", &[2, 1][..]),
            ("print", &[2, 1]),
            ("PRINT", &[2, 1]),
            ("printer", &[2, 1]),
            ("printers", &[2]),
            ("rinter", &[]),
            ("fire", &[9, 1]),
            ("fire printer", &[1]),
            ("printer  fire ", &[1]),
            ("on fire print", &[1]),
            ("fire fire", &[9, 1]),
            ("al dr", &[9]),
            ("print report", &[2]),
            ("printer printing", &[2]),
            ("2026", &[2]),
            ("202 q1", &[2]),
            ("2026-q", &[2]),
            ("jür", &[3]),
            ("JÜRGEN", &[3]),
            ("grösse", &[3]),
            ("groesse", &[3]),
            ("grosse", &[3]),
            ("juergen", &[3]),
            ("jurgen", &[3]),
            ("email", &[3]),
            ("web-01", &[4]),
            ("web 01", &[]),
            ("2026q1", &[2]),
            ("q1-2026", &[2]),
            ("fire - printer .", &[1]),
            ("GRÖßE", &[3]),
            ("mail", &[3]),
            ("e-mail", &[3]),
            ("100", &[4]),
            ("web01", &[4]),
            ("web01.acme.test", &[4]),
            ("acm", &[4]),
            ("принтер", &[5]),
            ("Прин гор", &[5]),
            ("プリ", &[6]),
            ("火", &[6]),
            ("o'neil", &[7]),
            ("iph", &[7]),
            ("ΟΔΟΣΑ", &[8]),
            ("οδοσα", &[8]),
            ("ΟΔΟ", &[8]),
            ("hidden", &[]),
            ("fire hidden", &[]),
            ("printer network", &[]),
            ("on", &[7, 4, 1]),
        ] {
            let spelt = q.replace('%', "%25").replace('\'', "%27").replace(' ', "%20");
            assert_eq!(numbers(&server, &acme, &format!("q={spelt}")).await, expected, "{q:?}");
            let plus = q.replace('%', "%25").replace(' ', "+");
            assert_eq!(numbers(&server, &acme, &format!("q={plus}&sort=created_at")).await.len(), expected.len(), "{q:?}");
        }
        for wild in ["%25", "_", "*", "pr%25", "pr_nter", "print*", "%27%20OR%201=1--"] {
            let answer = server.get(format!("{TICKETS}?q={wild}")).cookie(&acme.admin).await;
            let found = if answer.status == 200 { answer.json()["data"].as_array().unwrap().len() } else { 0 };
            assert!(found < SUBJECTS.len(), "{wild} is no pattern");
            assert!([200, 400].contains(&answer.status), "{wild}: {}", answer.json());
        }
    }

    async fn a_new_subject_is_found_and_the_old_one_is_not(server: Server) {
        let (acme, globex) = (server.tenant("acme").await, server.tenant("globex").await);
        let ticket = make(&server, &acme, &json!({"subject": "Printer on fire"})).await;
        make(&server, &globex, &json!({"subject": "Printer on ice"})).await;
        changed(&server, &acme, &ticket, &json!({"subject": "Printer out of ink"})).await;
        for (q, count) in [("fire", 0), ("ink", 1), ("printer", 1), ("on", 0), ("ice", 0)] {
            assert_eq!(numbers(&server, &acme, &format!("q={q}")).await.len(), count, "{q}");
        }
    }

    async fn words_are_as_many_as_a_subject_may_have(server: Server) {
        let acme = server.tenant("acme").await;
        let words: Vec<String> = (0..50).map(|n| format!("w{n:02}")).collect();
        let subject = words.join(" ");
        make(&server, &acme, &json!({"subject": subject})).await;
        make(&server, &acme, &json!({"subject": "x".repeat(200)})).await;
        for word in &words {
            assert_eq!(numbers(&server, &acme, &format!("q={word}")).await, [1]);
        }
        // A beginning that very many words have is as good as any other.
        assert_eq!(numbers(&server, &acme, "q=w").await, [1]);
        assert_eq!(numbers(&server, &acme, "q=w&sort=priority").await, [1]);
        assert_eq!(numbers(&server, &acme, &format!("q={}", "x".repeat(200))).await, [2]);
        assert_eq!(numbers(&server, &acme, "q=xx").await, [2]);
        let most = words[..10].join("+");
        assert_eq!(numbers(&server, &acme, &format!("q={most}")).await, [1]);
    }

    async fn a_sigma_is_a_sigma_wherever_it_stands(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, &json!({"subject": "ΟΔΟΣΑ"})).await;
        make(&server, &acme, &json!({"subject": "Οδός ΟΔΟΣ"})).await;
        for (q, expected) in [("ΟΔΟΣ", [2, 1]), ("οδοσ", [2, 1]), ("οδος", [2, 1]), ("ΟΔΟ", [2, 1])] {
            assert_eq!(numbers(&server, &acme, &format!("q={q}")).await, expected, "{q}");
        }
    }

    async fn odd_characters_find_nothing_and_break_nothing(server: Server) {
        let acme = server.tenant("acme").await;
        make(&server, &acme, &json!({"tags": ["a"], "external_id": "a"})).await;
        let odd = ["%00", "a%00", "%00a", "a%00b", "a,%00", "%01", "%F4%8F%BF%BF", "%EF%BF%BF", "%E2%80%8B", "%27%22%5C", "%25_%25"];
        let mut broken = Vec::new();
        for name in ["tag", "external_id", "q", "assignee_id", "status", "number", "sort", "cursor", "created_since", "id"] {
            for value in odd {
                let answer = server.get(format!("{TICKETS}?{name}={value}")).cookie(&acme.admin).await;
                let found = answer.json()["data"].as_array().map_or(0, Vec::len);
                let may_find = name == "q" || value == "a,%00";
                if answer.status >= 500 || found > 0 && !may_find {
                    broken.push(format!("{name}={value}: {} with {found} tickets", answer.status));
                }
            }
        }
        assert!(broken.is_empty(), "{broken:#?}");
        server.get(format!("{TICKETS}?tag=%FF")).cookie(&acme.admin).await.problem("invalid_parameter");
    }
}
